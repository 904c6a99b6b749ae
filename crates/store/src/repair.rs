//! Rebuilds a damaged catalog in a data directory that is not open.
//!
//! ```text
//! CATALOG.json      the copy of the catalog, up to some LSN
//! catalog/          readable entries after that LSN; all readable ones if there is no copy
//! CONTAINER.json    next to the partitions of each container: what neither of the two has
//! ```
//!
//! The old files are kept. Resource ids stay; the etags of everything in the catalog change. Users,
//! permissions, scripts and offers are lost only if neither the copy nor a readable entry has them.

use crate::catalog::{self, Event, Resources, Stamp};
use crate::catalog_snapshot::CatalogSnapshot;
use crate::container_file::ContainerFile;
use crate::directory;
use crate::error::OpenError;
use headwater_log::disk::{Disk, OsDisk};
use headwater_log::salvage::{Hole, inspect};
use headwater_log::{LocalLog, LogOptions};
use headwater_model::{Lsn, Timestamp};
use headwater_runtime::Runtime;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Content of a repaired catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedCatalog {
    /// Number of databases.
    pub databases: usize,
    /// Number of containers.
    pub containers: usize,
    /// Containers that were found only in their own `CONTAINER.json`.
    pub from_files: usize,
    /// The LSN of the copy of the catalog that was used.
    pub copy_lsn: Option<Lsn>,
    /// Number of users, permissions, scripts and offers.
    pub resources: usize,
    /// Parts of the old catalog that could not be read.
    pub holes: Vec<Hole>,
    /// The directory the old catalog was moved to.
    pub damaged_files: PathBuf,
}

/// Rebuilds the catalog from its copy, its readable entries and the files of containers.
///
/// # Errors
/// When the data directory is open, or files cannot be written.
pub async fn repair_catalog(data: &Path) -> Result<RepairedCatalog, OpenError> {
    let _lock = directory::lock(data)?;
    let io = |source| OpenError::Io { dir: data.to_owned(), source };
    let dir = data.join("catalog");
    let mut events: Vec<(Stamp, Event)> = Vec::new();
    let mut read = |record: &headwater_log::Record| {
        let stamp = Stamp { lsn: record.position.lsn, timestamp: record.timestamp };
        if let Ok(event) = serde_json::from_slice(record.meta()) {
            events.push((stamp, event));
        }
    };
    let found = inspect(&OsDisk, &dir, &mut read, &mut |_| ());
    events.sort_by_key(|(stamp, _)| stamp.lsn);
    let copy = CatalogSnapshot::load(&OsDisk, data);
    let copy_lsn = copy.as_ref().map(|copy| Lsn::new(copy.lsn));
    let mut resources = Resources::default();
    for event in copy.iter().flat_map(|copy| &copy.events) {
        let lsn = copy_lsn.unwrap_or(Lsn::ZERO);
        let _ = resources.apply(event, Stamp { lsn, timestamp: Timestamp::from_millis(0) });
    }
    let in_copy: Vec<u64> = resources.containers.keys().copied().collect();
    events.retain(|(stamp, _)| copy_lsn.is_none_or(|lsn| stamp.lsn > lsn));
    for (stamp, event) in &events {
        // An event may refer to an object created by an unreadable event; then there is nothing to change.
        let _ = resources.apply(event, *stamp);
    }
    let is_dropped = |file: &ContainerFile| {
        let is_known = copy_lsn.is_some_and(|lsn| Lsn::new(file.lsn) <= lsn);
        is_known && !in_copy.contains(&file.rid)
            || events.iter().any(|(_, event)| match event {
                Event::ContainerDropped { rid } => *rid == file.rid,
                Event::DatabaseDropped { rid } => *rid == file.database,
                _ => false,
            })
    };
    let mut from_files = 0;
    let containers = data.join("containers");
    for name in OsDisk.list(&containers).map_err(io)? {
        let file = ContainerFile::load(&OsDisk, &containers.join(name));
        if let Some(file) = file.filter(|file| !is_dropped(file)) {
            from_files += usize::from(adopt(&mut resources, &file));
        }
    }
    let damaged_files = (1_u32..)
        .map(|number| data.join(format!("catalog.damaged-{number}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| data.join("catalog.damaged"));
    match std::fs::rename(&dir, &damaged_files) {
        // The directory was lost, or an earlier attempt was interrupted after the rename.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        other => other.map_err(io)?,
    }
    let tail = write_catalog(&dir, &resources.to_events()).await?;
    let new = CatalogSnapshot::new(tail, &resources);
    new.save(&OsDisk, data, Duration::ZERO).map_err(io)?;
    Ok(RepairedCatalog {
        databases: resources.databases.len(),
        containers: resources.containers.len(),
        resources: resources.others.len(),
        from_files,
        copy_lsn,
        holes: found.holes,
        damaged_files,
    })
}

/// Adds the content of a container's own file if it is newer than the catalog's. True if the container was
/// not in the catalog.
fn adopt(resources: &mut Resources, file: &ContainerFile) -> bool {
    let stamp = Stamp { lsn: Lsn::new(file.lsn), timestamp: Timestamp::from_millis(0) };
    if !resources.databases.contains_key(&file.database) {
        let event = Event::DatabaseCreated { rid: file.database, id: file.database_id.clone() };
        let _ = resources.apply(&event, stamp);
    }
    let known = resources.containers.get(&file.rid);
    let is_new = known.is_none();
    let is_newer = known.is_none_or(|entry| {
        (entry.stamp.lsn, entry.next_partition) < (stamp.lsn, file.next_partition)
    });
    if is_newer {
        let event = Event::ContainerCreated {
            rid: file.rid,
            definition: file.definition.clone(),
            partitions: file.partitions.clone(),
            next_partition: file.next_partition,
        };
        let _ = resources.apply(&event, stamp);
    }
    is_new && resources.containers.contains_key(&file.rid)
}

async fn write_catalog(dir: &Path, events: &[Event]) -> Result<Lsn, OpenError> {
    let runtime = Runtime::system();
    let disk = std::sync::Arc::new(OsDisk);
    let options = LogOptions::default();
    let opened = LocalLog::create(disk, dir, catalog::PARTITION, options, runtime.clone())?;
    for event in events {
        catalog::append(&opened.log, &runtime, event).await?;
    }
    opened.log.checkpoint().map_err(|source| OpenError::Io { dir: dir.to_owned(), source })?;
    Ok(opened.log.local_tail().lsn)
}
