//! How the demo optimizes; whoever trains again from its log must do the same.

use anabranch::policy::{AdamW, LinearDecay};

/// Warm-up, a constant rate, then down to a tenth.
pub fn adamw() -> AdamW {
    AdamW { decay: Some(LinearDecay { from: 150, to: 240, floor: 0.1 }), ..AdamW::default() }
}
