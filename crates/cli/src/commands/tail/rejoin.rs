//! Brings the readers of a merged range together again.
//!
//! Each split makes one reader more. After a merge, several readers read parts of one range; once they have
//! all read everything, they wait at the same position, and one reader of the whole range can go on from it.
//! The last to come notices. The others learn it when their request returns, and throw away what it brought:
//! the one that went on in their place reads it too.
//!
//! Nothing here reads or waits; it only knows who is where.

use super::reader::Piece;
use headwater_model::KeyRange;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A reader, while this program runs. Keys would not do: the same keys may be split off a second time while
/// the first reader of them still waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReaderId(u64);

/// Who waits at the end of a part of a range, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<Mutex<Readers>>);

#[derive(Debug, Default)]
struct Readers {
    next: u64,
    waiting: BTreeMap<ReaderId, Piece>,
    /// Those in whose place another one has gone on.
    replaced: BTreeSet<ReaderId>,
}

impl Waiting {
    /// A reader nobody else is.
    pub(crate) fn reader(&self) -> ReaderId {
        let mut readers = self.0.lock();
        readers.next += 1;
        ReaderId(readers.next)
    }

    /// The reader has read a part of `range` to its end. If with it all parts of the range stand at one
    /// position, these are their keys: their readers are replaced, and the caller goes on with the whole.
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

    /// The reader waits no longer. True if somebody has gone on in its place.
    pub(crate) fn leave(&self, reader: ReaderId) -> bool {
        let mut readers = self.0.lock();
        readers.waiting.remove(&reader);
        readers.replaced.remove(&reader)
    }
}

/// Whether these parts are all of the range, without a gap.
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
