//! After a failed sync the contents of the disk are unknown, so the store refuses writes.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: after a failed sync, the partition accepts no write until it is reopened, earlier acknowledged writes
/// are kept, and reads continue.
/// Method: in most phases syncs fail for a while, in the middle of appends, splits and compactions.
#[test]
fn a_failed_sync_refuses_writes_until_reopened() {
    let mut profile = Profile::new("a_failed_sync_refuses_writes_until_reopened");
    profile.failing_syncs = 80;
    profile.bad_network = 0;
    keep(&profile, USUAL);
}
