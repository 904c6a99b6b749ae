//! Quarantine: a partition with damaged files is set aside, and all others are served.
//!
//! A quarantined partition stays in the container's topology. Every request that needs it fails with
//! [`StorageError::Quarantined`], which names the file and the remedy; no answer omits its items silently.
//! This file decides which errors quarantine a partition. It repairs nothing.
//!
//! A partition is quarantined when it cannot be opened, or when its rows of a failed index cannot be rebuilt
//! because its log is damaged too (see `rebuild`). It stays quarantined until the store is opened again.

use crate::account::Account;
use crate::container::ContainerState;
use crate::error::{OpenError, StorageError};
use headwater_log::{Damage, OpenError as LogOpenError, ReadError};
use headwater_model::{ContainerId, PartitionId};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a partition is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error(
    "partition {partition} of container {container} is quarantined: {damage}. Other partitions are \
     served. Stop the server and run `headwater doctor --data {}`: it says what is lost, takes the \
     partition from a backup or exports what is readable", data.display()
)]
pub struct Quarantine {
    /// The container.
    pub container: ContainerId,
    /// The partition.
    pub partition: PartitionId,
    /// The data directory.
    pub data: PathBuf,
    /// The damage: file, offset and description.
    pub damage: Damage,
}

impl Quarantine {
    /// Creates the quarantine of a partition from the error that caused it, and logs it.
    ///
    /// # Errors
    /// Returns errors that are not about this partition.
    pub(crate) fn new(
        container: &ContainerState,
        partition: PartitionId,
        error: OpenError,
    ) -> Result<Arc<Quarantine>, OpenError> {
        let dir = container.shared.partition_dir(container.rid, partition);
        let quarantine = Quarantine {
            container: container.settings.read().definition.id().clone(),
            partition,
            data: container.shared.root.clone(),
            damage: damage_of(error, &dir)?,
        };
        tracing::error!("{quarantine}");
        Ok(Arc::new(quarantine))
    }
}

/// The damage that prevents one partition from being opened.
///
/// # Errors
/// Returns errors that are not about this partition: a full disk, a failing index, a newer format.
pub(crate) fn damage_of(error: OpenError, dir: &Path) -> Result<Damage, OpenError> {
    let unreadable = |file: String, source: &io::Error| Damage {
        file,
        offset: 0,
        lsn: None,
        what: format!("cannot be read: {source}"),
    };
    match error {
        OpenError::Damaged(damage)
        | OpenError::Log(LogOpenError::Damaged(damage))
        | OpenError::Storage(StorageError::Damaged(damage)) => Ok(damage),
        OpenError::Log(LogOpenError::WrongPartition { expected, found, .. }) => Ok(Damage {
            file: dir.join("MANIFEST").display().to_string(),
            offset: 12,
            lsn: None,
            what: format!("it belongs to partition {found}, not to {expected}"),
        }),
        OpenError::Log(LogOpenError::Io { dir, source }) if is_about_one_file(&source) => {
            Ok(unreadable(dir.display().to_string(), &source))
        }
        OpenError::Storage(StorageError::Read(ReadError::Io { file, source }))
            if is_about_one_file(&source) =>
        {
            Ok(unreadable(file, &source))
        }
        other => Err(other),
    }
}

/// Whether an I/O error is about a single file, not about the whole machine.
pub(crate) fn is_about_one_file(error: &io::Error) -> bool {
    /// Too many open files, in this process or on this machine.
    const NO_FILE_HANDLES: [i32; 2] = [24, 23];
    let machine_wide = [
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::OutOfMemory,
    ];
    !machine_wide.contains(&error.kind())
        && !error.raw_os_error().is_some_and(|code| NO_FILE_HANDLES.contains(&code))
}

impl Account {
    /// The partitions that are not served because their files are damaged.
    #[must_use]
    pub fn quarantined(&self) -> Vec<Arc<Quarantine>> {
        let mut found = Vec::new();
        for container in self.open_container_states() {
            let topology = container.topology();
            found.extend(topology.partitions.iter().filter_map(|one| one.quarantine().cloned()));
        }
        found.sort_by(|one, two| one.damage.file.cmp(&two.damage.file));
        found
    }
}
