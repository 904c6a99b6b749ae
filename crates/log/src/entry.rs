//! Encoding of log entries and their records.
//!
//! An entry is one transaction: it has one LSN, and ordinals number its records. The header is self-describing
//! (magic, format, partition, epoch, LSN) and chains to the previous entry by hash, so an entry can be checked
//! without any other file. Decoding never trusts its input and never panics.

use crate::checksum::{self, CRC_AT};
use bytes::Bytes;
use headwater_model::{Lsn, PartitionId, Timestamp};
use std::ops::Range;

/// `HWE1`, the first bytes of every entry.
pub const MAGIC: u32 = u32::from_le_bytes(*b"HWE1");
/// The version of the entry format this code writes.
pub const VERSION: u8 = 1;
/// Size of an entry's header, before its records.
pub const HEADER_BYTES: usize = 80;
/// Size of a record's header, before its key, meta and body.
pub const RECORD_HEADER_BYTES: usize = 28;
/// The largest entry. A batch of 100 operations and 2 MiB fits easily, and so do 65 535 tombstones.
pub const ENTRY_BYTES_MAX: usize = 48 << 20;

/// The entry was rewritten by compaction: records may be missing and its chain is not checked.
const FLAG_COMPACTED: u8 = 1;

/// The position of a record: the log it was first written to, its entry there, and its ordinal in the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The partition whose log gave out the LSN.
    pub origin: PartitionId,
    /// The entry.
    pub lsn: Lsn,
    /// The record inside the entry.
    pub ordinal: u16,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A new version of an item.
    Put,
    /// The deletion of an item.
    Tombstone,
    /// Metadata of the partition itself, never shown to readers of the feed.
    Control,
}

impl RecordKind {
    fn to_byte(self) -> u8 {
        match self {
            RecordKind::Put => 1,
            RecordKind::Tombstone => 2,
            RecordKind::Control => 3,
        }
    }

    fn from_byte(byte: u8) -> Option<RecordKind> {
        match byte {
            1 => Some(RecordKind::Put),
            2 => Some(RecordKind::Tombstone),
            3 => Some(RecordKind::Control),
            _ => None,
        }
    }
}

/// A record about to be appended.
#[derive(Clone, Debug)]
pub struct NewRecord<'a> {
    /// The kind of record.
    pub kind: RecordKind,
    /// The record it supersedes, which becomes dead.
    pub supersedes: Option<Position>,
    /// Hashed key, used to split partitions and to filter reads.
    pub epk: &'a [u8],
    /// Data that the owner of the log needs to apply the record; opaque here.
    pub meta: &'a [u8],
    /// The content of the version.
    pub body: &'a [u8],
}

/// A record read from the log. It shares its memory with the other records of the same read.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its position.
    pub position: Position,
    /// When its entry was written.
    pub timestamp: Timestamp,
    /// The kind of record.
    pub kind: RecordKind,
    /// The record it superseded.
    pub supersedes: Option<Position>,
    /// Key, meta and body, concatenated.
    content: Bytes,
    epk_bytes: u16,
    meta_bytes: u32,
}

impl Record {
    /// Copies the record's content if its entry is more than twice as large.
    ///
    /// Otherwise one item kept in memory would keep its whole transaction there.
    pub(crate) fn detached_from(mut self, entry_bytes: usize) -> Record {
        if entry_bytes > 2 * self.content.len() {
            self.content = Bytes::copy_from_slice(&self.content);
        }
        self
    }

    /// Hashed key.
    #[must_use]
    pub fn epk(&self) -> &[u8] {
        &self.content[..usize::from(self.epk_bytes)]
    }

    /// Data that the owner of the log needs to apply the record.
    #[must_use]
    pub fn meta(&self) -> &[u8] {
        &self.content[usize::from(self.epk_bytes)..self.body_at()]
    }

