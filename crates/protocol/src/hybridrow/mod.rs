//! HybridRow: the binary row format in which the .NET SDK sends batches and receives their results.
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
//! Integers and floats are little-endian. Strings and bytes start with a length of 7 bits per byte. The
//! checksum is CRC-32 as in gzip. [`OperationRow`] is a row of a request, [`ResultRow`] a row of a
//! response. Both borrow from the body: a decoder allocates nothing.
//!
//! Bodies are untrusted. Each length is checked against the remaining bytes, and nested values, which no
//! client sends, are refused. The meaning of an operation belongs to [`crate::batch`].

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

/// Whether a body is HybridRow, by its first byte. JSON text and binary JSON start with other bytes.
#[must_use]
pub fn is_hybridrow(body: &[u8]) -> bool {
    body.first() == Some(&VERSION)
}

/// Why bytes are not valid HybridRow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HybridRowError {
    /// The bytes end early.
    #[error("it ends inside {0}; send all of it")]
    Short(&'static str),
    /// A length is negative, or larger than the rest of the bytes.
    #[error("the length of {0} does not fit the bytes that follow")]
    Length(&'static str),
    /// A variable-length integer exceeds 32 bits.
    #[error("{0} has a length of more than 32 bits")]
    Varuint(&'static str),
    /// The row has another version of the format.
    #[error("{row} has version {found:#04x}; send version 0x81")]
    Version {
        /// The kind of row.
        row: &'static str,
        /// Its version.
        found: u8,
    },
    /// The row has another schema.
    #[error("expected {row}, found a row of schema {found}")]
    Schema {
        /// The expected kind of row.
        row: &'static str,
        /// Its schema.
        found: i32,
    },
    /// The stream does not start with a segment.
    #[error("the stream does not start with a segment")]
    NoSegment,
    /// The checksum does not match the row.
    #[error("the checksum does not match the row; send it again")]
    Checksum,
    /// A string is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
    /// A sparse field has an unsupported type.
    #[error("type code {0} is not supported in a sparse field")]
    Type(u8),
    /// A sparse field has another type than its column.
    #[error("{column} has type code {code}, which is not its type")]
    ColumnType {
        /// The name of the column.
        column: &'static str,
        /// The type code of the field.
        code: u8,
    },
}
