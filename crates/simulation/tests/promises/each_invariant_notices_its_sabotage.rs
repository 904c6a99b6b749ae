//! A check that has never failed proves nothing: every invariant has something that breaks it.

use headwater_simulation::invariants::Invariant;
use headwater_simulation::sabotage::Sabotage;

/// Goal: no invariant goes without.
#[test]
fn each_invariant_has_a_sabotage() {
    for invariant in Invariant::ALL {
        let known = Sabotage::ALL.iter().any(|(_, about)| *about == invariant);
        assert!(known, "nothing breaks {invariant:?} on purpose");
    }
}
