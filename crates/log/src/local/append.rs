//! Group commit: appends a group with one write and one sync, then publishes it to readers.
//!
//! ```text
//! group ──► write behind the last entry ──► sync ──► table, ring, dead bits ──► tail moves
//!             │ fails: cut off again          │ fails: no more writes until reopened
//! ```
//!
//! A full segment is sealed, and the next one starts with the group that did not fit. Nothing is published
//! before its sync, except with `Durability::Os`, which never syncs appends.

use super::{Appender, Durability, LocalLog, mark_in};
use crate::disk::replace_file;
use crate::entry::{self, ENTRY_BYTES_MAX, Group, RECORD_HEADER_BYTES, RecordKind};
use crate::error::AppendError;
use crate::liveness::{self, RECORDS_MAX};
use crate::manifest::{Manifest, SegmentInfo};
use crate::read::SegmentSet;
use crate::segment::{self, HEADER_BYTES, Segment};
use headwater_model::Lsn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The first preallocation step of a new segment. Steps double from there.
const ALLOCATE_FIRST: u64 = 256 << 10;
/// The largest preallocation step.
const ALLOCATE_MOST: u64 = 8 << 20;
/// Groups up to this size are written into blocks that were zeroed before.
///
/// The first write to a preallocated block makes its sync mark the block as used in the file system. That takes
/// two more block writes in sequence, longer than the bytes of a small group. For a large group, writing the
/// bytes twice costs more.
const ZEROED_GROUP_MAX: usize = 256 << 10;
/// How far ahead of the group the blocks are zeroed.
///
/// The zeros are written and synced with one group, which slows that group down. With this value it is one in
/// some seven hundred single writes of a few kilobytes.
const ZEROED_AHEAD: u64 = 1 << 20;
/// The largest group.
const GROUP_BYTES_MAX: usize = (u32::MAX / 2) as usize;

/// The newest checkpoint of the dead bits on disk.
#[derive(Debug)]
pub(super) struct SavedCheckpoint {
    /// It includes everything superseded by entries up to this LSN; zero when that is not certain.
    pub(super) lsn: Lsn,
    /// Its number, or that of the last change of segments. An older checkpoint must not replace it.
    pub(super) sequence: u64,
}

/// An encoded checkpoint that is not on disk yet.
struct Checkpoint {
    lsn: Lsn,
    sequence: u64,
    bytes: Vec<u8>,
}

