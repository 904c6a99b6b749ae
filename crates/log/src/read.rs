//! Reading a log in order: lanes of segments, merged by LSN, in chunks of sequential bytes.
//!
//! A lane is the segments of one origin, as far as they belong to this partition. A partition that was
//! never split has one lane, its own. A child has its parent's lane in front of its own; a partition
//! merged from two has both parents' lanes, whose LSNs interleave:
//!
//! ```text
//! lane of 3   1 2 . 4 5 |
//! lane of 4   1 . 3 . 5 6 7 |
//! own lane                  | 8 9
//! reader      after 4: [5 5] [6] [7] [8] [9]     one LSN is never cut over two pages
//! ```
//!
//! Dead records are passed over by their bits, without reading them.

use crate::entry::{self, Record, RecordKind};
use crate::error::ReadError;
use crate::manifest::SegmentInfo;
use crate::segment::Segment;
use bytes::Bytes;
use headwater_model::{KeyRange, Lsn, PartitionId};
use std::sync::Arc;

/// Bytes read from a file at once. Larger reads only spill out of the cache.
const CHUNK_BYTES: u32 = 256 << 10;
/// Unwanted bytes between two wanted entries that are cheaper to read than to seek over.
const GAP_BYTES: u32 = 4 << 10;

/// Which records a reader wants to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Versions that nothing has superseded.
    Live,
    /// Every version and every tombstone.
    AllVersions,
    /// Everything, control records too: what a replay applies.
    Everything,
}

impl Which {
    pub(crate) fn shows(self, kind: RecordKind) -> bool {
        match self {
            Which::Live => kind == RecordKind::Put,
            Which::AllVersions => kind != RecordKind::Control,
            Which::Everything => true,
        }
    }
}

/// A request for records in order.
#[derive(Clone, Debug)]
pub struct ReadRequest<'a> {
    /// Start behind this LSN.
    pub after: Lsn,
    /// Stop at this LSN.
    pub upto: Lsn,
    /// What to see.
    pub which: Which,
    /// Only records whose hashed key is in this range.
    pub range: Option<&'a KeyRange>,
    /// Stop after the LSN with which so many records are reached.
    pub records_max: usize,
    /// Stop after the LSN with which so many bytes are reached.
    pub bytes_max: usize,
}

/// Records in order of their LSNs, every LSN whole. One that has fewer records and bytes than were
/// asked for has reached the end.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The records.
    pub records: Vec<Record>,
    /// Everything up to here that was asked for is in `records`.
    pub scanned: Lsn,
}

/// The segments of one origin that belong to this partition, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) origin: PartitionId,
    pub(crate) filter: Option<KeyRange>,
    pub(crate) segments: Vec<Arc<Segment>>,
}

impl Lane {
    fn holds(&self, epk: &[u8]) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.contains(epk))
    }

    /// The segment an LSN would be in.
    fn segment_of(&self, lsn: Lsn) -> Option<&Arc<Segment>> {
        let behind = self.segments.partition_point(|segment| segment.info.first_lsn <= lsn);
        self.segments.get(behind.checked_sub(1)?)
    }
}

/// All segments of a partition at one moment. Readers keep the set they started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentSet {
    pub(crate) lanes: Vec<Lane>,
}

