//! Eight bytes at a time: finding the end of a string and hashing a key without `unsafe`.
//!
//! SWAR (SIMD within a register) on a 64-bit word. `specials` sets the top bit of each byte that
//! ends or interrupts a JSON string. A borrow may set bits *above* the first true hit, never below
//! it, so only the lowest bit of a mask is meaningful:
//!
//! ```text
//! word      n  a  m  e  "  :  1  ,
//! specials  .  .  .  .  ^  (bytes after the first mark are ignored)
//! ```
//!
//! The hash only separates different keys quickly. It is neither keyed nor stored, and keys of equal
//! hash are always compared byte by byte.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// An offset into a body. Half the width of `usize`: the compiler then knows that `at + 8` does not
/// overflow, and a load needs one comparison instead of three.
pub(super) type Offset = u32;

/// Maximum length of a body: no offset in or just past it overflows.
pub(super) const BODY_BYTES_MAX: usize = Offset::MAX as usize - 4096;

/// The byte at `at`, or zero past the end. Zero is not legal anywhere in JSON.
#[inline(always)]
pub(super) fn byte(body: &[u8], at: Offset) -> u8 {
    match body.get(at as usize) {
        Some(&byte) => byte,
        None => 0,
    }
}

/// The eight bytes from `at` on, the first one lowest; bytes past the end are zero.
#[inline(always)]
pub(super) fn word(body: &[u8], at: Offset) -> u64 {
    let start = at as usize;
    match body.get(start..start + 8).and_then(|eight| eight.first_chunk()) {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => last_word(body, start),
    }
}

/// The bytes between two offsets; empty if the range is out of bounds.
#[inline(always)]
pub(super) fn slice(body: &[u8], start: Offset, end: Offset) -> &[u8] {
    body.get(start as usize..end as usize).unwrap_or_default()
}

#[cold]
#[inline(never)]
fn last_word(body: &[u8], start: usize) -> u64 {
    let mut chunk = [0; 8];
    for (to, from) in chunk.iter_mut().zip(body.get(start..).unwrap_or_default()) {
        *to = *from;
    }
    u64::from_le_bytes(chunk)
}

/// Marks `"`, `\` and the control characters (the zeros past the end are among them).
#[inline(always)]
pub(super) fn specials(word: u64) -> u64 {
    specials_or_beyond_ascii(word) & !word
}

/// Marks everything that `specials` marks and all bytes beyond ASCII.
#[inline(always)]
pub(super) fn specials_or_beyond_ascii(word: u64) -> u64 {
    // Flipping one bit brings the quote (0x22) next to the control characters: one test for both.
    let controls_and_quotes = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslashes = (word ^ (ONES * 0x5c)).wrapping_sub(ONES);
    // A byte beyond ASCII keeps its top bit in at least one of the two.
    (controls_and_quotes | backslashes) & HIGHS
}

/// Number of bits of the word before the first mark. `marks` must not be zero.
#[inline(always)]
pub(super) fn bits_before(marks: u64) -> u32 {
    marks.trailing_zeros() & !7
}

/// Number of bytes of the word before the first mark. `marks` must not be zero.
#[inline(always)]
pub(super) fn bytes_before(marks: u64) -> Offset {
    marks.trailing_zeros() / 8
}

/// The word with only its lowest `bits` bits, `bits` below 64.
#[inline(always)]
pub(super) fn lowest(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// Whether any byte of the word is outside ASCII.
#[inline(always)]
pub(super) fn beyond_ascii(word: u64) -> bool {
    word & HIGHS != 0
}

/// One step of the key hash. The last word of every key is partial and may be empty.
#[inline(always)]
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Reduces the hash of a complete key to its upper half, the best-mixed bits of a product.
#[inline(always)]
pub(super) fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The hash of a whole key; equal to the hash that the scan computes incrementally.
pub(super) fn hash(key: &[u8]) -> u32 {
    let (words, rest) = key.as_chunks::<8>();
    let hash = words.iter().fold(0, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    fold(mix(hash, last_word(rest, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_is_found_at_every_place() {
        for byte in 0..=u8::MAX {
            let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
            for place in 0..8 {
                for other in [b'a', b'!', b'#', b'[', b']', b' ', 0x7f] {
                    let mut bytes = [other; 8];
                    bytes[place] = byte;
                    let first = |marks: u64| (marks != 0).then(|| bits_before(marks) as usize / 8);
                    let marks = specials(word(&bytes, 0));
                    let expected = is_special.then_some(place);
                    assert_eq!(first(marks), expected, "{byte:#x} among {other:#x}");
                    let marks = specials_or_beyond_ascii(word(&bytes, 0));
                    let expected = (is_special || byte >= 0x80).then_some(place);
                    assert_eq!(first(marks), expected, "{byte:#x} among {other:#x}");
                }
            }
        }
        // Bytes beyond ASCII around a special do not hide it.
        for other in 0x80..=u8::MAX {
            for place in 0..8 {
                let mut bytes = [other; 8];
                bytes[place] = b'"';
                assert_eq!(
                    bits_before(specials(word(&bytes, 0))) as usize,
                    8 * place,
                    "{other:#x}"
                );
            }
        }
    }

    #[test]
    fn words_past_the_end_are_filled_with_zeros() {
        assert_eq!(word(b"abc", 0), u64::from_le_bytes(*b"abc\0\0\0\0\0"));
        assert_eq!(word(b"abc", 2), u64::from(b'c'));
        assert_eq!((word(b"abc", 3), word(b"abc", Offset::MAX), byte(b"abc", 3)), (0, 0, 0));
    }

    #[test]
    fn keys_that_differ_a_little_hash_apart() {
        let mut hashes: Vec<u32> =
            (0..10_000).map(|number| hash(format!("property{number}").as_bytes())).collect();
        hashes.extend((0..10_000).map(|number| hash(format!("p{number}").as_bytes())));
        hashes.sort_unstable();
        hashes.dedup();
        assert!(hashes.len() >= 19_990, "{} hashes of 20 000 keys", hashes.len());
    }
}
