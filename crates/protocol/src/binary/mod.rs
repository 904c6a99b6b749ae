//! Cosmos binary JSON: the compact encoding in which some clients send and request items.
//!
//! A binary body starts with `0x80`, a byte with which no JSON text can start, and holds one value.
//! Every value starts with a marker byte that says what follows:
//!
//! ```text
//! text     {"id":"a","n":[1,300]}
//! binary   80 | ed 0c 02 | 2c | 81 61 | 81 6e | e5 04 02 | 01 | c9 2c 01
//!          |    |          |    |       |       |          |    300 as int16
//!          |    |          |    |       |       |          1, the marker is the number
//!          |    |          |    |       |       array: 4 bytes, 2 elements
//!          |    |          |    |       "n": a string of length 1
//!          |    |          |    "a"
//!          |    |          "id", entry 12 of the table of system strings
//!          |    object: 12 bytes, 2 members
//!          preamble
//! ```
//!
//! [`decode`] turns any such body into JSON text, and [`encode`] does the reverse. Both go straight from
//! bytes to bytes and keep the order of members. [`decode`] reads every form that the official SDKs
//! define; [`encode`] writes only the plain ones, which every SDK reads.
//!
//! Bodies are untrusted. Decoding keeps an explicit stack of open containers, checks each offset, and
//! stops at [`Limits`], because references and uniform arrays let a few bytes expand to many.
//!
//! Nothing here validates the meaning of a body: duplicate names, missing ids and item sizes are the
//! caller's concern. A body is decoded whole or refused. What the format does not define is an error,
//! not a `null`.

mod decode;
mod encode;
mod error;
mod input;
mod marker;
mod number;
mod string;
mod text;

pub use decode::{Limits, decode};
pub use encode::encode;
pub use error::BinaryError;

/// The maximum number of open arrays and objects; the SDKs have the same limit.
pub const NESTING_MAX: usize = 256;

/// Whether a body is binary JSON, by its first byte; headers are not consulted.
#[must_use]
pub fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&marker::PREAMBLE)
}
