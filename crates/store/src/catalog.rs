//! The catalog: the databases, containers, partitions and other resources of an account, kept in a log of
//! events.
//!
//! Only the catalog decides about resources. It appends an event, then applies it to the state in memory.
//! Opening a store replays all events.

use crate::account::Shared;
use crate::catalog_snapshot::{CatalogSnapshot, LastCopy};
use crate::definition::ContainerDefinition;
use crate::error::{CatalogError, OpenError, StorageError};
use crate::quarantine::damage_of;
use crate::resource::ResourceType;
use headwater_log::{
    Durability, GroupBuilder, LocalLog, LogOptions, NewRecord, PartitionLog, ReadRequest,
    RecordKind, Which, append_decided,
};
use headwater_model::{
    ContainerId, ContainerRid, DatabaseId, DatabaseRid, Etag, KeyRange, Lsn, PartitionId,
    ResourceId, Timestamp,
};
use headwater_runtime::Runtime;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The partition id of the catalog's log. The log belongs to no container.
pub(crate) const PARTITION: PartitionId = PartitionId::new(0);

/// A change of the resources of an account.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    DatabaseCreated {
        rid: u32,
        id: DatabaseId,
    },
    DatabaseDropped {
        rid: u32,
    },
    ContainerCreated {
        rid: u64,
        definition: String,
        partitions: Vec<PartitionEntry>,
        /// Above every partition id the container has used.
        #[serde(default)]
        next_partition: u32,
    },
    ContainerReplaced {
        rid: u64,
        definition: String,
    },
    ContainerDropped {
        rid: u64,
    },
    /// An offer, user, permission or script was created or changed.
    ResourcePut {
        kind: ResourceType,
        owner: String,
        rid: String,
        id: String,
        json: String,
    },
    /// An offer, user, permission or script was dropped, and with it the resources it owns.
    ResourceDropped {
        rid: String,
    },
    /// Ids up to these are used, also by resources that were dropped.
    IdsUsed {
        database: u32,
        container: u32,
        resource: u32,
    },
    /// A split or merge replaced these partitions by new ones.
    PartitionsReplaced {
        container: u64,
        gone: Vec<u32>,
        new: Vec<PartitionEntry>,
    },
}

/// A partition of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartitionEntry {
    pub(crate) id: u32,
    pub(crate) range: KeyRange,
    /// Partitions this one was split or merged from, the oldest first.
    #[serde(default)]
    pub(crate) ancestors: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct DatabaseEntry {
    pub(crate) rid: DatabaseRid,
    pub(crate) id: DatabaseId,
    pub(crate) stamp: Stamp,
}

#[derive(Clone, Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) rid: ContainerRid,
    pub(crate) definition: ContainerDefinition,
    pub(crate) partitions: Vec<PartitionEntry>,
    pub(crate) next_partition: u32,
    pub(crate) stamp: Stamp,
}

/// An offer, user, permission or script.
#[derive(Clone, Debug)]
pub(crate) struct ResourceEntry {
    pub(crate) kind: ResourceType,
    pub(crate) owner: ResourceId,
    pub(crate) rid: ResourceId,
    pub(crate) id: String,
    pub(crate) json: String,
    pub(crate) number: u32,
    pub(crate) stamp: Stamp,
}

/// Time and LSN of the last change of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) lsn: Lsn,
    pub(crate) timestamp: Timestamp,
}

impl Stamp {
    pub(crate) fn etag(self) -> Etag {
        Etag::new(PARTITION, self.lsn, 0)
    }
}

/// The state of all resources at one LSN of the catalog.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources {
    pub(crate) databases: BTreeMap<u32, DatabaseEntry>,
    pub(crate) containers: BTreeMap<u64, ContainerEntry>,
    /// Offers, users, permissions and scripts.
    pub(crate) others: BTreeMap<ResourceId, Arc<ResourceEntry>>,
    last_database: u32,
    last_container: u32,
    last_resource: u32,
}

impl Resources {
    pub(crate) fn database(&self, id: &DatabaseId) -> Option<&DatabaseEntry> {
        self.databases.values().find(|database| database.id == *id)
    }

    pub(crate) fn containers_of(
        &self,
        database: DatabaseRid,
    ) -> impl Iterator<Item = &ContainerEntry> {
        self.containers.values().filter(move |container| container.rid.database() == database)
    }

    pub(crate) fn container(
        &self,
        database: DatabaseRid,
        id: &ContainerId,
    ) -> Option<&ContainerEntry> {
        self.containers_of(database).find(|container| container.definition.id() == id)
    }

    pub(crate) fn next_database(&self) -> u32 {
        self.last_database + 1
    }

    pub(crate) fn next_container(&self) -> u32 {
        self.last_container + 1
    }

    pub(crate) fn next_resource(&self) -> u32 {
        self.last_resource + 1
    }

    /// Whether the owner of a resource exists.
    pub(crate) fn has_owner(&self, owner: ResourceId) -> bool {
        match owner {
            ResourceId::Database(rid) => self.databases.contains_key(&rid.get()),
            ResourceId::Container(rid) => self.containers.contains_key(&rid.as_u64()),
            other => self.others.contains_key(&other),
        }
    }

