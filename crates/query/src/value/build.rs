//! Builds values from outside: parameters, and text in function arguments.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Member, Value};
use crate::limits::Limits;

/// Up to this number, names are compared one by one rather than hashed.
const FEW: usize = 8;

/// Why a text cannot be read as a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadValue {
    /// The text is not JSON.
    #[error("value is not JSON: {problem}; send a JSON value")]
    NotJson {
        /// The parser's message.
        problem: String,
    },
    /// The text has more values than the limit allows.
    #[error(
        "the parameters of the query hold more than {limit} values, counting each element and property. \
         Send fewer, or run several queries with a part of them each"
    )]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
}

impl Value<'static> {
    /// Reads a JSON text, nested at most as deep as JSON readers commonly allow (128).
    pub fn from_json(text: &[u8]) -> Result<Value<'static>, BadValue> {
        serde_json::from_slice(text)
            .map_err(|error| BadValue::NotJson { problem: error.to_string() })
    }
}

/// Reads the parameters of one query, which share a limit on the number of their values.
///
/// A value takes many times the memory of its text, and the meter of a run starts only after the parameters.
#[derive(Debug)]
pub struct ParameterReader {
    limit: usize,
    left: usize,
}

impl ParameterReader {
    /// Creates a reader with the limits of a query.
    #[must_use]
    pub fn new(limits: &Limits) -> ParameterReader {
        ParameterReader { limit: limits.parameter_values, left: limits.parameter_values }
    }

    /// Reads a JSON text as [`Value::from_json`] does. Reading ends at the first value beyond the limit.
    ///
    /// # Errors
    /// When it is not JSON, or all texts together have too many values.
    pub fn read(&mut self, text: &[u8]) -> Result<Value<'static>, BadValue> {
        let mut is_beyond = false;
        let mut json = serde_json::Deserializer::from_slice(text);
        let counter = Counter { left: &mut self.left, is_beyond: &mut is_beyond };
        let read = counter.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
        read.map_err(|error| match is_beyond {
            true => BadValue::TooManyValues { limit: self.limit },
            false => BadValue::NotJson { problem: error.to_string() },
        })
    }
}

impl Default for ParameterReader {
    fn default() -> ParameterReader {
        ParameterReader::new(&Limits::default())
    }
}

/// Counts values while they are read.
struct Counter<'c> {
    left: &'c mut usize,
    is_beyond: &'c mut bool,
}

impl Counter<'_> {
    fn again(&mut self) -> Counter<'_> {
        Counter { left: self.left, is_beyond: self.is_beyond }
    }
}

impl<'de> DeserializeSeed<'de> for Counter<'_> {
    type Value = Value<'static>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Value<'static>, D::Error> {
        match self.left.checked_sub(1) {
            Some(left) => *self.left = left,
            None => {
                *self.is_beyond = true;
                return Err(D::Error::custom("too many values"));
            }
        }
        deserializer.deserialize_any(self)
    }
}

impl<'a> Value<'a> {
    /// Creates an object. Undefined properties are left out; of a repeated name the last value counts, at
    /// the first place.
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

    /// Creates an object of members with distinct names. Undefined properties are left out.
    pub(crate) fn object_of_unique(mut members: Vec<Member<'a>>) -> Value<'a> {
        members.retain(|(_, value)| !value.is_undefined());
        Value::Object(members.into())
    }
}

impl<'de> Deserialize<'de> for Value<'static> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Value<'static>, D::Error> {
        let (mut left, mut is_beyond) = (usize::MAX, false);
        Counter { left: &mut left, is_beyond: &mut is_beyond }.deserialize(deserializer)
    }
}

impl<'de> Visitor<'de> for Counter<'_> {
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

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value<'static>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed(self.again())? {
            elements.push(element);
        }
        Ok(Value::Array(elements.into()))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value<'static>, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            members.push((Cow::Owned(name), map.next_value_seed(self.again())?));
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
    fn the_parameters_of_a_query_share_a_limit_on_their_values() {
        let limits = Limits { parameter_values: 10, ..Limits::default() };
        let mut reader = ParameterReader::new(&limits);
        assert_eq!(
            reader.read(br#"{"a":[1,2,{"b":3}]}"#).unwrap().to_string(),
            r#"{"a":[1,2,{"b":3}]}"#
        );
        assert!(reader.read(b"[1,2").is_err_and(|error| error.to_string().contains("not JSON")));
        let refused = reader.read(b"[1,2]").map(|value| value.to_string());
        assert_eq!(refused, Err(BadValue::TooManyValues { limit: 10 }));
        let many = format!("[{}1]", "1,".repeat(100_000));
        let refused = ParameterReader::default().read(many.as_bytes());
        assert!(refused.is_err_and(|error| error.to_string().contains("more than 100000 values")));
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        for text in ["", "{", "[1,]", "nul", "1 2", &"[".repeat(1000)] {
            assert!(Value::from_json(text.as_bytes()).is_err(), "{text}");
        }
    }
}
