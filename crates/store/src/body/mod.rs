//! Items as bytes: validates them, locates values, adds system properties and applies patches.
//!
//! An item is stored as the user wrote it. It is never parsed into a tree and serialized again, so
//! numbers keep their digits, strings their escapes and properties their order. One pass finds what
//! the store needs (`scan`). System properties are spliced in (`compose`). A patch cuts ranges out
//! and replaces them (`patch`):
//!
//! ```text
//! sent      {"id":"1","n":1.50,"_ts":3}
//! scan      the id is "1", there is no ttl, `_ts` is a system property and is dropped
//! compose   {"id":"1","n":1.50,"_rid":"…","_self":"…","_etag":"…",…,"_ts":9,"_lsn":5}
//! patch     {"id":"1","n":2.5,"_rid":"…",…        incr /n 1; the result is scanned again
//! ```
//!
//! Start reading at `scan`, then `splice`, then `patch`. `grammar` is the pass itself; `wanted` is
//! the set of paths it looks for; `cursor` walks bytes that were validated before.
//!
//! This module does no I/O and knows no container, no partition key hash and no HTTP status. It
//! never trusts bytes from outside, and no input makes it panic.

mod cursor;
mod error;
mod grammar;
mod inline;
mod keys;
mod number;
mod patch;
#[cfg(test)]
mod properties;
mod scan;
mod span;
mod splice;
mod text;
mod wanted;
mod words;

pub use cursor::get;
pub use error::BodyError;
pub use patch::{
    Json, OPERATIONS_MAX, Operation, OperationProblem, Patch, PatchError, Pointer, patch,
};
pub use scan::{Limits, Scanned, Ttl, scan, validate, validate_value};
pub use span::{ValueKind, ValueSpan};
pub use splice::{
    Composed, Head, SystemProperties, Tail, compose, compose_head, finish, members, stamp,
};
pub use wanted::Wanted;
