//! Error types, one per kind of operation, each with a remedy. Knows no HTTP status; the server maps errors
//! to those.

use crate::body::{BodyError, PatchError};
use crate::quarantine::Quarantine;
use headwater_log::{AppendError, Damage, OpenError as LogOpenError, ReadError};
use headwater_model::{
    BadContinuation, BadPartitionKeyDefinition, BadPartitionKeyPath, Continuation, Etag, IdError,
    KeyRange, Lsn, PartitionId, PartitionKeyError,
};
use headwater_query::EvaluationError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An index error with fewer free bytes than this is reported as a full disk.
const ROOM_TO_OPEN: u64 = 1 << 20;

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// The request is wrong; sending it again fails again.
    FixRequest,
    /// Another writer was first: read the item again and repeat the decision.
    RereadItem,
    /// The ranges of the container have changed: list them again.
    RefreshRanges,
    /// The container or database was replaced or dropped: look it up again.
    RefreshContainer,
    /// Nothing was changed; try again later.
    RetryLater,
    /// Make room on the disk, then try again.
    FreeDisk,
    /// Close the store and open it again.
    Reopen,
    /// Bytes on disk are damaged: restore from a backup.
    Restore,
}

/// Errors of the storage layer: log, index and background tasks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Reading the log failed.
    #[error(transparent)]
    Read(ReadError),
    /// A read found bytes that differ from what was written.
    #[error(
        "{0}. Stop the server and run `headwater doctor`: it says what is lost, takes the partition \
         from a backup or exports what is readable"
    )]
    Damaged(Damage),
    /// The partition is quarantined because its files are damaged. That was found when the store was opened,
    /// or when the index failed and could not be rebuilt from the partition's log.
    #[error(transparent)]
    Quarantined(Arc<Quarantine>),
    /// Appending to the log failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The index failed. It is rebuilt from the log while the store is open.
    #[error("the index failed ({0}). It is being rebuilt from the log; try again in a moment")]
    Index(String),
    /// A split or merge of the partition failed halfway.
    #[error(
        "a split or merge of the partition failed halfway; reopen the store and it is finished"
    )]
    Interrupted,
    /// A background task panicked. Its partition or store takes no more work until the store is opened again.
    #[error("{task} stopped: {message}; restart the server, or close the store and open it again")]
    Stopped {
        /// The work of the task, and its object.
        task: String,
        /// The message of the panic.
        message: String,
    },
    /// The store is closed, or closing.
    #[error("the store is closed; open it again")]
    Closed,
}

impl StorageError {
    /// What the caller should do next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            StorageError::Damaged(_) | StorageError::Quarantined(_) => Remedy::Restore,
            StorageError::Append(AppendError::DiskFull) => Remedy::FreeDisk,
            StorageError::Append(AppendError::Poisoned)
            | StorageError::Stopped { .. }
            | StorageError::Interrupted => Remedy::Reopen,
            StorageError::Index(_)
            | StorageError::Read(_)
            | StorageError::Append(_)
            | StorageError::Closed => Remedy::RetryLater,
        }
    }
}

impl StorageError {
    /// The damage, if the error is about one.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        match self {
            StorageError::Damaged(damage) => Some(damage),
            StorageError::Quarantined(quarantine) => Some(&quarantine.damage),
            _ => None,
        }
    }
}

impl From<ReadError> for StorageError {
    fn from(error: ReadError) -> StorageError {
        match error {
            ReadError::Damaged(damage) => StorageError::Damaged(damage),
            other => StorageError::Read(other),
        }
    }
}

