//! Index keys: values as bytes whose order is the order of the values.
//!
//! ```text
//! 01                     too many values to list: matches every look-up
//! 10                     null
//! 20 · 21                false · true
//! 30 double 8            a number; the bits are transformed so that they sort
//! 40 text, escaped, 0 1  a string, of which the first 64 bytes count
//! 50 hash 8 · 60 hash 8  an array · an object, which are only looked up as a whole
//! ```
//!
//! No key is a prefix of another, so any bytes may follow a key. Different values may share a
//! key (long strings, hashes): an index finds candidates, and the filter decides.

use crate::value::{Key, Kind, Value};

/// The bytes of a string that its key contains.
pub(crate) const TEXT_BYTES: usize = 64;
/// The most values listed per item; an item with more is a candidate for every look-up.
const VALUES_MAX: usize = 1_000;

const ANYTHING: u8 = 0x01;
const NULL: u8 = 0x10;
const FALSE: u8 = 0x20;
const TRUE: u8 = 0x21;
const NUMBER: u8 = 0x30;
const TEXT: u8 = 0x40;
pub(crate) const ARRAY: u8 = 0x50;
pub(crate) const OBJECT: u8 = 0x60;

/// One step of a path from an item to a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathStep {
    /// The property with this name.
    Name(String),
    /// Every element of an array.
    Element,
}

/// A path from an item to values in it, such as `/tags/[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IndexPath(pub Vec<PathStep>);

impl IndexPath {
    /// The name of the path's first property.
    pub fn first_name(&self) -> Option<&str> {
        match self.0.first() {
            Some(PathStep::Name(name)) => Some(name),
            Some(PathStep::Element) | None => None,
        }
    }
}

impl std::fmt::Display for IndexPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            PathStep::Name(name) => write!(f, "/{name}"),
            PathStep::Element => f.write_str("/[]"),
        })
    }
}

/// A half-open interval of keys: `from` is included, `to` is not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyInterval {
    /// The first key.
    pub from: Vec<u8>,
    /// The first key after the interval.
    pub to: Vec<u8>,
    /// Whether it holds a single key, `from`.
    pub is_point: bool,
}

impl KeyInterval {
    /// The interval of one value; `None` for undefined, which equals nothing.
    pub(crate) fn of(value: &Value<'_>) -> Option<KeyInterval> {
        let from = key_of(value)?;
        Some(KeyInterval { to: behind(&from), from, is_point: true })
    }

    /// The interval of all values `<=` this one, or `>=` it, of the same type.
    pub(crate) fn on_side(value: &Value<'_>, above: bool) -> Option<KeyInterval> {
        let key = key_of(value)?;
        let (first, last) = match value.kind() {
            Kind::Bool => (FALSE, TRUE),
            Kind::Null | Kind::Number | Kind::String => (key[0], key[0]),
            _ => return None,
        };
        let (from, to) = if above { (key, vec![last + 1]) } else { (vec![first], behind(&key)) };
        Some(KeyInterval { from, to, is_point: false })
    }

    /// The interval of all strings with this prefix.
    pub(crate) fn starting(prefix: &str) -> KeyInterval {
        let mut from = vec![TEXT];
        escape(prefix, &mut from);
        // Neither text nor its terminator contains this byte.
        let mut to = from.clone();
        to.push(0xFF);
        KeyInterval { from, to, is_point: false }
    }

    /// The intersection of both; `None` if it is empty.
    pub(crate) fn intersect(&self, other: &KeyInterval) -> Option<KeyInterval> {
        let from = self.from.clone().max(other.from.clone());
        let to = self.to.clone().min(other.to.clone());
        (from < to).then_some(KeyInterval { from, to, is_point: self.is_point || other.is_point })
    }

    /// The key of items with too many values to list.
    pub(crate) fn anything() -> KeyInterval {
        KeyInterval { from: vec![ANYTHING], to: vec![ANYTHING + 1], is_point: true }
    }
}

/// The key of a value; `None` for undefined.
pub(crate) fn key_of(value: &Value<'_>) -> Option<Vec<u8>> {
    Some(match value.kind() {
        Kind::Undefined => return None,
        Kind::Null => vec![NULL],
        Kind::Bool => vec![if value.is_true() { TRUE } else { FALSE }],
        Kind::Number => {
            // Adding zero turns -0 into 0, since `=` treats them as equal.
            let bits = (value.as_number()? + 0.0).to_bits();
            let turned = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            let mut key = vec![NUMBER];
            key.extend_from_slice(&turned.to_be_bytes());
            key
        }
        Kind::String => {
            let mut key = vec![TEXT];
            escape(value.as_text()?, &mut key);
            key.extend_from_slice(&[0, 1]);
            key
        }
        kind @ (Kind::Array | Kind::Object) => {
            let mut key = vec![if kind == Kind::Array { ARRAY } else { OBJECT }];
            key.extend_from_slice(&Key::of(value).hash().to_be_bytes());
            key
        }
    })
}

