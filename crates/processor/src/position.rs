//! The position up to which a range has been processed: the feed's own etag, stored verbatim.
//!
//! A position is opaque. On every known server it is an LSN in quotes. Two such positions of the same range can be
//! compared; other positions are never compared or guessed.

use headwater_model::Lsn;
use std::fmt;

/// Longest accepted position; real ones have about ten characters.
const BYTES_MAX: usize = 64 * 1024;

/// A position in a range: everything up to it has been handled. Includes the quotes of the etag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position(String);

impl Position {
    /// Creates a position from a server's etag; `None` if it is empty or longer than 64 KiB.
    #[must_use]
    pub fn new(etag: impl Into<String>) -> Option<Position> {
        let etag = etag.into();
        (!etag.is_empty() && etag.len() <= BYTES_MAX).then_some(Position(etag))
    }

    /// Creates the position directly after a transaction.
    #[must_use]
    pub fn after(lsn: Lsn) -> Position {
        Position(format!("\"{lsn}\""))
    }

    /// Returns the position as the server sent it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the LSN, if the position is one.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        let text = self.0.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        text.unwrap_or(&self.0).parse().ok()
    }

    /// Whether this lies before `other`; `None` if the two cannot be compared.
    #[must_use]
    pub fn is_before(&self, other: &Position) -> Option<bool> {
        Some(self.lsn()? < other.lsn()?)
    }

    /// Returns the later of the two; `self` if they cannot be compared.
    #[must_use]
    pub fn or_later(self, other: &Position) -> Position {
        if self.is_before(other) == Some(true) { other.clone() } else { self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_compare_as_numbers_and_only_if_they_are_some() {
        let position = |text: &str| Position::new(text).unwrap();
        assert_eq!(position("\"9\"").is_before(&position("\"10\"")), Some(true));
        assert_eq!(position("10").is_before(&position("\"10\"")), Some(false));
        assert_eq!(position("abc").is_before(&position("\"10\"")), None);
        assert_eq!(position("\"9\"").or_later(&position("\"10\"")), position("\"10\""));
        assert_eq!(position("\"11\"").or_later(&position("\"10\"")), position("\"11\""));
        assert_eq!(position("abc").or_later(&position("\"10\"")), position("abc"));
        assert_eq!(Position::after(Lsn::new(7)).as_str(), "\"7\"");
        assert_eq!(Position::new(""), None);
        assert_eq!(Position::new("x".repeat(BYTES_MAX + 1)), None);
    }
}
