//! The byte layout of every row of the index.
//!
//! All rows of a container are adjacent, so dropping it removes one range. Keys are ordered by hash and the
//! items of a partition key are adjacent, so a partition, a sub-range and a logical partition are each one
//! range too:
//!
//! ```text
//! container, kind i | hashed key, escaped | partition key | id   → ItemRow
//! container, kind e | expiry second 8     | hashed key … id      → Position
//! container, kind u | hashed key, escaped | partition key | constraint 1 | hash 16 → Position, id
//! container, kind p | partition 4                                → PartitionRow
//! container, kind t                                              → LSN of the applied definition
//! container, kind d | index 4                                    → path of a secondary index
//! container, kind q | partition 4         | index 4              → LSN up to which that index is built
//! container, kind s | index 4 | value     | hashed key … id      → Position of the version with the value
//! ```
//!
//! Container and kind are two variable-length numbers, mostly one byte each: `database`, and
//! `container × 16 + kind`. Nearly all rows start with the same bytes, and the engine of the index compares the
//! first four bytes of two keys before it looks up the rest. Any change of this layout needs a new [`LAYOUT`].
//! Nothing here reads or writes rows.

use headwater_log::Position;
use headwater_model::{ContainerRid, Epk, KeyRange, Lsn, PartitionId};
use smallvec::SmallVec;

/// A key in the index; short keys need no allocation.
pub(crate) type Key = SmallVec<[u8; 96]>;
/// A value in the index.
pub(crate) type Value = SmallVec<[u8; 48]>;

/// Version of the layout. An index with another version is rebuilt, not read.
pub(crate) const LAYOUT: u32 = 3;

/// Kinds of rows; fewer than [`KINDS`].
const PATH_INDEX: u8 = 0;
const EXPIRY: u8 = 1;
const ITEM: u8 = 2;
const PARTITION: u8 = 3;
const INDEX_PROGRESS: u8 = 4;
const INDEX_ENTRY: u8 = 5;
const TTL: u8 = 6;
const UNIQUE: u8 = 7;
const KINDS: u8 = 16;

/// Numbers below this take one byte. Larger ones take a byte with their length, then their bytes.
const ONE_BYTE: u8 = 0xF8;

/// Identifies a secondary index of a container.
pub(crate) type IndexNumber = u32;

/// Zero bytes are escaped, so that a hashed key sorts before every longer one it is a prefix of.
const ESCAPED_ZERO: [u8; 2] = [0, 0xFF];
const END: [u8; 2] = [0, 1];

/// Position of an item, and the properties needed without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemRow {
    pub(crate) position: Position,
    /// The item's number, part of its resource id.
    pub(crate) rid: u64,
    /// The second of its last write.
    pub(crate) written: u64,
    /// Its own `ttl`: 0 for none, -1 for never.
    pub(crate) ttl: i32,
}

impl ItemRow {
    pub(crate) fn encode(&self) -> Value {
        let mut value = Value::new();
        encode_position(&mut value, self.position);
        value.extend_from_slice(&self.rid.to_le_bytes());
        value.extend_from_slice(&self.written.to_le_bytes());
        value.extend_from_slice(&self.ttl.to_le_bytes());
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Option<ItemRow> {
        let (position, rest) = decode_position(value)?;
        let (rid, rest) = rest.split_first_chunk()?;
        let (written, rest) = rest.split_first_chunk()?;
        let (ttl, rest) = rest.split_first_chunk()?;
        rest.is_empty().then_some(ItemRow {
            position,
            rid: u64::from_le_bytes(*rid),
            written: u64::from_le_bytes(*written),
            ttl: i32::from_le_bytes(*ttl),
        })
    }
}

/// State of a partition: the LSN up to which the index has applied its log, and counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) applied: Lsn,
    /// The number of the next item the partition creates.
    pub(crate) next_rid: u64,
    /// The count of items, see `partition/population.rs`.
    pub(crate) tally: i64,
}

