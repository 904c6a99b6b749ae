//! A partition's log in files: appended by one writer, read by many, sealed and compacted segment by
//! segment.
//!
//! ```text
//! MANIFEST            which segments there are
//! LIVENESS            dead bits at some LSN; the log after it sets the rest again
//! 00000001.seg .tab   sealed segment and its offset table
//! 00000002.seg        active segment; its table is in memory
//! ```
//!
//! What this file never does: decide what is written. It appends the bytes it is given behind the
//! entry they name, or says that it cannot.

use crate::PartitionLog;
use crate::disk::{Disk, read_file, replace_file};
use crate::entry::{self, Entry, Group, Position, Record, Tail};
use crate::error::{AppendError, Damage, OpenError, ReadError};
use crate::liveness::{self, Checkpoint, DeadBits, RECORDS_MAX};
use crate::manifest::{self, Manifest, Sealed, SegmentInfo};
use crate::read::{Batch, ReadRequest, SegmentSet, Which};
use crate::recovery;
use crate::ring::Ring;
use crate::segment::{self, HEADER_BYTES, Segment};
use headwater_model::{KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::{BoxFuture, Runtime};
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// When an acknowledged write is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// It is on the disk.
    #[default]
    Fsync,
    /// It is with the operating system: safe from a crash of the process, not of the machine.
    Os,
}

/// How a log keeps its files.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// When an acknowledged write is safe.
    pub durability: Durability,
    /// A segment is sealed before it grows beyond this.
    pub segment_bytes: u32,
    /// How much of the newest entries stays in memory.
    pub ring_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            durability: Durability::Fsync,
            segment_bytes: 64 << 20,
            ring_bytes: 1 << 20,
        }
    }
}

/// The first step in which room is made in a new segment; it doubles from there.
const ALLOCATE_FIRST: u64 = 256 << 10;
/// The largest step.
const ALLOCATE_MOST: u64 = 8 << 20;
/// A checkpoint of all dead bits is never larger than this.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 30;

/// A log and what opening it found.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Arc<LocalLog>,
    /// Dead bits could not be restored: the owner replays everything and calls
    /// [`LocalLog::mark_dead`] for what it finds superseded.
    pub liveness_lost: bool,
    /// Bytes of a torn, never acknowledged write that were cut off.
    pub torn_bytes: u64,
}

/// A log that a new partition takes over, and the part of it that belongs to the new one.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// The sealed log.
    pub log: Arc<LocalLog>,
    /// The new partition's range.
    pub range: KeyRange,
}

/// Figures about a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Segment files.
    pub segments: u64,
    /// Bytes of entries in them.
    pub bytes: u64,
    /// Bytes of those entries that are superseded.
    pub dead_bytes: u64,
    /// Bytes the files take on the disk.
    pub disk_bytes: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub struct LocalLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: LogOptions,
    runtime: Runtime,
    partition: PartitionId,
    epoch: u32,
    start: Lsn,
    pub(crate) segments: RwLock<Arc<SegmentSet>>,
    appender: Mutex<Appender>,
    tail_lsn: AtomicU64,
    complete_after: AtomicU64,
    ring: Mutex<Ring>,
    poisoned: AtomicBool,
    /// A record could not be marked dead, so the bits in memory must not become a checkpoint.
    marks_missing: AtomicBool,
    /// Held while files are added to or removed from the set.
    pub(crate) manifest: Mutex<Manifest>,
    /// Held while records are marked dead, and while compaction moves marks to a new file.
    pub(crate) marking: Mutex<()>,
    /// One compaction at a time.
    pub(crate) compacting: Mutex<()>,
}

#[derive(Debug)]
struct Appender {
    active: Option<Arc<Segment>>,
    tail: Tail,
    /// End of the last entry in the active segment.
    offset: u32,
    allocated: u64,
    records: usize,
}

