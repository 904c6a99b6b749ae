//! Reads, queries and both feeds skip an item from the moment its time to live ends.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: from the second of its expiry on an item is in no read, scan or page, making it again is a
/// create, and readers of all versions see its delete first.
/// Method: every world expires; clocks jump forwards and back.
#[test]
fn an_expired_item_is_invisible_at_once() {
    let mut profile = Profile::new("an_expired_item_is_invisible_at_once");
    profile.expiring = 100;
    profile.clock_changes = 80;
    profile.endings = Endings { quiet: 4, close: 2, kill: 2, power_cut: 2 };
    keep(&profile, USUAL);
}
