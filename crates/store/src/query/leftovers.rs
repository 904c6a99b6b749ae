//! Rows that were found for one page and belong on the next, kept for a while.
//!
//! A query that has to look at every item before its first row knows more than one page when it is done.
//! What is left over is kept within bounds, the oldest giving way, and whoever asks for the next page gets
//! it from here; if it is gone by then, the query is run again. Nothing depends on it but time.

use super::source::Spot;
use crate::keys::Key;
use bytes::Bytes;
use headwater_model::ContainerRid;
use headwater_query::OrderMark;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes kept in all.
const BYTES_MAX: usize = 8 << 20;
/// How long rows are good for; after that a reader had better see newer ones.
const AGE_MAX: Duration = Duration::from_secs(60);

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The oldest first.
    lots: VecDeque<Lot>,
    bytes: usize,
}

/// Whose rows they are: another container or query must not see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) container: ContainerRid,
    /// The query and the scope.
    pub(crate) what: String,
}

#[derive(Debug)]
struct Lot {
    id: u64,
    owner: Owner,
    rows: Rows,
    bytes: usize,
    since: Duration,
}

/// Rows in order, behind those that were answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) rows: VecDeque<(Bytes, Option<OrderMark>)>,
    /// Whether there are more behind them.
    pub(crate) is_more: bool,
    /// The items they are of, where rows come item by item; as many as rows then.
    pub(crate) spots: VecDeque<Spot>,
    /// Where a scan goes on behind the last of them; `None` if nothing is behind.
    pub(crate) end: Option<Key>,
}

impl Leftovers {
    /// Keeps rows under an id; 0 if they are too many to keep.
    pub(crate) fn keep(&self, id: u64, owner: Owner, rows: Rows, now: Duration) -> u64 {
        let marks = size_of::<(Bytes, Option<OrderMark>)>() + 64;
        let spots: usize = rows.spots.iter().map(|spot| spot.bytes() + size_of::<Spot>()).sum();
        let bytes = spots + rows.rows.iter().map(|(row, _)| row.len() + marks).sum::<usize>();
        if bytes > BYTES_MAX / 2 || id == 0 {
            return 0;
        }
        let mut kept = self.0.lock();
        kept.bytes += bytes;
        kept.lots.push_back(Lot { id, owner, rows, bytes, since: now });
        while kept.bytes > BYTES_MAX || kept.lots.front().is_some_and(|lot| lot.is_old(now)) {
            let Some(oldest) = kept.lots.pop_front() else { break };
            kept.bytes -= oldest.bytes;
        }
        id
    }

    /// Takes rows back.
    pub(crate) fn take(&self, id: u64, owner: &Owner, now: Duration) -> Option<Rows> {
        let mut kept = self.0.lock();
        let at = kept.lots.iter().position(|lot| lot.id == id && lot.owner == *owner)?;
        let lot = kept.lots.remove(at)?;
        kept.bytes -= lot.bytes;
        (!lot.is_old(now)).then_some(lot.rows)
    }
}

impl Lot {
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
