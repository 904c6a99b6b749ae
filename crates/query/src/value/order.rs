//! Comparison of values: the language's equality and `<`, the order across types, and grouping keys.
//!
//! The language has three relations:
//! - `=`: values of different types are unequal; a comparison with undefined is undefined.
//! - `<` compares only values of one scalar type; everything else is undefined.
//! - `ORDER BY`, `MIN` and `MAX` order everything: undefined, null, false, true, numbers, strings,
//!   arrays, objects.
//!
//! Parts deeper than `DEPTH_MAX` count as equal. Items nested that deep are refused when
//! they are written; the limit protects against unchecked bytes.

use std::borrow::Cow;
use std::cmp::Ordering;

use std::convert::Infallible;

use super::{Kind, Member, SCANNED_PER_STEP, Value};

const DEPTH_MAX: u32 = 192;
/// Elements or properties visited for the cost of a step.
const PARTS_PER_STEP: usize = 8;

/// Counts the work of a walk over a value, and may end it.
pub(crate) trait Charge {
    /// Why the walk must end.
    type Refusal;

    /// Counts steps of work.
    fn walked(&mut self, steps: usize) -> Result<(), Self::Refusal>;
}

/// Counts nothing, for values that are small or whose walk is charged in advance.
struct Free;

impl Charge for Free {
    type Refusal = Infallible;

    fn walked(&mut self, _: usize) -> Result<(), Infallible> {
        Ok(())
    }
}

fn unwrap_free<T>(result: Result<T, Infallible>) -> T {
    let Ok(value) = result;
    value
}

impl Value<'_> {
    /// The language's `=`; `None` if either side is undefined.
    pub fn equals(&self, other: &Value<'_>) -> Option<bool> {
        match (self, other) {
            (Value::Undefined, _) | (_, Value::Undefined) => None,
            (Value::String(one), Value::String(two)) => Some(one == two),
            (Value::Number(one), Value::Number(two)) => Some(one.value() == two.value()),
            _ => Some(self.order(other).is_eq()),
        }
    }

    /// The language's `=`, charged by the size of what is compared.
    pub(crate) fn equals_charged<C: Charge>(
        &self,
        other: &Value<'_>,
        charge: &mut C,
    ) -> Result<Option<bool>, C::Refusal> {
        match (self, other) {
            (Value::Array(_) | Value::Object(_) | Value::Json(_), _) if !other.is_undefined() => {
                Ok(Some(order(self, other, 0, charge)?.is_eq()))
            }
            (Value::String(one), Value::String(two)) if one.len() == two.len() => {
                charge.walked(self.scan_cost())?;
                Ok(Some(one == two))
            }
            _ => Ok(self.equals(other)),
        }
    }

    /// The order of the language's `<`, `<=`, `>` and `>=`; `None` where they return undefined.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
            (Value::Number(one), Value::Number(two)) => one.value().partial_cmp(&two.value()),
            (Value::String(one), Value::String(two)) => Some(one.as_ref().cmp(two.as_ref())),
            _ => None,
        }
    }

    /// The order of `ORDER BY`, which covers every value.
    pub fn order(&self, other: &Value<'_>) -> Ordering {
        unwrap_free(order(self, other, 0, &mut Free))
    }
}

fn order<C: Charge>(
    one: &Value<'_>,
    two: &Value<'_>,
    depth: u32,
    charge: &mut C,
) -> Result<Ordering, C::Refusal> {
    if depth > DEPTH_MAX {
        return Ok(Ordering::Equal);
    }
    if let Some(ordering) = one.compare(two) {
        if let (Value::String(one), Value::String(two)) = (one, two) {
            charge.walked(one.len().min(two.len()) / SCANNED_PER_STEP)?;
        }
        return Ok(ordering);
    }
    let kind = one.kind();
    let by_kind = kind.cmp(&two.kind());
    if by_kind.is_ne() {
        return Ok(by_kind);
    }
    // A text is scanned once for each level of its nesting.
    charge.walked(one.scan_cost() + two.scan_cost())?;
    match (one.elements(), two.elements()) {
        (Some(one), Some(two)) => return order_arrays(&one, &two, depth, charge),
        _ if kind != Kind::Object => return Ok(Ordering::Equal),
        _ => {}
    }
    match (one.members(), two.members()) {
        (Some(one), Some(two)) => order_objects(&one, &two, depth, charge),
        _ => Ok(Ordering::Equal),
    }
}

