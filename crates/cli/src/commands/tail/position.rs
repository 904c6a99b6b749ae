//! Tracks the position of everything printed, as one text to resume from. It reads nothing.

use super::reader::{Page, Piece};
use super::show::Change;
use headwater_client::FeedFrom;
use headwater_model::{ContainerRid, Continuation, KeyRange, Lsn, RangePosition};

/// The positions of all pieces that have one.
#[derive(Debug)]
pub(crate) struct Positions {
    container: ContainerRid,
    known: Vec<Known>,
}

/// The printed position of one piece. A merged range can have a different LSN in each part.
#[derive(Debug)]
struct Known {
    keys: KeyRange,
    positions: Vec<RangePosition>,
}

impl Positions {
    /// Starts at the positions of these pieces, before anything is printed.
    pub(crate) fn new(container: ContainerRid, pieces: &[Piece]) -> Positions {
        let mut positions = Positions { container, known: Vec::new() };
        positions.start(pieces);
        positions
    }

    /// Records that the first `wanted` changes of a page were printed.
    pub(crate) fn printed(&mut self, page: &Page, changes: &[Change<'_>], wanted: usize) {
        if wanted == changes.len() {
            return self.resume_at(&page.keys, &page.etag);
        }
        // With several positions, only the server knows how far each one was printed.
        if !matches!(page.etag.parse(), Ok(Continuation::Single(_))) {
            return;
        }
        // Changes with the same LSN are one transaction. Resuming after this LSN would skip its second half.
        let next = changes[wanted].lsn();
        let printed = changes[..wanted].iter().rev().filter_map(Change::lsn);
        if let Some(after) = printed.map(Some).find(|lsn| *lsn != next).flatten() {
            self.set(&page.keys, after);
        }
    }

    /// Records that these keys are finished up to a position of the server.
    pub(crate) fn resume_at(&mut self, keys: &KeyRange, etag: &str) {
        match etag.parse() {
            Ok(Continuation::Single(after)) => self.set(keys, after),
            Ok(Continuation::Composite { positions, .. }) => self.set_parts(keys, positions),
            Err(_) => {}
        }
    }

    /// Replaces pieces by others, at the positions they had.
    pub(crate) fn reshape(&mut self, gone: &[KeyRange], pieces: &[Piece]) {
        self.known.retain(|known| !gone.contains(&known.keys));
        self.start(pieces);
    }

    /// Records the starting positions. "Now" and times become positions with the first page.
    fn start(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            match &piece.from {
                FeedFrom::Beginning => self.set(&piece.keys, Lsn::new(0)),
                FeedFrom::After(etag) => self.resume_at(&piece.keys, etag),
                FeedFrom::Now | FeedFrom::Time(_) => {}
            }
        }
    }

    fn set(&mut self, keys: &KeyRange, after: Lsn) {
        self.set_parts(keys, vec![RangePosition { range: keys.clone(), after }]);
    }

    fn set_parts(&mut self, keys: &KeyRange, positions: Vec<RangePosition>) {
        let inside = positions.into_iter().filter_map(|position| {
            let range = position.range.intersect(keys)?;
            Some(RangePosition { range, after: position.after })
        });
        let positions: Vec<RangePosition> = inside.collect();
        match self.known.iter_mut().find(|known| known.keys == *keys) {
            Some(known) => known.positions = positions,
            None => self.known.push(Known { keys: keys.clone(), positions }),
        }
    }

    /// Returns the text. None before the first page, and for positions of a foreign server.
    pub(crate) fn text(&self) -> Option<String> {
        let mut known: Vec<RangePosition> =
            self.known.iter().flat_map(|known| known.positions.clone()).collect();
        known.sort_by(|one, other| one.range.min().cmp(other.range.min()));
        let position = Continuation::composite(self.container, known).ok()?;
        Some(position.to_string().trim_matches('"').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use headwater_model::{Epk, PartitionId};

    fn position(lsns: &[u64], etag: u64, wanted: usize) -> Option<Lsn> {
        let bodies: Vec<Bytes> =
            lsns.iter().map(|lsn| Bytes::from(format!(r#"{{"id":"x","_lsn":{lsn}}}"#))).collect();
        let changes: Vec<Change<'_>> = bodies.iter().map(|body| Change::of(body)).collect();
        let keys = KeyRange::full();
        let range = PartitionId::new(0);
        let etag = format!("\"{etag}\"");
        let page = Page { keys, range, changes: bodies.clone(), etag };
        let rid = ContainerRid::parse("AQAAAIAAAAE=").unwrap();
        let mut positions = Positions::new(rid, &[]);
        positions.printed(&page, &changes, wanted);
        let text = positions.text()?;
        text.parse::<Continuation>().unwrap().position_for(&KeyRange::full())
    }

    #[test]
    fn a_page_that_was_printed_in_part_is_gone_on_with_at_a_whole_transaction() {
        for (lsns, wanted, expected) in [
            (&[5, 6, 7][..], 3, Some(9)),
            (&[5, 6, 7], 2, Some(6)),
            (&[5, 6, 6], 2, Some(5)),
            (&[5, 5, 5], 2, None),
            (&[5, 6], 0, None),
        ] {
            assert_eq!(position(lsns, 9, wanted), expected.map(Lsn::new), "{lsns:?} {wanted}");
        }
    }

    #[test]
    fn children_start_where_their_parent_was() {
        let mut positions = Positions::new(ContainerRid::parse("AQAAAIAAAAE=").unwrap(), &[]);
        let all = KeyRange::full();
        positions.set(&all, Lsn::new(3));
        let (low, high) = all.split_at(&Epk::from_hex("1F").unwrap()).unwrap();
        let from = FeedFrom::After("\"7\"".to_owned());
        let piece = |keys: &KeyRange| Piece { keys: keys.clone(), from: from.clone() };
        positions.reshape(std::slice::from_ref(&all), &[piece(&high), piece(&low)]);
        let position: Continuation = positions.text().unwrap().parse().unwrap();
        assert_eq!(position.position_for(&high), Some(Lsn::new(7)));
        assert_eq!(position.position_for(&all), Some(Lsn::new(7)));
        positions.reshape(&[low, high], &[piece(&all)]);
        assert_eq!(positions.known.len(), 1, "joined, it is one position again");
    }
}
