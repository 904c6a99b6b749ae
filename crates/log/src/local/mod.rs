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
//! This file serves reads; `open` opens and recovers, `append` writes. The log never decides what is written:
//! it appends the given bytes after the entry they name, or returns an error.

mod append;
mod open;
mod overtaken;
mod record_reader;

use crate::PartitionLog;
use crate::compaction::files_newest_first;
use crate::disk::Disk;
use crate::entry::{self, Entry, Group, Position, Record, Tail};
use crate::error::{AppendError, Damage, ReadError};
use crate::floors::Floors;
use crate::invariants;
use crate::manifest::{Manifest, Sealed};
use crate::meter::LogMeter;
use crate::read::{Batch, Extent, Filling, ReadRequest, SegmentSet, Which};
use crate::ring::Ring;
use crate::segment::Segment;
use crate::table::Table;
use append::SavedCheckpoint;
use bytes::Bytes;
use headwater_model::{KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::{BoxFuture, Runtime};
use parking_lot::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use open::{Ancestor, Opened};
pub use record_reader::RecordReader;

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Synced to disk: survives a crash of the machine.
    #[default]
    Fsync,
    /// Written to the operating system: survives a crash of the process, not of the machine.
    Os,
}

/// Options of a local log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// A segment is sealed before it grows beyond this size.
    pub segment_bytes: u32,
    /// How many bytes of the newest entries stay in memory.
    pub ring_bytes: usize,
    /// The metrics of the log, shared with other logs.
    pub meter: Arc<LogMeter>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            durability: Durability::Fsync,
            segment_bytes: 64 << 20,
            ring_bytes: 1 << 20,
            meter: Arc::default(),
        }
    }
}

/// Statistics of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStatistics {
    /// Segment files.
    pub segments: u64,
    /// Bytes of entries in them.
    pub bytes: u64,
    /// Bytes of those entries that are superseded.
    pub dead_bytes: u64,
    /// Records that are not superseded.
    pub live_records: u64,
    /// Whether some files were linked in a split or merge, and so also hold records of other partitions.
    pub shared: bool,
    /// Allocated bytes of the files on disk.
    pub disk_bytes: u64,
}

/// The log of one partition in local files.
///
/// Lock order: `compacting`, `appender`, `manifest`, `marking`, `segments`, the table of a segment. While
/// `ring`, `floors` or `saved_checkpoint` is held, no other lock is taken.
#[derive(Debug)]
pub struct LocalLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) options: LogOptions,
    pub(crate) runtime: Runtime,
    partition: PartitionId,
    epoch: u32,
    start: Lsn,
    /// The partition was split or merged.
    sealed: AtomicBool,
    pub(crate) segments: RwLock<Arc<SegmentSet>>,
    appender: Mutex<Appender>,
    tail_lsn: AtomicU64,
    /// Entries up to here may have set dead bits. Advances before the first bit is set.
    marked_lsn: AtomicU64,
    /// The highest floor, readable without a lock. Raised after the floors.
    complete_after: AtomicU64,
    /// The LSN after which all versions are complete, by key.
    pub(crate) floors: RwLock<Floors>,
    ring: Mutex<Ring>,
    poisoned: AtomicBool,
    /// Some dead bits are missing, because marking failed or the owner has not restored them yet. Until then
    /// the bits must not be saved as a checkpoint or used by compaction.
    marks_missing: AtomicBool,
    /// Numbers checkpoints in the order in which they were taken.
    checkpoint_sequence: AtomicU64,
    /// The checkpoint on disk. Held while it is replaced.
    saved_checkpoint: Mutex<SavedCheckpoint>,
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
    /// The blocks up to this offset were written at least once.
    zeroed: u64,
    records: usize,
    tombstone_bytes: u32,
}

impl Appender {
    /// The final state of the active segment if it were sealed now.
    fn seal_here(&self) -> Sealed {
        Sealed {
            last_lsn: self.tail.lsn,
            bytes: self.offset,
            records: u32::try_from(self.records).unwrap_or(u32::MAX),
            tombstone_bytes: self.tombstone_bytes,
            last_hash: self.tail.hash,
            newest_millis: self.tail.timestamp.as_millis(),
        }
    }
}

