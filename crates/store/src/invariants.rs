//! Invariants of pages of the change feed, as predicates.
//!
//! `debug_assert!` checks them where pages are made; property tests and the simulation use the same ones.
//! Changes nothing.

use crate::partition::feed::Change;
use headwater_model::Lsn;
use std::collections::HashSet;

/// Changes are in the order of their LSNs, and all are after the position.
#[must_use]
pub fn page_is_in_order(after: Lsn, changes: &[Change]) -> bool {
    changes.first().is_none_or(|first| first.lsn() > after)
        && changes.windows(2).all(|pair| pair[0].lsn() <= pair[1].lsn())
}

/// No item is on the page twice. Holds for pages of latest versions.
#[must_use]
pub fn page_has_no_duplicates(changes: &[Change]) -> bool {
    let mut seen = HashSet::new();
    changes
        .iter()
        .all(|change| seen.insert((change.partition_key().to_json(), change.id().to_owned())))
}

/// No transaction spans two pages: the next page starts with a newer LSN than the first one ends with.
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
