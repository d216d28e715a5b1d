//! The optimizer of the demo. Training again from the demo's log needs the same optimizer.

use anabranch::policy::{AdamW, LinearDecay};

/// The learning rate warms up, stays constant, then falls to a tenth.
pub fn adamw() -> AdamW {
    AdamW { decay: Some(LinearDecay { from: 150, to: 240, floor: 0.1 }), ..AdamW::default() }
}
