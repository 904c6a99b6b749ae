//! Accounts and databases: opens and closes a data directory, and manages the resources in it.
//!
//! Never touches items; `container.rs` does.

use crate::catalog::{Catalog, Event, PartitionEntry};
use crate::container::{Container, ContainerState};
use crate::definition::{ContainerDefinition, PARTITIONS_MAX};
use crate::error::{CatalogError, DefinitionError, OpenError, StorageError};
use crate::index::{FjallIndex, INDEX, Index, MemoryIndex, is_doubted, remove_range};
use crate::query::{Lanes, Leftovers, QueryLimits, Understood};
use crate::recent::ItemCache;
use crate::script::{Offenders, ScriptLimits, ScriptWorkers, Turns};
use crate::split_by_size::PostponedSplits;
use crate::{container_file, directory, keys, maintenance, rebuild, topology};
use headwater_log::disk::{Disk, MemoryDisk, OsDisk};
use headwater_log::{Damage, Durability, LocalLog, LogMeter, LogOptions, PartitionLog};
use headwater_model::{
    ContainerId, ContainerRid, DatabaseId, DatabaseRid, Etag, PartitionId, Timestamp,
};
use headwater_query::MemoryPool;
use headwater_runtime::{Runtime, TaskGroup};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Settings of a store: durability, sizes, intervals and limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// Partitions of a new container whose creator gives no number.
    pub partitions: u32,
    /// A segment of a partition's log is sealed before it grows beyond this.
    pub segment_bytes: u32,
    /// Bytes of each partition's newest changes that stay in memory.
    pub ring_bytes: usize,
    /// Size of the cache of items that were read, in bytes. All containers share it.
    pub recent_bytes: usize,
    /// Interval of background maintenance: expiry, compaction, index catch-up, splits. Zero turns it off;
    /// then only [`Account::maintain`] does the work.
    pub maintenance_interval: Duration,
    /// A sealed segment is compacted when this share of it is superseded, in percent.
    pub compaction_dead_percent: u64,
    /// How long superseded versions and deletes are kept for readers of all versions, in containers without a
    /// `changeFeedPolicy`. Zero keeps them only until compaction.
    pub history: Duration,
    /// Bytes of history that a range may keep, whatever the size of its live items. The limit of a range is the
    /// larger of this and `history_percent`.
    pub history_bytes_min: u64,
    /// History that a range may keep, in percent of the bytes of its live items.
    pub history_percent: u64,
    /// Maintenance splits a range whose live items take more bytes than this, one range at a time. Zero turns
    /// splitting off. A range of a single partition key cannot be split.
    pub split_at_bytes: u64,
    /// Items that a query reads for one page before the store indexes the path it filters by.
    pub index_after_items: usize,
    /// Items above which a query reads whole logs instead of reading the items one by one.
    pub sweep_after_items: usize,
    /// Items up to which a listing is sorted by creation without an index. A longer listing has that order
    /// only once an index of it exists.
    pub sort_listings_up_to: usize,
    /// Limits of scripts.
    pub scripts: ScriptLimits,
    /// Processes that run scripts. With `None`, scripts run in this process: a script can then exceed its
    /// time limit by one step of the engine, and a bug in the engine can end the process.
    pub script_workers: Option<Arc<ScriptWorkers>>,
    /// Limits of queries.
    pub queries: QueryLimits,
}

impl Default for Options {
    fn default() -> Options {
        let log = LogOptions::default();
        Options {
            durability: log.durability,
            partitions: 1,
            segment_bytes: log.segment_bytes,
            ring_bytes: log.ring_bytes,
            recent_bytes: 16 << 20,
            maintenance_interval: Duration::from_secs(1),
            compaction_dead_percent: 25,
            history: Duration::from_secs(24 * 3600),
            history_bytes_min: 256 << 20,
            history_percent: 100,
            split_at_bytes: 8 << 30,
            index_after_items: 1_000,
            sweep_after_items: 1_000,
            sort_listings_up_to: 4_000,
            scripts: ScriptLimits::default(),
            script_workers: None,
            queries: QueryLimits::default(),
        }
    }
}

