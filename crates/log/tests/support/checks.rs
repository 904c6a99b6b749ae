//! Reads a log in every mode and compares the results with the written history.

use super::byte;
use super::history::{Fact, History, Key, key_of};
use headwater_log::{
    Batch, LocalLog, Opened, Position, ReadError, ReadRequest, Record, RecordKind, Which,
    invariants,
};
use headwater_model::{Epk, KeyRange, Lsn, Timestamp};
use headwater_runtime::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Reads a whole request page by page, and checks each page and the joins between them.
pub(crate) fn read_all(
    log: &LocalLog,
    request: &ReadRequest<'_>,
) -> Result<Vec<Record>, ReadError> {
    let mut request = request.clone();
    // Reads end at the tail, even if `upto` is higher.
    let end = request.upto.min(log.local_tail().lsn).max(request.after);
    let mut records = Vec::new();
    let mut before: Option<Batch> = None;
    loop {
        let page = log.read(&request)?;
        let answered = ReadRequest { upto: end, ..request.clone() };
        assert_eq!(invariants::page_answers_request(&answered, &page), Ok(()));
        if let Some(before) = &before {
            assert_eq!(invariants::pages_join(before, &page), Ok(()));
        }
        records.extend(page.records.iter().cloned());
        if page.scanned >= end {
            return Ok(records);
        }
        assert!(page.scanned > request.after, "a page makes progress");
        request.after = page.scanned;
        before = Some(page);
    }
}

/// A request for the whole log, in pages of `records_max` records.
pub(crate) fn whole(which: Which, records_max: usize) -> ReadRequest<'static> {
    ReadRequest {
        after: Lsn::ZERO,
        upto: Lsn::new(u64::MAX),
        which,
        range: None,
        records_max,
        bytes_max: usize::MAX,
    }
}

/// Compares all reads of a log with its history.
pub(crate) fn check_all(log: &LocalLog, history: &History) {
    assert_eq!(log.local_tail(), history.tail);
    for which in [Which::Live, Which::AllVersions, Which::Everything] {
        check_read(log, history, &whole(which, 40));
    }
    check_replay(log, history);
    check_records(log, history);
}

/// Compares the result of one request with the history.
pub(crate) fn check_read(log: &LocalLog, history: &History, request: &ReadRequest<'_>) {
    let complete_after = log.complete_after();
    let keys = request.range.cloned().unwrap_or_else(KeyRange::full);
    let floor = log.complete_by_key(&keys).into_iter().map(|(_, floor)| floor).max().unwrap();
    let records = match read_all(log, request) {
        Ok(records) => records,
        Err(ReadError::BeforeRetention { asked, oldest }) => {
            assert_eq!(request.which, Which::AllVersions);
            assert!(asked == request.after && asked < oldest && oldest == floor);
            return;
        }
        Err(error) => panic!("{request:?}: {error}"),
    };
    let facts: BTreeMap<Position, &Fact> =
        history.facts.iter().map(|fact| (fact.position, fact)).collect();
    for record in &records {
        let fact = facts.get(&record.position);
        fact.unwrap_or_else(|| panic!("{:?} was never written", record.position)).assert_is(record);
    }
    let asked = |fact: &&Fact| fact.is_in(request.range);
    let between = || history.between(request.after, request.upto).filter(asked);
    let live = history.live();
    match request.which {
        Which::Live => {
            let at_end = history.live_at(request.upto);
            let seen: BTreeSet<Position> = records.iter().map(|record| record.position).collect();
            // A record superseded after the reader's end is visible to it, unless compaction has dropped it.
            let is_kept = |at: &Position| live.contains(at) || at.lsn > complete_after;
            let expected = between().map(|fact| fact.position).filter(|at| at_end.contains(at));
            let expected = expected.filter(|at| is_kept(at) || seen.contains(at));
            assert_eq!(invariants::exactly_these(&expected.collect(), &records), Ok(()));
        }
        Which::AllVersions => {
            assert!(request.after >= floor, "too old a position was answered");
            let expected = between().filter(|fact| fact.kind != RecordKind::Control);
            let expected = expected.map(|fact| fact.position).collect();
            assert_eq!(invariants::exactly_these(&expected, &records), Ok(()));
        }
        Which::Everything => {
            let seen: BTreeSet<Position> = records.iter().map(|record| record.position).collect();
            for fact in between() {
                let must = fact.position.lsn > complete_after || live.contains(&fact.position);
                let superseded_control = fact.kind == RecordKind::Control;
                assert!(
                    seen.contains(&fact.position) || !must || superseded_control,
                    "{:?} is missing",
                    fact.position
                );
            }
        }
    }
}

