//! The invariants that a reader of a log may rely on, each defined once.
//!
//! Pure functions over request and response, shared by assertions in this crate, its tests and the simulation.
//! Each returns a description of the violation. None of them reads a log.
//!
//! ```text
//! asked    after 4, upto 9, 2 records       log 5:a 6:(b,c) 7:a' 8:✗b 9:d
//! answered [5:a]                 scanned 5   broken: one more record was asked for and there
//! answered [5:a, 6:b]            scanned 6   broken: entry 6 was cut
//! answered [5:a, 6:b, 6:c]       scanned 6   fine: a page ends where an entry does
//! ```

use crate::entry::{Position, Record};
use crate::read::{Batch, ReadRequest};
use headwater_model::Lsn;
use std::collections::BTreeSet;

/// `Ok`, or a description of the violation.
pub type Promise = Result<(), String>;

fn promise(kept: bool, broken: impl FnOnce() -> String) -> Promise {
    if kept { Ok(()) } else { Err(broken()) }
}

/// Checks a page against its request, without the log.
///
/// The page starts after the requested position, is in order, ends no later than `scanned`, and stops before
/// `upto` only when it is full.
///
/// # Errors
/// When the page breaks the promise.
pub fn page_answers_request(request: &ReadRequest<'_>, page: &Batch) -> Promise {
    records_are_in_order(request.after, &page.records)?;
    position_moves_forward(request.after, page.scanned)?;
    let last = page.records.last().map(|record| record.position.lsn);
    promise(last.is_none_or(|last| last <= page.scanned), || {
        format!("the page says it ends at {}, but has {last:?}", page.scanned)
    })?;
    promise(page.scanned <= request.upto.max(request.after), || {
        format!("the page goes to {}, behind {}", page.scanned, request.upto)
    })?;
    let shown = |record: &Record| request.which.shows(record.kind);
    promise(page.records.iter().all(shown), || {
        format!("{:?} does not show every record of the page", request.which)
    })?;
    let inside = |record: &Record| {
        let range = request.range;
        range.is_none_or(|range| range.contains(record.epk()))
    };
    promise(page.records.iter().all(inside), || {
        format!("a record lies outside {:?}", request.range)
    })?;
    page_stops_when_full(request, page)
}

/// A page ends with the LSN at which it is full: not before, unless the log ends there, and not after.
fn page_stops_when_full(request: &ReadRequest<'_>, page: &Batch) -> Promise {
    let is_full = |records: &[Record]| {
        let bytes: usize = records.iter().map(Record::content_bytes).sum();
        records.len() >= request.records_max.max(1) || bytes >= request.bytes_max.max(1)
    };
    let ended = page.scanned >= request.upto;
    promise(ended || is_full(&page.records), || {
        format!("the page has room, but stops at {}, before {}", page.scanned, request.upto)
    })?;
    let last = page.records.last().map(|record| record.position.lsn);
    let before_last = page.records.partition_point(|record| Some(record.position.lsn) < last);
    promise(!is_full(&page.records[..before_last]), || {
        format!("the page was full before LSN {last:?}")
    })
}

/// Records are in LSN order, all after `after`, without duplicates.
///
/// # Errors
/// When they do not.
pub fn records_are_in_order(after: Lsn, records: &[Record]) -> Promise {
    let mut before = after;
    // Only records of the same LSN can be duplicates.
    let mut same_lsn: BTreeSet<Position> = BTreeSet::new();
    for record in records {
        let position = record.position;
        promise(position.lsn > after && position.lsn >= before, || {
            format!("LSN {} comes after {before}, read after {after}", position.lsn)
        })?;
        if position.lsn > before {
            same_lsn.clear();
        }
        promise(same_lsn.insert(position), || format!("{position:?} comes twice"))?;
        before = position.lsn;
    }
    Ok(())
}

/// A position never moves back.
///
/// # Errors
/// When the position moved back.
pub fn position_moves_forward(before: Lsn, now: Lsn) -> Promise {
    promise(now >= before, || format!("the position moved back from {before} to {now}"))
}

/// A page continues where the previous one ended, and no LSN is split between them.
///
/// # Errors
/// When an LSN is in both pages, or the second was not read from the end of the first.
pub fn pages_join(first: &Batch, second: &Batch) -> Promise {
    position_moves_forward(first.scanned, second.scanned)?;
    let next = second.records.first().map(|record| record.position.lsn);
    promise(next.is_none_or(|next| next > first.scanned), || {
        format!("LSN {next:?} comes again after a page up to {}", first.scanned)
    })
}

/// The records are exactly the expected ones, each once.
///
/// Expected are the live records in latest-version mode, and all records after a complete position in
/// all-versions mode.
///
/// # Errors
/// When a record is missing, unexpected or duplicated.
pub fn exactly_these(expected: &BTreeSet<Position>, records: &[Record]) -> Promise {
    let seen: BTreeSet<Position> = records.iter().map(|record| record.position).collect();
    let missing: Vec<_> = expected.difference(&seen).take(3).collect();
    let extra: Vec<_> = seen.difference(expected).take(3).collect();
    promise(missing.is_empty() && extra.is_empty(), || {
        format!("missing {missing:?}, too many {extra:?}")
    })?;
    promise(records.len() == expected.len(), || "a record comes twice".to_owned())
}

