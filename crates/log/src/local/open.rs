//! Opens a log, and creates the log of a new partition, empty or from its ancestors.
//!
//! The manifest lists the files; a log exists once it has a manifest. Only the manifest and the segments, which
//! have checksums, are the source of truth. Offset tables and dead bits are derived, and rebuilt if missing.

use super::append::SavedCheckpoint;
use super::{Appender, LocalLog, LogOptions, checkpoint_path};
use crate::disk::{Disk, read_file, replace_file};
use crate::entry::Tail;
use crate::error::{Damage, OpenError};
use crate::floors::Floors;
use crate::liveness::{self, Checkpoint, DeadBits};
use crate::manifest::{self, Manifest, SegmentInfo};
use crate::read::SegmentSet;
use crate::recovery;
use crate::ring::Ring;
use crate::segment::{self, HEADER_BYTES, Segment};
use headwater_model::{KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::Runtime;
use parking_lot::{Mutex, RwLock};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The largest checkpoint of dead bits.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 30;

/// An opened log and the result of its recovery.
#[derive(Debug)]
pub struct Opened {
    /// The log.
    pub log: Arc<LocalLog>,
    /// Dead bits could not be restored.
    ///
    /// The owner must replay the log, call [`LocalLog::mark_dead`] for each superseded record, and then
    /// [`LocalLog::liveness_restored`].
    pub liveness_lost: bool,
    /// Bytes of a torn, unacknowledged write that were cut off.
    pub torn_bytes: u64,
}

/// A log that a new partition takes over, and the part of it that belongs to the new one.
#[derive(Clone, Debug)]
pub struct Ancestor {
    /// The sealed log.
    pub log: Arc<LocalLog>,
    /// The keys that the new partition takes over.
    pub range: KeyRange,
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

    /// Creates the log of a partition that takes over (parts of) sealed logs.
    ///
    /// Its LSNs start after `start`, which must not be before the end of any of them. Idempotent.
    ///
    /// # Errors
    /// When the files cannot be written or linked, or the directory holds a log without a manifest.
    ///
    /// # Panics
    /// When an ancestor is not sealed, or ends after `start`.
    pub fn inherit(
        disk: Arc<dyn Disk>,
        dir: &Path,
        partition: PartitionId,
        ancestors: &[Ancestor],
        start: Lsn,
        options: LogOptions,
        runtime: Runtime,
    ) -> Result<Opened, OpenError> {
        let io = |source| OpenError::Io { dir: dir.to_owned(), source };
        match disk.open(&manifest::path(dir), false) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_if_written(&disk, dir, partition)?;
                create_files(&disk, dir, partition, ancestors, start).map_err(io)?;
            }
            // A manifest that cannot be read is not a missing manifest: do not create a new log.
            Err(source) => return Err(OpenError::Io { dir: manifest::path(dir), source }),
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
        remove_strangers(&disk, dir, &manifest)
            .map_err(|source| OpenError::Io { dir: dir.to_owned(), source })?;
        let (mut checkpoint, mut liveness_lost) = load_checkpoint(&disk, dir, &manifest);
        // Dead bits are saved only for durable entries.
        let reached = manifest.reached.max(checkpoint.lsn);

        let mut set = SegmentSet::default();
        let mut appender = Appender {
            active: None,
            tail: Tail { timestamp: manifest.clock, ..Tail::start(manifest.start) },
            offset: HEADER_BYTES,
            allocated: 0,
            zeroed: 0,
            records: 0,
            tombstone_bytes: 0,
        };
        let mut replay_after = checkpoint.lsn;
        let mut checkpointed = checkpoint.lsn;
        let mut torn_bytes = 0;
        for info in &manifest.segments {
            let dead = match checkpoint.segments.remove(&info.number) {
                Some(bits) => bits,
                None => {
                    if info.compacted {
                        replay_after = replay_after.min(info.alive_at);
                        checkpointed = Lsn::ZERO;
                    }
                    DeadBits::default()
                }
            };
            let segment = Arc::new(Segment::open(&disk, dir, info.clone(), dead)?);
            torn_bytes += appender.adopt(&segment, partition, reached)?;
            set.add(segment);
        }
        if appender.tail.lsn < reached {
            let own = manifest.segments.iter().rfind(|segment| segment.origin == partition);
            let what = format!("the log ends here, but it had reached LSN {reached}");
            let path =
                own.map_or(manifest::path(dir), |own| segment::segment_path(dir, own.number));
            let hole = Some(appender.tail.lsn.next());
            return Err(Damage::new(&path, u64::from(appender.offset), hole, what).into());
        }
        manifest.reached = appender.tail.lsn;
        let log = Arc::new(LocalLog {
            runtime,
            partition,
            epoch: manifest.epoch,
            start: manifest.start,
            sealed: AtomicBool::new(manifest.sealed),
            tail_lsn: AtomicU64::new(appender.tail.lsn.get()),
            marked_lsn: AtomicU64::new(appender.tail.lsn.get()),
            complete_after: AtomicU64::new(manifest.floors.highest().get()),
            floors: RwLock::new(manifest.floors.clone()),
            segments: RwLock::new(Arc::new(set)),
            appender: Mutex::new(appender),
            ring: Mutex::new(Ring::new(options.ring_bytes)),
            poisoned: AtomicBool::new(false),
            marks_missing: AtomicBool::new(false),
            checkpoint_sequence: AtomicU64::new(0),
            saved_checkpoint: Mutex::new(SavedCheckpoint { lsn: checkpointed, sequence: 0 }),
            manifest: Mutex::new(manifest),
            marking: Mutex::new(()),
            compacting: Mutex::new(()),
            disk,
            dir: dir.to_owned(),
            options,
        });
        if !liveness_lost && log.mark_superseded_after(replay_after).is_err() {
            // The owner's replay will read the same damage and report it.
            liveness_lost = true;
        }
        log.marks_missing.store(liveness_lost, Ordering::Release);
        Ok(Opened { log, liveness_lost, torn_bytes })
    }
}

