//! The log that speed is measured on keeps the contract.

mod synthetic;

use anabranch_replay::verify;
use synthetic::Synthetic;

#[test]
fn a_synthetic_log_is_sound() {
    let events: Vec<_> = Synthetic::new(1_000).collect();
    let report = verify(&events);
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.balance.leased, 1_000);
    assert!(report.balance.consumed > 800 && report.balance.all_excluded() > 50, "{report}");
    let audit = anabranch_replay::audit(&events);
    assert!(audit.gap.consumed.max() == Some(1) && audit.gap.consumed.mean() > Some(0.1), "{audit}");
}
