//! Crash recovery: finds the end of a segment and distinguishes a torn write from damage.
//!
//! The scan goes entry by entry and stops at the first bytes that are not the next entry. If no valid entry
//! follows, the bytes are a torn write that was never acknowledged, and are cut off. If a valid entry follows,
//! the hole is damage only if it was ever durable. The later entry shows that: it names the newest LSN that was
//! durable when it was written. If the pages of a group reached the disk out of order, that LSN is before the
//! hole. If durable bytes were damaged, it is in or after the hole.
//!
//! Valid entries may still be in the page cache only: the process may have died between write and sync, or the
//! sync may have failed. So all entries that may be unsynced are written and synced again before any reader
//! sees them.

use crate::entry::{self, BadEntry, Header, MAGIC, RecordKind};
use crate::error::{Damage, OpenError, ReadError};
use crate::segment::{HEADER_BYTES, Segment};
use crate::table::Table;
use bytes::Bytes;
use headwater_model::{Lsn, Timestamp};
use memmap2::MmapMut;

/// The result of a segment scan.
#[derive(Debug)]
pub(crate) struct Scanned {
    pub(crate) table: Table,
    pub(crate) tombstone_bytes: u32,
    pub(crate) last_lsn: Lsn,
    pub(crate) last_hash: u64,
    pub(crate) newest: Timestamp,
    /// Bytes of a torn write after the last entry.
    pub(crate) torn_bytes: u64,
    /// The offset from which on entries may be unsynced.
    unsure_at: usize,
    bytes: Bytes,
}

impl Scanned {
    /// Cuts off a torn write, then writes and syncs all entries that may be unsynced.
    pub(crate) fn make_durable(&self, segment: &Segment) -> std::io::Result<()> {
        let end = self.table.end();
        if self.torn_bytes > 0 {
            segment.file.truncate(u64::from(end))?;
        }
        // After a failed sync the page cache marks the pages clean: only another write brings them to disk.
        let unsure = &self.bytes[self.unsure_at..end as usize];
        segment.file.write_at(unsure, self.unsure_at as u64)?;
        segment.file.sync()
    }
}

/// Scans the active segment, in which any suffix may be missing or torn.
///
/// In a relaxed segment, entries name as durable what was only written. There only `reached`, the LSN up to
/// which the log is known to be synced, distinguishes damage from a torn write; the caller compares it with the
/// end.
pub(crate) fn scan_active(segment: &Segment, reached: Lsn) -> Result<Scanned, OpenError> {
    let io = |source| OpenError::Io { dir: segment.path.clone(), source };
    let length = segment.file.length().map_err(io)?;
    let length = u32::try_from(length).map_err(|_| {
        Damage::new(&segment.path, u64::from(u32::MAX), None, "the file is larger than a segment")
    })?;
    // Anonymous memory map, returned to the system on drop: an allocator might keep the memory, and it may be
    // more than a server needs later.
    let mut bytes = MmapMut::map_anon(length as usize).map_err(io)?;
    segment.file.read_at(&mut bytes, 0).map_err(io)?;
    let bytes = Bytes::from_owner(bytes);

    let mut scanned = Scanned {
        table: Table::new(segment.info.first_lsn, HEADER_BYTES),
        tombstone_bytes: 0,
        last_lsn: segment.info.first_lsn.previous(),
        last_hash: segment.info.previous_hash,
        newest: Timestamp::from_millis(0),
        torn_bytes: 0,
        unsure_at: HEADER_BYTES as usize,
        bytes: bytes.clone(),
    };
    let mut at = HEADER_BYTES as usize;
    let mut group = None;
    while let Some((header, ordinals, tombstones)) = next_entry(segment, &bytes, at, &scanned) {
        let end = at + header.length as usize;
        // All entries of a group name the same durable LSN, and only the last group can be unsynced.
        let starts_group = group.replace(header.durable) != Some(header.durable);
        if segment.info.relaxed && header.lsn <= reached {
            scanned.unsure_at = end;
        } else if !segment.info.relaxed && starts_group {
            scanned.unsure_at = at;
        }
        scanned.table.push(header.lsn, header.timestamp, header.length, ordinals.into_iter());
        scanned.tombstone_bytes += header.share(tombstones);
        scanned.last_lsn = header.lsn;
        scanned.last_hash = entry::chain_hash(&bytes[at..end]);
        scanned.newest = header.timestamp;
        at = end;
    }
    if !segment.info.relaxed
        && let Some(follower) = valid_entry_after(segment, &bytes[at..], scanned.last_lsn)
        && follower.durable > scanned.last_lsn
    {
        let hole = scanned.last_lsn.next();
        let what = format!("the entry is unreadable, but LSN {} behind it is not", follower.lsn);
        return Err(Damage::new(&segment.path, at as u64, Some(hole), what).into());
    }
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    scanned.torn_bytes = used.saturating_sub(at) as u64;
    Ok(scanned)
}

