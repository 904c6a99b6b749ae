//! Incremental backups of a store in use, and verified restores.
//!
//! ```text
//! cut       a snapshot: the catalog, and every partition at one exact LSN; writes continue
//! copy      copies a cut, from here or from a server, to a place: first the parts, last their list
//! contents  that list, BACKUP.json: the parts of each file, and the state of every partition
//! restore   writes the files, checks each part, opens the store and compares its state with the list
//! ```
//!
//! A place holds one backup: the newest complete one. It stays valid until its list is replaced; its parts
//! are not changed or removed earlier. A part that the place has is not copied again.

mod contents;
mod copy;
mod cut;
mod restore;

pub use contents::{BackupPartition, BackupSummary};
pub use copy::{BackupProgress, BackupSource, CopyOptions, PART_BYTES, copy_backup};
pub use cut::{BackupCut, BackupFile, BackupPlan};
pub use restore::{RestoredPartition, restore, restore_partition};

use crate::account::Account;
use crate::error::{OpenError, StorageError};
use headwater_log::ReadError;
use object_store::ObjectStore;

/// Errors of making or restoring a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Reading the store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Reading from the server failed.
    #[error("cannot read from the server; what was copied is kept: start the backup again")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer of the server is not part of a backup.
    #[error("the server's answer is no backup: {0}; check its version")]
    Answer(String),
    /// The place of the backup cannot be read or written.
    #[error("cannot read or write the place of the backup")]
    Place(#[from] object_store::Error),
    /// Another backup has replaced the list of the place meanwhile.
    #[error(
        "another backup into the same place was completed meanwhile and is the valid one. If this snapshot \
         matters, back up again, one backup at a time: copied parts are kept"
    )]
    Overtaken,
    /// There is no backup, it is not finished, or its list is not valid.
    #[error("there is no complete backup here: {0}")]
    Contents(String),
    /// A file of the backup differs from what was written.
    #[error(
        "{file} of the backup is damaged: {what}. Restore another backup, or repair this one from the \
         running server with `headwater backup --verify`"
    )]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// The directory to restore into is not empty.
    #[error("{0} is not empty; restore into a new directory")]
    NotEmpty(String),
    /// The restored files could not be written.
    #[error("cannot write the restored files")]
    Io(#[from] std::io::Error),
    /// The restored store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The restored partition differs from the backup.
    #[error(
        "partition {partition} of container {container} differs from the backup after restoring; restore \
         another backup and report this"
    )]
    StateDiffers {
        /// The container's resource id.
        container: String,
        /// The partition.
        partition: u32,
    },
}

impl From<ReadError> for BackupError {
    fn from(error: ReadError) -> BackupError {
        BackupError::Storage(error.into())
    }
}

impl Account {
    /// Copies a snapshot of the whole store to an object store, under `prefix`. Writes continue meanwhile. A
    /// second backup to the same place copies only new parts.
    ///
    /// # Errors
    /// When reading or copying fails. The last complete backup of the place stays valid.
    pub async fn backup(
        &self,
        place: &dyn ObjectStore,
        prefix: &str,
    ) -> Result<BackupSummary, BackupError> {
        let cut = self.begin_backup().await?;
        copy_backup(&cut, place, prefix, CopyOptions::default(), &mut |_| ()).await
    }

    /// A hash over the state of the whole store, comparable with [`BackupSummary::state_hash`].
    ///
    /// # Errors
    /// When reading fails.
    pub fn state_hash(&self) -> Result<String, StorageError> {
        Ok(contents::state_hash(&self.partition_states()?))
    }
}
