//! A consistent snapshot of a whole store, held for a backup.
//!
//! Holds the catalog and every partition at one exact LSN, taken by the partition's writer between two
//! groups. Compaction, splits and drops may replace the files meanwhile; the cut keeps them readable until it
//! is dropped. Later writes are not part of it.

use super::contents::{BackupPartition, checksum};
use super::copy::BackupSource;
use super::{BackupError, contents};
use crate::account::Account;
use crate::container::ContainerState;
use crate::error::StorageError;
use crate::index::IndexView;
use crate::keys;
use crate::partition::{Answer, Refusal, Work};
use bytes::Bytes;
use headwater_log::{Snapshot, SnapshotFile};
use headwater_model::{ContainerRid, KeyRange};
use headwater_runtime::Runtime;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// The files and partitions to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupPlan {
    /// The files, in any order.
    pub files: Vec<BackupFile>,
    /// The number of partitions, each with a state to compare.
    pub partitions: usize,
}

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupFile {
    /// Its path in the data directory.
    pub path: String,
    /// The length of the file.
    pub bytes: u64,
    /// Equal for two files of the same path and length only if their bytes are equal.
    pub identity: Option<String>,
}

/// A snapshot of a store, with the files it needs.
pub struct BackupCut {
    plan: BackupPlan,
    files: Vec<SnapshotFile>,
    partitions: Vec<Mutex<PartitionCut>>,
    runtime: Runtime,
}

impl std::fmt::Debug for BackupCut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackupCut").field("files", &self.files.len()).finish_non_exhaustive()
    }
}

/// A partition, and its index rows until its state is computed.
struct PartitionCut {
    container: ContainerRid,
    state: BackupPartition,
    rows: Option<Arc<dyn IndexView>>,
}

impl Account {
    /// Takes a snapshot of the whole store, to be copied while writes continue.
    ///
    /// # Errors
    /// When a partition is quarantined or the store fails.
    pub async fn begin_backup(&self) -> Result<BackupCut, BackupError> {
        // The lock order everywhere: no container is created or dropped, and no range split or merged.
        let _creating = self.0.creating.lock().await;
        let mut containers = self.open_container_states();
        // The order of the state hash, which is compared with that of this backup.
        containers.sort_by_key(|container| container.rid);
        let mut reshaping = Vec::new();
        for container in &containers {
            reshaping.push(container.reshaping.lock().await);
        }
        let _catalog = self.0.catalog.hold().await;
        let resources = self.0.catalog.resources();
        let mut cut = BackupCut {
            plan: BackupPlan::default(),
            files: Vec::new(),
            partitions: Vec::new(),
            runtime: self.0.shared.runtime.clone(),
        };
        cut.add("catalog", self.0.catalog.log().snapshot());
        for container in &containers {
            // A container that was dropped may still be closing.
            if resources.containers.contains_key(&container.rid.as_u64()) {
                cut.add_container(container).await?;
            }
        }
        cut.plan.partitions = cut.partitions.len();
        Ok(cut)
    }

    pub(super) fn partition_states(&self) -> Result<Vec<BackupPartition>, StorageError> {
        let mut states = Vec::new();
        let mut containers = self.open_container_states();
        containers.sort_by_key(|container| container.rid);
        for container in containers {
            for partition in &container.topology().partitions {
                partition.check_served()?;
                let (items, state) =
                    state_of(&*container.shared.index, container.rid, &partition.range)?;
                states.push(BackupPartition {
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

impl BackupCut {
    /// The files and partitions to copy.
    #[must_use]
    pub fn plan(&self) -> &BackupPlan {
        &self.plan
    }

    /// Reads bytes of a file, with their checksum. `None` if the cut has no such file or bytes.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<(Bytes, String)>, BackupError> {
        let Some(file) = self.files.get(file) else { return Ok(None) };
        if offset.checked_add(bytes as u64).is_none_or(|end| end > file.len()) {
            return Ok(None);
        }
        let mut buffer = vec![0; bytes];
        self.runtime.blocking(|| file.read_at(&mut buffer, offset))?;
        let checksum = checksum(&buffer);
        Ok(Some((buffer.into(), checksum)))
    }

    /// The state of a partition. The first call reads the row of every item.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn partition(&self, number: usize) -> Result<Option<BackupPartition>, BackupError> {
        let Some(partition) = self.partitions.get(number) else { return Ok(None) };
        self.runtime.blocking(|| {
            let mut partition = partition.lock();
            if let Some(rows) = &partition.rows {
                let range = &partition.state.range;
                let (items, state) = state_of(&**rows, partition.container, range)?;
                (partition.state.items, partition.state.state) = (items, state);
                partition.rows = None;
            }
            Ok(Some(partition.state.clone()))
        })
    }

    async fn add_container(&mut self, container: &Arc<ContainerState>) -> Result<(), BackupError> {
        for partition in &container.topology().partitions {
            partition.check_served()?;
            let cut = match partition.submit(Work::Cut).await {
                Ok(Answer::Cut(cut)) => cut,
                Err(Refusal::Storage(error)) => return Err(error.into()),
                _ => return Err(StorageError::Closed.into()),
            };
            let state = BackupPartition {
                container: container.rid.as_u64(),
                partition: partition.id.get(),
                range: partition.range.clone(),
                lsn: cut.log.lsn.get(),
                items: 0,
                state: String::new(),
            };
            let dir = contents::partition_dir(container.rid, partition.id);
            self.add(&dir, cut.log);
            let (container, rows) = (container.rid, Some(cut.index));
            self.partitions.push(Mutex::new(PartitionCut { container, state, rows }));
        }
        Ok(())
    }

    fn add(&mut self, dir: &str, snapshot: Snapshot) {
        for file in snapshot.files {
            self.plan.files.push(BackupFile {
                path: format!("{dir}/{}", file.name),
                bytes: file.len(),
                identity: file.identity.clone(),
            });
            self.files.push(file);
        }
    }
}

impl BackupSource for BackupCut {
    fn plan(&self) -> &BackupPlan {
        &self.plan
    }

    async fn partition(&self, number: usize) -> Result<BackupPartition, BackupError> {
        let found = BackupCut::partition(self, number)?;
        found.ok_or_else(|| BackupError::Answer(format!("it has no partition {number}")))
    }

    async fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> Result<Option<Bytes>, BackupError> {
        let found = BackupCut::read(self, file, offset, bytes)?;
        let (bytes, checksum) =
            found.ok_or_else(|| BackupError::Answer(format!("file {file} ends early")))?;
        Ok((known != Some(checksum.as_str())).then_some(bytes))
    }
}

/// The number of items in a range, and a hash over their keys and versions.
fn state_of(
    index: &dyn IndexView,
    container: ContainerRid,
    range: &KeyRange,
) -> Result<(u64, String), StorageError> {
    let (from, to) = keys::items_in(container, range);
    let mut hash = Xxh3::new();
    let mut items = 0;
    index.scan(&from, &to, &mut |key, row| {
        // Hash the key in the form of the first layout, so that hashes of old backups still match.
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