/// The entry at `at`, if it is valid and follows the previous one.
fn next_entry(
    segment: &Segment,
    bytes: &Bytes,
    at: usize,
    scanned: &Scanned,
) -> Option<(Header, Vec<u16>, usize)> {
    let header = entry::check(bytes.get(at..)?).ok()?;
    let follows = header.lsn == scanned.last_lsn.next()
        && header.partition == segment.info.origin
        && header.previous_hash == scanned.last_hash;
    if !follows {
        return None;
    }
    let entry = bytes.slice(at..at + header.length as usize);
    let (ordinals, tombstones) = records_of(&entry, &header).ok()?;
    Some((header, ordinals, tombstones))
}

/// The ordinals of an entry's records, and how many of them are tombstones.
fn records_of(entry: &Bytes, header: &Header) -> Result<(Vec<u16>, usize), BadEntry> {
    let mut ordinals = Vec::with_capacity(1);
    let mut tombstones = 0;
    entry::for_each_record(entry, header, |record| {
        ordinals.push(record.position.ordinal);
        tombstones += usize::from(record.kind == RecordKind::Tombstone);
    })?;
    if !ordinals.is_sorted_by(|one, next| one < next) {
        return Err(BadEntry::Inconsistent);
    }
    Ok((ordinals, tombstones))
}

/// Searches for valid entries of this log with an LSN above `last`; returns the one with the highest durable LSN.
fn valid_entry_after(segment: &Segment, bytes: &[u8], last: Lsn) -> Option<Header> {
    let magic = MAGIC.to_le_bytes();
    let mut best: Option<Header> = None;
    let mut at = 0;
    while at + entry::HEADER_BYTES <= bytes.len() {
        let Some(found) = bytes[at..].windows(magic.len()).position(|window| window == magic)
        else {
            break;
        };
        at += found;
        match entry::check(&bytes[at..]) {
            Ok(header) if header.partition == segment.info.origin && header.lsn > last => {
                best = match best {
                    Some(known) if known.durable >= header.durable => Some(known),
                    _ => Some(header),
                };
                at += header.length as usize;
            }
            _ => at += 1,
        }
    }
    best
}

/// Rebuilds the offset table of a sealed segment by reading all of it.
pub(crate) fn rebuild_table(segment: &Segment) -> Result<Table, ReadError> {
    let mut table = Table::new(segment.info.first_lsn, HEADER_BYTES);
    let end = segment.sealed().map_or(HEADER_BYTES, |sealed| sealed.bytes);
    let bytes = segment.read(0, end)?;
    let mut at = HEADER_BYTES;
    let mut last = segment.info.first_lsn.previous();
    while at < end {
        let damaged = |bad: BadEntry| segment.damage(at, last.next(), bad);
        let header = entry::check(&bytes[at as usize..]).map_err(damaged)?;
        let too_far = header.lsn.get().saturating_sub(segment.info.first_lsn.get());
        if header.lsn <= last
            || header.partition != segment.info.origin
            || u32::try_from(too_far).is_err()
        {
            return Err(damaged(BadEntry::Inconsistent));
        }
        let entry = bytes.slice(at as usize..(at + header.length) as usize);
        let (ordinals, _) = records_of(&entry, &header).map_err(damaged)?;
        table.push(header.lsn, header.timestamp, header.length, ordinals.into_iter());
        last = header.lsn;
        at += header.length;
    }
    Ok(table)
}