impl PartitionRow {
    pub(crate) fn encode(&self) -> Value {
        let mut value = Value::new();
        value.extend_from_slice(&self.applied.get().to_le_bytes());
        value.extend_from_slice(&self.next_rid.to_le_bytes());
        value.extend_from_slice(&self.tally.to_le_bytes());
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Option<PartitionRow> {
        let (applied, rest) = value.split_first_chunk()?;
        let (next_rid, rest) = rest.split_first_chunk()?;
        // Rows of earlier versions have no tally; opening the partition starts it again.
        let (tally, rest) = rest.split_first_chunk().unwrap_or((&[0; 8], rest));
        rest.is_empty().then_some(PartitionRow {
            applied: Lsn::new(u64::from_le_bytes(*applied)),
            next_rid: u64::from_le_bytes(*next_rid),
            tally: i64::from_le_bytes(*tally),
        })
    }
}

/// The common prefix of the rows of a kind. The prefix after the last kind is that of the next container.
fn start(container: ContainerRid, kind: u8) -> Key {
    let container_number = container.as_u64() & 0x7FFF_FFFF;
    let mut key = Key::new();
    push_number(&mut key, container.as_u64() >> 32);
    push_number(&mut key, container_number * u64::from(KINDS) + u64::from(kind));
    key
}

/// Appends a number such that smaller numbers sort first and no encoding is a prefix of another.
fn push_number(key: &mut Key, number: u64) {
    match u8::try_from(number) {
        Ok(small) if small < ONE_BYTE => key.push(small),
        _ => {
            let bytes = number.to_be_bytes();
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(7);
            key.push(ONE_BYTE + u8::try_from(7 - zeros).unwrap_or(7));
            key.extend_from_slice(&bytes[zeros..]);
        }
    }
}

/// The last byte of the number a key starts with, and the rest of the key.
fn split_number(key: &[u8]) -> Option<(u8, &[u8])> {
    let (first, rest) = key.split_first()?;
    match first.checked_sub(ONE_BYTE) {
        None => Some((*first, rest)),
        Some(more) => {
            let (number, rest) = rest.split_at_checked(usize::from(more) + 1)?;
            number.last().map(|last| (*last, rest))
        }
    }
}

/// The kind of a row, and the rest of its key after container and kind.
fn split(key: &[u8]) -> Option<(u8, &[u8])> {
    let (_, rest) = split_number(key)?;
    let (last, rest) = split_number(rest)?;
    Some((last % KINDS, rest))
}

/// The rest of a key after container and kind.
pub(crate) fn behind_kind(key: &[u8]) -> &[u8] {
    split(key).map_or(&[], |(_, rest)| rest)
}

fn escape(key: &mut Key, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            0 => key.extend_from_slice(&ESCAPED_ZERO),
            other => key.push(*other),
        }
    }
}

/// The key of an item's row. `tail` is the encoded partition key and the id.
pub(crate) fn item(container: ContainerRid, epk: &[u8], tail: &[u8]) -> Key {
    let mut key = start(container, ITEM);
    escape(&mut key, epk);
    key.extend_from_slice(&END);
    key.extend_from_slice(tail);
    key
}

/// Whether a key belongs to an item's row.
pub(crate) fn is_item(key: &[u8]) -> bool {
    split(key).is_some_and(|(kind, _)| kind == ITEM)
}

/// Splits an item's key into hashed key and tail.
pub(crate) fn parse_item(key: &[u8]) -> Option<(Epk, &[u8])> {
    let (_, mut rest) = split(key)?;
    let mut epk = SmallVec::<[u8; 48]>::new();
    loop {
        match rest {
            [0, 0xFF, more @ ..] => {
                epk.push(0);
                rest = more;
            }
            [0, 1, tail @ ..] => return Some((Epk::from_bytes(&epk), tail)),
            [0, ..] | [] => return None,
            [byte, more @ ..] => {
                epk.push(*byte);
                rest = more;
            }
        }
    }
}

/// The bounds of all items whose hashed key is in `range`: from the first key (included) to the second
/// (excluded).
pub(crate) fn items_in(container: ContainerRid, range: &KeyRange) -> (Key, Key) {
    let mut from = start(container, ITEM);
    escape(&mut from, range.min().as_bytes());
    let mut to = start(container, ITEM);
    if range.max() == &Epk::max() {
        to.push(0xFF);
        to.push(0xFF);
    } else {
        escape(&mut to, range.max().as_bytes());
    }
    (from, to)
}

/// The bounds of all items of one partition key. `encoded` is the encoded key.
pub(crate) fn items_of(container: ContainerRid, epk: &[u8], encoded: &[u8]) -> (Key, Key) {
    let from = item(container, epk, encoded);
    let mut to = from.clone();
    // An id is UTF-8, so it never contains 0xFF.
    to.push(0xFF);
    (from, to)
}

/// The key of an item's expiry row. `item` is the key of the item's row.
pub(crate) fn expiry(container: ContainerRid, second: u64, item: &[u8]) -> Key {
    let mut key = start(container, EXPIRY);
    key.extend_from_slice(&second.to_be_bytes());
    key.extend_from_slice(behind_kind(item));
    key
}

/// The bounds of the expiry rows up to `second`.
pub(crate) fn expired_until(container: ContainerRid, second: u64) -> (Key, Key) {
    let mut to = start(container, EXPIRY);
    to.extend_from_slice(&second.saturating_add(1).to_be_bytes());
    (start(container, EXPIRY), to)
}

