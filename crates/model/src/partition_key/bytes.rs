//! Order-preserving encoding of a partition key inside an index key.
//!
//! ```text
//! undefined   01
//! null        02
//! false       03
//! true        04
//! number      06  8 bytes big-endian; sign bit flipped if positive, all bits flipped if negative
//! string      09  UTF-8 with 00 written as 00 FF, then 00 01
//! end of key  00
//! ```
//!
//! The tags are those of the hash plus one, which leaves `00` for the end. So the bytes:
//!
//! * are self-delimiting: more index key may follow them;
//! * are different for different keys;
//! * sort like the keys themselves, a hierarchical prefix directly before all keys under it;
//! * without their end are the common prefix of all keys under them, for prefix scans.
//!
//! They are stored on disk: a change here is a change of the disk format.

use super::{COMPONENTS_MAX, PartitionKey, PartitionKeyValue};

const END: u8 = 0x00;
const UNDEFINED: u8 = 0x01;
const NULL: u8 = 0x02;
const FALSE: u8 = 0x03;
const TRUE: u8 = 0x04;
const NUMBER: u8 = 0x06;
const STRING: u8 = 0x09;

const STRING_END: u8 = 0x01;
const ESCAPED_ZERO: u8 = 0xFF;

const SIGN: u64 = 1 << 63;

/// Why bytes are not an encoded partition key: the index row that held them is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPartitionKeyBytes {
    /// They stop in the middle of a key.
    #[error("partition key bytes end early; the index row is damaged, rebuild it from the log")]
    Truncated,
    /// A tag or an escape that is never written.
    #[error(
        "partition key bytes have {byte:#04x} at {position}; the index row is damaged, \
         rebuild it from the log"
    )]
    Unexpected {
        /// The byte found.
        byte: u8,
        /// Its position in the bytes.
        position: usize,
    },
    /// A string that is not UTF-8.
    #[error(
        "partition key bytes hold a string that is not UTF-8; the index row is damaged, \
         rebuild it from the log"
    )]
    NotUtf8,
    /// More components than a key can have.
    #[error(
        "partition key bytes hold more than {COMPONENTS_MAX} components; the index row is damaged, \
         rebuild it from the log"
    )]
    TooManyComponents,
    /// Something follows the end of the key.
    #[error(
        "partition key bytes go on for {excess} bytes after their end; \
         use `decode_prefix` if more is meant to follow"
    )]
    TrailingBytes {
        /// How many bytes are left over.
        excess: usize,
    },
}

impl PartitionKey {
    /// Appends the encoded key.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        self.encode_prefix_into(out);
        out.push(END);
    }

    /// Appends the encoded key without its end: the common prefix of all keys that start with these components.
    pub fn encode_prefix_into(&self, out: &mut Vec<u8>) {
        for value in self.components() {
            match value {
                PartitionKeyValue::Undefined => out.push(UNDEFINED),
                PartitionKeyValue::Null => out.push(NULL),
                PartitionKeyValue::Bool(false) => out.push(FALSE),
                PartitionKeyValue::Bool(true) => out.push(TRUE),
                PartitionKeyValue::Number(value) => {
                    out.push(NUMBER);
                    out.extend_from_slice(&sortable(value.to_bits()).to_be_bytes());
                }
                PartitionKeyValue::String(value) => {
                    out.push(STRING);
                    escape_into(value.as_bytes(), out);
                }
            }
        }
    }

    /// Decodes a key that fills `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<PartitionKey, BadPartitionKeyBytes> {
        let (key, length) = PartitionKey::decode_prefix(bytes)?;
        match bytes.len() - length {
            0 => Ok(key),
            excess => Err(BadPartitionKeyBytes::TrailingBytes { excess }),
        }
    }

    /// Decodes the key at the start of `bytes`, and returns it with its length in bytes.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(PartitionKey, usize), BadPartitionKeyBytes> {
        let mut key = PartitionKey::empty();
        let mut reader = Reader { bytes, position: 0 };
        loop {
            let tag = reader.byte()?;
            let value = match tag {
                END => return Ok((key, reader.position)),
                UNDEFINED => PartitionKeyValue::Undefined,
                NULL => PartitionKeyValue::Null,
                FALSE => PartitionKeyValue::Bool(false),
                TRUE => PartitionKeyValue::Bool(true),
                NUMBER => PartitionKeyValue::Number(reader.number()?),
                STRING => PartitionKeyValue::String(reader.string()?),
                _ => return Err(reader.unexpected(tag)),
            };
            if key.components().len() == COMPONENTS_MAX {
                return Err(BadPartitionKeyBytes::TooManyComponents);
            }
            key.push(value);
        }
    }
}

/// Maps the bits of a double to an unsigned number with the same order.
fn sortable(bits: u64) -> u64 {
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

fn unsortable(sortable: u64) -> u64 {
    if sortable & SIGN == 0 { !sortable } else { sortable ^ SIGN }
}

fn escape_into(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(zero) = bytes.iter().position(|&byte| byte == 0) {
        out.extend_from_slice(&bytes[..zero]);
        out.extend_from_slice(&[0, ESCAPED_ZERO]);
        bytes = &bytes[zero + 1..];
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0, STRING_END]);
}

struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, BadPartitionKeyBytes> {
        let byte = *self.bytes.get(self.position).ok_or(BadPartitionKeyBytes::Truncated)?;
        self.position += 1;
        Ok(byte)
    }

    /// The error for the byte just read, which the encoder never writes.
    fn unexpected(&self, byte: u8) -> BadPartitionKeyBytes {
        BadPartitionKeyBytes::Unexpected { byte, position: self.position - 1 }
    }

    fn number(&mut self) -> Result<f64, BadPartitionKeyBytes> {
        let rest = self.bytes[self.position..].first_chunk();
        let bytes = rest.ok_or(BadPartitionKeyBytes::Truncated)?;
        self.position += bytes.len();
        Ok(f64::from_bits(unsortable(u64::from_be_bytes(*bytes))))
    }

    fn string(&mut self) -> Result<String, BadPartitionKeyBytes> {
        let mut text = Vec::new();
        loop {
            let rest = &self.bytes[self.position..];
            let zero = rest.iter().position(|&byte| byte == 0);
            let zero = zero.ok_or(BadPartitionKeyBytes::Truncated)?;
            text.extend_from_slice(&rest[..zero]);
            self.position += zero + 1;
            match self.byte()? {
                STRING_END => break,
                ESCAPED_ZERO => text.push(0),
                byte => return Err(self.unexpected(byte)),
            }
        }
        String::from_utf8(text).map_err(|_| BadPartitionKeyBytes::NotUtf8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(key: impl Into<PartitionKey>) -> Vec<u8> {
        let mut bytes = Vec::new();
        key.into().encode_into(&mut bytes);
        bytes
    }

    /// These bytes are on disk; this table changes only together with the format number.
    #[test]
    fn the_bytes_on_disk() {
        assert_eq!(encoded(PartitionKey::empty()), [0]);
        assert_eq!(encoded(PartitionKeyValue::Undefined), [1, 0]);
        assert_eq!(encoded(()), [2, 0]);
        assert_eq!(encoded(false), [3, 0]);
        assert_eq!(encoded(true), [4, 0]);
        assert_eq!(encoded(1), [6, 0xBF, 0xF0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encoded(-1), [6, 0x40, 0x0F, 255, 255, 255, 255, 255, 255, 0]);
        assert_eq!(encoded("a\0b"), [9, b'a', 0, 0xFF, b'b', 0, 1, 0]);
        assert_eq!(encoded(("t", true)), [9, b't', 0, 1, 4, 0]);
    }

    #[test]
    fn bytes_sort_like_keys() {
        let mut keys: Vec<PartitionKey> = vec![
            PartitionKey::empty(),
            PartitionKeyValue::Undefined.into(),
            ().into(),
            false.into(),
            true.into(),
            "".into(),
            "\0".into(),
            "\0\0".into(),
            "\u{1}".into(),
            "a".into(),
            "a\0".into(),
            "a\0b".into(),
            "ab".into(),
            "é".into(),
            ["a", ""].into(),
            ["a", "b"].into(),
            ["a", "b", "c"].into(),
            ["a\0", "b"].into(),
            ["ab", "a"].into(),
        ];
        let numbers = [f64::MIN, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, 2.0, f64::MAX];
        keys.extend(numbers.map(PartitionKey::from));
        keys.sort();
        assert!(keys.is_sorted_by(|one, other| encoded(one.clone()) < encoded(other.clone())));
        for key in keys {
            let mut bytes = encoded(key.clone());
            assert_eq!(PartitionKey::decode(&bytes), Ok(key.clone()));
            let length = bytes.len();
            bytes.extend_from_slice(b"more index key");
            assert_eq!(PartitionKey::decode_prefix(&bytes), Ok((key, length)));
        }
    }

    #[test]
    fn a_prefix_starts_every_key_under_it_and_no_other() {
        let mut prefix = Vec::new();
        PartitionKey::from("t1").encode_prefix_into(&mut prefix);
        assert!(encoded(("t1", "u1")).starts_with(&prefix));
        assert!(encoded("t1").starts_with(&prefix));
        assert!(!encoded(("t10", "u1")).starts_with(&prefix));
        assert!(!encoded(("t1\0", "u1")).starts_with(&prefix));
    }

    #[test]
    fn damage_is_named() {
        use BadPartitionKeyBytes::*;
        let cases: &[(&[u8], BadPartitionKeyBytes)] = &[
            (&[], Truncated),
            (&[2], Truncated),
            (&[6, 1, 2, 3, 4, 5, 6, 7], Truncated),
            (&[9, b'a'], Truncated),
            (&[9, b'a', 0], Truncated),
            (&[9, b'a', 0, 1], Truncated),
            (&[5, 0], Unexpected { byte: 5, position: 0 }),
            (&[2, 0xFF, 0], Unexpected { byte: 0xFF, position: 1 }),
            (&[9, b'a', 0, 2, 0], Unexpected { byte: 2, position: 3 }),
            (&[9, 0xC3, 0, 1, 0], NotUtf8),
            (&[2, 2, 2, 2, 2, 2, 2, 2, 2, 0], TooManyComponents),
            (&[2, 0, 7, 7], TrailingBytes { excess: 2 }),
        ];
        for (bytes, expected) in cases {
            assert_eq!(PartitionKey::decode(bytes).as_ref(), Err(expected), "{bytes:02x?}");
        }
    }
}
