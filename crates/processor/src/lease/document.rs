//! A JSON object that preserves the order and the bytes of its properties.
//!
//! Several libraries write leases, and each has properties the others lack. Rewriting a lease through a typed
//! struct would drop the unknown ones; here only the properties that are set change.

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// Largest document that is parsed. Leases have about a kilobyte.
pub(crate) const BYTES_MAX: usize = 2 << 20;

/// A JSON object, stored as raw properties.
#[derive(Clone, Debug, Default)]
pub struct Document(Vec<(String, Box<RawValue>)>);

/// The error for bytes that are not a lease document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a lease document ({0}); inspect it with `headwater leases`, repair or delete it")]
pub struct BadDocument(pub(crate) String);

impl Document {
    /// Parses an object.
    ///
    /// # Errors
    /// Fails if the bytes are not a JSON object or exceed 2 MiB.
    pub fn parse(bytes: &[u8]) -> Result<Document, BadDocument> {
        if bytes.len() > BYTES_MAX {
            return Err(BadDocument(format!("{} bytes", bytes.len())));
        }
        serde_json::from_slice(bytes).map_err(|error| BadDocument(error.to_string()))
    }

    /// Serializes the object as JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Serializing can only fail for keys that are not strings or for a failing writer; neither occurs here.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the raw value of a property.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.get())
    }

    /// Whether the property exists, also if it is null.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// Deserializes a property. `None` if it is missing, null or of another type.
    #[must_use]
    pub fn get<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        serde_json::from_str::<Option<T>>(self.raw(name)?).ok().flatten()
    }

    /// Sets a property in place, or appends it.
    pub fn set(&mut self, name: &str, value: &impl Serialize) {
        let Ok(raw) = serde_json::value::to_raw_value(value) else {
            return;
        };
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = raw,
            None => self.0.push((name.to_owned(), raw)),
        }
    }

    /// Removes a property.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The names of all properties, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Document, D::Error> {
        struct Properties;

        impl<'de> Visitor<'de> for Properties {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut properties: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    // The last duplicate counts, as in every JSON library of .NET and Java hosts.
                    match properties.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known = value,
                        None => properties.push((name, value)),
                    }
                }
                Ok(Document(properties))
            }
        }

        deserializer.deserialize_map(Properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_properties_keep_their_bytes_and_order() {
        let text = r#"{"id":"a","n":1.50,"x":{"b":1, "a":2},"Owner":null}"#;
        let mut document = Document::parse(text.as_bytes()).unwrap();
        assert_eq!(document.to_bytes(), text.as_bytes());
        document.set("Owner", &"me");
        document.set("new", &7);
        document.remove("id");
        let expected = r#"{"n":1.50,"x":{"b":1, "a":2},"Owner":"me","new":7}"#;
        assert_eq!(document.to_bytes(), expected.as_bytes());
        assert_eq!(document.get::<String>("Owner").as_deref(), Some("me"));
        assert_eq!(document.get::<String>("n"), None);
    }

    #[test]
    fn values_other_than_objects_are_refused() {
        for text in ["", "[]", "1", "{", "null", "{\"a\":}"] {
            assert!(Document::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Document::parse(&vec![b' '; BYTES_MAX + 1]).is_err());
    }
}
