//! Reads everything that is still readable in a damaged log.
//!
//! A normal read stops at the first damaged byte. Here every segment is scanned to its end: entries with the
//! right checksum are shown, and the bytes between two of them are a [`Hole`].
//!
//! ```text
//! segment   5  6  ░░░░░░  9  10        shown: 5 6 9 10, hole: bytes of 7 and 8
//! ```
//!
//! The manifest lists the files of the log and where each ends. Without it, all segments of the directory are
//! read. Never changes a file.

use crate::disk::{Disk, read_file};
use crate::entry::{self, Header, MAGIC, Record};
use crate::error::{Damage, OpenError};
use crate::manifest::{self, Manifest, SegmentInfo};
use crate::segment::{self, HEADER_BYTES};
use crate::table::Table;
use bytes::Bytes;
use headwater_model::{Lsn, PartitionId};
use std::path::Path;

/// The largest possible table or segment.
const FILE_BYTES_MAX: u64 = 1 << 32;

/// Bytes of a log that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hole {
    /// The file, the first byte, the first lost LSN, and the cause.
    pub damage: Damage,
    /// The first byte after the hole.
    pub end: u64,
    /// The partition that gave out the LSNs.
    pub origin: Option<PartitionId>,
    /// The last lost LSN, if known.
    pub last_lsn: Option<Lsn>,
    /// The number of lost changes, if known.
    pub changes: Option<u64>,
}

/// What was found in the files of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Readable entries.
    pub entries: u64,
    /// Readable changes in them.
    pub changes: u64,
    /// The newest readable LSN.
    pub newest: Lsn,
    /// The unreadable parts.
    pub holes: Vec<Hole>,
}

/// The number of bytes that [`inspect`] will read in a directory.
#[must_use]
pub fn bytes_to_inspect(disk: &dyn Disk, dir: &Path) -> u64 {
    let names = disk.list(dir).unwrap_or_default();
    let segments = names.iter().filter(|name| segment::number_of(name, "seg").is_some());
    let length = |name: &String| disk.open(&dir.join(name), false)?.length();
    segments.filter_map(|name| length(name).ok()).sum()
}

/// Reads every segment of a log.
///
/// Calls `visit` for each readable record, in the order of the files, and `progress` with the bytes read of each
/// segment.
pub fn inspect(
    disk: &dyn Disk,
    dir: &Path,
    visit: &mut dyn FnMut(&Record),
    progress: &mut dyn FnMut(u64),
) -> Inspection {
    let mut found = Inspection::default();
    let manifest = match Manifest::load(disk, dir) {
        Ok(manifest) => Some(manifest),
        Err(error) => {
            found.holes.push(whole_file(damage_of(error, dir)));
            None
        }
    };
    let mut numbers: Vec<u64> = match &manifest {
        Some(manifest) => manifest.segments.iter().map(|segment| segment.number).collect(),
        None => disk
            .list(dir)
            .unwrap_or_default()
            .iter()
            .filter_map(|name| segment::number_of(name, "seg"))
            .collect(),
    };
    numbers.sort_unstable();
    for number in numbers {
        let info = manifest
            .as_ref()
            .and_then(|manifest| manifest.segments.iter().find(|segment| segment.number == number));
        let reached = manifest.as_ref().map_or(Lsn::ZERO, |manifest| manifest.reached);
        let mut scan = Scan { disk, dir, number, info, reached, found: &mut found };
        progress(scan.run(visit));
    }
    found
}

fn damage_of(error: OpenError, dir: &Path) -> Damage {
    match error {
        OpenError::Damaged(damage) => damage,
        OpenError::Io { dir, source } => Damage::new(&dir, 0, None, source.to_string()),
        other => Damage::new(&manifest::path(dir), 0, None, other.to_string()),
    }
}

fn whole_file(damage: Damage) -> Hole {
    Hole { end: damage.offset, damage, origin: None, last_lsn: None, changes: None }
}

/// The scan of one segment.
struct Scan<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    number: u64,
    info: Option<&'a SegmentInfo>,
    reached: Lsn,
    found: &'a mut Inspection,
}