/// A replay of the log by key gives the live items, also after compaction.
fn check_replay(log: &LocalLog, history: &History) {
    let records = read_all(log, &whole(Which::Everything, 100)).unwrap();
    let newest = newest_by_key(&records, |_| {});
    let live: BTreeSet<Position> = newest
        .values()
        .filter(|record| record.kind == RecordKind::Put)
        .map(|record| record.position)
        .collect();
    assert_eq!(live, history.live(), "a replay gives other live items");
}

fn newest_by_key<'a>(
    records: &'a [Record],
    mut superseded: impl FnMut(&'a Record),
) -> BTreeMap<Key, &'a Record> {
    let mut newest = BTreeMap::new();
    for record in records {
        if record.kind == RecordKind::Control {
            continue;
        }
        if let Some(before) = newest.insert(key_of(record), record) {
            superseded(before);
        }
    }
    newest
}

/// Restores lost dead bits by a replay, as the owner of a log does.
pub(crate) fn restore_liveness(opened: &Opened) {
    try_restore_liveness(opened).unwrap();
}

/// Like [`restore_liveness`], for a log that may be damaged.
pub(crate) fn try_restore_liveness(opened: &Opened) -> Result<(), ReadError> {
    if !opened.liveness_lost {
        return Ok(());
    }
    let log = &opened.log;
    let records = read_all(log, &whole(Which::Everything, 100))?;
    let mut superseded = Vec::new();
    newest_by_key(&records, |before| superseded.push(before));
    for before in superseded {
        log.mark_dead(before.position, before.epk())?;
    }
    log.liveness_restored();
    Ok(())
}

/// Checks that every record is found at its position, unless compaction may have dropped it.
fn check_records(log: &LocalLog, history: &History) {
    let live = history.live();
    let facts = history.facts.iter().filter(|fact| fact.kind != RecordKind::Control);
    for fact in facts.step_by(3) {
        check_record(log, fact, live.contains(&fact.position));
    }
}

pub(crate) fn check_record(log: &LocalLog, fact: &Fact, is_live: bool) {
    match log.record(fact.position, &fact.epk()).unwrap() {
        Some(record) => fact.assert_is(&record),
        None => {
            let dropped = fact.position.lsn <= log.complete_after() && !is_live;
            assert!(dropped, "{:?} is gone", fact.position);
        }
    }
}

/// Checks that nothing written at or after `time` is before the position found for it.
pub(crate) fn check_position_before(log: &LocalLog, history: &History, time: Timestamp) {
    let position = log.position_before(time).unwrap();
    assert!(position <= history.tail.lsn);
    let late = |fact: &&Fact| fact.timestamp.as_seconds() >= time.as_seconds();
    let live = history.live();
    let kept = |fact: &&Fact| {
        let control = fact.kind == RecordKind::Control;
        live.contains(&fact.position) || !control && fact.position.lsn > log.complete_after()
    };
    for fact in history.facts.iter().filter(late).filter(kept) {
        assert!(
            fact.position.lsn > position,
            "{:?} was written at {}, but {time} is found at {position}",
            fact.position,
            fact.timestamp
        );
    }
    if log.start() == Lsn::ZERO && log.complete_after() == Lsn::ZERO {
        let first = history.facts.iter().find(late).map(|fact| fact.position.lsn);
        let exact = first.map_or(history.tail.lsn, Lsn::previous);
        assert_eq!(position, exact, "at {time}");
    }
}

/// A random read request.
pub(crate) fn random_request<'a>(
    random: &mut Random,
    history: &History,
    range: Option<&'a KeyRange>,
) -> ReadRequest<'a> {
    let tail = history.tail.lsn.get();
    let after = match random.below(3) {
        0 => 0,
        1 => random.below(tail + 2),
        _ => tail.saturating_sub(random.below(6)),
    };
    let upto = match random.below(3) {
        0 => u64::MAX,
        1 => tail,
        _ => random.below(tail + 3),
    };
    ReadRequest {
        after: Lsn::new(after),
        upto: Lsn::new(upto),
        which: *random.pick(&[Which::Live, Which::AllVersions, Which::Everything]),
        range,
        records_max: random.index(12),
        bytes_max: *random.pick(&[0, 1, 100, 1000, 1 << 20]),
    }
}

/// A random range of hashed keys.
pub(crate) fn random_range(random: &mut Random) -> KeyRange {
    loop {
        let mut bound = || Epk::from_bytes(&[byte(random, 0xFF)]);
        if let Ok(range) = KeyRange::new(bound(), bound()) {
            return range;
        }
    }
}