impl LocalLog {
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

    /// Whether the log is sealed, because the partition was split or merged.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    /// Whether a power cut may lose entries at the end of the log, because appends are not synced.
    #[must_use]
    pub fn may_lose_its_end(&self) -> bool {
        let active = self.appender.lock().active.clone();
        active.is_some_and(|active| active.info.relaxed)
    }

    /// All versions of all keys are complete after this position.
    #[must_use]
    pub fn complete_after(&self) -> Lsn {
        Lsn::new(self.complete_after.load(Ordering::Acquire))
    }

    /// The retention floors of a key range, split where the floor changes.
    #[must_use]
    pub fn complete_by_key(&self, keys: &KeyRange) -> Vec<(KeyRange, Lsn)> {
        self.floors.read().pieces(keys)
    }

    /// Raises the retention floor of these keys, before their history up to an LSN is dropped.
    pub(crate) fn raise_floor(&self, keys: KeyRange, lsn: Lsn) {
        self.floors.write().raise(keys, lsn);
        self.complete_after.fetch_max(lsn.get(), Ordering::AcqRel);
    }

    /// Reads records in order, see [`ReadRequest`]. Never returns unpublished entries, even if `upto` is higher.
    ///
    /// # Errors
    /// When bytes cannot be read or are damaged, or when a read of all versions starts before the retained
    /// history.
    pub fn read(&self, request: &ReadRequest<'_>) -> Result<Batch, ReadError> {
        self.read_as(request)
    }

    /// Like [`LocalLog::read`], but converts each record when it is decoded, which saves a second move.
    ///
    /// # Errors
    /// As [`LocalLog::read`].
    pub fn read_as<T>(&self, request: &ReadRequest<'_>) -> Result<Batch<T>, ReadError>
    where
        T: From<Record> + AsRef<Record>,
    {
        self.check_retention(request)?;
        // The tail first, then the segments, so that they hold every entry up to the tail. Entries after the tail
        // may be partly published: in the table, but without the dead bits of what they supersede.
        let request =
            &ReadRequest { upto: request.upto.min(self.visible_tail()), ..request.clone() };
        if request.after >= request.upto {
            return Ok(Batch { records: Vec::new(), scanned: request.after });
        }
        let batch = self.read_unclamped(request)?;
        let batch = self.restore_overtaken(request, batch)?;
        debug_assert_eq!(invariants::page_answers_request(request, &batch.to_records()), Ok(()));
        Ok(batch)
    }

    /// Computes the end of such a read from the offset tables, without reading any record.
    ///
    /// `None` if the log has less than requested, or if the tables are not enough. If records die meanwhile, the
    /// read only ends later.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub fn extent(&self, request: &ReadRequest<'_>) -> Result<Option<Extent>, ReadError> {
        let upto = request.upto.min(self.visible_tail());
        let set = self.segments.read().clone();
        set.extent(&ReadRequest { upto, ..request.clone() })
    }

