//! The manifest: the list of a log's segments, with the state of each and of the whole log.
//!
//! It is never changed in place. It is replaced atomically whenever the set of segments changes: when the active
//! segment is sealed, when compaction swaps files, when the partition is sealed for a split.

use crate::codec::{Reader, Short, checked_content, seal_with_crc};
use crate::disk::{Disk, read_file, replace_file};
use crate::error::{Damage, OpenError};
use crate::floors::Floors;
use crate::segment::HEADER_BYTES;
use headwater_model::{Epk, KeyRange, Lsn, PartitionId, Timestamp};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"HWMAN\0\0\x01";
/// The newest version of the directory format.
///
/// A manifest is written in the oldest version that can express it: version 2 only appends the list of floors.
pub(crate) const FORMAT: u32 = 2;
const WITHOUT_FLOORS: u32 = 1;
/// The largest manifest. With 100 bytes per segment of 64 MiB this is enough for tens of terabytes.
const BYTES_MAX: u64 = 64 << 20;

/// The final state of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) last_lsn: Lsn,
    pub(crate) bytes: u32,
    pub(crate) records: u32,
    /// Bytes of its tombstones, superseded or not, which compaction can free when no record needs them.
    pub(crate) tombstone_bytes: u32,
    pub(crate) last_hash: u64,
    /// Time of its newest entry, in milliseconds since 1970.
    pub(crate) newest_millis: u64,
}

/// One segment as the manifest lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentInfo {
    /// The number in the file name.
    pub(crate) number: u64,
    /// The partition whose log gave out its LSNs.
    pub(crate) origin: PartitionId,
    pub(crate) first_lsn: Lsn,
    /// Hash of the entry before its first one.
    pub(crate) previous_hash: u64,
    /// Rewritten by compaction: LSNs have gaps and the chain is not checked.
    pub(crate) compacted: bool,
    /// If the checkpoint lacks its dead bits, all of its records were alive at this LSN of the partition.
    pub(crate) alive_at: Lsn,
    /// Inherited and not yet rewritten: a hard link that also holds records of siblings.
    pub(crate) shared: bool,
    /// Appended without a sync per group: after a power cut a hole in it is not damage, unless the log is known
    /// to have reached further.
    pub(crate) relaxed: bool,
    /// Only records in this range belong to the partition. Set for everything inherited.
    pub(crate) filter: Option<KeyRange>,
    /// `None` for the active segment.
    pub(crate) sealed: Option<Sealed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: u32,
    /// The log starts after this LSN; everything up to it was inherited.
    pub(crate) start: Lsn,
    /// The log reached at least this LSN. If it ends before, entries are missing.
    pub(crate) reached: Lsn,
    /// Set when the partition was split or merged.
    pub(crate) sealed: bool,
    /// The LSNs after which all versions are complete.
    pub(crate) floors: Floors,
    /// A lower bound of the time of later entries, kept even when the entries that had it are compacted away.
    pub(crate) clock: Timestamp,
    pub(crate) next_segment: u64,
    /// Lane by lane (same origin and filter), each in LSN order.
    pub(crate) segments: Vec<SegmentInfo>,
}

pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join("MANIFEST")
}

impl Manifest {
    /// Allocates a number for a new file. Numbers are never reused, even if the file is not kept.
    pub(crate) fn take_number(&mut self) -> u64 {
        let number = self.next_segment;
        self.next_segment += 1;
        number
    }

    pub(crate) fn save(&self, disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
        replace_file(disk, &path(dir), &self.encode())
    }

    pub(crate) fn load(disk: &dyn Disk, dir: &Path) -> Result<Manifest, OpenError> {
        let path = path(dir);
        let bytes = read_file(disk, &path, BYTES_MAX)
            .map_err(|source| OpenError::Io { dir: path.clone(), source })?;
        Manifest::decode(&bytes, &path)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let format = if self.floors.is_uniform() { WITHOUT_FLOORS } else { FORMAT };
        out.extend_from_slice(&format.to_le_bytes());
        out.extend_from_slice(&self.partition.get().to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&u32::from(self.sealed).to_le_bytes());
        for number in [self.start, self.reached, self.floors.highest()] {
            out.extend_from_slice(&number.get().to_le_bytes());
        }
        out.extend_from_slice(&self.clock.as_millis().to_le_bytes());
        out.extend_from_slice(&self.next_segment.to_le_bytes());
        out.extend_from_slice(&(self.segments.len() as u64).to_le_bytes());
        for segment in &self.segments {
            encode_segment(&mut out, segment);
        }
        if format > WITHOUT_FLOORS {
            encode_floors(&mut out, &self.floors);
        }
        seal_with_crc(&mut out);
        out
    }

    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Manifest, OpenError> {
        let damaged = |offset: usize, what: &str| Damage::new(path, offset as u64, None, what);
        let content = checked_content(bytes)
            .ok_or_else(|| damaged(bytes.len().saturating_sub(4), "checksum mismatch"))?;
        let mut reader = Reader::new(content);
        if reader.take(MAGIC.len()) != Ok(MAGIC.as_slice()) {
            return Err(damaged(0, "not a manifest").into());
        }
        let format = reader.u32().map_err(|_| damaged(8, "cut off"))?;
        if format > FORMAT {
            return Err(OpenError::NewerFormat {
                file: path.display().to_string(),
                found: format,
                supported: FORMAT,
            });
        }
        let manifest = decode_content(&mut reader, format)
            .map_err(|_| damaged(reader.position(), "cut off or inconsistent"))?;
        Ok(manifest)
    }
}