impl LocalLog {
    /// Creates the log of a new partition in an empty directory.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub fn create(
        disk: Arc<dyn Disk>,
        dir: &Path,
        partition: PartitionId,
        options: LogOptions,
        runtime: Runtime,
    ) -> Result<Opened, OpenError> {
        LocalLog::inherit(disk, dir, partition, &[], Lsn::ZERO, options, runtime)
    }

    /// Creates the log of a partition that takes over (parts of) sealed logs. Its LSNs go on behind
    /// `start`, which is not before the end of any of them. Done twice, it does nothing the second time.
    ///
    /// # Errors
    /// When the files cannot be written or linked.
    pub fn inherit(
        disk: Arc<dyn Disk>,
        dir: &Path,
        partition: PartitionId,
        ancestors: &[Ancestor],
        start: Lsn,
        options: LogOptions,
        runtime: Runtime,
    ) -> Result<Opened, OpenError> {
        let exists = disk.open(&manifest::path(dir), false).is_ok();
        if !exists {
            let io = |source| OpenError::Io {
                dir: dir.to_owned(),
                source,
            };
            create_files(&disk, dir, partition, ancestors, start).map_err(io)?;
        }
        LocalLog::open(disk, dir, partition, options, runtime)
    }

    /// Opens a log: finds its end, cuts off a torn write, restores the dead bits.
    ///
    /// # Errors
    /// When files are missing or damaged; the error says where.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        partition: PartitionId,
        options: LogOptions,
        runtime: Runtime,
    ) -> Result<Opened, OpenError> {
        let mut manifest = Manifest::load(&*disk, dir)?;
        if manifest.partition != partition {
            return Err(OpenError::WrongPartition {
                dir: dir.to_owned(),
                expected: partition,
                found: manifest.partition,
            });
        }
        remove_strangers(&disk, dir, &manifest).map_err(|source| OpenError::Io {
            dir: dir.to_owned(),
            source,
        })?;
        let (mut checkpoint, mut liveness_lost) = load_checkpoint(&disk, dir, &manifest);

        let mut set = SegmentSet::default();
        let mut appender = Appender {
            active: None,
            tail: Tail::start(manifest.start),
            offset: HEADER_BYTES,
            allocated: 0,
            records: 0,
        };
        let mut replay_after = checkpoint.lsn;
        let mut torn_bytes = 0;
        for info in &manifest.segments {
            let dead = match checkpoint.segments.remove(&info.number) {
                Some(bits) => bits,
                None => {
                    if info.compacted {
                        replay_after = replay_after.min(info.alive_at);
                    }
                    DeadBits::default()
                }
            };
            let segment = Arc::new(Segment::open(&disk, dir, info.clone(), dead)?);
            if info.origin == partition {
                torn_bytes += appender.adopt(&segment, info)?;
            }
            set.add(segment);
        }
        if appender.tail.lsn < manifest.reached {
            let file = manifest.segments.last().map_or(0, |segment| segment.number);
            let what = format!(
                "the log ends here, but it had reached LSN {}",
                manifest.reached
            );
            let path = segment::segment_path(dir, file);
            let hole = Some(appender.tail.lsn.next());
            return Err(Damage::new(&path, u64::from(appender.offset), hole, what).into());
        }
        manifest.reached = appender.tail.lsn;
        let log = Arc::new(LocalLog {
            runtime,
            partition,
            epoch: manifest.epoch,
            start: manifest.start,
            tail_lsn: AtomicU64::new(appender.tail.lsn.get()),
            complete_after: AtomicU64::new(manifest.complete_after.get()),
            segments: RwLock::new(Arc::new(set)),
            appender: Mutex::new(appender),
            ring: Mutex::new(Ring::new(options.ring_bytes)),
            poisoned: AtomicBool::new(false),
            marks_missing: AtomicBool::new(false),
            manifest: Mutex::new(manifest),
            marking: Mutex::new(()),
            compacting: Mutex::new(()),
            disk,
            dir: dir.to_owned(),
            options,
        });
        if !liveness_lost && log.mark_superseded_after(replay_after).is_err() {
            // The owner's replay meets the same damage and reports it with all it knows.
            liveness_lost = true;
        }
        Ok(Opened {
            log,
            liveness_lost,
            torn_bytes,
        })
    }

    /// The partition this log belongs to.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// How often the partition has changed hands.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Everything up to here was inherited.
    #[must_use]
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// The last entry that is durable here.
    #[must_use]
    pub fn local_tail(&self) -> Tail {
        self.appender.lock().tail
    }

    /// Whether the partition was split or merged away.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.manifest.lock().sealed
    }

    /// All versions are complete after this position.
    #[must_use]
    pub fn complete_after(&self) -> Lsn {
        Lsn::new(self.complete_after.load(Ordering::Acquire))
    }

    pub(crate) fn raise_complete_after(&self, lsn: Lsn) {
        self.complete_after.fetch_max(lsn.get(), Ordering::AcqRel);
    }

    /// Records in order. See [`ReadRequest`].
    ///
    /// # Errors
    /// When bytes cannot be read or are damaged, or all versions are asked for from a position that
    /// compaction has passed.
    pub fn read(&self, request: &ReadRequest<'_>) -> Result<Batch, ReadError> {
        if request.which == Which::AllVersions && request.after < self.complete_after() {
            let oldest = self.complete_after();
            return Err(ReadError::BeforeRetention {
                asked: request.after,
                oldest,
            });
        }
        if let Some(batch) = self.read_ring(request)? {
            return Ok(batch);
        }
        let set = self.segments.read().clone();
        let batch = set.read(request)?;
        // Compaction may have passed the position while its segments were being read.
        if request.which == Which::AllVersions && request.after < self.complete_after() {
            let oldest = self.complete_after();
            return Err(ReadError::BeforeRetention {
                asked: request.after,
                oldest,
            });
        }
        Ok(batch)
    }

    /// The same from memory, when the reader is close behind the writer.
    fn read_ring(&self, request: &ReadRequest<'_>) -> Result<Option<Batch>, ReadError> {
        if request.after < self.start {
            return Ok(None);
        }
        let mut entries = Vec::new();
        {
            let ring = self.ring.lock();
            let Some(newer) = ring.after(request.after) else {
                return Ok(None);
            };
            let mut bytes = 0;
            for (lsn, entry) in newer {
                let enough = entries.len() >= request.records_max || bytes >= request.bytes_max;
                if *lsn > request.upto || enough {
                    break;
                }
                bytes += entry.len();
                entries.push(entry.clone());
            }
        }
        let set = self.segments.read().clone();
        let mut batch = Batch {
            records: Vec::with_capacity(entries.len()),
            scanned: request.after,
        };
        for entry in &entries {
            let Ok(header) = entry::decode_header(entry) else {
                return Ok(None);
            };
            let mut found = Vec::with_capacity(usize::from(header.records));
            if entry::for_each_record(entry, &header, |record| found.push(record)).is_err() {
                return Ok(None);
            }
            for record in found {
                if is_wanted(&set, request, &record)? {
                    batch.records.push(record);
                }
            }
            batch.scanned = header.lsn;
        }
        Ok(Some(batch))
    }

    /// One record, if it is still there.
    ///
    /// # Errors
    /// When its bytes cannot be read or are damaged.
    pub fn record(&self, position: Position, epk: &[u8]) -> Result<Option<Record>, ReadError> {
        if position.origin == self.partition
            && let Some(entry) = self.ring.lock().get(position.lsn)
            && let Ok(header) = entry::decode_header(&entry)
        {
            return Ok(find_record(&entry, &header, position.ordinal));
        }
        let set = self.segments.read().clone();
        let Some(segment) = set.segment_of(position.origin, position.lsn, epk) else {
            return Ok(None);
        };
        let place = segment.with_table(|table| {
            let number = table.find(position.lsn, position.ordinal)?;
            Some((table.row(number)?.offset, table.entry_end(number)))
        })?;
        let Some((offset, end)) = place else {
            return Ok(None);
        };
        let bytes = segment.read(offset, end)?;
        let header = segment.check_entry(&bytes, offset, position.lsn)?;
        Ok(find_record(&bytes, &header, position.ordinal))
    }

    /// Where to start reading to see everything written at or after `time`; at most superfluous
    /// earlier changes are seen too, when lanes were merged.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn position_before(&self, time: Timestamp) -> Result<Lsn, ReadError> {
        let set = self.segments.read().clone();
        let found = set.before_second(time.as_seconds())?;
        Ok(found.unwrap_or_else(|| Lsn::new(self.tail_lsn.load(Ordering::Acquire))))
    }

    /// Marks a record dead that an owner's replay found superseded.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn mark_dead(&self, position: Position, epk: &[u8]) -> Result<bool, ReadError> {
        let _guard = self.marking.lock();
        let set = self.segments.read().clone();
        mark_in(&set, position, epk)
    }

    /// Marks what the log's own entries after `after` superseded.
    fn mark_superseded_after(&self, after: Lsn) -> Result<(), ReadError> {
        let tail = self.appender.lock().tail.lsn;
        let mut after = after.max(self.start);
        while after < tail {
            let batch = self.read(&ReadRequest {
                after,
                upto: tail,
                which: Which::Everything,
                range: None,
                records_max: 10_000,
                bytes_max: 16 << 20,
            })?;
            let set = self.segments.read().clone();
            for record in &batch.records {
                if let Some(prior) = record.supersedes {
                    mark_in(&set, prior, record.epk())?;
                }
            }
            after = batch.scanned;
        }
        Ok(())
    }

    fn append_now(&self, group: &Group) -> Result<(), AppendError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(AppendError::Poisoned);
        }
        let mut appender = self.appender.lock();
        let tail = appender.tail;
        if self.manifest.lock().sealed {
            return Err(AppendError::Sealed(tail.lsn));
        }
        if group.after().lsn != tail.lsn || group.after().hash != tail.hash {
            return Err(AppendError::Conflict {
                expected: group.after().lsn,
                tail: tail.lsn,
            });
        }
        let bytes = group.bytes();
        let limit = (u32::MAX / 2) as usize;
        if bytes.len() > limit {
            return Err(AppendError::TooLarge {
                bytes: bytes.len(),
                limit,
            });
        }
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let crowded = appender.offset.saturating_add(length) > self.options.segment_bytes
            || appender.records > RECORDS_MAX / 2;
        if appender.active.is_none() || (crowded && appender.records > 0) {
            self.roll(&mut appender)?;
        }
        let active = appender.active.clone().ok_or(AppendError::Poisoned)?;
        self.write(&mut appender, &active, bytes)?;
        if self.options.durability == Durability::Fsync && active.file.sync().is_err() {
            // Whether the pages are on disk can no longer be found out by asking again.
            self.poisoned.store(true, Ordering::Release);
            return Err(AppendError::Poisoned);
        }
        self.publish(&mut appender, &active, group);
        Ok(())
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
            active.file.write_at(bytes, u64::from(appender.offset))
        })();
        let Err(error) = written else { return Ok(()) };
        // Half a group behind the tail would look like damage once something else follows it.
        appender.allocated = u64::from(appender.offset);
        if active.file.truncate(u64::from(appender.offset)).is_err() {
            self.poisoned.store(true, Ordering::Release);
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Err(AppendError::DiskFull),
            _ => Err(AppendError::Io(error)),
        }
    }

    /// Makes a durable group known: table, dead bits, ring, tail.
    fn publish(&self, appender: &mut Appender, active: &Segment, group: &Group) {
        let mut superseded = Vec::new();
        active.extend_table(|table| {
            for placed in group.entries() {
                let bytes = group.bytes().slice(placed.bytes.clone());
                let header = entry::decode_header(&bytes).expect("a group holds encoded entries");
                let mut ordinals = Vec::with_capacity(usize::from(header.records));
                entry::for_each_record(&bytes, &header, |record| {
                    ordinals.push(record.position.ordinal);
                    if record.supersedes.is_some() {
                        superseded.push(record);
                    }
                })
                .expect("a group holds encoded entries");
                appender.records += ordinals.len();
                table.push(
                    header.lsn,
                    header.timestamp,
                    header.length,
                    ordinals.into_iter(),
                );
            }
        });
        {
            let _guard = self.marking.lock();
            let set = self.segments.read().clone();
            for record in &superseded {
                let marked = record
                    .supersedes
                    .map(|prior| mark_in(&set, prior, record.epk()));
                if let Some(Err(error)) = marked {
                    // A reader would see an old version once more. No checkpoint is written from now
                    // on, so the next open finds out again from the log.
                    self.marks_missing.store(true, Ordering::Release);
                    tracing::error!(%error, "could not mark a superseded record; reopen repairs it");
                }
            }
        }
        let mut ring = self.ring.lock();
        for placed in group.entries() {
            ring.push(placed.lsn, group.bytes().slice(placed.bytes.clone()));
        }
        drop(ring);
        appender.offset += u32::try_from(group.bytes().len()).unwrap_or(0);
        appender.tail = group.tail();
        self.tail_lsn
            .store(group.tail().lsn.get(), Ordering::Release);
    }

    /// Seals the active segment and starts the next one.
    fn roll(&self, appender: &mut Appender) -> Result<(), AppendError> {
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::StorageFull {
                return AppendError::DiskFull;
            }
            // A manifest may or may not have reached the disk: only reopening tells.
            self.poisoned.store(true, Ordering::Release);
            AppendError::Io(error)
        };
        self.seal_active(appender).map_err(failed)?;
        let mut manifest = self.manifest.lock();
        let info = SegmentInfo {
            number: manifest.next_segment,
            origin: self.partition,
            first_lsn: appender.tail.lsn.next(),
            previous_hash: appender.tail.hash,
            compacted: false,
            alive_at: appender.tail.lsn,
            filter: None,
            sealed: None,
        };
        let fresh = Arc::new(Segment::create(&self.disk, &self.dir, info.clone()).map_err(failed)?);
        let mut set = SegmentSet::clone(&self.segments.read());
        set.add(fresh.clone());
        let mut changed = manifest.clone();
        changed.next_segment += 1;
        changed.reached = appender.tail.lsn;
        changed.segments = set
            .segments()
            .map(|segment| segment.current_info())
            .collect();
        changed.save(&*self.disk, &self.dir).map_err(failed)?;
        *manifest = changed;
        *self.segments.write() = Arc::new(set);
        appender.active = Some(fresh);
        appender.offset = HEADER_BYTES;
        appender.allocated = 0;
        appender.records = 0;
        Ok(())
    }

    /// Writes down everything that is known about the active segment, which takes no more entries.
    fn seal_active(&self, appender: &mut Appender) -> io::Result<()> {
        let Some(active) = appender.active.clone() else {
            return Ok(());
        };
        let table = active
            .with_table(crate::table::Table::encode)
            .map_err(io::Error::other)?;
        replace_file(
            &*self.disk,
            &segment::table_path(&self.dir, active.info.number),
            &table,
        )?;
        if self.options.durability == Durability::Os {
            active.file.sync()?;
        }
        active.file.truncate(u64::from(appender.offset))?;
        active.seal(Sealed {
            last_lsn: appender.tail.lsn,
            bytes: appender.offset,
            records: u32::try_from(appender.records).unwrap_or(u32::MAX),
            last_hash: appender.tail.hash,
            newest_millis: appender.tail.timestamp.as_millis(),
        });
        appender.active = None;
        self.save_checkpoint(appender.tail.lsn)
    }

    pub(crate) fn save_checkpoint(&self, lsn: Lsn) -> io::Result<()> {
        if self.marks_missing.load(Ordering::Acquire) {
            return Ok(());
        }
        let _guard = self.marking.lock();
        let set = self.segments.read().clone();
        let bits = set
            .segments()
            .map(|segment| (segment.info.number, &segment.dead));
        let bytes = liveness::encode_checkpoint(lsn, bits);
        replace_file(&*self.disk, &checkpoint_path(&self.dir), &bytes)
    }

    pub(crate) fn save_checkpoint_now(&self) -> io::Result<()> {
        let appender = self.appender.lock();
        self.save_checkpoint(appender.tail.lsn)
    }

    /// Keeps the log from growing while the result is held.
    pub(crate) fn hold_appends(&self) -> HeldAppends<'_> {
        HeldAppends(self.appender.lock())
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
            let mut changed = manifest.clone();
            changed.sealed = true;
            changed.reached = appender.tail.lsn;
            changed.segments = self
                .segments
                .read()
                .segments()
                .map(|segment| segment.current_info())
                .collect();
            changed.save(&*self.disk, &self.dir)?;
            *manifest = changed;
            Ok(())
        });
        sealed.map_err(|error| {
            self.poisoned.store(true, Ordering::Release);
            AppendError::Io(error)
        })?;
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
        let appender = self.appender.lock();
        if self.options.durability == Durability::Os
            && let Some(active) = &appender.active
        {
            active.file.sync()?;
        }
        self.save_checkpoint(appender.tail.lsn)?;
        let mut manifest = self.manifest.lock();
        let mut changed = manifest.clone();
        changed.reached = appender.tail.lsn;
        if changed != *manifest || changed.reached.get() > 0 {
            changed.save(&*self.disk, &self.dir)?;
            *manifest = changed;
        }
        Ok(())
    }

    /// Figures about this log.
    #[must_use]
    pub fn statistics(&self) -> LogStatistics {
        let active_bytes = self.appender.lock().offset;
        let set = self.segments.read().clone();
        let mut total = LogStatistics::default();
        for segment in set.segments() {
            total.segments += 1;
            total.bytes += u64::from(segment.sealed().map_or(active_bytes, |sealed| sealed.bytes));
            total.dead_bytes += segment.dead.dead_bytes();
            total.disk_bytes += segment.file.allocated().unwrap_or(0);
        }
        total
    }

    /// Whether an earlier sync failed, so that the log must be reopened before it can be written.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    fn entry_now(&self, lsn: Lsn) -> Result<Option<Entry>, ReadError> {
        if lsn > self.appender.lock().tail.lsn || lsn <= self.start {
            return Ok(None);
        }
        let set = self.segments.read().clone();
        let own = set.lanes.iter().find(|lane| lane.origin == self.partition);
        let Some(segment) = own.and_then(|lane| {
            lane.segments
                .iter()
                .rev()
                .find(|segment| segment.info.first_lsn <= lsn)
        }) else {
            return Ok(None);
        };
        let place = segment.with_table(|table| {
            let number = table.first_after(lsn.previous());
            let row = table.row(number).filter(|row| table.lsn(*row) == lsn)?;
            Some((row.offset, table.entry_end(number)))
        })?;
        let Some((offset, end)) = place else {
            return Ok(None);
        };
        let bytes = segment.read(offset, end)?;
        segment.check_entry(&bytes, offset, lsn)?;
        let (_, entry) = entry::decode(&bytes).map_err(|bad| segment.damage(offset, lsn, bad))?;
        Ok(Some(entry))
    }
}

