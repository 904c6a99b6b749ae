//! A portion of the rows of one item: where it starts, how much it holds and where it ends.
//!
//! A `JOIN` makes many rows of one item, perhaps more than fit on a page or in its time. A position within
//! the item is a list of counts: for each source with several elements, how many of them are done. Resuming
//! skips these elements without evaluating them, so the last row costs no more than the first.
//!
//! Positions are only kept for the query itself: a sub-query runs as a whole.

use std::fmt::{self, Display, Formatter};

use super::Next;

/// The most sources in a position; a query has fewer.
const COUNTS_MAX: usize = 64;

/// A position within the rows of an item. The default is the first row.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition(Vec<u64>);

impl RowPosition {
    /// Drops trailing zeros, which mean nothing, so that equal positions compare equal.
    fn new(mut counts: Vec<u64>) -> RowPosition {
        while counts.last() == Some(&0) {
            counts.pop();
        }
        RowPosition(counts)
    }

    /// Parses a position; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<RowPosition> {
        if text.is_empty() {
            return Some(RowPosition::default());
        }
        let counts: Option<Vec<u64>> =
            text.split('-').take(COUNTS_MAX + 1).map(|count| count.parse().ok()).collect();
        counts.filter(|counts| counts.len() <= COUNTS_MAX).map(RowPosition::new)
    }

    /// Whether it is the first row.
    #[must_use]
    pub fn is_start(&self) -> bool {
        self.0.is_empty()
    }
}

/// Digits and hyphens; empty for the first row.
impl Display for RowPosition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, count) in self.0.iter().enumerate() {
            let hyphen = if index > 0 { "-" } else { "" };
            write!(f, "{hyphen}{count}")?;
        }
        Ok(())
    }
}

/// The limits of a portion of an item's rows.
#[derive(Clone, Debug)]
pub struct Portion {
    /// The first row.
    pub from: RowPosition,
    /// The most rows.
    pub rows: usize,
    /// The most bytes of rows; the row that reaches this limit is the last.
    pub bytes: usize,
}

/// How far a portion got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Portioned {
    /// To the end of the item.
    Whole(Next),
    /// To this position: the portion is full, or its time has passed.
    Part(RowPosition),
}

/// The position in the sources that are being iterated.
pub(super) struct Cursor {
    /// For each of them, the number of elements done.
    done: Vec<u64>,
    /// The elements to skip, for each source on the way to the first row of the portion.
    resume: Vec<u64>,
}

impl Cursor {
    pub(super) fn new(from: &RowPosition) -> Cursor {
        Cursor { done: Vec::new(), resume: from.0.clone() }
    }

    /// Enters a source, and returns how many elements to skip.
    pub(super) fn enter(&mut self) -> u64 {
        let skip = self.resume.get(self.done.len()).copied().unwrap_or(0);
        self.done.push(skip);
        skip
    }

    /// Marks an element as done. The sources within the next one start at their first.
    pub(super) fn advance(&mut self) {
        self.resume.truncate(self.done.len());
        if let Some(done) = self.done.last_mut() {
            *done = done.saturating_add(1);
        }
    }

    pub(super) fn leave(&mut self) {
        self.done.pop();
    }

    pub(super) fn position(self) -> RowPosition {
        RowPosition::new(self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_their_text() {
        for text in ["", "1", "0-3", "7-0-18446744073709551615"] {
            assert_eq!(RowPosition::parse(text).unwrap_or_default().to_string(), text);
        }
        assert_eq!(RowPosition::parse("2-0-0"), RowPosition::parse("2"));
        for text in ["-", "1-", "x", "1-x", "-1", "18446744073709551616", &"1-".repeat(70)] {
            assert_eq!(RowPosition::parse(text), None, "{text}");
        }
    }
}