    /// The content of the version.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.content[self.body_at()..]
    }

    /// The content of the version, sharing the memory it was read into.
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        self.content.slice(self.body_at()..)
    }

    /// Size of key, meta and body.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.content.len()
    }

    /// A copy with its own memory, for callers that keep it longer than the other records of its read.
    #[must_use]
    pub fn detached(&self) -> Record {
        Record { content: Bytes::copy_from_slice(&self.content), ..self.clone() }
    }

    fn body_at(&self) -> usize {
        usize::from(self.epk_bytes) + self.meta_bytes as usize
    }
}

impl AsRef<Record> for Record {
    fn as_ref(&self) -> &Record {
        self
    }
}

/// A decoded entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its slot.
    pub lsn: Lsn,
    /// Identifies the append: the same for every attempt.
    pub batch: u128,
    /// When it was written.
    pub timestamp: Timestamp,
    /// Hash of all its bytes.
    pub hash: u64,
    /// Its records.
    pub records: Vec<Record>,
}

/// The end of a log, which the next entry follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The last slot.
    pub lsn: Lsn,
    /// Hash of the entry in it, zero at the beginning.
    pub hash: u64,
    /// When it was written; the next entry is never older.
    pub timestamp: Timestamp,
}

impl Tail {
    /// The end of an empty log that starts after `lsn`.
    #[must_use]
    pub fn start(lsn: Lsn) -> Tail {
        Tail { lsn, hash: 0, timestamp: Timestamp::from_millis(0) }
    }
}

/// The header of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Total bytes of the entry, header included.
    pub length: u32,
    /// Whether compaction rewrote it.
    pub compacted: bool,
    /// The partition that wrote it.
    pub partition: PartitionId,
    /// How often the partition had changed its owner when the entry was written.
    pub epoch: u32,
    /// Its slot.
    pub lsn: Lsn,
    /// The newest slot that was certainly durable when this entry was written.
    ///
    /// If an entry after a hole names the hole as durable, the hole is damage; otherwise it is a torn write.
    pub durable: Lsn,
    /// When it was written.
    pub timestamp: Timestamp,
    /// Identifies the append.
    pub batch: u128,
    /// Hash of the previous entry.
    pub previous_hash: u64,
    /// The number of records.
    pub records: u16,
}

impl Header {
    /// Estimated bytes of `records` of its records, as if all had the same size.
    pub(crate) fn share(&self, records: usize) -> u32 {
        let bytes = u64::from(self.length) * records as u64 / u64::from(self.records.max(1));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// Why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// Fewer bytes than the header's length.
    #[error("the entry is cut off")]
    Short,
    /// The first four bytes are not the magic number.
    #[error("no entry starts here")]
    Magic,
    /// A format this code does not know.
    #[error("unknown entry format")]
    Version,
    /// The checksum does not match the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// The checksum matches, but the content is inconsistent.
    #[error("the entry contradicts itself")]
    Inconsistent,
}

/// Decodes the header without checking the checksum.
///
/// # Errors
/// When the bytes cannot be the beginning of an entry.
#[inline]
pub fn decode_header(bytes: &[u8]) -> Result<Header, BadEntry> {
    // Too short for a header; the magic number may still show that it is no entry.
    let Some(fixed) = bytes.first_chunk::<HEADER_BYTES>() else {
        let other = bytes.first_chunk().is_some_and(|magic| u32::from_le_bytes(*magic) != MAGIC);
        return Err(if other { BadEntry::Magic } else { BadEntry::Short });
    };
    if u32_at(fixed, 0) != MAGIC {
        return Err(BadEntry::Magic);
    }
    if fixed[4] != VERSION {
        return Err(BadEntry::Version);
    }
    let header = Header {
        length: u32_at(fixed, 8),
        compacted: fixed[5] & FLAG_COMPACTED != 0,
        partition: PartitionId::new(u32_at(fixed, 16)),
        epoch: u32_at(fixed, 20),
        lsn: Lsn::new(u64_at(fixed, 24)),
        durable: Lsn::new(u64_at(fixed, 32)),
        timestamp: Timestamp::from_millis(u64_at(fixed, 40)),
        batch: u128::from(u64_at(fixed, 48)) | (u128::from(u64_at(fixed, 56)) << 64),
        previous_hash: u64_at(fixed, 64),
        records: u16_at(fixed, 6),
    };
    let length = header.length as usize;
    // An entry without records would have no row in the offset table. LSN 0 is before the first entry, and
    // u64::MAX has no successor.
    let impossible = header.records == 0 || matches!(header.lsn.get(), 0 | u64::MAX);
    if impossible || !(HEADER_BYTES..=ENTRY_BYTES_MAX).contains(&length) {
        return Err(BadEntry::Inconsistent);
    }
    Ok(header)
}

/// Reads a number at a constant offset, so that the compiler removes the bounds checks.
#[inline(always)]
fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | (u32::from(u16_at(bytes, at + 2)) << 16)
}