impl Appender {
    /// Recovers the active segment and continues after its last entry. Returns the bytes of a torn write.
    fn adopt(
        &mut self,
        segment: &Arc<Segment>,
        partition: PartitionId,
        reached: Lsn,
    ) -> Result<u64, OpenError> {
        if let Some(sealed) = segment.info.sealed {
            if segment.info.origin == partition && sealed.last_lsn >= self.tail.lsn {
                let newest = Timestamp::from_millis(sealed.newest_millis);
                self.tail = Tail {
                    lsn: sealed.last_lsn,
                    hash: sealed.last_hash,
                    timestamp: self.tail.timestamp.max(newest),
                };
            }
            return Ok(0);
        }
        let scanned = recovery::scan_active(segment, reached)?;
        if scanned.torn_bytes > 0 {
            tracing::warn!(
                file = %segment.path.display(),
                offset = scanned.table.end(),
                bytes = scanned.torn_bytes,
                "cut off a write that was never acknowledged"
            );
        }
        // After a clean shutdown all entries are already durable.
        if scanned.torn_bytes > 0 || scanned.last_lsn > reached {
            scanned
                .make_durable(segment)
                .map_err(|source| OpenError::Io { dir: segment.path.clone(), source })?;
        }
        self.offset = scanned.table.end();
        self.records = scanned.table.len();
        self.tombstone_bytes = scanned.tombstone_bytes;
        self.allocated = u64::from(self.offset);
        self.zeroed = self.allocated;
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

/// Returns an error if a directory without a manifest holds segments of the partition's own origin.
///
/// Own segments are created after the manifest, so then the manifest was lost. All other files are leftovers of
/// an interrupted creation, which may be removed.
fn refuse_if_written(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    partition: PartitionId,
) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { dir: dir.to_owned(), source };
    for name in disk.list(dir).map_err(io)? {
        if segment::number_of(&name, "seg").is_none() {
            continue;
        }
        let file = disk.open(&dir.join(&name), false).map_err(io)?;
        if segment::origin(&*file).is_some_and(|origin| origin == partition) {
            let what = format!("the manifest is missing, but {name} belongs to the log");
            return Err(Damage::new(&manifest::path(dir), 0, None, what).into());
        }
    }
    Ok(())
}

/// Writes the files of a new log. The manifest comes last and makes them valid.
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
        floors: Floors::default(),
        clock: Timestamp::from_millis(0),
        next_segment: 1,
        segments: Vec::new(),
    };
    let mut bits = Vec::new();
    let mut bits_are_known = true;
    for ancestor in ancestors {
        let end = ancestor.log.local_tail();
        assert!(
            ancestor.log.is_sealed() && end.lsn <= start,
            "a log is taken over when it has ended, at or before the start of the new one"
        );
        manifest.clock = manifest.clock.max(end.timestamp);
        // A compaction that began before the log was sealed may still be replacing files.
        let _quiet = ancestor.log.compacting.lock();
        bits_are_known &= !ancestor.log.marks_missing.load(Ordering::Acquire);
        manifest.floors.inherit(&ancestor.log.floors.read(), &ancestor.range);
        let set = ancestor.log.segments.read().clone();
        for segment in set.segments() {
            let known = segment.info.filter.clone().unwrap_or_else(KeyRange::full);
            let Some(filter) = known.intersect(&ancestor.range) else {
                continue;
            };
            let number = manifest.take_number();
            disk.link(&segment.path, &segment::segment_path(dir, number))?;
            let table =
                segment.with_table(crate::table::Table::encode).map_err(io::Error::other)?;
            replace_file(&**disk, &segment::table_path(dir, number), &table)?;
            manifest.segments.push(SegmentInfo {
                number,
                alive_at: start,
                shared: true,
                filter: Some(filter),
                ..segment.current_info()
            });
            bits.push((number, segment.dead.copy()));
        }
    }
    let taken: Vec<KeyRange> = ancestors.iter().map(|ancestor| ancestor.range.clone()).collect();
    manifest.floors.simplify(&taken);
    // An ancestor with missing dead bits must not pass them on.
    if !bits.is_empty() && bits_are_known {
        let bits = bits.iter().map(|(number, bits)| (*number, bits));
        let bytes = liveness::encode_checkpoint(partition, start, bits);
        replace_file(&**disk, &checkpoint_path(dir), &bytes)?;
    }
    disk.sync_dir(dir)?;
    manifest.save(&**disk, dir)?;
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent)?;
    }
    Ok(())
}