    /// Reads records in order, up to an end that the segments already hold.
    fn read_unclamped<T>(&self, request: &ReadRequest<'_>) -> Result<Batch<T>, ReadError>
    where
        T: From<Record> + AsRef<Record>,
    {
        if let Some(batch) = self.read_ring(request)? {
            return Ok(batch);
        }
        let set = self.segments.read().clone();
        let batch = set.read(request)?;
        // Compaction may have passed the position while its segments were being read.
        self.check_retention(request)?;
        Ok(batch)
    }

    fn check_retention(&self, request: &ReadRequest<'_>) -> Result<(), ReadError> {
        if request.which != Which::AllVersions || request.after >= self.complete_after() {
            return Ok(());
        }
        let all = KeyRange::full();
        let oldest = self.floors.read().of(request.range.unwrap_or(&all));
        if request.after < oldest {
            return Err(ReadError::BeforeRetention { asked: request.after, oldest });
        }
        Ok(())
    }

    fn visible_tail(&self) -> Lsn {
        Lsn::new(self.tail_lsn.load(Ordering::Acquire))
    }

    /// Reads from the ring in memory; `None` if the ring does not reach back that far.
    fn read_ring<T: From<Record>>(
        &self,
        request: &ReadRequest<'_>,
    ) -> Result<Option<Batch<T>>, ReadError> {
        if request.after < self.start {
            return Ok(None);
        }
        let mut scanned = request.after;
        let mut filling: Option<Filling<T>> = None;
        while scanned < request.upto {
            let found = filling.as_ref().map_or(0, |filling| filling.records.len());
            let left = request.records_max.saturating_sub(found);
            let newer = self.ring.lock().after(scanned, left.max(1));
            // The writer may overtake a reader in the ring; the segments have everything.
            let Some(newer) = newer.filter(|newer| !newer.is_empty()) else {
                return Ok(None);
            };
            let filling = filling.get_or_insert_with(|| Filling::new(request));
            let set = self.segments.read().clone();
            for entry in newer {
                let Ok(header) = entry::decode_header(&entry) else {
                    return Ok(None);
                };
                if header.lsn > request.upto {
                    break;
                }
                let mut found = Vec::with_capacity(usize::from(header.records));
                if entry::for_each_record(&entry, &header, |record| found.push(record)).is_err() {
                    return Ok(None);
                }
                for record in found {
                    if is_wanted(&set, request, &record)? {
                        filling.push(record);
                    }
                }
                scanned = header.lsn;
                if filling.is_full(request) {
                    break;
                }
            }
            if filling.is_full(request) {
                break;
            }
        }
        Ok(filling.map(|filling| filling.end(scanned)))
    }

    /// Reads one record; `None` if it is no longer in the log.
    ///
    /// # Errors
    /// When its bytes cannot be read or are damaged.
    pub fn record(&self, position: Position, epk: &[u8]) -> Result<Option<Record>, ReadError> {
        if let Some((entry, header)) = self.entry_in_ring(position) {
            return Ok(find_record(&entry, &header, position.ordinal));
        }
        self.record_in_file(position, epk, false)
    }

    /// The entry of a record, if it is in the ring.
    fn entry_in_ring(&self, position: Position) -> Option<(Bytes, entry::Header)> {
        if position.origin != self.partition {
            return None;
        }
        let entry = self.ring.lock().get(position.lsn)?;
        let header = entry::decode_header(&entry).ok()?;
        Some((entry, header))
    }

    /// Reads one record if nothing has superseded it. `None` also while dead bits are missing.
    ///
    /// # Errors
    /// When its bytes cannot be read or are damaged.
    pub fn live_record(&self, position: Position, epk: &[u8]) -> Result<Option<Record>, ReadError> {
        if self.are_marks_missing() {
            return Ok(None);
        }
        self.record_in_file(position, epk, true)
    }

    fn record_in_file(
        &self,
        position: Position,
        epk: &[u8],
        only_live: bool,
    ) -> Result<Option<Record>, ReadError> {
        let Some((entry, header)) = self.entry_in_file(position, epk, only_live)? else {
            return Ok(None);
        };
        let record = find_record(&entry, &header, position.ordinal);
        Ok(record.map(|record| record.detached_from(entry.len())))
    }

    /// Reads and checks the entry of a record in its segment.
    fn entry_in_file(
        &self,
        position: Position,
        epk: &[u8],
        only_live: bool,
    ) -> Result<Option<(Bytes, entry::Header)>, ReadError> {
        let set = self.segments.read().clone();
        let Some(segment) = set.segment_of(position.origin, position.lsn, epk) else {
            return Ok(None);
        };
        let Some((offset, end)) = place_in(segment, position, only_live)? else {
            return Ok(None);
        };
        let bytes = segment.read(offset, end)?;
        let header = segment.check_entry(&bytes, offset, position.lsn)?;
        Ok(Some((bytes, header)))
    }

    /// The size of the entry that holds a record, from the offset table; 0 if it is no longer in the log.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn entry_bytes(&self, position: Position, epk: &[u8]) -> Result<u32, ReadError> {
        let set = self.segments.read().clone();
        let segment = set.segment_of(position.origin, position.lsn, epk);
        let place = segment.map(|segment| place_in(segment, position, false)).transpose()?;
        Ok(place.flatten().map_or(0, |(offset, end)| end - offset))
    }

