//! A reader of all versions receives all of them, or an error that it came too late.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: every acknowledged change is delivered once, in order and linked to the previous one. A reader is
/// refused only if its position is older than the retention.
/// Method: every world keeps versions, compacts eagerly, and jumps ahead in time.
#[test]
fn all_versions_are_complete_or_refused() {
    let mut profile = Profile::new("all_versions_are_complete_or_refused");
    profile.all_versions = 100;
    profile.clock_changes = 60;
    keep(&profile, USUAL);
}
