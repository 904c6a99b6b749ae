//! Appending to a log: one write and one sync per group, then everybody may know.
//!
//! ```text
//! group ──► write behind the last entry ──► sync ──► table, ring, dead bits ──► tail moves
//!             │ fails: cut off again          │ fails: no more writes until reopened
//! ```
//!
//! A segment that is full is sealed and the next one started, in front of the group that did not fit.

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

/// The first step in which room is made in a new segment; it doubles from there.
const ALLOCATE_FIRST: u64 = 256 << 10;
/// The largest step.
const ALLOCATE_MOST: u64 = 8 << 20;
/// A group up to this size is written into blocks that hold zeros already. The first write to a block
/// that was only allocated makes its sync note in the file system that the block is in use: two more
/// blocks, one after the other, which take longer than the bytes of a small group. Those of a large one
/// take so long that writing them twice costs more.
const ZEROED_GROUP_MAX: usize = 256 << 10;
/// How far ahead the zeros reach. They are written with a group and synced by its sync, which is slow for it: so
/// far that this happens to one lone write of kilobytes in some seven hundred.
const ZEROED_AHEAD: u64 = 1 << 20;
/// No group is longer.
const GROUP_BYTES_MAX: usize = (u32::MAX / 2) as usize;

/// The newest checkpoint of the dead bits on disk.
#[derive(Debug)]
pub(super) struct SavedCheckpoint {
    /// Everything superseded by entries up to here is in it; zero when that is not certain.
    pub(super) lsn: Lsn,
    /// Its number, or that of the last change of segments. Older ones must not replace it.
    pub(super) sequence: u64,
}

/// A checkpoint as it was at one moment, not on disk yet.
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
            // Whether the pages are on disk can no longer be found out by asking again.
            self.poisoned.store(true, Ordering::Release);
            return Err(AppendError::Poisoned);
        }
        self.publish(&mut appender, &active, group);
        self.options.meter.observe_group(group.entries().len());
        Ok(())
    }

    /// Makes a group durable and counts how long that takes.
    fn sync(&self, active: &Segment) -> io::Result<()> {
        let started = self.runtime.elapsed();
        let synced = active.file.sync();
        self.options.meter.observe_sync(self.runtime.elapsed().saturating_sub(started));
        synced
    }

    /// Whether a group of so many bytes belongs into a new segment.
    fn must_roll(&self, appender: &Appender, bytes: usize) -> bool {
        let Some(active) = &appender.active else {
            return true;
        };
        // Recovery judges a segment by how it was written, so one is never written in two ways.
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
        // Half a group behind the tail would look like damage once something else follows it, and
        // after a crash its beginning could come back although its writer was told that it failed.
        appender.allocated = u64::from(appender.offset);
        appender.zeroed = appender.allocated;
        let cut_off = active.file.truncate(u64::from(appender.offset));
        if cut_off.and_then(|()| active.file.sync()).is_err() {
            self.poisoned.store(true, Ordering::Release);
            return Err(AppendError::Poisoned);
        }
        Err(if is_full(&error) { AppendError::DiskFull } else { AppendError::Io(error) })
    }

    /// Makes a durable group known: table, ring, dead bits, tail.
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
        // From here on readers that see a mark too early find the entry that made it.
        self.marked_lsn.store(group.tail().lsn.get(), Ordering::Release);
        {
            let _guard = self.marking.lock();
            let set = self.segments.read().clone();
            for record in &superseded {
                let marked = record.supersedes.map(|prior| mark_in(&set, prior, record.epk()));
                if let Some(Err(error)) = marked {
                    // A reader would see an old version once more. No checkpoint is written from now
                    // on, so the next open finds out again from the log.
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
            // A manifest may or may not have reached the disk: only reopening tells.
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

    /// Creates a segment, or leaves no trace of it.
    pub(crate) fn create_segment(&self, info: SegmentInfo) -> io::Result<Segment> {
        let path = segment::segment_path(&self.dir, info.number);
        Segment::create(&self.disk, &self.dir, info).inspect_err(|_| {
            let _ = self.disk.remove(&path);
        })
    }

    /// Writes the manifest. If that fails, the new segment is removed, unless the manifest names it
    /// nevertheless: a rename may have happened although its sync failed.
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

    /// Removes a segment nobody names any more. What cannot be removed now is when the log is opened.
    pub(crate) fn remove_files(&self, segment: &Segment) {
        let _ = self.disk.remove(&segment.path);
        let table = segment::table_path(&self.dir, segment.info.number);
        let _ = self.disk.remove(&table);
    }

    /// Writes down everything that is known about the active segment, which takes no more entries.
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

    /// Makes the active segment durable where appends do not, before anything relies on its entries.
    fn sync_relaxed(&self, active: &Segment) -> io::Result<()> {
        if !self.is_relaxed() {
            return Ok(());
        }
        active.file.sync().inspect_err(|_| {
            // As after an append: no later sync can be trusted with what this one should have done.
            self.poisoned.store(true, Ordering::Release);
        })
    }

    /// The same, from outside an append.
    pub(crate) fn sync_active(&self) -> io::Result<()> {
        let active = self.appender.lock().active.clone();
        active.map_or(Ok(()), |active| self.sync_relaxed(&active))
    }

    /// The dead bits as they are now; nothing while some are known to be missing.
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

    /// Writes the dead bits down. Nobody waits for the disk meanwhile.
    pub(crate) fn save_checkpoint(&self) -> io::Result<()> {
        let (checkpoint, active) = {
            let appender = self.appender.lock();
            (self.take_checkpoint(&appender), appender.active.clone())
        };
        let Some(checkpoint) = checkpoint else {
            return Ok(());
        };
        // What is dead by an entry that a power cut takes back would be lost twice.
        if let Some(active) = active {
            self.sync_relaxed(&active)?;
        }
        self.save(&checkpoint)
    }

    /// The LSN up to which the dead bits on disk are complete.
    pub(crate) fn checkpointed(&self) -> Lsn {
        self.saved_checkpoint.lock().lsn
    }

    /// The set of segments has changed, so the checkpoint on disk no longer names all of them.
    pub(crate) fn forget_checkpoint(&self) {
        let sequence = self.next_sequence();
        *self.saved_checkpoint.lock() = SavedCheckpoint { lsn: Lsn::ZERO, sequence };
    }

    /// Takes no more entries from now on: the partition is about to be split or merged away.
    ///
    /// # Errors
    /// When this cannot be written down; the log then refuses writes until it is reopened.
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

    /// Writes down how far the log reached and what is dead, so that the next open has little to do.
    ///
    /// # Errors
    /// When the files cannot be written; nothing is lost by that.
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

/// Refuses what could be written but not be read again.
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