/// Converts the key of an expiry row to the key of its item.
pub(crate) fn item_of_expiry(container: ContainerRid, key: &[u8]) -> Option<Key> {
    let mut item = start(container, ITEM);
    item.extend_from_slice(behind_kind(key).get(8..)?);
    Some(item)
}

/// The bounds of all expiry rows of a container.
pub(crate) fn all_expiry(container: ContainerRid) -> (Key, Key) {
    (start(container, EXPIRY), start(container, EXPIRY + 1))
}

/// The key of the row that keeps a combination of values unique within a partition key.
pub(crate) fn unique(container: ContainerRid, epk: &[u8], encoded: &[u8], unique: &[u8]) -> Key {
    let mut key = start(container, UNIQUE);
    escape(&mut key, epk);
    key.extend_from_slice(&END);
    key.extend_from_slice(encoded);
    key.extend_from_slice(unique);
    key
}

/// The key of a partition's state.
pub(crate) fn partition(container: ContainerRid, partition: PartitionId) -> Key {
    let mut key = start(container, PARTITION);
    key.extend_from_slice(&partition.get().to_be_bytes());
    key
}

/// The key of the row with the LSN of the definition that the expiry rows were made for.
pub(crate) fn ttl(container: ContainerRid) -> Key {
    start(container, TTL)
}

