//! Serialises types with a text form (`Display` and `FromStr`) as that text in JSON.
//!
//! A macro and not a blanket implementation, because `Serialize` is foreign. It never changes the text:
//! deserialising rejects what `FromStr` rejects, with the same message.

/// Serialises as the `Display` text and deserialises through `FromStr`.
macro_rules! serde_as_text {
    ($($name:ty),+ $(,)?) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

pub(crate) use serde_as_text;
