//! Compaction: sealed segments are written again without what nothing needs any more.
//!
//! A run of neighbouring segments of one lane becomes one new file, which the manifest swaps in with a
//! single write. Readers keep the segments they are in; positions are found by LSN, so nobody else
//! notices. What stays:
//!
//! * every live record that belongs to this partition;
//! * a tombstone, as long as an older segment still has a dead record in it: replay would
//!   otherwise bring back what was deleted;
//! * control records;
//! * segments with an entry younger than the retention, untouched, for readers of all versions.

use crate::disk::replace_file;
use crate::entry::{self, Record, RecordKind};
use crate::error::ReadError;
use crate::liveness::DeadBits;
use crate::local::LocalLog;
use crate::manifest::{Sealed, SegmentInfo};
use crate::read::{Lane, SegmentSet};
use crate::segment::{self, HEADER_BYTES, Segment};
use crate::table::Table;
use headwater_model::{Lsn, Timestamp};
use std::io;
use std::sync::Arc;

/// When a segment is worth writing again.
#[derive(Clone, Copy, Debug)]
pub struct CompactionPolicy {
    /// Segments with an entry at or after this time are left alone.
    pub retain_from: Timestamp,
    /// A segment is written again when at least this share of it is dead, in percent.
    pub dead_percent: u64,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Segments that were replaced.
    pub segments_before: usize,
    /// Segments that replaced them.
    pub segments_after: usize,
    /// Bytes of entries that are gone.
    pub bytes_freed: u64,
}

/// Neighbouring segments of one lane that become one file.
struct Run {
    segments: Vec<Arc<Segment>>,
    /// No older segment has dead records, so tombstones may go.
    drop_tombstones: bool,
}

/// A record that was copied: where its dead bit was, and its number in the new file is its index.
struct Copied {
    segment: usize,
    row: usize,
}

impl LocalLog {
    /// Writes one run of segments again, if any is worth it. Call it until it returns `None`.
    ///
    /// # Errors
    /// When reading fails, also by damage, or the new file cannot be written. Nothing is changed then.
    pub fn compact(&self, policy: &CompactionPolicy) -> Result<Option<Compacted>, ReadError> {
        let _one_at_a_time = self.compacting.lock();
        if self.is_poisoned() || self.is_sealed() {
            return Ok(None);
        }
        let set = self.segments.read().clone();
        let segment_bytes = u64::from(self.options.segment_bytes);
        let Some(run) = set
            .lanes
            .iter()
            .find_map(|lane| choose(&set, lane, policy, segment_bytes))
        else {
            return Ok(None);
        };
        self.rewrite(&run).map(Some)
    }

