//! Ordered reads: a merge by LSN over lanes of segments, in large sequential chunks.
//!
//! A lane holds the segments of one origin that belong to this partition. A partition that was never split has
//! one lane, its own. A child has its parent's lane before its own. A merged partition has the lanes of both
//! parents, whose LSNs interleave:
//!
//! ```text
//! lane of 3   1 2 . 4 5 |
//! lane of 4   1 . 3 . 5 6 7 |
//! own lane                  | 8 9
//! reader      after 4: [5 5] [6] [7] [8] [9]     one LSN is never cut over two pages
//! ```
//!
//! Dead records are skipped by their dead bits, without reading them. Nothing here writes.

use crate::buffers::BUFFER_BYTES;
use crate::entry::{self, Record, RecordKind};
use crate::error::ReadError;
use crate::floors::cut;
use crate::manifest::SegmentInfo;
use crate::segment::Segment;
use crate::table::Row;
use bytes::Bytes;
use headwater_model::{KeyRange, Lsn, PartitionId};
use std::ops::Range;
use std::sync::Arc;

/// Bytes per file read. Larger reads do not fit into the CPU cache.
const CHUNK_BYTES: u32 = 256 << 10;
const _: () = assert!(CHUNK_BYTES as usize == BUFFER_BYTES, "a chunk is what a buffer is made for");
/// The largest gap between two wanted entries that is cheaper to read than to skip.
const GAP_BYTES: u32 = 8 << 10;
/// The most records a batch preallocates room for.
const ROOM_MAX: usize = 1024;

/// Which records a read returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Versions that nothing has superseded.
    Live,
    /// Every version and every tombstone.
    AllVersions,
    /// Every record, control records included, as a replay needs them.
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
    /// Start after this LSN.
    pub after: Lsn,
    /// Stop at this LSN, inclusive.
    pub upto: Lsn,
    /// Which records to return.
    pub which: Which,
    /// Only records whose hashed key is in this range.
    pub range: Option<&'a KeyRange>,
    /// Stop after the LSN that reaches this many records.
    pub records_max: usize,
    /// Stop after the LSN that reaches this many bytes of content.
    pub bytes_max: usize,
}

/// A page of records in LSN order that never splits an LSN.
///
/// A batch with fewer records and bytes than requested has reached the end.
#[derive(Clone, Debug)]
pub struct Batch<T = Record> {
    /// The records, or what the reader converted each into.
    pub records: Vec<T>,
    /// All requested records up to this LSN are in `records`.
    pub scanned: Lsn,
}

/// The end of a batch and upper bounds of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The last LSN of the batch.
    pub upto: Lsn,
    /// Records of its entries, dead ones included.
    pub records: usize,
    /// Bytes of its entries.
    pub bytes: usize,
}

impl<T: AsRef<Record>> Batch<T> {
    /// Converts the batch back to records, for invariant checks.
    pub(crate) fn to_records(&self) -> Batch {
        let records = self.records.iter().map(|made| made.as_ref().clone()).collect();
        Batch { records, scanned: self.scanned }
    }
}

/// A batch while it is being filled.
pub(crate) struct Filling<T> {
    pub(crate) records: Vec<T>,
    /// Bytes of their content.
    pub(crate) bytes: usize,
    /// LSN of the last record.
    last: Option<Lsn>,
}

impl<T: From<Record>> Filling<T> {
    pub(crate) fn new(request: &ReadRequest<'_>) -> Filling<T> {
        // Room for all requested records, limited to a reasonable number and to the positions left.
        let left = request.upto.get().saturating_sub(request.after.get());
        let room = request.records_max.min(ROOM_MAX).min(usize::try_from(left).unwrap_or(ROOM_MAX));
        Filling { records: Vec::with_capacity(room), bytes: 0, last: None }
    }

    #[inline]
    pub(crate) fn push(&mut self, record: Record) {
        self.bytes += record.content_bytes();
        self.last = Some(record.position.lsn);
        self.records.push(T::from(record));
    }

