//! Checks the files of a store byte by byte, and exports what is readable.
//!
//! The server stops serving a log at damage; the functions here continue after it. [`Account::inspect`]
//! reports the loss: file, bytes, LSNs, changes and items. [`Account::salvage`] writes the newest readable
//! version of every item and every readable change as JSON lines. Neither changes the store.

use crate::account::Account;
use crate::container::ContainerState;
use crate::error::StorageError;
use crate::item::{Meta, item_with};
use crate::keys::{self, ItemRow};
use crate::partition::Partition;
use crate::quarantine::Quarantine;
use headwater_log::salvage::{Hole, Inspection, bytes_to_inspect, inspect};
use headwater_log::{Record, RecordKind};
use headwater_model::{ContainerRid, Lsn, PartitionId, PartitionKey};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// The result of checking the files of one partition, or of the catalog.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionReport {
    /// Database and container; `None` for the catalog.
    pub container: Option<String>,
    /// The container's resource id; `None` for the catalog.
    pub rid: Option<ContainerRid>,
    /// The partition.
    pub partition: PartitionId,
    /// The directory of its files.
    pub dir: PathBuf,
    /// Readable and damaged parts of the files.
    pub found: Inspection,
    /// Items whose newest version is lost; `None` when the index does not have the partition.
    pub items_lost: Option<u64>,
    /// The quarantine of the partition, if it is not served.
    pub quarantine: Option<Arc<Quarantine>>,
}

impl PartitionReport {
    /// Whether its files are damaged or the partition is quarantined.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !self.found.holes.is_empty() || self.quarantine.is_some()
    }
}

/// The export of one container.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Salvaged {
    /// Database and container.
    pub container: String,
    /// The file of items, one per line.
    pub items_file: PathBuf,
    /// The number of items in the file.
    pub items: u64,
    /// The file of changes, one per line.
    pub changes_file: PathBuf,
    /// The number of changes in the file.
    pub changes: u64,
}

impl Account {
    /// The number of bytes that [`Account::inspect`] reads.
    #[must_use]
    pub fn bytes_to_inspect(&self) -> u64 {
        let disk = &*self.0.shared.disk;
        let mut bytes = bytes_to_inspect(disk, &self.0.shared.root.join("catalog"));
        for container in self.open_container_states() {
            for partition in &container.topology().partitions {
                let dir = container.shared.partition_dir(container.rid, partition.id);
                bytes += bytes_to_inspect(disk, &dir);
            }
        }
        bytes
    }

    /// Reads every segment of every partition and of the catalog. Calls `progress` with the number of bytes
    /// read since the last call.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub fn inspect(
        &self,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<PartitionReport>, StorageError> {
        let disk = &*self.0.shared.disk;
        let dir = self.0.shared.root.join("catalog");
        let mut reports = vec![PartitionReport {
            container: None,
            rid: None,
            partition: PartitionId::new(0),
            found: inspect(disk, &dir, &mut |_| (), progress),
            dir,
            items_lost: None,
            quarantine: None,
        }];
        for (name, container) in self.named_containers() {
            for partition in &container.topology().partitions {
                let dir = container.shared.partition_dir(container.rid, partition.id);
                let found = inspect(disk, &dir, &mut |_| (), progress);
                reports.push(PartitionReport {
                    container: Some(name.clone()),
                    rid: Some(container.rid),
                    partition: partition.id,
                    items_lost: items_lost(&container, partition, &found.holes)?,
                    quarantine: partition.quarantine().cloned(),
                    dir,
                    found,
                });
            }
        }
        Ok(reports)
    }

    fn named_containers(&self) -> Vec<(String, Arc<ContainerState>)> {
        let mut named = Vec::new();
        for database in self.databases() {
            for container in database.containers() {
                let name = format!("{}/{}", database.id(), container.id());
                named.push((name, container.state().clone()));
            }
        }
        named
    }

