//! HybridRow: the binary row format in which the .NET SDK sends batches and reads their results.
//!
//! A body is a RecordIO stream: one segment header, then one record per row.
//!
//! ```text
//! stream  = segment { record | segment }
//! segment = 81 f0 d8 ff 7f  presence:u8  length:i32  [sparse fields]
//! record  = 81 f1 d8 ff 7f  length:i32  crc32:u32  row
//! row     = 81 schema:i32  presence:u8  fixed columns  variable columns  sparse fields
//! ```
//!
//! Integers and floats are little-endian, texts and bytes carry a length of 7 bits per byte, and the
//! checksum is CRC-32 as in gzip. [`OperationRow`] is a row of a request, [`ResultRow`] a row of an
//! answer. Both borrow from the body: a decoder allocates nothing.
//!
//! Bodies are hostile until proven otherwise. Each length is compared with the bytes that are left,
//! and nested values, which no client sends, are refused. Nothing here knows what an operation means:
//! see [`crate::batch`].

mod input;
mod operation;
mod record;
mod result;
mod row;

pub use operation::OperationRow;
pub use record::{Records, append_record, start};
pub use result::ResultRow;

/// The first byte of every row: HybridRow version 1.
const VERSION: u8 = 0x81;

/// Tells a HybridRow body from JSON text and from binary JSON by its first byte.
#[must_use]
pub fn is_hybridrow(body: &[u8]) -> bool {
    body.first() == Some(&VERSION)
}

/// Why bytes are not the HybridRow they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HybridRowError {
    /// Fewer bytes than announced.
    #[error("it ends inside {0}; send all of it")]
    Short(&'static str),
    /// A length that is negative, or larger than what is left.
    #[error("the length of {0} does not fit the bytes that follow")]
    Length(&'static str),
    /// A variable-length integer above 32 bits.
    #[error("{0} has a length of more than 32 bits")]
    Varuint(&'static str),
    /// Another version of the format.
    #[error("{row} has version {found:#04x}; send version 0x81")]
    Version {
        /// Which row.
        row: &'static str,
        /// Its version.
        found: u8,
    },
    /// Another kind of row.
    #[error("found a row of schema {found} in the place of {row}")]
    Schema {
        /// Which row belongs there.
        row: &'static str,
        /// Its schema.
        found: i32,
    },
    /// A stream that does not start with a segment.
    #[error("the stream does not start with a segment")]
    NoSegment,
    /// The bytes changed on their way.
    #[error("the checksum does not match the row; send it again")]
    Checksum,
    /// Not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A type that no row has here.
    #[error("type code {0} is not supported in a sparse field")]
    Type(u8),
    /// A column with the type of another.
    #[error("{column} has type code {code}, which is not its type")]
    ColumnType {
        /// Which column.
        column: &'static str,
        /// The type it has.
        code: u8,
    },
}
