//! How far everything printed goes, as one text to go on from.

use super::reader::{Page, Piece};
use super::show::Change;
use headwater_client::FeedFrom;
use headwater_model::{ContainerRid, Continuation, KeyRange, Lsn, RangePosition};

/// A position in each piece that has one.
#[derive(Debug)]
pub(crate) struct Positions {
    container: ContainerRid,
    known: Vec<RangePosition>,
}

impl Positions {
    /// Nothing was printed yet of these pieces.
    pub(crate) fn new(container: ContainerRid, pieces: &[Piece]) -> Positions {
        let mut positions = Positions { container, known: Vec::new() };
        positions.start(pieces);
        positions
    }

    /// The first `wanted` changes of a page were printed.
    pub(crate) fn printed(&mut self, page: &Page, changes: &[Change<'_>], wanted: usize) {
        let after = if wanted == changes.len() {
            lsn_of(&page.etag)
        } else {
            // What has one LSN is one transaction: its second half would be lost behind its LSN.
            let next = changes[wanted].lsn();
            let printed = changes[..wanted].iter().rev().filter_map(Change::lsn);
            printed.map(Some).find(|lsn| *lsn != next).flatten()
        };
        if let Some(after) = after {
            self.set(&page.keys, after);
        }
    }

    /// Pieces became others, at the position they had.
    pub(crate) fn reshape(&mut self, gone: &[KeyRange], pieces: &[Piece]) {
        self.known.retain(|known| !gone.contains(&known.range));
        self.start(pieces);
    }

    /// Only a position can be written down: "now" and times become one with the first page.
    fn start(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            let after = match &piece.from {
                FeedFrom::Beginning => Some(Lsn::new(0)),
                FeedFrom::After(etag) => lsn_of(etag),
                FeedFrom::Now | FeedFrom::Time(_) => None,
            };
            if let Some(after) = after {
                self.set(&piece.keys, after);
            }
        }
    }

    fn set(&mut self, keys: &KeyRange, after: Lsn) {
        match self.known.iter_mut().find(|known| known.range == *keys) {
            Some(known) => known.after = after,
            None => self.known.push(RangePosition { range: keys.clone(), after }),
        }
    }

    /// The text; nothing before anything was read, or where positions are not ours to write.
    pub(crate) fn text(&self) -> Option<String> {
        let mut known = self.known.clone();
        known.sort_by(|one, other| one.range.min().cmp(other.range.min()));
        let position = Continuation::composite(self.container, known).ok()?;
        Some(position.to_string().trim_matches('"').to_owned())
    }
}

fn lsn_of(etag: &str) -> Option<Lsn> {
    match etag.parse() {
        Ok(Continuation::Single(lsn)) => Some(lsn),
        _ => None,
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