    /// Exports everything readable to a directory: for each container its definition, the newest readable
    /// version of each item, and every readable change.
    ///
    /// # Errors
    /// When the directory is not empty or cannot be written.
    pub fn salvage(&self, out: &Path, progress: &mut dyn FnMut(u64)) -> io::Result<Vec<Salvaged>> {
        std::fs::create_dir_all(out)?;
        if std::fs::read_dir(out)?.next().is_some() {
            let what = format!("{} is not empty; choose a new directory", out.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        let mut salvaged = Vec::new();
        for (name, container) in self.named_containers() {
            salvaged.push(salvage_container(&name, &container, out, progress)?);
        }
        Ok(salvaged)
    }
}

/// The number of items whose row points to damaged bytes.
fn items_lost(
    container: &ContainerState,
    partition: &Partition,
    holes: &[Hole],
) -> Result<Option<u64>, StorageError> {
    if holes.is_empty() {
        return Ok(Some(0));
    }
    let index = &*container.shared.index;
    if index.get(&keys::partition(container.rid, partition.id))?.is_none() {
        return Ok(None);
    }
    let is_lost = |row: ItemRow| {
        holes.iter().any(|hole| {
            let lsn = row.position.lsn;
            hole.origin.is_none_or(|origin| origin == row.position.origin)
                && hole.damage.lsn.is_some_and(|first| first <= lsn)
                && hole.last_lsn.is_none_or(|last| lsn <= last)
        })
    };
    let (from, to) = keys::items_in(container.rid, &partition.range);
    let mut lost = 0;
    index.scan(&from, &to, &mut |_, row| {
        lost += u64::from(ItemRow::decode(row).is_some_and(is_lost));
        true
    })?;
    Ok(Some(lost))
}

fn salvage_container(
    name: &str,
    container: &ContainerState,
    out: &Path,
    progress: &mut dyn FnMut(u64),
) -> io::Result<Salvaged> {
    // Ids may hold any character but slashes. The number in front keeps a name like `..` harmless.
    let stem = format!("{:016x}-{}", container.rid.as_u64(), name.replace('/', "-"));
    let create = |ending: &str| {
        let path = out.join(format!("{stem}.{ending}"));
        File::create_new(&path).map(|file| (BufWriter::new(file), path))
    };
    let (mut definition, _) = create("definition.json")?;
    definition.write_all(container.settings.read().definition.to_json().as_bytes())?;
    finish(definition)?;
    let (mut items, items_file) = create("items.jsonl")?;
    let (mut changes, changes_file) = create("changes.jsonl")?;
    let (mut item_count, mut change_count) = (0, 0);
    let disk = &*container.shared.disk;
    for partition in &container.topology().partitions {
        let dir = container.shared.partition_dir(container.rid, partition.id);
        let is_ours = |record: &Record| {
            record.kind != RecordKind::Control && partition.range.contains(record.epk())
        };
        let mut newest: HashMap<u128, (Lsn, u16)> = HashMap::new();
        let mut failed = None;
        let mut note = |record: &Record| {
            let Some(meta) = Meta::decode(record.meta()).filter(|_| is_ours(record)) else {
                return;
            };
            let place = (record.position.lsn, record.position.ordinal);
            let known = newest.entry(identity(record, &meta)).or_insert(place);
            *known = place.max(*known);
            change_count += 1;
            if let Err(error) = write_change(&mut changes, record, &meta) {
                failed.get_or_insert(error);
            }
        };
        inspect(disk, &dir, &mut note, progress);
        let mut keep = |record: &Record| {
            let Some(meta) = Meta::decode(record.meta()).filter(|_| is_ours(record)) else {
                return;
            };
            let place = (record.position.lsn, record.position.ordinal);
            let is_newest = newest.get(&identity(record, &meta)) == Some(&place);
            if is_newest && record.kind == RecordKind::Put {
                item_count += 1;
                if let Err(error) = write_line(&mut items, &item_with(record, &meta).to_bytes()) {
                    failed.get_or_insert(error);
                }
            }
        };
        inspect(disk, &dir, &mut keep, &mut |_| ());
        if let Some(error) = failed {
            return Err(error);
        }
    }
    finish(items)?;
    finish(changes)?;
    Ok(Salvaged {
        container: name.to_owned(),
        items_file,
        items: item_count,
        changes_file,
        changes: change_count,
    })
}

/// A hash of an item's key, equal for all its versions.
fn identity(record: &Record, meta: &Meta<'_>) -> u128 {
    let mut hash = Xxh3::new();
    hash.update(&(record.epk().len() as u64).to_le_bytes());
    hash.update(record.epk());
    hash.update(meta.tail);
    hash.digest128()
}

fn write_change(out: &mut impl Write, record: &Record, meta: &Meta<'_>) -> io::Result<()> {
    let (key, length) = PartitionKey::decode_prefix(meta.tail)
        .map_or((None, meta.tail.len()), |(key, length)| (Some(key), length));
    let id = String::from_utf8_lossy(meta.tail.get(length..).unwrap_or_default());
    let operation = if record.kind == RecordKind::Put { "upsert" } else { "delete" };
    let mut line = serde_json::json!({
        "lsn": record.position.lsn.get(),
        "ordinal": record.position.ordinal,
        "partition": record.position.origin.get(),
        "timestampMillis": record.timestamp.as_millis(),
        "operation": operation,
        "id": id,
    })
    .to_string()
    .into_bytes();
    line.pop();
    if let Some(key) = key {
        line.extend_from_slice(b",\"partitionKey\":");
        line.extend_from_slice(key.to_json().as_bytes());
    }
    if record.kind == RecordKind::Put {
        line.extend_from_slice(b",\"item\":");
        line.extend_from_slice(&item_with(record, meta).to_bytes());
    }
    line.push(b'}');
    write_line(out, &line)
}

/// Writes JSON on one line. A line break in JSON is always white space, so it becomes a space.
fn write_line(out: &mut impl Write, json: &[u8]) -> io::Result<()> {
    for part in json.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
        match part.split_last() {
            Some((b'\n' | b'\r', rest)) => {
                out.write_all(rest)?;
                out.write_all(b" ")?;
            }
            _ => out.write_all(part)?,
        }
    }
    out.write_all(b"\n")
}

fn finish(out: BufWriter<File>) -> io::Result<()> {
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}
