//! Version spans: which weights wrote which generated tokens.

use serde::{Deserialize, Serialize};

use crate::Version;

/// What is known about the version that produced a span.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpanVersion {
    /// The engine said so, or the run owns the publisher and nothing was published in between.
    Exact(Version),
    /// Somewhere between two versions, both included; `lo` counts for staleness.
    Uncertain {
        /// The oldest version it can be.
        lo: Version,
        /// The newest version it can be.
        hi: Version,
    },
    /// Nobody can bound it.
    Unknown,
}

impl SpanVersion {
    /// The oldest version this can be, where one is known.
    pub fn lowest(self) -> Option<Version> {
        match self {
            Self::Exact(version) | Self::Uncertain { lo: version, .. } => Some(version),
            Self::Unknown => None,
        }
    }

    /// The newest version this can be, where one is known.
    pub fn highest(self) -> Option<Version> {
        match self {
            Self::Exact(version) | Self::Uncertain { hi: version, .. } => Some(version),
            Self::Unknown => None,
        }
    }
}

/// A half-open range `[start, end)` of a sample's *generated* tokens and the version whose weights produced them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionSpan {
    /// First generated token of the span, counted from 0 without prompt and environment tokens.
    pub start: u32,
    /// One past its last generated token.
    pub end: u32,
    /// Whose weights produced it.
    pub version: SpanVersion,
    /// Whether the KV cache under it was computed by older weights (after an in-place publication).
    pub kv_carried: bool,
}

/// The spans of one sample while it is generated: contiguous from 0, never empty, one span per change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<VersionSpan>);

impl Spans {
    /// No tokens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `tokens` generated tokens. No tokens, no span; the same version on, the span grows.
    pub fn push(&mut self, tokens: u32, version: SpanVersion, kv_carried: bool) {
        if tokens == 0 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.version == version && last.kv_carried == kv_carried => last.end += tokens,
            last => {
                let start = last.map_or(0, |span| span.end);
                self.0.push(VersionSpan { start, end: start + tokens, version, kv_carried });
            }
        }
    }

    /// Cuts the spans to the first `tokens` generated tokens: for a visible text shorter than what was sampled.
    pub fn clamp(&mut self, tokens: u32) {
        self.0.retain(|span| span.start < tokens);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(tokens);
        }
    }

    /// How many generated tokens are covered.
    pub fn tokens(&self) -> u32 {
        self.0.last().map_or(0, |span| span.end)
    }

    /// The finished list.
    pub fn into_vec(self) -> Vec<VersionSpan> {
        self.0
    }
}

/// Why a list of spans does not cover a sample's generated tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanFault {
    /// A span without tokens.
    #[error("span {index} is empty: [{start},{end})")]
    Empty {
        /// Which span.
        index: usize,
        /// Its start.
        start: u32,
        /// Its end.
        end: u32,
    },
    /// A span that does not begin where the one before ended.
    #[error("span {index} starts at {start}, expected {expected}")]
    Gap {
        /// Which span.
        index: usize,
        /// Where it starts.
        start: u32,
        /// Where it should start.
        expected: u32,
    },
    /// Spans that end before or after the generated tokens do.
    #[error("spans cover {covered} of {generated} generated tokens")]
    Length {
        /// Tokens covered.
        covered: u32,
        /// Tokens generated.
        generated: u32,
    },
    /// An uncertain span whose lower bound is above its upper one.
    #[error("span {index} has its bounds reversed: {lo} above {hi}")]
    Reversed {
        /// Which span.
        index: usize,
        /// Lower bound.
        lo: Version,
        /// Upper bound.
        hi: Version,
    },
}

/// Checks that `spans` are ordered, contiguous, never empty and cover exactly `generated` tokens.
///
/// # Errors
/// The first fault met, from the front.
pub(crate) fn check(spans: &[VersionSpan], generated: u32) -> Result<(), SpanFault> {
    let mut expected = 0;
    for (index, &VersionSpan { start, end, version, .. }) in spans.iter().enumerate() {
        if start != expected {
            return Err(SpanFault::Gap { index, start, expected });
        }
        if end <= start {
            return Err(SpanFault::Empty { index, start, end });
        }
        if let SpanVersion::Uncertain { lo, hi } = version
            && lo > hi
        {
            return Err(SpanFault::Reversed { index, lo, hi });
        }
        expected = end;
    }
    if expected == generated { Ok(()) } else { Err(SpanFault::Length { covered: expected, generated }) }
}

