//! What can go wrong, by what the caller was doing, each with what to do next.

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

/// An index that fails with less room than this on its disk has failed for that reason.
const ROOM_TO_OPEN: u64 = 1 << 20;

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Remedy {
    /// The request itself is wrong; sending it again changes nothing.
    FixRequest,
    /// Somebody else was there first: read the item again and decide anew.
    RereadItem,
    /// The container's ranges have changed: list them again.
    RefreshRanges,
    /// The container or database is not what it was: look it up again.
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

/// Why the store could not keep or find bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Reading the log failed.
    #[error(transparent)]
    Read(ReadError),
    /// A read met bytes that are not what was written.
    #[error(
        "{0}. Stop the server and run `headwater doctor`: it says what is lost, takes the partition \
         from a backup or exports what is readable"
    )]
    Damaged(Damage),
    /// The partition was set aside because its files are damaged: when the store was opened, or when the
    /// index failed and could not be rebuilt from its log.
    #[error(transparent)]
    Quarantined(Arc<Quarantine>),
    /// Appending to the log failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The index failed. It is rebuilt from the log while the store is in use.
    #[error("the index failed ({0}). It is being rebuilt from the log; try again in a moment")]
    Index(String),
    /// A split or merge of the partition failed halfway.
    #[error(
        "a split or merge of the partition failed halfway; reopen the store and it is finished"
    )]
    Interrupted,
    /// A background task panicked. What it owned takes no more work until the store is opened again.
    #[error("{task} stopped: {message}; restart the server, or close the store and open it again")]
    Stopped {
        /// What the task did, and for which object.
        task: String,
        /// What it panicked with.
        message: String,
    },
    /// The store is closed, or closing.
    #[error("the store is closed; open it again")]
    Closed,
}

