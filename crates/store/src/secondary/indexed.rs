//! What an index is of: the values at one path, or the order of items by some.
//!
//! An index of values has an entry for each value of an item, none for an item without. An index of an order
//! has exactly one entry for each version of an item, at its place in the order.

use crate::item::item_of;
use crate::keys::Value;
use headwater_log::Record;
use headwater_query::{IndexPath, OrderPath, PathStep, index_keys, order_key};
use std::fmt;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Indexed {
    Values(IndexPath),
    Order(Vec<OrderPath>),
}

/// An entry before it has a container: the key of a value or of a place, and what is written with it.
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Value,
}

impl Indexed {
    /// The entries of one version of an item.
    pub(super) fn entries(&self, record: &Record) -> Vec<Entry> {
        match self {
            Indexed::Values(path) => {
                let keys = index_keys(&record.body_bytes(), path).into_iter();
                keys.map(|key| Entry { key, value: Value::new() }).collect()
            }
            Indexed::Order(order) => {
                let Some(item) = item_of(record) else { return Vec::new() };
                let key = order_key(&item.to_bytes(), order, item.number());
                vec![Entry { value: encode_lengths(key.bytes.len(), key.group), key: key.bytes }]
            }
        }
    }

    /// As the rows keep it.
    pub(super) fn encode(&self) -> Value {
        let mut value = Value::new();
        match self {
            Indexed::Values(path) => encode_path(path, &mut value),
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

    /// What index metrics call it: a path, or a list of paths with directions.
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

/// How long the place of an entry is, and how much of it its group shares.
fn encode_lengths(key: usize, group: usize) -> Value {
    let mut value = Value::new();
    for length in [key, group] {
        value.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    value
}

pub(super) fn decode_lengths(value: &[u8]) -> Option<(usize, usize)> {
    let (lengths, []) = value.as_chunks::<4>() else { return None };
    let [key, group] = <[_; 2]>::try_from(lengths).ok()?.map(u32::from_le_bytes);
    Some((usize::try_from(key).ok()?, usize::try_from(group).ok()?))
        .filter(|(key, group)| group <= key)
}

/// One byte per kind of step, then the length of the name and the name.
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
        assert_eq!(decode_lengths(&encode_lengths(9, 4)), Some((9, 4)));
        assert_eq!(decode_lengths(&encode_lengths(4, 9)), None);
        assert_eq!(decode_lengths(&[1]), None);
    }
}