    /// Whether it has as much as requested. At least one record is always requested.
    pub(crate) fn is_full(&self, request: &ReadRequest<'_>) -> bool {
        self.records.len() >= request.records_max.max(1) || self.bytes >= request.bytes_max.max(1)
    }

    pub(crate) fn end(self, scanned: Lsn) -> Batch<T> {
        Batch { records: self.records, scanned }
    }
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

    /// The position directly before its first entry written at or after `second`.
    fn before_second(&self, second: u64) -> Result<Option<Lsn>, ReadError> {
        for segment in &self.segments {
            let too_old =
                segment.sealed().is_some_and(|sealed| sealed.newest_millis / 1000 < second);
            if too_old {
                continue;
            }
            if let Some(first) = segment.with_table(|table| table.first_at(second))? {
                return Ok(Some(first.previous()));
            }
        }
        Ok(None)
    }

    /// The segment whose LSN range contains `lsn`.
    fn segment_of(&self, lsn: Lsn) -> Option<&Arc<Segment>> {
        let behind = self.segments.partition_point(|segment| segment.info.first_lsn <= lsn);
        self.segments.get(behind.checked_sub(1)?)
    }
}

/// An immutable set of all segments of a partition. Each reader keeps the set it started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct SegmentSet {
    pub(crate) lanes: Vec<Lane>,
}

