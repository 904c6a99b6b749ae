//! Recovery: applies a partition's log to the index.
//!
//! Usually that is a few entries after the last applied LSN. If the index does not know the partition, or the
//! dead bits of the log are lost, all entries are applied again. Without dead bits, the newest record of an
//! item is found by its key.
//!
//! An index can be ahead of its log. Where every append was synced, the log has lost entries: damage. With
//! durability `os` a power cut may remove the end of the log; then the index is rebuilt from the rest. The
//! old rows are durably invalidated first. Never writes the log, except for dead bits.

use super::apply::apply;
use crate::account::Shared;
use crate::error::{OpenError, StorageError};
use crate::index::{Batch, Index, remove_range};
use crate::item::Meta;
use crate::keys::{self, ItemRow, Key, PartitionRow};
use headwater_log::{Damage, LocalLog, Opened, ReadRequest, Record, RecordKind, Which};
use headwater_model::{ContainerRid, KeyRange, Lsn, PartitionId};
use headwater_runtime::Stop;
use std::collections::HashMap;

/// Records applied in one batch.
const RECORDS_AT_ONCE: usize = 4_096;
/// Item numbers hold the creating partition in their upper bits, so they stay unique over splits and merges
/// and increase with the partition number.
const RID_PARTITION_SHIFT: u32 = 36;

/// The first item number of a partition.
pub(crate) fn first_rid(partition: PartitionId) -> u64 {
    (u64::from(partition.get()) << RID_PARTITION_SHIFT) + 1
}

/// The index to update, and the LSN to stop at.
pub(crate) struct Target<'a> {
    pub(crate) index: &'a dyn Index,
    pub(crate) upto: Lsn,
    /// The tally of items to store in the partition's row.
    pub(crate) tally: i64,
    /// Interrupts the work when requested.
    pub(crate) stop: Option<&'a Stop>,
}

/// Applies pending entries to the index of an open store. Returns the next item number.
pub(crate) fn catch_up(
    shared: &Shared,
    container: ContainerRid,
    range: &KeyRange,
    opened: &Opened,
) -> Result<u64, OpenError> {
    let upto = opened.log.local_tail().lsn;
    let target = Target { index: &*shared.index, upto, tally: 0, stop: None };
    catch_up_to(shared, container, range, opened, &target)
}

/// Like [`catch_up`], for any index.
///
/// # Errors
/// [`StorageError::Closed`] when a stop was requested.
pub(crate) fn catch_up_to(
    shared: &Shared,
    container: ContainerRid,
    range: &KeyRange,
    opened: &Opened,
    target: &Target<'_>,
) -> Result<u64, OpenError> {
    let Target { index, upto: tail, .. } = *target;
    let log = &opened.log;
    let row = index.get(&keys::partition(container, log.partition()))?;
    let state = row.and_then(|value| PartitionRow::decode(&value));
    let is_ahead = state.is_some_and(|state| state.applied > tail);
    if let Some(state) = state
        && is_ahead
        && !log.may_lose_its_end()
    {
        let file = shared.partition_dir(container, log.partition()).display().to_string();
        let what =
            format!("the log ends at LSN {tail}, but LSN {} had been written", state.applied);
        return Err(Damage { file, offset: 0, lsn: Some(tail.next()), what }.into());
    }
    // Compaction has removed entries that an index older than `complete_after` never applied.
    let complete_after = log.complete_after().max(log.start());
    let known =
        state.filter(|state| state.applied >= complete_after && !opened.liveness_lost && !is_ahead);
    let mut replay = Replay {
        target,
        container,
        opened,
        next_rid: known.map_or(first_rid(log.partition()), |state| state.next_rid),
        rows: HashMap::new(),
    };
    match known {
        Some(state) => replay.run(state.applied, Which::Everything, false)?,
        None => {
            // A backup has no index, so a restore builds it. That is no damage and logs no warning.
            let is_restore = crate::directory::is_unfinished(&shared.root);
            if tail > Lsn::ZERO && target.stop.is_none() && !is_restore {
                tracing::warn!(
                    partition = %log.partition(),
                    "the index does not know the partition or does not match its log; it is rebuilt from the log"
                );
            }
            // First remove the partition's row: after a crash halfway, the work must start again.
            let mut forget = Batch::default();
            forget.remove(keys::partition(container, log.partition()));
            index.write(&forget)?;
            if is_ahead {
                // The log assigns the LSNs of the lost entries again. Without this, a crash before the next
                // table is written would restore rows of lost entries at LSNs that are in use by then.
                index.settle()?;
            }
            // Secondary indexes may have followed a log that ended differently, and their entries hold
            // positions. The entries do not tell which partition they belong to, so all are removed.
            let (from, to) = keys::all_index_progress(container);
            remove_range(index, &from, &to)?;
            let (from, to) = keys::index_entries_from(container, 0);
            remove_range(index, &from, &to)?;
            // Remove rows of a later state: replaying an older record of an item would mark the newer record dead.
            let (from, to) = keys::items_in(container, range);
            remove_range(index, &from, &to)?;
            // With valid dead bits, live records suffice; without them every record is needed.
            let which = if opened.liveness_lost { Which::Everything } else { Which::Live };
            replay.run(Lsn::ZERO, which, opened.liveness_lost)?;
            if opened.liveness_lost {
                log.liveness_restored();
            }
            // Numbers of deleted items may be unknown now; skip every number that may have been used.
            replay.next_rid += tail.get();
            replay.next_rid = replay.next_rid.max(state.map_or(0, |state| state.next_rid));
        }
    }
    let next_rid = replay.next_rid;
    replay.finish()?;
    Ok(next_rid)
}

