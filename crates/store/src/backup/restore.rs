//! Restores a backup, whole or one partition of it.
//!
//! A restore writes the files and checks each part. It then opens the store, which builds the index from the
//! logs, and compares the state of every partition with the backup. A file marks a directory whose restore is
//! not finished; such a directory does not open. Never changes a backup.

use super::BackupError;
use super::contents::{Contents, FileEntry, get_part, partition_dir, safe_path};
use crate::BackupSummary;
use crate::account::{Account, Options};
use crate::directory;
use headwater_log::disk::{Disk, OsDisk};
use headwater_log::private;
use headwater_model::{ContainerRid, Lsn, PartitionId};
use object_store::ObjectStore;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Restores a backup into a new directory, verifies its state, and opens it.
///
/// # Errors
/// When the backup is incomplete or damaged, or the directory is not empty or cannot be written.
pub async fn restore(
    place: &dyn ObjectStore,
    prefix: &str,
    dir: &Path,
    options: Options,
) -> Result<(Account, BackupSummary), BackupError> {
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(BackupError::NotEmpty(dir.display().to_string()));
    }
    let contents = Contents::load(place, prefix).await?;
    directory::prepare(dir)?;
    let lock = directory::lock(dir)?;
    directory::mark_unfinished(dir)?;
    for file in &contents.files {
        let target = dir.join(file.safe_path()?);
        if let Some(parent) = target.parent() {
            private::create_dir_all(parent)?;
        }
        write_file(place, prefix, file, &target).await?;
    }
    drop(lock);
    // Without maintenance, which would delete expired items and split ranges before the comparison.
    let quiet = Options { maintenance_interval: Duration::ZERO, ..options.clone() };
    let account = Account::open_unfinished(dir, quiet).await?;
    let restored = account.partition_states()?;
    account.close().await?;
    for expected in &contents.partitions {
        if !restored.contains(expected) {
            return Err(BackupError::StateDiffers {
                container: format!("{:016x}", expected.container),
                partition: expected.partition,
            });
        }
    }
    directory::mark_finished(dir)?;
    Ok((Account::open(dir, options).await?, contents.summary(0)))
}

/// Result of restoring one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoredPartition {
    /// The newest change in the backup. Later changes are lost to the store.
    pub lsn: Lsn,
    /// Later changes that were readable in the damaged files.
    pub newer_changes: u64,
    /// The newest of these changes.
    pub newest: Lsn,
    /// The directory the damaged files were moved to.
    pub damaged_files: PathBuf,
}

/// Replaces the files of a partition by those of a backup, in a data directory that is not open.
///
/// The damaged files are kept next to them. The index is rebuilt at the next open.
///
/// # Errors
/// When the data directory is open, the backup does not have the partition or is damaged, or files
/// cannot be written.
pub async fn restore_partition(
    place: &dyn ObjectStore,
    prefix: &str,
    data: &Path,
    container: ContainerRid,
    partition: PartitionId,
) -> Result<RestoredPartition, BackupError> {
    let _lock = directory::lock(data)?;
    let contents = Contents::load(place, prefix).await?;
    let state = contents
        .partitions
        .iter()
        .find(|state| state.container == container.as_u64() && state.partition == partition.get());
    let state = state.ok_or_else(|| {
        let container = container.as_u64();
        BackupError::Contents(format!(
            "it has no partition {partition} of container {container:016x}"
        ))
    })?;
    let lsn = Lsn::new(state.lsn);
    let path = partition_dir(container, partition);
    let dir = data.join(&path);
    let fresh = dir.with_extension("restoring");
    OsDisk.remove_dir(&fresh)?;
    OsDisk.create_dir(&fresh)?;
    let of_partition = contents
        .files
        .iter()
        .filter_map(|file| Some((file, file.path.strip_prefix(&path)?.strip_prefix('/')?)));
    for (file, name) in of_partition {
        write_file(place, prefix, file, &fresh.join(safe_path(name)?)).await?;
    }
    OsDisk.sync_dir(&fresh)?;
    let (mut newer_changes, mut newest) = (0, lsn);
    let mut count = |record: &headwater_log::Record| {
        if record.position.lsn > lsn {
            newer_changes += 1;
            newest = newest.max(record.position.lsn);
        }
    };
    headwater_log::salvage::inspect(&OsDisk, &dir, &mut count, &mut |_| ());
    let damaged_files = (1..)
        .map(|number: u32| dir.with_extension(format!("damaged-{number}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| dir.with_extension("damaged"));
    match std::fs::rename(&dir, &damaged_files) {
        // The directory was lost, or an earlier attempt was interrupted after the rename.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        other => other?,
    }
    std::fs::rename(&fresh, &dir)?;
    OsDisk.sync_dir(dir.parent().unwrap_or(data))?;
    crate::index::doubt_files(&data.join(crate::index::INDEX))?;
    Ok(RestoredPartition { lsn, newer_changes, newest, damaged_files })
}

/// Writes a file of a backup part by part, and verifies each.
async fn write_file(
    place: &dyn ObjectStore,
    prefix: &str,
    file: &FileEntry,
    target: &Path,
) -> Result<(), BackupError> {
    let written = private::options().write(true).create(true).truncate(true).open(target)?;
    let mut offset = 0;
    for part in &file.parts {
        let bytes = get_part(place, prefix, part).await?;
        std::os::unix::fs::FileExt::write_all_at(&written, &bytes, offset)?;
        offset += part.bytes;
    }
    Ok(written.sync_all()?)
}
