//! The ids that users give to databases, containers and items, and their rules.
//!
//! Databases and containers: at most 255 characters, no `/`, `\`, `?`, `#` or control character, and no
//! space at the end, so that an id can stand in a URL and in a header of every SDK.
//!
//! Items: at most 1023 bytes and no NUL. Azure accepts everything else, and programs rely on it: their ids
//! contain paths, question marks and line breaks. In a URL these are escaped.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use crate::text::serde_as_text;

/// Why a text cannot be an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// No characters.
    #[error("id is empty; give it at least one character")]
    Empty,
    /// Longer than the limit for this resource.
    #[error(
        "id has {length} {unit}; give it fewer. Ensure to provide a unique non-empty string less than \
         '{}' characters. Use at most {limit}",
        service_limit(.limit)
    )]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
        /// The unit of both: `characters` or `bytes`.
        unit: &'static str,
    },
    /// A character with a meaning in URLs.
    #[error("id contains {character:?}; remove every / \\ ? and #")]
    ForbiddenCharacter {
        /// The first of them.
        character: char,
    },
    /// A control character; HTTP headers cannot carry it.
    #[error("id contains the control character {character:?}; remove it")]
    ControlCharacter {
        /// The first of them.
        character: char,
    },
    /// A trailing space, which SDKs and proxies cut off.
    #[error("id ends in a space; remove it")]
    TrailingSpace,
}

/// The limit as Azure's error message states it, because clients match that text.
fn service_limit(limit: &usize) -> usize {
    if *limit == ITEM_BYTES_MAX { ITEM_BYTES_MAX + 1 } else { *limit }
}

/// The most characters in the id of a database or container.
const CHARACTERS_MAX: usize = 255;
/// The most bytes in the id of an item.
const ITEM_BYTES_MAX: usize = 1023;

/// The set of rules: for databases and containers (`Definition`), or for items.
enum Rule {
    Definition,
    Item,
}

fn check(id: &str, rule: &Rule) -> Result<(), IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    let (length, limit, unit) = match rule {
        // Bytes first: a short id needs no counting of characters.
        Rule::Definition if id.len() <= CHARACTERS_MAX => (id.len(), CHARACTERS_MAX, "characters"),
        Rule::Definition => (id.chars().count(), CHARACTERS_MAX, "characters"),
        Rule::Item => (id.len(), ITEM_BYTES_MAX, "bytes"),
    };
    if length > limit {
        return Err(IdError::TooLong { length, limit, unit });
    }
    let is_item = matches!(rule, Rule::Item);
    for character in id.chars() {
        match character {
            '\0' => return Err(IdError::ControlCharacter { character }),
            _ if is_item => {}
            '/' | '\\' | '#' | '?' => return Err(IdError::ForbiddenCharacter { character }),
            _ if character.is_control() => return Err(IdError::ControlCharacter { character }),
            _ => {}
        }
    }
    if !is_item && id.ends_with(' ') {
        return Err(IdError::TrailingSpace);
    }
    Ok(())
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident, $rule:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The id with this text. Fails if the text breaks a rule.
            pub fn new(id: &str) -> Result<$name, IdError> {
                check(id, &$rule)?;
                Ok($name(id.to_owned()))
            }

            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// The text of the id, without a copy.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(id: &str) -> Result<$name, IdError> {
                $name::new(id)
            }
        }

        serde_as_text!($name);
    };
}

id_type!(
    /// The id of a database.
    DatabaseId,
    Rule::Definition
);

id_type!(
    /// The id of a container, unique in its database.
    ContainerId,
    Rule::Definition
);

id_type!(
    /// The id of an item, unique among the items with the same partition key.
    ItemId,
    Rule::Item
);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[track_caller]
    fn check_all(id: &str, expected: Result<(), IdError>) {
        assert_eq!(DatabaseId::new(id).map(drop), expected, "{id:?}");
        assert_eq!(ContainerId::new(id).map(drop), expected, "{id:?}");
        assert_eq!(ItemId::new(id).map(drop), expected, "{id:?}");
    }

    #[test]
    fn common_rules() {
        for id in ["a", "1", " a", "a b", "%", "+&=", "é日😀", ".", "..", "\u{a0}"] {
            check_all(id, Ok(()));
        }
        check_all("", Err(IdError::Empty));
        check_all("a\0b", Err(IdError::ControlCharacter { character: '\0' }));
    }

    #[test]
    fn items_may_be_called_what_definitions_may_not() {
        let refused = |id: &str, expected: IdError| {
            assert_eq!(DatabaseId::new(id).map(drop), Err(expected.clone()), "{id:?}");
            assert_eq!(ContainerId::new(id).map(drop), Err(expected), "{id:?}");
            assert!(ItemId::new(id).is_ok(), "{id:?}");
        };
        for character in ['/', '\\', '#', '?'] {
            refused(&format!("a{character}b"), IdError::ForbiddenCharacter { character });
            refused(&character.to_string(), IdError::ForbiddenCharacter { character });
        }
        for character in ['\t', '\r', '\n', '\u{7f}', '\u{85}'] {
            refused(&format!("a{character}"), IdError::ControlCharacter { character });
        }
        refused("a ", IdError::TrailingSpace);
        refused(" ", IdError::TrailingSpace);
    }

    #[test]
    fn lengths() {
        let too_long = |length, limit, unit| Err(IdError::TooLong { length, limit, unit });
        for letter in ["a", "é", "😀"] {
            assert!(DatabaseId::new(&letter.repeat(255)).is_ok());
            let refused = too_long(256, 255, "characters");
            assert_eq!(DatabaseId::new(&letter.repeat(256)).map(drop), refused);
            assert_eq!(ContainerId::new(&letter.repeat(256)).map(drop), refused);
        }
        assert!(ItemId::new(&"a".repeat(1023)).is_ok());
        assert_eq!(ItemId::new(&"a".repeat(1024)).map(drop), too_long(1024, 1023, "bytes"));
        assert_eq!(ItemId::new(&"é".repeat(512)).map(drop), too_long(1024, 1023, "bytes"));
    }

    #[test]
    fn ids_stand_for_their_text() {
        let ids = BTreeSet::from([ItemId::new("b").unwrap(), ItemId::new("a").unwrap()]);
        assert!(ids.contains("a"));
        assert_eq!(ids.iter().map(|id| id.as_str()).collect::<String>(), "ab");
        assert_eq!(format!("{:<3}|", ItemId::new("a").unwrap()), "a  |");
        assert_eq!(ItemId::new("abc").unwrap().len(), 3);
    }

    #[test]
    fn json_is_checked_too() {
        let id = ItemId::new("é\"").unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), r#""é\"""#);
        assert_eq!(serde_json::from_str::<ItemId>(r#""\u00e9\"""#).unwrap(), id);
        let error = serde_json::from_str::<ContainerId>(r#""a/b""#).unwrap_err();
        assert!(error.to_string().contains("remove every /"), "{error}");
    }
}