fn decode_content(reader: &mut Reader<'_>, format: u32) -> Result<Manifest, Short> {
    let mut manifest = Manifest {
        partition: PartitionId::new(reader.u32()?),
        epoch: reader.u32()?,
        sealed: reader.u32()? != 0,
        start: Lsn::new(reader.u64()?),
        reached: Lsn::new(reader.u64()?),
        floors: Floors::uniform(Lsn::new(reader.u64()?)),
        clock: Timestamp::from_millis(reader.u64()?),
        next_segment: reader.u64()?,
        segments: Vec::new(),
    };
    let count = reader.u64()?;
    for _ in 0..count {
        manifest.segments.push(decode_segment(reader)?);
    }
    if format > WITHOUT_FLOORS {
        manifest.floors = decode_floors(reader, manifest.floors.highest())?;
    }
    if reader.is_empty() && is_consistent(&manifest) { Ok(manifest) } else { Err(Short) }
}

/// Whether the numbers are consistent. Only a manifest with a forged checksum can fail here.
fn is_consistent(manifest: &Manifest) -> bool {
    let can_go_on = |lsn: Lsn| lsn.get() < u64::MAX;
    let mut numbers = std::collections::BTreeSet::new();
    let segments = manifest.segments.iter().all(|segment| {
        let sealed = segment.sealed.is_none_or(|sealed| {
            can_go_on(sealed.last_lsn)
                && sealed.last_lsn >= segment.first_lsn.previous()
                && sealed.bytes >= HEADER_BYTES
        });
        // Only a segment of the log's own origin may be active.
        let active = segment.sealed.is_some() || segment.origin == manifest.partition;
        let numbered = segment.number < manifest.next_segment && numbers.insert(segment.number);
        sealed
            && active
            && numbered
            && can_go_on(segment.first_lsn)
            && segment.first_lsn > Lsn::ZERO
    });
    let own_lsns = [manifest.start, manifest.reached, manifest.floors.highest()];
    segments && own_lsns.into_iter().all(can_go_on) && manifest.next_segment < u64::MAX
}

fn encode_range(out: &mut Vec<u8>, range: &KeyRange) {
    for bound in [range.min().as_bytes(), range.max().as_bytes()] {
        let length = u16::try_from(bound.len()).expect("a hashed key is far shorter");
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(bound);
    }
}

fn decode_range(reader: &mut Reader<'_>) -> Result<KeyRange, Short> {
    let length = reader.u16()?;
    let min = Epk::from_bytes(reader.take(usize::from(length))?);
    let length = reader.u16()?;
    let max = Epk::from_bytes(reader.take(usize::from(length))?);
    KeyRange::new(min, max).map_err(|_| Short)
}

fn encode_floors(out: &mut Vec<u8>, floors: &Floors) {
    out.extend_from_slice(&(floors.entries().len() as u64).to_le_bytes());
    for (keys, lsn) in floors.entries() {
        encode_range(out, keys);
        out.extend_from_slice(&lsn.get().to_le_bytes());
    }
}

/// Decodes the floors by key range. `highest` is the single floor that format 1 has.
fn decode_floors(reader: &mut Reader<'_>, highest: Lsn) -> Result<Floors, Short> {
    let mut floors = Floors::default();
    for _ in 0..reader.u64()? {
        let keys = decode_range(reader)?;
        floors.raise(keys, Lsn::new(reader.u64()?));
    }
    if floors.highest() == highest { Ok(floors) } else { Err(Short) }
}

fn encode_segment(out: &mut Vec<u8>, segment: &SegmentInfo) {
    out.extend_from_slice(&segment.number.to_le_bytes());
    out.extend_from_slice(&segment.origin.get().to_le_bytes());
    out.extend_from_slice(&segment.first_lsn.get().to_le_bytes());
    out.extend_from_slice(&segment.previous_hash.to_le_bytes());
    out.extend_from_slice(&segment.alive_at.get().to_le_bytes());
    let flags = u8::from(segment.compacted)
        | (u8::from(segment.filter.is_some()) << 1)
        | (u8::from(segment.sealed.is_some()) << 2)
        | (u8::from(segment.shared) << 3)
        | (u8::from(segment.relaxed) << 4);
    out.push(flags);
    if let Some(filter) = &segment.filter {
        encode_range(out, filter);
    }
    if let Some(sealed) = &segment.sealed {
        out.extend_from_slice(&sealed.last_lsn.get().to_le_bytes());
        out.extend_from_slice(&sealed.bytes.to_le_bytes());
        out.extend_from_slice(&sealed.records.to_le_bytes());
        out.extend_from_slice(&sealed.tombstone_bytes.to_le_bytes());
        out.extend_from_slice(&sealed.last_hash.to_le_bytes());
        out.extend_from_slice(&sealed.newest_millis.to_le_bytes());
    }
}

