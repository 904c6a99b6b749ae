//! `BACKUP.json`: the list of the parts and partitions of a backup.
//!
//! Format 1 lists files that are single objects under their own path. Format 2 divides files into parts. Both
//! are read; format 2 is written. Never reads a store.

use super::BackupError;
use futures_util::TryStreamExt;
use headwater_model::{ContainerRid, KeyRange, PartitionId};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};
use xxhash_rust::xxh3::Xxh3;

const FORMAT: u32 = 2;
const NAME: &str = "BACKUP.json";

/// Summary of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupSummary {
    /// Partitions of the backup.
    pub partitions: usize,
    /// Items of the backup.
    pub items: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes that this backup copied; the others were in the place before. Zero after a restore.
    pub copied_bytes: u64,
    /// A hash over the state of all partitions.
    pub state_hash: String,
}

/// A partition of a backup, with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupPartition {
    pub(super) container: u64,
    pub(super) partition: u32,
    pub(super) range: KeyRange,
    pub(super) lsn: u64,
    pub(super) items: u64,
    /// A hash of its items and their versions.
    pub(super) state: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Contents {
    format: u32,
    pub(super) files: Vec<FileEntry>,
    pub(super) partitions: Vec<BackupPartition>,
}

/// A file of a data directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) path: String,
    pub(super) bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) identity: Option<String>,
    /// The checksum of a file in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    xxh3: Option<String>,
    #[serde(default)]
    pub(super) parts: Vec<Part>,
}

/// A part of a file: one object of the place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) object: String,
    pub(super) bytes: u64,
    pub(super) xxh3: String,
}

impl FileEntry {
    pub(super) fn new(
        path: &str,
        bytes: u64,
        identity: Option<&str>,
        parts: Vec<Part>,
    ) -> FileEntry {
        let identity = identity.map(str::to_owned);
        FileEntry { path: path.to_owned(), bytes, identity, xxh3: None, parts }
    }

    /// The path, checked to be inside a directory.
    pub(super) fn safe_path(&self) -> Result<&Path, BackupError> {
        safe_path(&self.path)
    }
}

impl Contents {
    pub(super) fn new(files: Vec<FileEntry>, partitions: Vec<BackupPartition>) -> Contents {
        Contents { format: FORMAT, files, partitions }
    }

    pub(super) fn summary(&self, copied_bytes: u64) -> BackupSummary {
        BackupSummary {
            partitions: self.partitions.len(),
            items: self.partitions.iter().map(|partition| partition.items).sum(),
            bytes: self.files.iter().map(|file| file.bytes).sum(),
            copied_bytes,
            state_hash: state_hash(&self.partitions),
        }
    }

    pub(super) async fn load(
        place: &dyn ObjectStore,
        prefix: &str,
    ) -> Result<Contents, BackupError> {
        match get(place, prefix, NAME).await {
            Err(BackupError::Place(object_store::Error::NotFound { .. })) => {
                let first = place.list(Some(&object_path(prefix, ""))).try_next().await?;
                Err(BackupError::Contents(match first {
                    Some(_) => format!(
                        "{NAME} is missing, so the backup in it was not finished. Start the backup again: it \
                         continues"
                    ),
                    None => {
                        format!("{NAME} is missing, and nothing else is under this name. Check it")
                    }
                }))
            }
            other => Contents::parse(&other?),
        }
    }

    /// The list of the place, and the version to replace. A damaged list yields only the version.
    pub(super) async fn load_to_replace(
        place: &dyn ObjectStore,
        prefix: &str,
    ) -> Result<(Option<Contents>, Option<UpdateVersion>), BackupError> {
        let got = place.get_opts(&object_path(prefix, NAME), GetOptions::default()).await;
        let got = match got {
            Err(object_store::Error::NotFound { .. }) => return Ok((None, None)),
            other => other?,
        };
        let (e_tag, version) = (got.meta.e_tag.clone(), got.meta.version.clone());
        let contents = Contents::parse(&got.bytes().await?).ok();
        Ok((contents, Some(UpdateVersion { e_tag, version })))
    }

