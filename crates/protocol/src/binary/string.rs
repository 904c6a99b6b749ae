//! Decodes strings: plain, from a table, packed into fewer bits, or a reference to an earlier one.
//!
//! A plain string is borrowed from the body; the others are built. The packed forms hold ASCII only. A
//! reference points to the marker of an earlier string that is not a reference itself, so references
//! never chain.

use super::error::BinaryError;
use super::input::{Input, Width};
use super::marker;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use std::borrow::Cow;

const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

/// Reads the string that follows a marker.
pub(super) fn read<'b>(input: &mut Input<'b>, marker: u8) -> Result<Cow<'b, str>, BinaryError> {
    let width = match marker {
        marker::REFERENCE_1 => Width::One,
        marker::REFERENCE_2 => Width::Two,
        marker::REFERENCE_3 => Width::Three,
        marker::REFERENCE_4 => Width::Four,
        _ => return read_in_place(input, marker),
    };
    let target = input.size(width)?;
    follow(input, target)
}

/// Reads the string that a reference points to.
fn follow<'b>(input: &Input<'b>, target: usize) -> Result<Cow<'b, str>, BinaryError> {
    let at = input.value_at();
    let bad_reference = BinaryError::BadReference { at, target };
    // Offset 0 is the preamble, whose byte is also the marker of an empty string.
    if target == 0 || target >= at {
        return Err(bad_reference);
    }
    let mut target = input.elsewhere(target);
    match target.start()? {
        marker::REFERENCE_1..=marker::REFERENCE_4 => Err(bad_reference),
        marker if marker::STRINGS.contains(&marker) => read_in_place(&mut target, marker),
        _ => Err(bad_reference),
    }
}

fn read_in_place<'b>(input: &mut Input<'b>, marker: u8) -> Result<Cow<'b, str>, BinaryError> {
    match marker {
        marker if marker::SYSTEM_STRING.contains(&marker) => {
            marker::system_string(marker).map(Cow::Borrowed).ok_or(input.bad_marker(marker))
        }
        marker if marker::USER_STRING_1.contains(&marker) => {
            Err(user_string(input, usize::from(marker - marker::USER_STRING_1.start)))
        }
        marker if marker::USER_STRING_2.contains(&marker) => {
            let high = usize::from(marker - marker::USER_STRING_2.start);
            let low = usize::from(input.byte()?);
            Err(user_string(input, marker::USER_STRING_1.len() + high * 256 + low))
        }
        marker if marker::SHORT_STRING.contains(&marker) => {
            utf8(input, usize::from(marker - marker::SHORT_STRING.start))
        }
        marker::STRING_L1 => prefixed(input, Width::One),
        marker::STRING_L2 => prefixed(input, Width::Two),
        marker::STRING_L4 => prefixed(input, Width::Four),
        _ => read_compact(input, marker).map(Cow::Owned),
    }
}

/// Reads the encodings that are shorter than their text.
fn read_compact(input: &mut Input<'_>, marker: u8) -> Result<String, BinaryError> {
    match marker {
        marker::BASE64_L1 => base64(input, Width::One, &STANDARD),
        marker::BASE64_L2 => base64(input, Width::Two, &STANDARD),
        marker::BASE64_URL_L1 => base64(input, Width::One, &URL_SAFE),
        marker::BASE64_URL_L2 => base64(input, Width::Two, &URL_SAFE),
        marker::GUID_LOWER => Ok(guid_string(input.array()?, HEX_LOWER)),
        marker::GUID_UPPER => Ok(guid_string(input.array()?, HEX_UPPER)),
        marker::GUID_QUOTED => Ok(format!("\"{}\"", guid_string(input.array()?, HEX_LOWER))),
        marker::HEX_LOWER => nibbles(input, HEX_LOWER),
        marker::HEX_UPPER => nibbles(input, HEX_UPPER),
        marker::DATE_TIME => nibbles(input, DATE_TIME),
        marker::PACKED_4 => packed_above_base(input, 4),
        marker::PACKED_5 => packed_above_base(input, 5),
        marker::PACKED_6 => packed_above_base(input, 6),
        marker::PACKED_7_L1 => {
            let length = input.size(Width::One)?;
            packed(input, length, 7, 0)
        }
        marker::PACKED_7_L2 => {
            let length = input.size(Width::Two)?;
            packed(input, length, 7, 0)
        }
        other => Err(input.bad_marker(other)),
    }
}

