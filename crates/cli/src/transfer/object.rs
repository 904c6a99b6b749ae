//! An item as a list of names with the text of their values.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Properties that the server adds to every item.
const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// A JSON object whose values stay unparsed text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    /// In the order of the text.
    pub(crate) properties: Vec<(String, String)>,
}

impl Object {
    /// Parses an object.
    pub(crate) fn parse(json: &[u8]) -> serde_json::Result<Object> {
        serde_json::from_slice(json)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        // The last of several properties with one name counts, as in most JSON parsers.
        let found = self.properties.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the value at a path of names.
    pub(crate) fn at(&self, path: &[String]) -> Option<String> {
        let (first, rest) = path.split_first()?;
        let mut value = self.get(first)?.to_owned();
        for name in rest {
            value = Object::parse(value.as_bytes()).ok()?.get(name)?.to_owned();
        }
        Some(value)
    }

    /// Returns the object without the properties that the server adds.
    pub(crate) fn without_system(mut self) -> Object {
        self.properties.retain(|(name, _)| !SYSTEM.contains(&name.as_str()));
        self
    }

    pub(crate) fn to_json(&self) -> String {
        let mut json = String::from("{");
        for (index, (name, value)) in self.properties.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push_str(&quoted(name));
            json.push(':');
            json.push_str(value);
        }
        json.push('}');
        json
    }
}

/// Returns a text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Properties;

        impl<'de> Visitor<'de> for Properties {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut properties = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    let value = map.next_value::<Box<RawValue>>()?;
                    properties.push((name, value.get().to_owned()));
                }
                Ok(Object { properties })
            }
        }

        deserializer.deserialize_map(Properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text() {
        let json =
            r#"{"id":"1","n":1.50,"big":123456789012345678901,"a":{"b":[1, 2e3]},"é\"":null}"#;
        let object = Object::parse(json.as_bytes()).unwrap();
        assert_eq!(object.to_json(), json);
        assert_eq!(object.at(&["a".to_owned(), "b".to_owned()]).as_deref(), Some("[1, 2e3]"));
        assert_eq!(object.at(&["n".to_owned(), "b".to_owned()]), None);
        let stored = Object::parse(br#"{"id":"1","_ts":1,"_x":2,"_etag":"e"}"#).unwrap();
        assert_eq!(stored.without_system().to_json(), r#"{"id":"1","_x":2}"#);
    }
}
