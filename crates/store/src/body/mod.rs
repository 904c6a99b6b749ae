//! Items as bytes: checking them, finding a few values in them, stamping and patching them.
//!
//! An item is stored as the user wrote it. It is never parsed into a tree and written out again, so
//! numbers keep their digits, strings their escapes and properties their order. What the store
//! needs to know it learns in one pass (`scan`); what it has to add it splices in (`compose`); what
//! a patch changes it cuts out and replaces (`patch`):
//!
//! ```text
//! sent      {"id":"1","n":1.50,"_ts":3}
//! scan      the id is "1", there is no ttl, `_ts` is not the user's to set
//! compose   {"id":"1","n":1.50,"_rid":"…","_self":"…","_etag":"…",…,"_ts":9,"_lsn":5}
//! patch     {"id":"1","n":2.5,"_rid":"…",…        incr /n 1; on its way to another scan
//! ```
//!
//! Start reading at `scan`, then `splice`, then `patch`. `grammar` is the pass itself; `wanted` is
//! what it looks for; `cursor` walks bytes that were checked before.
//!
//! This module does no I/O and knows no container, no partition key hash and no HTTP status. It
//! never trusts bytes from outside, and never panics on bytes it should not have been given.

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
