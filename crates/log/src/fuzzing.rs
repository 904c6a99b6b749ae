//! Entry points for fuzzers and property tests to the decoders of bytes on disk. Not part of the API.
//!
//! Each function accepts any bytes and must never panic or use memory out of proportion to them. `fuzz/` runs
//! them in a coverage-guided fuzzer, `tests/decoders_survive_anything.rs` with random mutations.

use crate::codec::seal_with_crc;
use crate::disk::{Disk, MemoryDisk, read_file};
use crate::liveness;
use crate::manifest::{self, Manifest};
use crate::read::{ReadRequest, Which};
use crate::segment;
use crate::table::Table;
use crate::{
    CompactionPolicy, GroupBuilder, LocalLog, LogOptions, NewRecord, PartitionLog, RecordKind,
    entry,
};
use bytes::Bytes;
use headwater_model::{Lsn, PartitionId, Timestamp};
use headwater_runtime::Simulation;
use std::path::Path;
use std::sync::Arc;

/// Decodes one entry and its records.
pub fn entry(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    let checked = entry::check(&bytes);
    if let Ok((header, entry)) = entry::decode(&bytes) {
        assert_eq!(checked.map(|header| header.lsn), Ok(entry.lsn));
        assert_eq!(entry.records.len(), usize::from(header.records));
        for record in &entry.records {
            let parts = record.epk().len() + record.meta().len() + record.body().len();
            assert_eq!(parts, record.content_bytes());
        }
    }
}

/// Decodes one entry after its checksum is corrected, which random bytes never match.
pub fn sealed_entry(bytes: &[u8]) {
    let mut sealed = bytes.to_vec();
    if sealed.len() >= entry::HEADER_BYTES {
        entry::seal_again(&mut sealed);
    }
    entry(&sealed);
}

/// Decodes an offset table, unchanged and with a correct checksum appended.
pub fn table(bytes: &[u8]) {
    for_both(bytes, |bytes| {
        if let Some(table) = Table::decode(bytes) {
            assert_eq!(table.encode(), bytes, "a table is written in one way only");
            let last = table.len().saturating_sub(1);
            for number in [0, last / 2, last] {
                if let Some(row) = table.row(number) {
                    assert!(row.offset < table.entry_end(number));
                    assert_eq!(table.find(table.lsn(row), row.ordinal), Some(number));
                }
            }
            for lsn in [0, 1, u64::MAX] {
                assert!(table.first_after(Lsn::new(lsn)) <= table.len());
            }
        }
    });
}

/// Decodes a manifest, unchanged and with a correct checksum appended.
pub fn manifest(bytes: &[u8]) {
    for_both(bytes, |bytes| {
        if let Ok(manifest) = Manifest::decode(bytes, Path::new("MANIFEST")) {
            let again = Manifest::decode(&manifest.encode(), Path::new("MANIFEST"));
            assert_eq!(again.ok(), Some(manifest));
        }
    });
}

/// Decodes a checkpoint of dead bits, unchanged and with a correct checksum appended.
pub fn checkpoint(bytes: &[u8]) {
    for_both(bytes, |bytes| {
        if let Some(checkpoint) = liveness::decode_checkpoint(bytes) {
            let bits = checkpoint.segments.iter();
            let encoded = liveness::encode_checkpoint(
                checkpoint.partition,
                checkpoint.lsn,
                bits.map(|(number, bits)| (*number, bits)),
            );
            assert!(liveness::decode_checkpoint(&encoded).is_some());
        }
    });
}

fn for_both(bytes: &[u8], decode: impl Fn(&[u8])) {
    decode(bytes);
    let mut sealed = bytes.to_vec();
    seal_with_crc(&mut sealed);
    decode(&sealed);
}

/// Opens a log directory with any bytes as its manifest and its one segment, then reads and compacts it.
///
/// Errors are fine. The first two bytes are the length of the manifest. Its checksum and those of the segment's
/// header and entries are corrected where they can be found, so that the code behind them is reached.
pub fn directory(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (manifest, segment) = rest.split_at(length);
    let mut manifest = manifest.to_vec();
    seal_with_crc(&mut manifest);
    let mut segment = segment.to_vec();
    make_right(&mut segment);

    let disk = MemoryDisk::new();
    let dir = Path::new("log");
    let write = |path: &Path, bytes: &[u8]| {
        let file = disk.open(path, true);
        let written = file.and_then(|file| file.write_at(bytes, 0));
        written.expect("a disk in memory takes what it is given");
    };
    write(&manifest::path(dir), &manifest);
    write(&segment::segment_path(dir, 1), &segment);
    let partition =
        Manifest::decode(&manifest, dir).map_or(PartitionId::new(1), |manifest| manifest.partition);
    use_log(&disk, dir, partition);
}

