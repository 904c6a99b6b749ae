//! Every invariant can fail: each is tested against a sabotage that must violate it.

use headwater_simulation::invariants::Invariant;
use headwater_simulation::run;
use headwater_simulation::sabotage::Sabotage;
use headwater_simulation::setup::Profile;

/// Number of seeds within which a sabotage must be noticed.
const SEEDS: u64 = 150;

fn profile() -> Profile {
    let mut profile = Profile::new("each_invariant_notices_its_sabotage");
    profile.bad_network = 0;
    profile.clock_changes = 50;
    profile
}

/// Goal: every invariant is violated when its subject is broken on purpose.
#[test]
fn each_invariant_notices_its_sabotage() {
    for (sabotage, invariant) in Sabotage::ALL {
        let mut profile = profile().sabotaged(sabotage);
        if sabotage == Sabotage::FailedSyncsAreIgnored {
            profile.failing_syncs = 100;
        }
        let noticed = (0..SEEDS).find(|seed| {
            let violation = run(*seed, &profile).violation;
            violation.is_some_and(|violation| violation.invariant == invariant)
        });
        println!("{sabotage:?}: {invariant:?} objects to seed {noticed:?}");
        assert!(noticed.is_some(), "{invariant:?} did not notice {sabotage:?}");
    }
}

/// Goal: every invariant has a sabotage.
#[test]
fn each_invariant_has_a_sabotage() {
    for invariant in Invariant::ALL {
        let known = Sabotage::ALL.iter().any(|(_, about)| *about == invariant);
        assert!(known, "nothing breaks {invariant:?} on purpose");
    }
}
