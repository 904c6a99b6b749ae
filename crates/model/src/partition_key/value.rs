//! The values of a partition key and the key they form.
//!
//! Plain data: no text forms, encodings or hashes are here.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

use smallvec::{SmallVec, smallvec};

use super::COMPONENTS_MAX;

/// One component of a partition key.
///
/// Numbers are equal if they are the same IEEE double, bit by bit. Ordered by kind in the order of the variants,
/// then by value.
#[derive(Clone, Debug)]
pub enum PartitionKeyValue {
    /// The item has no such property, or it holds an object or an array.
    Undefined,
    /// The property is `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number. JSON has only finite ones; others cannot be hashed.
    Number(f64),
    /// A string.
    String(String),
}

impl PartitionKeyValue {
    fn rank(&self) -> u8 {
        match self {
            PartitionKeyValue::Undefined => 0,
            PartitionKeyValue::Null => 1,
            PartitionKeyValue::Bool(_) => 2,
            PartitionKeyValue::Number(_) => 3,
            PartitionKeyValue::String(_) => 4,
        }
    }
}

impl Ord for PartitionKeyValue {
    fn cmp(&self, other: &PartitionKeyValue) -> Ordering {
        use PartitionKeyValue::{Bool, Number, String};
        match (self, other) {
            (Bool(one), Bool(other)) => one.cmp(other),
            // `total_cmp` returns `Equal` only for equal bits, so -0.0 and 0.0 differ.
            (Number(one), Number(other)) => one.total_cmp(other),
            (String(one), String(other)) => one.cmp(other),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for PartitionKeyValue {
    fn partial_cmp(&self, other: &PartitionKeyValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PartitionKeyValue {
    fn eq(&self, other: &PartitionKeyValue) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PartitionKeyValue {}

impl Hash for PartitionKeyValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u8(self.rank());
        match self {
            PartitionKeyValue::Undefined | PartitionKeyValue::Null => {}
            PartitionKeyValue::Bool(value) => value.hash(state),
            PartitionKeyValue::Number(value) => value.to_bits().hash(state),
            PartitionKeyValue::String(value) => value.hash(state),
        }
    }
}

/// The partition key of an item: one value for each path of the container's definition.
///
/// Almost every key has one component, which is stored without an allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(SmallVec<[PartitionKeyValue; 1]>);

impl PartitionKey {
    /// The key with these values, in the order of the definition's paths.
    ///
    /// # Panics
    ///
    /// With more than eight values, a bug of the caller: no definition has that many paths. `parse` and `decode`
    /// return errors for text and bytes from outside.
    pub fn from_values(values: impl IntoIterator<Item = PartitionKeyValue>) -> PartitionKey {
        let values: SmallVec<_> = values.into_iter().collect();
        assert!(
            values.len() <= COMPONENTS_MAX,
            "a partition key has at most {COMPONENTS_MAX} values"
        );
        PartitionKey(values)
    }

    /// The empty key `[]`: the key of old items in containers that once had no partition key.
    pub fn empty() -> PartitionKey {
        PartitionKey(SmallVec::new())
    }

    /// The values, in the order of the definition's paths.
    pub fn components(&self) -> &[PartitionKeyValue] {
        &self.0
    }

    pub(super) fn push(&mut self, value: PartitionKeyValue) {
        self.0.push(value);
    }
}

impl From<&str> for PartitionKeyValue {
    fn from(value: &str) -> PartitionKeyValue {
        PartitionKeyValue::String(value.to_owned())
    }
}

impl From<String> for PartitionKeyValue {
    fn from(value: String) -> PartitionKeyValue {
        PartitionKeyValue::String(value)
    }
}

impl From<f64> for PartitionKeyValue {
    fn from(value: f64) -> PartitionKeyValue {
        PartitionKeyValue::Number(value)
    }
}

impl From<i64> for PartitionKeyValue {
    /// Integers beyond 2^53 become the nearest double, as they do in every JSON number of Cosmos DB.
    fn from(value: i64) -> PartitionKeyValue {
        PartitionKeyValue::Number(value as f64)
    }
}

impl From<i32> for PartitionKeyValue {
    fn from(value: i32) -> PartitionKeyValue {
        PartitionKeyValue::Number(f64::from(value))
    }
}

impl From<bool> for PartitionKeyValue {
    fn from(value: bool) -> PartitionKeyValue {
        PartitionKeyValue::Bool(value)
    }
}

impl From<()> for PartitionKeyValue {
    /// `null`, which is not the same key as a missing property.
    fn from((): ()) -> PartitionKeyValue {
        PartitionKeyValue::Null
    }
}

/// A key with one component.
impl<V: Into<PartitionKeyValue>> From<V> for PartitionKey {
    fn from(value: V) -> PartitionKey {
        PartitionKey(smallvec![value.into()])
    }
}

/// A hierarchical key of strings.
impl<const N: usize> From<[&str; N]> for PartitionKey {
    fn from(values: [&str; N]) -> PartitionKey {
        PartitionKey::from_values(values.into_iter().map(PartitionKeyValue::from))
    }
}

/// A hierarchical key of two values of any kind.
impl<A, B> From<(A, B)> for PartitionKey
where
    A: Into<PartitionKeyValue>,
    B: Into<PartitionKeyValue>,
{
    fn from((a, b): (A, B)) -> PartitionKey {
        PartitionKey::from_values([a.into(), b.into()])
    }
}

/// A hierarchical key of three values of any kind.
impl<A, B, C> From<(A, B, C)> for PartitionKey
where
    A: Into<PartitionKeyValue>,
    B: Into<PartitionKeyValue>,
    C: Into<PartitionKeyValue>,
{
    fn from((a, b, c): (A, B, C)) -> PartitionKey {
        PartitionKey::from_values([a.into(), b.into(), c.into()])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn equal_means_the_same_value() {
        assert_eq!(PartitionKey::from(1), PartitionKey::from(1.0));
        assert_eq!(PartitionKey::from(i64::MAX), PartitionKey::from(9_223_372_036_854_775_808.0));
        assert_eq!(PartitionKey::from("a"), PartitionKey::from("a".to_owned()));
        assert_eq!(PartitionKey::from(("a", "b")), PartitionKey::from(["a", "b"]));

        let different = [
            PartitionKey::empty(),
            PartitionKey::from(PartitionKeyValue::Undefined),
            PartitionKey::from(()),
            PartitionKey::from(false),
            PartitionKey::from(true),
            PartitionKey::from(0.0),
            PartitionKey::from(-0.0),
            PartitionKey::from(1),
            PartitionKey::from("1"),
            PartitionKey::from(""),
            PartitionKey::from(["", ""]),
            PartitionKey::from(("", 1, ())),
        ];
        assert_eq!(different.iter().collect::<HashSet<_>>().len(), different.len());
    }

    #[test]
    fn ordered_by_kind_then_value() {
        let sorted = [
            PartitionKeyValue::Undefined,
            PartitionKeyValue::Null,
            false.into(),
            true.into(),
            (-1.5).into(),
            (-0.0).into(),
            0.0.into(),
            2.into(),
            10.into(),
            "".into(),
            "10".into(),
            "2".into(),
        ];
        assert!(sorted.is_sorted_by(|one, other| one < other));
    }

    #[test]
    #[should_panic(expected = "at most 8 values")]
    fn nine_values_are_a_mistake() {
        let _ = PartitionKey::from(["a"; 9]);
    }
}