/// The oldest version that shaped a sample or a group.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OldestVersion {
    /// At least this old.
    Known(Version),
    /// Some span's version nobody can bound.
    Unknown,
}

impl OldestVersion {
    /// The older of the two; unknown beats every version.
    #[must_use]
    pub fn older(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.min(b)),
            _ => Self::Unknown,
        }
    }

    /// The oldest of `spans`; nothing where there are none.
    pub fn of<'a>(spans: impl IntoIterator<Item = &'a VersionSpan>) -> Option<Self> {
        spans.into_iter().map(|span| span.version.lowest().map_or(Self::Unknown, Self::Known)).reduce(Self::older)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(parts: &[(u32, u64)]) -> Vec<VersionSpan> {
        let mut spans = Spans::new();
        for &(tokens, version) in parts {
            spans.push(tokens, SpanVersion::Exact(Version(version)), false);
        }
        spans.into_vec()
    }

    fn listed(parts: &[(u32, u64)]) -> Vec<(u32, u32, u64)> {
        spans(parts).iter().map(|s| (s.start, s.end, s.version.lowest().unwrap().0)).collect()
    }

    #[test]
    fn the_span_rules_of_the_contract() {
        assert_eq!(listed(&[(5, 1)]), [(0, 5, 1)], "no change");
        assert_eq!(listed(&[(3, 1), (4, 2)]), [(0, 3, 1), (3, 7, 2)], "change after 3 of 7");
        assert_eq!(listed(&[(0, 1), (4, 2)]), [(0, 4, 2)], "change before the first token");
        assert_eq!(listed(&[(3, 1), (0, 2), (4, 3)]), [(0, 3, 1), (3, 7, 3)], "two changes, no token between");
        assert_eq!(listed(&[(5, 1), (0, 2)]), [(0, 5, 1)], "change after the last token");
        assert_eq!(listed(&[(2, 1), (3, 1)]), [(0, 5, 1)], "chunks under one version are one span");
    }

    #[test]
    fn a_shorter_visible_text_clamps() {
        let mut spans = Spans::new();
        spans.push(3, SpanVersion::Exact(Version(1)), false);
        spans.push(4, SpanVersion::Exact(Version(2)), false);
        let mut cut = spans.clone();
        cut.clamp(5);
        assert_eq!(cut.tokens(), 5);
        spans.clamp(3);
        assert_eq!(spans.into_vec().len(), 1, "a span without tokens goes");
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(check(&spans(&[(3, 1), (4, 2)]), 7), Ok(()));
        assert_eq!(check(&[], 0), Ok(()));
        assert_eq!(check(&spans(&[(3, 1)]), 4), Err(SpanFault::Length { covered: 3, generated: 4 }));
        let mut gap = spans(&[(3, 1), (4, 2)]);
        gap[1].start = 4;
        assert_eq!(check(&gap, 7), Err(SpanFault::Gap { index: 1, start: 4, expected: 3 }));
        let mut empty = spans(&[(3, 1)]);
        empty[0].end = 0;
        assert_eq!(check(&empty, 3), Err(SpanFault::Empty { index: 0, start: 0, end: 0 }));
        let mut reversed = spans(&[(3, 1)]);
        reversed[0].version = SpanVersion::Uncertain { lo: Version(2), hi: Version(1) };
        assert_eq!(check(&reversed, 3), Err(SpanFault::Reversed { index: 0, lo: Version(2), hi: Version(1) }));
    }

    #[test]
    fn the_oldest_counts_the_lower_bound_and_unknown_wins() {
        let mut mixed = spans(&[(3, 4), (2, 3)]);
        assert_eq!(OldestVersion::of(&mixed), Some(OldestVersion::Known(Version(3))));
        mixed[0].version = SpanVersion::Uncertain { lo: Version(2), hi: Version(4) };
        assert_eq!(OldestVersion::of(&mixed), Some(OldestVersion::Known(Version(2))));
        mixed[1].version = SpanVersion::Unknown;
        assert_eq!(OldestVersion::of(&mixed), Some(OldestVersion::Unknown));
        assert_eq!(OldestVersion::of(&[]), None);
    }
}