#[inline(always)]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}

/// Decodes the header and checks the checksum of the whole entry; `bytes` may continue after the entry.
///
/// # Errors
/// When the bytes are not an undamaged entry.
pub fn check(bytes: &[u8]) -> Result<Header, BadEntry> {
    let header = decode_header(bytes)?;
    let entry = bytes.get(..header.length as usize).ok_or(BadEntry::Short)?;
    if entry[CRC_AT] != checksum::of_entry(entry).to_le_bytes() {
        return Err(BadEntry::Checksum);
    }
    Ok(header)
}

/// Whether all three entries have the right length and checksum, computed in the time of one checksum.
///
/// If false, call [`check`] for each to find the error.
pub(crate) fn are_whole(entries: [&[u8]; 3]) -> bool {
    let lengths_fit = entries.iter().all(|entry| {
        let length = entry.first_chunk::<HEADER_BYTES>().map(|fixed| u32_at(fixed, 8) as usize);
        length == Some(entry.len())
    });
    lengths_fit
        && checksum::of_three(entries)
            .iter()
            .zip(entries)
            .all(|(sum, entry)| entry[CRC_AT] == sum.to_le_bytes())
}

/// Hash of a whole entry, stored in the next one as a chain.
#[must_use]
pub fn chain_hash(entry: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(entry)
}

/// Calls `visit` for each record of a checked entry. `bytes` holds exactly the entry.
///
/// # Errors
/// When the records do not fill the entry exactly, or one is of an unknown kind.
pub fn for_each_record(
    bytes: &Bytes,
    header: &Header,
    visit: impl FnMut(Record),
) -> Result<(), BadEntry> {
    for_each_record_within(bytes, 0..bytes.len(), header, visit)
}

/// Like [`for_each_record`], for an entry at `entry` in a larger chunk.
#[inline]
pub(crate) fn for_each_record_within(
    chunk: &Bytes,
    entry: Range<usize>,
    header: &Header,
    mut visit: impl FnMut(Record),
) -> Result<(), BadEntry> {
    let bytes = chunk.get(..entry.end).ok_or(BadEntry::Short)?;
    let mut at = entry.start.saturating_add(HEADER_BYTES);
    for _ in 0..header.records {
        let rest = bytes.get(at..).ok_or(BadEntry::Short)?;
        let fixed = rest.first_chunk::<RECORD_HEADER_BYTES>().ok_or(BadEntry::Short)?;
        let kind = RecordKind::from_byte(fixed[0]).ok_or(BadEntry::Inconsistent)?;
        let (epk_bytes, meta_bytes, body_bytes) =
            (u16_at(fixed, 2), u32_at(fixed, 20), u32_at(fixed, 24));
        let content = usize::from(epk_bytes)
            .checked_add(meta_bytes as usize)
            .and_then(|sum| sum.checked_add(body_bytes as usize))
            .ok_or(BadEntry::Inconsistent)?;
        let start = at + RECORD_HEADER_BYTES;
        let end = start.checked_add(content).filter(|end| *end <= bytes.len());
        let end = end.ok_or(BadEntry::Short)?;
        let prior = Position {
            origin: PartitionId::new(u32_at(fixed, 8)),
            lsn: Lsn::new(u64_at(fixed, 12)),
            ordinal: u16_at(fixed, 6),
        };
        visit(Record {
            position: Position {
                origin: header.partition,
                lsn: header.lsn,
                ordinal: u16_at(fixed, 4),
            },
            timestamp: header.timestamp,
            kind,
            supersedes: (fixed[1] & 1 != 0).then_some(prior),
            content: chunk.slice(start..end),
            epk_bytes,
            meta_bytes,
        });
        at = end;
    }
    if at == bytes.len() { Ok(()) } else { Err(BadEntry::Inconsistent) }
}

