//! An append whose answer was lost is resolved, and is applied exactly once.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: with a log that loses, repeats and delays requests and answers, every write is answered
/// and applied exactly once.
/// Method: every world has a bad network between its writers and their logs.
#[test]
fn an_undecided_append_is_decided_by_the_next_slot() {
    let mut profile = Profile::new("an_undecided_append_is_decided_by_the_next_slot");
    profile.bad_network = 100;
    profile.endings = Endings { quiet: 3, close: 2, kill: 3, power_cut: 3 };
    keep(&profile, USUAL);
}
