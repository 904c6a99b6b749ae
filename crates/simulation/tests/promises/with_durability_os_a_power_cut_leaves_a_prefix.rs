//! A store that does not sync its writes loses the newest ones in a power cut, and nothing else.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: with durability `os`, after a power cut each partition has every write up to some LSN and none
/// after it. Transactions are whole. Reads, scans and the feed agree. A second power cut takes nothing that
/// the first one left. A position above the newest LSN is refused.
/// Method: no world syncs its writes, and most phases end in a power cut.
#[test]
fn with_durability_os_a_power_cut_leaves_a_prefix() {
    let mut profile = Profile::new("with_durability_os_a_power_cut_leaves_a_prefix");
    profile.os = 100;
    profile.endings = Endings { quiet: 1, close: 1, kill: 2, power_cut: 6 };
    keep(&profile, USUAL);
}