/// Errors of opening a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused an operation.
    #[error("cannot open the store in {}", dir.display())]
    Io {
        /// The directory of the store.
        dir: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The disk is full.
    #[error(
        "cannot open the data directory {}: its disk is full{}. Make room and start again; nothing \
         that was acknowledged is lost", dir.display(), free_text(.free)
    )]
    DiskFull {
        /// The directory of the store.
        dir: PathBuf,
        /// Free bytes, if known.
        free: Option<u64>,
    },
    /// Another process, or this one, has the store open.
    #[error(
        "cannot open the data directory {}: {} has it open; stop it first", dir.display(), process_text(.pid)
    )]
    Locked {
        /// The directory of the store.
        dir: PathBuf,
        /// The process that has it open, if known.
        pid: Option<u32>,
    },
    /// The directory holds a restore that did not finish.
    #[error(
        "{} holds a restore that was interrupted or refused; delete it and restore the backup again",
        dir.display()
    )]
    UnfinishedRestore {
        /// The directory of the store.
        dir: PathBuf,
    },
    /// A log could not be opened.
    #[error(transparent)]
    Log(#[from] LogOpenError),
    /// The lock file cannot be locked.
    #[error("cannot lock {}. Remove it and start again", file.display())]
    Lock {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The catalog is damaged. A damaged partition is quarantined instead.
    #[error(
        "{0}. Without the catalog the store cannot be opened: run `headwater doctor` with \
         `--repair-catalog` on the data directory, or restore a backup"
    )]
    Damaged(#[from] Damage),
    /// Replaying the log failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An event in the catalog cannot be decoded or applied.
    #[error(
        "this version cannot read the catalog at LSN {lsn}: {what}. Open the store with the version that wrote it"
    )]
    Catalog {
        /// The position of the event.
        lsn: Lsn,
        /// What is wrong with it.
        what: String,
    },
}

fn free_text(free: &Option<u64>) -> String {
    free.map(|bytes| format!(" ({bytes} bytes free)")).unwrap_or_default()
}

fn process_text(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!("another process (pid {pid})"),
        None => "this process or another one".to_owned(),
    }
}

impl OpenError {
    /// Whether the operating system reported a full disk.
    fn is_about_room(&self) -> bool {
        if matches!(self, OpenError::Storage(StorageError::Append(AppendError::DiskFull))) {
            return true;
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let io = error.downcast_ref::<std::io::Error>();
            if io.is_some_and(|io| {
                matches!(io.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            }) {
                return true;
            }
            cause = error.source();
        }
        // The engine of the index reports errors only as text.
        false
    }

    /// Converts the error to [`OpenError::DiskFull`] if a full disk is the cause.
    pub(crate) fn explained(self, dir: &Path, free: Option<u64>) -> OpenError {
        let is_tight = free.is_some_and(|free| free < ROOM_TO_OPEN);
        let is_index = matches!(self, OpenError::Storage(StorageError::Index(_)));
        if self.is_about_room() || (is_index && is_tight) {
            return OpenError::DiskFull { dir: dir.to_owned(), free };
        }
        self
    }
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> OpenError {
        match error {
            ReadError::Damaged(damage) => OpenError::Damaged(damage),
            other => OpenError::Storage(other.into()),
        }
    }
}

/// Errors of creating, changing, finding or dropping a resource of the catalog.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The id is taken.
    #[error("{what} {id} already exists; choose another id")]
    AlreadyExists {
        /// The kind of resource.
        what: &'static str,
        /// The id of the resource.
        id: String,
    },
    /// The resource does not exist.
    #[error("{what} {id} does not exist; create it first")]
    NotFound {
        /// The kind of resource.
        what: &'static str,
        /// The id of the resource.
        id: String,
    },
    /// The id is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The definition is not valid.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The change is about a property that cannot change after creation.
    #[error("{field} cannot be changed; create a new container and move the items")]
    Immutable {
        /// The property.
        field: &'static str,
    },
    /// The resource has changed since the caller read it.
    #[error("{what} {id} was changed by someone else; read it again")]
    EtagMismatch {
        /// The kind of resource.
        what: &'static str,
        /// The id of the resource.
        id: String,
    },
    /// The body of the resource is not valid.
    #[error("{0}")]
    BadResource(&'static str),
    /// The account has too many resources, or their documents are too large together.
    #[error(
        "an account keeps at most {limit} of offers, users, permissions, encryption keys and scripts; delete \
         those that are not in use"
    )]
    ResourcesFull {
        /// The limit that is reached: a number of resources or of bytes.
        limit: &'static str,
    },
    /// The partition cannot be split or merged as asked.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Reasons to refuse a container definition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Not JSON, or not an object of the expected shape.
    #[error("the container definition is not valid: {0}")]
    Malformed(String),
    /// The id is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The partition key is not valid.
    #[error(transparent)]
    PartitionKey(#[from] BadPartitionKeyDefinition),
    /// A unique key path is not valid.
    #[error("unique key path is not valid: {0}")]
    UniqueKeyPath(#[from] BadPartitionKeyPath),
    /// Too many unique keys.
    #[error("a container has at most 10 unique keys of at most 16 paths each")]
    TooManyUniqueKeys,
    /// A computed property is not valid.
    #[error("One of the specified inputs is invalid: computed properties: {0}")]
    ComputedProperty(String),
    /// A default time to live of zero, or below -1.
    #[error("defaultTtl is {0}; use -1, or 1 to 2147483647, or leave it out")]
    DefaultTtl(i64),
    /// The number of partitions is zero or too large.
    #[error("{0} partitions; use 1 to 1000")]
    Partitions(u32),
}

/// Reasons to refuse a split or merge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The range was split or merged, or never existed.
    #[error("range {0} is gone; list the ranges again")]
    RangeGone(PartitionId),
    /// The split point is not inside the range.
    #[error("range {0} cannot be split at that key; choose one inside it")]
    SplitPoint(KeyRange),
    /// The two ranges are not adjacent.
    #[error("ranges {0} and {1} are not neighbours; only neighbours can be merged")]
    NotNeighbours(PartitionId, PartitionId),
}

