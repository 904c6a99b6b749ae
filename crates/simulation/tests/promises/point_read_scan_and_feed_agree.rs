//! There is one truth, whichever way one looks.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: when nothing is under way, point reads, scans of every scope and the feed show the same items
/// with the same bytes; a scan sees what is there all the while exactly once.
/// Method: a bit of everything.
#[test]
fn point_read_scan_and_feed_agree() {
    let profile = Profile::new("point_read_scan_and_feed_agree");
    keep(&profile, USUAL);
}
