//! The example prints the metrics that the documentation promises.

use std::process::Command;

use anabranch::{METRICS, MetricKind};

#[test]
fn a_scrape_has_every_metric_of_the_table() {
    let output = Command::new(env!("CARGO_BIN_EXE_prometheus")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let scraped = String::from_utf8(output.stdout).unwrap();
    for metric in METRICS {
        let (name, kind) = (metric.name, metric.kind.name());
        let sample = match metric.kind {
            MetricKind::Histogram => format!("{name}_bucket{{run=\"memory\""),
            MetricKind::Counter | MetricKind::Gauge => format!("{name}{{run=\"memory\""),
        };
        // The scripted learner measures only its loss. Unknown metrics are absent, not 0.
        let known = !["anabranch_effective_sample_size", "anabranch_learner"].contains(&name);
        assert_eq!(scraped.lines().any(|line| line.starts_with(&sample)), known, "{sample}\n{scraped}");
        assert_eq!(scraped.contains(&format!("# TYPE {name} {kind}\n")), known, "{name}");
        assert_eq!(scraped.contains(&format!("# HELP {name} {}\n", metric.meaning)), known, "{name}");
    }
    let document = include_str!("../../docs/metrics.md");
    let names = scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for name in names {
        assert!(document.contains(&format!("| `{name}` |")), "docs/metrics.md lacks {name}");
    }
}
