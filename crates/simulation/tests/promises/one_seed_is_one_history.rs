//! A seed and a commit reproduce a history exactly.

use headwater_simulation::run;
use headwater_simulation::seeds::{Count, seeds};
use headwater_simulation::setup::Profile;

/// Goal: running a seed twice gives the same history to the last byte, also with every kind of fault.
#[test]
fn one_seed_is_one_history() {
    let mut profile = Profile::new("one_seed_is_one_history");
    profile.reshaping = 100;
    profile.failing_syncs = 20;
    profile.full_disks = 20;
    for seed in seeds(Count { release: 200, debug: 8 }) {
        let (one, two) = (run(seed, &profile), run(seed, &profile));
        assert_eq!((one.hash, one.events), (two.hash, two.events), "seed {seed} differs");
        assert_ne!(one.hash, run(seed + 1_000_000, &profile).hash);
    }
}