impl PartitionLog for Arc<LocalLog> {
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>> {
        let log = self.clone();
        Box::pin(async move { log.runtime.blocking(|| log.append_now(&group)) })
    }

    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>> {
        let found = self.entry_now(lsn);
        Box::pin(std::future::ready(found))
    }

    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>> {
        Box::pin(std::future::ready(Ok(self.local_tail())))
    }
}

/// The log does not grow while this is held.
pub(crate) struct HeldAppends<'a>(parking_lot::MutexGuard<'a, Appender>);

impl HeldAppends<'_> {
    /// The end of the log, and how many bytes and records the active segment has.
    pub(crate) fn position(&self) -> (Tail, u32, u32) {
        (
            self.0.tail,
            self.0.offset,
            u32::try_from(self.0.records).unwrap_or(u32::MAX),
        )
    }
}

impl Appender {
    /// Goes on behind what one of the log's own segments holds. Returns the bytes of a torn write.
    fn adopt(&mut self, segment: &Arc<Segment>, info: &SegmentInfo) -> Result<u64, OpenError> {
        if let Some(sealed) = info.sealed {
            if sealed.last_lsn >= self.tail.lsn {
                self.tail = Tail {
                    lsn: sealed.last_lsn,
                    hash: sealed.last_hash,
                    timestamp: Timestamp::from_millis(sealed.newest_millis)
                        .max(self.tail.timestamp),
                };
            }
            return Ok(0);
        }
        let scanned = recovery::scan_active(segment)?;
        self.offset = scanned.table.end();
        self.records = scanned.table.len();
        if scanned.torn_bytes > 0 {
            tracing::warn!(
                file = %segment.path.display(),
                offset = self.offset,
                bytes = scanned.torn_bytes,
                "cut off a write that was never acknowledged"
            );
            let io = |source| OpenError::Io {
                dir: segment.path.clone(),
                source,
            };
            segment.file.truncate(u64::from(self.offset)).map_err(io)?;
            segment.file.sync().map_err(io)?;
        }
        self.allocated = u64::from(self.offset);
        self.tail = Tail {
            lsn: scanned.last_lsn,
            hash: scanned.last_hash,
            timestamp: scanned.newest.max(self.tail.timestamp),
        };
        segment.set_table(scanned.table);
        self.active = Some(segment.clone());
        Ok(scanned.torn_bytes)
    }
}

