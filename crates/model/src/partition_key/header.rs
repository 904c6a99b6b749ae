//! The text form of a partition key, as the `x-ms-documentdb-partitionkey` header carries it.
//!
//! A JSON array with one scalar for each component; `{}` stands for a missing property. The writer emits ASCII
//! only, since HTTP headers are not safe for anything else. The reader also accepts raw UTF-8, up to a size
//! limit. Nothing else here depends on HTTP.

use std::fmt::{self, Write};

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::{COMPONENTS_MAX, PartitionKey, PartitionKeyValue};

/// The longest header text accepted.
const TEXT_BYTES_MAX: usize = 8 * 1024;

/// Integers up to here are exact doubles and are written without a fraction, as the SDKs do.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Why a text is not a partition key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPartitionKey {
    /// Not valid JSON, or a JSON string or number without a value, such as a lone surrogate.
    #[error(r#"partition key is not valid JSON at column {column}; send an array such as ["a"]"#)]
    NotJson {
        /// The column where parsing stopped, counted from 1; 0 for an empty text.
        column: usize,
    },
    /// JSON, but not an array.
    #[error(r#"partition key is not a JSON array; send ["a"] rather than "a""#)]
    NotArray,
    /// An object with properties, or an array, as a component.
    #[error(
        "partition key component {index} is an object or an array; \
         send a string, number, boolean or null, or {{}} for a missing property"
    )]
    NotScalar {
        /// Which component, counted from 0.
        index: usize,
    },
    /// More components than any definition has paths.
    #[error("partition key has more than {COMPONENTS_MAX} components; send one for each path")]
    TooManyComponents,
    /// A text longer than any valid key needs.
    #[error("partition key text is {bytes} bytes; send at most {TEXT_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl PartitionKey {
    /// Reads the header form, such as `["a"]`, `[42]`, `[null]`, `[{}]` or `[]`.
    pub fn parse(text: &str) -> Result<PartitionKey, BadPartitionKey> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadPartitionKey::TooLong { bytes: text.len() });
        }
        if let Some(plain) = plain_text(text) {
            return Ok(PartitionKey::from_values(SmallVec::from([plain.into()])));
        }
        match serde_json::from_str::<Components>(text) {
            Ok(Components(components)) => components.map(PartitionKey::from_values),
            Err(error) if error.is_data() => Err(BadPartitionKey::NotArray),
            Err(error) => Err(BadPartitionKey::NotJson { column: error.column() }),
        }
    }

    /// Writes the header form in ASCII.
    ///
    /// A number that is not finite has no JSON form and is written as `{}`; it cannot be the key of
    /// an item either, see [`PartitionKeyError::NotFinite`](crate::PartitionKeyError::NotFinite).
    pub fn to_json(&self) -> String {
        self.to_string()
    }
}

/// Fast path: the value of a key that is one string without escapes, as nearly all keys are.
fn plain_text(json: &str) -> Option<&str> {
    let text = json.strip_prefix("[\"")?.strip_suffix("\"]")?;
    text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\').then_some(text)
}

/// The header form.
impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, value) in self.components().iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            write_value(value, f)?;
        }
        f.write_char(']')
    }
}

impl std::str::FromStr for PartitionKey {
    type Err = BadPartitionKey;

    fn from_str(text: &str) -> Result<PartitionKey, BadPartitionKey> {
        PartitionKey::parse(text)
    }
}

impl PartitionKeyValue {
    /// The component for an item's property, from the JSON of that property alone.
    ///
    /// Objects and arrays count as a missing property.
    pub fn from_property_json(json: &str) -> Result<PartitionKeyValue, BadPartitionKey> {
        match serde_json::from_str::<Component>(json) {
            Ok(Component::Scalar(value)) => Ok(value),
            Ok(Component::Compound) => Ok(PartitionKeyValue::Undefined),
            Err(error) => Err(BadPartitionKey::NotJson { column: error.column() }),
        }
    }
}

