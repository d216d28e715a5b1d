//! Packed sequences on the device.

use anabranch_kernels::embedding::Occurrences;
use anabranch_kernels::packing::Packing;
use anabranch_kernels::{Device, Ids};
use cubecl::Runtime;

use crate::packed::Packed;

/// [`Packed`] sequences uploaded once, for any number of passes.
pub struct DeviceBatch<R: Runtime> {
    pub(super) tokens: Ids<R>,
    pub(super) packing: Packing<R>,
    pub(super) occurrences: Occurrences<R>,
    pub(super) scored: Ids<R>,
    pub(super) targets: Ids<R>,
    rows: usize,
    scored_rows: usize,
}

impl<R: Runtime> DeviceBatch<R> {
    /// Uploads packed sequences.
    pub fn new(device: &Device<R>, packed: &Packed) -> Self {
        Self {
            tokens: device.ids(&packed.tokens),
            packing: Packing::new(device, &packed.lengths()),
            occurrences: Occurrences::new(device, &packed.tokens),
            scored: device.ids(&packed.scored),
            targets: device.ids(&packed.targets),
            rows: packed.rows(),
            scored_rows: packed.scored.len(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of scored rows.
    pub fn scored_rows(&self) -> usize {
        self.scored_rows
    }
}