/// Decodes one whole entry and checks everything except the chain to the previous entry.
///
/// # Errors
/// When the bytes are not exactly one undamaged entry.
pub fn decode(bytes: &Bytes) -> Result<(Header, Entry), BadEntry> {
    let header = check(bytes)?;
    if header.length as usize != bytes.len() {
        return Err(BadEntry::Inconsistent);
    }
    let mut records = Vec::with_capacity(usize::from(header.records).min(1024));
    for_each_record(bytes, &header, |record| records.push(record))?;
    if !records.is_sorted_by(|one, next| one.position.ordinal < next.position.ordinal) {
        return Err(BadEntry::Inconsistent);
    }
    let entry = Entry {
        lsn: header.lsn,
        batch: header.batch,
        timestamp: header.timestamp,
        hash: chain_hash(bytes),
        records,
    };
    Ok((header, entry))
}

/// One entry of a [`Group`].
#[derive(Clone, Debug)]
pub struct GroupEntry {
    /// Its slot.
    pub lsn: Lsn,
    /// Its range in the group's bytes.
    pub bytes: Range<usize>,
    /// Identifies the append.
    pub batch: u128,
}

/// Entries that are appended together (group commit). Cheap to clone; a retry sends the same bytes.
#[derive(Clone, Debug)]
pub struct Group {
    after: Tail,
    tail: Tail,
    bytes: Bytes,
    entries: std::sync::Arc<[GroupEntry]>,
}

impl Group {
    /// The end of the log that the group follows.
    #[must_use]
    pub fn after(&self) -> Tail {
        self.after
    }

    /// The end of the log once the group is appended.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// All entries, concatenated.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The entries and their ranges in [`Group::bytes`].
    #[must_use]
    pub fn entries(&self) -> &[GroupEntry] {
        &self.entries
    }

    /// The group without its first `count` entries; `None` if no entry is left.
    #[must_use]
    pub fn without_first(&self, count: usize) -> Option<Group> {
        if count >= self.entries.len() {
            return None;
        }
        let kept = &self.entries[count..];
        let start = kept[0].bytes.start;
        let mut after = self.after;
        if let Some(last) = count.checked_sub(1).map(|index| &self.entries[index]) {
            let header = decode_header(&self.bytes[last.bytes.clone()]).ok()?;
            after = Tail {
                lsn: last.lsn,
                hash: chain_hash(&self.bytes[last.bytes.clone()]),
                timestamp: header.timestamp,
            };
        }
        Some(Group {
            after,
            tail: self.tail,
            bytes: self.bytes.slice(start..),
            entries: kept
                .iter()
                .map(|entry| GroupEntry {
                    bytes: entry.bytes.start - start..entry.bytes.end - start,
                    ..entry.clone()
                })
                .collect(),
        })
    }
}

/// Encodes entries one after another and assigns each the next LSN.
#[derive(Debug)]
pub struct GroupBuilder {
    partition: PartitionId,
    epoch: u32,
    after: Tail,
    tail: Tail,
    bytes: Vec<u8>,
    entries: Vec<GroupEntry>,
    open: Option<OpenEntry>,
}

#[derive(Debug)]
struct OpenEntry {
    start: usize,
    records: u16,
    /// Time of the entry before it, restored when this entry is abandoned.
    time_before: Timestamp,
}