/// Wraps a partition's log before the writer gets it. Tests use it to inject faults.
pub type LogWrapper = Arc<dyn Fn(Arc<LocalLog>) -> Arc<dyn PartitionLog> + Send + Sync>;

/// The runtime, disk and index a store runs on: the operating system by default, simulated ones in tests.
#[derive(Clone)]
pub struct Environment {
    /// Clock, randomness and tasks.
    pub runtime: Runtime,
    /// File system of the log and the catalog.
    pub disk: Arc<dyn Disk>,
    /// An index in memory. With `None`, the index is in files next to the log.
    pub index: Option<MemoryIndex>,
    /// Wraps each partition's log, for tests.
    pub wrap_log: Option<LogWrapper>,
}

/// State that all parts of an open store share.
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) root: PathBuf,
    pub(crate) index: Arc<dyn Index>,
    pub(crate) options: Options,
    /// Counts the work of all logs of the store.
    pub(crate) meter: Arc<LogMeter>,
    pub(crate) recent: ItemCache,
    /// Background tasks that panicked, each with its message.
    stopped_tasks: Mutex<Vec<String>>,
    /// Tasks that write partitions. They stop last, because other tasks still send them work.
    pub(crate) writers: TaskGroup,
    /// Limits how many scripts run at a time.
    pub(crate) turns: Arc<Turns>,
    pub(crate) offenders: Offenders,
    wrap_log: Option<LogWrapper>,
    /// Query results found beyond the end of a page, kept for the next page.
    pub(crate) leftovers: Leftovers,
    pub(crate) understood: Understood,
    /// Memory budget that all queries share.
    pub(crate) query_memory: Arc<MemoryPool>,
    /// Schedules the CPU time of long queries.
    pub(crate) query_lanes: Arc<Lanes>,
    /// The lock on the data directory. It is held while anything here can still write.
    lock: Mutex<Option<File>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn container_dir(&self, container: ContainerRid) -> PathBuf {
        self.root.join("containers").join(format!("{:016x}", container.as_u64()))
    }

    pub(crate) fn partition_dir(&self, container: ContainerRid, partition: PartitionId) -> PathBuf {
        self.container_dir(container).join(format!("{:08}", partition.get()))
    }

    pub(crate) fn log_options(&self) -> LogOptions {
        LogOptions {
            durability: self.options.durability,
            segment_bytes: self.options.segment_bytes,
            ring_bytes: self.options.ring_bytes,
            meter: self.meter.clone(),
        }
    }

    /// Notes that a background task panicked.
    pub(crate) fn note_stopped(&self, error: &StorageError) {
        self.stopped_tasks.lock().push(error.to_string());
    }

    pub(crate) fn wrap_log(&self, log: Arc<LocalLog>) -> Arc<dyn PartitionLog> {
        match &self.wrap_log {
            Some(wrap) => wrap(log),
            None => Arc::new(log),
        }
    }
}

/// A store. Cheap to clone; every clone is the same store.
///
/// ```
/// use headwater_store::{Account, ContainerDefinition};
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let account = Account::ephemeral().await?;
/// let shop = account.create_database("shop").await?;
/// let orders = shop.create_container(ContainerDefinition::new("orders", "/customer")?).await?;
/// orders.create(r#"{"id":"1","customer":"ann","total":120}"#).await?;
///
/// let order = orders.read("ann", "1").await?.expect("it was just written");
/// assert!(order.to_bytes().starts_with(br#"{"id":"1","customer":"ann","total":120,"#));
/// account.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Account(pub(crate) Arc<AccountState>);

#[derive(Debug)]
pub(crate) struct AccountState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Catalog,
    containers: RwLock<HashMap<ContainerRid, Arc<ContainerState>>>,
    /// Held while a container is added to the catalog and opened. A second creator that finds the id taken
    /// then finds the container open.
    pub(crate) creating: tokio::sync::Mutex<()>,
    /// Ranges above the size limit that could not be split.
    pub(crate) postponed_splits: PostponedSplits,
    maintenance: TaskGroup,
}