impl SegmentSet {
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.lanes.iter().flat_map(|lane| lane.segments.iter())
    }

    /// The current descriptions of all segments for the manifest.
    pub(crate) fn infos(&self) -> Vec<SegmentInfo> {
        self.segments().map(|segment| segment.current_info()).collect()
    }

    /// The segment that holds this LSN of this key's lane; `None` if no lane does.
    pub(crate) fn segment_of(
        &self,
        origin: PartitionId,
        lsn: Lsn,
        epk: &[u8],
    ) -> Option<&Arc<Segment>> {
        let lane = self.lanes.iter().find(|lane| lane.origin == origin && lane.holds(epk))?;
        lane.segment_of(lsn)
    }

    /// Adds a segment to its lane.
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

    pub(crate) fn read<T: From<Record>>(
        &self,
        request: &ReadRequest<'_>,
    ) -> Result<Batch<T>, ReadError> {
        let mut cursors = Vec::with_capacity(self.lanes.len());
        for (index, lane) in self.lanes.iter().enumerate() {
            // Two merged siblings both hold the control records of their common ancestor: show them once.
            let shows_control = self.lanes[..index].iter().all(|other| other.origin != lane.origin);
            cursors.push(Cursor::new(lane, shows_control, request)?);
        }
        let mut filling = Filling::new(request);
        while let Some(chosen) = lowest(&cursors) {
            let Some(lsn) = cursors[chosen].next_lsn().filter(|lsn| *lsn <= request.upto) else {
                break;
            };
            let full = filling.is_full(request);
            if let Some(last) = filling.last.filter(|last| full && *last < lsn) {
                return Ok(filling.end(last));
            }
            // Read this lane up to the next LSN of another lane.
            let others = cursors.iter().enumerate().filter(|(index, _)| *index != chosen);
            let rival = others.filter_map(|(_, cursor)| cursor.next_lsn()).min();
            let until = rival.map_or(request.upto, |rival| rival.previous().max(lsn));
            let budget = Budget {
                until: until.min(request.upto),
                records: request.records_max.saturating_sub(filling.records.len()).max(1),
                bytes: request.bytes_max.saturating_sub(filling.bytes).max(1),
            };
            cursors[chosen].take(request, &budget, &mut filling)?;
        }
        Ok(filling.end(request.upto.max(request.after)))
    }

    /// Computes from the offset tables alone where a full batch would end.
    ///
    /// `None` if the log has fewer records and bytes than requested, if the partition has several lanes, or if a
    /// key range limits the lane or the request.
    pub(crate) fn extent(&self, request: &ReadRequest<'_>) -> Result<Option<Extent>, ReadError> {
        let [lane] = &self.lanes[..] else { return Ok(None) };
        if lane.filter.is_some() || request.range.is_some() {
            return Ok(None);
        }
        let mut cursor = Cursor::new(lane, true, request)?;
        let (mut records, mut bytes) = (0, 0);
        while let (Some(_), Some(segment)) = (cursor.next, lane.segments.get(cursor.segment)) {
            let extent = segment.with_table(|table| {
                let rows = table.rows();
                while let Some(row) = rows.get(cursor.row) {
                    let lsn = table.lsn(*row);
                    if lsn > request.upto {
                        return Some(None);
                    }
                    let first_row = first_of_entry(rows, cursor.row);
                    let end = first_row + usize::from(row.siblings);
                    records += usize::from(row.siblings);
                    bytes += (table.entry_end(cursor.row) - row.offset) as usize;
                    if records >= request.records_max || bytes >= request.bytes_max {
                        return Some(Some(Extent { upto: lsn, records, bytes }));
                    }
                    cursor.row = match request.which {
                        Which::Live => segment.dead.next_live(end, rows.len()),
                        _ => end,
                    };
                }
                None
            })?;
            match extent {
                Some(extent) => return Ok(extent),
                None => cursor.settle(request.which)?,
            }
        }
        Ok(None)
    }

    /// The second in which the first entry after `lsn` was written, the lowest of all lanes.
    pub(crate) fn first_second_after(&self, lsn: Lsn) -> Result<Option<u64>, ReadError> {
        let mut lowest: Option<u64> = None;
        for lane in &self.lanes {
            for segment in &lane.segments {
                if segment.sealed().is_some_and(|sealed| sealed.last_lsn <= lsn) {
                    continue;
                }
                if let Some(second) = segment.with_table(|table| table.second_after(lsn))? {
                    lowest = Some(lowest.map_or(second, |known| known.min(second)));
                    break;
                }
            }
        }
        Ok(lowest)
    }

    /// The position directly before the first entry written at or after `second`, the lowest of all lanes.
    pub(crate) fn before_second(&self, second: u64) -> Result<Option<Lsn>, ReadError> {
        let mut lowest: Option<Lsn> = None;
        for lane in &self.lanes {
            if let Some(before) = lane.before_second(second)? {
                lowest = Some(lowest.map_or(before, |known| known.min(before)));
            }
        }
        Ok(lowest)
    }

    /// Like [`SegmentSet::before_second`], for each key range. LSNs of merged lanes are not comparable, so `keys`
    /// is split where lanes begin and end.
    pub(crate) fn before_second_by_key(
        &self,
        second: u64,
        keys: &KeyRange,
    ) -> Result<Vec<(KeyRange, Option<Lsn>)>, ReadError> {
        let all = KeyRange::full();
        let mut found = Vec::with_capacity(self.lanes.len());
        for lane in &self.lanes {
            found.push((lane.filter.as_ref().unwrap_or(&all), lane.before_second(second)?));
        }
        Ok(cut(keys, found.iter().map(|(of, _)| *of), |piece| {
            let overlapping = found.iter().filter(|(of, _)| of.overlaps(piece));
            overlapping.filter_map(|(_, before)| *before).min()
        }))
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

/// A reader's position in one lane: always at a row it may want, or at the end.
struct Cursor<'a> {
    lane: &'a Lane,
    shows_control: bool,
    segment: usize,
    row: usize,
    next: Option<Lsn>,
    plan: Plan,
}

/// Entries to read from the file together.
#[derive(Default)]
struct Plan {
    /// Their ranges in the file. A short gap of dead entries is read too, which is cheaper than another call.
    pieces: Vec<Range<u32>>,
    /// Bytes of all pieces.
    bytes: u32,
    entries: Vec<Planned>,
}

struct Planned {
    lsn: Lsn,
    /// Its offset in the file.
    offset: u32,
    /// Its offset in the bytes read.
    at: u32,
    length: u32,
    first_row: usize,
}

impl Planned {
    fn place(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.length as usize
    }
}

impl Plan {
    fn clear(&mut self) {
        self.pieces.clear();
        self.entries.clear();
        self.bytes = 0;
    }