impl GroupBuilder {
    /// Starts a group that follows `after`.
    #[must_use]
    pub fn new(partition: PartitionId, epoch: u32, after: Tail) -> GroupBuilder {
        GroupBuilder::with_capacity(partition, epoch, after, 0)
    }

    /// Starts a group with room for about `bytes` bytes.
    #[must_use]
    pub fn with_capacity(
        partition: PartitionId,
        epoch: u32,
        after: Tail,
        bytes: usize,
    ) -> GroupBuilder {
        GroupBuilder {
            partition,
            epoch,
            after,
            tail: after,
            bytes: Vec::with_capacity(bytes),
            entries: Vec::new(),
            open: None,
        }
    }

    /// The LSN of the entry being written or, between entries, of the next one.
    #[must_use]
    pub fn next_lsn(&self) -> Lsn {
        self.tail.lsn.next()
    }

    /// Bytes encoded so far.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Whether no entry has been finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Starts an entry and returns its time: `now`, or the time of the previous entry if the clock went back.
    pub fn begin(&mut self, now: Timestamp, batch: u128) -> Timestamp {
        assert!(self.open.is_none(), "one entry is finished before the next begins");
        let timestamp = now.max(self.tail.timestamp);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&MAGIC.to_le_bytes());
        self.bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        self.bytes.extend_from_slice(&[0; 8]); // length and checksum, set by `finish`
        self.bytes.extend_from_slice(&self.partition.get().to_le_bytes());
        self.bytes.extend_from_slice(&self.epoch.to_le_bytes());
        self.bytes.extend_from_slice(&self.tail.lsn.next().get().to_le_bytes());
        self.bytes.extend_from_slice(&self.after.lsn.get().to_le_bytes());
        self.bytes.extend_from_slice(&timestamp.as_millis().to_le_bytes());
        self.bytes.extend_from_slice(&batch.to_le_bytes());
        self.bytes.extend_from_slice(&self.tail.hash.to_le_bytes());
        self.bytes.extend_from_slice(&[0; 8]); // reserved
        debug_assert_eq!(self.bytes.len() - start, HEADER_BYTES);
        self.open = Some(OpenEntry { start, records: 0, time_before: self.tail.timestamp });
        self.tail.timestamp = timestamp;
        self.entries.push(GroupEntry { lsn: self.tail.lsn.next(), bytes: start..start, batch });
        timestamp
    }

    /// Adds a record to the open entry and returns its position.
    pub fn record(&mut self, record: &NewRecord<'_>) -> Position {
        let open = self.open.as_mut().expect("a record belongs to an entry that was begun");
        let ordinal = open.records;
        open.records = ordinal.checked_add(1).expect("the writer limits the records of an entry");
        encode_record(&mut self.bytes, ordinal, record);
        Position { origin: self.partition, lsn: self.tail.lsn.next(), ordinal }
    }

    /// Drops the open entry and all of its records.
    pub fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            self.bytes.truncate(open.start);
            self.entries.pop();
            self.tail.timestamp = open.time_before;
        }
    }

    /// Finishes the open entry.
    pub fn finish(&mut self) {
        let open = self.open.take().expect("an entry is finished after it was begun");
        assert!(open.records > 0, "an entry without records says nothing");
        let entry = &mut self.bytes[open.start..];
        seal(entry, open.records, 0);
        self.tail.lsn = self.tail.lsn.next();
        self.tail.hash = chain_hash(entry);
        let end = self.bytes.len();
        if let Some(last) = self.entries.last_mut() {
            last.bytes.end = end;
        }
    }

    /// The finished group.
    #[must_use]
    pub fn build(self) -> Group {
        assert!(self.open.is_none(), "every entry is finished before the group is built");
        Group {
            after: self.after,
            tail: self.tail,
            bytes: Bytes::from(self.bytes),
            entries: self.entries.into(),
        }
    }
}

