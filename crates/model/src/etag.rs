//! The etag of one version of an item (`_etag`).
//!
//! Deterministic: derived from the log position of the version, so replaying the log gives the same etag.
//!
//! ```text
//! bytes   partition(4)  lsn(8)                    ordinal(2)  00 00
//! text   "00000003   -  0000-0000-0000-6f77       0001        0000"
//! ```
//!
//! Clients treat it as opaque text. It looks like a GUID only because Azure's etags do. The etag of a change
//! feed page is something else: a [`Continuation`](crate::Continuation).

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;
use crate::{Lsn, PartitionId, hex};

/// Digits and dashes of the text form, without quotes.
const TEXT_LENGTH: usize = 36;

/// The bytes that have a dash before them.
const DASHES: [usize; 4] = [4, 6, 8, 10];

/// Identifies one version of one item. Different for every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Etag([u8; 16]);

impl Etag {
    /// The etag of the write with this ordinal in the entry at `lsn` of `partition`.
    pub const fn new(partition: PartitionId, lsn: Lsn, ordinal: u16) -> Etag {
        let [p0, p1, p2, p3] = partition.get().to_be_bytes();
        let [l0, l1, l2, l3, l4, l5, l6, l7] = lsn.get().to_be_bytes();
        let [o0, o1] = ordinal.to_be_bytes();
        Etag([p0, p1, p2, p3, l0, l1, l2, l3, l4, l5, l6, l7, o0, o1, 0, 0])
    }

    /// The etag with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Etag {
        Etag(bytes)
    }

    /// The bytes of the etag.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Appends the text form without its quotes.
    pub fn write_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text());
    }

    /// Whether a condition such as `If-Match` matches this version.
    ///
    /// The quotes are optional, since some SDKs send the user's string unchanged. `*` matches any version.
    pub fn matches(&self, text: &str) -> bool {
        text == "*" || without_quotes(text).as_bytes() == self.text()
    }

    fn text(self) -> [u8; TEXT_LENGTH] {
        let mut text = [b'-'; TEXT_LENGTH];
        let mut position = 0;
        for (index, byte) in self.0.into_iter().enumerate() {
            position += usize::from(DASHES.contains(&index));
            text[position..position + 2].copy_from_slice(&hex::digits(hex::LOWER, byte));
            position += 2;
        }
        text
    }
}

fn without_quotes(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

/// With the quotes that belong to the value.
impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut quoted = [b'"'; TEXT_LENGTH + 2];
        quoted[1..=TEXT_LENGTH].copy_from_slice(&self.text());
        f.write_str(std::str::from_utf8(&quoted).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Etag({self})")
    }
}

/// The text is not an etag of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "etag is not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx; send the `_etag` that was read"
)]
pub struct BadEtag;

/// With or without quotes, lower case only: an etag has one text.
impl FromStr for Etag {
    type Err = BadEtag;

    fn from_str(text: &str) -> Result<Etag, BadEtag> {
        let text = without_quotes(text).as_bytes();
        if text.len() != TEXT_LENGTH {
            return Err(BadEtag);
        }
        let mut digits = text.iter().filter(|&&byte| byte != b'-');
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            for _ in 0..2 {
                let digit = digits.next().and_then(|&digit| hex::value(digit)).ok_or(BadEtag)?;
                *byte = *byte << 4 | digit;
            }
        }
        // Writing it again also checks the dashes and the case.
        let etag = Etag(bytes);
        if etag.text() == text { Ok(etag) } else { Err(BadEtag) }
    }
}

serde_as_text!(Etag);

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00000003-0000-0000-0000-6f7700010000";

    fn etag() -> Etag {
        Etag::new(PartitionId::new(3), Lsn::new(28535), 1)
    }

    #[test]
    fn text_forms() {
        assert_eq!(etag().to_string(), format!("\"{TEXT}\""));
        let mut text = Vec::new();
        etag().write_into(&mut text);
        assert_eq!(text, TEXT.as_bytes());
        let json = format!("\"\\\"{TEXT}\\\"\"");
        assert_eq!(serde_json::to_string(&etag()).unwrap(), json);
        assert_eq!(serde_json::from_str::<Etag>(&json).unwrap(), etag());
        assert_eq!(Etag::from_bytes(etag().to_bytes()), etag());
    }

    /// One bit in any input changes the etag, and two of them never cancel out.
    #[test]
    fn every_input_bit_counts() {
        let base = Etag::new(PartitionId::new(0), Lsn::ZERO, 0).to_bytes();
        let mut seen = 0u128;
        let etags = (0..32)
            .map(|bit| Etag::new(PartitionId::new(1 << bit), Lsn::ZERO, 0))
            .chain((0..64).map(|bit| Etag::new(PartitionId::new(0), Lsn::new(1 << bit), 0)))
            .chain((0..16).map(|bit| Etag::new(PartitionId::new(0), Lsn::ZERO, 1 << bit)));
        for etag in etags {
            let changed = u128::from_be_bytes(etag.to_bytes()) ^ u128::from_be_bytes(base);
            assert_eq!(changed.count_ones(), 1);
            assert_eq!(seen & changed, 0);
            seen |= changed;
        }
    }

    #[test]
    fn conditions() {
        for (text, expected) in [
            (TEXT.to_owned(), true),
            (format!("\"{TEXT}\""), true),
            ("*".to_owned(), true),
            (format!("\"\"{TEXT}\"\""), false), // only one pair of quotes is removed
            (format!("\"{TEXT}"), false),
            (format!("{TEXT}\""), false),
            ("\"*\"".to_owned(), false), // in quotes it is an etag like any other
            (format!("W/\"{TEXT}\""), false),
            (TEXT.replace("6f", "6F"), false),
            (TEXT.replace("0003", "0004"), false),
            (String::new(), false),
            ("\"".to_owned(), false),
            ("\"\"".to_owned(), false),
        ] {
            assert_eq!(etag().matches(&text), expected, "{text}");
        }
    }

    #[test]
    fn parsed_texts() {
        assert_eq!(TEXT.parse(), Ok(etag()));
        assert_eq!(format!("\"{TEXT}\"").parse(), Ok(etag()));
        for text in [
            "",
            "*",
            "\"\"",
            "00000003-0000-0000-0000-6f770001000",
            "00000003-0000-0000-0000-6f77000100000",
            "000000030000-0000-0000-6f77000100000",
            "000000030-000-0000-0000-6f7700010000",
            "00000003-0000-0000-0000-6F7700010000",
            "00000003-0000-0000-0000-6g7700010000",
            "\"00000003-0000-0000-0000-6f7700010000",
            "------------------------------------",
        ] {
            assert_eq!(text.parse::<Etag>(), Err(BadEtag), "{text}");
        }
    }
}