fn is_wanted(
    set: &SegmentSet,
    request: &ReadRequest<'_>,
    record: &Record,
) -> Result<bool, ReadError> {
    use crate::entry::RecordKind;
    let shown = match request.which {
        Which::Live => record.kind == RecordKind::Put,
        Which::AllVersions => record.kind != RecordKind::Control,
        Which::Everything => true,
    };
    if !shown
        || !request
            .range
            .is_none_or(|range| range.contains(record.epk()))
    {
        return Ok(false);
    }
    if request.which != Which::Live {
        return Ok(true);
    }
    let Position {
        origin,
        lsn,
        ordinal,
    } = record.position;
    match set.segment_of(origin, lsn, record.epk()) {
        Some(segment) => Ok(!segment.is_dead(lsn, ordinal)?),
        None => Ok(false),
    }
}

fn mark_in(set: &SegmentSet, position: Position, epk: &[u8]) -> Result<bool, ReadError> {
    match set.segment_of(position.origin, position.lsn, epk) {
        Some(segment) => segment.mark_dead(position.lsn, position.ordinal),
        None => Ok(false),
    }
}

fn find_record(bytes: &bytes::Bytes, header: &entry::Header, ordinal: u16) -> Option<Record> {
    let mut found = None;
    entry::for_each_record(bytes, header, |record| {
        if record.position.ordinal == ordinal {
            found = Some(record);
        }
    })
    .ok()?;
    found
}