impl Drop for AccountState {
    fn drop(&mut self) {
        // No handle is left, so no new work can arrive. The writers finish pending work and end.
        self.maintenance.stop();
        self.shared.writers.stop();
    }
}

impl Account {
    /// Opens the store in a directory, and creates the directory if it does not exist.
    ///
    /// # Errors
    /// When another process has it open, or its files cannot be read or are damaged.
    pub async fn open(dir: impl AsRef<Path>, options: Options) -> Result<Account, OpenError> {
        let root = dir.as_ref();
        if directory::is_unfinished(root) {
            // A restore in progress holds the lock; then the error says so.
            directory::lock(root)?;
            return Err(OpenError::UnfinishedRestore { dir: root.to_owned() });
        }
        Account::open_unfinished(root, options).await
    }

    /// Like [`open`](Account::open), but also opens a directory whose restore is not finished.
    pub(crate) async fn open_unfinished(
        root: &Path,
        options: Options,
    ) -> Result<Account, OpenError> {
        let root = root.to_owned();
        let io = |source| OpenError::Io { dir: root.clone(), source };
        let full = |source| io(source).explained(&root, OsDisk.free_bytes(&root));
        directory::prepare(&root).map_err(full)?;
        let lock = directory::lock(&root)?;
        let environment = Environment {
            runtime: Runtime::system(),
            disk: Arc::new(OsDisk),
            index: None,
            wrap_log: None,
        };
        let account = Account::open_in(environment, &root, options).await?;
        *account.0.shared.lock.lock() = Some(lock);
        Ok(account)
    }

    /// Opens a store in memory. Its data ends with the process.
    ///
    /// # Errors
    /// Fails only if the in-memory store cannot be created.
    pub async fn ephemeral() -> Result<Account, OpenError> {
        Account::ephemeral_with(Options::default()).await
    }

    /// Opens a store in memory with these options.
    ///
    /// # Errors
    /// Fails only if the in-memory store cannot be created.
    pub async fn ephemeral_with(options: Options) -> Result<Account, OpenError> {
        let environment = Environment {
            runtime: Runtime::system(),
            disk: Arc::new(MemoryDisk::new()),
            index: Some(MemoryIndex::default()),
            wrap_log: None,
        };
        Account::open_in(environment, Path::new("ephemeral"), options).await
    }

    /// Opens a store with a custom environment (runtime, disk, index), for tests and simulation.
    ///
    /// # Errors
    /// When its files cannot be read or are damaged.
    pub async fn open_in(
        environment: Environment,
        root: &Path,
        options: Options,
    ) -> Result<Account, OpenError> {
        let disk = environment.disk.clone();
        let mut opened = Account::open_all(environment.clone(), root, options.clone()).await;
        if let Err(OpenError::Storage(StorageError::Index(_))) = opened
            && environment.index.is_none()
            && is_doubted(&root.join(INDEX))
        {
            // A table of the index is damaged and marked as such. The second attempt rebuilds the index from
            // the log.
            opened = Account::open_all(environment, root, options).await;
        }
        opened.map_err(|error| error.explained(root, disk.free_bytes(root)))
    }

