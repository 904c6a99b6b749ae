//! A cache of rows that a query found for one page and that belong on the next.
//!
//! A query that reads every item before its first row has more than one page of rows when it is done. The rest is
//! cached for the request of the next page. The cache is bounded in bytes and age and evicts the oldest rows
//! first. If the rows are gone, the query runs again: only speed depends on this cache.

use super::source::Spot;
use crate::keys::Key;
use bytes::Bytes;
use headwater_model::ContainerRid;
use headwater_query::OrderMark;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum size of all cached rows.
const BYTES_MAX: usize = 8 << 20;
/// Maximum age of cached rows; after that a query reads newer ones.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The cache of leftover rows.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// Ordered by age, the oldest first.
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// The query that cached rows belong to. Other containers and queries must not see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) container: ContainerRid,
    /// The text of the query and its scope.
    pub(crate) what: String,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    owner: Owner,
    rows: Rows,
    bytes: usize,
    since: Duration,
}

/// Rows in the order of the query, after those that were returned.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: VecDeque<(Bytes, Option<OrderMark>)>,
    /// Whether the query has more rows after these.
    pub(crate) is_more: bool,
    /// The place of each row's item, for a query that streams item by item; empty for other queries.
    pub(crate) spots: VecDeque<Spot>,
    /// Where a scan continues after the last row; `None` if nothing follows.
    pub(crate) end: Option<Key>,
}

impl Leftovers {
    /// Caches rows under an id and returns the id; returns 0 if they are too large to cache.
    pub(crate) fn keep(&self, id: u64, owner: Owner, rows: Rows, now: Duration) -> u64 {
        let marks = size_of::<(Bytes, Option<OrderMark>)>() + 64;
        let spots: usize = rows.spots.iter().map(|spot| spot.bytes() + size_of::<Spot>()).sum();
        let bytes = spots + rows.rows.iter().map(|(row, _)| row.len() + marks).sum::<usize>();
        if bytes > BYTES_MAX / 2 || id == 0 {
            return 0;
        }
        let mut kept = self.0.lock();
        kept.bytes += bytes;
        kept.entries.push_back(Entry { id, owner, rows, bytes, since: now });
        while kept.bytes > BYTES_MAX || kept.entries.front().is_some_and(|entry| entry.is_old(now))
        {
            let Some(oldest) = kept.entries.pop_front() else { break };
            kept.bytes -= oldest.bytes;
        }
        id
    }

    /// Removes and returns cached rows, unless they are too old or belong to another query.
    pub(crate) fn take(&self, id: u64, owner: &Owner, now: Duration) -> Option<Rows> {
        let mut kept = self.0.lock();
        let at = kept.entries.iter().position(|entry| entry.id == id && entry.owner == *owner)?;
        let entry = kept.entries.remove(at)?;
        kept.bytes -= entry.bytes;
        (!entry.is_old(now)).then_some(entry.rows)
    }
}

impl Entry {
    fn is_old(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > AGE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(what: &str) -> Owner {
        Owner { container: ContainerRid::new(1, 2), what: what.to_owned() }
    }

    fn rows(bytes: usize) -> Rows {
        Rows { rows: [(Bytes::from(vec![b'x'; bytes]), None)].into(), ..Rows::default() }
    }

    #[test]
    fn rows_are_given_back_once_to_their_owner_while_they_are_fresh() {
        let leftovers = Leftovers::default();
        let at = Duration::from_secs;
        assert_eq!(leftovers.keep(7, owner("a"), rows(10), at(0)), 7);
        assert!(leftovers.take(7, &owner("b"), at(1)).is_none());
        assert!(leftovers.take(7, &owner("a"), at(1)).is_some());
        assert!(leftovers.take(7, &owner("a"), at(1)).is_none(), "once");
        leftovers.keep(8, owner("a"), rows(10), at(0));
        assert!(leftovers.take(8, &owner("a"), at(100)).is_none(), "too old");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_gives_way() {
        let leftovers = Leftovers::default();
        assert_eq!(leftovers.keep(1, owner("a"), rows(BYTES_MAX), Duration::ZERO), 0);
        for id in 1..=100 {
            leftovers.keep(id, owner("a"), rows(BYTES_MAX / 10), Duration::ZERO);
            assert!(leftovers.0.lock().bytes <= BYTES_MAX);
        }
        assert!(leftovers.take(1, &owner("a"), Duration::ZERO).is_none());
        assert!(leftovers.take(100, &owner("a"), Duration::ZERO).is_some());
    }
}
