//! No two items of a partition key share the values of a unique key, under faults and concurrent writes.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: no two items of a partition key have the same unique value, and a refusal names an item that
/// had it.
/// Method: every world has a unique key and few values for it; half of them expire.
#[test]
fn unique_keys_hold() {
    let mut profile = Profile::new("unique_keys_hold");
    profile.unique = 100;
    profile.expiring = 50;
    profile.batches = 40;
    keep(&profile, USUAL);
}