fn write_value(value: &PartitionKeyValue, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        PartitionKeyValue::Undefined => f.write_str("{}"),
        PartitionKeyValue::Null => f.write_str("null"),
        PartitionKeyValue::Bool(value) => write!(f, "{value}"),
        PartitionKeyValue::Number(value) => write_number(*value, f),
        PartitionKeyValue::String(value) => write_string(value, f),
    }
}

fn write_number(value: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let integer = value.fract() == 0.0 && value.abs() < EXACT_INTEGER_MAX;
    let negative_zero = value == 0.0 && value.is_sign_negative();
    if !value.is_finite() {
        f.write_str("{}")
    } else if integer && !negative_zero {
        write!(f, "{value:.0}")
    } else {
        // The debug form is the shortest text that reads back as the same double, and is JSON.
        write!(f, "{value:?}")
    }
}

fn write_string(value: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for character in value.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            ' '..='~' => f.write_char(character)?,
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(f, "\\u{unit:04x}")?;
                }
            }
        }
    }
    f.write_char('"')
}

/// One JSON element. The caller decides whether a compound element is an error.
enum Component {
    Scalar(PartitionKeyValue),
    /// An array, or an object with properties.
    Compound,
}

struct ComponentVisitor;

impl<'de> Visitor<'de> for ComponentVisitor {
    type Value = Component;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Component, E> {
        Ok(Component::Scalar(PartitionKeyValue::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Component, E> {
        Ok(Component::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Component, E> {
        Ok(Component::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Component, E> {
        Ok(Component::Scalar(PartitionKeyValue::Number(value as f64)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Component, E> {
        Ok(Component::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Component, E> {
        Ok(Component::Scalar(value.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Component, A::Error> {
        let mut empty = true;
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            empty = false;
        }
        Ok(if empty {
            Component::Scalar(PartitionKeyValue::Undefined)
        } else {
            Component::Compound
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Component, A::Error> {
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Component::Compound)
    }
}

impl<'de> Deserialize<'de> for Component {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Component, D::Error> {
        deserializer.deserialize_any(ComponentVisitor)
    }
}

/// The elements of the whole array, or a typed error, which the JSON reader would turn into text.
struct Components(Result<SmallVec<[PartitionKeyValue; 1]>, BadPartitionKey>);

struct ComponentsVisitor;

impl<'de> Visitor<'de> for ComponentsVisitor {
    type Value = Components;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Components, A::Error> {
        let mut read = Ok(SmallVec::new());
        while let Some(component) = elements.next_element()? {
            let Ok(values) = &mut read else { continue };
            match component {
                _ if values.len() == COMPONENTS_MAX => {
                    read = Err(BadPartitionKey::TooManyComponents);
                }
                Component::Scalar(value) => values.push(value),
                Component::Compound => {
                    read = Err(BadPartitionKey::NotScalar { index: values.len() });
                }
            }
        }
        Ok(Components(read))
    }
}

impl<'de> Deserialize<'de> for Components {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Components, D::Error> {
        deserializer.deserialize_seq(ComponentsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<PartitionKey, BadPartitionKey>) {
        assert_eq!(PartitionKey::parse(text), expected, "{text}");
    }

    #[test]
    fn readable_texts() {
        check("[]", Ok(PartitionKey::empty()));
        check(r#"["a"]"#, Ok("a".into()));
        check(r#" [ "a" ] "#, Ok("a".into()));
        check("[42]", Ok(42.into()));
        check("[42.0]", Ok(42.into()));
        check("[4.2e1]", Ok(42.into()));
        check("[-0]", Ok((-0.0).into()));
        check("[-0.0]", Ok((-0.0).into()));
        check("[18446744073709551615]", Ok(18_446_744_073_709_551_616.0.into()));
        check(
            "[123456789012345678901234567890]",
            Ok(123_456_789_012_345_678_901_234_567_890.0.into()),
        );
        check("[true]", Ok(true.into()));
        check("[false]", Ok(false.into()));
        check("[null]", Ok(().into()));
        check("[{}]", Ok(PartitionKeyValue::Undefined.into()));
        check("[ { } ]", Ok(PartitionKeyValue::Undefined.into()));
        check(r#"["t1","u1","s1"]"#, Ok(["t1", "u1", "s1"].into()));
        check(r#"["\u00e9\u65e5\ud83d\ude00"]"#, Ok("é日😀".into()));
        check(r#"["é日😀"]"#, Ok("é日😀".into()));
        check(r#"[1,2,3,4,5,6,7,8]"#, Ok(PartitionKey::from_values((1..=8).map(Into::into))));
    }

    #[test]
    fn refused_texts() {
        let not_json = |column| Err(BadPartitionKey::NotJson { column });
        check("", not_json(0));
        check("[", not_json(1));
        check("[1", not_json(2));
        check("[1,]", not_json(4));
        check("[1] x", not_json(5));
        check("[1e999]", not_json(6));
        check("[NaN]", not_json(2));
        check("[undefined]", not_json(2));
        check(r#"["\ud83d"]"#, not_json(9));
        check("['a']", not_json(2));
        check(r#""a""#, Err(BadPartitionKey::NotArray));
        check("{}", Err(BadPartitionKey::NotArray));
        check("42", Err(BadPartitionKey::NotArray));
        check("null", Err(BadPartitionKey::NotArray));
        check("[[]]", Err(BadPartitionKey::NotScalar { index: 0 }));
        check(r#"[1,{"a":1}]"#, Err(BadPartitionKey::NotScalar { index: 1 }));
        check(r#"[{"a":{"b":[1,2]}},"x"]"#, Err(BadPartitionKey::NotScalar { index: 0 }));
        check("[1,2,3,4,5,6,7,8,9]", Err(BadPartitionKey::TooManyComponents));
        let long = format!(r#"["{}"]"#, "a".repeat(8 * 1024 - 4));
        check(&long, Ok("a".repeat(8 * 1024 - 4).into()));
        let longer = format!(r#"["{}"]"#, "a".repeat(8 * 1024 - 3));
        check(&longer, Err(BadPartitionKey::TooLong { bytes: 8 * 1024 + 1 }));
        // The JSON reader's recursion limit stops deep nesting before the stack overflows.
        assert!(PartitionKey::parse(&"[".repeat(8000)).is_err());
    }

    #[test]
    fn written_texts() {
        for (key, expected) in [
            (PartitionKey::empty(), "[]"),
            (PartitionKeyValue::Undefined.into(), "[{}]"),
            (().into(), "[null]"),
            (("a", 42, true).into(), r#"["a",42,true]"#),
            (4.5.into(), "[4.5]"),
            ((-7).into(), "[-7]"),
            (0.0.into(), "[0]"),
            ((-0.0).into(), "[-0.0]"),
            (1e21.into(), "[1e21]"),
            (5e-324.into(), "[5e-324]"),
            (9_007_199_254_740_991.0.into(), "[9007199254740991]"),
            (f64::INFINITY.into(), "[{}]"),
            ("é日😀".into(), r#"["\u00e9\u65e5\ud83d\ude00"]"#),
            ("\"\\/\n\r\t\u{8}\u{0}\u{7f} ~".into(), r#"["\"\\/\n\r\t\u0008\u0000\u007f ~"]"#),
        ] {
            assert_eq!(key.to_json(), expected);
        }
    }

    #[test]
    fn properties_of_items() {
        for (json, expected) in [
            ("\"a\"", PartitionKeyValue::from("a")),
            ("1.0", 1.into()),
            ("null", ().into()),
            ("{}", PartitionKeyValue::Undefined),
            (r#"{"a":[1]}"#, PartitionKeyValue::Undefined),
            ("[1]", PartitionKeyValue::Undefined),
        ] {
            assert_eq!(PartitionKeyValue::from_property_json(json), Ok(expected), "{json}");
        }
        assert!(PartitionKeyValue::from_property_json("").is_err());
        assert!(PartitionKeyValue::from_property_json("1 2").is_err());
    }
}
