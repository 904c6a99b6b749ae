//! Account keys: they sign and verify requests, and are never printed.
//!
//! A key is expanded into its HMAC state once, when it is parsed. A signature then costs only the
//! hashing of the message, which matters because every request carries one.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// The key of every emulator. It is public: use it only for tests on one machine.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The longest base64 key accepted, in characters; the service's keys have 88.
const TEXT_BYTES_MAX: usize = 1024;

/// The bytes of an HMAC-SHA256 signature.
pub(super) type Signature = [u8; 32];

/// One account key, expanded for signing.
#[derive(Clone)]
pub struct Key {
    /// The base64 text, as users know it. Identity tokens of the emulator carry this text.
    text: String,
    bytes: usize,
    state: Hmac<Sha256>,
}

/// Why a text is not an account key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// The text is not base64.
    #[error("account key is not base64; copy it whole, including the = at its end")]
    Form,
    /// The key has no bytes.
    #[error("account key is empty; give one of at least one byte")]
    Empty,
    /// The text is longer than any valid key.
    #[error("account key is longer than {TEXT_BYTES_MAX} characters; give a shorter one")]
    TooLong,
}

impl Key {
    /// Parses a key as it appears in connection strings.
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

    /// The length of the decoded key, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this is the emulator's key. Base64 decoding is strict, so a key has exactly one text.
    #[must_use]
    pub fn is_well_known(&self) -> bool {
        self.is(EMULATOR_KEY.as_bytes()).into()
    }

    /// Signs the bytes that `write` feeds into the HMAC.
    pub(super) fn signature(&self, write: impl FnOnce(&mut Hmac<Sha256>)) -> Signature {
        let mut mac = self.state.clone();
        write(&mut mac);
        mac.finalize().into_bytes().into()
    }

    /// Compares a text with the key in constant time.
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

/// Compares in constant time.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.is(other.text.as_bytes()).into()
    }
}

impl Eq for Key {}

/// The keys of an account. There are two of each kind, so that one can be rotated while the other is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Allows reads and writes.
    pub primary: Key,
    /// Allows reads and writes.
    pub secondary: Option<Key>,
    /// Allows reads only.
    pub primary_read_only: Option<Key>,
    /// Allows reads only.
    pub secondary_read_only: Option<Key>,
}

impl Keys {
    /// Creates the keys of an account that has only a primary key.
    #[must_use]
    pub fn new(primary: Key) -> Keys {
        Keys { primary, secondary: None, primary_read_only: None, secondary_read_only: None }
    }

    /// Iterates over the configured keys with their display names.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Key)> {
        let names = ["primary key", "secondary key", "read-only key", "secondary read-only key"];
        let optional = [&self.secondary, &self.primary_read_only, &self.secondary_read_only];
        let keys = std::iter::once(Some(&self.primary)).chain(optional.map(Option::as_ref));
        names.into_iter().zip(keys).filter_map(|(name, key)| Some((name, key?)))
    }

    /// Iterates over the configured keys with the access they grant, the most used first.
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
    fn a_key_reports_its_length_and_whether_it_is_public() {
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