    /// Removes resources whose owner is gone, and the resources they own in turn.
    fn drop_orphans(&mut self) {
        loop {
            let orphan = |entry: &Arc<ResourceEntry>| !self.has_owner(entry.owner);
            let orphans: Vec<ResourceId> =
                self.others.values().filter(|entry| orphan(entry)).map(|entry| entry.rid).collect();
            if orphans.is_empty() {
                return;
            }
            self.others.retain(|rid, _| !orphans.contains(rid));
        }
    }

    /// Events that produce this state when applied to an empty one.
    pub(crate) fn to_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for database in self.databases.values() {
            let id = database.id.clone();
            events.push(Event::DatabaseCreated { rid: database.rid.get(), id });
        }
        for container in self.containers.values() {
            events.push(Event::ContainerCreated {
                rid: container.rid.as_u64(),
                definition: container.definition.to_json(),
                partitions: container.partitions.clone(),
                next_partition: container.next_partition,
            });
        }
        // An owner has a lower number than the resources it owns, so it comes first.
        let mut others: Vec<_> = self.others.values().collect();
        others.sort_by_key(|entry| entry.number);
        events.extend(others.into_iter().map(|entry| Event::ResourcePut {
            kind: entry.kind,
            owner: entry.owner.to_string(),
            rid: entry.rid.to_string(),
            id: entry.id.clone(),
            json: entry.json.clone(),
        }));
        events.push(Event::IdsUsed {
            database: self.last_database,
            container: self.last_container,
            resource: self.last_resource,
        });
        events
    }

    pub(crate) fn apply(&mut self, event: &Event, stamp: Stamp) -> Result<(), String> {
        match event {
            Event::DatabaseCreated { rid, id } => {
                self.last_database = self.last_database.max(*rid);
                let database = DatabaseEntry { rid: DatabaseRid::new(*rid), id: id.clone(), stamp };
                self.databases.insert(*rid, database);
            }
            Event::DatabaseDropped { rid } => {
                self.databases.remove(rid);
                self.containers.retain(|_, container| container.rid.database().get() != *rid);
                self.drop_orphans();
            }
            Event::ContainerCreated { rid, definition, partitions, next_partition } => {
                let rid = ContainerRid::from_u64(*rid).map_err(|error| error.to_string())?;
                self.last_container = self.last_container.max(rid.container());
                let next = partitions.iter().map(|entry| entry.id + 1).max().unwrap_or(0);
                let next_partition = next.max(*next_partition);
                let container = ContainerEntry {
                    rid,
                    definition: parse(definition)?,
                    partitions: partitions.clone(),
                    next_partition,
                    stamp,
                };
                self.containers.insert(rid.as_u64(), container);
            }
            Event::ContainerReplaced { rid, definition } => {
                let container = self.containers.get_mut(rid).ok_or("no such container")?;
                container.definition = parse(definition)?;
                container.stamp = stamp;
            }
            Event::ContainerDropped { rid } => {
                self.containers.remove(rid);
                self.drop_orphans();
            }
            Event::ResourcePut { kind, owner, rid, id, json } => {
                let read = |text: &str| ResourceId::parse(text).map_err(|error| error.to_string());
                let (owner, rid) = (read(owner)?, read(rid)?);
                let known = self.others.get(&rid).map(|entry| entry.number);
                let number = known.unwrap_or(self.last_resource + 1);
                self.last_resource = self.last_resource.max(number);
                let (kind, id, json) = (*kind, id.clone(), json.clone());
                let entry = ResourceEntry { kind, owner, rid, id, json, number, stamp };
                self.others.insert(rid, Arc::new(entry));
            }
            Event::ResourceDropped { rid } => {
                let rid = ResourceId::parse(rid).map_err(|error| error.to_string())?;
                self.others.remove(&rid);
                self.drop_orphans();
            }
            Event::IdsUsed { database, container, resource } => {
                self.last_database = self.last_database.max(*database);
                self.last_container = self.last_container.max(*container);
                self.last_resource = self.last_resource.max(*resource);
            }
            Event::PartitionsReplaced { container, gone, new } => {
                let container = self.containers.get_mut(container).ok_or("no such container")?;
                container.partitions.retain(|entry| !gone.contains(&entry.id));
                container.partitions.extend(new.iter().cloned());
                container.partitions.sort_by(|one, two| one.range.min().cmp(two.range.min()));
                let next = new.iter().map(|entry| entry.id + 1).max().unwrap_or(0);
                container.next_partition = container.next_partition.max(next);
            }
        }
        Ok(())
    }
}

fn parse(definition: &str) -> Result<ContainerDefinition, String> {
    ContainerDefinition::from_json(definition).map_err(|error| error.to_string())
}

/// The catalog's log and the state it leads to.
#[derive(Debug)]
pub(crate) struct Catalog {
    log: Arc<LocalLog>,
    shared: Arc<Shared>,
    resources: RwLock<Arc<Resources>>,
    /// Held from the decision on an event until the event is applied and copied.
    deciding: tokio::sync::Mutex<LastCopy>,
}

