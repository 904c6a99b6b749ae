//! The words of the Headwater domain as types: what a caller may say and what a partition answers,
//! before anything is stored or sent.
//!
//! | to talk about | use |
//! |---|---|
//! | a position in a partition's log | [`Lsn`], [`PartitionId`] |
//! | where an item lives | [`PartitionKey`] → [`PartitionKeyDefinition::epk`] → [`Epk`] in a [`KeyRange`] |
//! | what a resource is called | [`DatabaseId`], [`ContainerId`], [`ItemId`] by its user; [`ResourceId`] by us |
//! | one version of an item | [`Etag`], [`Timestamp`], [`ChangeKind`] |
//! | reading the change feed | [`FeedMode`], [`FeedStart`], [`PageLimit`], [`Continuation`] |
//!
//! Text and bytes from outside enter through `parse`, `FromStr`, `from_*` and `decode`. Each of them
//! is bounded, refuses with a typed error that says what to do, and never panics. What has become a
//! value is valid from then on.
//!
//! This crate does no I/O, reads no clock, draws no random number and knows no HTTP. The only wire
//! formats in it are the text forms of its own types.

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
