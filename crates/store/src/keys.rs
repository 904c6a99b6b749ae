//! The byte layout of every row in the index, and nothing else.
//!
//! All rows of a container share the eight bytes of its resource id as a prefix, so that dropping a
//! container drops one range. The items of a partition key are adjacent, and keys come in the order of
//! their hashes, so a partition, a sub-range and a logical partition are each one range too:
//!
//! ```text
//! container 8 | 'i' | hashed key, escaped | partition key | id   → ItemRow
//! container 8 | 'e' | expiry second 8     | hashed key … id      → Position
//! container 8 | 'u' | hashed key, escaped | partition key | constraint 1 | hash 16 → Position, id
//! container 8 | 'p' | partition 4                                → PartitionRow
//! container 8 | 't'                                              → LSN of the applied definition
//! container 8 | 'd' | index 4                                    → path of an index of values
//! container 8 | 'q' | partition 4         | index 4              → how far that index is there
//! container 8 | 's' | index 4 | value     | hashed key … id      → nothing: the item may have the value
//! ```

use headwater_log::Position;
use headwater_model::{ContainerRid, Epk, KeyRange, Lsn, PartitionId};
use smallvec::SmallVec;

/// A key in the index; short ones need no allocation.
pub(crate) type Key = SmallVec<[u8; 96]>;
/// A value in the index.
pub(crate) type Value = SmallVec<[u8; 48]>;

const ITEM: u8 = b'i';
const EXPIRY: u8 = b'e';
const UNIQUE: u8 = b'u';
const PARTITION: u8 = b'p';
const TTL: u8 = b't';
const PATH_INDEX: u8 = b'd';
const INDEX_PROGRESS: u8 = b'q';
const INDEX_ENTRY: u8 = b's';

/// What every key of an item begins with: its container and its kind.
pub(crate) const ITEM_PREFIX: usize = 9;

/// Tells the indexes of a container apart.
pub(crate) type IndexNumber = u32;

/// Zero bytes are escaped, so that a shorter hashed key sorts before every longer one it begins.
const ESCAPED_ZERO: [u8; 2] = [0, 0xFF];
const END: [u8; 2] = [0, 1];

/// Where an item is, and what must be known about it without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemRow {
    pub(crate) position: Position,
    /// Number of its resource id.
    pub(crate) rid: u64,
    /// Second of its last write.
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

/// How far the index has applied a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRow {
    pub(crate) applied: Lsn,
    /// The next resource id the partition gives out.
    pub(crate) next_rid: u64,
}

impl PartitionRow {
    pub(crate) fn encode(&self) -> Value {
        let mut value = Value::new();
        value.extend_from_slice(&self.applied.get().to_le_bytes());
        value.extend_from_slice(&self.next_rid.to_le_bytes());
        value
    }

    pub(crate) fn decode(value: &[u8]) -> Option<PartitionRow> {
        let (applied, rest) = value.split_first_chunk()?;
        let (next_rid, rest) = rest.split_first_chunk()?;
        rest.is_empty().then_some(PartitionRow {
            applied: Lsn::new(u64::from_le_bytes(*applied)),
            next_rid: u64::from_le_bytes(*next_rid),
        })
    }
}

fn start(container: ContainerRid, kind: u8) -> Key {
    let mut key = Key::new();
    key.extend_from_slice(&container.as_u64().to_be_bytes());
    key.push(kind);
    key
}

fn escape(key: &mut Key, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            0 => key.extend_from_slice(&ESCAPED_ZERO),
            other => key.push(*other),
        }
    }
}

/// The row of an item. `tail` is its encoded partition key and its id.
pub(crate) fn item(container: ContainerRid, epk: &[u8], tail: &[u8]) -> Key {
    let mut key = start(container, ITEM);
    escape(&mut key, epk);
    key.extend_from_slice(&END);
    key.extend_from_slice(tail);
    key
}

/// Whether a key is that of an item's row.
pub(crate) fn is_item(key: &[u8]) -> bool {
    key.get(8) == Some(&ITEM)
}