fn decode_segment(reader: &mut Reader<'_>) -> Result<SegmentInfo, Short> {
    let mut segment = SegmentInfo {
        number: reader.u64()?,
        origin: PartitionId::new(reader.u32()?),
        first_lsn: Lsn::new(reader.u64()?),
        previous_hash: reader.u64()?,
        alive_at: Lsn::new(reader.u64()?),
        compacted: false,
        shared: false,
        relaxed: false,
        filter: None,
        sealed: None,
    };
    let flags = reader.u8()?;
    if flags >> 5 != 0 {
        return Err(Short);
    }
    segment.compacted = flags & 1 != 0;
    segment.shared = flags & 8 != 0;
    segment.relaxed = flags & 16 != 0;
    if flags & 2 != 0 {
        segment.filter = Some(decode_range(reader)?);
    }
    if flags & 4 != 0 {
        segment.sealed = Some(Sealed {
            last_lsn: Lsn::new(reader.u64()?),
            bytes: reader.u32()?,
            records: reader.u32()?,
            tombstone_bytes: reader.u32()?,
            last_hash: reader.u64()?,
            newest_millis: reader.u64()?,
        });
    }
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Manifest {
        let sealed = Sealed {
            last_lsn: Lsn::new(20),
            bytes: 1000,
            records: 19,
            tombstone_bytes: 100,
            last_hash: 7,
            newest_millis: 12_345,
        };
        let segment = SegmentInfo {
            number: 1,
            origin: PartitionId::new(2),
            first_lsn: Lsn::new(2),
            previous_hash: 3,
            compacted: true,
            alive_at: Lsn::new(4),
            shared: true,
            relaxed: true,
            filter: Some(KeyRange::full()),
            sealed: Some(sealed),
        };
        let active = SegmentInfo { number: 2, filter: None, sealed: None, ..segment.clone() };
        Manifest {
            partition: PartitionId::new(2),
            epoch: 1,
            start: Lsn::new(1),
            reached: Lsn::new(20),
            sealed: false,
            floors: Floors::uniform(Lsn::new(5)),
            clock: Timestamp::from_millis(12_345),
            next_segment: 3,
            segments: vec![segment, active],
        }
    }

    #[test]
    fn a_manifest_survives_its_file_and_damage_does_not() {
        check_survives(&sample());
        let mut merged = sample();
        let (low, high) = KeyRange::full().split_at(&Epk::from_hex("80").unwrap()).unwrap();
        merged.floors = Floors::default();
        merged.floors.raise(low, Lsn::new(9));
        merged.floors.raise(high, Lsn::new(2));
        check_survives(&merged);
    }

    fn check_survives(manifest: &Manifest) {
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes, Path::new("m")).unwrap(), *manifest);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Manifest::decode(&flipped, Path::new("m")).unwrap_err();
            assert!(matches!(error, OpenError::Damaged(_)), "bit {bit}: {error}");
        }
        for length in 0..bytes.len() {
            assert!(Manifest::decode(&bytes[..length], Path::new("m")).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_newer_format_is_named() {
        let mut bytes = sample().encode();
        bytes.truncate(bytes.len() - 4);
        bytes[8..12].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        seal_with_crc(&mut bytes);
        let error = Manifest::decode(&bytes, Path::new("m")).unwrap_err();
        assert!(matches!(error, OpenError::NewerFormat { found: 3, supported: 2, .. }), "{error}");
    }

    #[test]
    fn a_forged_manifest_that_contradicts_itself_is_refused() {
        let sealed = |change: fn(&mut Sealed)| {
            let mut manifest = sample();
            change(manifest.segments[0].sealed.as_mut().unwrap());
            manifest
        };
        let segment = |change: fn(&mut SegmentInfo)| {
            let mut manifest = sample();
            change(&mut manifest.segments[1]);
            manifest
        };
        let forged = [
            ("no last LSN", sealed(|sealed| sealed.last_lsn = Lsn::new(u64::MAX))),
            ("ends before it starts", sealed(|sealed| sealed.last_lsn = Lsn::ZERO)),
            ("no room for its header", sealed(|sealed| sealed.bytes = 63)),
            ("a foreign active segment", segment(|info| info.origin = PartitionId::new(9))),
            ("one number twice", segment(|info| info.number = 1)),
            ("a number from the future", segment(|info| info.number = 3)),
            ("LSN zero", segment(|info| info.first_lsn = Lsn::ZERO)),
            ("beyond all numbers", segment(|info| info.first_lsn = Lsn::new(u64::MAX))),
        ];
        for (what, manifest) in forged {
            let decoded = Manifest::decode(&manifest.encode(), Path::new("m"));
            assert!(matches!(decoded, Err(OpenError::Damaged(_))), "{what}");
        }
    }
}