fn order_arrays<C: Charge>(
    one: &[Value<'_>],
    two: &[Value<'_>],
    depth: u32,
    charge: &mut C,
) -> Result<Ordering, C::Refusal> {
    for (place, (one, two)) in one.iter().zip(two).enumerate() {
        if place % PARTS_PER_STEP == 0 {
            charge.walked(1)?;
        }
        let ordering = order(one, two, depth + 1, charge)?;
        if ordering.is_ne() {
            return Ok(ordering);
        }
    }
    Ok(one.len().cmp(&two.len()))
}

/// Compares objects as sets of properties: their order in the text does not count.
fn order_objects<C: Charge>(
    one: &[Member<'_>],
    two: &[Member<'_>],
    depth: u32,
    charge: &mut C,
) -> Result<Ordering, C::Refusal> {
    charge.walked((one.len() + two.len()).div_ceil(PARTS_PER_STEP))?;
    let (one, two) = (by_name(one), by_name(two));
    for ((one_name, one), (two_name, two)) in one.iter().zip(&two) {
        let by_name = one_name.cmp(two_name);
        if by_name.is_ne() {
            return Ok(by_name);
        }
        let ordering = order(one, two, depth + 1, charge)?;
        if ordering.is_ne() {
            return Ok(ordering);
        }
    }
    Ok(one.len().cmp(&two.len()))
}

fn by_name<'m, 'a>(members: &'m [Member<'a>]) -> Vec<&'m (Cow<'a, str>, Value<'a>)> {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by(|(one, _), (two, _)| one.cmp(two));
    sorted
}

/// Bytes that are equal exactly for equal values, for sets and groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn of(value: &Value<'_>) -> Key {
        unwrap_free(Key::charged(value, &mut Free))
    }

    /// Creates a key, charged by the size of the value.
    pub(crate) fn charged<C: Charge>(value: &Value<'_>, charge: &mut C) -> Result<Key, C::Refusal> {
        let mut key = Key::default();
        key.push(value, charge)?;
        Ok(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A hash that is the same in every build (FNV-1a), for keys on disk.
    pub(crate) fn hash(&self) -> u64 {
        self.0.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }

    /// Appends a value, charged by its size.
    pub(crate) fn push<C: Charge>(
        &mut self,
        value: &Value<'_>,
        charge: &mut C,
    ) -> Result<(), C::Refusal> {
        self.add(value, 0, charge)
    }

    fn add<C: Charge>(
        &mut self,
        value: &Value<'_>,
        depth: u32,
        charge: &mut C,
    ) -> Result<(), C::Refusal> {
        if depth > DEPTH_MAX {
            return Ok(());
        }
        match value {
            Value::Undefined => self.0.push(0),
            Value::Null => self.0.push(1),
            Value::Bool(value) => self.0.push(2 + u8::from(*value)),
            Value::Number(number) => {
                self.0.push(4);
                // Adding zero makes -0 and 0 one number, as `=` sees them.
                self.0.extend_from_slice(&(number.value() + 0.0).to_be_bytes());
            }
            Value::String(text) => {
                charge.walked(value.scan_cost())?;
                self.0.push(5);
                self.add_text(text);
            }
            container => return self.add_container(container, depth, charge),
        }
        Ok(())
    }

    fn add_container<C: Charge>(
        &mut self,
        value: &Value<'_>,
        depth: u32,
        charge: &mut C,
    ) -> Result<(), C::Refusal> {
        // A text is scanned once for each level of its nesting.
        charge.walked(value.scan_cost())?;
        if let Some(elements) = value.elements() {
            self.0.push(6);
            self.0.extend_from_slice(&elements.len().to_be_bytes());
            for (place, element) in elements.iter().enumerate() {
                if place % PARTS_PER_STEP == 0 {
                    charge.walked(1)?;
                }
                self.add(element, depth + 1, charge)?;
            }
        } else if let Some(members) = value.members() {
            charge.walked(members.len().div_ceil(PARTS_PER_STEP))?;
            self.0.push(7);
            self.0.extend_from_slice(&members.len().to_be_bytes());
            for (name, value) in by_name(&members) {
                self.add_text(name);
                self.add(value, depth + 1, charge)?;
            }
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) {
        self.0.extend_from_slice(&text.len().to_be_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &'static str) -> Value<'static> {
        if text == "undefined" { Value::Undefined } else { Value::of_item(text.as_bytes()) }
    }

    /// From least to greatest; no two are equal.
    const ORDERED: &[&str] = &[
        "undefined",
        "null",
        "false",
        "true",
        "-1e300",
        "-1",
        "0",
        "0.5",
        "1",
        "1e300",
        r#""""#,
        r#""A""#,
        r#""a""#,
        r#""aa""#,
        r#""b""#,
        r#""é""#,
        "[]",
        "[null]",
        "[1]",
        "[1,2]",
        "[2]",
        "[[]]",
        "{}",
        r#"{"a":1}"#,
        r#"{"a":1,"b":0}"#,
        r#"{"a":2}"#,
        r#"{"b":1}"#,
    ];

    #[test]
    fn every_value_has_its_place_across_types() {
        for (i, one) in ORDERED.iter().enumerate() {
            for (j, two) in ORDERED.iter().enumerate() {
                let (one, two) = (value(one), value(two));
                assert_eq!(one.order(&two), i.cmp(&j), "{one} {two}");
                assert_eq!(Key::of(&one) == Key::of(&two), i == j, "{one} {two}");
            }
        }
    }

    #[test]
    fn operators_compare_only_what_is_alike() {
        let cases = [
            ("1", "2", Some(false), Some(Ordering::Less)),
            ("1", "1.0", Some(true), Some(Ordering::Equal)),
            ("1", r#""1""#, Some(false), None),
            ("null", "null", Some(true), Some(Ordering::Equal)),
            ("null", "0", Some(false), None),
            ("undefined", "undefined", None, None),
            ("undefined", "1", None, None),
            ("[1]", "[1]", Some(true), None),
            (r#"{"a":1,"b":[2]}"#, r#"{"b":[2.0],"a":1}"#, Some(true), None),
            (r#"{"a":1}"#, r#"{"a":2}"#, Some(false), None),
            ("true", "false", Some(false), Some(Ordering::Greater)),
            ("-0", "0", Some(true), Some(Ordering::Equal)),
        ];
        for (one, two, equal, ordering) in cases {
            assert_eq!(value(one).equals(&value(two)), equal, "{one} = {two}");
            assert_eq!(value(one).compare(&value(two)), ordering, "{one} < {two}");
        }
    }
}