struct Replay<'a> {
    target: &'a Target<'a>,
    container: ContainerRid,
    opened: &'a Opened,
    next_rid: u64,
    /// Rows of the current batch, which the index does not have yet.
    rows: HashMap<Key, Option<ItemRow>>,
}

impl Replay<'_> {
    fn run(&mut self, after: Lsn, which: Which, mark_by_key: bool) -> Result<(), OpenError> {
        let log = &self.opened.log;
        let tail = self.target.upto;
        let mut after = after;
        while after < tail {
            if self.target.stop.is_some_and(Stop::is_requested) {
                return Err(StorageError::Closed.into());
            }
            let batch = log.read(&ReadRequest {
                after,
                upto: tail,
                which,
                range: None,
                records_max: RECORDS_AT_ONCE,
                bytes_max: 16 << 20,
            })?;
            let mut changes = Batch::default();
            for record in &batch.records {
                if mark_by_key {
                    self.mark_superseded(record)?;
                }
                self.note_rid(record);
                if !apply(self.container, record, &mut changes) {
                    return Err(unapplied(&self.opened.log, record));
                }
            }
            self.rows.clear();
            self.target.index.write(&changes)?;
            after = batch.scanned;
        }
        Ok(())
    }

    /// Marks the record that this one replaces as dead, found by its key.
    fn mark_superseded(&mut self, record: &Record) -> Result<(), OpenError> {
        if record.kind == RecordKind::Control {
            return Ok(());
        }
        let Some(meta) = Meta::decode(record.meta()) else {
            return Err(unapplied(&self.opened.log, record));
        };
        let key = keys::item(self.container, record.epk(), meta.tail);
        let before = match self.rows.get(&key) {
            Some(row) => *row,
            None => self.target.index.get(&key)?.and_then(|value| ItemRow::decode(&value)),
        };
        if let Some(before) = before.filter(|before| before.position != record.position) {
            self.opened.log.mark_dead(before.position, record.epk())?;
        }
        let row = (record.kind == RecordKind::Put).then_some(ItemRow {
            position: record.position,
            rid: meta.rid,
            written: record.timestamp.as_seconds(),
            ttl: meta.ttl,
        });
        self.rows.insert(key, row);
        Ok(())
    }

    fn note_rid(&mut self, record: &Record) {
        let own = self.opened.log.partition();
        if let Some(meta) = Meta::decode(record.meta())
            && meta.rid >> RID_PARTITION_SHIFT == u64::from(own.get())
        {
            self.next_rid = self.next_rid.max(meta.rid + 1);
        }
    }

    fn finish(self) -> Result<(), StorageError> {
        let mut batch = Batch::default();
        let Target { upto, tally, .. } = *self.target;
        let state = PartitionRow { applied: upto, next_rid: self.next_rid, tally };
        batch.put(keys::partition(self.container, self.opened.log.partition()), state.encode());
        self.target.index.write(&batch)
    }
}

/// The error for a record with a valid checksum whose content cannot be decoded.
fn unapplied(log: &LocalLog, record: &Record) -> OpenError {
    let what = "the record cannot be applied: its checksum is valid, but this version cannot decode its content";
    log.damage_at(record.position, record.epk(), what).into()
}
