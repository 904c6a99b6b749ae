//! Index maintenance: an index follows the log of a partition and adds entries for the versions it reads.
//!
//! An index guarantees one thing, and a lookup needs no more: every visible version at or before its position has
//! its entries. The guarantee survives all changes of a partition. Compaction keeps live records at their positions.
//! A crash rolls entries and position back together. After a split or merge, the new partition starts at the lowest
//! position of its ancestors.
//!
//! Dead records need care. A record is dead as soon as its successor is in the log, but it stays visible until the
//! successor becomes visible. A reader that skips dead records may skip a version that readers still see.
//!
//! ```text
//! log     5:a   …   9:a'         visible 8: readers see a at 5, which is dead
//! ```
//!
//! So an index that has caught up once skips no records. An index that is being built may skip dead records, or miss
//! those that compaction removed. It is then usable only from the end that the log had at that moment, which includes
//! the successors.

use super::{Indexed, PathIndex};
use crate::container::ContainerState;
use crate::error::StorageError;
use crate::index::Batch;
use crate::item::Meta;
use crate::keys::{self, Value};
use crate::partition::Partition;
use headwater_log::{ReadError, ReadRequest, Record, RecordKind, Which};
use headwater_model::Lsn;

const RECORDS_AT_ONCE: usize = 1_024;
const BYTES_AT_ONCE: usize = 2 << 20;
/// Minimum lag in log entries at which an index that is being built skips dead records.
const SKIMMED_MIN: u64 = 10_000;
/// Minimum number of stale entries for which an index is rebuilt.
const STALE_MIN: u64 = 10_000;

/// Progress of an index in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Every live record up to here has its entries.
    pub(super) applied: Lsn,
    /// Number of entries written so far.
    pub(super) entries: u64,
    /// Upper bound of the entries that belong to replaced versions.
    pub(super) stale: u64,
    /// Whether it has ever caught up.
    pub(super) built: bool,
    /// The index may have skipped versions that were replaced up to this LSN. It is unusable until `applied` reaches it.
    needs: Lsn,
}

impl Progress {
    fn encode(&self) -> Value {
        let mut value = Value::new();
        for number in
            [self.applied.get(), self.entries, self.stale, u64::from(self.built), self.needs.get()]
        {
            value.extend_from_slice(&number.to_le_bytes());
        }
        value
    }

    fn decode(value: &[u8]) -> Option<Progress> {
        let (numbers, []) = value.as_chunks::<8>() else { return None };
        let numbers = <[_; 5]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
        let [applied, entries, stale, built, needs] = numbers;
        let (applied, needs) = (Lsn::new(applied), Lsn::new(needs));
        Some(Progress { applied, entries, stale, built: built == 1, needs })
    }
}

/// Records and bytes that may be read to catch up in one go.
#[derive(Debug)]
pub(crate) struct Budget {
    records: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { records: 20_000, bytes: 32 << 20 }
    }
}

impl PathIndex {
    /// Applies the log of a partition up to its visible end. False if the budget is used up before, or the index
    /// is dropped or not usable yet.
    pub(crate) fn catch_up(
        &self,
        container: &ContainerState,
        partition: &Partition,
        budget: &mut Budget,
    ) -> Result<bool, StorageError> {
        partition.check_served()?;
        let visible = partition.visible();
        let mut following = self.progress.lock();
        if self.is_dropped() || container.topology().dropped {
            return Ok(false);
        }
        let known = following.get(&partition.id).copied();
        let mut progress = match known {
            Some(progress) => progress,
            None => self.kept_progress(container, partition)?,
        };
        while progress.applied < visible {
            if budget.records == 0 || budget.bytes == 0 {
                following.insert(partition.id, progress);
                return Ok(false);
            }
            progress = self.apply_some(container, partition, visible, progress, budget)?;
            following.insert(partition.id, progress);
        }
        if progress.applied < progress.needs {
            return Ok(false);
        }
        if !progress.built {
            progress.built = true;
            self.keep(container, partition, &progress, Batch::default())?;
        }
        following.insert(partition.id, progress);
        Ok(true)
    }

    /// The number of entries of a partition's log that the index has not applied.
    pub(super) fn lag(
        &self,
        container: &ContainerState,
        partition: &Partition,
    ) -> Result<u64, StorageError> {
        let known = self.progress.lock().get(&partition.id).copied();
        let progress = match known {
            Some(progress) => progress,
            None => self.kept_progress(container, partition)?,
        };
        Ok(partition.visible().get().saturating_sub(progress.applied.get()))
    }