fn escape(text: &str, key: &mut Vec<u8>) {
    for byte in text.bytes().take(TEXT_BYTES) {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
}

/// The first key after all keys with this prefix, which has a byte below 255.
pub(crate) fn behind(key: &[u8]) -> Vec<u8> {
    let mut end = key.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xFF {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The length of the key at the start of `bytes`; `None` if there is none.
pub fn key_length(bytes: &[u8]) -> Option<usize> {
    match *bytes.first()? {
        ANYTHING | NULL | FALSE | TRUE => Some(1),
        NUMBER | ARRAY | OBJECT => Some(9),
        TEXT => {
            let mut at = 1;
            loop {
                at += match bytes.get(at..)? {
                    [0, 1, ..] => return Some(at + 2),
                    [0, 0xFF, ..] => 2,
                    [0, ..] | [] => return None,
                    _ => 1,
                };
            }
        }
        _ => None,
    }
}

/// The keys of an item's values at a path, each once.
pub fn index_keys(item: &[u8], path: &IndexPath) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let is_complete = collect(&Value::of_item(item), &path.0, &mut keys);
    if !is_complete {
        return vec![vec![ANYTHING]];
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Collects keys; false if there are too many. Recursion is as deep as the path is long.
fn collect(value: &Value<'_>, steps: &[PathStep], keys: &mut Vec<Vec<u8>>) -> bool {
    match steps.split_first() {
        None => {
            keys.extend(key_of(value));
            keys.len() <= VALUES_MAX
        }
        Some((PathStep::Name(name), rest)) => collect(&value.member(name), rest, keys),
        Some((PathStep::Element, rest)) => {
            let elements = value.elements().unwrap_or_default();
            elements.iter().all(|element| collect(element, rest, keys))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value<'static> {
        Value::from_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn keys_sort_like_their_values() {
        let sorted = [
            "null",
            "false",
            "true",
            "-1e300",
            "-2",
            "-0.5",
            "0",
            "1e-9",
            "1",
            "1.5",
            "9007199254740993",
            "1e300",
            r#""""#,
            r#""\u0000""#,
            r#""\u0000a""#,
            r#""a""#,
            r#""a\u0000""#,
            r#""ab""#,
            r#""é""#,
        ];
        for pair in sorted.windows(2) {
            let (low, high) = (value(pair[0]), value(pair[1]));
            assert!(key_of(&low) < key_of(&high), "{pair:?}");
            let (low, mut high) = (key_of(&low).unwrap(), key_of(&high).unwrap());
            assert!(!high.starts_with(&low), "{pair:?}");
            let length = high.len();
            high.extend_from_slice(&[0, 1, 0xFF, 7]);
            assert_eq!(key_length(&high), Some(length), "{pair:?}");
        }
        assert_eq!(key_of(&value("-0.0")), key_of(&value("0")));
        assert_eq!(key_of(&value(r#"{"a":1,"b":[2]}"#)), key_of(&value(r#"{"b":[2.0],"a":1}"#)));
    }

    #[test]
    fn intervals_hold_what_the_operators_allow() {
        let low = KeyInterval::on_side(&value("3"), true).unwrap();
        let high = KeyInterval::on_side(&value("5"), false).unwrap();
        let both = low.intersect(&high).unwrap();
        for (json, expected) in
            [("2.9", false), ("3", true), ("5", true), ("5.1", false), (r#""4""#, false)]
        {
            let key = key_of(&value(json)).unwrap();
            assert_eq!(both.from <= key && key < both.to, expected, "{json}");
        }
        let long = "x".repeat(100);
        let starting = KeyInterval::starting(&long);
        let key = key_of(&Value::text(format!("{long}y"))).unwrap();
        assert!(starting.from <= key && key < starting.to, "only the first bytes count");
    }

    #[test]
    fn an_item_has_the_keys_of_all_its_values_at_a_path() {
        let path = IndexPath(vec![PathStep::Name("t".to_owned()), PathStep::Element]);
        assert_eq!(path.to_string(), "/t/[]");
        let keys = index_keys(br#"{"t":[1,"a",1.0,null]}"#, &path);
        assert_eq!(keys.len(), 3);
        assert!(index_keys(br#"{"t":5}"#, &path).is_empty());
        let many: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        let many = format!(r#"{{"t":[{}]}}"#, many.join(","));
        assert_eq!(index_keys(many.as_bytes(), &path), [KeyInterval::anything().from]);
    }
}