    async fn open_all(
        environment: Environment,
        root: &Path,
        options: Options,
    ) -> Result<Account, OpenError> {
        let Environment { runtime, disk, index, wrap_log } = environment;
        let io = |source| OpenError::Io { dir: root.to_owned(), source };
        disk.create_dir(&root.join("containers")).map_err(io)?;
        let index: Arc<dyn Index> = match index {
            Some(index) => Arc::new(index),
            None => Arc::new(FjallIndex::open(&root.join(INDEX), runtime.clone())?),
        };
        if disk.list(&root.join("catalog")).map_err(io)?.is_empty() {
            if !disk.list(&root.join("containers")).map_err(io)?.is_empty() {
                let file = root.join("catalog").display().to_string();
                let what = "the catalog is missing, but there are containers".to_owned();
                return Err(Damage { file, offset: 0, lsn: None, what }.into());
            }
            // The catalog syncs its own directory entry and that of `containers`. The entry of the root is
            // synced here.
            disk.sync_dir(root.parent().unwrap_or(Path::new(""))).map_err(io)?;
        }
        let query_memory = Arc::new(MemoryPool::new(options.queries.memory_bytes_together));
        let shared = Arc::new(Shared {
            stopped_tasks: Mutex::default(),
            writers: TaskGroup::new(runtime.clone()),
            runtime: runtime.clone(),
            disk,
            root: root.to_owned(),
            index,
            meter: Arc::default(),
            recent: ItemCache::new(options.recent_bytes),
            options,
            turns: Arc::default(),
            offenders: Offenders::default(),
            wrap_log,
            leftovers: Leftovers::default(),
            query_lanes: Arc::default(),
            understood: Understood::default(),
            query_memory,
            lock: Mutex::new(None),
        });
        let catalog = Catalog::open(shared.clone())?;
        let account = Account(Arc::new(AccountState {
            maintenance: TaskGroup::new(runtime),
            containers: RwLock::default(),
            creating: tokio::sync::Mutex::default(),
            postponed_splits: PostponedSplits::default(),
            shared,
            catalog,
        }));
        if let Err(error) = account.open_containers().await {
            // The files must not be open when this returns.
            account.0.shared.writers.shutdown().await;
            let _ = account.0.shared.index.close();
            return Err(error);
        }
        maintenance::start(&account);
        rebuild::start(&account);
        Ok(account)
    }

    async fn open_containers(&self) -> Result<(), OpenError> {
        let resources = self.0.catalog.resources();
        for entry in resources.containers.values() {
            container_file::update(&self.0.shared, &resources, entry.rid);
            let state = ContainerState::open(&self.0, entry).await?;
            self.0.containers.write().insert(entry.rid, state);
        }
        let listed = self.0.shared.disk.list(&self.0.shared.root.join("containers"));
        for name in listed.unwrap_or_default() {
            let rid = u64::from_str_radix(&name, 16).ok();
            if rid.is_some_and(|rid| !resources.containers.contains_key(&rid)) {
                // A container that was dropped, or whose creation was interrupted, before a crash.
                let dir = self.0.shared.root.join("containers").join(name);
                let _ = self.0.shared.disk.remove_dir(&dir);
            }
        }
        Ok(())
    }

    /// Finishes pending writes, saves checkpoints that make the next open fast, and closes the store.
    ///
    /// Dropping an account without calling this loses no acknowledged write. The store then stays locked
    /// until its writers have ended.
    ///
    /// # Errors
    /// When the last files cannot be written. No acknowledged write is lost.
    pub async fn close(&self) -> Result<(), StorageError> {
        self.0.maintenance.shutdown().await;
        self.0.shared.writers.shutdown().await;
        self.0.catalog.close().await;
        let containers: Vec<_> = self.0.containers.read().values().cloned().collect();
        let shared = &self.0.shared;
        let checkpointed = shared.runtime.blocking(|| {
            for container in &containers {
                container.checkpoint()?;
            }
            self.0.catalog.log().checkpoint()
        });
        let failed =
            |error: std::io::Error| StorageError::Append(headwater_log::AppendError::Io(error));
        checkpointed.map_err(failed)?;
        shared.index.close()?;
        for container in &containers {
            container.close();
        }
        self.0.containers.write().clear();
        *shared.lock.lock() = None;
        Ok(())
    }

    /// The number of partitions of a new container whose creator gives none.
    #[must_use]
    pub fn default_partitions(&self) -> u32 {
        self.0.shared.options.partitions
    }

