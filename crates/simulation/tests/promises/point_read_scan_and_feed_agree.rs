//! Point reads, scans and the feed show the same data.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::Profile;

/// Goal: when no call is in progress, point reads, scans of every scope and the feed show the same items
/// with the same bytes. A scan sees items that exist throughout exactly once.
/// Method: the default profile, with some of everything.
#[test]
fn point_read_scan_and_feed_agree() {
    let profile = Profile::new("point_read_scan_and_feed_agree");
    keep(&profile, USUAL);
}
