//! Backup of a store in use, incremental, and restore with proof.
//!
//! ```text
//! cut       a moment: the catalog, and every partition at one exact LSN; writes continue
//! copy      a cut, here or on a server, into a place: parts first, the list of them last
//! contents  that list, BACKUP.json: which parts make up which file, and the state of every partition
//! restore   the files of a backup, each part checked, opened, and compared with the state in the list
//! ```
//!
//! A place holds one backup, the newest that is complete. Until its list is replaced, the one before can be
//! restored: no part of it is changed or removed earlier. A part that the place has is not copied again.

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
    /// The server sent something that is no backup.
    #[error("the server's answer is no backup: {0}; check its version")]
    Answer(String),
    /// Reading or writing the place of the backup failed.
    #[error("cannot read or write the place of the backup")]
    Place(#[from] object_store::Error),
    /// Another backup replaced the list of the place meanwhile.
    #[error(
        "another backup into the same place was completed meanwhile and counts. Back up again if this moment \
         matters, one at a time: what was copied is kept"
    )]
    Overtaken,
    /// There is no backup, or it is not finished, or it is not one of ours.
    #[error("there is no complete backup here: {0}")]
    Contents(String),
    /// A file of the backup is not what was written.
    #[error(
        "{file} of the backup is damaged: {what}. Restore another backup, or repair this one from the \
         running server with `headwater backup --verify`"
    )]
    Damaged {
        /// The file.
        file: String,
        /// What was wrong with it.
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
    /// What was restored is not what was there.
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
    /// Copies everything, as it is at this moment, under `prefix` of an object store. Writes go on. A
    /// second backup to the same place copies only what is new.
    ///
    /// # Errors
    /// When reading or copying fails; the last complete backup of the place stays as it is.
    pub async fn backup(
        &self,
        place: &dyn ObjectStore,
        prefix: &str,
    ) -> Result<BackupSummary, BackupError> {
        let cut = self.begin_backup().await?;
        copy_backup(&cut, place, prefix, CopyOptions::default(), &mut |_| ()).await
    }

    /// One hash over the state of everything in the store, comparable with a backup's.
    ///
    /// # Errors
    /// When reading fails.
    pub fn state_hash(&self) -> Result<String, StorageError> {
        Ok(contents::state_hash(&self.partition_states()?))
    }
}
