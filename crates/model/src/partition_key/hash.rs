//! Hashes partition key values to an effective partition key.
//!
//! Both versions concatenate the encoded values and hash the bytes:
//!
//! ```text
//! undefined 00   null 01   false 02   true 03
//! number    05 and the double little-endian
//! string    08, UTF-8, and an end: FF in version 2, 00 in version 1
//! ```
//!
//! Version 2 is the 128-bit hash, reversed, with its two top bits cleared, so that no key reaches the end of the
//! space. A hierarchical key hashes each value separately and concatenates the results, so a prefix of the
//! values gives a prefix of the key.
//!
//! Version 1 is a 32-bit hash, with strings cut to 100 UTF-16 units, in an order-preserving encoding. The values
//! themselves follow it. SDKs disagree about version 1 (see `tests/vectors/epk_hash_v1.json`), so a version 1
//! key computed by a client is never used to place or find an item.
//!
//! Limits on the values are checked by the definition, not here.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{PartitionKeyKind, PartitionKeyValue, PartitionKeyVersion};
use crate::{Epk, murmur3};

/// Type bytes of numbers and strings, in hashed bytes and in version 1 keys.
const NUMBER: u8 = 0x05;
const STRING: u8 = 0x08;

/// Version 1 hashes this much of a string, in UTF-16 code units.
const V1_STRING_UNITS: usize = 100;

/// Version 1 appends strings of up to this many bytes whole; of a longer one, one byte more.
const V1_STRING_BYTES: usize = 100;

/// Buffer for the bytes to hash; nearly every key fits without an allocation.
type Scratch = SmallVec<[u8; 128]>;

/// Computes the effective partition key of these values.
///
/// Prefer [`PartitionKeyDefinition::epk`](crate::PartitionKeyDefinition::epk), which also checks
/// that the values fit the container. Hierarchical keys are always version 2.
pub fn effective_partition_key(
    kind: PartitionKeyKind,
    version: PartitionKeyVersion,
    values: &[PartitionKeyValue],
) -> Epk {
    if values.is_empty() {
        return Epk::min();
    }
    match (kind, version) {
        (PartitionKeyKind::MultiHash, _) => {
            let mut key = Epk::with_capacity(16 * values.len());
            for value in values {
                key.extend(&hash_v2(std::slice::from_ref(value)));
            }
            key
        }
        (PartitionKeyKind::Hash | PartitionKeyKind::Range, PartitionKeyVersion::V2) => {
            Epk::from(hash_v2(values))
        }
        (PartitionKeyKind::Hash | PartitionKeyKind::Range, PartitionKeyVersion::V1) => {
            key_v1(values)
        }
    }
}

fn hash_v2(values: &[PartitionKeyValue]) -> [u8; 16] {
    let mut bytes = Scratch::new();
    for value in values {
        match value {
            PartitionKeyValue::Number(number) => put_number(*number, &mut bytes),
            PartitionKeyValue::String(text) => put_string(text, 0xFF, &mut bytes),
            other => bytes.push(type_byte(other)),
        }
    }
    let (h1, h2) = murmur3::x64_128(&bytes, 0);
    // Reversing the two little-endian halves gives: second half big-endian, then first half big-endian.
    let mut hash = [0; 16];
    hash[..8].copy_from_slice(&h2.to_be_bytes());
    hash[8..].copy_from_slice(&h1.to_be_bytes());
    hash[0] &= 0x3F;
    hash
}

fn key_v1(values: &[PartitionKeyValue]) -> Epk {
    let mut hashed = Scratch::new();
    let mut appended = Scratch::new();
    for value in values {
        match value {
            PartitionKeyValue::Number(number) => {
                put_number(*number, &mut hashed);
                put_sortable_number(*number, &mut appended);
            }
            PartitionKeyValue::String(text) => {
                let text = cut_to_utf16_units(text, V1_STRING_UNITS);
                put_string(&text, 0x00, &mut hashed);
                put_shifted_string(text.as_bytes(), &mut appended);
            }
            other => {
                hashed.push(type_byte(other));
                appended.push(type_byte(other));
            }
        }
    }
    let mut key = boundary_v1(murmur3::x86_32(&hashed, 0));
    key.extend(&appended);
    key
}

/// The common prefix of all version 1 keys with this hash, and so their lower bound.
pub(super) fn boundary_v1(hash: u32) -> Epk {
    let mut bytes = Scratch::new();
    put_sortable_number(f64::from(hash), &mut bytes);
    Epk::from_bytes(&bytes)
}

