//! Acknowledged writes survive every kind of crash.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: an acknowledged write and its change survive a kill, a power cut and a close.
/// Method: power cuts in the middle of disk operations, also while the store is being opened, with an
/// index that loses its newest rows or all of them.
#[test]
fn nothing_acknowledged_is_lost() {
    let mut profile = Profile::new("nothing_acknowledged_is_lost");
    profile.endings = Endings { quiet: 0, close: 1, kill: 3, power_cut: 6 };
    keep(&profile, USUAL);
}
