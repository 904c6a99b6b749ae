//! The two kinds of index, and the encoding of their definitions and entries.
//!
//! A value index has an entry for each value that an item has at one path, and none for an item without a value. An
//! order index has exactly one entry for each version of an item, at its place in an order by zero or more paths. The
//! order by no paths is creation order; there all versions of an item share one entry.

use crate::item::item_of;
use crate::keys::{Value, decode_position, encode_position};
use headwater_log::{Position, Record};
use headwater_query::{IndexPath, OrderPath, PathStep, index_keys, order_key};
use std::fmt;

/// Encoding of creation order, the order by no paths.
const CREATION: u8 = b'#';

/// The definition of an index: the values at a path, or an order by paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Indexed {
    Values(IndexPath),
    Order(Vec<OrderPath>),
}

/// An entry without the prefix of its container and index: the key of a value or place, and the row's value.
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Value,
}

impl Indexed {
    /// The entries of one version of an item.
    pub(super) fn entries(&self, record: &Record) -> Vec<Entry> {
        let mut value = Value::new();
        encode_position(&mut value, record.position);
        match self {
            Indexed::Values(path) => {
                let keys = index_keys(record.body(), path).into_iter();
                keys.map(|key| Entry { key, value: value.clone() }).collect()
            }
            Indexed::Order(order) => {
                let Some(item) = item_of(record) else { return Vec::new() };
                let key = order_key(&item.to_bytes(), order, item.number());
                encode_lengths(&mut value, key.bytes.len(), key.group);
                vec![Entry { key: key.bytes, value }]
            }
        }
    }

    /// Encodes the definition for its index row.
    pub(super) fn encode(&self) -> Value {
        let mut value = Value::new();
        match self {
            Indexed::Values(path) => encode_path(path, &mut value),
            Indexed::Order(order) if order.is_empty() => value.push(CREATION),
            Indexed::Order(order) => {
                for one in order {
                    value.push(if one.descending { b'-' } else { b'+' });
                    let mut path = Value::new();
                    encode_path(&one.path, &mut path);
                    encode_text(&path, &mut value);
                }
            }
        }
        value
    }

    pub(super) fn decode(value: &[u8]) -> Option<Indexed> {
        if value == [CREATION] {
            return Some(Indexed::Order(Vec::new()));
        }
        if !matches!(value.first(), Some(b'+' | b'-')) {
            return decode_path(value).map(Indexed::Values);
        }
        let mut order = Vec::new();
        let mut rest = value;
        while let Some((direction, more)) = rest.split_first() {
            let (path, more) = decode_text(more)?;
            let descending = match direction {
                b'+' => false,
                b'-' => true,
                _ => return None,
            };
            order.push(OrderPath { path: decode_path(path)?, descending });
            rest = more;
        }
        Some(Indexed::Order(order))
    }

    /// The name of the index in index metrics: a path, or a list of paths with directions.
    pub(crate) fn specification(&self) -> Vec<String> {
        match self {
            Indexed::Values(path) => vec![format!("{path}/?")],
            Indexed::Order(order) if order.len() == 1 => {
                order.iter().map(|one| format!("{}/?", one.path)).collect()
            }
            Indexed::Order(order) => order.iter().map(specification_of).collect(),
        }
    }
}

fn specification_of(one: &OrderPath) -> String {
    format!("{} {}", one.path, if one.descending { "DESC" } else { "ASC" })
}

impl fmt::Display for Indexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.specification().join(", "))
    }
}

/// Decodes an entry of a value index: the position of the version it was made from.
pub(super) fn decode_value(value: &[u8]) -> Option<Position> {
    decode_position(value).filter(|(_, rest)| rest.is_empty()).map(|(position, _)| position)
}

/// The decoded value of an entry of an order index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlaceEntry {
    /// Position of the version it was made from.
    pub(super) position: Position,
    /// Length of the place in the entry's key.
    pub(super) key: usize,
    /// Length of the prefix of the place that all items of its group share.
    pub(super) group: usize,
}

fn encode_lengths(value: &mut Value, key: usize, group: usize) {
    for length in [key, group] {
        value.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
}

pub(super) fn decode_place(value: &[u8]) -> Option<PlaceEntry> {
    let (position, lengths) = decode_position(value)?;
    let (lengths, []) = lengths.as_chunks::<4>() else { return None };
    let [key, group] = <[_; 2]>::try_from(lengths).ok()?.map(u32::from_le_bytes);
    let (key, group) = (usize::try_from(key).ok()?, usize::try_from(group).ok()?);
    (group <= key).then_some(PlaceEntry { position, key, group })
}

/// Encodes each step as one byte for its kind; a name adds its length and its bytes.
fn encode_path(path: &IndexPath, value: &mut Value) {
    for step in &path.0 {
        match step {
            PathStep::Element => value.push(b'['),
            PathStep::Name(name) => {
                value.push(b'.');
                encode_text(name.as_bytes(), value);
            }
        }
    }
}

fn encode_text(text: &[u8], value: &mut Value) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    value.extend_from_slice(&length.to_le_bytes());
    value.extend_from_slice(text);
}

fn decode_text(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = value.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

fn decode_path(value: &[u8]) -> Option<IndexPath> {
    let mut steps = Vec::new();
    let mut rest = value;
    while let Some((kind, more)) = rest.split_first() {
        rest = match kind {
            b'[' => {
                steps.push(PathStep::Element);
                more
            }
            b'.' => {
                let (name, more) = decode_text(more)?;
                steps.push(PathStep::Name(std::str::from_utf8(name).ok()?.to_owned()));
                more
            }
            _ => return None,
        };
    }
    Some(IndexPath(steps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_model::{Lsn, PartitionId};

    fn path(name: &str) -> IndexPath {
        IndexPath(vec![PathStep::Name(name.to_owned())])
    }

    #[test]
    fn what_an_index_is_of_survives_its_bytes() {
        let mixed = IndexPath(vec![
            PathStep::Name("é/[".to_owned()),
            PathStep::Element,
            PathStep::Name(String::new()),
        ]);
        for indexed in [
            Indexed::Values(IndexPath::default()),
            Indexed::Values(IndexPath(vec![PathStep::Element])),
            Indexed::Values(mixed),
            Indexed::Order(Vec::new()),
            Indexed::Order(vec![OrderPath { path: path("a"), descending: true }]),
            Indexed::Order(vec![
                OrderPath { path: path("-"), descending: false },
                OrderPath { path: IndexPath::default(), descending: true },
            ]),
        ] {
            assert_eq!(Indexed::decode(&indexed.encode()), Some(indexed));
        }
        for damaged in [&b".\xFF\xFF\xFF\xFFx"[..], b"?", b"+", b"+\x01\0\0\0?", b"+\0\0\0\0?"] {
            assert_eq!(Indexed::decode(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn what_an_entry_says_survives_its_bytes() {
        let position =
            Position { origin: PartitionId::new(3), lsn: Lsn::new(1 << 40), ordinal: 513 };
        let said = |key, group| {
            let mut value = Value::new();
            encode_position(&mut value, position);
            assert_eq!(decode_value(&value), Some(position));
            encode_lengths(&mut value, key, group);
            assert_eq!(decode_value(&value), None, "a place is more than a value");
            value
        };
        assert_eq!(decode_place(&said(9, 4)), Some(PlaceEntry { position, key: 9, group: 4 }));
        assert_eq!(decode_place(&said(4, 9)), None);
        for cut in 0..said(9, 4).len() {
            assert_eq!(decode_place(&said(9, 4)[..cut]), None);
        }
    }
}
