//! Continuations: the position of a change feed reader, and its token text.
//!
//! A reader of one partition has read up to an LSN. Its token is that number in quotes, as every SDK expects:
//! `"28535"`. A reader of several partitions has an LSN for each range, because LSNs of different partitions
//! are not comparable. Its token is opaque text.
//!
//! ```text
//! composite     ""        20…        30…        FF
//!               |  after 7 |  after 3 |  after 9 |
//! after a merge |       asks ""..30…  |            => 3: the lowest, so nothing is skipped
//! after a split |asks ""..10…|                     => 7
//! ```
//!
//! The lowest position may repeat changes of the other part, and never loses one.
//!
//! Tokens are not signed. They are checked for damage and consistency only; the store must check that the
//! container is the right one.

mod token;

use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;
use crate::{ContainerRid, KeyRange, Lsn};

/// The most ranges one token holds.
const RANGES_MAX: usize = 10_000;

/// The longest token text, quotes included.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The position up to which a change feed has been read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Continuation {
    /// Up to this LSN in the one partition that is read.
    Single(Lsn),
    /// Up to a different LSN in each range.
    ///
    /// Create it with [`Continuation::composite`], which checks the fields.
    Composite {
        /// The container that was read. A container recreated under the same name has a different id.
        container: ContainerRid,
        /// At least one; in ascending order and without overlaps, though there may be gaps.
        positions: Vec<RangePosition>,
    },
}

/// The position in one range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangePosition {
    /// The range of keys.
    pub range: KeyRange,
    /// The last LSN that has been read.
    pub after: Lsn,
}

/// Why a text, or a set of positions, is not a continuation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadContinuation {
    /// No text, or no ranges.
    #[error("continuation is empty; leave it out to read from the beginning")]
    Empty,
    /// A number that is not an LSN.
    #[error("continuation is not a log position we return; send back the `etag` of the last page")]
    Position,
    /// Neither a number nor one of our tokens.
    #[error("continuation is not one of ours; send back the `etag` of the last page")]
    Form,
    /// One of our tokens, from a newer program.
    #[error("continuation has version {0}, which is not known here; read from a newer server")]
    Version(u8),
    /// One of our tokens, damaged in transit or storage.
    #[error("continuation is damaged; send back the `etag` of the last page unchanged")]
    Damaged,
    /// Ranges that are empty, out of order or overlap.
    #[error("continuation has ranges out of order or overlapping; sort and merge them")]
    Ranges,
    /// More ranges than one token may hold.
    #[error("continuation has {ranges} ranges; read at most {RANGES_MAX} at once")]
    TooManyRanges {
        /// How many there are.
        ranges: usize,
    },
    /// A text longer than the limit.
    #[error("continuation is {bytes} bytes; read fewer ranges to stay below {TEXT_BYTES_MAX}")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
}

impl Continuation {
    /// A continuation with a position in each of these ranges, which must be sorted and must not overlap.
    pub fn composite(
        container: ContainerRid,
        positions: Vec<RangePosition>,
    ) -> Result<Continuation, BadContinuation> {
        check(&positions)?;
        let bytes = token::text_length_max(&positions);
        if bytes > TEXT_BYTES_MAX {
            return Err(BadContinuation::TooLong { bytes });
        }
        Ok(Continuation::Composite { container, positions })
    }

    /// The container that was read; `None` for a single position, which does not name it.
    pub fn container(&self) -> Option<ContainerRid> {
        match self {
            Continuation::Single(_) => None,
            Continuation::Composite { container, .. } => Some(*container),
        }
    }

    /// The position up to which all of `range` has been read.
    ///
    /// A single position applies to any range. For a composite, returns the lowest position of the overlapping
    /// ranges, or `None` if some part of `range` is in none of them.
    pub fn position_for(&self, range: &KeyRange) -> Option<Lsn> {
        let positions = match self {
            Continuation::Single(after) => return Some(*after),
            Continuation::Composite { positions, .. } => positions,
        };
        let first = positions.partition_point(|position| position.range.max() <= range.min());
        let mut lowest: Option<Lsn> = None;
        let mut covered_to = range.min();
        for position in &positions[first..] {
            if covered_to >= range.max() || position.range.min() > covered_to {
                break;
            }
            covered_to = position.range.max();
            lowest = Some(lowest.map_or(position.after, |lowest| lowest.min(position.after)));
        }
        lowest.filter(|_| covered_to >= range.max())
    }
}