fn type_byte(value: &PartitionKeyValue) -> u8 {
    match value {
        PartitionKeyValue::Undefined => 0x00,
        PartitionKeyValue::Null => 0x01,
        PartitionKeyValue::Bool(false) => 0x02,
        PartitionKeyValue::Bool(true) => 0x03,
        PartitionKeyValue::Number(_) => NUMBER,
        PartitionKeyValue::String(_) => STRING,
    }
}

fn put_number(number: f64, out: &mut Scratch) {
    out.push(NUMBER);
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_string(text: &str, end: u8, out: &mut Scratch) {
    out.push(STRING);
    out.extend_from_slice(text.as_bytes());
    out.push(end);
}

/// Appends a double in an order-preserving encoding: its first eight bits, then seven bits per byte.
///
/// The lowest bit of each later byte is set if more follow. At least one byte follows the first.
fn put_sortable_number(number: f64, out: &mut Scratch) {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    let mut rest = if bits & SIGN == 0 { bits ^ SIGN } else { bits.wrapping_neg() };
    out.push(NUMBER);
    out.push((rest >> 56) as u8);
    rest <<= 8;
    loop {
        let seven = (rest >> 56) as u8 & 0xFE;
        rest <<= 7;
        if rest == 0 {
            out.push(seven);
            return;
        }
        out.push(seven | 0x01);
    }
}

/// Appends a string with each byte incremented, which frees `00` as the end of short strings.
///
/// A longer string keeps one byte more than the limit and has no end.
fn put_shifted_string(bytes: &[u8], out: &mut Scratch) {
    let short = bytes.len() <= V1_STRING_BYTES;
    let kept = if short { bytes } else { &bytes[..=V1_STRING_BYTES] };
    out.push(STRING);
    out.extend(kept.iter().map(|byte| byte.saturating_add(1)));
    if short {
        out.push(0x00);
    }
}

/// The first `limit` UTF-16 code units. Half a surrogate pair at the cut becomes U+FFFD, as when .NET encodes
/// the cut string.
fn cut_to_utf16_units(text: &str, limit: usize) -> Cow<'_, str> {
    if text.len() <= limit {
        return Cow::Borrowed(text); // a byte of UTF-8 is at most one unit
    }
    let mut units = 0;
    for (position, character) in text.char_indices() {
        if units == limit {
            return Cow::Borrowed(&text[..position]);
        }
        units += character.len_utf16();
        if units > limit {
            return Cow::Owned(format!("{}{}", &text[..position], char::REPLACEMENT_CHARACTER));
        }
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers what the vectors in `tests/` cannot reach.
    #[test]
    fn cuts() {
        let a = |count: usize| "a".repeat(count);
        for (text, expected) in [
            (a(100), a(100)),
            (a(101), a(100)),
            ("é".repeat(100), "é".repeat(100)),
            ("é".repeat(101), "é".repeat(100)),
            ("😀".repeat(50), "😀".repeat(50)),
            ("😀".repeat(51), "😀".repeat(50)),
            (a(99) + "😀", a(99) + "\u{FFFD}"),
            (a(99) + "😀b", a(99) + "\u{FFFD}"),
            (a(98) + "😀b", a(98) + "😀"),
        ] {
            assert_eq!(cut_to_utf16_units(&text, 100), expected, "{text}");
        }
    }

    #[test]
    fn sortable_numbers_sort() {
        let numbers = [f64::MIN, -2.5, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.5, 2.0, 4e9, f64::MAX];
        let encoded = numbers.map(|number| {
            let mut bytes = Scratch::new();
            put_sortable_number(number, &mut bytes);
            bytes
        });
        assert!(encoded.is_sorted_by(|one, other| one < other));
    }

    /// The bound `05C1CFFFFFFFF8` of a version 1 container, from the change feed article of 2016.
    #[test]
    fn boundaries_of_version_1() {
        assert_eq!(boundary_v1((1 << 30) - 1).to_hex(), "05C1CFFFFFFFF8");
        assert_eq!(boundary_v1(0).to_hex(), "058000");
    }

    #[test]
    fn no_values_are_the_lowest_key() {
        for kind in [PartitionKeyKind::Hash, PartitionKeyKind::MultiHash, PartitionKeyKind::Range] {
            for version in [PartitionKeyVersion::V1, PartitionKeyVersion::V2] {
                assert_eq!(effective_partition_key(kind, version, &[]), Epk::min());
            }
        }
    }
}
