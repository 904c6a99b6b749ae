//! A position that a reader received stays valid.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: no position is ever refused or moved back, even if a machine crashes in the middle of a split or
/// merge and finishes it when the store is reopened.
/// Method: every world reshapes, and most phases end in a crash.
#[test]
fn positions_stay_valid_across_split_and_merge() {
    let mut profile = Profile::new("positions_stay_valid_across_split_and_merge");
    profile.reshaping = 100;
    profile.endings = Endings { quiet: 1, close: 1, kill: 4, power_cut: 6 };
    keep(&profile, USUAL);
}