fn use_log(disk: &MemoryDisk, dir: &Path, partition: PartitionId) {
    let runtime = Simulation::new(0).node().runtime();
    let options = LogOptions::default();
    let disk = Arc::new(disk.clone());
    let Ok(opened) = LocalLog::open(disk, dir, partition, options, runtime) else {
        return;
    };
    let log = opened.log;
    for which in [Which::Live, Which::AllVersions, Which::Everything] {
        let page = log.read(&ReadRequest {
            after: Lsn::ZERO,
            upto: Lsn::new(u64::MAX),
            which,
            range: None,
            records_max: 1000,
            bytes_max: 1 << 20,
        });
        for record in page.map(|page| page.records).unwrap_or_default() {
            let _ = log.record(record.position, record.epk());
            if let Some(prior) = record.supersedes {
                let _ = log.record(prior, record.epk());
            }
        }
    }
    let _ = log.position_before(Timestamp::from_seconds(1));
    let _ = log.compact(&CompactionPolicy {
        retain_from: Timestamp::from_millis(u64::MAX),
        history_bytes_max: u64::MAX,
        dead_percent: 0,
    });
    let _ = log.checkpoint();
}

/// Corrects the checksums of a segment's header and of every entry that can be found.
fn make_right(segment: &mut [u8]) {
    let header_bytes = segment::HEADER_BYTES as usize;
    if segment.len() >= header_bytes {
        let mut header = segment[..header_bytes - 4].to_vec();
        seal_with_crc(&mut header);
        segment[..header_bytes].copy_from_slice(&header);
    }
    let mut at = header_bytes;
    while let Some(rest) = segment.get_mut(at..) {
        let Ok(header) = entry::decode_header(rest) else {
            break;
        };
        let Some(entry) = rest.get_mut(..header.length as usize) else {
            break;
        };
        entry::seal_again(entry);
        at += header.length as usize;
    }
}

/// Valid inputs of the functions above, as seeds for mutation.
pub struct Examples {
    /// For [`entry`].
    pub entry: Vec<u8>,
    /// For [`table`].
    pub table: Vec<u8>,
    /// For `manifest`.
    pub manifest: Vec<u8>,
    /// For [`checkpoint`].
    pub checkpoint: Vec<u8>,
    /// For [`directory`].
    pub directory: Vec<u8>,
}

/// The files of a small log.
#[must_use]
pub fn examples() -> Examples {
    let disk = MemoryDisk::new();
    let dir = Path::new("log");
    write_small_log(&disk, dir);
    let read = |path: &Path| read_file(&disk, path, 1 << 20).expect("a log has its files");
    let manifest = read(&manifest::path(dir));
    let segment = read(&segment::segment_path(dir, 1));
    let first = segment::HEADER_BYTES as usize;
    let header = entry::decode_header(&segment[first..]).expect("a log has entries");
    // Without its checksum, which `directory` appends.
    let content = &manifest[..manifest.len() - 4];
    let length = u16::try_from(content.len()).expect("one segment is described in a few bytes");
    let mut directory = length.to_le_bytes().to_vec();
    directory.extend_from_slice(content);
    directory.extend_from_slice(&segment);
    Examples {
        entry: segment[first..first + header.length as usize].to_vec(),
        table: read(&segment::table_path(dir, 1)),
        checkpoint: read(&dir.join("LIVENESS")),
        manifest,
        directory,
    }
}

/// Three entries, one of them superseded in part, in one sealed segment.
fn write_small_log(disk: &MemoryDisk, dir: &Path) {
    let simulation = Simulation::new(0);
    let runtime = simulation.node().runtime();
    let partition = PartitionId::new(1);
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let log = LocalLog::create(disk, dir, partition, LogOptions::default(), runtime)
        .expect("a disk in memory takes what it is given")
        .log;
    let mut group = GroupBuilder::new(partition, 0, log.local_tail());
    let mut prior = None;
    for number in 0..3_u8 {
        group.begin(Timestamp::from_seconds(1000 + u64::from(number)), 7);
        let first = group.record(&NewRecord {
            kind: RecordKind::Put,
            supersedes: prior,
            epk: &[number; 16],
            meta: b"meta",
            body: b"a body",
        });
        group.record(&NewRecord {
            kind: RecordKind::Tombstone,
            supersedes: None,
            epk: &[9; 16],
            meta: b"m",
            body: b"",
        });
        group.finish();
        prior = Some(first);
    }
    let append = log.append(group.build());
    let written = simulation.run(append);
    written.expect("a disk in memory takes what it is given");
    log.seal().expect("a disk in memory takes what it is given");
}
