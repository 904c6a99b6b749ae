//! Account keys: what signs, and what is never shown.
//!
//! A key is expanded into its HMAC state once, when it is read. A signature then costs the hashing of
//! the message alone, which matters because every request has one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// The key every emulator uses. Publicly known: good for tests on one machine and nothing else.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Base64 characters of the longest key we take; the service's have 88.
const TEXT_BYTES_MAX: usize = 1024;

/// A signature as bytes.
pub(super) type Signature = [u8; 32];

/// One account key, ready to sign.
#[derive(Clone)]
pub struct Key {
    /// As users know it: base64. Identity tokens of the emulator carry this text.
    text: String,
    bytes: usize,
    state: Hmac<Sha256>,
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// Not base64.
    #[error("account key is not base64; copy it whole, including the = at its end")]
    Form,
    /// No bytes at all.
    #[error("account key is empty; give one of at least one byte")]
    Empty,
    /// Longer than any key.
    #[error("account key is longer than {TEXT_BYTES_MAX} characters; give a shorter one")]
    TooLong,
}

impl Key {
    /// Reads a key as it stands in connection strings.
    ///
    /// # Errors
    /// When the text is not base64, is empty, or is far longer than a key.
    pub fn from_base64(text: &str) -> Result<Key, BadKey> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadKey::TooLong);
        }
        let bytes = STANDARD.decode(text).map_err(|_| BadKey::Form)?;
        if bytes.is_empty() {
            return Err(BadKey::Empty);
        }
        let state = Hmac::new_from_slice(&bytes).map_err(|_| BadKey::Form)?;
        Ok(Key { text: text.to_owned(), bytes: bytes.len(), state })
    }

    /// Length of the key in bytes, without its base64 form.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this is the key of every emulator. Base64 is read strictly, so a key has one text.
    #[must_use]
    pub fn is_well_known(&self) -> bool {
        self.is(EMULATOR_KEY.as_bytes()).into()
    }

    /// Signs what `write` puts in, piece by piece.
    pub(super) fn signature(&self, write: impl FnOnce(&mut Hmac<Sha256>)) -> Signature {
        let mut mac = self.state.clone();
        write(&mut mac);
        mac.finalize().into_bytes().into()
    }

    /// Whether this text is the key, in a time that does not tell how much of it is right.
    pub(super) fn is(&self, text: &[u8]) -> Choice {
        self.text.as_bytes().ct_eq(text)
    }
}

/// Never prints the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// In constant time.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.is(other.text.as_bytes()).into()
    }
}

impl Eq for Key {}

/// The keys of an account. Two of each kind, so that one can be replaced while the other is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// May do everything.
    pub primary: Key,
    /// May do everything.
    pub secondary: Option<Key>,
    /// May only read.
    pub primary_read_only: Option<Key>,
    /// May only read.
    pub secondary_read_only: Option<Key>,
}

impl Keys {
    /// An account with one key.
    #[must_use]
    pub fn new(primary: Key) -> Keys {
        Keys { primary, secondary: None, primary_read_only: None, secondary_read_only: None }
    }

    /// Every key, with the name people use for it.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Key)> {
        let names = ["primary key", "secondary key", "read-only key", "secondary read-only key"];
        let optional = [&self.secondary, &self.primary_read_only, &self.secondary_read_only];
        let keys = std::iter::once(Some(&self.primary)).chain(optional.map(Option::as_ref));
        names.into_iter().zip(keys).filter_map(|(name, key)| Some((name, key?)))
    }

    /// Each key there is with what it permits, the most used first.
    pub(super) fn each(&self) -> impl Iterator<Item = (&Key, super::Access)> {
        let writers = std::iter::once(&self.primary).chain(&self.secondary);
        let readers = self.primary_read_only.iter().chain(&self.secondary_read_only);
        writers
            .map(|key| (key, super::Access::ReadWrite))
            .chain(readers.map(|key| (key, super::Access::ReadOnly)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_never_printed() {
        let keys = Keys::new(Key::from_base64(EMULATOR_KEY).unwrap());
        let text = format!("{keys:?}");
        assert!(text.contains("hidden") && !text.contains("C2y6"), "{text}");
    }

    #[test]
    fn refused_keys() {
        for (text, expected) in [
            ("", BadKey::Empty),
            ("not base64", BadKey::Form),
            ("QUJD=", BadKey::Form),
            (&"A".repeat(1028), BadKey::TooLong),
        ] {
            assert_eq!(Key::from_base64(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn equal_only_to_itself() {
        let key = Key::from_base64(EMULATOR_KEY).unwrap();
        assert_eq!(key, key.clone());
        assert_ne!(key, Key::from_base64("QUJD").unwrap());
    }

    #[test]
    fn a_key_says_how_long_it_is_and_whether_everybody_knows_it() {
        for (text, bytes, is_well_known) in [("QUJD", 3, false), (EMULATOR_KEY, 64, true)] {
            let key = Key::from_base64(text).unwrap();
            assert_eq!((key.bytes(), key.is_well_known()), (bytes, is_well_known), "{text}");
        }
    }

    #[test]
    fn every_key_has_a_name() {
        let key = || Key::from_base64("QUJD").unwrap();
        let mut keys = Keys::new(key());
        keys.primary_read_only = Some(key());
        let names: Vec<&str> = keys.named().map(|(name, _)| name).collect();
        assert_eq!(names, ["primary key", "read-only key"]);
    }
}
