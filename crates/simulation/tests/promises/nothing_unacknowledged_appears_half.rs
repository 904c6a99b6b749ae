//! A transaction whose answer never came happened wholly or not at all.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: after a crash a batch nobody was answered is there with all its operations, or with none.
/// Method: mostly batches, on few items, and machines that die while they are written.
#[test]
fn nothing_unacknowledged_appears_half() {
    let mut profile = Profile::new("nothing_unacknowledged_appears_half");
    profile.batches = 85;
    profile.endings = Endings { quiet: 0, close: 0, kill: 4, power_cut: 6 };
    keep(&profile, USUAL);
}
