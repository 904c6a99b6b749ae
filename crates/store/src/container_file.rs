//! `CONTAINER.json`: a copy of the catalog's entry of one container, next to its partitions.
//!
//! Also holds the name of the container's database. The store writes it when the container is created,
//! changed, split or merged, and at open if it is missing or outdated. Only the repair of a damaged catalog
//! reads it (see `repair.rs`).

use crate::account::Shared;
use crate::catalog::{PartitionEntry, Resources};
use headwater_log::disk::{Disk, read_file, replace_file};
use headwater_model::{ContainerRid, DatabaseId};
use serde::{Deserialize, Serialize};
use std::path::Path;

const NAME: &str = "CONTAINER.json";
const FORMAT: u32 = 1;
/// Above the size of any entry: a definition of a few hundred kilobytes and a thousand partitions.
const BYTES_MAX: u64 = 16 << 20;

/// The content of `CONTAINER.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerFile {
    format: u32,
    /// The catalog's LSN of the definition.
    pub(crate) lsn: u64,
    pub(crate) database: u32,
    pub(crate) database_id: DatabaseId,
    pub(crate) rid: u64,
    pub(crate) definition: String,
    pub(crate) partitions: Vec<PartitionEntry>,
    pub(crate) next_partition: u32,
}

impl ContainerFile {
    fn from_catalog(resources: &Resources, rid: ContainerRid) -> Option<ContainerFile> {
        let entry = resources.containers.get(&rid.as_u64())?;
        let database = resources.databases.get(&rid.database().get())?;
        Some(ContainerFile {
            format: FORMAT,
            lsn: entry.stamp.lsn.get(),
            database: database.rid.get(),
            database_id: database.id.clone(),
            rid: rid.as_u64(),
            definition: entry.definition.to_json(),
            partitions: entry.partitions.clone(),
            next_partition: entry.next_partition,
        })
    }

    /// Reads the file of a container; `None` if it is missing or damaged.
    pub(crate) fn load(disk: &dyn Disk, container_dir: &Path) -> Option<ContainerFile> {
        let bytes = read_file(disk, &container_dir.join(NAME), BYTES_MAX).ok()?;
        let text = std::str::from_utf8(&bytes).ok()?;
        let (json, rest) = text.split_once('\n')?;
        if rest.trim_end() != checksum(json) {
            return None;
        }
        serde_json::from_str(json).ok().filter(|file: &ContainerFile| file.format == FORMAT)
    }

    fn save(&self, disk: &dyn Disk, container_dir: &Path) -> std::io::Result<()> {
        let json = serde_json::to_string(self).map_err(std::io::Error::other)?;
        let text = format!("{json}\n{}\n", checksum(&json));
        replace_file(disk, &container_dir.join(NAME), text.as_bytes())
    }
}

/// Updates the file of a container. A failure is only logged: the catalog is authoritative.
pub(crate) fn update(shared: &Shared, resources: &Resources, rid: ContainerRid) {
    let Some(file) = ContainerFile::from_catalog(resources, rid) else { return };
    let dir = shared.container_dir(rid);
    let disk = &*shared.disk;
    let saved = shared.runtime.blocking(|| {
        let is_current = ContainerFile::load(disk, &dir).is_some_and(|known| known == file);
        if is_current { Ok(()) } else { file.save(disk, &dir) }
    });
    if let Err(error) = saved {
        tracing::warn!(dir = %dir.display(), %error, "cannot write {NAME}; the next open tries again");
    }
}

fn checksum(json: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(json.as_bytes()))
}
