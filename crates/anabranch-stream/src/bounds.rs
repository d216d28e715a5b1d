//! The bounds of a pipeline: arguments of its operators, each a type of its own so that none can be mistaken for another.

use std::num::NonZeroUsize;

/// How many groups may be generated at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InFlight(NonZeroUsize);

impl InFlight {
    /// At most `groups` groups.
    ///
    /// # Panics
    /// Where `groups` is 0.
    pub fn groups(groups: usize) -> Self {
        Self(NonZeroUsize::new(groups).expect("InFlight::groups: must be at least 1, or nothing is ever generated"))
    }

    /// The number of groups.
    pub fn get(self) -> usize {
        self.0.get()
    }
}

/// How many samples make a group; at least 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Samples(pub u32);

/// What a generation slot is for.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// A slot a sample: it is free when its sample ends, and the next group goes out when as many are free as it has
    /// samples.
    #[default]
    Sample,
    /// A slot a group: it is free when the group's last sample ends.
    Group,
}

impl Granularity {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Group => "group",
        }
    }
}

/// How much a buffer holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    groups: NonZeroUsize,
    bytes: Option<u64>,
}

impl Capacity {
    /// At most `groups` groups.
    ///
    /// # Panics
    /// Where `groups` is 0.
    pub fn groups(groups: usize) -> Self {
        let groups = NonZeroUsize::new(groups);
        Self { groups: groups.expect("Capacity::groups: must be at least 1, or no group ever enters"), bytes: None }
    }

    /// And at most `bytes` bytes of tokens, masks and log-probs. A group above that enters an empty buffer.
    pub fn and_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// The number of groups.
    pub fn get(self) -> usize {
        self.groups.get()
    }

    /// The number of bytes, where they are bounded.
    pub fn bytes(self) -> Option<u64> {
        self.bytes
    }
}

/// The largest version gap of a group that is trained on, inclusive: with 0, only groups made wholly by the installed
/// weights.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MaxStaleness(pub u64);
