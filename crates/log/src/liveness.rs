//! Dead bits: one bit per record of a segment, set when the record is superseded.
//!
//! Bits are never cleared. They are kept in memory and derived from the log: the checkpoint file holds them as
//! of some LSN, and a replay of the log after that LSN sets the rest.

use crate::codec::{Reader, checked_content, seal_with_crc};
use headwater_model::{Lsn, PartitionId};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: &[u8; 8] = b"HWLIV\0\0\x01";
/// Bits per chunk. A chunk is allocated when its first bit is set.
const CHUNK_BITS: usize = 1 << 16;
const CHUNK_WORDS: usize = CHUNK_BITS / 64;
/// The most records of a segment.
pub(crate) const RECORDS_MAX: usize = 1 << 20;

/// The dead bits of one segment. Set by one thread at a time, read by any.
#[derive(Debug)]
pub(crate) struct DeadBits {
    chunks: [OnceLock<Box<[AtomicU64]>>; RECORDS_MAX / CHUNK_BITS],
    dead_records: AtomicU64,
    dead_bytes: AtomicU64,
}

impl Default for DeadBits {
    fn default() -> DeadBits {
        DeadBits {
            chunks: [const { OnceLock::new() }; RECORDS_MAX / CHUNK_BITS],
            dead_records: AtomicU64::new(0),
            dead_bytes: AtomicU64::new(0),
        }
    }
}

impl DeadBits {
    /// Marks a record as dead and adds its `bytes` to the sum. False when it was already dead.
    pub(crate) fn set(&self, record: usize, bytes: u64) -> bool {
        let Some(chunk) = self.chunks.get(record / CHUNK_BITS) else {
            return false;
        };
        let words = chunk.get_or_init(|| (0..CHUNK_WORDS).map(|_| AtomicU64::new(0)).collect());
        let bit = 1 << (record % 64);
        let before = words[record % CHUNK_BITS / 64].fetch_or(bit, Ordering::AcqRel);
        let fresh = before & bit == 0;
        if fresh {
            self.dead_records.fetch_add(1, Ordering::Relaxed);
            self.dead_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        fresh
    }

    #[inline]
    pub(crate) fn is_dead(&self, record: usize) -> bool {
        let Some(words) = self.chunks.get(record / CHUNK_BITS).and_then(OnceLock::get) else {
            return false;
        };
        words[record % CHUNK_BITS / 64].load(Ordering::Acquire) & (1 << (record % 64)) != 0
    }

    /// The first live record in `from..end`; `end` when there is none.
    pub(crate) fn next_live(&self, from: usize, end: usize) -> usize {
        let mut record = from;
        while record < end {
            let Some(words) = self.chunks.get(record / CHUNK_BITS).and_then(OnceLock::get) else {
                return record;
            };
            let word = words[record % CHUNK_BITS / 64].load(Ordering::Acquire);
            let live = !word >> (record % 64);
            if live != 0 {
                return (record + live.trailing_zeros() as usize).min(end);
            }
            record = (record / 64 + 1) * 64;
        }
        end
    }

    pub(crate) fn dead_records(&self) -> u64 {
        self.dead_records.load(Ordering::Relaxed)
    }

    pub(crate) fn dead_bytes(&self) -> u64 {
        self.dead_bytes.load(Ordering::Relaxed)
    }

    /// The bits as words, without trailing zero words.
    fn words(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for (number, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk.get() else { continue };
            words.resize(number * CHUNK_WORDS, 0);
            words.extend(chunk.iter().map(|word| word.load(Ordering::Acquire)));
        }
        while words.last() == Some(&0) {
            words.pop();
        }
        words
    }

    fn load(words: &[u64], dead_bytes: u64) -> Option<DeadBits> {
        let bits = DeadBits::default();
        for (number, words) in words.chunks(CHUNK_WORDS).enumerate() {
            let chunk: Box<[AtomicU64]> = (0..CHUNK_WORDS)
                .map(|index| AtomicU64::new(words.get(index).copied().unwrap_or(0)))
                .collect();
            bits.chunks.get(number)?.set(chunk).ok()?;
        }
        let dead = words.iter().map(|word| u64::from(word.count_ones())).sum();
        bits.dead_records.store(dead, Ordering::Relaxed);
        bits.dead_bytes.store(dead_bytes, Ordering::Relaxed);
        Some(bits)
    }

    pub(crate) fn copy(&self) -> DeadBits {
        DeadBits::load(&self.words(), self.dead_bytes()).unwrap_or_default()
    }
}

/// The checkpoint file: the bits of every segment as they were at one LSN.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The partition it belongs to; every partition has a segment 1.
    pub(crate) partition: PartitionId,
    /// Every record superseded by an entry up to here is marked.
    pub(crate) lsn: Lsn,
    /// By segment number.
    pub(crate) segments: BTreeMap<u64, DeadBits>,
}

