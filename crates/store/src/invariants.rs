//! What must be true of every page of the change feed, as predicates.
//!
//! The same ones are used by `debug_assert!` where pages are made, by property tests against a model,
//! and by the simulation.

use crate::partition::feed::Change;
use headwater_model::Lsn;
use std::collections::HashSet;

/// Changes come in the order of their LSNs, and none at or before the position.
#[must_use]
pub fn page_is_in_order(after: Lsn, changes: &[Change]) -> bool {
    changes.first().is_none_or(|first| first.lsn() > after)
        && changes.windows(2).all(|pair| pair[0].lsn() <= pair[1].lsn())
}

/// No item is on the page twice: true of latest-version pages.
#[must_use]
pub fn page_has_no_duplicates(changes: &[Change]) -> bool {
    let mut seen = HashSet::new();
    changes
        .iter()
        .all(|change| seen.insert((change.partition_key().to_json(), change.id().to_owned())))
}

/// No transaction is on two pages: the first one ends where the next one has something newer.
#[must_use]
pub fn no_transaction_is_cut(page: &[Change], next: &[Change]) -> bool {
    match (page.last(), next.first()) {
        (Some(last), Some(first)) => first.lsn() > last.lsn(),
        _ => true,
    }
}

/// A position only moves forward.
#[must_use]
pub fn position_moves_forward(before: Lsn, after: Lsn) -> bool {
    after >= before
}
