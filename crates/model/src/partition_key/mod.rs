//! Partition keys: their values, where an item holds them, and how they become an [`Epk`](crate::Epk).
//!
//! ```text
//! header   ["t1",42]          header.rs      text  → PartitionKey
//! index    09 74 31 00 01 …   bytes.rs       PartitionKey ↔ bytes inside an index key
//! item     /tenant, /user     path.rs        where each value is in the body
//! hash     0DAE0B84…          hash.rs        PartitionKey → Epk
//!                             definition.rs  which paths, which hash; checks that they fit
//!                             middle.rs      where to divide a range of hashes
//! ```
//!
//! Values compare without conversion: `1` and `1.0` are the same number, `0` and `-0.0` are different ones. A
//! missing property (`[{}]`), `null` and the empty key (`[]`) are three different keys.

mod bytes;
mod definition;
mod hash;
mod header;
mod middle;
mod path;
mod value;

pub use bytes::BadPartitionKeyBytes;
pub use definition::{
    BadPartitionKeyDefinition, PartitionKeyDefinition, PartitionKeyError, PartitionKeyKind,
    PartitionKeyVersion,
};
pub use hash::effective_partition_key;
pub use header::BadPartitionKey;
pub use path::{BadPartitionKeyPath, PartitionKeyPath};
pub use value::{PartitionKey, PartitionKeyValue};

/// The most components a key may have. Definitions have at most three; SDKs may send more.
const COMPONENTS_MAX: usize = 8;