/// Checks the count, the order and the overlaps of a composite continuation's positions.
fn check(positions: &[RangePosition]) -> Result<(), BadContinuation> {
    if positions.is_empty() {
        return Err(BadContinuation::Empty);
    }
    if positions.len() > RANGES_MAX {
        return Err(BadContinuation::TooManyRanges { ranges: positions.len() });
    }
    let sorted = positions.is_sorted_by(|one, next| one.range.max() <= next.range.min());
    if sorted { Ok(()) } else { Err(BadContinuation::Ranges) }
}

/// In quotes, as in the `etag` header.
impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Continuation::Single(after) => write!(f, "\"{after}\""),
            Continuation::Composite { container, positions } => {
                debug_assert_eq!(check(positions), Ok(()), "made with `composite`");
                write!(f, "\"{}\"", token::encode(*container, positions))
            }
        }
    }
}

/// With or without one pair of quotes.
impl FromStr for Continuation {
    type Err = BadContinuation;

    fn from_str(text: &str) -> Result<Continuation, BadContinuation> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadContinuation::TooLong { bytes: text.len() });
        }
        let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let text = quoted.unwrap_or(text);
        if text.is_empty() {
            return Err(BadContinuation::Empty);
        }
        // Tokens start with a letter, so a text of digits is never one.
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let after = text.parse().map_err(|_| BadContinuation::Position)?;
            return Ok(Continuation::Single(after));
        }
        let (container, positions) = token::decode(text)?;
        check(&positions)?;
        Ok(Continuation::Composite { container, positions })
    }
}

