//! Compaction: rewrites sealed segments without the records that nothing needs any more.
//!
//! A run of neighbouring segments of one lane becomes one new file, which the manifest swaps in with a
//! single write. Readers keep the segments they are in, and LSNs do not change, so no position becomes
//! invalid. Compaction keeps:
//!
//! * every live record that belongs to this partition;
//! * a tombstone, as long as an older segment still has a dead record: otherwise a replay would restore
//!   the deleted item. A superseded tombstone is dropped, because the superseding record protects the key;
//! * control records that nothing supersedes;
//! * segments with an entry younger than the retention, untouched, for readers of all versions, unless
//!   history takes more bytes than the policy allows: then the oldest segments of all lanes are released;
//! * the log's own newest segment, because it marks the end of the log.
//!
//! Once an entry is dropped, only the dead bits record what it superseded. So they are saved first.

use crate::disk::replace_file;
use crate::entry::{self, Record, RecordKind};
use crate::error::ReadError;
use crate::liveness::DeadBits;
use crate::local::LocalLog;
use crate::manifest::{Manifest, Sealed, SegmentInfo};
use crate::read::SegmentSet;
use crate::segment::{self, HEADER_BYTES, Segment};
use crate::table::Table;
use headwater_model::{KeyRange, Lsn, Timestamp};
use std::cmp::Reverse;
use std::io;
use std::sync::Arc;

/// A shared file counts with its history bytes divided by this number.
///
/// A child links all files of its parent, and a merged range inherits all files of its parents. Counted in full,
/// this history would exceed the limit of the new range at once. A fraction keeps it, and still limits the sum
/// after many splits and merges to this multiple of the policy's bytes.
const SHARED_HISTORY_DIVISOR: u64 = 4;

/// Decides which segments are rewritten.
#[derive(Clone, Copy, Debug)]
pub struct CompactionPolicy {
    /// Segments with an entry at or after this time are left alone.
    pub retain_from: Timestamp,
    /// The most bytes of superseded versions and tombstones kept by `retain_from`, newest segments first.
    ///
    /// Segments beyond this limit are compacted whatever their age. A file that was linked in a split or merge
    /// and not yet rewritten counts once, with a quarter of its bytes.
    pub history_bytes_max: u64,
    /// A segment is rewritten when at least this share of it is dead, in percent.
    pub dead_percent: u64,
}

/// The result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Segments that were replaced.
    pub segments_before: usize,
    /// Segments that replaced them.
    pub segments_after: usize,
    /// Bytes of the segments that were replaced.
    pub bytes_before: u64,
    /// Bytes of the segments that replaced them.
    pub bytes_after: u64,
}

/// The limits of one compaction: which segments may be rewritten, and the size of the new file.
struct Limits {
    policy: CompactionPolicy,
    /// The LSN before all retained entries, the lowest of all lanes; `None` if it sets no limit.
    ///
    /// LSNs of merged lanes interleave and readers have one position for all lanes. An old entry of one lane may
    /// have a higher LSN than a young one of another.
    retained_after: Option<Lsn>,
    /// Segments up to this age exceed the limit of history bytes.
    released_upto: Option<Age>,
    segment_bytes: u64,
}

/// Neighbouring segments of one lane that become one file.
struct Run {
    segments: Vec<Arc<Segment>>,
    /// No older segment has dead records, so tombstones may be dropped.
    drop_tombstones: bool,
}

/// The old location of a copied record. Its index in `Copy::records` is its number in the new file.
struct Copied {
    segment: usize,
    row: usize,
}

impl LocalLog {
    /// Rewrites one run of segments, if any is worth it. Call it until it returns `None`.
    ///
    /// # Errors
    /// When the log cannot be read or is damaged, or when the new file cannot be written. The log is unchanged then.
    pub fn compact(&self, policy: &CompactionPolicy) -> Result<Option<Compacted>, ReadError> {
        let _one_at_a_time = self.compacting.lock();
        self.choose_run(policy)?.map(|run| self.rewrite(&run)).transpose()
    }

    /// Whether [`LocalLog::compact`] would rewrite something now.
    ///
    /// # Errors
    /// When a file cannot be read or is damaged.
    pub fn is_worth_compacting(&self, policy: &CompactionPolicy) -> Result<bool, ReadError> {
        Ok(self.choose_run(policy)?.is_some())
    }