fn checkpoint_path(dir: &Path) -> PathBuf {
    dir.join("LIVENESS")
}

/// Writes the files of a new log; the manifest comes last and makes them count.
fn create_files(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    partition: PartitionId,
    ancestors: &[Ancestor],
    start: Lsn,
) -> io::Result<()> {
    disk.remove_dir(dir)?;
    disk.create_dir(dir)?;
    let mut manifest = Manifest {
        partition,
        epoch: 0,
        start,
        reached: start,
        sealed: false,
        complete_after: Lsn::ZERO,
        next_segment: 1,
        segments: Vec::new(),
    };
    let mut bits = Vec::new();
    for ancestor in ancestors {
        manifest.complete_after = manifest.complete_after.max(ancestor.log.complete_after());
        let set = ancestor.log.segments.read().clone();
        for segment in set.segments() {
            let known = segment.info.filter.clone().unwrap_or_else(KeyRange::full);
            let Some(filter) = known.intersect(&ancestor.range) else {
                continue;
            };
            let number = manifest.next_segment;
            manifest.next_segment += 1;
            disk.link(&segment.path, &segment::segment_path(dir, number))?;
            let table = segment
                .with_table(crate::table::Table::encode)
                .map_err(io::Error::other)?;
            replace_file(&**disk, &segment::table_path(dir, number), &table)?;
            let info = segment.current_info();
            manifest.segments.push(SegmentInfo {
                number,
                alive_at: start,
                filter: Some(filter),
                ..info
            });
            bits.push((number, segment.dead.copy()));
        }
    }
    if !bits.is_empty() {
        let bits = bits.iter().map(|(number, bits)| (*number, bits));
        let bytes = liveness::encode_checkpoint(start, bits);
        replace_file(&**disk, &checkpoint_path(dir), &bytes)?;
    }
    disk.sync_dir(dir)?;
    manifest.save(&**disk, dir)?;
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent)?;
    }
    Ok(())
}