impl SegmentSet {
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.lanes.iter().flat_map(|lane| lane.segments.iter())
    }

    /// All segments as the manifest should list them now.
    pub(crate) fn infos(&self) -> Vec<SegmentInfo> {
        self.segments().map(|segment| segment.current_info()).collect()
    }

    /// The segment that holds a record of this key, if it is still anywhere.
    pub(crate) fn segment_of(
        &self,
        origin: PartitionId,
        lsn: Lsn,
        epk: &[u8],
    ) -> Option<&Arc<Segment>> {
        let lane = self.lanes.iter().find(|lane| lane.origin == origin && lane.holds(epk))?;
        lane.segment_of(lsn)
    }

    /// Adds a segment to the lane it belongs to.
    pub(crate) fn add(&mut self, segment: Arc<Segment>) {
        let (origin, filter) = (segment.info.origin, &segment.info.filter);
        let known =
            self.lanes.iter_mut().find(|lane| lane.origin == origin && lane.filter == *filter);
        match known {
            Some(lane) => {
                lane.segments.push(segment);
                lane.segments.sort_by_key(|segment| segment.info.first_lsn);
            }
            None => {
                self.lanes.push(Lane { origin, filter: filter.clone(), segments: vec![segment] });
            }
        }
    }

    pub(crate) fn read(&self, request: &ReadRequest<'_>) -> Result<Batch, ReadError> {
        let mut cursors = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.iter().enumerate() {
            // Siblings that were merged again both hold what their common ancestor said about itself.
            let shows_control = self.lanes[..index].iter().all(|other| other.origin != lane.origin);
            cursors.push(Cursor::new(lane, shows_control, request)?);
        }
        let mut batch = Batch { records: Vec::new(), scanned: request.after };
        let mut bytes = 0;
        while let Some(chosen) = lowest(&cursors) {
            let Some(lsn) = cursors[chosen].next_lsn().filter(|lsn| *lsn <= request.upto) else {
                break;
            };
            let full = batch.records.len() >= request.records_max || bytes >= request.bytes_max;
            let last = batch.records.last().map(|record| record.position.lsn);
            if full && last.is_some_and(|last| last < lsn) {
                batch.scanned = last.unwrap_or(batch.scanned);
                return Ok(batch);
            }
            // Up to where this lane may be read before another one has to be looked at again.
            let others = cursors.iter().enumerate().filter(|(index, _)| *index != chosen);
            let rival = others.filter_map(|(_, cursor)| cursor.next_lsn()).min();
            let until = rival.map_or(request.upto, |rival| rival.previous().max(lsn));
            let budget = Budget {
                until: until.min(request.upto),
                records: request.records_max.saturating_sub(batch.records.len()).max(1),
                bytes: request.bytes_max.saturating_sub(bytes).max(1),
            };
            bytes += cursors[chosen].take(request, &budget, &mut batch.records)?;
        }
        batch.scanned = request.upto.max(request.after);
        Ok(batch)
    }

    /// The position right in front of the first entry written at or after `second`, in any lane.
    pub(crate) fn before_second(&self, second: u64) -> Result<Option<Lsn>, ReadError> {
        let mut lowest: Option<Lsn> = None;
        for lane in &self.lanes {
            for segment in &lane.segments {
                let too_old =
                    segment.sealed().is_some_and(|sealed| sealed.newest_millis / 1000 < second);
                if too_old {
                    continue;
                }
                if let Some(first) = segment.with_table(|table| table.first_at(second))? {
                    let before = first.previous();
                    lowest = Some(lowest.map_or(before, |known| known.min(before)));
                    break;
                }
            }
        }
        Ok(lowest)
    }
}

struct Budget {
    until: Lsn,
    records: usize,
    bytes: usize,
}

fn lowest(cursors: &[Cursor<'_>]) -> Option<usize> {
    let ready =
        cursors.iter().enumerate().filter_map(|(index, cursor)| Some((cursor.next_lsn()?, index)));
    ready.min().map(|(_, index)| index)
}

/// Where a reader stands in one lane: always at a row it may want, or at the end.
struct Cursor<'a> {
    lane: &'a Lane,
    shows_control: bool,
    segment: usize,
    row: usize,
    next: Option<Lsn>,
}

/// Entries that are read from the file together.
#[derive(Default)]
struct Extent {
    from: u32,
    to: u32,
    entries: Vec<Planned>,
    /// The row to go on with.
    row: usize,
}

struct Planned {
    lsn: Lsn,
    offset: u32,
    end: u32,
    first_row: usize,
}