    /// Creates a database.
    ///
    /// # Errors
    /// When the id is taken or not valid.
    pub async fn create_database(&self, id: &str) -> Result<Database, CatalogError> {
        let id = DatabaseId::new(id)?;
        let event = self.0.catalog.change(|resources| {
            if resources.database(&id).is_some() {
                return Err(CatalogError::AlreadyExists { what: "database", id: id.to_string() });
            }
            Ok(Event::DatabaseCreated { rid: resources.next_database(), id: id.clone() })
        });
        event.await?;
        self.database(id.as_str()).await
    }

    /// Creates a database, or returns the existing one with this id.
    ///
    /// # Errors
    /// When the id is not valid.
    pub async fn create_database_if_absent(&self, id: &str) -> Result<Database, CatalogError> {
        match self.create_database(id).await {
            Err(CatalogError::AlreadyExists { .. }) => self.database(id).await,
            made => made,
        }
    }

    /// Finds a database by its id.
    ///
    /// # Errors
    /// When no database has this id.
    pub async fn database(&self, id: &str) -> Result<Database, CatalogError> {
        let known = DatabaseId::new(id)?;
        let resources = self.0.catalog.resources();
        let entry = resources.database(&known).ok_or_else(|| no_database(id))?;
        Ok(Database { account: self.clone(), rid: entry.rid, id: entry.id.clone() })
    }

    /// Finds a database by its id, or by its resource id if no database has that id.
    #[must_use]
    pub fn find_database(&self, name: &str) -> Option<Database> {
        let resources = self.0.catalog.resources();
        let by_name = resources.databases.values().find(|entry| entry.id.as_str() == name);
        let by_rid = || resources.databases.get(&DatabaseRid::parse(name).ok()?.get());
        let entry = by_name.or_else(by_rid)?;
        Some(Database { account: self.clone(), rid: entry.rid, id: entry.id.clone() })
    }

    /// All databases, in order of creation.
    #[must_use]
    pub fn databases(&self) -> Vec<Database> {
        let resources = self.0.catalog.resources();
        let handle = |entry: &crate::catalog::DatabaseEntry| Database {
            account: self.clone(),
            rid: entry.rid,
            id: entry.id.clone(),
        };
        resources.databases.values().map(handle).collect()
    }

    /// Drops a database and everything in it.
    ///
    /// # Errors
    /// When no database has this id.
    pub async fn drop_database(&self, id: &str) -> Result<(), CatalogError> {
        let known = DatabaseId::new(id)?;
        let before = self.0.catalog.resources();
        let rid = before.database(&known).ok_or_else(|| no_database(id))?.rid;
        let event = self.0.catalog.change(|resources| {
            let entry = resources.database(&known).filter(|entry| entry.rid == rid);
            entry.ok_or_else(|| no_database(id))?;
            Ok(Event::DatabaseDropped { rid: rid.get() })
        });
        event.await?;
        let gone: Vec<ContainerRid> =
            self.0.containers.read().keys().filter(|key| key.database() == rid).copied().collect();
        for container in gone {
            self.0.forget_container(container).await?;
        }
        Ok(())
    }

    pub(crate) fn open_container_states(&self) -> Vec<Arc<ContainerState>> {
        self.0.containers.read().values().cloned().collect()
    }

    /// The open container with this resource id, if there is one.
    #[must_use]
    pub fn container_by_rid(&self, rid: ContainerRid) -> Option<Container> {
        let state = self.0.containers.read().get(&rid).cloned()?;
        Some(Container::new(state, self.0.clone()))
    }

    /// Background tasks that panicked since the store was opened, each as an error message. A store with such
    /// a task should be closed and opened again.
    #[must_use]
    pub fn stopped_tasks(&self) -> Vec<String> {
        self.0.shared.stopped_tasks.lock().clone()
    }

    pub(crate) fn maintenance_tasks(&self) -> &TaskGroup {
        &self.0.maintenance
    }

    /// Runs maintenance once: deletes expired items, compacts logs and splits a range that is too large.
    ///
    /// # Errors
    /// When reading or writing fails. No data is lost.
    pub async fn maintain(&self) -> Result<(), StorageError> {
        maintenance::run_once(self).await
    }
}

