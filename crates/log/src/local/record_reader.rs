//! Point reads of records by position, with a cache of the last entry.
//!
//! An entry is read and checked as a whole. Without the cache, reading the n records of a large transaction one
//! by one would read all of it n times. Never decides which records are wanted.

use super::{LocalLog, find_record};
use crate::entry::{self, Position, Record};
use crate::error::ReadError;
use bytes::Bytes;

/// Reads records of one log and caches the last entry. Fast when positions are in order.
#[derive(Debug)]
pub struct RecordReader<'a> {
    log: &'a LocalLog,
    /// The last entry that had several records.
    last: Option<ReadEntry>,
}

#[derive(Debug)]
struct ReadEntry {
    bytes: Bytes,
    is_in_ring: bool,
    /// In order of their ordinals.
    records: Vec<Record>,
}

impl LocalLog {
    /// Returns a reader for several records by position.
    #[must_use]
    pub fn record_reader(&self) -> RecordReader<'_> {
        RecordReader { log: self, last: None }
    }
}

impl RecordReader<'_> {
    /// Reads one record; `None` if it is no longer in the log.
    ///
    /// # Errors
    /// When its bytes cannot be read or are damaged.
    pub fn record(&mut self, position: Position, epk: &[u8]) -> Result<Option<Record>, ReadError> {
        if let Some(record) = self.last.as_ref().and_then(|last| last.find(position, epk)) {
            return Ok(Some(record));
        }
        let in_ring = self.log.entry_in_ring(position);
        let is_in_ring = in_ring.is_some();
        let found = match in_ring {
            Some(found) => Some(found),
            None => self.log.entry_in_file(position, epk, false)?,
        };
        let Some((bytes, header)) = found else { return Ok(None) };
        if header.records == 1 {
            return Ok(find_record(&bytes, &header, position.ordinal));
        }
        let mut records = Vec::with_capacity(usize::from(header.records));
        if entry::for_each_record(&bytes, &header, |record| records.push(record)).is_err() {
            return Ok(None);
        }
        let last = ReadEntry { bytes, is_in_ring, records };
        let record = last.find(position, epk);
        self.last = Some(last);
        Ok(record)
    }
}

impl ReadEntry {
    /// One of its records, copied if the entry is much larger and would stay in memory for it.
    fn find(&self, position: Position, epk: &[u8]) -> Option<Record> {
        let ordinal = |record: &Record| record.position.ordinal;
        let at = self.records.binary_search_by_key(&position.ordinal, ordinal).ok()?;
        let record = &self.records[at];
        if record.position != position || record.epk() != epk {
            return None;
        }
        match self.is_in_ring {
            true => Some(record.clone()),
            false => Some(record.clone().detached_from(self.bytes.len())),
        }
    }
}