/// The key of the row that describes a secondary index.
pub(crate) fn path_index(container: ContainerRid, number: IndexNumber) -> Key {
    let mut key = start(container, PATH_INDEX);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn all_path_indexes(container: ContainerRid) -> (Key, Key) {
    (start(container, PATH_INDEX), start(container, PATH_INDEX + 1))
}

pub(crate) fn number_of_path_index(key: &[u8]) -> Option<IndexNumber> {
    behind_kind(key).try_into().ok().map(IndexNumber::from_be_bytes)
}

/// The key of the row that says how far an index is built in a partition.
pub(crate) fn index_progress(
    container: ContainerRid,
    partition: PartitionId,
    number: IndexNumber,
) -> Key {
    let mut key = start(container, INDEX_PROGRESS);
    key.extend_from_slice(&partition.get().to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn all_index_progress(container: ContainerRid) -> (Key, Key) {
    (start(container, INDEX_PROGRESS), start(container, INDEX_PROGRESS + 1))
}

pub(crate) fn number_of_progress(key: &[u8]) -> Option<IndexNumber> {
    behind_kind(key).get(4..)?.try_into().ok().map(IndexNumber::from_be_bytes)
}

/// The key of an index entry: an item had this value. `item` is the key of the item's row.
pub(crate) fn index_entry(
    container: ContainerRid,
    number: IndexNumber,
    value: &[u8],
    item: &[u8],
) -> Key {
    let mut key = start(container, INDEX_ENTRY);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(value);
    key.extend_from_slice(behind_kind(item));
    key
}

/// The bounds of all entries of an index.
pub(crate) fn index_entries(container: ContainerRid, number: IndexNumber) -> (Key, Key) {
    let from = index_entry(container, number, &[], &[]);
    let mut to = from.clone();
    // No encoded value starts with 0xFF.
    to.push(0xFF);
    (from, to)
}

/// The bounds of all entries of this index and those with higher numbers.
pub(crate) fn index_entries_from(container: ContainerRid, number: IndexNumber) -> (Key, Key) {
    (index_entry(container, number, &[], &[]), start(container, INDEX_ENTRY + 1))
}

/// Converts the part of an index entry after its value to the key of the item.
pub(crate) fn item_of_entry(container: ContainerRid, item: &[u8]) -> Key {
    let mut key = start(container, ITEM);
    key.extend_from_slice(item);
    key
}

/// The bounds of all rows of a container.
pub(crate) fn all(container: ContainerRid) -> (Key, Key) {
    (start(container, 0), start(container, KINDS))
}

pub(crate) fn encode_position(value: &mut Value, position: Position) {
    value.extend_from_slice(&position.origin.get().to_le_bytes());
    value.extend_from_slice(&position.lsn.get().to_le_bytes());
    value.extend_from_slice(&position.ordinal.to_le_bytes());
}

pub(crate) fn decode_position(value: &[u8]) -> Option<(Position, &[u8])> {
    let (origin, rest) = value.split_first_chunk()?;
    let (lsn, rest) = rest.split_first_chunk()?;
    let (ordinal, rest) = rest.split_first_chunk()?;
    let position = Position {
        origin: PartitionId::new(u32::from_le_bytes(*origin)),
        lsn: Lsn::new(u64::from_le_bytes(*lsn)),
        ordinal: u16::from_le_bytes(*ordinal),
    };
    Some((position, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rid() -> ContainerRid {
        ContainerRid::new(1, 2)
    }

    #[test]
    fn keys_sort_like_their_hashes() {
        let hashes: [&[u8]; 8] =
            [&[], &[0], &[0, 0], &[0, 1], &[1], &[1, 0], &[1, 0xFF], &[0xFE, 0xFF]];
        for pair in hashes.windows(2) {
            let (low, high) = (item(rid(), pair[0], b"z"), item(rid(), pair[1], b"a"));
            assert!(low < high, "{pair:?}");
        }
        for hash in hashes {
            let key = item(rid(), hash, b"tail");
            let (epk, tail) = parse_item(&key).unwrap();
            assert_eq!((epk.as_bytes(), tail), (hash, &b"tail"[..]));
        }
    }

    #[test]
    fn a_range_of_hashes_is_a_range_of_keys() {
        let hashes: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0, 7],
            vec![5],
            vec![5, 0],
            vec![5, 1],
            vec![6],
            vec![0x3F; 16],
        ];
        let bounds = [vec![], vec![0], vec![5], vec![5, 0], vec![6], vec![0xFF]];
        for min in &bounds {
            for max in bounds.iter().filter(|max| *max > min) {
                let range = KeyRange::new(Epk::from_bytes(min), Epk::from_bytes(max)).unwrap();
                let (from, to) = items_in(rid(), &range);
                for hash in &hashes {
                    let key = item(rid(), hash, b"x");
                    assert_eq!(
                        range.contains(hash),
                        from <= key && key < to,
                        "{hash:?} in {range}"
                    );
                }
            }
        }
    }

    #[test]
    fn numbers_sort_as_they_are_and_none_begins_another() {
        let numbers =
            [0, 1, 0xF7, 0xF8, 0xFF, 0x100, 0xFFFF, 0x1_0000, 1 << 31, u64::MAX >> 8, u64::MAX];
        let keys = numbers.map(|number| {
            let mut key = Key::new();
            push_number(&mut key, number);
            key
        });
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(split_number(key).unwrap().1, b"", "{:x}", numbers[place]);
            for later in &keys[place + 1..] {
                assert!(key < later && !later.starts_with(key), "{key:x?} {later:x?}");
            }
        }
    }

    #[test]
    fn the_rows_of_a_container_are_one_range_and_those_of_a_kind_too() {
        let containers =
            [(1, 1), (1, 2), (1, 14), (1, 15), (1, 16), (1, 0x7FFF_FFFF), (2, 1), (300, 1)];
        let containers = containers.map(|(database, number)| ContainerRid::new(database, number));
        let rows = |container| {
            let item = item(container, &[0x3F, 7], b"tail");
            [
                path_index(container, 1),
                expiry(container, u64::MAX, &item),
                item.clone(),
                partition(container, PartitionId::new(9)),
                index_progress(container, PartitionId::new(9), 1),
                index_entry(container, 1, b"value", &item),
                ttl(container),
                unique(container, &[0x3F], b"k", b"u"),
            ]
        };
        for one in containers {
            let (from, to) = all(one);
            for other in containers {
                for row in rows(other) {
                    assert_eq!(
                        from <= row && row < to,
                        one == other,
                        "{row:x?} of {other} in {one}"
                    );
                    assert_eq!(is_item(&row), row == rows(other)[2], "{row:x?}");
                }
            }
            let [_, expiring, item, _, progress, ..] = rows(one);
            assert_eq!(parse_item(&item).unwrap().1, b"tail");
            assert_eq!(item_of_expiry(one, &expiring), Some(item.clone()));
            assert_eq!(item_of_entry(one, behind_kind(&item)), item);
            assert_eq!(number_of_progress(&progress), Some(1));
            for (from, to) in [all_expiry(one), all_path_indexes(one), all_index_progress(one)] {
                assert_eq!(rows(one).iter().filter(|row| from <= **row && **row < to).count(), 1);
            }
        }
    }

    #[test]
    fn rows_survive_their_bytes() {
        let position = Position { origin: PartitionId::new(3), lsn: Lsn::new(4), ordinal: 5 };
        let row = ItemRow { position, rid: 6, written: 7, ttl: -1 };
        assert_eq!(ItemRow::decode(&row.encode()), Some(row));
        assert_eq!(ItemRow::decode(&row.encode()[1..]), None);
        let row = PartitionRow { applied: Lsn::new(1), next_rid: 2, tally: -3 };
        assert_eq!(PartitionRow::decode(&row.encode()), Some(row));
        assert_eq!(PartitionRow::decode(&row.encode()[..23]), None);
        let before = PartitionRow { tally: 0, ..row };
        assert_eq!(PartitionRow::decode(&row.encode()[..16]), Some(before));
        let key = item(rid(), &[1, 0], b"tail");
        let expiring = expiry(rid(), 77, &key);
        assert_eq!(item_of_expiry(rid(), &expiring), Some(key));
        let (from, to) = expired_until(rid(), 77);
        assert!(from < expiring && expiring < to);
    }
}