impl AccountState {
    /// Retires a container that was removed from the catalog, and deletes its data.
    async fn forget_container(&self, rid: ContainerRid) -> Result<(), StorageError> {
        let Some(state) = self.containers.write().remove(&rid) else {
            return Ok(());
        };
        state.retire().await;
        let (from, to) = keys::all(rid);
        remove_range(&*self.shared.index, &from, &to)?;
        let dir = self.shared.container_dir(rid);
        if let Err(error) = self.shared.disk.remove_dir(&dir) {
            // The next open removes the rest.
            tracing::warn!(dir = %dir.display(), %error, "cannot remove a dropped container; the next open retries");
        }
        Ok(())
    }
}

fn no_database(id: &str) -> CatalogError {
    CatalogError::NotFound { what: "database", id: id.to_owned() }
}

fn no_container(id: &str) -> CatalogError {
    CatalogError::NotFound { what: "container", id: id.to_owned() }
}

/// A database: a namespace of containers.
#[derive(Clone, Debug)]
pub struct Database {
    account: Account,
    rid: DatabaseRid,
    id: DatabaseId,
}

impl Database {
    /// The id of the database.
    #[must_use]
    pub fn id(&self) -> &DatabaseId {
        &self.id
    }

    /// The resource id of the database. A database that is dropped and created again gets a new one.
    #[must_use]
    pub fn rid(&self) -> DatabaseRid {
        self.rid
    }

    /// The etag, which changes with every change of the database itself; `None` once it is dropped.
    #[must_use]
    pub fn etag(&self) -> Option<Etag> {
        let resources = self.account.0.catalog.resources();
        resources.databases.get(&self.rid.get()).map(|entry| entry.stamp.etag())
    }