/// Removes files the manifest does not name: leftovers of a crash between two steps.
fn remove_strangers(disk: &Arc<dyn Disk>, dir: &Path, manifest: &Manifest) -> io::Result<()> {
    for name in disk.list(dir)? {
        let Some((stem, extension)) = name.split_once('.') else {
            continue;
        };
        let known = stem.parse::<u64>().is_ok_and(|number| {
            manifest
                .segments
                .iter()
                .any(|segment| segment.number == number)
        });
        if (matches!(extension, "seg" | "tab") && !known) || extension == "tmp" {
            disk.remove(&dir.join(name))?;
        }
    }
    Ok(())
}

/// The dead bits as they were last written down, and whether they are lost beyond repair by replay.
fn load_checkpoint(disk: &Arc<dyn Disk>, dir: &Path, manifest: &Manifest) -> (Checkpoint, bool) {
    let path = checkpoint_path(dir);
    let bytes = read_file(&**disk, &path, CHECKPOINT_BYTES_MAX);
    let missing = bytes.is_err();
    if let Some(checkpoint) = bytes
        .ok()
        .and_then(|bytes| liveness::decode_checkpoint(&bytes))
    {
        return (checkpoint, false);
    }
    // The log's own entries name what they supersede, so replaying them all is enough, unless
    // compaction has dropped some of them or older entries were inherited.
    let replay_is_enough = manifest
        .segments
        .iter()
        .all(|segment| !segment.compacted && segment.origin == manifest.partition);
    if !missing || !replay_is_enough {
        tracing::warn!(file = %path.display(), "dead bits missing or damaged, found out again");
    }
    let nothing_known = Checkpoint {
        lsn: manifest.start,
        segments: Default::default(),
    };
    (nothing_known, !replay_is_enough)
}
