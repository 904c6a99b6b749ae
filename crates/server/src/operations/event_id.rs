//! The id of a server-sent event: where a stream resumes right behind that event.
//!
//! A position of the change feed is behind whole transactions. The id of an event inside a transaction is the
//! position before the transaction and the last of its changes that was sent:
//!
//! ```text
//! 28535                            all of transaction 28535 was sent
//! 28534~3A53…49B7.28535.2          of transaction 28535 of this hashed key, changes 0 to 2 were sent
//! AQAA…~05C1…A0.7.0~3A53…B7.9.4    the same in two ranges: a resumed stream sent events of another range first
//! ```
//!
//! A change is known by its ordinal, not by its place on a page: latest versions and filters leave changes out, and
//! a later page can leave out more. All changes of a transaction have one partition key, and a key has each LSN
//! once, so the hashed key and the LSN name the transaction, also after splits and merges. Never used as a position
//! of the feed itself: `If-None-Match` does not accept it.

use headwater_model::{BadContinuation, Continuation, Epk, KeyRange, Lsn};
use headwater_store::{Change, RangeInfo};
use std::collections::BTreeSet;
use std::fmt;

const NOT_OURS: &str =
    "the event id is not one of ours; send back the `id` of the last event unchanged, or none";

/// Separates the position from the transactions that were sent in part. Not a character of positions.
const SEPARATOR: char = '~';

/// What was sent before and with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventId {
    /// All transactions up to here were sent.
    position: Continuation,
    /// Transactions behind the position that were sent in part. At most one of each range, except where ranges were
    /// merged.
    partial: Vec<PartialTransaction>,
}

/// The part of a transaction that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PartialTransaction {
    /// The hashed partition key of its changes.
    key: Epk,
    lsn: Lsn,
    /// The last change that was sent.
    ordinal: u16,
}

impl PartialTransaction {
    /// Whether a position is behind the transaction; `None` if it says nothing about its key.
    fn is_before(&self, position: &Continuation) -> Option<bool> {
        Some(self.lsn <= position.position_for(&KeyRange::point(&self.key))?)
    }
}

impl From<Continuation> for EventId {
    fn from(position: Continuation) -> EventId {
        EventId { position, partial: Vec::new() }
    }
}

impl EventId {
    /// Parses the id of an event or a position of the feed. Accepts only texts that are written here.
    ///
    /// # Errors
    /// A message for the client.
    pub(super) fn parse(text: &str) -> Result<EventId, String> {
        let (position, parts) = match text.split_once(SEPARATOR) {
            Some((position, parts)) => (position, Some(parts)),
            None => (text, None),
        };
        let position: Continuation = position.parse().map_err(|error| match error {
            BadContinuation::Empty | BadContinuation::Form => NOT_OURS.to_owned(),
            other => other.to_string(),
        })?;
        let mut id = EventId::from(position);
        let Some(parts) = parts else { return Ok(id) };
        for part in parts.split(SEPARATOR) {
            let partial = parse_partial(part).ok_or(NOT_OURS)?;
            if partial.is_before(&id.position) != Some(false) {
                return Err(NOT_OURS.to_owned());
            }
            id.partial.push(partial);
        }
        let transactions: BTreeSet<_> = id.partial.iter().map(|one| (&one.key, one.lsn)).collect();
        // A number can be written in several ways, and one of them is ours.
        if transactions.len() < id.partial.len() || id.to_string() != text {
            return Err(NOT_OURS.to_owned());
        }
        Ok(id)
    }

    /// The position from which to read on.
    pub(super) fn position(&self) -> &Continuation {
        &self.position
    }

    /// Whether a transaction that was sent in part is ahead of the container: changes that are still to be written
    /// under its LSN would be taken for sent.
    pub(super) fn is_ahead_of(&self, ranges: &[RangeInfo]) -> bool {
        self.partial.iter().any(|partial| {
            let range = ranges.iter().find(|range| range.range.contains(partial.key.as_bytes()));
            range.is_some_and(|range| partial.lsn > range.lsn)
        })
    }