impl Catalog {
    pub(crate) fn open(shared: Arc<Shared>) -> Result<Catalog, OpenError> {
        let dir = shared.root.join("catalog");
        // The catalog decides which files are removed, so it is synced at every durability.
        let options = LogOptions { durability: Durability::Fsync, ..shared.log_options() };
        let opened = LocalLog::inherit(
            shared.disk.clone(),
            &dir,
            PARTITION,
            &[],
            Lsn::ZERO,
            options,
            shared.runtime.clone(),
        );
        let opened = opened.map_err(|error| match damage_of(error.into(), &dir) {
            Ok(damage) => OpenError::Damaged(damage),
            Err(other) => other,
        })?;
        let log = opened.log;
        let tail = log.local_tail().lsn;
        let batch = log.read(&ReadRequest {
            after: Lsn::ZERO,
            upto: tail,
            which: Which::Everything,
            range: None,
            records_max: usize::MAX,
            bytes_max: usize::MAX,
        })?;
        let mut resources = Resources::default();
        for record in &batch.records {
            let lsn = record.position.lsn;
            let event: Event = serde_json::from_slice(record.meta())
                .map_err(|error| OpenError::Catalog { lsn, what: error.to_string() })?;
            resources
                .apply(&event, Stamp { lsn, timestamp: record.timestamp })
                .map_err(|what| OpenError::Catalog { lsn, what })?;
        }
        let copied = CatalogSnapshot::load(&*shared.disk, &shared.root);
        let is_copied = copied.is_some_and(|copied| copied.lsn == tail.get());
        let resources = RwLock::new(Arc::new(resources));
        let deciding = tokio::sync::Mutex::default();
        let mut catalog = Catalog { log, shared, resources, deciding };
        if !is_copied && tail > Lsn::ZERO {
            let mut last_copy = LastCopy::default();
            catalog.copy(&mut last_copy);
            catalog.deciding = tokio::sync::Mutex::new(last_copy);
        }
        Ok(catalog)
    }

    /// Writes `CATALOG.json`, which only a repair reads. A failure is only logged: the log is authoritative.
    fn copy(&self, last: &mut LastCopy) {
        let Shared { runtime, disk, root, .. } = &*self.shared;
        let snapshot = CatalogSnapshot::new(self.log.local_tail().lsn, &self.resources());
        match runtime.blocking(|| snapshot.save(&**disk, root, runtime.elapsed())) {
            Ok(copy) => *last = copy,
            Err(error) => {
                let data = root.display();
                tracing::warn!(%data, %error, "cannot write the copy of the catalog; the next change tries again");
            }
        }
    }

    /// Updates `CATALOG.json` before the store closes.
    pub(crate) async fn close(&self) {
        let mut last_copy = self.deciding.lock().await;
        let copied = CatalogSnapshot::load(&*self.shared.disk, &self.shared.root);
        let tail = self.log.local_tail().lsn;
        if tail > Lsn::ZERO && copied.is_none_or(|copied| copied.lsn != tail.get()) {
            self.copy(&mut last_copy);
        }
    }

    pub(crate) fn resources(&self) -> Arc<Resources> {
        self.resources.read().clone()
    }

    pub(crate) fn log(&self) -> &Arc<LocalLog> {
        &self.log
    }

    /// Blocks changes of the catalog until the guard is dropped.
    pub(crate) async fn hold(&self) -> impl Drop + '_ {
        self.deciding.lock().await
    }

    /// Decides on an event from the current state, appends it and applies it. `decide` may refuse.
    pub(crate) async fn change(
        &self,
        decide: impl FnOnce(&Resources) -> Result<Event, CatalogError>,
    ) -> Result<Event, CatalogError> {
        let mut last_copy = self.deciding.lock().await;
        let before = self.resources();
        let event = decide(&before)?;
        let stamp = append(&self.log, &self.shared.runtime, &event).await?;
        let mut after = Resources::clone(&before);
        after.apply(&event, stamp).map_err(StorageError::Index)?;
        *self.resources.write() = Arc::new(after);
        if last_copy.is_due(self.shared.runtime.elapsed()) {
            self.copy(&mut last_copy);
        }
        Ok(event)
    }
}

/// Appends an event to the catalog's log.
pub(crate) async fn append(
    log: &Arc<LocalLog>,
    runtime: &Runtime,
    event: &Event,
) -> Result<Stamp, StorageError> {
    let mut group = GroupBuilder::new(PARTITION, 0, log.local_tail());
    let now = Timestamp::from_millis(runtime.unix_millis());
    let timestamp = group.begin(now, runtime.random_u128());
    let meta = serde_json::to_vec(event).map_err(|error| StorageError::Index(error.to_string()))?;
    let position = group.record(&NewRecord {
        kind: RecordKind::Put,
        supersedes: None,
        epk: &[],
        meta: &meta,
        body: &[],
    });
    group.finish();
    let log: &dyn PartitionLog = log;
    append_decided(log, &group.build(), runtime).await?;
    Ok(Stamp { lsn: position.lsn, timestamp })
}
