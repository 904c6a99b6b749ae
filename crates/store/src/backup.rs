//! Backup while writing, and restore with proof.
//!
//! A backup is a consistent cut: the catalog first, then every partition at one exact LSN, taken by its
//! own writer between two groups. The files are copied afterwards, while writes go on; nothing of what
//! comes later is in them. `BACKUP.json` is written last and lists every file with its checksum and a
//! hash of the state of every partition, so a backup without it is no backup.
//!
//! Restoring copies the files, checks each, opens the store (which builds the index from the logs) and
//! compares the state hashes: what was restored is what was there.

use crate::account::{Account, Options};
use crate::container::ContainerState;
use crate::error::{OpenError, StorageError};
use crate::index::IndexView;
use crate::partition::{Answer, Cut, Refusal, Work};
use crate::{directory, keys};
use headwater_log::disk::{Disk, OsDisk};
use headwater_log::{ReadError, Snapshot, SnapshotFile, private};
use headwater_model::{ContainerRid, KeyRange, Lsn, PartitionId};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectStore, PutOptions, PutPayload};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

const FORMAT: u32 = 1;
const CONTENTS: &str = "BACKUP.json";

/// Why a backup could not be made or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Reading the store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The place of the backup failed.
    #[error("the backup's place failed")]
    Place(#[from] object_store::Error),
    /// There is no backup, or it is not finished, or it is not one of ours.
    #[error("there is no complete backup here: {0}")]
    Contents(String),
    /// A file of the backup is not what was written.
    #[error("{file} of the backup is damaged: {what}")]
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
        "partition {partition} of container {container} differs from the backup after restoring"
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

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupSummary {
    /// Partitions in it.
    pub partitions: usize,
    /// Items in it.
    pub items: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// One hash over the state of everything in it.
    pub state_hash: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    format: u32,
    files: Vec<FileEntry>,
    partitions: Vec<PartitionState>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FileEntry {
    path: String,
    bytes: u64,
    xxh3: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartitionState {
    container: u64,
    partition: u32,
    range: KeyRange,
    lsn: u64,
    items: u64,
    state: String,
}

impl Contents {
    fn summary(&self) -> BackupSummary {
        let mut hash = Xxh3::new();
        for partition in &self.partitions {
            hash.update(&partition.container.to_le_bytes());
            hash.update(partition.state.as_bytes());
        }
        BackupSummary {
            partitions: self.partitions.len(),
            items: self.partitions.iter().map(|partition| partition.items).sum(),
            bytes: self.files.iter().map(|file| file.bytes).sum(),
            state_hash: format!("{:032x}", hash.digest128()),
        }
    }
}

/// Everything that is in the range, as one hash over keys and the versions they have.
fn state_of(
    index: &dyn IndexView,
    container: ContainerRid,
    range: &KeyRange,
) -> Result<(u64, String), StorageError> {
    let (from, to) = keys::items_in(container, range);
    let mut hash = Xxh3::new();
    let mut items = 0;
    index.scan(&from, &to, &mut |key, row| {
        // In the form that keys had when the first backups were made, and their hashes with them.
        let rest = keys::behind_kind(key);
        hash.update(&(rest.len() as u64 + 9).to_le_bytes());
        hash.update(&container.as_u64().to_be_bytes());
        hash.update(b"i");
        hash.update(rest);
        hash.update(row);
        items += 1;
        true
    })?;
    Ok((items, format!("{:032x}", hash.digest128())))
}

impl Account {
    /// Copies everything, as it is at this moment, under `prefix` of an object store. Writes go on.
    ///
    /// # Errors
    /// When reading or copying fails; the backup is not complete then.
    pub async fn backup(
        &self,
        place: &dyn ObjectStore,
        prefix: &str,
    ) -> Result<BackupSummary, BackupError> {
        let mut containers = self.open_container_states();
        // In the order of a state hash, which is compared with the one of this backup.
        containers.sort_by_key(|container| container.rid);
        let mut held = Vec::new();
        for container in &containers {
            held.push(container.reshaping.lock().await);
        }
        let catalog = self.0.catalog.log().snapshot();
        let mut cuts = Vec::new();
        for container in &containers {
            cuts.extend(cut(container).await?);
        }
        drop(held);

        let mut contents = Contents { format: FORMAT, files: Vec::new(), partitions: Vec::new() };
        copy(place, prefix, "catalog", &catalog, &mut contents).await?;
        for (container, id, range, cut) in cuts {
            let (items, state) = state_of(&*cut.index, container, &range)?;
            let dir = format!("containers/{:016x}/{:08}", container.as_u64(), id.get());
            copy(place, prefix, &dir, &cut.log, &mut contents).await?;
            contents.partitions.push(PartitionState {
                container: container.as_u64(),
                partition: id.get(),
                range,
                lsn: cut.log.lsn.get(),
                items,
                state,
            });
        }
        let json = serde_json::to_vec_pretty(&contents)
            .map_err(|error| BackupError::Contents(error.to_string()))?;
        put(place, &object_path(prefix, CONTENTS), json).await?;
        Ok(contents.summary())
    }

    /// One hash over the state of everything in the store, comparable with a backup's.
    ///
    /// # Errors
    /// When reading fails.
    pub fn state_hash(&self) -> Result<String, StorageError> {
        let mut contents = Contents { format: FORMAT, files: Vec::new(), partitions: Vec::new() };
        contents.partitions = self.partition_states()?;
        Ok(contents.summary().state_hash)
    }

    fn partition_states(&self) -> Result<Vec<PartitionState>, StorageError> {
        let mut states = Vec::new();
        let mut containers = self.open_container_states();
        containers.sort_by_key(|container| container.rid);
        for container in containers {
            for partition in &container.topology().partitions {
                partition.check_served()?;
                let (items, state) =
                    state_of(&*container.shared.index, container.rid, &partition.range)?;
                states.push(PartitionState {
                    container: container.rid.as_u64(),
                    partition: partition.id.get(),
                    range: partition.range.clone(),
                    lsn: partition.visible().get(),
                    items,
                    state,
                });
            }
        }
        Ok(states)
    }
}

type PartitionCut = (ContainerRid, PartitionId, KeyRange, Cut);

async fn cut(container: &Arc<ContainerState>) -> Result<Vec<PartitionCut>, BackupError> {
    let mut cuts = Vec::new();
    for partition in &container.topology().partitions {
        partition.check_served()?;
        match partition.submit(Work::Cut).await {
            Ok(Answer::Cut(cut)) => {
                cuts.push((container.rid, partition.id, partition.range.clone(), cut));
            }
            Err(Refusal::Storage(error)) => return Err(error.into()),
            _ => return Err(StorageError::Closed.into()),
        }
    }
    Ok(cuts)
}

fn object_path(prefix: &str, path: &str) -> ObjectPath {
    ObjectPath::from(format!("{prefix}/{path}"))
}

async fn put(
    place: &dyn ObjectStore,
    path: &ObjectPath,
    bytes: Vec<u8>,
) -> Result<(), BackupError> {
    place.put_opts(path, PutPayload::from(bytes), PutOptions::default()).await?;
    Ok(())
}

async fn copy(
    place: &dyn ObjectStore,
    prefix: &str,
    dir: &str,
    snapshot: &Snapshot,
    contents: &mut Contents,
) -> Result<(), BackupError> {
    for file in &snapshot.files {
        let bytes = read_whole(file)?;
        let path = format!("{dir}/{}", file.name);
        contents.files.push(FileEntry {
            bytes: bytes.len() as u64,
            xxh3: checksum(&bytes),
            path: path.clone(),
        });
        put(place, &object_path(prefix, &path), bytes).await?;
    }
    Ok(())
}

fn read_whole(file: &SnapshotFile) -> Result<Vec<u8>, BackupError> {
    let mut bytes = vec![0; usize::try_from(file.len()).unwrap_or(usize::MAX)];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

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
    let contents = read_contents(place, prefix).await?;
    directory::prepare(dir)?;
    for file in &contents.files {
        let target = dir.join(safe_path(&file.path)?);
        let bytes = get(place, &object_path(prefix, &file.path)).await?;
        if let Some(parent) = target.parent() {
            private::create_dir_all(parent)?;
        }
        write_checked(file, &bytes, &target)?;
    }
    let account = Account::open(dir, options).await?;
    let restored = account.partition_states()?;
    for expected in &contents.partitions {
        if !restored.contains(expected) {
            return Err(BackupError::StateDiffers {
                container: format!("{:016x}", expected.container),
                partition: expected.partition,
            });
        }
    }
    Ok((account, contents.summary()))
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
    let _lock = lock_data(data)?;
    let contents = read_contents(place, prefix).await?;
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
    let path = format!("containers/{:016x}/{:08}", container.as_u64(), partition.get());
    let dir = data.join(&path);
    let fresh = dir.with_extension("restoring");
    OsDisk.remove_dir(&fresh)?;
    OsDisk.create_dir(&fresh)?;
    let of_partition = contents
        .files
        .iter()
        .filter_map(|file| Some((file, file.path.strip_prefix(&path)?.strip_prefix('/')?)));
    for (file, name) in of_partition {
        let bytes = get(place, &object_path(prefix, &file.path)).await?;
        write_checked(file, &bytes, &fresh.join(safe_path(name)?))?;
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

/// Keeps other processes out of a data directory.
pub(crate) fn lock_data(data: &Path) -> Result<File, OpenError> {
    let io = |source| OpenError::Io { dir: data.to_owned(), source };
    let lock = File::create(data.join("LOCK")).map_err(io)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::Locked { dir: data.to_owned() }),
        Err(std::fs::TryLockError::Error(error)) => Err(io(error)),
    }
}

fn write_checked(file: &FileEntry, bytes: &[u8], target: &Path) -> Result<(), BackupError> {
    if bytes.len() as u64 != file.bytes || checksum(bytes) != file.xxh3 {
        let what = "its size or checksum is not the one that was written".to_owned();
        return Err(BackupError::Damaged { file: file.path.clone(), what });
    }
    let written = private::options().write(true).create(true).truncate(true).open(target)?;
    std::os::unix::fs::FileExt::write_all_at(&written, bytes, 0)?;
    Ok(written.sync_all()?)
}

async fn read_contents(place: &dyn ObjectStore, prefix: &str) -> Result<Contents, BackupError> {
    let bytes = match get(place, &object_path(prefix, CONTENTS)).await {
        Err(BackupError::Place(object_store::Error::NotFound { .. })) => {
            return Err(BackupError::Contents(format!("{CONTENTS} is missing")));
        }
        other => other?,
    };
    let contents: Contents =
        serde_json::from_slice(&bytes).map_err(|error| BackupError::Contents(error.to_string()))?;
    if contents.format != FORMAT {
        let what = format!("its format is {}, this version reads {FORMAT}", contents.format);
        return Err(BackupError::Contents(what));
    }
    Ok(contents)
}

async fn get(place: &dyn ObjectStore, path: &ObjectPath) -> Result<Vec<u8>, BackupError> {
    let result = place.get_opts(path, GetOptions::default()).await?;
    Ok(result.bytes().await?.to_vec())
}

/// A path inside the directory, whatever the contents say.
fn safe_path(path: &str) -> Result<&Path, BackupError> {
    let path = Path::new(path);
    if path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(path);
    }
    Err(BackupError::Contents(format!("{} is not a path inside a backup", path.display())))
}
