//! Conformance tests for every [`PartitionLog`], called by a test of each implementation.
//!
//! All of them append through [`append_decided`], as the writer of a partition does, so they also hold for logs
//! with lost or wrong answers. They never look at files.

use crate::entry::{Group, GroupBuilder, NewRecord, RecordKind, Tail};
use crate::{AppendError, PartitionLog, append_decided};
use headwater_model::{Lsn, PartitionId, Timestamp};
use headwater_runtime::Runtime;

/// Runs every check on a new, empty log.
///
/// # Panics
/// When the log does not conform.
pub async fn check(log: &dyn PartitionLog, partition: PartitionId, runtime: &Runtime) {
    let mut tail = Tail::start(Lsn::ZERO);
    tail = entries_are_read_back(log, partition, runtime, tail).await;
    tail = the_same_group_twice_is_written_once(log, partition, runtime, tail).await;
    tail = a_taken_slot_is_refused(log, partition, runtime, tail).await;
    the_tail_moves_forward(log, partition, runtime, tail).await;
}

fn group(partition: PartitionId, after: Tail, batch: u128, entries: usize) -> Group {
    let mut builder = GroupBuilder::new(partition, 0, after);
    for number in 0..entries {
        builder.begin(Timestamp::from_seconds(1_000), batch + number as u128);
        builder.record(&NewRecord {
            kind: RecordKind::Put,
            supersedes: None,
            epk: &[1; 16],
            meta: &batch.to_le_bytes(),
            body: b"body",
        });
        builder.finish();
    }
    builder.build()
}

async fn must_append(log: &dyn PartitionLog, group: &Group, runtime: &Runtime) -> Tail {
    append_decided(log, group, runtime).await.expect("a free slot can be written");
    group.tail()
}

/// Reads a slot that must be written, and retries stale and lost answers.
async fn batch_in(log: &dyn PartitionLog, lsn: Lsn) -> u128 {
    for _ in 0..1_000 {
        if let Ok(Some(entry)) = log.entry(lsn).await {
            return entry.batch;
        }
    }
    panic!("LSN {lsn} was acknowledged but cannot be read");
}

async fn entries_are_read_back(
    log: &dyn PartitionLog,
    partition: PartitionId,
    runtime: &Runtime,
    mut tail: Tail,
) -> Tail {
    for round in 0..20_u128 {
        let sent = group(partition, tail, 1_000 * (round + 1), 1 + (round % 4) as usize);
        tail = must_append(log, &sent, runtime).await;
        for entry in sent.entries() {
            assert_eq!(batch_in(log, entry.lsn).await, entry.batch, "LSN {}", entry.lsn);
        }
    }
    tail
}

async fn the_same_group_twice_is_written_once(
    log: &dyn PartitionLog,
    partition: PartitionId,
    runtime: &Runtime,
    tail: Tail,
) -> Tail {
    let sent = group(partition, tail, 50_000, 3);
    let end = must_append(log, &sent, runtime).await;
    assert_eq!(must_append(log, &sent, runtime).await, end);
    let next = group(partition, end, 60_000, 1);
    must_append(log, &next, runtime).await
}

async fn a_taken_slot_is_refused(
    log: &dyn PartitionLog,
    partition: PartitionId,
    runtime: &Runtime,
    tail: Tail,
) -> Tail {
    let winner = group(partition, tail, 70_000, 1);
    let end = must_append(log, &winner, runtime).await;
    let loser = group(partition, tail, 80_000, 2);
    let refused = append_decided(log, &loser, runtime).await;
    assert!(matches!(refused, Err(AppendError::Conflict { .. })), "{refused:?}");
    assert_eq!(batch_in(log, end.lsn).await, 70_000);
    end
}

async fn the_tail_moves_forward(
    log: &dyn PartitionLog,
    partition: PartitionId,
    runtime: &Runtime,
    mut tail: Tail,
) {
    let mut seen = Lsn::ZERO;
    for round in 0..20_u128 {
        tail = must_append(log, &group(partition, tail, 90_000 + round, 1), runtime).await;
        let answer = log.tail().await.expect("a log knows its tail");
        assert!(answer.lsn <= tail.lsn, "a log never claims more than was written");
        seen = seen.max(answer.lsn);
    }
    assert!(seen.next() >= tail.lsn, "a stale answer is at most one append old here");
}
