//! How an index keeps up with a partition: it reads latest versions behind its position and notes their
//! values.
//!
//! A version that can be seen and lies at or before the position has its entries; that is all an index
//! promises, and all a look-up needs. It survives everything a partition does: compaction keeps live records
//! where they are, a crash takes entries and position back together, and whoever replaces a partition begins
//! at the lowest position of those it came from.
//!
//! One thing needs care. A record is dead as soon as its successor is in the log, and can be seen until the
//! successor can be: whoever skips dead records may skip what everybody still sees.
//!
//! ```text
//! log     5:a   …   9:a'         visible 8: everybody sees a at 5, which is dead
//! ```
//!
//! So an index that has caught up once skips nothing. One that is being built does, and so does compaction
//! for it; it is then good only from the end the log had at that moment, where the successors are.

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
/// Further behind than this, an index that is being built skips dead records.
const SKIMMED_MIN: u64 = 10_000;
/// An index of few entries is not worth making anew.
const STALE_MIN: u64 = 10_000;

/// How far an index has come in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Every live record up to here has its entries.
    pub(super) applied: Lsn,
    /// Entries written so far.
    pub(super) entries: u64,
    /// At most so many of them are of versions that were replaced since.
    pub(super) stale: u64,
    /// Whether it has ever caught up.
    pub(super) built: bool,
    /// It may have skipped what is replaced up to here, and is of no use before.
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

/// How much may be read to catch up before somebody else has a turn.
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
    /// Applies what the index has not seen of a partition. False if the budget was used up before.
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

    /// Entries of a partition's log that it has yet to apply.
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

    /// Whether more than half of its entries may be stale.
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
        // What is visible was acknowledged by the log, so it must be there.
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
            // What is deleted has left one entry behind in an order, and who knows how many among values.
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
            // The same value as before has its entry say where it is now; another one leaves the entry of
            // that one behind.
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

    /// Where to begin in a partition that is new to this process.
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
        // A position ahead of the log is of another history.
        if let Some(own) = row(partition.id)?.filter(|own| own.applied <= visible) {
            return Ok(own);
        }
        let mut lowest: Option<Lsn> = None;
        for ancestor in &partition.ancestors {
            // What one of them has not seen at all, nobody has seen for it.
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
