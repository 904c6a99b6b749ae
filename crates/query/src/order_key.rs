//! Order keys: the sort keys of an item as bytes that sort like rows, for indexes in the order of a query.
//!
//! ```text
//! key of each path · key of each path · … · ordinal 8
//! 02                     undefined: it sorts first, so an item without a value has a place too
//! 10 … 40                as in `index_key`
//! 50 · 60                an array · an object: all of them share a key
//! ```
//!
//! The bytes of a descending path are inverted. Where different values share a key (long strings, arrays,
//! objects), their items form a group without a particular order inside; to sort them, a reader must read the
//! whole group.

use crate::evaluate::OrderMark;
use crate::index_key::{
    ARRAY, IndexPath, KeyInterval, OBJECT, PathStep, TEXT_BYTES, behind, key_of,
};
use crate::plan::Restriction;
use crate::value::{Kind, Value};

const UNDEFINED: u8 = 0x02;
/// No key begins with this byte, inverted or not.
const BEHIND_ALL: u8 = 0xFF;
/// The most paths of an order; beyond that an index is not worth its cost.
const PATHS_MAX: usize = 8;

/// A path that items are sorted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrderPath {
    /// The path of the value. It does not lead into an array.
    pub path: IndexPath,
    /// Whether large values come first.
    pub descending: bool,
}

/// The place of an item in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// The key; sorts like the item.
    pub bytes: Vec<u8>,
    /// Items whose keys share this many bytes are in no particular order; the key's length if no others do.
    pub group: usize,
}

/// The place of an item in an order. `ordinal` decides between items that are equal in every path.
pub fn order_key(item: &[u8], order: &[OrderPath], ordinal: u64) -> OrderKey {
    if order.is_empty() {
        return key_of_values(Vec::new(), std::iter::empty(), order, ordinal);
    }
    let item = Value::of_item(item);
    let values = order.iter().map(|one| {
        one.path.0.iter().fold(item.clone(), |value, step| match step {
            PathStep::Name(name) => value.member(name),
            PathStep::Element => Value::Undefined,
        })
    });
    key_of_values(Vec::new(), values, order, ordinal)
}

fn key_of_values<'v>(
    mut bytes: Vec<u8>,
    values: impl Iterator<Item = Value<'v>>,
    order: &[OrderPath],
    ordinal: u64,
) -> OrderKey {
    let mut group = None;
    for (value, one) in values.zip(order) {
        let is_exact = push_key(&value, one.descending, &mut bytes);
        if !is_exact && group.is_none() {
            group = Some(bytes.len());
        }
    }
    bytes.extend_from_slice(&ordinal.to_be_bytes());
    OrderKey { group: group.unwrap_or(bytes.len()), bytes }
}

/// Appends a value's key; false if values that sort differently share it.
fn push_key(value: &Value<'_>, descending: bool, bytes: &mut Vec<u8>) -> bool {
    let start = bytes.len();
    let is_exact = match value.kind() {
        Kind::Array | Kind::Object => false,
        Kind::String => value.as_text().is_some_and(|text| text.len() < TEXT_BYTES),
        _ => true,
    };
    match value.kind() {
        Kind::Array => bytes.push(ARRAY),
        Kind::Object => bytes.push(OBJECT),
        _ => match key_of(value) {
            Some(key) => bytes.extend_from_slice(&key),
            None => bytes.push(UNDEFINED),
        },
    }
    if descending {
        turn(&mut bytes[start..]);
    }
    is_exact
}

fn turn(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}

/// An index order that returns items in the order of a query, with the interval of keys to read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ordering {
    /// The paths: first those with a single value, then those the query sorts by.
    pub paths: Vec<OrderPath>,
    /// The first key that may matter.
    pub from: Vec<u8>,
    /// The first key after the interval.
    pub to: Vec<u8>,
    /// The keys of the paths with a single value.
    prefix: Vec<u8>,
    /// The number of these paths.
    fixed: usize,
}

