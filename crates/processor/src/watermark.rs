//! The watermark: the position up to which everything was handled while several batches are in progress.
//!
//! ```text
//! page        1: lsn 5 5 6     2: lsn 7 8      3: nothing, at 9
//! handled           ✓ ✓ ✓         · ✓             ✓
//! watermark                 ▲ after page 1: 7 is not handled yet, so 8 and 9 do not count
//! ```
//!
//! Only the watermark is ever stored. It advances by whole transactions, and within a page only if the feed can
//! continue at any LSN.

use crate::position::Position;
use headwater_model::Lsn;
use std::collections::VecDeque;

/// Identifies a change in progress by its page and its index on that page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) page: u64,
    index: usize,
}

#[derive(Debug)]
struct Page {
    number: u64,
    after: Position,
    /// When its first change was made, in seconds since 1970.
    made: Option<u64>,
    changes: Vec<(Option<Lsn>, bool)>,
    left: usize,
}

/// Tracks handled changes; see the module documentation.
#[derive(Debug)]
pub struct Watermark {
    pages: VecDeque<Page>,
    next: u64,
    reached: Option<Position>,
    /// Whether the feed can continue between two transactions of a page.
    inside_pages: bool,
}

impl Watermark {
    /// Creates a watermark at `stored`, without changes in progress.
    #[must_use]
    pub fn new(stored: Option<Position>, inside_pages: bool) -> Watermark {
        Watermark { pages: VecDeque::new(), next: 0, reached: stored, inside_pages }
    }

    /// Adds a page that was read. Returns a ticket for each of its changes, in order.
    pub fn begin(
        &mut self,
        lsns: impl IntoIterator<Item = Option<Lsn>>,
        after: Position,
    ) -> Vec<Ticket> {
        self.begin_made(lsns, after, None)
    }

    /// Adds a page whose first change was made at this time, in seconds since 1970.
    pub fn begin_made(
        &mut self,
        lsns: impl IntoIterator<Item = Option<Lsn>>,
        after: Position,
        made: Option<u64>,
    ) -> Vec<Ticket> {
        let changes: Vec<_> = lsns.into_iter().map(|lsn| (lsn, false)).collect();
        let (number, left) = (self.next, changes.len());
        self.next += 1;
        self.pages.push_back(Page { number, after, made, changes, left });
        self.advance();
        (0..left).map(|index| Ticket { page: number, index }).collect()
    }

    /// Marks changes as handled; idempotent. Returns how many were not marked before.
    pub fn done(&mut self, tickets: &[Ticket]) -> usize {
        let mut new = 0;
        for ticket in tickets {
            let page = self.pages.iter_mut().find(|page| page.number == ticket.page);
            if let Some(page) = page
                && let Some((_, done)) = page.changes.get_mut(ticket.index)
                && !std::mem::replace(done, true)
            {
                page.left -= 1;
                new += 1;
            }
        }
        self.advance();
        new
    }

    /// Returns the position up to which everything was handled; `None` if that is the unknown start.
    #[must_use]
    pub fn reached(&self) -> Option<&Position> {
        self.reached.as_ref()
    }

    /// Returns how many changes were added and are not below the watermark.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.pages.iter().map(|page| page.changes.len()).sum()
    }

    /// Returns how many changes are unhandled.
    #[must_use]
    pub fn unhandled(&self) -> usize {
        self.pages.iter().map(|page| page.left).sum()
    }

    /// Returns the LSN and the approximate time of the first unhandled change; `None` if there is none.
    #[must_use]
    pub fn first_unhandled(&self) -> Option<(Option<Lsn>, Option<u64>)> {
        let page = self.pages.iter().find(|page| page.left > 0)?;
        let first = page.changes.iter().find(|(_, done)| !done);
        Some((first.and_then(|(lsn, _)| *lsn), page.made))
    }

    fn advance(&mut self) {
        while let Some(page) = self.pages.front().filter(|page| page.left == 0) {
            self.reached = Some(page.after.clone());
            self.pages.pop_front();
        }
        if !self.inside_pages {
            return;
        }
        let Some(page) = self.pages.front() else { return };
        // The last transaction whose changes are all handled; the next change must belong to another one.
        let handled = page.changes.iter().take_while(|(_, done)| *done).count();
        let boundary = (1..=handled).rev().find_map(|count| {
            let (last, next) = (page.changes[count - 1].0?, page.changes.get(count)?.0?);
            (last < next).then_some(last)
        });
        if let Some(lsn) = boundary {
            self.reached = Some(Position::after(lsn));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lsn: u64) -> Position {
        Position::after(Lsn::new(lsn))
    }

    fn lsns(numbers: &[u64]) -> Vec<Option<Lsn>> {
        numbers.iter().map(|number| Some(Lsn::new(*number))).collect()
    }

    #[test]
    fn the_watermark_stops_at_the_first_unhandled_change() {
        let mut mark = Watermark::new(Some(at(4)), false);
        let one = mark.begin(lsns(&[5, 5, 6]), at(6));
        let two = mark.begin(lsns(&[7, 8]), at(8));
        mark.begin(lsns(&[]), at(9));
        mark.done(&two[1..]);
        mark.done(&one[1..]);
        assert_eq!(mark.reached(), Some(&at(4)));
        assert_eq!((mark.under_way(), mark.unhandled()), (5, 2));
        assert_eq!(mark.first_unhandled(), Some((Some(Lsn::new(5)), None)));
        mark.done(&one[..1]);
        mark.done(&one[..1]);
        assert_eq!(mark.reached(), Some(&at(6)));
        mark.done(&two[..1]);
        assert_eq!(mark.reached(), Some(&at(9)), "an empty page moves it as well");
        assert_eq!((mark.under_way(), mark.first_unhandled()), (0, None));
        mark.begin_made(lsns(&[12]), at(12), Some(77));
        assert_eq!(mark.first_unhandled(), Some((Some(Lsn::new(12)), Some(77))));
    }

    #[test]
    fn inside_a_page_it_stops_between_transactions() {
        let mut mark = Watermark::new(None, true);
        let page = mark.begin(lsns(&[5, 5, 6, 7, 7]), at(9));
        mark.done(&page[..1]);
        assert_eq!(mark.reached(), None, "half a transaction is none");
        mark.done(&page[1..2]);
        assert_eq!(mark.reached(), Some(&at(5)));
        mark.done(&page[3..]);
        assert_eq!(mark.reached(), Some(&at(5)));
        mark.done(&page[2..3]);
        assert_eq!(mark.reached(), Some(&at(9)));
    }
}
