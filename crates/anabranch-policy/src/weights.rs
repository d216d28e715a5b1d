//! Weights on their way from a learner to engines.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use anabranch_core::Digest;
use anabranch_kernels::Tensor;
use cubecl::Runtime;

/// One set of weights in device memory, immutable and shared: cloning copies nothing.
#[derive(Clone)]
pub struct Weights {
    buffer: Arc<dyn Any + Send + Sync>,
    digest: Digest,
}

impl Weights {
    /// Wraps a flat tensor that does not change any more.
    pub(crate) fn new<R: Runtime>(tensor: Tensor<R>, digest: Digest) -> Self {
        Self { buffer: Arc::new(tensor), digest }
    }

    /// Digest over names, shapes, types and bytes of all parameters.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The flat tensor, where it lives on the runtime `R`.
    pub(crate) fn tensor<R: Runtime>(&self) -> Option<&Tensor<R>> {
        self.buffer.downcast_ref()
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Weights").field(&self.digest).finish()
    }
}
