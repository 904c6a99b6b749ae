//! History that only the store's options keep survives splits and merges of ranges.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: without a policy, a reader of all versions receives every version within the retention once and in
/// order. It is refused only if its position is older, or if history exceeds its size limit. A
/// reader from the beginning is never refused.
/// Method: every world keeps versions by its options, reshapes, compacts eagerly and restarts.
#[test]
fn history_survives_splits_and_merges_without_a_policy() {
    let mut profile = Profile::new("history_survives_splits_and_merges_without_a_policy");
    profile.all_versions = 100;
    profile.policies = 0;
    profile.reshaping = 100;
    profile.clock_changes = 60;
    keep(&profile, USUAL);
}