    /// Whether a change was sent with this event or an earlier one.
    pub(super) fn has_sent(&self, change: &Change) -> bool {
        self.partial.iter().any(|partial| {
            partial.lsn == change.lsn()
                && change.ordinal() <= partial.ordinal
                && partial.key.as_bytes() == change.hashed_key()
        })
    }

    /// Moves behind one more change, inside its transaction.
    pub(super) fn move_behind(&mut self, change: &Change) {
        let (key, lsn, ordinal) = (change.hashed_key(), change.lsn(), change.ordinal());
        let mut partial = self.partial.iter_mut();
        match partial.find(|known| known.lsn == lsn && known.key.as_bytes() == key) {
            Some(known) => known.ordinal = ordinal,
            None => {
                let key = Epk::from_bytes(key);
                self.partial.push(PartialTransaction { key, lsn, ordinal });
            }
        }
    }

    /// Moves behind a page.
    pub(super) fn move_to(&mut self, position: Continuation) {
        self.partial.retain(|partial| partial.is_before(&position) == Some(false));
        self.position = position;
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.position.to_string().trim_matches('"'))?;
        for PartialTransaction { key, lsn, ordinal } in &self.partial {
            write!(f, "{SEPARATOR}{key}.{lsn}.{ordinal}")?;
        }
        Ok(())
    }
}

fn parse_partial(text: &str) -> Option<PartialTransaction> {
    let mut fields = text.split('.');
    let (key, lsn, ordinal) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() {
        return None;
    }
    Some(PartialTransaction {
        key: Epk::from_hex(key).ok()?,
        lsn: lsn.parse().ok()?,
        ordinal: ordinal.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_model::{ContainerRid, RangePosition};

    fn composite(after: [u64; 2]) -> Continuation {
        let middle = Epk::from_hex("80").unwrap();
        let (lower, upper) = KeyRange::full().split_at(&middle).unwrap();
        let positions = [lower, upper].into_iter().zip(after);
        let positions =
            positions.map(|(range, after)| RangePosition { range, after: Lsn::new(after) });
        Continuation::composite(ContainerRid::new(1, 1), positions.collect()).unwrap()
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let both = composite([6, 8]).to_string();
        let both = both.trim_matches('"');
        for text in [
            "28535".to_owned(),
            "28534~3A5381.28535.2".to_owned(),
            "0~3A5381.1.0".to_owned(),
            "6~3A.7.65535~3B.7.0".to_owned(),
            both.to_owned(),
            format!("{both}~05C1.7.0~90.9.4"),
        ] {
            assert_eq!(EventId::parse(&text).unwrap().to_string(), text);
        }
        let quoted = EventId::parse("\"28535\"").unwrap();
        assert_eq!(quoted, EventId::from(Continuation::Single(Lsn::new(28535))));
    }

    #[test]
    fn other_texts_are_refused() {
        let both = composite([6, 8]).to_string();
        let both = both.trim_matches('"');
        for text in [
            "6~",
            "~3A.7.0",
            "6~3A.7",
            "6~3A.7.0.0",
            "6~3A.7.0~",
            "6~~3A.7.0",
            "6~3A.7.-1",
            "6~3A.7.+1",
            "6~3A.07.1",
            "6~3A.7.65536",
            "6~3a.7.0",
            "6~3.7.0",
            "6~3A.6.0",
            "6~3A.5.0",
            "6~3A.18446744073709551615.0",
            "6~3A.7.0~3A.7.1",
            "\"6\"~3A.7.0",
            "\"6~3A.7.0\"",
            " 6~3A.7.0",
            "6~3A.7.0 ",
            "6~é.7.0",
            &format!("{both}~90.8.0"),
            &format!("{both}~05C1.6.0"),
        ] {
            let refused = EventId::parse(text);
            assert!(refused.is_err(), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_transaction_is_kept_until_the_position_of_its_key_is_behind_it() {
        let text = format!("{}~05C1.7.0~90.9.4", composite([6, 8]).to_string().trim_matches('"'));
        let mut id = EventId::parse(&text).unwrap();
        id.move_to(composite([6, 9]));
        assert_eq!(id.partial.len(), 1, "{id}");
        assert!(id.to_string().ends_with("~05C1.7.0"), "{id}");
        id.move_to(composite([7, 9]));
        assert_eq!(id, EventId::from(composite([7, 9])));
    }
}