    /// The time of creation; `None` once the database is dropped.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        let resources = self.account.0.catalog.resources();
        resources.databases.get(&self.rid.get()).map(|entry| entry.stamp.timestamp)
    }

    /// Creates a container with [`Options::partitions`] partitions.
    ///
    /// # Errors
    /// When the id is taken or the definition is not valid.
    pub async fn create_container(
        &self,
        definition: ContainerDefinition,
    ) -> Result<Container, CatalogError> {
        let partitions = self.account.0.shared.options.partitions;
        self.create_container_with(definition, partitions).await
    }

    /// Creates a container, or returns the existing one with this id, whatever its definition is.
    ///
    /// # Errors
    /// When the definition is not valid.
    pub async fn create_container_if_absent(
        &self,
        definition: ContainerDefinition,
    ) -> Result<Container, CatalogError> {
        let id = definition.id().to_string();
        match self.create_container(definition).await {
            Err(CatalogError::AlreadyExists { .. }) => self.container(&id).await,
            made => made,
        }
    }

    /// Creates a container with this number of partitions.
    ///
    /// # Errors
    /// When the id is taken, or the definition or the number is not valid.
    pub async fn create_container_with(
        &self,
        definition: ContainerDefinition,
        partitions: u32,
    ) -> Result<Container, CatalogError> {
        let definition = definition.checked()?;
        definition.check_new()?;
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(DefinitionError::Partitions(partitions).into());
        }
        let ranges = definition.partition_key().default_ranges(partitions);
        let entries: Vec<PartitionEntry> = (0..)
            .zip(ranges)
            .map(|(id, range)| PartitionEntry { id, range, ancestors: Vec::new() })
            .collect();
        let account = &self.account.0;
        let _creating = account.creating.lock().await;
        let mut rid = None;
        let event = account.catalog.change(|resources| {
            if !resources.databases.contains_key(&self.rid.get()) {
                return Err(no_database(self.id.as_str()));
            }
            let id = definition.id();
            if resources.container(self.rid, id).is_some() {
                return Err(CatalogError::AlreadyExists { what: "container", id: id.to_string() });
            }
            let new = ContainerRid::new(self.rid.get(), resources.next_container());
            rid = Some(new);
            // Create the logs first: a log that the catalog lists and that is missing counts as damage.
            topology::create_logs(&account.shared, new, &entries)?;
            Ok(Event::ContainerCreated {
                rid: new.as_u64(),
                definition: definition.to_json(),
                partitions: entries.clone(),
                next_partition: 0,
            })
        });
        event.await?;
        let rid = rid.ok_or(StorageError::Closed)?;
        let resources = account.catalog.resources();
        let entry = resources.containers.get(&rid.as_u64()).ok_or(StorageError::Closed)?;
        container_file::update(&account.shared, &resources, rid);
        let state = ContainerState::open(account, entry).await.map_err(|error| match error {
            OpenError::Storage(error) => error,
            other => StorageError::Index(other.to_string()),
        })?;
        account.containers.write().insert(rid, state.clone());
        Ok(Container::new(state, account.clone()))
    }

    /// Finds a container by its id.
    ///
    /// # Errors
    /// When no container has this id.
    pub async fn container(&self, id: &str) -> Result<Container, CatalogError> {
        let known = ContainerId::new(id)?;
        let resources = self.account.0.catalog.resources();
        let entry = resources.container(self.rid, &known).ok_or_else(|| no_container(id))?;
        self.account.container_by_rid(entry.rid).ok_or_else(|| no_container(id))
    }

    /// Finds a container by its id, or by its resource id if no container has that id.
    #[must_use]
    pub fn find_container(&self, name: &str) -> Option<Container> {
        let resources = self.account.0.catalog.resources();
        let mut siblings = resources.containers_of(self.rid);
        let by_name = siblings.find(|entry| entry.definition.id().as_str() == name);
        let by_rid = || {
            let rid = ContainerRid::parse(name).ok().filter(|rid| rid.database() == self.rid)?;
            resources.containers.get(&rid.as_u64())
        };
        self.account.container_by_rid(by_name.or_else(by_rid)?.rid)
    }

    /// All containers, in order of creation.
    #[must_use]
    pub fn containers(&self) -> Vec<Container> {
        let resources = self.account.0.catalog.resources();
        let open =
            |entry: &crate::catalog::ContainerEntry| self.account.container_by_rid(entry.rid);
        resources.containers_of(self.rid).filter_map(open).collect()
    }

    /// Changes the policies of a container. Its id, partition key and unique keys cannot change.
    ///
    /// # Errors
    /// When there is no such container, or the change is not valid.
    pub async fn replace_container(
        &self,
        definition: ContainerDefinition,
    ) -> Result<Container, CatalogError> {
        let definition = definition.checked()?;
        let id = definition.id().clone();
        let event = self.account.0.catalog.change(|resources| {
            let entry =
                resources.container(self.rid, &id).ok_or_else(|| no_container(id.as_str()))?;
            if entry.definition.partition_key() != definition.partition_key() {
                return Err(CatalogError::Immutable { field: "partitionKey" });
            }
            if entry.definition.unique_keys() != definition.unique_keys() {
                return Err(CatalogError::Immutable { field: "uniqueKeyPolicy" });
            }
            Ok(Event::ContainerReplaced {
                rid: entry.rid.as_u64(),
                definition: definition.to_json(),
            })
        });
        event.await?;
        let container = self.container(id.as_str()).await?;
        container.state().adopt_definition(&self.account.0.catalog)?;
        let account = &self.account.0;
        container_file::update(&account.shared, &account.catalog.resources(), container.rid());
        Ok(container)
    }

    /// Drops a container and all its items.
    ///
    /// # Errors
    /// When no container has this id.
    pub async fn drop_container(&self, id: &str) -> Result<(), CatalogError> {
        let known = ContainerId::new(id)?;
        let mut dropped = None;
        let event = self.account.0.catalog.change(|resources| {
            let entry = resources.container(self.rid, &known).ok_or_else(|| no_container(id))?;
            dropped = Some(entry.rid);
            Ok(Event::ContainerDropped { rid: entry.rid.as_u64() })
        });
        event.await?;
        if let Some(rid) = dropped {
            self.account.0.forget_container(rid).await?;
        }
        Ok(())
    }
}
