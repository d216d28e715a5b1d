//! The arguments of reward functions.

use std::ops::Deref;
use std::sync::Arc;

use anabranch_core::{Prompt, Sample};

/// One sample with its prompt, the argument of the closure of [`score`](crate::RolloutExt::score). It dereferences to
/// the sample: `response.tokens`, `response.response()`.
#[derive(Copy, Clone, Debug)]
pub struct Response<'a> {
    /// The prompt, with the other fields of its row (such as the answer).
    pub prompt: &'a Prompt,
    /// The sample.
    pub sample: &'a Sample,
}

impl Deref for Response<'_> {
    type Target = Sample;

    fn deref(&self) -> &Sample {
        self.sample
    }
}

/// One sample with its prompt, owned, for [`score_async`](crate::RolloutExt::score_async).
#[derive(Clone, Debug)]
pub struct OwnedResponse {
    /// The prompt, with the other fields of its row (such as the answer).
    pub prompt: Arc<Prompt>,
    /// The sample.
    pub sample: Sample,
}

impl Deref for OwnedResponse {
    type Target = Sample;

    fn deref(&self) -> &Sample {
        &self.sample
    }
}
