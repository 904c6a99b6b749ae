//! The effective partition key: the bytes a partition key hashes to. It alone decides an item's partition.
//!
//! Keys compare by their bytes, a prefix before anything longer. Comparing their upper-case hex text gives the
//! same order. The space goes from the empty key up to the single byte `FF`, exclusive.
//!
//! Nothing here hashes; that is `partition_key::hash`.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use smallvec::SmallVec;

use crate::hex;
use crate::text::serde_as_text;

/// The longest hex text accepted. The longest key a definition can produce is far shorter.
const HEX_DIGITS_MAX: usize = 1024;

/// An effective partition key.
///
/// Sixteen bytes, the length of a version 2 hash, are held without an allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epk(SmallVec<[u8; 16]>);

impl Epk {
    /// The lowest key: no bytes at all.
    pub fn min() -> Epk {
        Epk(SmallVec::new())
    }

    /// The end of the space: above every key an item can have.
    pub fn max() -> Epk {
        Epk::from_bytes(&[0xFF])
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Epk {
        Epk(SmallVec::from_slice(bytes))
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Upper-case hex, the form every SDK and `pkranges` use.
    pub fn to_hex(&self) -> String {
        self.to_string()
    }

    /// Reads hex digits of either case.
    pub fn from_hex(text: &str) -> Result<Epk, BadEpk> {
        if text.len() > HEX_DIGITS_MAX {
            return Err(BadEpk::TooLong { digits: text.len() });
        }
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = SmallVec::with_capacity(pairs.len());
        for (index, &[high, low]) in pairs.iter().enumerate() {
            match (hex::value(high), hex::value(low)) {
                (Some(high), Some(low)) => bytes.push(high << 4 | low),
                _ => {
                    return Err(BadEpk::NotHex { position: 2 * index });
                }
            }
        }
        match rest {
            [] => Ok(Epk(bytes)),
            [digit] if hex::value(*digit).is_some() => {
                Err(BadEpk::OddLength { digits: text.len() })
            }
            _ => Err(BadEpk::NotHex { position: text.len() - 1 }),
        }
    }

    /// This key with one more byte. With `00` it is the direct successor of this key.
    pub(crate) fn followed_by(&self, byte: u8) -> Epk {
        let mut bytes = SmallVec::with_capacity(self.0.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.push(byte);
        Epk(bytes)
    }

    /// The empty key, with room for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Epk {
        Epk(SmallVec::with_capacity(bytes))
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

impl From<[u8; 16]> for Epk {
    fn from(bytes: [u8; 16]) -> Epk {
        Epk(SmallVec::from_buf(bytes))
    }
}

impl AsRef<[u8]> for Epk {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

// Lets a map keyed by `Epk` be searched with plain bytes; both hash and compare as slices.
impl Borrow<[u8]> for Epk {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whole blocks at a time: a `write!` for each byte is slow.
        let mut block = [0; 32];
        for bytes in self.0.chunks(16) {
            for (index, &byte) in bytes.iter().enumerate() {
                block[2 * index..2 * index + 2].copy_from_slice(&hex::digits(hex::UPPER, byte));
            }
            let digits = &block[..2 * bytes.len()];
            f.write_str(std::str::from_utf8(digits).map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Epk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epk({self})")
    }
}

/// Why a text is not an effective partition key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEpk {
    /// An odd number of digits; a byte has two.
    #[error("effective partition key has {digits} hex digits; send an even number of them")]
    OddLength {
        /// The number of digits.
        digits: usize,
    },
    /// Something other than a hex digit.
    #[error("effective partition key has no hex digit at byte {position}; send only 0-9 and A-F")]
    NotHex {
        /// Where the pair of digits starts, in bytes.
        position: usize,
    },
    /// Longer than any key a partition key definition produces.
    #[error("effective partition key has {digits} hex digits; send at most {HEX_DIGITS_MAX}")]
    TooLong {
        /// The number of digits.
        digits: usize,
    },
}

impl FromStr for Epk {
    type Err = BadEpk;

    fn from_str(text: &str) -> Result<Epk, BadEpk> {
        Epk::from_hex(text)
    }
}

serde_as_text!(Epk);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&[u8], BadEpk>) {
        assert_eq!(Epk::from_hex(text), expected.map(Epk::from_bytes), "{text:?}");
    }

    #[test]
    fn hex_texts() {
        check("", Ok(&[]));
        check("FF", Ok(&[0xFF]));
        check("05c1D7", Ok(&[0x05, 0xC1, 0xD7]));
        check("0", Err(BadEpk::OddLength { digits: 1 }));
        check("FF0", Err(BadEpk::OddLength { digits: 3 }));
        check("FG", Err(BadEpk::NotHex { position: 0 }));
        check("FFé", Err(BadEpk::NotHex { position: 2 }));
        check("00F ", Err(BadEpk::NotHex { position: 2 }));
        check("FF ", Err(BadEpk::NotHex { position: 2 }));
        check(&"0".repeat(1024), Ok(&[0; 512]));
        check(&"0".repeat(1026), Err(BadEpk::TooLong { digits: 1026 }));
    }

    #[test]
    fn a_prefix_sorts_before_anything_longer() {
        let sorted = ["", "00", "0000", "0001", "05C1", "3FFF", "3FFF00", "FF"];
        let keys: Vec<_> = sorted.iter().map(|text| Epk::from_hex(text).unwrap()).collect();
        assert!(keys.is_sorted());
        assert_eq!((keys[0].clone(), keys[7].clone()), (Epk::min(), Epk::max()));
    }

    #[test]
    fn shown_and_stored_as_upper_case_hex() {
        let long = Epk::from_bytes(&[0xAB; 40]);
        assert_eq!(long.to_hex(), "AB".repeat(40));
        assert_eq!(format!("{:?}", Epk::max()), "Epk(FF)");
        assert_eq!(serde_json::to_string(&Epk::max()).unwrap(), "\"FF\"");
        assert_eq!(serde_json::from_str::<Epk>("\"ff\"").unwrap(), Epk::max());
        assert!(serde_json::from_str::<Epk>("\"f\"").is_err());
    }
}