impl<'a> Cursor<'a> {
    fn new(
        lane: &'a Lane,
        shows_control: bool,
        request: &ReadRequest<'_>,
    ) -> Result<Cursor<'a>, ReadError> {
        let next = request.after.next();
        let behind = lane.segments.partition_point(|segment| segment.info.first_lsn <= next);
        let segment = behind.saturating_sub(1);
        let mut cursor = Cursor { lane, shows_control, segment, row: 0, next: None };
        if let Some(first) = lane.segments.get(segment) {
            let passed = first.sealed().is_some_and(|sealed| sealed.last_lsn <= request.after);
            if passed {
                cursor.segment += 1;
            } else {
                cursor.row = first.with_table(|table| table.first_after(request.after))?;
            }
        }
        cursor.settle(request.which)?;
        Ok(cursor)
    }

    fn next_lsn(&self) -> Option<Lsn> {
        self.next
    }

    /// Moves on to the next row that may be wanted.
    fn settle(&mut self, which: Which) -> Result<(), ReadError> {
        self.next = None;
        while let Some(segment) = self.lane.segments.get(self.segment) {
            let all_dead = which == Which::Live
                && segment
                    .sealed()
                    .is_some_and(|sealed| segment.dead.dead_records() >= u64::from(sealed.records));
            if !all_dead {
                let row = self.row;
                let found = segment.with_table(|table| {
                    let row = match which {
                        Which::Live => segment.dead.next_live(row, table.len()),
                        _ => row,
                    };
                    table.row(row).map(|found| (row, table.lsn(found)))
                })?;
                if let Some((row, lsn)) = found {
                    self.row = row;
                    self.next = Some(lsn);
                    return Ok(());
                }
            }
            self.segment += 1;
            self.row = 0;
        }
        Ok(())
    }

    /// Reads one extent of entries into `records`; returns their size.
    fn take(
        &mut self,
        request: &ReadRequest<'_>,
        budget: &Budget,
        records: &mut Vec<Record>,
    ) -> Result<usize, ReadError> {
        let segment = &self.lane.segments[self.segment];
        let extent = self.plan(segment, request.which, budget)?;
        self.row = extent.row;
        let chunk = segment.read(extent.from, extent.to)?;
        let mut bytes = 0;
        for planned in &extent.entries {
            let entry = chunk.slice(
                (planned.offset - extent.from) as usize..(planned.end - extent.from) as usize,
            );
            bytes += self.unpack(segment, planned, &entry, request, records)?;
        }
        self.settle(request.which)?;
        Ok(bytes)
    }

    fn unpack(
        &self,
        segment: &Segment,
        planned: &Planned,
        entry: &Bytes,
        request: &ReadRequest<'_>,
        records: &mut Vec<Record>,
    ) -> Result<usize, ReadError> {
        let header = segment.check_entry(entry, planned.offset, planned.lsn)?;
        let mut row = planned.first_row;
        let mut bytes = 0;
        entry::for_each_record(entry, &header, |record| {
            let dead = request.which == Which::Live && segment.dead.is_dead(row);
            row += 1;
            let wanted = !dead
                && request.which.shows(record.kind)
                && match record.kind {
                    RecordKind::Control => self.shows_control,
                    _ => self.lane.holds(record.epk()),
                }
                && request.range.is_none_or(|range| range.contains(record.epk()));
            if wanted {
                bytes += record.content_bytes();
                records.push(record);
            }
        })
        .map_err(|bad| segment.damage(planned.offset, planned.lsn, bad))?;
        Ok(bytes)
    }

    /// Chooses the entries to read next: near each other, within the budget, dead ones left out.
    fn plan(&self, segment: &Segment, which: Which, budget: &Budget) -> Result<Extent, ReadError> {
        segment.with_table(|table| {
            let rows = table.rows();
            let mut extent = Extent { row: self.row, ..Extent::default() };
            let mut planned_records = 0;
            while let Some(row) = rows.get(extent.row) {
                let lsn = table.lsn(*row);
                let end = table.entry_end(extent.row);
                let first = extent.entries.is_empty();
                let too_far = lsn > budget.until
                    || planned_records >= budget.records
                    || (extent.to - extent.from) as usize >= budget.bytes
                    || end - extent.from > CHUNK_BYTES
                    || row.offset > extent.to + GAP_BYTES;
                if !first && too_far {
                    break;
                }
                if first {
                    extent.from = row.offset;
                }
                let before = rows[..extent.row].iter().rev();
                let first_row =
                    extent.row - before.take_while(|other| other.offset == row.offset).count();
                extent.entries.push(Planned { lsn, offset: row.offset, end, first_row });
                extent.to = end;
                planned_records += usize::from(row.siblings);
                let next = first_row + usize::from(row.siblings);
                extent.row = match which {
                    Which::Live => segment.dead.next_live(next, rows.len()),
                    _ => next,
                };
            }
            extent
        })
    }
}