    /// Describes a record that its reader cannot decode as damage, with file and offset.
    #[must_use]
    pub fn damage_at(&self, position: Position, epk: &[u8], what: &str) -> Damage {
        let set = self.segments.read().clone();
        let Some(segment) = set.segment_of(position.origin, position.lsn, epk) else {
            return Damage::new(&self.dir, 0, Some(position.lsn), what);
        };
        let find =
            |table: &Table| Some(table.row(table.find(position.lsn, position.ordinal)?)?.offset);
        let offset = segment.with_table(find).ok().flatten().unwrap_or(0);
        Damage::new(&segment.path, u64::from(offset), Some(position.lsn), what)
    }

    /// The position from which a read sees everything written at or after `time`.
    ///
    /// In a merged partition the read may also see earlier changes.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn position_before(&self, time: Timestamp) -> Result<Lsn, ReadError> {
        // The tail first: entries appended during the search are after it.
        let tail = self.visible_tail();
        let set = self.segments.read().clone();
        let found = set.before_second(time.as_seconds())?;
        Ok(found.map_or(tail, |found| found.min(tail)))
    }

    /// Like [`LocalLog::position_before`], for each key range, split where the position changes.
    ///
    /// Reads from these positions see no earlier changes.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn positions_before(
        &self,
        time: Timestamp,
        keys: &KeyRange,
    ) -> Result<Vec<(KeyRange, Lsn)>, ReadError> {
        let tail = self.visible_tail();
        let set = self.segments.read().clone();
        let found = set.before_second_by_key(time.as_seconds(), keys)?;
        let or_tail = |found: Option<Lsn>| found.map_or(tail, |found| found.min(tail));
        Ok(found.into_iter().map(|(keys, found)| (keys, or_tail(found))).collect())
    }

    /// Bytes of superseded entries and tombstones that readers of all versions can still read.
    ///
    /// A file that two lanes share counts once.
    #[must_use]
    pub fn history_bytes(&self) -> u64 {
        let floors = self.floors.read().clone();
        let set = self.segments.read().clone();
        let all = KeyRange::full();
        let is_complete = |segment: &&Arc<Segment>| {
            let floor = floors.of(segment.info.filter.as_ref().unwrap_or(&all));
            segment.sealed().is_none_or(|sealed| sealed.last_lsn > floor)
        };
        let files = files_newest_first(set.segments().filter(is_complete));
        files.into_iter().map(|(_, history_bytes)| history_bytes).sum()
    }

    /// Bytes of live entries.
    ///
    /// A file that two lanes share counts once. A file shared with another log counts in full.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let active_bytes = self.appender.lock().offset;
        let set = self.segments.read().clone();
        let files = files_newest_first(set.segments());
        let live = files.into_iter().map(|(segment, history_bytes)| {
            let bytes = u64::from(segment.sealed().map_or(active_bytes, |sealed| sealed.bytes));
            bytes.saturating_sub(history_bytes)
        });
        live.sum()
    }

    /// The time, in whole seconds, of the first entry from which on all versions of all keys are complete.
    ///
    /// `None` if there is no such entry.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn oldest_complete(&self) -> Result<Option<Timestamp>, ReadError> {
        let complete_after = self.complete_after();
        let set = self.segments.read().clone();
        let second = set.first_second_after(complete_after)?;
        Ok(second.map(Timestamp::from_seconds))
    }

    /// Marks a record dead that the owner's replay found superseded.
    ///
    /// # Errors
    /// When an offset table cannot be read.
    pub fn mark_dead(&self, position: Position, epk: &[u8]) -> Result<bool, ReadError> {
        let _guard = self.marking.lock();
        let set = self.segments.read().clone();
        mark_in(&set, position, epk)
    }

    /// Confirms that all superseded records are marked, after dead bits were lost.
    ///
    /// Until then the log neither compacts nor saves its dead bits: both would make the missing bits permanent.
    pub fn liveness_restored(&self) {
        self.marks_missing.store(false, Ordering::Release);
    }

    pub(crate) fn are_marks_missing(&self) -> bool {
        self.marks_missing.load(Ordering::Acquire)
    }

    /// Marks the records superseded by the log's own entries after `after`.
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

    /// Blocks appends while the returned guard is held.
    pub(crate) fn hold_appends(&self) -> HeldAppends<'_> {
        HeldAppends(self.appender.lock())
    }

    /// Bytes of the newest entries that are in memory.
    #[must_use]
    pub fn ring_bytes(&self) -> u64 {
        self.ring.lock().byte_count() as u64
    }

    /// Computes statistics of this log.
    #[must_use]
    pub fn statistics(&self) -> LogStatistics {
        let active_bytes = self.appender.lock().offset;
        let set = self.segments.read().clone();
        let mut total = LogStatistics::default();
        for segment in set.segments() {
            total.segments += 1;
            total.bytes += u64::from(segment.sealed().map_or(active_bytes, |sealed| sealed.bytes));
            total.dead_bytes += segment.dead.dead_bytes();
            // The table of the active segment is in memory; that of a sealed one need not be read.
            let records = match segment.sealed() {
                Some(sealed) => u64::from(sealed.records),
                None => segment.with_table(|table| table.len() as u64).unwrap_or(0),
            };
            total.live_records += records.saturating_sub(segment.dead.dead_records());
            total.shared |= segment.info.shared;
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
        if lsn > self.visible_tail() || lsn <= self.start {
            return Ok(None);
        }
        let set = self.segments.read().clone();
        let own = set.lanes.iter().find(|lane| lane.origin == self.partition);
        let Some(segment) = own.and_then(|lane| {
            lane.segments.iter().rev().find(|segment| segment.info.first_lsn <= lsn)
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
        Box::pin(async move { log.runtime.syncing(|| log.append_now(&group)) })
    }

    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>> {
        let found = self.entry_now(lsn);
        Box::pin(std::future::ready(found))
    }

    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>> {
        Box::pin(std::future::ready(Ok(self.local_tail())))
    }
}

/// Guard that blocks appends.
pub(crate) struct HeldAppends<'a>(parking_lot::MutexGuard<'a, Appender>);

impl HeldAppends<'_> {
    /// The end of the log, and the active segment as if it were sealed there.
    pub(crate) fn position(&self) -> (Tail, Sealed) {
        (self.0.tail, self.0.seal_here())
    }
}