    fn choose_run(&self, policy: &CompactionPolicy) -> Result<Option<Run>, ReadError> {
        if self.is_poisoned() || self.is_sealed() || self.are_marks_missing() {
            return Ok(None);
        }
        let set = self.segments.read().clone();
        let limits = Limits {
            policy: *policy,
            retained_after: retained_after(&set, policy)?,
            released_upto: released_upto(&set, policy.history_bytes_max),
            segment_bytes: u64::from(self.options.segment_bytes),
        };
        Ok(set.lanes.iter().find_map(|lane| {
            let is_own = lane.origin == self.partition();
            let untouched = usize::from(is_own);
            let segments = &lane.segments[..lane.segments.len().saturating_sub(untouched)];
            choose(&set, segments, &limits)
        }))
    }

    fn rewrite(&self, run: &Run) -> Result<Compacted, ReadError> {
        let first = &run.segments[0].info;
        let io = |source: io::Error| ReadError::Io { file: self.dir.display().to_string(), source };
        // All copied records are alive at this LSN, because records that are dead at it are dropped.
        let alive_at = self.local_tail().lsn;
        let info = SegmentInfo {
            number: self.manifest.lock().take_number(),
            compacted: true,
            alive_at,
            shared: false,
            sealed: None,
            ..first.clone()
        };
        let fresh = self.create_segment(info).map_err(io)?;
        let made = self
            .copy_records(run, &fresh)
            .and_then(|copy| self.finish_file(run, &fresh, &copy).map_err(io).map(|()| copy));
        let copy = match made {
            Ok(copy) => copy,
            Err(error) => {
                self.remove_files(&fresh);
                return Err(error);
            }
        };
        let bytes_before: u64 = run
            .segments
            .iter()
            .filter_map(|old| old.sealed())
            .map(|sealed| u64::from(sealed.bytes))
            .sum();
        let empty = copy.records.is_empty();
        let bytes_after = if empty { 0 } else { u64::from(copy.table.end()) };
        self.swap(run, (!empty).then_some(fresh), &copy).map_err(io)?;
        let done = Compacted {
            segments_before: run.segments.len(),
            segments_after: usize::from(!empty),
            bytes_before,
            bytes_after,
        };
        self.options.meter.count_compaction(&done, self.runtime.unix_millis());
        Ok(done)
    }

    fn copy_records(&self, run: &Run, fresh: &Segment) -> Result<Copy, ReadError> {
        let mut copy = Copy {
            table: Table::new(fresh.info.first_lsn, HEADER_BYTES),
            records: Vec::new(),
            tombstone_bytes: 0,
            dropped_upto: Lsn::ZERO,
        };
        let mut out: Vec<u8> = Vec::with_capacity(1 << 20);
        let mut written = u64::from(HEADER_BYTES);
        let flush = |out: &mut Vec<u8>, written: &mut u64| {
            fresh.file.write_at(out, *written).map_err(|source| ReadError::Io {
                file: fresh.path.display().to_string(),
                source,
            })?;
            *written += out.len() as u64;
            out.clear();
            Ok::<(), ReadError>(())
        };
        for (index, old) in run.segments.iter().enumerate() {
            let entries = old.with_table(entry_places)?;
            for place in entries {
                let bytes = old.read(place.offset, place.end)?;
                let header = old.check_entry(&bytes, place.offset, place.lsn)?;
                let mut kept: Vec<Record> = Vec::new();
                let mut row = place.row;
                entry::for_each_record(&bytes, &header, |record| {
                    if run.keeps(old, row, &record) {
                        copy.records.push(Copied { segment: index, row });
                        kept.push(record);
                    } else if record.kind != RecordKind::Control && old.belongs_here(&record) {
                        copy.dropped_upto = copy.dropped_upto.max(record.position.lsn);
                    }
                    row += 1;
                })
                .map_err(|bad| old.damage(place.offset, place.lsn, bad))?;
                if kept.is_empty() {
                    continue;
                }
                let before = out.len();
                entry::rewrite(&header, &bytes, &kept, &mut out);
                let length = u32::try_from(out.len() - before).unwrap_or(u32::MAX);
                let ordinals: Vec<u16> =
                    kept.iter().map(|record| record.position.ordinal).collect();
                copy.table.push(header.lsn, header.timestamp, length, ordinals.into_iter());
                let tombstones =
                    kept.iter().filter(|record| record.kind == RecordKind::Tombstone).count();
                copy.tombstone_bytes =
                    copy.tombstone_bytes.saturating_add(header.share(tombstones));
                if out.len() >= 1 << 20 {
                    flush(&mut out, &mut written)?;
                }
            }
        }
        flush(&mut out, &mut written)?;
        Ok(copy)
    }

