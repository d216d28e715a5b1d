//! The tokens of a sample, each with its version, age and log-prob.

use std::fmt::{self, Write};
use std::io::IsTerminal;

use anabranch_core::{Group, Sample, SpanVersion, Version, VersionSpan};
use serde::Serialize;

use crate::arguments::Color;

/// The length of a line in characters.
const WIDTH: usize = 100;
/// How many characters of a line come before the tokens.
const INDENT: usize = 22;

/// A token after the prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Token {
    id: u32,
    /// Whether the policy generated the token; otherwise it comes from the environment.
    generated: bool,
    /// The oldest and the newest version that can have produced the token.
    version_lo: Option<Version>,
    version_hi: Option<Version>,
    /// Publications since the oldest version.
    age: Option<u64>,
    logprob: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_logprob: Option<f32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    kv_carried: bool,
}

/// The tokens of a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SampleTokens {
    prompt: Vec<u32>,
    response: Vec<Token>,
}

impl SampleTokens {
    /// Returns the tokens of each sample, with ages counted against the version `now`.
    pub(crate) fn of_group(group: &Group, now: Option<Version>) -> Vec<Self> {
        group.samples.iter().map(|sample| Self::of_sample(sample, now)).collect()
    }

    fn of_sample(sample: &Sample, now: Option<Version>) -> Self {
        let mut place = 0;
        let token = |(&id, &generated): (&u32, &bool)| {
            let mut token = Token {
                id,
                generated,
                version_lo: None,
                version_hi: None,
                age: None,
                logprob: None,
                truncated_logprob: None,
                kv_carried: false,
            };
            if generated {
                let covers = |span: &&VersionSpan| (span.start..span.end).contains(&place);
                if let Some(span) = sample.spans.iter().find(covers) {
                    let version: SpanVersion = span.version;
                    (token.version_lo, token.version_hi) = (version.lowest(), version.highest());
                    token.kv_carried = span.kv_carried;
                }
                token.age = now.zip(token.version_lo).map(|(now, version)| now.since(version));
                token.logprob = sample.logprobs.get(place as usize).copied();
                let truncated = sample.truncated_logprobs.as_ref();
                token.truncated_logprob = truncated.and_then(|logprobs| logprobs.get(place as usize).copied());
                place += 1;
            }
            token
        };
        let response = sample.response().iter().zip(&sample.loss_mask).map(token).collect();
        let prompt = sample.tokens.get(..sample.prompt_len as usize).unwrap_or_default().to_vec();
        Self { prompt, response }
    }

    /// Writes the tokens in lines; each line has tokens of one version.
    pub(crate) fn write(&self, out: &mut String, index: usize, paint: fn(&Token, &str) -> String) -> fmt::Result {
        writeln!(out, "sample {index:>3}")?;
        let prompt: Vec<(String, String)> = self.prompt.iter().map(|id| plain(id.to_string())).collect();
        lines(out, "prompt", &prompt)?;
        for run in self.response.chunk_by(Token::alike) {
            let cells: Vec<(String, String)> = run
                .iter()
                .map(|token| {
                    let cell = token.cell();
                    let painted = paint(token, &cell);
                    (cell, painted)
                })
                .collect();
            lines(out, &run[0].label(), &cells)?;
        }
        Ok(())
    }
}

fn plain(cell: String) -> (String, String) {
    (cell.clone(), cell)
}

/// Fills cells into lines. Each cell has a text for measuring and a text for writing, which may contain colours.
fn lines(out: &mut String, label: &str, cells: &[(String, String)]) -> fmt::Result {
    let wide = cells.iter().map(|(cell, _)| cell.chars().count()).max().unwrap_or_default();
    let a_line = ((WIDTH - INDENT) / (wide + 2)).max(1);
    for (cells, line) in cells.chunks(a_line).zip(0..) {
        let label = if line == 0 { label } else { "" };
        write!(out, "  {label:<width$}", width = INDENT - 2)?;
        for (cell, painted) in cells {
            write!(out, "{:pad$}{painted}", "", pad = 2 + wide - cell.chars().count())?;
        }
        out.push('\n');
    }
    Ok(())
}

