//! A position a reader was given is good for ever.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: no position is ever refused or sent back, also when a machine dies halfway through a split or
/// merge and finishes it when it is opened again.
/// Method: every world reshapes, and most phases end in a crash.
#[test]
fn positions_stay_valid_across_split_and_merge() {
    let mut profile = Profile::new("positions_stay_valid_across_split_and_merge");
    profile.reshaping = 100;
    profile.endings = Endings { quiet: 1, close: 1, kill: 4, power_cut: 6 };
    keep(&profile, USUAL);
}