    /// Makes the new file and its table durable, before the manifest names them.
    fn finish_file(&self, run: &Run, fresh: &Segment, copy: &Copy) -> io::Result<()> {
        // The copy leaves out records that later entries superseded. Those entries and their dead bits must be
        // durable first.
        self.sync_active()?;
        let last = run.segments.last().and_then(|segment| segment.sealed());
        if last.is_none_or(|last| self.checkpointed() < last.last_lsn) {
            self.save_checkpoint()?;
        }
        if copy.records.is_empty() {
            return self.disk.remove(&fresh.path);
        }
        fresh.file.sync()?;
        let table = segment::table_path(&self.dir, fresh.info.number);
        replace_file(&*self.disk, &table, &copy.table.encode())?;
        // The lane continues where the run ended, even if its last entries were dropped.
        if let Some(last) = last {
            fresh.seal(Sealed {
                bytes: copy.table.end(),
                records: u32::try_from(copy.table.len()).unwrap_or(u32::MAX),
                tombstone_bytes: copy.tombstone_bytes,
                ..last
            });
        }
        fresh.set_table(copy.table.clone());
        Ok(())
    }

    /// Replaces the old files with the new one in the manifest and the segment set, then removes the old ones.
    fn swap(&self, run: &Run, fresh: Option<Segment>, copy: &Copy) -> io::Result<()> {
        let fresh = fresh.map(Arc::new);
        let replaced =
            |segment: &Arc<Segment>| run.segments.iter().any(|old| Arc::ptr_eq(old, segment));
        {
            let mut manifest = self.manifest.lock();
            if self.is_poisoned() {
                // The log may have been reopened meanwhile, and then the files belong to the new instance.
                fresh.iter().for_each(|fresh| self.remove_files(fresh));
                return Err(io::Error::other("the log was poisoned meanwhile"));
            }
            let mut set = SegmentSet::default();
            let current = self.segments.read().clone();
            for segment in current.segments().filter(|segment| !replaced(segment)).chain(&fresh) {
                set.add(segment.clone());
            }
            // Raised first, so that readers of all versions get an error before the versions are dropped.
            self.raise_floor(run.keys(), copy.dropped_upto);
            let changed = Manifest {
                floors: self.floors.read().clone(),
                segments: set.infos(),
                ..manifest.clone()
            };
            self.save_manifest(&changed, fresh.as_ref())?;
            *manifest = changed;
            self.forget_checkpoint();

            // Moves the marks of records that were superseded during the copy.
            let _marking = self.marking.lock();
            if let Some(fresh) = &fresh {
                copy.move_marks(run, &fresh.dead);
            }
            *self.segments.write() = Arc::new(set);
        }
        for old in &run.segments {
            self.remove_files(old);
        }
        // A failure only makes the next open replay more; the next compaction saves them first.
        if let Err(error) = self.save_checkpoint() {
            tracing::warn!(%error, "cannot save the dead bits; the next compaction retries");
        }
        Ok(())
    }
}

struct Copy {
    table: Table,
    records: Vec<Copied>,
    tombstone_bytes: u32,
    /// The newest entry from which a record was dropped.
    dropped_upto: Lsn,
}

impl Copy {
    fn move_marks(&self, run: &Run, dead: &DeadBits) {
        for (number, copied) in self.records.iter().enumerate() {
            if run.segments[copied.segment].dead.is_dead(copied.row) {
                let bytes = self.table.row(number).map_or(0, |row| {
                    u64::from(self.table.entry_end(number) - row.offset)
                        / u64::from(row.siblings.max(1))
                });
                dead.set(number, bytes);
            }
        }
    }
}

