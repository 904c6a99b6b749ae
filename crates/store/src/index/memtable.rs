//! The memtable of an index: its newest rows, in memory and in order.
//!
//! ```text
//! write ─► young ── full ─► frozen ── written to tables ─► dropped
//! read     young, then frozen, then the tables: the first that has the key is right
//! ```
//!
//! Nothing here is durable: rows that a crash loses are applied from the log again. Starts no work and does
//! not know tables; the owner decides when rows are written to them.

use super::Batch;
use crate::keys::{Key, Value};
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// Rows in order. `None` marks a removed key (a tombstone), which hides older rows of the key.
pub(super) type Rows = BTreeMap<Key, Option<Value>>;

/// Estimated bytes of a row: nodes of the tree are two thirds full.
const ROW_BYTES: usize = size_of::<(Key, Option<Value>)>() * 3 / 2;

/// A memtable in two parts: one that takes writes, and a frozen one that is written to tables.
#[derive(Clone, Debug, Default)]
pub(super) struct Memtable {
    young: Rows,
    young_keys: Filter,
    young_bytes: usize,
    frozen: Option<Arc<Rows>>,
    frozen_keys: Filter,
    frozen_bytes: usize,
    /// Counts how often rows have left a part of the memtable.
    moves: u64,
}

impl Memtable {
    /// The value of a key, or `Some(None)` if it was removed; `None` if the memtable does not have the key.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&Value>> {
        let hash = xxh3_64(key);
        let frozen = || self.frozen.as_ref().filter(|_| self.frozen_keys.may_have(hash))?.get(key);
        let young = self.young_keys.may_have(hash).then(|| self.young.get(key)).flatten();
        young.or_else(frozen).map(Option::as_ref)
    }

    pub(super) fn write(&mut self, batch: &Batch) {
        for (key, value) in &batch.changes {
            let on_heap = |bytes: usize, spilled: bool| if spilled { bytes } else { 0 };
            let value_bytes =
                value.as_ref().map_or(0, |value| on_heap(value.len(), value.spilled()));
            let more = on_heap(key.len(), key.spilled()) + value_bytes;
            self.young_bytes += more;
            self.young_keys.add(xxh3_64(key));
            if self.young.insert(key.clone(), value.clone()).is_none() {
                self.young_bytes += ROW_BYTES;
            }
        }
    }

    /// A copy of the rows between two keys, for scans: it has no bloom filter.
    pub(super) fn between(&self, from: &[u8], to: &[u8]) -> Memtable {
        if from >= to {
            return Memtable::default();
        }
        let young = self.rows(from, to, usize::MAX).into_iter().collect();
        Memtable { young, ..Memtable::default() }
    }

    /// Estimated bytes of the part that takes writes. A row that is written again counts once.
    pub(super) fn young_bytes(&self) -> usize {
        self.young_bytes
    }

    /// Estimated bytes of all rows.
    pub(super) fn bytes(&self) -> usize {
        self.young_bytes + self.frozen_bytes
    }

    /// Freezes the rows and starts an empty part for new ones. False if there are no rows, or the frozen ones
    /// are not in tables yet.
    pub(super) fn freeze(&mut self) -> bool {
        if self.frozen.is_some() || self.young.is_empty() {
            return false;
        }
        self.frozen = Some(Arc::new(std::mem::take(&mut self.young)));
        self.frozen_keys = std::mem::take(&mut self.young_keys);
        self.frozen_bytes = std::mem::take(&mut self.young_bytes);
        self.moves += 1;
        true
    }

    pub(super) fn frozen(&self) -> Option<Arc<Rows>> {
        self.frozen.clone()
    }

    /// Drops the frozen rows after they were written to tables.
    pub(super) fn forget_frozen(&mut self) {
        self.frozen = None;
        self.frozen_keys = Filter::default();
        self.frozen_bytes = 0;
        self.moves += 1;
    }

    /// Drops all rows, because another index has them.
    pub(super) fn clear(&mut self) {
        *self = Memtable { moves: self.moves + 1, ..Memtable::default() };
    }

    /// Counts moves of rows. While the count is unchanged, every row is still in the part where it was.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// The first rows from `from` (included) to `to` (excluded), in order. Fewer than `most` only at the end.
    pub(super) fn rows(&self, from: &[u8], to: &[u8], most: usize) -> Vec<(Key, Option<Value>)> {
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let empty = Rows::new();
        let frozen = self.frozen.as_deref().unwrap_or(&empty);
        let newer = self.young.range::<[u8], _>(bounds).peekable();
        let older = frozen.range::<[u8], _>(bounds).peekable();
        let found = InOrder { newer, older }.take(most);
        found.map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}

/// A bloom filter of keys. Most new items are looked up once without success, and a search of the tree for
/// each would cost as much as its insertion.
#[derive(Clone, Debug, Default)]
struct Filter(Vec<u64>);

