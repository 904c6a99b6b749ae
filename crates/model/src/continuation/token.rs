//! The text of a composite continuation: base64url of
//!
//! ```text
//! 1        version, 1
//! 8        container, big-endian
//! varint   number of ranges
//! each     varint   0: starts where the range before ended (the first: at the lowest key)
//!                   n: n - 1 bytes of its lowest key follow
//!          varint   n, and n bytes of its end
//!          varint   position
//! 4        murmur3 x86 32 of all bytes before, little-endian
//! ```
//!
//! Varints are LEB128. Versions stay below 4, so the text starts with `A` and no token looks like a number. The
//! hash detects accidental damage, not forgery: clients may keep tokens for years in files and tables.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{BadContinuation, RANGES_MAX, RangePosition};
use crate::{ContainerRid, Epk, KeyRange, Lsn, murmur3};

const VERSION: u8 = 1;
const CHECKSUM_LENGTH: usize = 4;
const CHECKSUM_SEED: u32 = 0x4845_4144;

/// The longest key accepted, the same as in hex text.
const KEY_BYTES_MAX: u64 = 512;

const VARINT_LENGTH_MAX: usize = 10;

/// An upper bound of the length of the text that `encode` returns for these positions, quotes included.
pub(super) fn text_length_max(positions: &[RangePosition]) -> usize {
    let mut bytes = 1 + 8 + VARINT_LENGTH_MAX + CHECKSUM_LENGTH;
    let mut previous_max = &Epk::min();
    for RangePosition { range, .. } in positions {
        if range.min() != previous_max {
            bytes += range.min().as_bytes().len();
        }
        bytes += range.max().as_bytes().len() + 2 + 2 + VARINT_LENGTH_MAX;
        previous_max = range.max();
    }
    bytes.div_ceil(3) * 4 + 2
}

pub(super) fn encode(container: ContainerRid, positions: &[RangePosition]) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&container.to_bytes());
    put_varint(positions.len() as u64, &mut bytes);
    let mut previous_max = &Epk::min();
    for RangePosition { range, after } in positions {
        let (min, max) = (range.min().as_bytes(), range.max().as_bytes());
        if range.min() == previous_max {
            put_varint(0, &mut bytes);
        } else {
            put_varint(min.len() as u64 + 1, &mut bytes);
            bytes.extend_from_slice(min);
        }
        put_varint(max.len() as u64, &mut bytes);
        bytes.extend_from_slice(max);
        put_varint(after.get(), &mut bytes);
        previous_max = range.max();
    }
    let checksum = murmur3::x86_32(&bytes, CHECKSUM_SEED);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a token; the caller checks the order and the overlaps of its ranges.