/// After a crash the log ends at or after the last acknowledged entry, and not after the last sent one.
///
/// # Errors
/// When the log ends too early or too late.
pub fn tail_survives_crash(acknowledged: Lsn, sent: Lsn, found: Lsn) -> Promise {
    promise(acknowledged <= found, || {
        format!("LSN {acknowledged} was acknowledged, but the log ends at {found}")
    })?;
    promise(found <= sent, || {
        format!("the log ends at {found}, but nothing was sent behind {sent}")
    })
}

/// An entry is complete: it has the records that were sent, in order.
///
/// # Errors
/// When the records differ.
pub fn entry_is_whole(sent: &[Position], found: &[Record]) -> Promise {
    let found: Vec<Position> = found.iter().map(|record| record.position).collect();
    promise(sent == found, || format!("sent {sent:?}, found {found:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{self, GroupBuilder, NewRecord, RecordKind, Tail};
    use crate::read::Which;
    use headwater_model::{PartitionId, Timestamp};

    /// Entries of one record each, apart from entry 6, which has two.
    fn log() -> Vec<Record> {
        let mut group = GroupBuilder::new(PartitionId::new(1), 0, Tail::start(Lsn::new(4)));
        for records in [1, 2, 1] {
            group.begin(Timestamp::from_seconds(9), 1);
            for _ in 0..records {
                group.record(&NewRecord {
                    kind: RecordKind::Put,
                    supersedes: None,
                    epk: &[1],
                    meta: b"",
                    body: b"body",
                });
            }
            group.finish();
        }
        let group = group.build();
        let decoded = group.entries().iter().map(|placed| {
            let bytes = group.bytes().slice(placed.bytes.clone());
            entry::decode(&bytes).unwrap().1.records
        });
        decoded.flatten().collect()
    }

    #[track_caller]
    fn check(records: &[usize], scanned: u64, broken: Option<&str>) {
        let log = log();
        let request = ReadRequest {
            after: Lsn::new(4),
            upto: Lsn::new(7),
            which: Which::AllVersions,
            range: None,
            records_max: 2,
            bytes_max: 1000,
        };
        let page = Batch {
            records: records.iter().map(|index| log[*index].clone()).collect(),
            scanned: Lsn::new(scanned),
        };
        let kept = page_answers_request(&request, &page);
        match broken {
            None => assert_eq!(kept, Ok(()), "{records:?}"),
            Some(words) => {
                let said = kept.unwrap_err();
                assert!(said.contains(words), "{records:?}: {said}");
            }
        }
    }

    #[test]
    fn pages() {
        check(&[0, 1, 2], 6, None);
        check(&[0], 7, None);
        check(&[], 7, None);
        check(&[1, 0], 7, Some("comes after"));
        check(&[0, 0], 7, Some("twice"));
        check(&[0, 1, 2], 5, Some("ends at 5"));
        check(&[0, 1], 3, Some("moved back"));
        check(&[0, 1, 2], 8, Some("behind 7"));
        check(&[], 6, Some("has room"));
        check(&[0], 5, Some("has room"));
        check(&[0, 1, 2, 3], 7, Some("was full before"));
    }

    #[test]
    fn neighbouring_pages() {
        let page = |records: &[Record], scanned| Batch {
            records: records.to_vec(),
            scanned: Lsn::new(scanned),
        };
        let log = log();
        assert_eq!(pages_join(&page(&log[..3], 6), &page(&log[3..], 7)), Ok(()));
        assert!(pages_join(&page(&log[..2], 6), &page(&log[2..], 7)).is_err());
        assert!(pages_join(&page(&log, 7), &page(&[], 6)).is_err());
    }

    #[test]
    fn sets_of_records() {
        let log = log();
        let all: BTreeSet<Position> = log.iter().map(|record| record.position).collect();
        assert_eq!(exactly_these(&all, &log), Ok(()));
        assert!(exactly_these(&all, &log[1..]).unwrap_err().contains("missing [Position"));
        assert!(exactly_these(&BTreeSet::new(), &log[..1]).unwrap_err().contains("too many [Pos"));
        let twice = [log[0].clone(), log[0].clone()];
        assert!(exactly_these(&BTreeSet::from([log[0].position]), &twice).is_err());
        assert_eq!(entry_is_whole(&[log[1].position, log[2].position], &log[1..3]), Ok(()));
        assert!(entry_is_whole(&[log[1].position, log[2].position], &log[1..2]).is_err());
    }

    #[test]
    fn ends_of_logs() {
        let end = |acknowledged, sent, found| {
            tail_survives_crash(Lsn::new(acknowledged), Lsn::new(sent), Lsn::new(found))
        };
        assert_eq!(end(5, 7, 5), Ok(()));
        assert_eq!(end(5, 7, 7), Ok(()));
        assert!(end(5, 7, 4).is_err());
        assert!(end(5, 7, 8).is_err());
    }
}