fn is_wanted(
    set: &SegmentSet,
    request: &ReadRequest<'_>,
    record: &Record,
) -> Result<bool, ReadError> {
    let in_range = request.range.is_none_or(|range| range.contains(record.epk()));
    if !request.which.shows(record.kind) || !in_range {
        return Ok(false);
    }
    if request.which != Which::Live {
        return Ok(true);
    }
    let Position { origin, lsn, ordinal } = record.position;
    match set.segment_of(origin, lsn, record.epk()) {
        Some(segment) => Ok(!segment.is_dead(lsn, ordinal)?),
        None => Ok(false),
    }
}

/// The start and end offset of a record's entry in the segment.
fn place_in(
    segment: &Segment,
    position: Position,
    only_live: bool,
) -> Result<Option<(u32, u32)>, ReadError> {
    segment.with_table(|table| {
        let number = table.find(position.lsn, position.ordinal)?;
        let is_wanted = !(only_live && segment.dead.is_dead(number));
        is_wanted.then_some((table.row(number)?.offset, table.entry_end(number)))
    })
}

fn mark_in(set: &SegmentSet, position: Position, epk: &[u8]) -> Result<bool, ReadError> {
    match set.segment_of(position.origin, position.lsn, epk) {
        Some(segment) => segment.mark_dead(position.lsn, position.ordinal),
        None => Ok(false),
    }
}

fn find_record(bytes: &Bytes, header: &entry::Header, ordinal: u16) -> Option<Record> {
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