pub(super) fn decode(text: &str) -> Result<(ContainerRid, Vec<RangePosition>), BadContinuation> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadContinuation::Form)?;
    let (content, checksum) = bytes.split_last_chunk().ok_or(BadContinuation::Form)?;
    match content.first() {
        Some(&VERSION) => {}
        Some(&version @ 2..=3) => return Err(BadContinuation::Version(version)),
        _ => return Err(BadContinuation::Form),
    }
    if murmur3::x86_32(content, CHECKSUM_SEED) != u32::from_le_bytes(*checksum) {
        return Err(BadContinuation::Damaged);
    }
    // The checksum is right: only a token that we never wrote can fail from here on.
    let mut reader = Reader { rest: &content[1..] };
    let decoded = reader.positions()?;
    if reader.rest.is_empty() { Ok(decoded) } else { Err(BadContinuation::Damaged) }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7F) as u8);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn positions(&mut self) -> Result<(ContainerRid, Vec<RangePosition>), BadContinuation> {
        let container = self.take(8)?;
        let container =
            ContainerRid::from_bytes(container).map_err(|_| BadContinuation::Damaged)?;
        let count = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        // Before anything is allocated for them.
        if count > RANGES_MAX {
            return Err(BadContinuation::TooManyRanges { ranges: count });
        }
        let mut positions = Vec::with_capacity(count);
        let mut previous_max = Epk::min();
        for _ in 0..count {
            let min = match self.varint()? {
                0 => previous_max,
                length => self.key(length - 1)?,
            };
            let length = self.varint()?;
            let max = self.key(length)?;
            previous_max = max.clone();
            let range = KeyRange::new(min, max).map_err(|_| BadContinuation::Ranges)?;
            let after = match self.varint()? {
                u64::MAX => return Err(BadContinuation::Position), // has no next position
                number => Lsn::new(number),
            };
            positions.push(RangePosition { range, after });
        }
        Ok((container, positions))
    }

    fn key(&mut self, length: u64) -> Result<Epk, BadContinuation> {
        if length > KEY_BYTES_MAX {
            return Err(BadContinuation::Damaged);
        }
        let length = usize::try_from(length).map_err(|_| BadContinuation::Damaged)?;
        self.take(length).map(Epk::from_bytes)
    }

    fn varint(&mut self) -> Result<u64, BadContinuation> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let seven = u64::from(byte & 0x7F);
            if seven << shift >> shift != seven {
                return Err(BadContinuation::Damaged); // more than 64 bits
            }
            number |= seven << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadContinuation::Damaged)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], BadContinuation> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(BadContinuation::Damaged)?;
        self.rest = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A token around any content, with a checksum that fits.
    fn sealed(content: &[u8]) -> String {
        let mut bytes = content.to_vec();
        bytes.extend_from_slice(&murmur3::x86_32(content, CHECKSUM_SEED).to_le_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Version 1, container 1/1, and then this.
    fn body(rest: &[u8]) -> String {
        sealed(&[&[1, 0, 0, 0, 1, 0x80, 0, 0, 1], rest].concat())
    }

    #[test]
    fn forged_tokens() {
        use BadContinuation::*;
        let largest = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        let beyond = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02];
        let endless = [0x80; 11];
        for (name, token, expected) in [
            ("no container", sealed(&[1, 0, 0]), Damaged),
            ("a user as container", sealed(&[1, 0, 0, 0, 1, 0, 0, 0, 1, 0]), Damaged),
            ("version 2", sealed(&[2]), Version(2)),
            ("version 3", sealed(&[3, 9, 9]), Version(3)),
            ("version 0", sealed(&[0]), Form),
            ("version 4", sealed(&[4]), Form),
            ("no version", sealed(&[]), Form),
            ("no count", body(&[]), Damaged),
            ("ranges missing", body(&[1]), Damaged),
            ("10 001 ranges", body(&[0x91, 0x4E]), TooManyRanges { ranges: 10_001 }),
            ("2^64 - 1 ranges", body(&largest), TooManyRanges { ranges: usize::MAX }),
            ("a count of 65 bits", body(&beyond), Damaged),
            ("a count without end", body(&endless), Damaged),
            ("an empty range", body(&[1, 0, 0, 7]), Ranges),
            ("a key cut short", body(&[1, 0, 5, 0xFF]), Damaged),
            (
                "a key of 513 bytes",
                body(&[&[1, 0, 0x81, 0x04][..], &[7; 513], &[7]].concat()),
                Damaged,
            ),
            (
                "a position without a next",
                body(&[&[1, 0, 1, 0xFF][..], &largest].concat()),
                Position,
            ),
            ("something left over", body(&[1, 0, 1, 0xFF, 7, 0]), Damaged),
        ] {
            assert_eq!(decode(&token), Err(expected), "{name}");
        }
    }

    /// Tokens are kept by clients for years; this text must always be read.
    #[test]
    fn version_1_is_read_for_ever() {
        let text = body(&[2, 0, 1, 0x20, 7, 2, 0x30, 1, 0xFF, 0xAC, 0x02]);
        assert_eq!(text, "AQAAAAGAAAABAgABIAcCMAH_rAIZ2xC6");
        let (container, positions) = decode(&text).unwrap();
        assert_eq!(container, ContainerRid::new(1, 1));
        let shown: Vec<_> = positions.iter().map(|p| format!("{} {}", p.range, p.after)).collect();
        assert_eq!(shown, ["..20 7", "30..FF 300"]);
        assert_eq!(encode(container, &positions), text);
        assert!(text.len() <= text_length_max(&positions));
    }
}