/// Errors of a write. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The body is not a valid item.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The id is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The body has no id.
    #[error(
        "The input content is invalid because the required properties - 'id; ' - are missing; give \
         the item an id"
    )]
    MissingId,
    /// A replacement that would change the id, inside a script's transaction or with
    /// [`ItemWrite::keep_id`](crate::ItemWrite::keep_id).
    #[error(
        "the item {given} cannot become {in_body} here; send the id it has, or delete it and create the \
         other"
    )]
    Rename {
        /// The id of the item.
        given: String,
        /// The id in the body.
        in_body: String,
    },
    /// The partition key is not valid.
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
    /// The key given with the body differs from the key in the body.
    #[error(
        "PartitionKey extracted from document doesn't match the one specified in the header. \
         It is {in_body}, not {given}; send the key the item has (wrong-pk-value)"
    )]
    PartitionKeyMismatch {
        /// The key that was given.
        given: String,
        /// The key in the body.
        in_body: String,
    },
    /// A time to live of zero, of null, or below -1.
    #[error("ttl must be -1, or 1 to 2147483647; leave it out for the container's default")]
    Ttl,
    /// An item with this id exists.
    #[error("item {id} already exists; replace or upsert it")]
    AlreadyExists {
        /// The id of the item.
        id: String,
    },
    /// Another item has the same values at the paths of a unique key.
    #[error("item {id} would have the same unique key as item {other}; change its values")]
    UniqueKey {
        /// The item to write.
        id: String,
        /// The item that has the values.
        other: String,
    },
    /// The item does not exist.
    #[error("item {id} does not exist; check its id and partition key, or create it")]
    NotFound {
        /// The id of the item.
        id: String,
    },
    /// The item has changed since the caller read it.
    #[error("item {id} was changed by someone else, its etag is now {current}; read it again")]
    EtagMismatch {
        /// The id of the item.
        id: String,
        /// The current etag of the item.
        current: Etag,
    },
    /// The condition of a patch is false for the item.
    #[error("the condition of the patch does not hold for item {id}; read it again")]
    ConditionFalse {
        /// The id of the item.
        id: String,
    },
    /// The condition of a patch could not be evaluated.
    #[error("the condition of the patch cannot be evaluated: {0}")]
    Condition(String),
    /// The patch cannot be applied.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// Another writer has changed an item that a transaction has read.
    #[error("someone else has changed what the transaction has read; run it again")]
    Outdated,
    /// The batch has no operations.
    #[error("the batch has no operations; add at least one")]
    EmptyBatch,
    /// The batch has too many operations.
    #[error("the batch has {count} operations; at most {limit} are one transaction")]
    TooManyOperations {
        /// The number of operations.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// The batch has too many bytes.
    #[error("the batch has {bytes} bytes; the limit is {limit}, so split it")]
    BatchTooLarge {
        /// The number of bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The items of a transaction, before or after it, are too large for one page of the change feed.
    #[error(
        "the items that the transaction writes, or those that it replaces or deletes, have more than {limit} \
         bytes; readers of the change feed get them on one page, so split it"
    )]
    TransactionTooLarge {
        /// The limit, for the items before and for those after.
        limit: usize,
    },
    /// The container was dropped.
    #[error("the container is gone; look it up again")]
    ContainerGone,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl WriteError {
    /// What the caller should do next. A new variant does not compile until it has a remedy.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            WriteError::Body(_)
            | WriteError::Id(_)
            | WriteError::MissingId
            | WriteError::Rename { .. }
            | WriteError::PartitionKey(_)
            | WriteError::PartitionKeyMismatch { .. }
            | WriteError::Ttl
            | WriteError::AlreadyExists { .. }
            | WriteError::UniqueKey { .. }
            | WriteError::Condition(_)
            | WriteError::Patch(_)
            | WriteError::EmptyBatch
            | WriteError::TooManyOperations { .. }
            | WriteError::BatchTooLarge { .. }
            | WriteError::TransactionTooLarge { .. } => Remedy::FixRequest,
            WriteError::NotFound { .. }
            | WriteError::Outdated
            | WriteError::EtagMismatch { .. }
            | WriteError::ConditionFalse { .. } => Remedy::RereadItem,
            WriteError::ContainerGone => Remedy::RefreshContainer,
            WriteError::Storage(storage) => storage.remedy(),
        }
    }
}