impl Ordering {
    /// `fixed` are values that all candidate items have. `None` if the filter restricts another path to more than
    /// one value; an index of that path is more selective then.
    pub(crate) fn new(
        order: Vec<OrderPath>,
        fixed: &[(IndexPath, Value<'static>)],
        restrictions: &[Restriction],
    ) -> Option<Ordering> {
        let mut paths: Vec<OrderPath> = Vec::new();
        let mut prefix = Vec::new();
        let is_sorted_by = |path: &IndexPath| order.iter().any(|one| one.path == *path);
        for (path, value) in fixed.iter().filter(|(path, _)| !is_sorted_by(path)) {
            push_key(value, false, &mut prefix);
            paths.push(OrderPath { path: path.clone(), descending: false });
        }
        let mut bounds = None;
        for restriction in restrictions {
            let is_fixed = paths.iter().any(|one| one.path == restriction.path);
            if order.first().is_some_and(|first| first.path == restriction.path) {
                bounds = Some(hull(&restriction.intervals)?);
            } else if !is_fixed && !is_sorted_by(&restriction.path) {
                prefix.extend_from_slice(single_key(restriction)?);
                paths.push(OrderPath { path: restriction.path.clone(), descending: false });
            }
        }
        let fixed = paths.len();
        let descending = order.first()?.descending;
        let (from, to) = within(&prefix, bounds.as_ref(), descending);
        paths.extend(order);
        (paths.len() <= PATHS_MAX).then_some(Ordering { paths, from, to, prefix, fixed })
    }

    /// The order of creation, for a query without one: by the numbers of the items that all have these values.
    /// `None` if there are too many values.
    pub fn of_creation(fixed: &[(IndexPath, Value<'static>)]) -> Option<Ordering> {
        let mut prefix = Vec::new();
        let mut paths = Vec::new();
        for (path, value) in fixed {
            push_key(value, false, &mut prefix);
            paths.push(OrderPath { path: path.clone(), descending: false });
        }
        let (from, to) = within(&prefix, None, false);
        let fixed = paths.len();
        (fixed <= PATHS_MAX).then_some(Ordering { paths, from, to, prefix, fixed })
    }

    /// The key of the item with this number in an order of creation.
    pub fn place_of(&self, number: u64) -> Vec<u8> {
        [&self.prefix[..], &number.to_be_bytes()].concat()
    }

    /// The key to resume at after a mark: the start of the mark's group, not behind it.
    pub fn resume_at(&self, mark: &OrderMark) -> Vec<u8> {
        let order = self.paths.get(self.fixed..).unwrap_or_default();
        let key =
            key_of_values(self.prefix.clone(), mark.keys.iter().cloned(), order, mark.ordinal);
        let mut bytes = key.bytes;
        bytes.truncate(key.group);
        bytes.max(self.from.clone())
    }
}

/// The key of the single value that a restriction allows; `None` for arrays and objects.
fn single_key(restriction: &Restriction) -> Option<&[u8]> {
    let [only] = &restriction.intervals[..] else { return None };
    let is_scalar = only.from.first().is_some_and(|kind| *kind < ARRAY);
    let is_single = only.is_point && !restriction.path.0.contains(&PathStep::Element);
    (is_scalar && is_single).then_some(&only.from[..])
}

/// The smallest interval that covers all of these.
fn hull(intervals: &[KeyInterval]) -> Option<(Vec<u8>, Vec<u8>)> {
    let from = intervals.iter().map(|one| &one.from).min()?;
    let to = intervals.iter().map(|one| &one.to).max()?;
    Some((from.clone(), to.clone()))
}

/// The interval of keys with a prefix whose next part is within bounds; it may contain a few more.
fn within(
    prefix: &[u8],
    bounds: Option<&(Vec<u8>, Vec<u8>)>,
    descending: bool,
) -> (Vec<u8>, Vec<u8>) {
    let joined = |part: &[u8]| [prefix, part].concat();
    match bounds {
        None => (prefix.to_vec(), joined(&[BEHIND_ALL])),
        Some((from, to)) if !descending => (joined(&kind_only(from, 0)), joined(&kind_only(to, 1))),
        Some((from, to)) => {
            let (mut from, mut to) = (kind_only(from, 0), kind_only(to, 1));
            turn(&mut from);
            turn(&mut to);
            (joined(&to), behind(&joined(&from)))
        }
    }
}

/// Cuts a bound among arrays and objects to its kind, since their order keys contain nothing else.
fn kind_only(key: &[u8], more: u8) -> Vec<u8> {
    match key {
        [kind, _, ..] if *kind >= ARRAY => vec![*kind + more],
        _ => key.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &[&str] = &[
        r"{}",
        r#"{"a":null}"#,
        r#"{"a":false}"#,
        r#"{"a":true}"#,
        r#"{"a":-1}"#,
        r#"{"a":0}"#,
        r#"{"a":2.5}"#,
        r#"{"a":""}"#,
        r#"{"a":"\u0000"}"#,
        r#"{"a":"b"}"#,
        r#"{"a":"ba"}"#,
        r#"{"a":[1]}"#,
        r#"{"a":{"b":1}}"#,
    ];

    fn by(name: &str, descending: bool) -> OrderPath {
        OrderPath { path: IndexPath(vec![PathStep::Name(name.to_owned())]), descending }
    }

    #[test]
    fn keys_sort_like_items_in_both_directions() {
        for descending in [false, true] {
            let order = [by("a", descending)];
            for pair in VALUES.windows(2) {
                let low = order_key(pair[0].as_bytes(), &order, 9);
                let high = order_key(pair[1].as_bytes(), &order, 1);
                assert_eq!(low.bytes < high.bytes, !descending, "{pair:?}");
            }
            let (one, two) = (order_key(b"{}", &order, 1), order_key(b"{}", &order, 2));
            assert!(one.bytes < two.bytes, "equal ones by their ordinal, ascending in any case");
        }
    }

    #[test]
    fn a_group_ends_with_the_first_key_that_is_shared() {
        let order = [by("b", false), by("a", true), by("c", false)];
        let long = "x".repeat(TEXT_BYTES);
        let short = "x".repeat(TEXT_BYTES - 1);
        let item = |a: &str| format!(r#"{{"a":{a},"b":1,"c":2}}"#);
        let group = |a: &str| {
            let key = order_key(item(a).as_bytes(), &order, 7);
            (key.group, key.bytes.len())
        };
        for exact in ["1", "null", &format!("{short:?}")] {
            let (group, all) = group(exact);
            assert_eq!(group, all, "{exact}");
        }
        for shared in ["[1]", "{}", &format!("{long:?}")] {
            let (group, all) = group(shared);
            assert_eq!(group, all - 9 - 8, "{shared}: without c and the ordinal");
        }
        let one = order_key(item(&format!("{:?}", format!("{long}1"))).as_bytes(), &order, 7);
        let two = order_key(item(&format!("{:?}", format!("{long}2"))).as_bytes(), &order, 7);
        assert_eq!(one, two, "only the first bytes count");
    }

    #[test]
    fn in_an_order_of_creation_items_lie_by_their_numbers_behind_what_all_have() {
        let path = by("a", false).path;
        let long = "x".repeat(TEXT_BYTES + 9);
        for value in [Value::Null, Value::Bool(true), Value::number(-1.5), Value::text(long)] {
            let json = [br#"{"a":"#, &value.to_json()[..], b"}"].concat();
            let order = Ordering::of_creation(&[(path.clone(), value)]).unwrap();
            for number in [0, 1, 1 << 40, u64::MAX >> 8] {
                let key = order_key(&json, &order.paths, number).bytes;
                assert_eq!(order.place_of(number), key);
                assert!(order.from <= key && key < order.to);
            }
            assert!(order.place_of(255) < order.place_of(256));
        }
        let all = Ordering::of_creation(&[]).unwrap();
        assert_eq!(all.place_of(7), order_key(b"{}", &all.paths, 7).bytes);
        assert!(all.from <= all.place_of(0) && all.place_of(u64::MAX >> 8) < all.to);
    }

    #[test]
    fn bounds_hold_every_value_of_an_interval() {
        for descending in [false, true] {
            let order = [by("a", descending)];
            for (low, high) in [("0", "2.5"), ("-1", "-1"), ("0", "99")] {
                let value = |text: &str| Value::from_json(text.as_bytes()).unwrap();
                let interval = KeyInterval::on_side(&value(low), true).unwrap();
                let interval =
                    interval.intersect(&KeyInterval::on_side(&value(high), false).unwrap());
                let interval = interval.unwrap();
                let bounds = (interval.from, interval.to);
                let (from, to) = within(b"p", Some(&bounds), descending);
                for number in ["-2", "-1", "0", "1", "2.5", "99", "100"] {
                    let item = format!(r#"{{"a":{number}}}"#);
                    let key = [b"p", &order_key(item.as_bytes(), &order, 3).bytes[..]].concat();
                    let is_inside = from <= key && key < to;
                    let wanted = value(low).order(&value(number)).is_le()
                        && value(number).order(&value(high)).is_le();
                    assert_eq!(is_inside, wanted, "{number} in {low}..{high} {descending}");
                }
            }
        }
    }
}
