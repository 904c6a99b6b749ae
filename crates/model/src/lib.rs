//! The domain types of Headwater: ids, keys, ranges, log positions and change feed requests, before anything
//! is stored or sent.
//!
//! | to talk about | use |
//! |---|---|
//! | a position in a partition's log | [`Lsn`], [`PartitionId`] |
//! | where an item lives | [`PartitionKey`] → [`PartitionKeyDefinition::epk`] → [`Epk`] in a [`KeyRange`] |
//! | the name of a resource | [`DatabaseId`], [`ContainerId`], [`ItemId`] given by users; [`ResourceId`] by us |
//! | one version of an item | [`Etag`], [`Timestamp`], [`ChangeKind`] |
//! | reading the change feed | [`FeedMode`], [`FeedStart`], [`PageLimit`], [`Continuation`] |
//!
//! Text and bytes from outside enter through `parse`, `FromStr`, `from_*` and `decode`. These limit the size of
//! their input, return typed errors with a remedy, and never panic. A value that exists is valid.
//!
//! This crate does no I/O, reads no clock, uses no randomness and contains no HTTP. Its only wire formats are
//! the text forms of its own types.

mod change;
mod continuation;
mod epk;
mod etag;
mod feed;
mod hex;
mod id;
mod lsn;
pub mod murmur3;
mod partition_key;
mod range;
mod rid;
mod text;
mod timestamp;

pub use change::ChangeKind;
pub use continuation::{BadContinuation, Continuation, RangePosition};
pub use epk::{BadEpk, Epk};
pub use etag::{BadEtag, Etag};
pub use feed::{BadPageLimit, FeedMode, FeedStart, PageLimit};
pub use id::{ContainerId, DatabaseId, IdError, ItemId};
pub use lsn::{BadLsn, BadPartitionId, Lsn, PartitionId};
pub use partition_key::{
    BadPartitionKey, BadPartitionKeyBytes, BadPartitionKeyDefinition, BadPartitionKeyPath,
    PartitionKey, PartitionKeyDefinition, PartitionKeyError, PartitionKeyKind, PartitionKeyPath,
    PartitionKeyValue, PartitionKeyVersion, effective_partition_key,
};
pub use range::{KeyRange, KeyRangeError};
pub use rid::{
    AttachmentRid, BadRid, ClientEncryptionKeyRid, ContainerRid, DatabaseRid, ItemRid, OfferRid,
    PartitionRangeRid, PermissionRid, ResourceId, ResourceKind, ResourceRid, UserRid,
};
pub use timestamp::{BadTimestamp, Timestamp};