serde_as_text!(Continuation);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epk;

    fn range(text: &str) -> KeyRange {
        let (min, max) = text.split_once("..").unwrap();
        KeyRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap()).unwrap()
    }

    fn composite(positions: &[(&str, u64)]) -> Result<Continuation, BadContinuation> {
        let position =
            |&(text, after)| RangePosition { range: range(text), after: Lsn::new(after) };
        let positions = positions.iter().map(position).collect();
        Continuation::composite(ContainerRid::new(1, 1), positions)
    }

    #[test]
    fn single_positions() {
        for (text, expected) in [
            ("\"28535\"", Ok(28535)),
            ("28535", Ok(28535)),
            ("\"0\"", Ok(0)),
            ("\"18446744073709551614\"", Ok(u64::MAX - 1)),
            ("\"18446744073709551615\"", Err(BadContinuation::Position)),
            ("\"99999999999999999999999\"", Err(BadContinuation::Position)),
            ("", Err(BadContinuation::Empty)),
            ("\"\"", Err(BadContinuation::Empty)),
            ("\"", Err(BadContinuation::Form)),
            ("\"1", Err(BadContinuation::Form)),
            ("\"\"1\"\"", Err(BadContinuation::Form)),
            ("*", Err(BadContinuation::Form)),
            ("-1", Err(BadContinuation::Form)),
            ("+1", Err(BadContinuation::Form)),
            ("1.5", Err(BadContinuation::Form)),
            (" 1", Err(BadContinuation::Form)),
            ("AAAA", Err(BadContinuation::Form)),
            ("00000003-0000-0000-0000-6f7700010000", Err(BadContinuation::Form)), // an item's etag
        ] {
            let expected = expected.map(|number| Continuation::Single(Lsn::new(number)));
            assert_eq!(text.parse(), expected, "{text}");
        }
        assert_eq!(Continuation::Single(Lsn::new(28535)).to_string(), "\"28535\"");
        let text = "1".repeat(TEXT_BYTES_MAX + 1);
        let refused = BadContinuation::TooLong { bytes: TEXT_BYTES_MAX + 1 };
        assert_eq!(text.parse::<Continuation>(), Err(refused));
    }

    #[test]
    fn composite_positions_come_back() {
        let continuation =
            composite(&[("..20", 7), ("20..30", 3), ("40..FF", u64::MAX - 1)]).unwrap();
        let text = continuation.to_string();
        assert!(text.starts_with("\"A") && text.ends_with('"') && text.is_ascii(), "{text}");
        assert_eq!(text.parse(), Ok(continuation.clone()));
        assert_eq!(text.trim_matches('"').parse(), Ok(continuation.clone()));
        assert_eq!(continuation.container(), Some(ContainerRid::new(1, 1)));
        let json = serde_json::to_string(&continuation).unwrap();
        assert_eq!(serde_json::from_str::<Continuation>(&json).unwrap(), continuation);
    }

    /// Every replacement of a single character is detected.
    #[test]
    fn damage_is_noticed() {
        let text = composite(&[("..20", 7), ("20..FF", 3)]).unwrap().to_string();
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        for position in 1..text.len() - 1 {
            for other in alphabet.chars() {
                let damaged = format!("{}{other}{}", &text[..position], &text[position + 1..]);
                assert_eq!(damaged == text, damaged.parse::<Continuation>().is_ok(), "{damaged}");
            }
            assert!(text[..position].parse::<Continuation>().is_err());
        }
    }

    #[test]
    fn refused_ranges() {
        assert_eq!(composite(&[]), Err(BadContinuation::Empty));
        assert_eq!(composite(&[("20..30", 1), ("..20", 1)]), Err(BadContinuation::Ranges));
        assert_eq!(composite(&[("..20", 1), ("10..30", 1)]), Err(BadContinuation::Ranges));
        assert_eq!(composite(&[("..20", 1), ("..20", 1)]), Err(BadContinuation::Ranges));
    }

    fn many(ranges: u32, key_bytes: usize) -> Result<Continuation, BadContinuation> {
        let key = |number: u32| {
            let mut bytes = number.to_be_bytes().to_vec();
            bytes.resize(key_bytes, 0);
            Epk::from_bytes(&bytes)
        };
        let positions = (0..ranges).map(|index| RangePosition {
            range: KeyRange::new(key(index), key(index + 1)).unwrap(),
            after: Lsn::new(u64::MAX - 1),
        });
        Continuation::composite(ContainerRid::new(1, 1), positions.collect())
    }

    #[test]
    fn sizes() {
        let largest = many(10_000, 48).unwrap();
        let text = largest.to_string();
        assert!(text.len() <= TEXT_BYTES_MAX, "{}", text.len());
        assert_eq!(text.parse(), Ok(largest));
        assert_eq!(many(10_001, 16), Err(BadContinuation::TooManyRanges { ranges: 10_001 }));
        assert!(matches!(many(10_000, 100), Err(BadContinuation::TooLong { .. })));
    }

    #[test]
    fn the_lowest_position_that_covers_all() {
        let continuation =
            composite(&[("..20", 7), ("20..30", 3), ("30..38", 6), ("40..50", 9), ("50..FF", 8)])
                .unwrap();
        for (asked, expected) in [
            ("..20", Some(7)),
            ("..10", Some(7)),
            ("10..18", Some(7)),
            ("1F..20", Some(7)),
            ("20..30", Some(3)),
            ("..30", Some(3)),
            ("10..21", Some(3)),
            ("40..FF", Some(8)),
            ("4F..5000", Some(8)),
            ("40..50", Some(9)),
            ("30..40", None),
            ("..FF", None),
            ("30..38", Some(6)), // a range that ends at its start does not overlap
            ("20..31", Some(3)),
            ("20..39", None),
            ("3F..50", None),
            ("2F..41", None),
            ("40..FF00", None),
        ] {
            assert_eq!(continuation.position_for(&range(asked)), expected.map(Lsn::new), "{asked}");
            let single = Continuation::Single(Lsn::new(5));
            assert_eq!(single.position_for(&range(asked)), Some(Lsn::new(5)));
        }
    }
}
