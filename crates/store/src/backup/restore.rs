//! Restores a backup, whole or one partition of it.
//!
//! Restoring writes the files, checks each part, opens the store (which builds the index from the logs) and
//! compares the state of every partition: what was restored is what was there. A directory whose restore was
//! not finished says so in a file, and does not open.

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

/// Restores a backup into a new directory, proves that it is what was backed up, and opens it.
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
    // Without maintenance: it would delete what has expired and split what is large before it is compared.
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

/// A partition that was taken from a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoredPartition {
    /// The newest change in the backup. Everything behind it is lost to the store.
    pub lsn: Lsn,
    /// Changes behind it that the damaged files still had.
    pub newer_changes: u64,
    /// The newest of them.
    pub newest: Lsn,
    /// Where the damaged files are now.
    pub damaged_files: PathBuf,
}

/// Puts the files of a backup in the place of a partition's, in a data directory that is not open.
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
        // It was the directory that was lost, or this was interrupted once already.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        other => other?,
    }
    std::fs::rename(&fresh, &dir)?;
    OsDisk.sync_dir(dir.parent().unwrap_or(data))?;
    crate::index::doubt_files(&data.join(crate::index::INDEX))?;
    Ok(RestoredPartition { lsn, newer_changes, newest, damaged_files })
}

/// Writes a file of a backup part by part, each checked.
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
