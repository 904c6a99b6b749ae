//! On a full disk, writes are refused with that reason, acknowledged writes are kept, and writes work again once
//! there is space.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: a write that is refused because the disk is full leaves no trace, everything else is kept, and
/// writes work again once there is space.
/// Method: in most phases the disk has room for a few bytes only, for a while.
#[test]
fn a_full_disk_loses_nothing() {
    let mut profile = Profile::new("a_full_disk_loses_nothing");
    profile.full_disks = 80;
    keep(&profile, USUAL);
}
