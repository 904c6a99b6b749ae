//! Values from outside: parameters, the text of a function's argument.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Member, Value};

/// Up to so many names are compared one by one rather than looked up.
const FEW: usize = 8;

/// Why a text is no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("value is not JSON: {problem}; send a JSON value")]
pub struct BadValue {
    problem: String,
}

impl Value<'static> {
    /// Reads a JSON text, nested at most as deep as JSON readers commonly allow (128).
    pub fn from_json(text: &[u8]) -> Result<Value<'static>, BadValue> {
        serde_json::from_slice(text).map_err(|error| BadValue { problem: error.to_string() })
    }
}

impl<'a> Value<'a> {
    /// An object. Undefined properties are left out; of a name that stands twice the last value
    /// wins, at the first place.
    pub fn object(members: impl IntoIterator<Item = Member<'a>>) -> Value<'a> {
        let members: Vec<Member<'a>> = members.into_iter().collect();
        let is_new = |(at, member): (usize, &Member<'a>)| {
            members[..at].iter().all(|(name, _)| *name != member.0)
        };
        if members.len() <= FEW && members.iter().enumerate().all(is_new) {
            return Value::object_of_unique(members);
        }
        let mut unique: Vec<Member<'a>> = Vec::new();
        let mut places: HashMap<Cow<'a, str>, usize> = HashMap::new();
        for (name, value) in members {
            match places.get(&name) {
                Some(place) => unique[*place].1 = value,
                None => {
                    places.insert(name.clone(), unique.len());
                    unique.push((name, value));
                }
            }
        }
        Value::object_of_unique(unique)
    }

    /// An object of members whose names are known to differ. Undefined properties are left out.
    pub(crate) fn object_of_unique(mut members: Vec<Member<'a>>) -> Value<'a> {
        members.retain(|(_, value)| !value.is_undefined());
        Value::Object(members.into())
    }
}

impl<'de> Deserialize<'de> for Value<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value<'static>, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value<'static>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value<'static>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value<'static>, E> {
        Ok(integer(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value<'static>, E> {
        Ok(integer(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value<'static>, E> {
        Ok(Value::number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value<'static>, E> {
        Ok(Value::String(Cow::Owned(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Value<'static>, E> {
        Ok(Value::String(Cow::Owned(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value<'static>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Value::Array(elements.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value<'static>, A::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value<'static>>()? {
            members.push((Cow::Owned(name), value));
        }
        Ok(Value::object(members))
    }
}

fn integer(text: String) -> Value<'static> {
    super::Number::parse(Cow::Owned(text)).map_or(Value::Undefined, Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_equal_names_wins() {
        let value = Value::from_json(br#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in ["", "{", "[1,]", "nul", "1 2", &"[".repeat(1000)] {
            assert!(Value::from_json(text.as_bytes()).is_err(), "{text}");
        }
    }
}