impl Segment {
    fn belongs_here(&self, record: &Record) -> bool {
        self.info.filter.as_ref().is_none_or(|filter| filter.contains(record.epk()))
    }
}

impl Run {
    /// Whether the first segment of the run is worth rewriting; the others only join it.
    fn is_worth_it(&self, limits: &Limits) -> bool {
        let Some((segment, sealed)) =
            self.segments.first().and_then(|first| Some((first, first.sealed()?)))
        else {
            return false;
        };
        let tombstones = if self.drop_tombstones { u64::from(sealed.tombstone_bytes) } else { 0 };
        let gain = segment.dead.dead_bytes() + tombstones;
        let dead_enough =
            gain > 0 && gain * 100 >= u64::from(sealed.bytes) * limits.policy.dead_percent;
        // Merges two small neighbours, so that a lane does not consist of many small files.
        let crumbs = self.segments.get(1).is_some_and(|next| {
            segment.info.compacted
                && next.info.compacted
                && live_bytes(segment) + live_bytes(next) <= limits.segment_bytes / 2
        });
        // A file shared with siblings holds their records too: one rewrite makes an unshared file.
        dead_enough || segment.info.shared || crumbs
    }

    /// The key range of its records.
    fn keys(&self) -> KeyRange {
        let filter = self.segments.first().and_then(|first| first.info.filter.clone());
        filter.unwrap_or_else(KeyRange::full)
    }

    fn keeps(&self, segment: &Segment, row: usize, record: &Record) -> bool {
        if segment.dead.is_dead(row) {
            return false;
        }
        match record.kind {
            RecordKind::Control => true,
            RecordKind::Put => segment.belongs_here(record),
            RecordKind::Tombstone => segment.belongs_here(record) && !self.drop_tombstones,
        }
    }
}

struct EntryPlace {
    lsn: Lsn,
    offset: u32,
    end: u32,
    row: usize,
}

fn entry_places(table: &Table) -> Vec<EntryPlace> {
    let mut places: Vec<EntryPlace> = Vec::new();
    for (row, found) in table.rows().iter().enumerate() {
        if places.last().is_none_or(|last| last.offset != found.offset) {
            let (lsn, end) = (table.lsn(*found), table.entry_end(row));
            places.push(EntryPlace { lsn, offset: found.offset, end, row });
        }
    }
    places
}

/// The first run of these neighbours that is worth rewriting.
fn choose(set: &SegmentSet, lane: &[Arc<Segment>], limits: &Limits) -> Option<Run> {
    (0..lane.len()).find_map(|start| {
        let segments = extend(&lane[start..], limits);
        let first_lsn = segments.first()?.info.first_lsn;
        // The versions that a tombstone of this run deleted are in the run itself or in an older segment, of this
        // lane or an ancestor's.
        let mut older = set.segments().filter(|segment| {
            let in_run = segments.iter().any(|run| Arc::ptr_eq(run, segment));
            segment.info.first_lsn <= first_lsn && !in_run
        });
        let drop_tombstones = older.all(|segment| segment.dead.dead_records() == 0);
        let run = Run { segments, drop_tombstones };
        run.is_worth_it(limits).then_some(run)
    })
}

/// Computes [`Limits::retained_after`]. `None` for a single lane, whose segments are in order of time.
fn retained_after(set: &SegmentSet, policy: &CompactionPolicy) -> Result<Option<Lsn>, ReadError> {
    match set.lanes.len() {
        0 | 1 => Ok(None),
        _ => set.before_second(policy.retain_from.as_seconds()),
    }
}

/// The age of the newest segment with which history exceeds `bytes_max`.
///
/// This segment and all older ones are released, in every lane. LSNs of merged lanes are not comparable, so ages
/// compare by time.
fn released_upto(set: &SegmentSet, bytes_max: u64) -> Option<Age> {
    let (mut own_bytes, mut shared_bytes) = (0_u64, 0_u64);
    files_newest_first(set.segments()).into_iter().find_map(|(segment, history_bytes)| {
        let bytes = if segment.info.shared { &mut shared_bytes } else { &mut own_bytes };
        *bytes = bytes.saturating_add(history_bytes);
        let counted = own_bytes.saturating_add(shared_bytes / SHARED_HISTORY_DIVISOR);
        // The active segment counts, but cannot be compacted.
        segment.sealed().map(|sealed| Age::of(&sealed)).filter(|_| counted > bytes_max)
    })
}

