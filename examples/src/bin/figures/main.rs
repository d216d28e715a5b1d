//! Draws the figures of the documentation from the logs of real runs on a scripted engine, in virtual time. Prints each
//! figure as text and writes `docs/figures/*.svg`. With `--check` it compares the existing files with the new ones.

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use self::chart::Chart;

mod ageing;
mod chart;
mod checks;
mod overlap;
mod pipeline;
mod recording;
mod schedules;
mod svg;
mod versions;

fn charts() -> Result<Vec<Chart>> {
    Ok(vec![schedules::draw()?, versions::draw()?, ageing::draw()?, checks::draw()?])
}

/// The content of each file, by its path under `docs`.
fn files(charts: &[Chart]) -> Result<Vec<(String, String)>> {
    let figures = charts.iter().map(|chart| (format!("figures/{}.svg", chart.name), svg::draw(chart)));
    Ok(figures.chain([("overlap.md".to_owned(), overlap::page()?)]).collect())
}

fn main() -> Result<()> {
    let mut check = false;
    let mut dir = PathBuf::from("docs");
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--check" => check = true,
            flag if flag.starts_with('-') => bail!("expected `figures [--check] [DIR]`, found the flag `{flag}`"),
            path => dir = path.into(),
        }
    }
    let charts = charts()?;
    if !check {
        for chart in &charts {
            println!("{}", chart.text());
        }
    }
    for (name, content) in files(&charts)? {
        let path = dir.join(name);
        if check {
            let found = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            if found != content {
                bail!("{} differs from the figure of the run: run figures without --check", path.display());
            }
            println!("checked {}", path.display());
        } else {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            println!("wrote {}", path.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_files_are_what_the_runs_draw() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        for (name, content) in files(&charts().unwrap()).unwrap() {
            let found = fs::read_to_string(docs.join(&name)).unwrap_or_else(|error| panic!("docs/{name}: {error}"));
            assert!(found == content, "docs/{name} differs from the figure of the run: run figures");
        }
    }

    #[test]
    fn nothing_is_wider_than_its_page() {
        for chart in charts().unwrap() {
            assert!(svg::fits(&chart), "{}: the legend is cut off", chart.name);
            for line in chart.text().lines() {
                assert!(line.chars().count() <= 100, "{}: {line}", chart.name);
            }
        }
    }
}
