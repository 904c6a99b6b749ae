//! After a failed sync nobody knows what is on the disk, and the store does not pretend to.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: once a sync has failed, the partition takes no write until it is opened again, what was
/// acknowledged before is there, and reads go on.
/// Method: in most phases syncs fail for a while, in the middle of appends, splits and compactions.
#[test]
fn a_failed_sync_refuses_writes_until_reopened() {
    let mut profile = Profile::new("a_failed_sync_refuses_writes_until_reopened");
    profile.failing_syncs = 80;
    profile.bad_network = 0;
    keep(&profile, USUAL);
}
