//! Where leases are kept: a store of small documents that are written on conditions.
//!
//! It knows nothing of leases. There are three: [`ContainerLeases`] over a client, [`EmbeddedLeases`] on
//! a store in the same process, [`MemoryLeases`] for tests and for one host without a lease container.

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

/// A store of documents that are written on conditions.
pub trait LeaseStore: Send + Sync + 'static {
    /// Every document whose id starts like this. May be behind; a missing document proves nothing.
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>>;

    /// One document, as it is now; nothing if there is none.
    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>>;

    /// A document that must not be there yet. [`StoreError::Conflict`] if it is.
    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>>;

    /// A document that must be there in this version. [`StoreError::PreconditionFailed`] or
    /// [`StoreError::NotFound`] if it is not.
    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>>;

    /// Deletes a document that must be there in this version.
    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>>;

    /// Several writes or none, and why the first failed that did. `None` if the store cannot, and then nothing
    /// was done.
    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>>;

    /// How documents are spread.
    fn layout(&self) -> Layout;

    /// Whether they are kept in this very container. Nobody can monitor the container his leases are in:
    /// every lease written would be a change to handle.
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

/// How documents are spread over a lease container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// By their id. What the originals ask for.
    Id,
    /// By a property `partitionKey`. All documents of one unit in one place: listing them is cheap, and
    /// several can be written at once.
    PartitionKey,
    /// Not at all: a container that was created without a partition key. Every document has the empty
    /// key; ids alone tell documents apart, as in [`Layout::Id`].
    Unpartitioned,
}

impl Layout {
    /// That of a container partitioned by these paths.
    ///
    /// # Errors
    /// When leases cannot be kept that way.
    pub fn of(paths: &[&str]) -> Result<Layout, StoreError> {
        match paths {
            ["/id"] => Ok(Layout::Id),
            ["/partitionKey"] => Ok(Layout::PartitionKey),
            _ => {
                let why = "it is partitioned by neither /id nor /partitionKey; use a container by one of \
                           these, or one without a partition key";
                Err(StoreError::Refused(why.to_owned()))
            }
        }
    }

    /// The partition key under which a document is stored.
    fn partition_key(self, key: &DocumentKey) -> PartitionKey {
        match self {
            Layout::Unpartitioned => PartitionKey::empty(),
            Layout::Id | Layout::PartitionKey => {
                PartitionKey::from(key.partition.as_ref().unwrap_or(&key.id).as_str())
            }
        }
    }

    /// Where a document of a unit belongs. The originals want every lease by itself.
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
    /// Where.
    pub key: DocumentKey,
    /// What: a JSON object with the same id, and with the same `partitionKey` if the key has one.
    pub body: Bytes,
}

/// A document as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where.
    pub key: DocumentKey,
    /// What.
    pub body: Bytes,
    /// Its version.
    pub etag: String,
    /// When it was written, in seconds by the store's clock, if the store says so.
    pub seconds: Option<u64>,
}

/// Documents, and what time it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// In no particular order.
    pub documents: Vec<Stored>,
    /// The store's clock when it answered, in seconds, if it said so.
    pub seconds: Option<u64>,
}

/// One of several writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWrite {
    /// Creates.
    Create(NewDocument),
    /// Replaces, in this version.
    Replace(NewDocument, String),
    /// Deletes, in this version.
    Delete(DocumentKey, String),
}

/// Why a document was not written or read. Never about the feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is one already.
    #[error("the document exists already; read it")]
    Conflict,
    /// It is not in the expected version.
    #[error("the document was changed by somebody else; read it again")]
    PreconditionFailed,
    /// There is none.
    #[error("the document is not there")]
    NotFound,
    /// The lease container is not there.
    #[error("the lease container is gone ({0}); nothing can be processed without it")]
    Gone(String),
    /// Too many requests; nothing was done.
    #[error("the lease container is throttled; give it more throughput")]
    Throttled {
        /// How long the service asks to wait.
        after: Option<Duration>,
    },
    /// No answer. A write may or may not have happened.
    #[error("the lease container does not answer: {0}")]
    Unavailable(String),
    /// Not allowed.
    #[error("cannot use the lease container: {0}")]
    Refused(String),
}

impl StoreWrite {
    /// The document it is about.
    #[must_use]
    pub fn key(&self) -> &DocumentKey {
        match self {
            StoreWrite::Create(document) | StoreWrite::Replace(document, _) => &document.key,
            StoreWrite::Delete(key, _) => key,
        }
    }
}

/// How many writes a service takes as one transaction.
pub(crate) const WRITES_MAX: usize = 100;

/// The one partition all writes are about, if they are few enough to be one transaction.
fn one_partition(writes: &[StoreWrite]) -> Option<String> {
    let first = writes.first()?.key().partition.clone()?;
    let same = writes.iter().all(|write| write.key().partition.as_ref() == Some(&first));
    (same && writes.len() <= WRITES_MAX).then_some(first)
}