    fn parse(bytes: &[u8]) -> Result<Contents, BackupError> {
        let malformed = |error: serde_json::Error| {
            BackupError::Contents(format!("{NAME} is damaged: {error}; restore another backup"))
        };
        let mut contents: Contents = serde_json::from_slice(bytes).map_err(malformed)?;
        if !(1..=FORMAT).contains(&contents.format) {
            let what = format!("its format is {}, this version reads {FORMAT}", contents.format);
            return Err(BackupError::Contents(what));
        }
        for file in &mut contents.files {
            if let Some(xxh3) = file.xxh3.take() {
                let object = file.path.clone();
                file.parts = vec![Part { object, bytes: file.bytes, xxh3 }];
            }
            if file.parts.iter().map(|part| part.bytes).sum::<u64>() != file.bytes {
                let what = format!("{NAME} lists parts of {} that do not make it up", file.path);
                return Err(BackupError::Contents(what));
            }
        }
        Ok(contents)
    }

    /// Replaces the list of the place atomically.
    pub(super) async fn save(
        &self,
        place: &dyn ObjectStore,
        prefix: &str,
    ) -> Result<(), BackupError> {
        let json = self.to_json()?;
        put(place, prefix, NAME, json, PutMode::Overwrite).await
    }

    /// Replaces the list of the place, unless another backup has replaced it since `version` was read.
    ///
    /// In a place without conditional puts, the list is replaced in any case.
    pub(super) async fn save_if_unchanged(
        &self,
        place: &dyn ObjectStore,
        prefix: &str,
        version: Option<UpdateVersion>,
    ) -> Result<(), BackupError> {
        use object_store::Error;
        let json = self.to_json()?;
        let mode = version.map_or(PutMode::Create, PutMode::Update);
        match put(place, prefix, NAME, json, mode).await {
            Err(BackupError::Place(Error::NotImplemented { .. })) => self.save(place, prefix).await,
            Err(BackupError::Place(Error::AlreadyExists { .. } | Error::Precondition { .. })) => {
                // A put whose answer was lost is repeated and then conflicts with itself.
                let (now, _) = Contents::load_to_replace(place, prefix).await?;
                if now.as_ref() == Some(self) { Ok(()) } else { Err(BackupError::Overtaken) }
            }
            other => other,
        }
    }

    fn to_json(&self) -> Result<Vec<u8>, BackupError> {
        serde_json::to_vec_pretty(self).map_err(|error| BackupError::Contents(error.to_string()))
    }
}

/// A hash over the states of partitions, in the order of their containers.
pub(super) fn state_hash(partitions: &[BackupPartition]) -> String {
    let mut hash = Xxh3::new();
    for partition in partitions {
        hash.update(&partition.container.to_le_bytes());
        hash.update(partition.state.as_bytes());
    }
    format!("{:032x}", hash.digest128())
}

/// The directory of a partition's files, relative to the data directory.
pub(super) fn partition_dir(container: ContainerRid, partition: PartitionId) -> String {
    format!("containers/{:016x}/{:08}", container.as_u64(), partition.get())
}

pub(super) fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

pub(super) fn object_path(prefix: &str, path: &str) -> ObjectPath {
    ObjectPath::from(format!("{prefix}/{path}"))
}

pub(super) async fn put(
    place: &dyn ObjectStore,
    prefix: &str,
    path: &str,
    bytes: Vec<u8>,
    mode: PutMode,
) -> Result<(), BackupError> {
    let (path, payload) = (object_path(prefix, path), PutPayload::from(bytes));
    place.put_opts(&path, payload, PutOptions::from(mode)).await?;
    Ok(())
}

pub(super) async fn get(
    place: &dyn ObjectStore,
    prefix: &str,
    path: &str,
) -> Result<Vec<u8>, BackupError> {
    let result = place.get_opts(&object_path(prefix, path), GetOptions::default()).await?;
    Ok(result.bytes().await?.to_vec())
}

/// Reads a part and verifies its size and checksum.
pub(super) async fn get_part(
    place: &dyn ObjectStore,
    prefix: &str,
    part: &Part,
) -> Result<Vec<u8>, BackupError> {
    let damaged = |what: &str| BackupError::Damaged {
        file: format!("{prefix}/{}", part.object),
        what: what.to_owned(),
    };
    safe_path(&part.object)?;
    let bytes = match get(place, prefix, &part.object).await {
        Err(BackupError::Place(object_store::Error::NotFound { .. })) => {
            return Err(damaged("it is missing"));
        }
        other => other?,
    };
    match bytes.len() as u64 == part.bytes && checksum(&bytes) == part.xxh3 {
        true => Ok(bytes),
        false => Err(damaged("its size or checksum is not the one that was written")),
    }
}

pub(super) fn safe_path(path: &str) -> Result<&Path, BackupError> {
    let path = Path::new(path);
    let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if is_inside && path.components().next().is_some() {
        return Ok(path);
    }
    Err(BackupError::Contents(format!("{} is not a path inside a backup", path.display())))
}