pub(crate) fn encode_checkpoint<'a>(
    partition: PartitionId,
    lsn: Lsn,
    segments: impl Iterator<Item = (u64, &'a DeadBits)>,
) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&partition.get().to_le_bytes());
    out.extend_from_slice(&lsn.get().to_le_bytes());
    for (number, bits) in segments {
        let words = bits.words();
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&bits.dead_bytes().to_le_bytes());
        out.extend_from_slice(&(words.len() as u64).to_le_bytes());
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    seal_with_crc(&mut out);
    out
}

/// Decodes a checkpoint; `None` when the bytes are damaged or something else.
pub(crate) fn decode_checkpoint(bytes: &[u8]) -> Option<Checkpoint> {
    let mut reader = Reader::new(checked_content(bytes)?);
    if reader.take(MAGIC.len()).ok()? != MAGIC {
        return None;
    }
    let mut checkpoint = Checkpoint {
        partition: PartitionId::new(reader.u32().ok()?),
        lsn: Lsn::new(reader.u64().ok()?),
        segments: BTreeMap::new(),
    };
    while !reader.is_empty() {
        let (number, dead_bytes) = (reader.u64().ok()?, reader.u64().ok()?);
        let count = usize::try_from(reader.u64().ok()?).ok()?;
        if count > RECORDS_MAX / 64 {
            return None;
        }
        let words: Vec<u64> = reader
            .take(count * 8)
            .ok()?
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
            .collect();
        let bits = DeadBits::load(&words, dead_bytes)?;
        if checkpoint.segments.insert(number, bits).is_some() {
            return None;
        }
    }
    Some(checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_once_and_found() {
        let bits = DeadBits::default();
        assert!(bits.set(3, 10));
        assert!(!bits.set(3, 10));
        assert!(bits.set(CHUNK_BITS + 1, 5));
        assert!(!bits.set(RECORDS_MAX, 5), "outside");
        assert_eq!((bits.dead_records(), bits.dead_bytes()), (2, 15));
        assert!(bits.is_dead(3) && !bits.is_dead(4) && bits.is_dead(CHUNK_BITS + 1));
    }

    #[test]
    fn runs_of_dead_records_are_skipped() {
        let bits = DeadBits::default();
        for record in 10..200 {
            bits.set(record, 1);
        }
        for (from, end, expected) in [
            (0, 300, 0),
            (10, 300, 200),
            (64, 300, 200),
            (10, 150, 150),
            (5, 5, 5),
            (199, 300, 200),
        ] {
            assert_eq!(bits.next_live(from, end), expected, "from {from} to {end}");
        }
    }

    #[test]
    fn a_checkpoint_survives_its_file_and_damage_does_not() {
        let bits = DeadBits::default();
        for record in [0, 63, 64, 70_000] {
            bits.set(record, 7);
        }
        let partition = PartitionId::new(3);
        let bytes = encode_checkpoint(partition, Lsn::new(9), [(4, &bits)].into_iter());
        let checkpoint = decode_checkpoint(&bytes).unwrap();
        assert_eq!((checkpoint.partition, checkpoint.lsn), (partition, Lsn::new(9)));
        let loaded = &checkpoint.segments[&4];
        assert_eq!((loaded.dead_records(), loaded.dead_bytes()), (4, 28));
        assert_eq!(loaded.words(), bits.words());
        for at in [0, 8, 20, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            assert!(decode_checkpoint(&flipped).is_none(), "byte {at}");
        }
    }
}