    fn rewrite(&self, run: &Run) -> Result<Compacted, ReadError> {
        let first = &run.segments[0].info;
        let io = |source: io::Error| ReadError::Io {
            file: self.dir.display().to_string(),
            source,
        };
        // Everything copied below is alive at this LSN, because what is dead at it is left out.
        let alive_at = self.local_tail().lsn;
        let number = {
            let mut manifest = self.manifest.lock();
            let number = manifest.next_segment;
            manifest.next_segment += 1;
            number
        };
        let info = SegmentInfo {
            number,
            compacted: true,
            alive_at,
            sealed: None,
            ..first.clone()
        };
        let fresh = Segment::create(&self.disk, &self.dir, info).map_err(io)?;
        let copy = match self.copy_records(run, &fresh) {
            Ok(copy) => copy,
            Err(error) => {
                let _ = self.disk.remove(&fresh.path);
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
        let bytes_after = if empty {
            0
        } else {
            u64::from(copy.table.end())
        };
        self.finish_file(run, &fresh, &copy).map_err(io)?;
        self.swap(run, (!empty).then_some(fresh), &copy)
            .map_err(io)?;
        Ok(Compacted {
            segments_before: run.segments.len(),
            segments_after: usize::from(!empty),
            bytes_freed: bytes_before.saturating_sub(bytes_after),
        })
    }

    fn copy_records(&self, run: &Run, fresh: &Segment) -> Result<Copy, ReadError> {
        let mut copy = Copy {
            table: Table::new(fresh.info.first_lsn, HEADER_BYTES),
            records: Vec::new(),
            dropped_upto: Lsn::ZERO,
        };
        let mut out: Vec<u8> = Vec::with_capacity(1 << 20);
        let mut written = u64::from(HEADER_BYTES);
        let flush = |out: &mut Vec<u8>, written: &mut u64| {
            fresh
                .file
                .write_at(out, *written)
                .map_err(|source| ReadError::Io {
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
                        copy.records.push(Copied {
                            segment: index,
                            row,
                        });
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
                copy.table
                    .push(header.lsn, header.timestamp, length, ordinals.into_iter());
                if out.len() >= 1 << 20 {
                    flush(&mut out, &mut written)?;
                }
            }
        }
        flush(&mut out, &mut written)?;
        Ok(copy)
    }

    /// Makes the new file and its table durable, before anything names them.
    fn finish_file(&self, run: &Run, fresh: &Segment, copy: &Copy) -> io::Result<()> {
        if copy.records.is_empty() {
            return self.disk.remove(&fresh.path);
        }
        fresh.file.sync()?;
        let table = segment::table_path(&self.dir, fresh.info.number);
        replace_file(&*self.disk, &table, &copy.table.encode())?;
        // The lane goes on where the run ended, whether or not its last entries are still there.
        let last = run.segments.last().and_then(|segment| segment.sealed());
        if let Some(last) = last {
            fresh.seal(Sealed {
                bytes: copy.table.end(),
                records: u32::try_from(copy.table.len()).unwrap_or(u32::MAX),
                ..last
            });
        }
        fresh.set_table(copy.table.clone());
        Ok(())
    }

    /// Puts the new file in the place of the old ones.
    fn swap(&self, run: &Run, fresh: Option<Segment>, copy: &Copy) -> io::Result<()> {
        let fresh = fresh.map(Arc::new);
        let replaced =
            |segment: &Arc<Segment>| run.segments.iter().any(|old| Arc::ptr_eq(old, segment));
        {
            let mut manifest = self.manifest.lock();
            let mut set = SegmentSet::default();
            let current = self.segments.read().clone();
            for segment in current
                .segments()
                .filter(|segment| !replaced(segment))
                .chain(&fresh)
            {
                set.add(segment.clone());
            }
            let mut changed = manifest.clone();
            changed.complete_after = changed.complete_after.max(copy.dropped_upto);
            changed.segments = set
                .segments()
                .map(|segment| segment.current_info())
                .collect();
            // Readers of all versions are told before the versions are gone.
            self.raise_complete_after(copy.dropped_upto);
            changed.save(&*self.disk, &self.dir)?;
            *manifest = changed;

            // What was superseded while the copy was made.
            let _marking = self.marking.lock();
            if let Some(fresh) = &fresh {
                copy.move_marks(run, &fresh.dead);
            }
            *self.segments.write() = Arc::new(set);
        }
        self.save_checkpoint_now()?;
        for old in &run.segments {
            self.disk.remove(&old.path)?;
            // The table of a segment sealed by an older version may be missing; it is only a cache.
            let _ = self
                .disk
                .remove(&segment::table_path(&self.dir, old.info.number));
        }
        Ok(())
    }
}

struct Copy {
    table: Table,
    records: Vec<Copied>,
    /// Newest entry from which something was left out.
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
        self.info
            .filter
            .as_ref()
            .is_none_or(|filter| filter.contains(record.epk()))
    }
}

impl Run {
    fn keeps(&self, segment: &Segment, row: usize, record: &Record) -> bool {
        match record.kind {
            RecordKind::Control => true,
            _ if !segment.belongs_here(record) => false,
            RecordKind::Put => !segment.dead.is_dead(row),
            // A tombstone is superseded itself when the key is written again.
            RecordKind::Tombstone => !self.drop_tombstones,
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
            places.push(EntryPlace {
                lsn,
                offset: found.offset,
                end,
                row,
            });
        }
    }
    places
}

/// The first run of this lane that is worth writing again.
fn choose(
    set: &SegmentSet,
    lane: &Lane,
    policy: &CompactionPolicy,
    segment_bytes: u64,
) -> Option<Run> {
    let start =
        (0..lane.segments.len()).find(|start| is_worth_it(lane, *start, policy, segment_bytes))?;
    let segments = extend(lane, start, policy, segment_bytes);
    let first_lsn = lane.segments[start].info.first_lsn;
    // What a tombstone of this run buried can only lie in the run itself or in an older segment, of
    // this lane or an ancestor's.
    let older = set.segments().filter(|segment| {
        segment.info.first_lsn <= first_lsn && !segments.iter().any(|run| Arc::ptr_eq(run, segment))
    });
    let drop_tombstones = older
        .into_iter()
        .all(|segment| segment.dead.dead_records() == 0);
    Some(Run {
        segments,
        drop_tombstones,
    })
}

fn is_allowed(segment: &Segment, policy: &CompactionPolicy) -> bool {
    segment
        .sealed()
        .is_some_and(|sealed| Timestamp::from_millis(sealed.newest_millis) < policy.retain_from)
}

fn live_bytes(segment: &Segment) -> u64 {
    let bytes = segment.sealed().map_or(0, |sealed| u64::from(sealed.bytes));
    bytes.saturating_sub(segment.dead.dead_bytes())
}

fn is_worth_it(lane: &Lane, index: usize, policy: &CompactionPolicy, segment_bytes: u64) -> bool {
    let segment = &lane.segments[index];
    if !is_allowed(segment, policy) {
        return false;
    }
    let bytes = segment.sealed().map_or(0, |sealed| u64::from(sealed.bytes));
    let dead_enough = segment.dead.dead_records() > 0
        && segment.dead.dead_bytes() * 100 >= bytes * policy.dead_percent;
    // A file shared with siblings holds their records too: one rewrite gives us a file of our own.
    let shared = segment.info.filter.is_some() && !segment.info.compacted;
    // Two small neighbours make one: a lane must not become a heap of crumbs.
    let next = lane
        .segments
        .get(index + 1)
        .filter(|next| is_allowed(next, policy));
    let crumbs = next.is_some_and(|next| {
        segment.info.compacted
            && next.info.compacted
            && live_bytes(segment) + live_bytes(next) <= segment_bytes / 2
    });
    dead_enough || shared || crumbs
}

/// As many neighbours as fit into one file and may be touched.
fn extend(
    lane: &Lane,
    start: usize,
    policy: &CompactionPolicy,
    segment_bytes: u64,
) -> Vec<Arc<Segment>> {
    let mut run: Vec<Arc<Segment>> = Vec::new();
    let mut bytes = 0;
    for segment in &lane.segments[start..] {
        let fits = bytes + live_bytes(segment) <= segment_bytes;
        let records: u64 = run
            .iter()
            .chain([segment])
            .map(|segment| segment.dead_and_live())
            .sum();
        let countable = records <= crate::liveness::RECORDS_MAX as u64 / 2;
        if !(run.is_empty() || fits && countable) || !is_allowed(segment, policy) {
            break;
        }
        let wasteful = segment.dead.dead_records() == 0 && live_bytes(segment) > segment_bytes / 2;
        if !run.is_empty() && wasteful {
            break;
        }
        bytes += live_bytes(segment);
        run.push(segment.clone());
    }
    run
}

impl Segment {
    fn dead_and_live(&self) -> u64 {
        self.sealed().map_or(0, |sealed| u64::from(sealed.records))
    }
}
