//! When the disk is full, writes are refused and say so; everything acknowledged stays, and there is
//! writing again once there is room.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: a write that is refused because the disk is full leaves no trace, everything else stays, and
/// with room again writing goes on.
/// Method: in most phases the disk has room for a few bytes only, for a while.
#[test]
fn a_full_disk_loses_nothing() {
    let mut profile = Profile::new("a_full_disk_loses_nothing");
    profile.full_disks = 80;
    keep(&profile, USUAL);
}
