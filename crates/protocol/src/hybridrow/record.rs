//! Reads and writes RecordIO, the stream of records that carries rows. It checks lengths and checksums
//! and never looks into a row.

use super::input::Input;
use super::{HybridRowError, VERSION};

const SEGMENT: i32 = 2_147_473_648;
const RECORD: i32 = 2_147_473_649;
/// Header, presence and length: the minimum of a segment, and all that is written.
const SEGMENT_BYTES: usize = 10;
/// The bytes of header, length and checksum.
const RECORD_BYTES: usize = 13;
const HAS_LENGTH: u8 = 0b1;

/// Iterates over the rows of a stream. It ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    input: Input<'a>,
    is_started: bool,
}

impl<'a> Records<'a> {
    /// Creates an iterator over a whole stream, starting at its first segment.
    #[must_use]
    pub fn new(stream: &'a [u8]) -> Records<'a> {
        Records { input: Input::new(stream), is_started: false }
    }

    fn read(&mut self) -> Result<Option<&'a [u8]>, HybridRowError> {
        while !self.input.is_empty() {
            let mut row = self.input;
            match self.input.row_header("a record")? {
                SEGMENT => {
                    skip_segment(&mut row)?;
                    self.input = row;
                    self.is_started = true;
                }
                RECORD if !self.is_started => return Err(HybridRowError::NoSegment),
                RECORD => return self.record().map(Some),
                found => return Err(HybridRowError::Schema { row: "a record", found }),
            }
        }
        if self.is_started { Ok(None) } else { Err(HybridRowError::NoSegment) }
    }

    fn record(&mut self) -> Result<&'a [u8], HybridRowError> {
        let length = self.input.int32("a record")?;
        let checksum = self.input.uint32("a record")?;
        let length = usize::try_from(length).map_err(|_| HybridRowError::Length("a record"))?;
        let row = self.input.take(length, "a record")?;
        if crc32fast::hash(row) == checksum { Ok(row) } else { Err(HybridRowError::Checksum) }
    }
}

/// Skips a segment. Its fields have no meaning for the records.
fn skip_segment(input: &mut Input<'_>) -> Result<(), HybridRowError> {
    let mut row = *input;
    row.row_header("a segment")?;
    if row.byte("a segment")? & HAS_LENGTH == 0 {
        return Err(HybridRowError::Length("a segment"));
    }
    let length = usize::try_from(row.int32("a segment")?).unwrap_or(0);
    if length < SEGMENT_BYTES {
        return Err(HybridRowError::Length("a segment"));
    }
    input.take(length, "a segment").map(drop)
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], HybridRowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if matches!(read, Some(Err(_))) {
            *self = Records { input: Input::new(&[]), is_started: true };
        }
        read
    }
}

/// Starts a stream. One segment suffices for any number of records; .NET misreads a second one.
pub fn start(out: &mut Vec<u8>) {
    header(SEGMENT, out);
    out.push(HAS_LENGTH);
    out.extend_from_slice(&10i32.to_le_bytes());
}

/// Appends a record with the row that `write` produces.
pub fn append_record(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    header(RECORD, out);
    let at = out.len();
    out.extend_from_slice(&[0; RECORD_BYTES - 5]);
    let row_at = out.len();
    write(out);
    let row = &out[row_at..];
    // A row is a request or an item, far below 2 GiB.
    let length = i32::try_from(row.len()).unwrap_or(i32::MAX);
    let checksum = crc32fast::hash(row);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    out[at + 4..row_at].copy_from_slice(&checksum.to_le_bytes());
}

pub(super) fn header(schema: i32, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend_from_slice(&schema.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_gzip() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn an_error_ends_the_stream() {
        let mut stream = Vec::new();
        start(&mut stream);
        append_record(&mut stream, |out| out.push(1));
        append_record(&mut stream, |out| out.push(2));
        let rows: Vec<_> = Records::new(&stream).collect();
        assert_eq!(rows, [Ok(&[1][..]), Ok(&[2][..])]);
        stream[10 + RECORD_BYTES] ^= 4;
        let rows: Vec<_> = Records::new(&stream).collect();
        assert_eq!(rows, [Err(HybridRowError::Checksum)]);
    }
}
