//! Joins the readers of a merged range into one.
//!
//! Each split adds a reader. After a merge, several readers read parts of one range. Once all are caught up, they
//! wait at the same position, and one reader of the whole range can continue from it. The last reader to arrive
//! detects this. The others see it when their request returns, and drop its page, because their successor reads
//! the same changes.
//!
//! This module only records positions; it reads nothing and does not wait.

use super::reader::Piece;
use headwater_model::KeyRange;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Identifies a reader in this process. Keys cannot identify it: the same keys may be split off a second time while
/// their first reader still waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReaderId(u64);

/// The readers that have caught up with their part of a range, and their positions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<Readers>>);

#[derive(Debug, Default)]
struct Readers {
    next: u64,
    waiting: BTreeMap<ReaderId, Piece>,
    /// Readers that were replaced by another one.
    replaced: BTreeSet<ReaderId>,
}

impl Waiting {
    /// Returns a new, unique reader id.
    pub(crate) fn reader(&self) -> ReaderId {
        let mut readers = self.0.lock();
        readers.next += 1;
        ReaderId(readers.next)
    }

    /// Records that the reader has read a part of `range` to its end. If all parts of the range now have the same
    /// position, returns their keys: their readers count as replaced, and the caller continues with the whole range.
    pub(crate) fn wait(
        &self,
        reader: ReaderId,
        range: &KeyRange,
        piece: &Piece,
    ) -> Option<Vec<KeyRange>> {
        if piece.keys == *range {
            return None;
        }
        let mut readers = self.0.lock();
        readers.waiting.insert(reader, piece.clone());
        let here = |other: &Piece| other.from == piece.from && range.contains_range(&other.keys);
        let parts: Vec<(ReaderId, KeyRange)> = readers
            .waiting
            .iter()
            .filter(|(_, other)| here(other))
            .map(|(id, other)| (*id, other.keys.clone()))
            .collect();
        let keys: Vec<KeyRange> = parts.iter().map(|(_, keys)| keys.clone()).collect();
        if !make_up(range, &keys) {
            return None;
        }
        for (id, _) in parts {
            readers.waiting.remove(&id);
            if id != reader {
                readers.replaced.insert(id);
            }
        }
        Some(keys)
    }

    /// Removes a waiting reader. Returns true if another reader has replaced it.
    pub(crate) fn leave(&self, reader: ReaderId) -> bool {
        let mut readers = self.0.lock();
        readers.waiting.remove(&reader);
        readers.replaced.remove(&reader)
    }
}

/// Returns whether these parts cover the whole range without a gap.
fn make_up(range: &KeyRange, parts: &[KeyRange]) -> bool {
    let mut parts: Vec<&KeyRange> = parts.iter().collect();
    parts.sort_by(|one, other| one.min().cmp(other.min()));
    let joined = parts.windows(2).all(|pair| pair[0].max() == pair[1].min());
    let ends = parts.first().zip(parts.last());
    joined && ends.is_some_and(|(low, high)| low.min() == range.min() && high.max() == range.max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_client::FeedFrom;
    use headwater_model::Epk;

    fn halves() -> (KeyRange, KeyRange, KeyRange) {
        let all = KeyRange::full();
        let (low, high) = all.split_at(&Epk::from_hex("1F").unwrap()).unwrap();
        (all, low, high)
    }

    fn at(keys: &KeyRange, lsn: u64) -> Piece {
        Piece { keys: keys.clone(), from: FeedFrom::After(format!("\"{lsn}\"")) }
    }

    #[test]
    fn readers_of_a_merged_range_become_one_when_they_stand_at_one_position() {
        let (all, low, high) = halves();
        let waiting = Waiting::default();
        let (one, two) = (waiting.reader(), waiting.reader());
        assert_eq!(waiting.wait(one, &all, &at(&low, 5)), None);
        assert_eq!(waiting.wait(two, &all, &at(&high, 6)), None, "another position");
        assert!(!waiting.leave(one));
        assert_eq!(waiting.wait(one, &all, &at(&low, 6)), Some(vec![low, high]));
        assert!(waiting.leave(two), "another one goes on in its place");
        assert!(!waiting.leave(two), "it is told once");
        assert!(!waiting.leave(one));
    }

    #[test]
    fn whoever_has_left_is_not_replaced() {
        let (all, low, high) = halves();
        let waiting = Waiting::default();
        let (one, two) = (waiting.reader(), waiting.reader());
        assert_eq!(waiting.wait(one, &all, &at(&low, 5)), None);
        assert!(!waiting.leave(one), "it has something new");
        assert_eq!(waiting.wait(two, &all, &at(&high, 5)), None);
        assert_eq!(waiting.wait(two, &high, &at(&high, 5)), None, "that is all of its range");
    }

    #[test]
    fn a_range_with_a_gap_is_not_joined() {
        let (all, low, high) = halves();
        let (lowest, _) = low.split_at(&Epk::from_hex("05").unwrap()).unwrap();
        assert!(make_up(&all, &[high.clone(), low.clone()]));
        assert!(!make_up(&all, &[high.clone(), lowest]));
        assert!(!make_up(&all, &[low, high.clone(), high]));
        assert!(!make_up(&all, &[]));
    }
}
