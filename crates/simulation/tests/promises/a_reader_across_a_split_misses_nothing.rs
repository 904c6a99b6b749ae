//! A reader continues across splits and merges without loss or duplicates.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: a reader of the container, of single ranges, of a key or of some hashes receives every live
/// version once, while its ranges are split and merged.
/// Method: every world reshapes; readers read with and without waiting, and some stay away.
#[test]
fn a_reader_across_a_split_misses_nothing() {
    let mut profile = Profile::new("a_reader_across_a_split_misses_nothing");
    profile.reshaping = 100;
    profile.expiring = 20;
    profile.endings = Endings { quiet: 6, close: 2, kill: 1, power_cut: 1 };
    keep(&profile, USUAL);
}