/// Error of a transactional batch. Nothing was applied.
#[derive(Debug, thiserror::Error)]
#[error("operation {index} of the batch failed, nothing was applied: {error}")]
pub struct BatchError {
    /// The index of the operation that failed; 0 when the batch as a whole is wrong.
    pub index: usize,
    /// The error of that operation.
    #[source]
    pub error: WriteError,
}

/// Errors of a read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemReadError {
    /// The id is not valid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The partition key is not valid.
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
    /// The range was split or merged.
    #[error("range {0} is gone; list the ranges again")]
    RangeGone(PartitionId),
    /// The position was not returned by a scan of this container.
    #[error("the scan position is not one of this container's; start again without it")]
    BadPosition,
    /// The container was dropped.
    #[error("the container is gone; look it up again")]
    ContainerGone,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl ItemReadError {
    /// What the caller should do next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            ItemReadError::Id(_) | ItemReadError::PartitionKey(_) | ItemReadError::BadPosition => {
                Remedy::FixRequest
            }
            ItemReadError::RangeGone(_) => Remedy::RefreshRanges,
            ItemReadError::ContainerGone => Remedy::RefreshContainer,
            ItemReadError::Storage(storage) => storage.remedy(),
        }
    }
}

/// Errors of reading the change feed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The range was split or merged.
    #[error("range {0} is gone; list the ranges again and continue in those that replaced it")]
    RangeGone(PartitionId),
    /// Range, partition key and bounds of the request have nothing in common.
    #[error("range, partition key and bounds do not overlap; leave one of them out")]
    EmptyScope,
    /// The partition key is not valid.
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
    /// The position belongs to another container.
    #[error("the position belongs to another container; start again without it")]
    WrongContainer,
    /// The position does not cover part of the scope.
    #[error(
        "the position does not cover all of {0}; start that part from the beginning or from now"
    )]
    PositionMissing(KeyRange),
    /// The position is above the newest LSN. Either it belongs to another container, or a power cut lost
    /// writes that were not durable.
    #[error(
        "position {asked} is ahead of the newest change, {newest}: it is of another container, or a \
         power cut took its changes (durability os). Start again without it"
    )]
    PositionAhead {
        /// The position of the request.
        asked: Lsn,
        /// The newest LSN.
        newest: Lsn,
    },
    /// All versions were requested from a position that is no longer kept.
    #[error(
        "changes after {asked} are no longer kept in all versions: up to {missing} of them (LSNs) are \
         missing. The oldest kept position is {}. Resume from there, or read latest versions",
        position.to_string().trim_matches('"')
    )]
    BeforeRetention {
        /// The position of the request, in the range that is furthest behind.
        asked: Lsn,
        /// The oldest complete position of that range.
        oldest: Lsn,
        /// The oldest complete position for everything the request covers.
        position: Box<Continuation>,
        /// LSNs between the requested positions and the oldest kept ones. Some of them may still have live
        /// versions.
        missing: u64,
    },
    /// All versions can only be read from the oldest kept change, from now or from a position.
    #[error(
        "all versions and deletes are read from the oldest kept change, from now or from a position, \
         not from {0}"
    )]
    UnsupportedStart(&'static str),
    /// The filter needs information that latest versions do not contain.
    #[error("latest versions do not tell {0}; read all versions and deletes, or change the filter")]
    FilterNeedsAllVersions(&'static str),
    /// The filter could not be evaluated on a change.
    #[error("the filter cannot be evaluated on the change at {lsn}: {error}")]
    FilterFailed {
        /// The position of the change.
        lsn: Lsn,
        /// The error of the evaluation.
        error: EvaluationError,
    },
    /// The page is larger than the reader accepts, because of a transaction on it: see
    /// [`FeedRequest::refuse_above`](crate::FeedRequest::refuse_above).
    #[error(
        "the page has more than {limit} bytes; read it with a higher limit, as a transaction is never cut"
    )]
    LargePage {
        /// The most bytes the reader accepts.
        limit: usize,
    },
    /// The positions of the page do not fit in one continuation.
    #[error(transparent)]
    Continuation(#[from] BadContinuation),
    /// The container was dropped.
    #[error("the container is gone; look it up again")]
    ContainerGone,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl From<ReadError> for FeedError {
    fn from(error: ReadError) -> FeedError {
        match error {
            ReadError::BeforeRetention { asked, oldest } => FeedError::BeforeRetention {
                asked,
                oldest,
                position: Box::new(Continuation::Single(oldest)),
                missing: oldest.get().saturating_sub(asked.get()),
            },
            other => FeedError::Storage(other.into()),
        }
    }
}

impl FeedError {
    /// What the caller should do next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            FeedError::RangeGone(_) => Remedy::RefreshRanges,
            FeedError::ContainerGone | FeedError::WrongContainer => Remedy::RefreshContainer,
            FeedError::EmptyScope
            | FeedError::PartitionKey(_)
            | FeedError::PositionMissing(_)
            | FeedError::PositionAhead { .. }
            | FeedError::BeforeRetention { .. }
            | FeedError::UnsupportedStart(_)
            | FeedError::FilterNeedsAllVersions(_)
            | FeedError::FilterFailed { .. }
            | FeedError::LargePage { .. }
            | FeedError::Continuation(_) => Remedy::FixRequest,
            FeedError::Storage(storage) => storage.remedy(),
        }
    }
}
