//! Version spans: which weights wrote which generated tokens.

use serde::{Deserialize, Serialize};

use crate::Version;

/// The version that produced a span, as far as it is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpanVersion {
    /// Exactly this version.
    Exact(Version),
    /// A version between two versions, both included; `lo` counts for staleness.
    Uncertain {
        /// The oldest possible version.
        lo: Version,
        /// The newest possible version.
        hi: Version,
    },
    /// The version is unknown.
    Unknown,
}

impl SpanVersion {
    /// The oldest possible version, if known.
    pub fn lowest(self) -> Option<Version> {
        match self {
            Self::Exact(version) | Self::Uncertain { lo: version, .. } => Some(version),
            Self::Unknown => None,
        }
    }

    /// The newest possible version, if known.
    pub fn highest(self) -> Option<Version> {
        match self {
            Self::Exact(version) | Self::Uncertain { hi: version, .. } => Some(version),
            Self::Unknown => None,
        }
    }
}

/// A half-open range `[start, end)` of a sample's *generated* tokens, with the version whose weights produced them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionSpan {
    /// The first generated token of the span, counted from 0 without prompt and environment tokens.
    pub start: u32,
    /// One past the last generated token of the span.
    pub end: u32,
    /// The version whose weights produced the tokens.
    pub version: SpanVersion,
    /// Whether older weights computed the KV cache of the span (after an in-place publication).
    pub kv_carried: bool,
}

/// The spans of one sample while it is generated: contiguous from 0, never empty, with a new span at each change of
/// version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<VersionSpan>);

impl Spans {
    /// Creates a list without tokens.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `tokens` generated tokens. If the version is the same, the last span grows. Adding no tokens adds no span.
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

    /// Cuts the spans to the first `tokens` generated tokens.
    pub fn clamp(&mut self, tokens: u32) {
        self.0.retain(|span| span.start < tokens);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(tokens);
        }
    }

    /// The number of generated tokens that the spans cover.
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
    /// A span has no tokens.
    #[error("span {index} is empty: [{start},{end})")]
    Empty {
        /// The index of the span.
        index: usize,
        /// The start of the span.
        start: u32,
        /// The end of the span.
        end: u32,
    },
    /// A span does not begin at the end of the span before it.
    #[error("span {index}: expected start {expected}, found {start}")]
    Gap {
        /// The index of the span.
        index: usize,
        /// The start of the span.
        start: u32,
        /// The expected start.
        expected: u32,
    },
    /// The spans do not cover exactly the generated tokens.
    #[error("expected spans over {generated} generated tokens, found spans over {covered}")]
    Length {
        /// The number of covered tokens.
        covered: u32,
        /// The number of generated tokens.
        generated: u32,
    },
    /// The lower bound of an uncertain span is above the upper bound.
    #[error("span {index}: expected a lower bound of at most {hi}, found {lo}")]
    Reversed {
        /// The index of the span.
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
/// Returns the first fault, from the front.
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
    /// This version.
    Known(Version),
    /// The version of some span is unknown.
    Unknown,
}

impl OldestVersion {
    /// The older of the two; unknown counts as older than every version.
    #[must_use]
    pub fn older(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.min(b)),
            _ => Self::Unknown,
        }
    }

    /// The oldest version of `spans`, or `None` if there are no spans.
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
        assert_eq!(spans.into_vec().len(), 1, "a span without tokens is removed");
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
