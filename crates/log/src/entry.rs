//! The envelope every state change of a partition travels in, and its records.
//!
//! An entry is one transaction: it has one LSN, and its records are numbered by ordinals inside it.
//! The envelope describes itself (magic, format, partition, epoch, LSN) and chains to the entry before
//! it by hash, so that bytes can be judged without anything else at hand. Decoding trusts nothing.

use crate::checksum::{self, CRC_AT};
use bytes::Bytes;
use headwater_model::{Lsn, PartitionId, Timestamp};
use std::ops::Range;

/// `HWE1`, the first bytes of every entry.
pub const MAGIC: u32 = u32::from_le_bytes(*b"HWE1");
/// The version of the entry format this code writes.
pub const VERSION: u8 = 1;
/// Bytes of an entry in front of its records.
pub const HEADER_BYTES: usize = 80;
/// Bytes of a record in front of its key, meta and body.
pub const RECORD_HEADER_BYTES: usize = 28;
/// No entry is longer: a batch of 100 operations and 2 MiB, or 65 535 tombstones, fits easily.
pub const ENTRY_BYTES_MAX: usize = 48 << 20;

/// The entry was rewritten by compaction: records may be missing and its chain is not checked.
const FLAG_COMPACTED: u8 = 1;

/// Where a record is: the log it was first written to, its entry there, and its place in the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The partition whose log gave out the LSN.
    pub origin: PartitionId,
    /// The entry.
    pub lsn: Lsn,
    /// The record inside the entry.
    pub ordinal: u16,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A new version of something.
    Put,
    /// Something is gone.
    Tombstone,
    /// A fact about the partition itself, never shown to readers of the feed.
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
    /// What it says.
    pub kind: RecordKind,
    /// The record it replaces, which is dead from now on.
    pub supersedes: Option<Position>,
    /// Hashed key, by which partitions are split and readers filter.
    pub epk: &'a [u8],
    /// Whatever the owner of the log needs to apply the record.
    pub meta: &'a [u8],
    /// The version itself.
    pub body: &'a [u8],
}

/// A record as it was read. Its bytes are shared with everything read together with it.
#[derive(Clone, Debug)]
pub struct Record {
    /// Where it is.
    pub position: Position,
    /// When its entry was written.
    pub timestamp: Timestamp,
    /// What it says.
    pub kind: RecordKind,
    /// The record it replaced.
    pub supersedes: Option<Position>,
    /// Key, meta and body, one behind the other.
    content: Bytes,
    epk_bytes: u16,
    meta_bytes: u32,
}

impl Record {
    /// The same record in memory of its own if its entry is more than twice as large. Otherwise an item that
    /// is kept in memory would keep all of its transaction there.
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

    /// What the owner of the log needs to apply the record.
    #[must_use]
    pub fn meta(&self) -> &[u8] {
        &self.content[usize::from(self.epk_bytes)..self.body_at()]
    }

    /// The version itself.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.content[self.body_at()..]
    }

    /// The version itself, sharing the memory it was read into.
    #[must_use]
    pub fn body_bytes(&self) -> Bytes {
        self.content.slice(self.body_at()..)
    }

    /// Size of key, meta and body.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        self.content.len()
    }

    /// The same with memory of its own, for whoever keeps it longer than what was read with it.
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

/// An entry as it was read.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its slot.
    pub lsn: Lsn,
    /// Who sent it: the same for every attempt to append it.
    pub batch: u128,
    /// When it was written.
    pub timestamp: Timestamp,
    /// Hash of all its bytes.
    pub hash: u64,
    /// Its records.
    pub records: Vec<Record>,
}

/// The end of a log: what the next entry follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The last slot.
    pub lsn: Lsn,
    /// Hash of the entry in it, zero at the beginning.
    pub hash: u64,
    /// When it was written; the next one is not older.
    pub timestamp: Timestamp,
}

impl Tail {
    /// The end of a log that has no entries yet and starts behind `lsn`.
    #[must_use]
    pub fn start(lsn: Lsn) -> Tail {
        Tail { lsn, hash: 0, timestamp: Timestamp::from_millis(0) }
    }
}

/// The fixed part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Total bytes, this part included.
    pub length: u32,
    /// Whether compaction rewrote it.
    pub compacted: bool,
    /// The partition that wrote it.
    pub partition: PartitionId,
    /// How often the partition had changed hands.
    pub epoch: u32,
    /// Its slot.
    pub lsn: Lsn,
    /// The newest slot that was certainly durable when this entry was written. If an entry behind a
    /// hole names the hole as durable, the hole is damage; otherwise it is a write that tore.
    pub durable: Lsn,
    /// When it was written.
    pub timestamp: Timestamp,
    /// Who sent it.
    pub batch: u128,
    /// Hash of the entry in front of it.
    pub previous_hash: u64,
    /// How many records follow.
    pub records: u16,
}

