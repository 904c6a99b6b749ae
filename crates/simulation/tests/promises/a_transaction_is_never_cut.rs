//! A page of the change feed ends at the end of a transaction.

use crate::USUAL;
use headwater_simulation::seeds::keep;
use headwater_simulation::setup::{Endings, Profile};

/// Goal: the changes of one transaction are on one page, in every mode and scope.
/// Method: mostly batches, pages of one to three changes, ranges that merge so that LSNs of two
/// partitions meet in one.
#[test]
fn a_transaction_is_never_cut() {
    let mut profile = Profile::new("a_transaction_is_never_cut");
    profile.batches = 70;
    profile.tiny_pages = 100;
    profile.reshaping = 70;
    profile.endings = Endings { quiet: 5, close: 2, kill: 2, power_cut: 1 };
    keep(&profile, USUAL);
}
