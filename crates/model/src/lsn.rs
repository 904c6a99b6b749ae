//! The position of a stored change: partition id and log sequence number (LSN).
//!
//! Their text forms are plain decimal. The quotes a change feed etag puts around an LSN belong to
//! [`Continuation`](crate::Continuation), not to the number.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Position of an entry in one partition's log. Starts at 1, never reused, never reordered; gaps
/// are legal.
///
/// LSNs of different partitions are not comparable, and gaps make differences meaningless. So the only
/// arithmetic is `next` and `previous`. The default is [`Lsn::ZERO`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Lsn(u64);

impl Lsn {
    /// The position before the first entry. A reader may start here; no entry has this LSN.
    pub const ZERO: Lsn = Lsn(0);

    /// The first entry of a partition.
    pub const FIRST: Lsn = Lsn(1);

    /// The LSN with this number; 0 is [`Lsn::ZERO`].
    pub const fn new(number: u64) -> Lsn {
        Lsn(number)
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position after this one.
    ///
    /// # Panics
    ///
    /// At 2^64 − 1. No partition writes that many entries, and the parsers reject that number, so a parsed
    /// position always has a next one.
    pub const fn next(self) -> Lsn {
        match self.0.checked_add(1) {
            Some(number) => Lsn(number),
            None => panic!("a partition does not live through 2^64 writes"),
        }
    }

    /// The position before this one; [`Lsn::ZERO`] for [`Lsn::ZERO`].
    pub const fn previous(self) -> Lsn {
        Lsn(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not the decimal number of a log position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a log position is a decimal number below 18446744073709551615; send back one we returned")]
pub struct BadLsn;

impl FromStr for Lsn {
    type Err = BadLsn;

    fn from_str(text: &str) -> Result<Lsn, BadLsn> {
        match decimal(text) {
            Some(number) if number < u64::MAX => Ok(Lsn(number)),
            _ => Err(BadLsn),
        }
    }
}

/// One physical partition of a container; the `id` of its partition key range.
///
/// Unique for the life of the container and never reused: after a split both children get new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(u32);

impl PartitionId {
    /// The partition with this number.
    pub const fn new(number: u32) -> PartitionId {
        PartitionId(number)
    }

    /// The number itself.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text is not a partition key range id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a partition key range id is a decimal number such as 0; read the ids from `pkranges`")]
pub struct BadPartitionId;

impl FromStr for PartitionId {
    type Err = BadPartitionId;

    fn from_str(text: &str) -> Result<PartitionId, BadPartitionId> {
        // Each range has exactly one id: `00` would be a second text for partition 0.
        if text.len() > 1 && text.starts_with('0') {
            return Err(BadPartitionId);
        }
        let number = decimal(text).ok_or(BadPartitionId)?;
        u32::try_from(number).map(PartitionId).map_err(|_| BadPartitionId)
    }
}

/// Digits only, because `u64::from_str` also takes a leading `+`.
fn decimal(text: &str) -> Option<u64> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_lsn(text: &str, expected: Option<u64>) {
        assert_eq!(text.parse::<Lsn>().ok(), expected.map(Lsn), "{text:?}");
    }

    #[test]
    fn lsn_texts() {
        check_lsn("0", Some(0));
        check_lsn("1", Some(1));
        check_lsn("28535", Some(28535));
        check_lsn("007", Some(7));
        check_lsn("18446744073709551614", Some(u64::MAX - 1));
        check_lsn("18446744073709551615", None); // has no next position
        check_lsn("18446744073709551616", None);
        check_lsn("", None);
        check_lsn("+1", None);
        check_lsn("-1", None);
        check_lsn(" 1", None);
        check_lsn("1.0", None);
        check_lsn("\"1\"", None);
        check_lsn("١", None); // a digit elsewhere in Unicode
    }

    #[test]
    fn neighbours() {
        assert_eq!(Lsn::ZERO.next(), Lsn::FIRST);
        assert_eq!(Lsn::FIRST.previous(), Lsn::ZERO);
        assert_eq!(Lsn::ZERO.previous(), Lsn::ZERO);
        assert_eq!(Lsn::new(u64::MAX).previous().next(), Lsn::new(u64::MAX));
        assert_eq!(Lsn::new(42).to_string(), "42");
    }

    #[test]
    #[should_panic(expected = "2^64 writes")]
    fn there_is_nothing_after_the_last_number() {
        let _ = Lsn::new(u64::MAX).next();
    }

    #[track_caller]
    fn check_partition(text: &str, expected: Option<u32>) {
        assert_eq!(text.parse::<PartitionId>().ok(), expected.map(PartitionId), "{text:?}");
    }

    #[test]
    fn partition_texts() {
        check_partition("0", Some(0));
        check_partition("16", Some(16));
        check_partition("4294967295", Some(u32::MAX));
        check_partition("4294967296", None);
        check_partition("00", None);
        check_partition("01", None);
        check_partition("", None);
        check_partition("+1", None);
        check_partition("M", None);
        check_partition("qYcAAPEvJBQ=,3", None);
    }

    #[test]
    fn both_are_plain_numbers_in_json() {
        assert_eq!(serde_json::to_string(&(Lsn::FIRST, PartitionId(3))).unwrap(), "[1,3]");
        assert_eq!(serde_json::from_str::<Lsn>("7").unwrap(), Lsn(7));
    }
}