/// 128 KiB. With some 60,000 rows in the memtable, about 2 % of look-ups of absent keys pass the filter.
const FILTER_WORDS: usize = 1 << 14;

impl Filter {
    fn add(&mut self, hash: u64) {
        let (word, bits) = Filter::place(hash);
        if self.0.is_empty() {
            self.0 = vec![0; FILTER_WORDS];
        }
        self.0[word] |= bits;
    }

    fn may_have(&self, hash: u64) -> bool {
        let (word, bits) = Filter::place(hash);
        self.0.get(word).is_some_and(|found| found & bits == bits)
    }

    /// The word of a hash, and its three bits.
    fn place(hash: u64) -> (usize, u64) {
        let bit = |shift: u32| 1_u64 << ((hash >> shift) % 64);
        let word = usize::try_from(hash >> 32).unwrap_or(0) % FILTER_WORDS;
        (word, bit(0) | bit(6) | bit(12))
    }
}

type Range<'a> = Peekable<btree_map::Range<'a, Key, Option<Value>>>;

/// Merges two ranges. Where both have a key, the newer row counts.
struct InOrder<'a> {
    newer: Range<'a>,
    older: Range<'a>,
}

impl<'a> Iterator for InOrder<'a> {
    type Item = (&'a Key, &'a Option<Value>);

    fn next(&mut self) -> Option<Self::Item> {
        let (Some((newer, _)), Some((older, _))) = (self.newer.peek(), self.older.peek()) else {
            return self.newer.next().or_else(|| self.older.next());
        };
        match newer.cmp(older) {
            std::cmp::Ordering::Less => self.newer.next(),
            std::cmp::Ordering::Greater => self.older.next(),
            std::cmp::Ordering::Equal => {
                self.older.next();
                self.newer.next()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(rows: &[(u8, Option<u8>)]) -> Batch {
        let value = |value: &Option<u8>| value.map(|value| Value::from_slice(&[value]));
        let change = |(key, row): &(u8, Option<u8>)| (Key::from_slice(&[*key]), value(row));
        Batch { changes: rows.iter().map(change).collect() }
    }

    fn shown(memtable: &Memtable, from: u8, to: u8, most: usize) -> Vec<(u8, Option<u8>)> {
        let rows = memtable.rows(&[from], &[to], most);
        rows.into_iter().map(|(key, value)| (key[0], value.map(|value| value[0]))).collect()
    }

    #[test]
    fn the_newest_version_of_a_row_is_shown_wherever_the_others_are() {
        let mut memtable = Memtable::default();
        memtable.write(&batch(&[(1, Some(10)), (2, Some(20)), (4, Some(40))]));
        assert!(memtable.freeze());
        memtable.write(&batch(&[(2, None), (3, Some(31)), (5, None)]));
        let all = [(1, Some(10)), (2, None), (3, Some(31)), (4, Some(40)), (5, None)];
        assert_eq!(shown(&memtable, 0, 9, 9), all);
        assert_eq!(shown(&memtable, 2, 5, 9), all[1..4]);
        assert_eq!(shown(&memtable, 0, 9, 2), all[..2]);
        assert_eq!(memtable.get(&[2]), Some(None), "it was removed");
        assert_eq!(memtable.get(&[1]), Some(Some(&Value::from_slice(&[10]))));
        assert_eq!(memtable.get(&[7]), None, "the key was never written");
        assert!(!memtable.freeze(), "older rows are still there");
        memtable.forget_frozen();
        assert_eq!(shown(&memtable, 0, 9, 9), [all[1], all[2], all[4]]);
    }

    #[test]
    fn a_filter_never_denies_what_is_there_and_rarely_claims_what_is_not() {
        let hash = |number: u64| xxh3_64(&number.to_le_bytes());
        let mut filter = Filter::default();
        assert!(!filter.may_have(hash(0)), "nothing was added");
        (0..60_000).for_each(|number| filter.add(hash(number)));
        assert!((0..60_000).all(|number| filter.may_have(hash(number))));
        let claimed = (60_000..120_000).filter(|number| filter.may_have(hash(*number))).count();
        assert!(claimed < 60_000 / 20, "{claimed}");
    }

    #[test]
    fn rows_count_once_and_moves_are_noticed() {
        let mut memtable = Memtable::default();
        assert!(!memtable.freeze(), "there is nothing");
        for version in 0..10 {
            memtable.write(&batch(&[(1, Some(version)), (2, None)]));
        }
        assert_eq!(memtable.young_bytes(), 2 * ROW_BYTES);
        let moves = memtable.moves();
        assert!(memtable.freeze());
        assert_eq!((memtable.young_bytes(), memtable.bytes()), (0, 2 * ROW_BYTES));
        assert_ne!(memtable.moves(), moves);
    }
}