    /// Whether the index has many stale entries and they may be more than half of all.
    pub(super) fn is_stale(&self) -> bool {
        let following = self.progress.lock();
        let sum = |count: fn(&Progress) -> u64| following.values().map(count).sum();
        let (stale, entries): (u64, u64) = (sum(|one| one.stale), sum(|one| one.entries));
        stale > STALE_MIN && stale > entries / 2
    }

    fn apply_some(
        &self,
        container: &ContainerState,
        partition: &Partition,
        visible: Lsn,
        mut progress: Progress,
        budget: &mut Budget,
    ) -> Result<Progress, StorageError> {
        let behind = visible.get().saturating_sub(progress.applied.get());
        let skims = !progress.built && behind > SKIMMED_MIN;
        let read = partition.log()?.read(&ReadRequest {
            after: progress.applied,
            upto: visible,
            which: if skims { Which::Live } else { Which::Everything },
            range: None,
            records_max: RECORDS_AT_ONCE.min(budget.records),
            bytes_max: BYTES_AT_ONCE.min(budget.bytes),
        })?;
        let mut rows = Batch::default();
        for record in &read.records {
            budget.bytes = budget.bytes.saturating_sub(record.body_bytes().len());
            self.add_entries(container, record, &mut progress, &mut rows)?;
        }
        budget.records = budget.records.saturating_sub(read.records.len().max(1));
        // Visible entries were acknowledged by the log, so the read must make progress.
        if read.scanned <= progress.applied {
            return Err(ReadError::Unavailable.into());
        }
        let log = partition.log()?;
        let is_compacted = log.complete_after().max(log.start()) > progress.applied;
        if skims || is_compacted {
            progress.needs = progress.needs.max(log.local_tail().lsn);
        }
        progress.applied = read.scanned;
        self.keep(container, partition, &progress, rows)?;
        Ok(progress)
    }

    /// Adds the entries of one record.
    fn add_entries(
        &self,
        container: &ContainerState,
        record: &Record,
        progress: &mut Progress,
        rows: &mut Batch,
    ) -> Result<(), StorageError> {
        if record.kind != RecordKind::Put {
            // A deleted item leaves one stale entry in an order, and an unknown number among values.
            let is_left =
                record.kind == RecordKind::Tombstone && matches!(self.of, Indexed::Order(_));
            progress.stale += u64::from(progress.built && is_left);
            return Ok(());
        }
        let Some(meta) = Meta::decode(record.meta()) else { return Ok(()) };
        let item = keys::item(container.rid, record.epk(), meta.tail);
        let replaces = progress.built && !meta.created;
        for indexed in self.of.entries(record) {
            let entry = keys::index_entry(container.rid, self.number, &indexed.key, &item);
            // An unchanged value overwrites its entry with the new position. A changed value leaves its old
            // entry behind, which is stale.
            let is_new = !replaces || container.shared.index.get(&entry)?.is_none();
            progress.entries += u64::from(is_new);
            progress.stale += u64::from(is_new && replaces);
            rows.put(entry, indexed.value);
        }
        Ok(())
    }

    fn keep(
        &self,
        container: &ContainerState,
        partition: &Partition,
        progress: &Progress,
        mut rows: Batch,
    ) -> Result<(), StorageError> {
        let key = keys::index_progress(container.rid, partition.id, self.number);
        rows.put(key, progress.encode());
        container.shared.index.write(&rows)
    }

    /// Loads the progress in a partition, or derives it from the partition's ancestors.
    fn kept_progress(
        &self,
        container: &ContainerState,
        partition: &Partition,
    ) -> Result<Progress, StorageError> {
        let row = |id| {
            let row =
                container.shared.index.get(&keys::index_progress(container.rid, id, self.number));
            row.map(|row| row.and_then(|value| Progress::decode(&value)))
        };
        let visible = partition.visible();
        // A position ahead of the log belongs to another history of the log and is ignored.
        if let Some(own) = row(partition.id)?.filter(|own| own.applied <= visible) {
            return Ok(own);
        }
        let mut lowest: Option<Lsn> = None;
        for ancestor in &partition.ancestors {
            // If the index has no progress in one ancestor, it must start from the beginning.
            let Some(progress) = row(*ancestor)? else { return Ok(Progress::default()) };
            lowest = Some(lowest.map_or(progress.applied, |so_far| so_far.min(progress.applied)));
        }
        let applied = lowest.filter(|lowest| *lowest <= visible).unwrap_or(Lsn::ZERO);
        Ok(Progress { applied, ..Progress::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_survives_its_bytes() {
        let progress = Progress {
            applied: Lsn::new(7),
            entries: 8,
            stale: 9,
            built: true,
            needs: Lsn::new(6),
        };
        assert_eq!(Progress::decode(&progress.encode()), Some(progress));
        assert_eq!(Progress::decode(&progress.encode()[1..]), None);
    }
}