    /// Adds an entry after all others.
    fn add(&mut self, lsn: Lsn, entry: Range<u32>, first_row: usize) {
        match self.pieces.last_mut() {
            Some(piece) if entry.start <= piece.end + GAP_BYTES => {
                self.bytes += entry.end - piece.end;
                piece.end = entry.end;
            }
            _ => {
                self.bytes += entry.end - entry.start;
                self.pieces.push(entry.clone());
            }
        }
        let length = entry.end - entry.start;
        let at = self.bytes - length;
        self.entries.push(Planned { lsn, offset: entry.start, at, length, first_row });
    }
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
        let mut cursor =
            Cursor { lane, shows_control, segment, row: 0, next: None, plan: Plan::default() };
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

    /// Moves to the next row that may be wanted.
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

    /// Reads the next chunk of entries into `filling`.
    fn take<T: From<Record>>(
        &mut self,
        request: &ReadRequest<'_>,
        budget: &Budget,
        filling: &mut Filling<T>,
    ) -> Result<(), ReadError> {
        let segment = &self.lane.segments[self.segment];
        let mut plan = std::mem::take(&mut self.plan);
        self.row = self.choose(segment, request.which, budget, &mut plan)?;
        let chunk = segment.read_pieces(&plan.pieces)?;
        // Checks three runs of entries interleaved; each run is sequential, so the CPU can prefetch it.
        let third = plan.entries.len() / 3;
        let whole = (0..third).all(|index| {
            let three = [index, third + index, 2 * third + index];
            entry::are_whole(three.map(|index| &chunk[plan.entries[index].place()]))
        });
        // If a check failed, each entry is checked alone to report the damage.
        let checked = if whole { 3 * third } else { 0 };
        for (index, planned) in plan.entries.iter().enumerate() {
            self.unpack(segment, planned, index < checked, &chunk, request, filling)?;
        }
        self.plan = plan;
        self.settle(request.which)
    }

    fn unpack<T: From<Record>>(
        &self,
        segment: &Segment,
        planned: &Planned,
        whole: bool,
        chunk: &Bytes,
        request: &ReadRequest<'_>,
        filling: &mut Filling<T>,
    ) -> Result<(), ReadError> {
        let bytes = &chunk[planned.place()];
        let found = if whole { entry::decode_header(bytes) } else { entry::check(bytes) };
        let header = segment.expect(found, planned.offset, planned.lsn)?;
        let mut row = planned.first_row;
        entry::for_each_record_within(chunk, planned.place(), &header, |record| {
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
                filling.push(record);
            }
        })
        .map_err(|bad| segment.damage(planned.offset, planned.lsn, bad))
    }

    /// Plans the live entries to read next, within the budget. Returns the row to continue with.
    fn choose(
        &self,
        segment: &Segment,
        which: Which,
        budget: &Budget,
        plan: &mut Plan,
    ) -> Result<usize, ReadError> {
        plan.clear();
        segment.with_table(|table| {
            let rows = table.rows();
            let mut number = self.row;
            let (mut records, mut bytes) = (0, 0);
            while let Some(row) = rows.get(number) {
                let lsn = table.lsn(*row);
                let entry = row.offset..table.entry_end(number);
                let length = entry.end - entry.start;
                let enough = lsn > budget.until
                    || records >= budget.records
                    || bytes >= budget.bytes
                    || plan.bytes + length > CHUNK_BYTES;
                if enough && !plan.entries.is_empty() {
                    break;
                }
                let siblings = usize::from(row.siblings);
                let first_row = first_of_entry(rows, number);
                plan.add(lsn, entry, first_row);
                records += siblings;
                bytes += length as usize;
                number = match which {
                    Which::Live => segment.dead.next_live(first_row + siblings, rows.len()),
                    _ => first_row + siblings,
                };
            }
            number
        })
    }
}

/// The row of an entry's first record.
#[inline]
fn first_of_entry(rows: &[Row], number: usize) -> usize {
    if rows[number].siblings == 1 {
        return number;
    }
    let before = rows[..number].iter().rev();
    number - before.take_while(|other| other.offset == rows[number].offset).count()
}