impl Header {
    /// The share of some of its records in the bytes of the entry, were they all of one size.
    pub(crate) fn share(&self, records: usize) -> u32 {
        let bytes = u64::from(self.length) * records as u64 / u64::from(self.records.max(1));
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// Why bytes are not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEntry {
    /// Fewer bytes than the entry says it has.
    #[error("the entry is cut off")]
    Short,
    /// The first four bytes are something else.
    #[error("no entry starts here")]
    Magic,
    /// A format this code does not know.
    #[error("unknown entry format")]
    Version,
    /// The checksum does not fit the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// The checksum fits, but the content contradicts itself.
    #[error("the entry contradicts itself")]
    Inconsistent,
}

/// Reads the fixed part without checking the checksum.
///
/// # Errors
/// When the bytes cannot be the beginning of an entry.
#[inline]
pub fn decode_header(bytes: &[u8]) -> Result<Header, BadEntry> {
    // What is too short to be judged may still be known not to be an entry.
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
    // An entry without records would take a slot that no table row names, nothing comes before the
    // first number and nothing can follow the last.
    let impossible = header.records == 0 || matches!(header.lsn.get(), 0 | u64::MAX);
    if impossible || !(HEADER_BYTES..=ENTRY_BYTES_MAX).contains(&length) {
        return Err(BadEntry::Inconsistent);
    }
    Ok(header)
}

/// Numbers at places that are known when this is compiled, so that nothing is checked when it runs.
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

/// Reads the fixed part and checks the checksum of the whole entry; `bytes` may go on behind it.
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

/// Whether all three are as long as they say and have the right checksums, which is known in the time
/// that one of them takes. If not, [`check`] says what is wrong with which.
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

/// Hash of a whole entry, by which the next one chains to it.
#[must_use]
pub fn chain_hash(entry: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(entry)
}

/// Walks over the records of a checked entry. `bytes` holds exactly the entry.
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

/// The same for an entry that lies somewhere in what was read with it.
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

/// Decodes one whole entry, checking everything that can be checked without its neighbours.
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

/// One entry of a [`Group`]: where it lies in the group's bytes.
#[derive(Clone, Debug)]
pub struct GroupEntry {
    /// Its slot.
    pub lsn: Lsn,
    /// Its bytes.
    pub bytes: Range<usize>,
    /// Who sent it.
    pub batch: u128,
}

/// Entries that are appended together. Cheap to clone; sending it again sends the same bytes.
#[derive(Clone, Debug)]
pub struct Group {
    after: Tail,
    tail: Tail,
    bytes: Bytes,
    entries: std::sync::Arc<[GroupEntry]>,
}

impl Group {
    /// What the group follows.
    #[must_use]
    pub fn after(&self) -> Tail {
        self.after
    }

    /// The end of the log once the group is appended.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// All entries, one behind the other.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Where each entry lies.
    #[must_use]
    pub fn entries(&self) -> &[GroupEntry] {
        &self.entries
    }

    /// The part of the group behind its first `count` entries, or nothing if that is all of it.
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

/// Encodes entries one behind the other, giving each the next LSN.
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
    /// Time of the entry before it, to go back to when it is abandoned.
    time_before: Timestamp,
}

impl GroupBuilder {
    /// A group that follows `after`.
    #[must_use]
    pub fn new(partition: PartitionId, epoch: u32, after: Tail) -> GroupBuilder {
        GroupBuilder::with_capacity(partition, epoch, after, 0)
    }

    /// The same, for about so many bytes.
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

    /// Starts an entry. Its time is `now`, or that of the entry before it if the clock went back.
    /// Returns the time it got.
    pub fn begin(&mut self, now: Timestamp, batch: u128) -> Timestamp {
        assert!(self.open.is_none(), "one entry is finished before the next begins");
        let timestamp = now.max(self.tail.timestamp);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&MAGIC.to_le_bytes());
        self.bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        self.bytes.extend_from_slice(&[0; 8]); // length and checksum come when it is finished
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

    /// Adds a record to the open entry and returns where it will be.
    pub fn record(&mut self, record: &NewRecord<'_>) -> Position {
        let open = self.open.as_mut().expect("a record belongs to an entry that was begun");
        let ordinal = open.records;
        open.records = ordinal.checked_add(1).expect("the writer limits the records of an entry");
        encode_record(&mut self.bytes, ordinal, record);
        Position { origin: self.partition, lsn: self.tail.lsn.next(), ordinal }
    }

    /// Drops the open entry and everything in it, as if it had never begun.
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

/// Writes an entry again with only the records in `keep`, as compaction does.
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

/// Fills in flags, count, length and checksum of an encoded entry.
fn seal(entry: &mut [u8], records: u16, flags: u8) {
    entry[5] = flags;
    entry[6..8].copy_from_slice(&records.to_le_bytes());
    let length = size_u32(entry.len());
    entry[8..12].copy_from_slice(&length.to_le_bytes());
    seal_again(entry);
}

/// Makes the checksum of changed bytes right again; for tests of what stands behind it.
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