impl StorageError {
    /// What to do next.
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
    /// The damaged place, if the error is about one.
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

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("cannot open the store in {}", dir.display())]
    Io {
        /// The directory of the store.
        dir: PathBuf,
        /// What the operating system said.
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
        /// Bytes that are free, where that is known.
        free: Option<u64>,
    },
    /// The store is open already.
    #[error(
        "cannot open the data directory {}: {} has it open; stop it first", dir.display(), process_text(.pid)
    )]
    Locked {
        /// The directory of the store.
        dir: PathBuf,
        /// The other process that has it open, where that is known.
        pid: Option<u32>,
    },
    /// A backup was not restored into it to the end.
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
    /// The file that keeps other processes out cannot be locked.
    #[error("cannot lock {}. Remove it and start again", file.display())]
    Lock {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
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
    /// A definition in the catalog cannot be understood.
    #[error("the catalog holds something this version does not understand at LSN {lsn}: {what}")]
    Catalog {
        /// Where.
        lsn: Lsn,
        /// What was wrong with it.
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
    /// Whether the operating system said that the disk is full.
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
        // What the engine of the index says is only text.
        false
    }

    /// The same error, or that the disk is full if this is why.
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

/// Why a database or container could not be created, changed, found or dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// The name is taken.
    #[error("{what} {id} already exists; choose another id")]
    AlreadyExists {
        /// What it is.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// There is no such thing.
    #[error("{what} {id} does not exist; create it first")]
    NotFound {
        /// What it is.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// The id is not allowed.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The definition is not allowed.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// Something that cannot change after creation was changed.
    #[error("{field} cannot be changed; create a new container and move the items")]
    Immutable {
        /// The field.
        field: &'static str,
    },
    /// A resource has changed since the caller read it.
    #[error("{what} {id} was changed by someone else; read it again")]
    EtagMismatch {
        /// What it is.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// A resource is not one.
    #[error("{0}")]
    BadResource(&'static str),
    /// The account has as many resources as it may, or their documents are as large as they may be together.
    #[error(
        "an account keeps at most {limit} of offers, users, permissions, encryption keys and scripts; delete \
         those that are not in use"
    )]
    ResourcesFull {
        /// How many, or how many bytes.
        limit: &'static str,
    },
    /// The partition cannot be split or merged as asked.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a container definition is not allowed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Not JSON, or not an object of the right shape.
    #[error("the container definition is not valid: {0}")]
    Malformed(String),
    /// The id is not allowed.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The partition key is not allowed.
    #[error(transparent)]
    PartitionKey(#[from] BadPartitionKeyDefinition),
    /// A unique key path is not allowed.
    #[error("unique key path is not valid: {0}")]
    UniqueKeyPath(#[from] BadPartitionKeyPath),
    /// Too many unique keys.
    #[error("a container has at most 10 unique keys of at most 16 paths each")]
    TooManyUniqueKeys,
    /// A computed property that cannot be.
    #[error("One of the specified inputs is invalid: computed properties: {0}")]
    ComputedProperty(String),
    /// A default time to live of zero, or below -1.
    #[error("defaultTtl is {0}; use -1, or 1 to 2147483647, or leave it out")]
    DefaultTtl(i64),
    /// No partitions, or too many.
    #[error("{0} partitions; use 1 to 1000")]
    Partitions(u32),
}

/// Why partitions could not be split or merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The range was split or merged away, or never was.
    #[error("range {0} is gone; list the ranges again")]
    RangeGone(PartitionId),
    /// A range too narrow to be split.
    #[error("range {0} cannot be split at that key; choose one inside it")]
    SplitPoint(KeyRange),
    /// Two ranges that are not neighbours.
    #[error("ranges {0} and {1} are not neighbours; only neighbours can be merged")]
    NotNeighbours(PartitionId, PartitionId),
}

/// Why a write did not happen. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The body is not an item.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The id is not allowed.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A body without an id.
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
        /// The id it has.
        given: String,
        /// The id in the body.
        in_body: String,
    },
    /// The partition key is not allowed.
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
    /// The key given beside the body is not the one in the body.
    #[error(
        "PartitionKey extracted from document doesn't match the one specified in the header. \
         It is {in_body}, not {given}; send the key the item has (wrong-pk-value)"
    )]
    PartitionKeyMismatch {
        /// As the caller said.
        given: String,
        /// As the body says.
        in_body: String,
    },
    /// A time to live of zero, of null, or below -1.
    #[error("ttl must be -1, or 1 to 2147483647; leave it out for the container's default")]
    Ttl,
    /// There is an item of that id already.
    #[error("item {id} already exists; replace or upsert it")]
    AlreadyExists {
        /// The id.
        id: String,
    },
    /// Another item has the same values where they must be unique.
    #[error("item {id} would have the same unique key as item {other}; change its values")]
    UniqueKey {
        /// The item that was to be written.
        id: String,
        /// The item that has the values.
        other: String,
    },
    /// There is no such item.
    #[error("item {id} does not exist; check its id and partition key, or create it")]
    NotFound {
        /// The id.
        id: String,
    },
    /// The item has changed since the caller read it.
    #[error("item {id} was changed by someone else, its etag is now {current}; read it again")]
    EtagMismatch {
        /// The id.
        id: String,
        /// The etag it has.
        current: Etag,
    },
    /// The condition of a patch is false for the item.
    #[error("the condition of the patch does not hold for item {id}; read it again")]
    ConditionFalse {
        /// The id.
        id: String,
    },
    /// The condition of a patch could not be evaluated.
    #[error("the condition of the patch cannot be evaluated: {0}")]
    Condition(String),
    /// The patch cannot be applied.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// Somebody else has changed what a transaction has read.
    #[error("someone else has changed what the transaction has read; run it again")]
    Outdated,
    /// A batch without operations.
    #[error("the batch has no operations; add at least one")]
    EmptyBatch,
    /// A batch with too many operations.
    #[error("the batch has {count} operations; at most {limit} are one transaction")]
    TooManyOperations {
        /// How many.
        count: usize,
        /// The most.
        limit: usize,
    },
    /// A batch with too many bytes.
    #[error("the batch has {bytes} bytes; the limit is {limit}, so split it")]
    BatchTooLarge {
        /// How many.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// A transaction whose items, before or after it, are too large for one page of the change feed.
    #[error(
        "the items that the transaction writes, or those that it replaces or deletes, have more than {limit} \
         bytes; readers of the change feed get them on one page, so split it"
    )]
    TransactionTooLarge {
        /// The most, for each of the two.
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
    /// What the caller should do next. A new variant does not compile until it has an answer.
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

/// Why a transactional batch did not happen. Nothing of it was applied.
#[derive(Debug, thiserror::Error)]
#[error("operation {index} of the batch failed, nothing was applied: {error}")]
pub struct BatchError {
    /// Which operation failed; 0 when the batch as a whole is wrong.
    pub index: usize,
    /// Why.
    #[source]
    pub error: WriteError,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ItemReadError {
    /// The id is not allowed.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The partition key is not allowed.
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
    /// The range was split or merged away.
    #[error("range {0} is gone; list the ranges again")]
    RangeGone(PartitionId),
    /// A position that no scan of this container has returned.
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

/// Why a page of the change feed could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The range was split or merged away.
    #[error("range {0} is gone; list the ranges again and go on in those that replaced it")]
    RangeGone(PartitionId),
    /// Nothing is in range, partition key and bounds at once.
    #[error("range, partition key and bounds do not overlap; leave one of them out")]
    EmptyScope,
    /// The partition key is not allowed.
    #[error(transparent)]
    PartitionKey(#[from] PartitionKeyError),
    /// The position is of another container.
    #[error("the position belongs to another container; start again without it")]
    WrongContainer,
    /// The position does not say where to go on in part of the scope.
    #[error(
        "the position does not cover all of {0}; start that part from the beginning or from now"
    )]
    PositionMissing(KeyRange),
    /// The position is above the newest LSN: it is of another container, or a power cut took writes that
    /// were not durable.
    #[error(
        "position {asked} is ahead of the newest change, {newest}: it is of another container, or a \
         power cut took its changes (durability os). Start again without it"
    )]
    PositionAhead {
        /// The position.
        asked: Lsn,
        /// The newest there is.
        newest: Lsn,
    },
    /// All versions were asked for from a position that is no longer kept.
    #[error(
        "changes after {asked} are no longer kept in all versions: up to {missing} of them (LSNs) are \
         missing. The oldest kept position is {}. Resume from there, or read latest versions",
        position.to_string().trim_matches('"')
    )]
    BeforeRetention {
        /// The position, in the range that is furthest behind.
        asked: Lsn,
        /// The oldest position that is complete there.
        oldest: Lsn,
        /// The oldest position that is complete in everything the request is about.
        position: Box<Continuation>,
        /// LSNs between the positions asked for and the oldest kept ones. Some of them may still have
        /// live versions.
        missing: u64,
    },
    /// All versions can only be read from the oldest kept, from now or from a position.
    #[error(
        "all versions and deletes are read from the oldest kept change, from now or from a position, \
         not from {0}"
    )]
    UnsupportedStart(&'static str),
    /// The filter asks for what latest versions do not tell.
    #[error("latest versions do not tell {0}; read all versions and deletes, or filter otherwise")]
    FilterNeedsAllVersions(&'static str),
    /// The filter could not be evaluated on a change.
    #[error("the filter cannot be evaluated on the change at {lsn}: {error}")]
    FilterFailed {
        /// Where the change is.
        lsn: Lsn,
        /// What is wrong.
        error: EvaluationError,
    },
    /// The page is larger than the reader takes, because a transaction on it is: see
    /// [`FeedRequest::refuse_above`](crate::FeedRequest::refuse_above).
    #[error(
        "the page has more than {limit} bytes; read it with a higher limit, as a transaction is never cut"
    )]
    LargePage {
        /// The most bytes the reader takes.
        limit: usize,
    },
    /// The positions of the page do not fit into one continuation.
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