fn encode_record(bytes: &mut Vec<u8>, ordinal: u16, record: &NewRecord<'_>) {
    let prior = record.supersedes.unwrap_or(Position {
        origin: PartitionId::new(0),
        lsn: Lsn::ZERO,
        ordinal: 0,
    });
    bytes.extend_from_slice(&[record.kind.to_byte(), u8::from(record.supersedes.is_some())]);
    bytes.extend_from_slice(&size_u16(record.epk.len()).to_le_bytes());
    bytes.extend_from_slice(&ordinal.to_le_bytes());
    bytes.extend_from_slice(&prior.ordinal.to_le_bytes());
    bytes.extend_from_slice(&prior.origin.get().to_le_bytes());
    bytes.extend_from_slice(&prior.lsn.get().to_le_bytes());
    bytes.extend_from_slice(&size_u32(record.meta.len()).to_le_bytes());
    bytes.extend_from_slice(&size_u32(record.body.len()).to_le_bytes());
    bytes.extend_from_slice(record.epk);
    bytes.extend_from_slice(record.meta);
    bytes.extend_from_slice(record.body);
}

/// Rewrites an entry with only the records in `keep`, for compaction.
pub(crate) fn rewrite(header: &Header, entry: &[u8], keep: &[Record], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&entry[..HEADER_BYTES]);
    for record in keep {
        encode_record(
            out,
            record.position.ordinal,
            &NewRecord {
                kind: record.kind,
                supersedes: record.supersedes,
                epk: record.epk(),
                meta: record.meta(),
                body: record.body(),
            },
        );
    }
    debug_assert!(keep.len() <= usize::from(header.records));
    seal(&mut out[start..], size_u16(keep.len()), FLAG_COMPACTED);
}

/// Sets flags, record count, length and checksum of an encoded entry.
fn seal(entry: &mut [u8], records: u16, flags: u8) {
    entry[5] = flags;
    entry[6..8].copy_from_slice(&records.to_le_bytes());
    let length = size_u32(entry.len());
    entry[8..12].copy_from_slice(&length.to_le_bytes());
    seal_again(entry);
}

/// Recomputes the checksum of an entry. Also used by tests that change bytes behind it.
pub(crate) fn seal_again(entry: &mut [u8]) {
    let crc = checksum::of_entry(entry);
    entry[CRC_AT].copy_from_slice(&crc.to_le_bytes());
}

fn size_u16(size: usize) -> u16 {
    u16::try_from(size).expect("keys and counts are limited far below 64 Ki by the store")
}