/// Reads raw bytes and returns them as base64, as the SDKs do for bytes in JSON.
pub(super) fn read_bytes(input: &mut Input<'_>, width: Width) -> Result<String, BinaryError> {
    let length = input.size(width)?;
    Ok(STANDARD.encode(input.take(length)?))
}

/// Reads a GUID value (not a GUID string): its first three groups are little-endian.
pub(super) fn read_guid(input: &mut Input<'_>) -> Result<String, BinaryError> {
    let [a, b, c, d, e, f, g, h, tail @ ..] = input.array::<16>()?;
    let [i, j, k, l, m, n, o, p]: [u8; 8] = tail;
    let in_order = [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p];
    // GUID strings store the low half of each byte first, unlike GUID values.
    Ok(guid_string(in_order.map(|byte| byte.rotate_left(4)), HEX_LOWER))
}

fn user_string(input: &Input<'_>, id: usize) -> BinaryError {
    BinaryError::UserString { at: input.value_at(), id }
}

fn prefixed<'b>(input: &mut Input<'b>, width: Width) -> Result<Cow<'b, str>, BinaryError> {
    let length = input.size(width)?;
    utf8(input, length)
}

fn utf8<'b>(input: &mut Input<'b>, length: usize) -> Result<Cow<'b, str>, BinaryError> {
    let bytes = input.take(length)?;
    let string = std::str::from_utf8(bytes);
    string.map(Cow::Borrowed).map_err(|_| BinaryError::NotUtf8 { at: input.value_at() })
}

/// Reads a base64 string. It is stored as decoded bytes: the number of groups of three, then how many
/// characters the last group lacks. A value of at most two means padding with `=`; otherwise it is the
/// complement, and the padding is omitted.
fn base64(
    input: &mut Input<'_>,
    width: Width,
    alphabet: &impl Engine,
) -> Result<String, BinaryError> {
    let groups = input.size(width)?;
    let padding = input.byte()?;
    let left_out = padding > 2;
    let missing = usize::from(if left_out { !padding } else { padding });
    if missing > 2 || (missing > 0 && groups == 0) {
        return Err(input.malformed("a base64 string has at most two characters of padding"));
    }
    let mut string = alphabet.encode(input.take(groups * 3 - missing)?);
    if left_out {
        string.truncate(groups * 4 - missing);
    }
    Ok(string)
}

/// Formats the 36 characters of a GUID string from two digits per byte, low half first.
fn guid_string(bytes: [u8; 16], digits: &[u8; 16]) -> String {
    let mut string = String::with_capacity(36);
    for (place, byte) in bytes.into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            string.push('-');
        }
        let [low, high] = halves(byte, digits);
        string.push(low);
        string.push(high);
    }
    string
}

/// Reads a string over sixteen characters, packed two per byte, low half first.
fn nibbles(input: &mut Input<'_>, alphabet: &[u8; 16]) -> Result<String, BinaryError> {
    let length = input.size(Width::One)?;
    let bytes = input.take(length.div_ceil(2))?;
    let unused = bytes.last().is_some_and(|last| length % 2 == 1 && last >> 4 != 0);
    if unused {
        return Err(input.malformed("the unused half of a packed string is not zero"));
    }
    Ok(bytes.iter().flat_map(|byte| halves(*byte, alphabet)).take(length).collect())
}

fn halves(byte: u8, alphabet: &[u8; 16]) -> [char; 2] {
    [byte & 0x0F, byte >> 4].map(|half| char::from(alphabet[usize::from(half)]))
}

fn packed_above_base(input: &mut Input<'_>, bits: usize) -> Result<String, BinaryError> {
    let length = input.size(Width::One)?;
    let base = input.byte()?;
    packed(input, length, bits, base)
}

/// Reads a string of `length` characters in `bits` bits each, lowest bits first, as offsets from `base`.
fn packed(
    input: &mut Input<'_>,
    length: usize,
    bits: usize,
    base: u8,
) -> Result<String, BinaryError> {
    let bytes = input.take((length * bits).div_ceil(8))?;
    let mask = (1_u16 << bits) - 1;
    let mut string = String::with_capacity(length);
    for first_bit in (0..length).map(|place| place * bits) {
        let byte = |place: usize| bytes.get(place).copied().unwrap_or_default();
        let window = u16::from_le_bytes([byte(first_bit / 8), byte(first_bit / 8 + 1)]);
        let character = (window >> (first_bit % 8) & mask) + u16::from(base);
        match u8::try_from(character) {
            Ok(ascii) if ascii.is_ascii() => string.push(char::from(ascii)),
            _ => return Err(input.malformed("a packed string holds more than ascii")),
        }
    }
    Ok(string)
}