/// Removes files that the manifest does not name: leftovers of a crash.
fn remove_strangers(disk: &Arc<dyn Disk>, dir: &Path, manifest: &Manifest) -> io::Result<()> {
    for name in disk.list(dir)? {
        let number = segment::number_of(&name, "seg").or(segment::number_of(&name, "tab"));
        let unknown = number.is_some_and(|number| {
            !manifest.segments.iter().any(|segment| segment.number == number)
        });
        if unknown || name.ends_with(".tmp") {
            disk.remove(&dir.join(name))?;
        }
    }
    Ok(())
}

/// Loads the saved dead bits. True if they are lost and a replay of own entries cannot restore them.
fn load_checkpoint(disk: &Arc<dyn Disk>, dir: &Path, manifest: &Manifest) -> (Checkpoint, bool) {
    let path = checkpoint_path(dir);
    let bytes = read_file(&**disk, &path, CHECKPOINT_BYTES_MAX);
    let missing = bytes.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let decoded = bytes.ok().and_then(|bytes| liveness::decode_checkpoint(&bytes));
    // Entries that compaction has dropped cannot be replayed, so an older checkpoint is not usable.
    let is_usable = |checkpoint: &Checkpoint| {
        checkpoint.partition == manifest.partition && checkpoint.lsn >= manifest.floors.highest()
    };
    if let Some(checkpoint) = decoded.filter(is_usable) {
        return (checkpoint, false);
    }
    // The log's own entries name what they supersede, so a replay of them is enough, unless compaction has
    // dropped some of them (or whole segments), or older entries were inherited.
    let replay_is_enough = manifest.floors.highest() == Lsn::ZERO
        && manifest
            .segments
            .iter()
            .all(|segment| !segment.compacted && segment.origin == manifest.partition);
    // A restored backup has no dead bits, so a missing file is not damage.
    match missing {
        true if replay_is_enough => {}
        true => tracing::info!(file = %path.display(), "dead bits are found by replay"),
        false => tracing::warn!(file = %path.display(), "dead bits damaged, found by replay"),
    }
    let nothing_known = Checkpoint {
        partition: manifest.partition,
        lsn: manifest.start,
        segments: Default::default(),
    };
    (nothing_known, !replay_is_enough)
}