fn size_u32(size: usize) -> u32 {
    u32::try_from(size).expect("entries are limited far below 4 GiB by the store")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Group {
        let mut group = GroupBuilder::new(PartitionId::new(3), 1, Tail::start(Lsn::new(9)));
        group.begin(Timestamp::from_millis(5000), 77);
        let first = group.record(&NewRecord {
            kind: RecordKind::Put,
            supersedes: None,
            epk: &[1; 16],
            meta: b"meta",
            body: b"body",
        });
        group.record(&NewRecord {
            kind: RecordKind::Tombstone,
            supersedes: Some(first),
            epk: &[2; 16],
            meta: b"",
            body: b"",
        });
        group.finish();
        group.begin(Timestamp::from_millis(4000), 78);
        group.record(&NewRecord {
            kind: RecordKind::Control,
            supersedes: None,
            epk: &[],
            meta: b"m",
            body: b"",
        });
        group.finish();
        group.build()
    }

    fn entry_bytes(group: &Group, index: usize) -> Bytes {
        group.bytes().slice(group.entries()[index].bytes.clone())
    }

    #[test]
    fn a_record_of_a_large_entry_has_memory_of_its_own() {
        let group = sample();
        let bytes = group.bytes().slice(group.entries()[0].bytes.clone());
        let header = decode_header(&bytes).unwrap();
        for_each_record(&bytes, &header, |record| {
            let content = record.content.clone();
            let kept = record.clone().detached_from(2 * content.len());
            assert_eq!(kept.content.as_ptr(), content.as_ptr(), "nothing is copied");
            let copied = record.detached_from(2 * content.len() + 1);
            assert_ne!(copied.content.as_ptr(), content.as_ptr());
            assert_eq!(copied.content, content);
        })
        .unwrap();
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let group = sample();
        let (header, entry) = decode(&entry_bytes(&group, 0)).unwrap();
        assert_eq!((header.partition.get(), header.epoch, entry.lsn.get()), (3, 1, 10));
        assert_eq!((header.durable.get(), entry.batch, header.previous_hash), (9, 77, 0));
        assert_eq!(entry.records.len(), 2);
        assert_eq!(entry.records[0].epk(), [1; 16]);
        assert_eq!(entry.records[0].meta(), b"meta");
        assert_eq!(entry.records[0].body(), b"body");
        assert_eq!(entry.records[1].supersedes, Some(entry.records[0].position));
        let (next, second) = decode(&entry_bytes(&group, 1)).unwrap();
        assert_eq!(next.previous_hash, entry.hash);
        assert_eq!(second.timestamp.as_millis(), 5000, "time does not go back");
        assert_eq!(
            group.tail(),
            Tail { lsn: second.lsn, hash: second.hash, timestamp: second.timestamp }
        );
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = entry_bytes(&sample(), 0);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&Bytes::from(flipped)).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_forged_entry_that_cannot_be_is_refused() {
        type Change = fn(&mut Vec<u8>);
        let forged: [(&str, Change); 5] = [
            ("LSN zero", |entry| entry[24..32].fill(0)),
            ("nothing can follow", |entry| entry[24..32].fill(0xFF)),
            ("no records", |entry| {
                entry.truncate(HEADER_BYTES);
                seal(entry, 0, 0);
            }),
            ("one record too many", |entry| entry[6] = 3),
            ("an ordinal twice", |entry| {
                let second = HEADER_BYTES + RECORD_HEADER_BYTES + 24;
                entry[second + 4] = 0;
            }),
        ];
        let whole = entry_bytes(&sample(), 0).to_vec();
        for (what, change) in forged {
            let mut entry = whole.clone();
            change(&mut entry);
            seal_again(&mut entry);
            let refused = decode(&Bytes::from(entry));
            let expected = [BadEntry::Inconsistent, BadEntry::Short];
            assert!(refused.is_err_and(|bad| expected.contains(&bad)), "{what}");
        }
    }

    #[test]
    fn every_cut_is_noticed() {
        let bytes = entry_bytes(&sample(), 0);
        for length in 0..bytes.len() {
            assert!(decode(&bytes.slice(..length)).is_err(), "length {length}");
        }
    }

    #[test]
    fn an_abandoned_entry_leaves_nothing() {
        let tail = Tail::start(Lsn::ZERO);
        let mut group = GroupBuilder::new(PartitionId::new(0), 0, tail);
        group.begin(Timestamp::from_millis(1), 1);
        group.abandon();
        assert!(group.is_empty());
        assert_eq!(group.tail, tail, "not even its time");
        assert_eq!(group.next_lsn(), Lsn::FIRST);
        assert_eq!(group.build().bytes().len(), 0);
    }

    #[test]
    fn the_rest_of_a_group_is_the_same_bytes() {
        let group = sample();
        let rest = group.without_first(1).unwrap();
        assert_eq!(rest.bytes(), &entry_bytes(&group, 1));
        assert_eq!(rest.after().lsn, Lsn::new(10));
        assert_eq!(rest.tail(), group.tail());
        assert!(group.without_first(2).is_none());
        assert_eq!(group.without_first(0).unwrap().bytes(), group.bytes());
    }

    #[test]
    fn a_rewritten_entry_keeps_its_slot_and_what_it_kept() {
        let bytes = entry_bytes(&sample(), 0);
        let (header, entry) = decode(&bytes).unwrap();
        let mut out = Vec::new();
        rewrite(&header, &bytes, &entry.records[1..], &mut out);
        let (header, entry) = decode(&Bytes::from(out)).unwrap();
        assert!(header.compacted);
        assert_eq!((entry.lsn.get(), entry.records.len()), (10, 1));
        assert_eq!(entry.records[0].position.ordinal, 1);
    }
}
