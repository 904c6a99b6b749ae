//! A reader that starts late receives the live items and nothing else.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: a reader that starts from the beginning receives every live item exactly once, at its newest
/// version, after any number of writes, compactions, splits and merges.
/// Method: every audit sends fresh readers of all scopes and compares with point reads.
#[test]
fn a_late_reader_sees_every_live_item_exactly_once() {
    let mut profile = Profile::new("a_late_reader_sees_every_live_item_exactly_once");
    profile.reshaping = 60;
    profile.all_versions = 20;
    profile.endings = Endings { quiet: 4, close: 2, kill: 2, power_cut: 2 };
    keep(&profile, USUAL);
}