impl Scan<'_> {
    /// Scans the segment and returns the number of bytes read.
    fn run(&mut self, visit: &mut dyn FnMut(&Record)) -> u64 {
        let path = segment::segment_path(self.dir, self.number);
        let sealed = self.info.and_then(|info| info.sealed);
        let bytes = match read_file(self.disk, &path, FILE_BYTES_MAX) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => {
                let last = sealed.map(|sealed| sealed.last_lsn);
                let end = sealed.map_or(0, |sealed| u64::from(sealed.bytes));
                let what = match error.kind() {
                    std::io::ErrorKind::NotFound => "the file is missing".to_owned(),
                    _ => format!("cannot be read: {error}"),
                };
                self.hole(0..end, self.info.map(|info| info.first_lsn), last, &what);
                return 0;
            }
        };
        let known_end = sealed.map(|sealed| sealed.bytes as usize);
        let end = known_end.unwrap_or(bytes.len()).min(bytes.len());
        self.check_header(&bytes);
        let mut last = self.info.map_or(Lsn::ZERO, |info| info.first_lsn.previous());
        let mut at = (HEADER_BYTES as usize).min(end);
        while at < end {
            let rest = &bytes[at..end];
            if let Some(header) = self.entry_at(rest, last) {
                let entry = bytes.slice(at..at + header.length as usize);
                self.show(&entry, &header, visit);
                last = header.lsn;
                at += header.length as usize;
                continue;
            }
            let next = self.next_entry(rest, last);
            let Some((behind, header)) = next else { break };
            let what = "the entries here are unreadable";
            let range = at as u64..(at + behind) as u64;
            self.hole(range, Some(last.next()), Some(header.lsn.previous()), what);
            at += behind;
        }
        self.check_end(&bytes[at.min(bytes.len())..end], at, last);
        bytes.len() as u64
    }

    fn check_header(&mut self, bytes: &Bytes) {
        let Some(info) = self.info else { return };
        let header = segment::encode_header(info.origin, info.first_lsn, info.previous_hash);
        if bytes.get(..header.len()) != Some(&header[..]) {
            let what = "the header is not the one the manifest names; no change is lost by that";
            self.hole(0..u64::from(HEADER_BYTES), None, None, what);
        }
    }

    /// Checks the bytes after the last readable entry.
    fn check_end(&mut self, rest: &[u8], at: usize, last: Lsn) {
        match self.info.and_then(|info| info.sealed) {
            Some(sealed) if at < sealed.bytes as usize => {
                let range = at as u64..u64::from(sealed.bytes);
                let what = "the entries up to the end of the segment are unreadable";
                self.hole(range, Some(last.next()), Some(sealed.last_lsn), what);
            }
            Some(_) => {}
            None => {
                let used = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                let is_active = self.info.is_some();
                if used > 0 || (is_active && last < self.reached) {
                    let lost = (last < self.reached && is_active).then_some(self.reached);
                    let what = "the bytes at the end of the log are no entries";
                    self.hole(at as u64..(at + used) as u64, Some(last.next()), lost, what);
                }
            }
        }
    }

    fn entry_at(&self, bytes: &[u8], last: Lsn) -> Option<Header> {
        let header = entry::check(bytes).ok()?;
        let is_ours = self.info.is_none_or(|info| header.partition == info.origin);
        (is_ours && header.lsn > last).then_some(header)
    }

    /// The next readable entry and its distance in bytes.
    fn next_entry(&self, bytes: &[u8], last: Lsn) -> Option<(usize, Header)> {
        let magic = MAGIC.to_le_bytes();
        let starts = bytes.windows(magic.len()).enumerate().skip(1);
        starts
            .filter(|(_, window)| *window == magic)
            .find_map(|(at, _)| Some((at, self.entry_at(&bytes[at..], last)?)))
    }

    fn show(&mut self, entry: &Bytes, header: &Header, visit: &mut dyn FnMut(&Record)) {
        self.found.entries += 1;
        self.found.newest = self.found.newest.max(header.lsn);
        let changes = &mut self.found.changes;
        // The checksum is right, so the records decode without errors.
        let _ = entry::for_each_record(entry, header, |record| {
            *changes += 1;
            visit(&record);
        });
    }

    fn hole(
        &mut self,
        range: std::ops::Range<u64>,
        first: Option<Lsn>,
        last: Option<Lsn>,
        what: &str,
    ) {
        let path = segment::segment_path(self.dir, self.number);
        let changes = first.zip(last).and_then(|(first, last)| self.changes_between(first, last));
        self.found.holes.push(Hole {
            damage: Damage::new(&path, range.start, first, what),
            end: range.end,
            origin: self.info.map(|info| info.origin),
            last_lsn: last,
            changes,
        });
    }

    /// The number of changes between two LSNs by the offset table; without a table, the number of entries as a
    /// lower bound. `None` without a table in a compacted segment.
    fn changes_between(&self, first: Lsn, last: Lsn) -> Option<u64> {
        let path = segment::table_path(self.dir, self.number);
        let table = read_file(self.disk, &path, FILE_BYTES_MAX).ok();
        let table = table.and_then(|bytes| Table::decode(&bytes));
        if let Some(table) = table {
            let is_lost = |lsn: Lsn| first <= lsn && lsn <= last;
            let lost = table.rows().iter().filter(|row| is_lost(table.lsn(**row)));
            return Some(lost.count() as u64);
        }
        let is_dense = self.info.is_some_and(|info| !info.compacted);
        is_dense.then(|| (last.get() + 1).saturating_sub(first.get()))
    }
}