impl Token {
    fn alike(&self, other: &Self) -> bool {
        let key = |token: &Self| (token.generated, token.version_lo, token.version_hi, token.kv_carried);
        key(self) == key(other)
    }

    fn cell(&self) -> String {
        match (self.generated, self.logprob) {
            (false, _) => format!("[{}]", self.id),
            (true, Some(logprob)) => format!("{} {logprob:.3}", self.id),
            (true, None) => format!("{} -", self.id),
        }
    }

    fn label(&self) -> String {
        if !self.generated {
            return "environment".to_owned();
        }
        let version = match (self.version_lo, self.version_hi) {
            (Some(lo), Some(hi)) if lo == hi => lo.to_string(),
            (Some(lo), Some(hi)) => format!("{lo}..{hi}?"),
            _ => "v?".to_owned(),
        };
        let age = self.age.map_or_else(|| "age ?".to_owned(), |age| format!("age {age}"));
        let carried = if self.kv_carried { ", old kv" } else { "" };
        format!("{version}, {age}{carried}")
    }
}

/// The colours of ages, from the palette of 256 colours: green, yellow, orange, red.
const AGES: [u8; 4] = [34, 178, 208, 196];
/// The colour of a token of unknown age.
const UNKNOWN: u8 = 135;
/// The colour of environment tokens.
const ENVIRONMENT: u8 = 244;

/// The colour of a token's age.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Age;

impl Age {
    /// Whether to write tokens in colour.
    pub(crate) fn painter(color: Color) -> fn(&Token, &str) -> String {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if coloured(color, std::io::stdout().is_terminal(), no_color) { Self::paint } else { |_, text| text.to_owned() }
    }

    fn paint(token: &Token, text: &str) -> String {
        let color = match (token.generated, token.age) {
            (false, _) => ENVIRONMENT,
            (true, None) => UNKNOWN,
            (true, Some(age)) => AGES[usize::try_from(age).unwrap_or(usize::MAX).min(AGES.len() - 1)],
        };
        format!("\x1b[38;5;{color}m{text}\x1b[0m")
    }
}

fn coloured(color: Color, terminal: bool, no_color: bool) -> bool {
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => terminal && !no_color,
    }
}

#[cfg(test)]
mod tests {
    use anabranch_core::{SampleTimes, Status};

    use super::*;

    fn sample() -> Sample {
        let span = |start, end, version| VersionSpan { start, end, version, kv_carried: false };
        Sample {
            tokens: vec![1, 2, 10, 11, 77, 12, 13],
            prompt_len: 2,
            loss_mask: vec![true, true, false, true, true],
            logprobs: vec![-0.5, -0.25, -1.0, -2.0],
            truncated_logprobs: None,
            spans: vec![
                span(0, 1, SpanVersion::Exact(Version(1))),
                span(1, 3, SpanVersion::Exact(Version(3))),
                span(3, 4, SpanVersion::Unknown),
            ],
            reward: None,
            status: Status::Completed,
            cause: None,
            times: SampleTimes::default(),
        }
    }

    #[test]
    fn spans_count_generated_tokens_alone() {
        let tokens = SampleTokens::of_sample(&sample(), Some(Version(3)));
        let told: Vec<_> = tokens.response.iter().map(|t| (t.id, t.age, t.logprob)).collect();
        let expected = [
            (10, Some(2), Some(-0.5)),
            (11, Some(0), Some(-0.25)),
            (77, None, None),
            (12, Some(0), Some(-1.0)),
            (13, None, Some(-2.0)),
        ];
        assert_eq!(told, expected);
        let mut text = String::new();
        tokens.write(&mut text, 0, |_, cell| cell.to_owned()).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["prompt", "1", "2"]);
        assert!(lines[2].starts_with("v1, age 2") && lines[2].ends_with("10 -0.500"), "{text}");
        assert!(lines[4].starts_with("environment") && lines[4].ends_with("[77]"), "{text}");
        assert!(lines[6].starts_with("v?, age ?") && lines[6].ends_with("13 -2.000"), "{text}");
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(coloured(Color::Auto, true, false));
        assert!(!coloured(Color::Auto, false, false) && !coloured(Color::Auto, true, true));
        assert!(coloured(Color::Always, false, true) && !coloured(Color::Never, true, false));
    }
}