/// The time and LSN at which a sealed segment ended. Orders the segments of one lane like their LSNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Age {
    newest_millis: u64,
    last_lsn: Lsn,
}

impl Age {
    fn of(sealed: &Sealed) -> Age {
        Age { newest_millis: sealed.newest_millis, last_lsn: sealed.last_lsn }
    }
}

/// The files of these segments and the bytes of history in each, newest first.
///
/// Lanes of a range that was split and merged again share files. Such a file is listed once, with the most
/// history bytes of its lanes.
pub(crate) fn files_newest_first<'a>(
    segments: impl Iterator<Item = &'a Arc<Segment>>,
) -> Vec<(&'a Arc<Segment>, u64)> {
    let mut files: Vec<_> = segments
        .map(|segment| {
            let (info, sealed) = (&segment.info, segment.sealed());
            // The active segment is the newest.
            let age = sealed.map(|sealed| Reverse(Age::of(&sealed)));
            let content = sealed.map(|sealed| (sealed.bytes, sealed.records));
            let own_number = if info.shared { 0 } else { info.number };
            let file = (age, info.origin, info.first_lsn, content, own_number);
            (file, segment.history_bytes(), segment)
        })
        .collect();
    files.sort_by(|(one, one_bytes, _), (two, two_bytes, _)| {
        one.cmp(two).then_with(|| two_bytes.cmp(one_bytes))
    });
    files.dedup_by(|(later, ..), (kept, ..)| later == kept);
    files.into_iter().map(|(_, history_bytes, segment)| (segment, history_bytes)).collect()
}

impl Limits {
    fn allow(&self, segment: &Segment) -> bool {
        segment.sealed().is_some_and(|sealed| {
            if self.released_upto.is_some_and(|released| Age::of(&sealed) <= released) {
                return true;
            }
            let newest = Timestamp::from_millis(sealed.newest_millis);
            newest < self.policy.retain_from
                && self.retained_after.is_none_or(|retained| sealed.last_lsn <= retained)
        })
    }
}

fn live_bytes(segment: &Segment) -> u64 {
    let bytes = segment.sealed().map_or(0, |sealed| u64::from(sealed.bytes));
    bytes.saturating_sub(segment.dead.dead_bytes())
}

/// The first of these neighbours and the following ones that may be rewritten and fit into one file.
fn extend(lane: &[Arc<Segment>], limits: &Limits) -> Vec<Arc<Segment>> {
    let mut run: Vec<Arc<Segment>> = Vec::new();
    let (mut bytes, mut records) = (0, 0);
    for segment in lane {
        if !limits.allow(segment) {
            break;
        }
        bytes += live_bytes(segment);
        records += segment.dead_and_live();
        if let Some(first) = run.first() {
            let fits = bytes <= limits.segment_bytes
                && records <= crate::liveness::RECORDS_MAX as u64 / 2
                && segment.lsns_since(first.info.first_lsn) <= u64::from(u32::MAX);
            let wasteful =
                segment.dead.dead_records() == 0 && live_bytes(segment) > limits.segment_bytes / 2;
            if !fits || wasteful {
                break;
            }
        }
        run.push(segment.clone());
    }
    run
}

impl Segment {
    /// Bytes that only readers of all versions need: superseded records and tombstones.
    pub(crate) fn history_bytes(&self) -> u64 {
        let sealed = self.sealed();
        let tombstones = sealed.map_or(0, |sealed| u64::from(sealed.tombstone_bytes));
        let most = sealed.map_or(u64::MAX, |sealed| u64::from(sealed.bytes));
        self.dead.dead_bytes().saturating_add(tombstones).min(most)
    }

    fn dead_and_live(&self) -> u64 {
        self.sealed().map_or(0, |sealed| u64::from(sealed.records))
    }

    /// The number of LSNs from `first` to its end. Offset tables store this distance in 32 bits.
    fn lsns_since(&self, first: Lsn) -> u64 {
        let last = self.sealed().map_or(first, |sealed| sealed.last_lsn);
        last.get().saturating_sub(first.get())
    }
}