impl LocalLog {
    pub(super) fn append_now(&self, group: &Group) -> Result<(), AppendError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(AppendError::Poisoned);
        }
        let mut appender = self.appender.lock();
        let tail = appender.tail;
        if self.sealed.load(Ordering::Acquire) {
            return Err(AppendError::Sealed(tail.lsn));
        }
        if group.after().lsn != tail.lsn || group.after().hash != tail.hash {
            return Err(AppendError::Conflict { expected: group.after().lsn, tail: tail.lsn });
        }
        check_size(group)?;
        if self.must_roll(&appender, group.bytes().len()) {
            self.roll(&mut appender)?;
        }
        let active = appender.active.clone().ok_or(AppendError::Poisoned)?;
        self.write(&mut appender, &active, group.bytes())?;
        if self.options.durability == Durability::Fsync && self.sync(&active).is_err() {
            // After a failed sync a retry may succeed although the pages were lost.
            self.poisoned.store(true, Ordering::Release);
            return Err(AppendError::Poisoned);
        }
        self.publish(&mut appender, &active, group);
        self.options.meter.observe_group(group.entries().len());
        Ok(())
    }

    /// Syncs the active segment and records the latency.
    fn sync(&self, active: &Segment) -> io::Result<()> {
        let started = self.runtime.elapsed();
        let synced = active.file.sync();
        self.options.meter.observe_sync(self.runtime.elapsed().saturating_sub(started));
        synced
    }

    /// Whether a group of this size must start a new segment.
    fn must_roll(&self, appender: &Appender, bytes: usize) -> bool {
        let Some(active) = &appender.active else {
            return true;
        };
        // Recovery depends on the durability mode of a segment, so one segment has only one mode.
        if active.info.relaxed != self.is_relaxed() {
            return true;
        }
        let end = u64::from(appender.offset) + bytes as u64;
        let records_max = appender.records + bytes / RECORD_HEADER_BYTES;
        let crowded = end > u64::from(self.options.segment_bytes) || records_max > RECORDS_MAX;
        crowded && appender.records > 0
    }

    fn is_relaxed(&self) -> bool {
        self.options.durability == Durability::Os
    }

    fn write(
        &self,
        appender: &mut Appender,
        active: &Segment,
        bytes: &[u8],
    ) -> Result<(), AppendError> {
        let end = u64::from(appender.offset) + bytes.len() as u64;
        let written = (|| {
            if end > appender.allocated {
                let step = appender.allocated.clamp(ALLOCATE_FIRST, ALLOCATE_MOST);
                let target =
                    end.max((appender.allocated + step).min(u64::from(self.options.segment_bytes)));
                active.file.allocate(target)?;
                appender.allocated = target;
            }
            if bytes.len() <= ZEROED_GROUP_MAX && end > appender.zeroed && !self.is_relaxed() {
                let target = (end + ZEROED_AHEAD).min(appender.allocated);
                active.file.zero(end..target)?;
                appender.zeroed = target;
            }
            active.file.write_at(bytes, u64::from(appender.offset))
        })();
        let Err(error) = written else { return Ok(()) };
        // Part of a group after the tail would look like damage once another entry follows it. After a crash its
        // first entries could reappear although the append returned an error.
        appender.allocated = u64::from(appender.offset);
        appender.zeroed = appender.allocated;
        let cut_off = active.file.truncate(u64::from(appender.offset));
        if cut_off.and_then(|()| active.file.sync()).is_err() {
            self.poisoned.store(true, Ordering::Release);
            return Err(AppendError::Poisoned);
        }
        Err(if is_full(&error) { AppendError::DiskFull } else { AppendError::Io(error) })
    }

    /// Publishes a group to readers: offset table, ring, dead bits, tail.
    fn publish(&self, appender: &mut Appender, active: &Segment, group: &Group) {
        let mut superseded = Vec::new();
        active.extend_table(|table| {
            for placed in group.entries() {
                let bytes = group.bytes().slice(placed.bytes.clone());
                let header = entry::decode_header(&bytes).expect("a group holds encoded entries");
                debug_assert_eq!(header.partition, self.partition, "whose entry is this?");
                let mut ordinals = Vec::with_capacity(usize::from(header.records));
                let mut tombstones = 0;
                entry::for_each_record(&bytes, &header, |record| {
                    ordinals.push(record.position.ordinal);
                    tombstones += usize::from(record.kind == RecordKind::Tombstone);
                    if record.supersedes.is_some() {
                        superseded.push(record);
                    }
                })
                .expect("a group holds encoded entries");
                appender.records += ordinals.len();
                appender.tombstone_bytes += header.share(tombstones);
                table.push(header.lsn, header.timestamp, header.length, ordinals.into_iter());
            }
        });
        let mut ring = self.ring.lock();
        for placed in group.entries() {
            ring.push(placed.lsn, group.bytes().slice(placed.bytes.clone()));
        }
        drop(ring);
        // From here on a reader that sees a mark too early can find the superseding entry.
        self.marked_lsn.store(group.tail().lsn.get(), Ordering::Release);
        {
            let _guard = self.marking.lock();
            let set = self.segments.read().clone();
            for record in &superseded {
                let marked = record.supersedes.map(|prior| mark_in(&set, prior, record.epk()));
                if let Some(Err(error)) = marked {
                    // A reader may still see the old version. No checkpoint is written from now on, so the next
                    // open recomputes the dead bits from the log.
                    self.marks_missing.store(true, Ordering::Release);
                    tracing::error!(%error, "could not mark a superseded record; reopen repairs it");
                }
            }
        }
        appender.offset += u32::try_from(group.bytes().len()).unwrap_or(0);
        appender.tail = group.tail();
        self.tail_lsn.store(group.tail().lsn.get(), Ordering::Release);
    }

    /// Seals the active segment and starts the next one.
    fn roll(&self, appender: &mut Appender) -> Result<(), AppendError> {
        let failed = |error: io::Error| {
            if is_full(&error) {
                return AppendError::DiskFull;
            }
            // The manifest may or may not have reached the disk: only reopening shows which.
            self.poisoned.store(true, Ordering::Release);
            AppendError::Io(error)
        };
        self.seal_active(appender).map_err(failed)?;
        let mut manifest = self.manifest.lock();
        let info = SegmentInfo {
            number: manifest.take_number(),
            origin: self.partition,
            first_lsn: appender.tail.lsn.next(),
            previous_hash: appender.tail.hash,
            compacted: false,
            alive_at: appender.tail.lsn,
            shared: false,
            relaxed: self.is_relaxed(),
            filter: None,
            sealed: None,
        };
        let fresh = Arc::new(self.create_segment(info).map_err(failed)?);
        let mut set = SegmentSet::clone(&self.segments.read());
        set.add(fresh.clone());
        let changed = Manifest {
            reached: appender.tail.lsn,
            clock: appender.tail.timestamp,
            segments: set.infos(),
            ..manifest.clone()
        };
        self.save_manifest(&changed, Some(&fresh)).map_err(failed)?;
        *manifest = changed;
        *self.segments.write() = Arc::new(set);
        appender.active = Some(fresh);
        appender.offset = HEADER_BYTES;
        appender.allocated = 0;
        appender.zeroed = 0;
        appender.records = 0;
        appender.tombstone_bytes = 0;
        Ok(())
    }

    /// Creates a segment file; on an error removes it again.
    pub(crate) fn create_segment(&self, info: SegmentInfo) -> io::Result<Segment> {
        let path = segment::segment_path(&self.dir, info.number);
        Segment::create(&self.disk, &self.dir, info).inspect_err(|_| {
            let _ = self.disk.remove(&path);
        })
    }

    /// Writes the manifest.
    ///
    /// If that fails, removes the new segment, unless the manifest on disk already names it: the rename may have
    /// happened although its sync failed.
    pub(crate) fn save_manifest(
        &self,
        manifest: &Manifest,
        fresh: Option<&Arc<Segment>>,
    ) -> io::Result<()> {
        manifest.save(&*self.disk, &self.dir).inspect_err(|_| {
            let stored = Manifest::load(&*self.disk, &self.dir);
            if let Some(fresh) = fresh.filter(|_| stored.is_ok_and(|stored| stored != *manifest)) {
                self.remove_files(fresh);
            }
        })
    }

    /// Removes the files of an unlisted segment. If that fails, the next open of the log removes them.
    pub(crate) fn remove_files(&self, segment: &Segment) {
        let _ = self.disk.remove(&segment.path);
        let table = segment::table_path(&self.dir, segment.info.number);
        let _ = self.disk.remove(&table);
    }

    /// Seals the active segment: saves its offset table, cuts its preallocation and saves the dead bits.
    fn seal_active(&self, appender: &mut Appender) -> io::Result<()> {
        let Some(active) = appender.active.clone() else {
            return Ok(());
        };
        let table = active.with_table(crate::table::Table::encode).map_err(io::Error::other)?;
        replace_file(&*self.disk, &segment::table_path(&self.dir, active.info.number), &table)?;
        self.sync_relaxed(&active)?;
        active.file.truncate(u64::from(appender.offset))?;
        active.seal(appender.seal_here());
        appender.active = None;
        self.take_checkpoint(appender).map_or(Ok(()), |checkpoint| self.save(&checkpoint))
    }

    /// Syncs the active segment if appends do not, before another file depends on its entries.
    fn sync_relaxed(&self, active: &Segment) -> io::Result<()> {
        if !self.is_relaxed() {
            return Ok(());
        }
        active.file.sync().inspect_err(|_| {
            // As after an append: a later sync may succeed although these pages were lost.
            self.poisoned.store(true, Ordering::Release);
        })
    }

    /// Like `sync_relaxed`, for callers that do not hold the appender lock.
    pub(crate) fn sync_active(&self) -> io::Result<()> {
        let active = self.appender.lock().active.clone();
        active.map_or(Ok(()), |active| self.sync_relaxed(&active))
    }

    /// Encodes the current dead bits; `None` while some are known to be missing.
    fn take_checkpoint(&self, appender: &Appender) -> Option<Checkpoint> {
        if self.marks_missing.load(Ordering::Acquire) {
            return None;
        }
        let _guard = self.marking.lock();
        let set = self.segments.read().clone();
        let bits = set.segments().map(|segment| (segment.info.number, &segment.dead));
        Some(Checkpoint {
            lsn: appender.tail.lsn,
            sequence: self.next_sequence(),
            bytes: liveness::encode_checkpoint(self.partition, appender.tail.lsn, bits),
        })
    }

    fn next_sequence(&self) -> u64 {
        self.checkpoint_sequence.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn save(&self, checkpoint: &Checkpoint) -> io::Result<()> {
        let mut saved = self.saved_checkpoint.lock();
        if saved.sequence > checkpoint.sequence {
            return Ok(());
        }
        replace_file(&*self.disk, &super::checkpoint_path(&self.dir), &checkpoint.bytes)?;
        *saved = SavedCheckpoint { lsn: checkpoint.lsn, sequence: checkpoint.sequence };
        Ok(())
    }

    /// Saves the dead bits without blocking appends during the disk write.
    pub(crate) fn save_checkpoint(&self) -> io::Result<()> {
        let (checkpoint, active) = {
            let appender = self.appender.lock();
            (self.take_checkpoint(&appender), appender.active.clone())
        };
        let Some(checkpoint) = checkpoint else {
            return Ok(());
        };
        // Without this, a power cut could lose an entry while the checkpoint keeps its predecessor dead.
        if let Some(active) = active {
            self.sync_relaxed(&active)?;
        }
        self.save(&checkpoint)
    }

    /// The LSN up to which the dead bits on disk are complete.
    pub(crate) fn checkpointed(&self) -> Lsn {
        self.saved_checkpoint.lock().lsn
    }

    /// Invalidates the checkpoint on disk, because the set of segments has changed.
    pub(crate) fn forget_checkpoint(&self) {
        let sequence = self.next_sequence();
        *self.saved_checkpoint.lock() = SavedCheckpoint { lsn: Lsn::ZERO, sequence };
    }

    /// Seals the log before a split or merge: it takes no more entries.
    ///
    /// # Errors
    /// When the seal cannot be written. The log then rejects writes until it is reopened.
    pub fn seal(&self) -> Result<Lsn, AppendError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(AppendError::Poisoned);
        }
        let mut appender = self.appender.lock();
        let sealed = self.seal_active(&mut appender).and_then(|()| {
            let mut manifest = self.manifest.lock();
            let changed = Manifest {
                sealed: true,
                reached: appender.tail.lsn,
                clock: appender.tail.timestamp,
                segments: self.segments.read().infos(),
                ..manifest.clone()
            };
            changed.save(&*self.disk, &self.dir)?;
            *manifest = changed;
            Ok(())
        });
        sealed.map_err(|error| {
            self.poisoned.store(true, Ordering::Release);
            AppendError::Io(error)
        })?;
        self.sealed.store(true, Ordering::Release);
        Ok(appender.tail.lsn)
    }

    /// Saves the end of the log and the dead bits, so that the next open is fast.
    ///
    /// # Errors
    /// When the files cannot be written; no data is lost.
    pub fn checkpoint(&self) -> io::Result<()> {
        if self.poisoned.load(Ordering::Acquire) {
            return Ok(());
        }
        let tail = self.local_tail();
        self.sync_active()?;
        self.save_checkpoint()?;
        let mut manifest = self.manifest.lock();
        let mut changed = manifest.clone();
        changed.reached = changed.reached.max(tail.lsn);
        changed.clock = changed.clock.max(tail.timestamp);
        changed.save(&*self.disk, &self.dir)?;
        *manifest = changed;
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Rejects groups that could be written but not read again.
fn check_size(group: &Group) -> Result<(), AppendError> {
    let refuse = |bytes: usize, limit: usize| Err(AppendError::TooLarge { bytes, limit });
    let bytes = group.bytes().len();
    if bytes > GROUP_BYTES_MAX {
        return refuse(bytes, GROUP_BYTES_MAX);
    }
    let longest = group.entries().iter().map(|entry| entry.bytes.len()).max();
    if let Some(longest) = longest.filter(|longest| *longest > ENTRY_BYTES_MAX) {
        return refuse(longest, ENTRY_BYTES_MAX);
    }
    // Only a group this long can have more records than a segment has dead bits for.
    let limit = RECORDS_MAX * RECORD_HEADER_BYTES;
    if bytes > limit {
        let records = |entry: &entry::GroupEntry| {
            let header = entry::decode_header(&group.bytes()[entry.bytes.clone()]);
            header.map_or(0, |header| usize::from(header.records))
        };
        if group.entries().iter().map(records).sum::<usize>() > RECORDS_MAX {
            return refuse(bytes, limit);
        }
    }
    Ok(())
}