/// Takes an item's key apart into hashed key and tail.
pub(crate) fn parse_item(key: &[u8]) -> Option<(Epk, &[u8])> {
    let mut rest = key.get(9..)?;
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

/// All items whose hashed key is in `range`: from the first key (included) to the second (excluded).
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

/// All items of one partition key. `encoded` is the encoded key.
pub(crate) fn items_of(container: ContainerRid, epk: &[u8], encoded: &[u8]) -> (Key, Key) {
    let from = item(container, epk, encoded);
    let mut to = from.clone();
    // An id never has 0xFF in it: it is UTF-8.
    to.push(0xFF);
    (from, to)
}

/// The row that says when an item expires. `item` is its own row's key.
pub(crate) fn expiry(container: ContainerRid, second: u64, item: &[u8]) -> Key {
    let mut key = start(container, EXPIRY);
    key.extend_from_slice(&second.to_be_bytes());
    key.extend_from_slice(&item[9..]);
    key
}

/// All rows of items that expire up to `second`.
pub(crate) fn expired_until(container: ContainerRid, second: u64) -> (Key, Key) {
    let mut to = start(container, EXPIRY);
    to.extend_from_slice(&second.saturating_add(1).to_be_bytes());
    (start(container, EXPIRY), to)
}

/// From the key of an expiry row to the key of its item.
pub(crate) fn item_of_expiry(container: ContainerRid, key: &[u8]) -> Option<Key> {
    let mut item = start(container, ITEM);
    item.extend_from_slice(key.get(17..)?);
    Some(item)
}

/// All expiry rows of a container.
pub(crate) fn all_expiry(container: ContainerRid) -> (Key, Key) {
    (start(container, EXPIRY), start(container, EXPIRY + 1))
}

/// The row that keeps a combination of values unique within a partition key.
pub(crate) fn unique(container: ContainerRid, epk: &[u8], encoded: &[u8], unique: &[u8]) -> Key {
    let mut key = start(container, UNIQUE);
    escape(&mut key, epk);
    key.extend_from_slice(&END);
    key.extend_from_slice(encoded);
    key.extend_from_slice(unique);
    key
}

/// The row of a partition's state.
pub(crate) fn partition(container: ContainerRid, partition: PartitionId) -> Key {
    let mut key = start(container, PARTITION);
    key.extend_from_slice(&partition.get().to_be_bytes());
    key
}

/// The row that says for which definition expiry rows were made.
pub(crate) fn ttl(container: ContainerRid) -> Key {
    start(container, TTL)
}

/// The row that says that there is an index of values, and of which.
pub(crate) fn path_index(container: ContainerRid, number: IndexNumber) -> Key {
    let mut key = start(container, PATH_INDEX);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn all_path_indexes(container: ContainerRid) -> (Key, Key) {
    (start(container, PATH_INDEX), start(container, PATH_INDEX + 1))
}

pub(crate) fn number_of_path_index(key: &[u8]) -> Option<IndexNumber> {
    key.get(9..)?.try_into().ok().map(IndexNumber::from_be_bytes)
}

/// The row that says how far an index has come in a partition.
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

/// How far the indexes have come in one partition.
pub(crate) fn index_progress_of(container: ContainerRid, partition: PartitionId) -> (Key, Key) {
    let from = index_progress(container, partition, 0);
    let mut to = index_progress(container, partition, IndexNumber::MAX);
    to.push(0);
    (from, to)
}

pub(crate) fn number_of_progress(key: &[u8]) -> Option<IndexNumber> {
    key.get(13..)?.try_into().ok().map(IndexNumber::from_be_bytes)
}

/// The row that says that an item may have a value. `item` is its own row's key.
pub(crate) fn index_entry(
    container: ContainerRid,
    number: IndexNumber,
    value: &[u8],
    item: &[u8],
) -> Key {
    let mut key = start(container, INDEX_ENTRY);
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(value);
    key.extend_from_slice(item.get(ITEM_PREFIX..).unwrap_or_default());
    key
}

/// All entries of an index.
pub(crate) fn index_entries(container: ContainerRid, number: IndexNumber) -> (Key, Key) {
    let from = index_entry(container, number, &[], &[]);
    let mut to = from.clone();
    // No key of a value begins with this.
    to.push(0xFF);
    (from, to)
}

/// From what an entry says behind its value to the key of the item.
pub(crate) fn item_of_entry(container: ContainerRid, item: &[u8]) -> Key {
    let mut key = start(container, ITEM);
    key.extend_from_slice(item);
    key
}

/// Everything of a container.
pub(crate) fn all(container: ContainerRid) -> (Key, Key) {
    let mut to = Key::new();
    to.extend_from_slice(&container.as_u64().to_be_bytes());
    to.push(0xFF);
    let mut from = Key::new();
    from.extend_from_slice(&container.as_u64().to_be_bytes());
    (from, to)
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
    fn rows_survive_their_bytes() {
        let position = Position { origin: PartitionId::new(3), lsn: Lsn::new(4), ordinal: 5 };
        let row = ItemRow { position, rid: 6, written: 7, ttl: -1 };
        assert_eq!(ItemRow::decode(&row.encode()), Some(row));
        assert_eq!(ItemRow::decode(&row.encode()[1..]), None);
        let row = PartitionRow { applied: Lsn::new(1), next_rid: 2 };
        assert_eq!(PartitionRow::decode(&row.encode()), Some(row));
        let key = item(rid(), &[1, 0], b"tail");
        let expiring = expiry(rid(), 77, &key);
        assert_eq!(item_of_expiry(rid(), &expiring), Some(key));
        let (from, to) = expired_until(rid(), 77);
        assert!(from < expiring && expiring < to);
    }
}
