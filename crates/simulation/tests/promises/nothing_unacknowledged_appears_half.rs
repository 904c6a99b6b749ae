//! A transaction without an answer was applied wholly or not at all.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: after a crash a batch without an answer has all its operations applied, or none.
/// Method: mostly batches, on few items, and machines that crash during the writes.
#[test]
fn nothing_unacknowledged_appears_half() {
    let mut profile = Profile::new("nothing_unacknowledged_appears_half");
    profile.batches = 85;
    profile.endings = Endings { quiet: 0, close: 0, kill: 4, power_cut: 6 };
    keep(&profile, USUAL);
}
