//! The bounds of a pipeline: arguments of its operators. Each is a separate type, so that they cannot be confused.

use std::num::NonZeroUsize;

/// How many groups may be generated at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct InFlight(NonZeroUsize);

impl InFlight {
    /// Creates a bound of `groups` groups.
    ///
    /// # Panics
    /// Panics if `groups` is 0.
    pub fn groups(groups: usize) -> Self {
        Self(
            NonZeroUsize::new(groups)
                .expect("InFlight::groups: expected at least 1 group, found 0; nothing would ever be generated"),
        )
    }

    /// The number of groups.
    pub fn get(self) -> usize {
        self.0.get()
    }
}

/// How many samples a group has; at least 1.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Samples(pub u32);

/// What occupies a generation slot.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// One slot per sample. A slot becomes free when its sample ends; the next group starts when as many slots are free
    /// as it has samples.
    #[default]
    Sample,
    /// One slot per group. A slot becomes free when the group's last sample ends.
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

/// How many groups and bytes a buffer holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    groups: NonZeroUsize,
    bytes: Option<u64>,
}

impl Capacity {
    /// Creates a bound of `groups` groups.
    ///
    /// # Panics
    /// Panics if `groups` is 0.
    pub fn groups(groups: usize) -> Self {
        let groups = NonZeroUsize::new(groups);
        Self {
            groups: groups.expect(
                "Capacity::groups: expected at least 1 group, found 0; no group would ever enter \
                                      the buffer",
            ),
            bytes: None,
        }
    }

    /// Also limits the buffer to `bytes` bytes of tokens, masks and log-probs. A larger group enters only an empty
    /// buffer.
    pub fn and_bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// The number of groups.
    pub fn get(self) -> usize {
        self.groups.get()
    }

    /// The number of bytes, if it is limited.
    pub fn bytes(self) -> Option<u64> {
        self.bytes
    }
}

/// The largest version gap that a group may have when it is trained on. With 0, only groups generated entirely by the
/// installed weights are trained on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MaxStaleness(pub u64);
