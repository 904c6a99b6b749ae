//! Lease stores: small documents with conditional writes.
//!
//! A store never interprets leases. There are three: [`ContainerLeases`] over a client, [`EmbeddedLeases`] on a
//! store in the same process, and [`MemoryLeases`] for tests and for one host without a lease container.

pub mod conformance;
mod container;
mod embedded;
mod memory;

pub use container::ContainerLeases;
pub use embedded::EmbeddedLeases;
pub use memory::MemoryLeases;

use crate::lease::DocumentKey;
use crate::namespace::FeedIdentity;
use bytes::Bytes;
use headwater_model::PartitionKey;
use headwater_runtime::BoxFuture;
use std::time::Duration;

/// A store of documents with conditional writes.
pub trait LeaseStore: Send + Sync + 'static {
    /// Lists every document whose id has this prefix. May be stale; a missing document proves nothing.
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>>;

    /// Reads the current version of a document; `None` if it does not exist.
    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>>;

    /// Creates a document. Fails with [`StoreError::Conflict`] if it exists.
    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>>;

    /// Replaces a document in the version `if_match`. Fails with [`StoreError::PreconditionFailed`] or
    /// [`StoreError::NotFound`] otherwise.
    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>>;

    /// Deletes a document in the version `if_match`.
    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>>;

    /// Executes all writes or none; the error is that of the first write that failed.
    ///
    /// Returns `None`, without any effect, if the store cannot do this.
    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>>;

    /// Returns how documents are partitioned.
    fn layout(&self) -> Layout;

    /// Whether the documents are stored in this container. A monitored container cannot hold its own leases:
    /// every lease write would be a change to handle.
    fn is_kept_in(&self, container: &FeedIdentity) -> bool {
        let _ = container;
        false
    }
}

impl<S: LeaseStore + ?Sized> LeaseStore for std::sync::Arc<S> {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        (**self).list(prefix)
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        (**self).read(key)
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        (**self).create(document)
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        (**self).replace(document, if_match)
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        (**self).delete(key, if_match)
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        (**self).atomic(writes)
    }

    fn layout(&self) -> Layout {
        (**self).layout()
    }

    fn is_kept_in(&self, container: &FeedIdentity) -> bool {
        (**self).is_kept_in(container)
    }
}

/// How a lease container is partitioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// By `/id`; required by some of the .NET and Java libraries.
    Id,
    /// By `/partitionKey`. All documents of one unit share a partition: listing them is cheap, and several
    /// can be written atomically.
    PartitionKey,
    /// Created without a partition key. Every document has the empty key and is identified by its id alone,
    /// as in [`Layout::Id`].
    Unpartitioned,
}

impl Layout {
    /// Returns the layout of a container with these partition key paths.
    ///
    /// # Errors
    /// Fails for any path other than `/id` and `/partitionKey`.
    pub fn of(paths: &[&str]) -> Result<Layout, StoreError> {
        match paths {
            ["/id"] => Ok(Layout::Id),
            ["/partitionKey"] => Ok(Layout::PartitionKey),
            _ => {
                let why = "it is partitioned by neither /id nor /partitionKey; use a container partitioned by one \
                           of these, or one without a partition key";
                Err(StoreError::Refused(why.to_owned()))
            }
        }
    }

    /// Returns the partition key under which a document is stored.
    fn partition_key(self, key: &DocumentKey) -> PartitionKey {
        match self {
            Layout::Unpartitioned => PartitionKey::empty(),
            Layout::Id | Layout::PartitionKey => {
                PartitionKey::from(key.partition.as_ref().unwrap_or(&key.id).as_str())
            }
        }
    }

    /// Returns the key of a document of a unit. Leases shared with other libraries get a partition each.
    #[must_use]
    pub fn key(self, namespace: &str, id: String, shared_with_originals: bool) -> DocumentKey {
        let partition = match (self, shared_with_originals) {
            (Layout::Id | Layout::Unpartitioned, _) => None,
            (Layout::PartitionKey, false) => Some(namespace.to_owned()),
            (Layout::PartitionKey, true) => Some(id.clone()),
        };
        DocumentKey { id, partition }
    }
}

/// A document to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDocument {
    /// Its address.
    pub key: DocumentKey,
    /// A JSON object with the same id, and with the same `partitionKey` if the key has one.
    pub body: Bytes,
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its address.
    pub key: DocumentKey,
    /// Its JSON.
    pub body: Bytes,
    /// Its version.
    pub etag: String,
    /// When it was written, in seconds by the store's clock, if known.
    pub seconds: Option<u64>,
}

/// The result of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The documents, in no particular order.
    pub documents: Vec<Stored>,
    /// The store's clock at the time of the answer, in seconds, if known.
    pub seconds: Option<u64>,
}

/// One write of an atomic set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWrite {
    /// Creates a document.
    Create(NewDocument),
    /// Replaces a document in this version.
    Replace(NewDocument, String),
    /// Deletes a document in this version.
    Delete(DocumentKey, String),
}

/// Errors of a lease store. Never about the feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The document already exists.
    #[error("the document already exists; read it")]
    Conflict,
    /// The document is not in the expected version.
    #[error("another writer changed the document; read it again")]
    PreconditionFailed,
    /// The document does not exist.
    #[error("the document does not exist")]
    NotFound,
    /// The lease container does not exist.
    #[error("the lease container is gone ({0}); restore it, processing needs it")]
    Gone(String),
    /// Too many requests; nothing was written.
    #[error("the lease container is throttled; increase its throughput")]
    Throttled {
        /// How long the service asks to wait.
        after: Option<Duration>,
    },
    /// No answer. A write may or may not have taken effect.
    #[error("the lease container does not answer: {0}")]
    Unavailable(String),
    /// The request is not permitted.
    #[error("cannot use the lease container: {0}")]
    Refused(String),
}

impl StoreWrite {
    /// Returns the key of the document it writes.
    #[must_use]
    pub fn key(&self) -> &DocumentKey {
        match self {
            StoreWrite::Create(document) | StoreWrite::Replace(document, _) => &document.key,
            StoreWrite::Delete(key, _) => key,
        }
    }
}

/// How many writes a service accepts in one transaction.
pub(crate) const WRITES_MAX: usize = 100;

/// Returns the single partition of all writes, or `None` if they do not fit into one transaction.
fn one_partition(writes: &[StoreWrite]) -> Option<String> {
    let first = writes.first()?.key().partition.clone()?;
    let same = writes.iter().all(|write| write.key().partition.as_ref() == Some(&first));
    (same && writes.len() <= WRITES_MAX).then_some(first)
}
