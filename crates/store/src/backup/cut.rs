//! A consistent moment of a whole store, held for a backup.
//!
//! The catalog and every partition at one exact LSN, taken by the partition's own writer between two groups.
//! A cut holds the files it needs: compaction, splits and drops may replace them meanwhile, and they stay
//! readable until the cut is dropped. What is written later is not in it.

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

/// What there is to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupPlan {
    /// The files, in any order.
    pub files: Vec<BackupFile>,
    /// How many partitions have a state to compare.
    pub partitions: usize,
}

/// A file to copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupFile {
    /// Its path in the data directory.
    pub path: String,
    /// How long it is.
    pub bytes: u64,
    /// The same for two files of the same path and length only if their bytes are the same.
    pub identity: Option<String>,
}

/// One moment of a store, with the files it needs.
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

/// A partition, and the rows of its items until their state is known.
struct PartitionCut {
    container: ContainerRid,
    state: BackupPartition,
    rows: Option<Arc<dyn IndexView>>,
}

impl Account {
    /// Takes a moment of everything, to be copied while writes continue.
    ///
    /// # Errors
    /// When a partition is quarantined or its store fails.
    pub async fn begin_backup(&self) -> Result<BackupCut, BackupError> {
        // In this order everywhere: no container is made, no range moves, nothing is dropped.
        let _creating = self.0.creating.lock().await;
        let mut containers = self.open_container_states();
        // In the order of a state hash, which is compared with the one of this backup.
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
            // One that was dropped may still be closing.
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
    /// What there is to copy.
    #[must_use]
    pub fn plan(&self) -> &BackupPlan {
        &self.plan
    }

    /// A stretch of a file, with its checksum. `None` if the cut has no such file or stretch.
    ///
    /// # Errors
    /// When it cannot be read.
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

    /// What is in a partition. Looks at the row of every item the first time.
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
