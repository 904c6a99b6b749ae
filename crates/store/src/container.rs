//! A container: routes each call to the partition that owns the key.
//!
//! When a partition was split or merged during a call, the call is repeated on its successors. Decides
//! nothing about items; the partition's writer does.

use crate::account::{AccountState, Shared};
use crate::body::Patch;
use crate::catalog::{Catalog, ContainerEntry};
use crate::count::LongScopes;
use crate::definition::{ContainerDefinition, Settings};
use crate::error::{BatchError, ItemReadError, OpenError, StorageError, WriteError};
use crate::item::{Item, ItemKey, ItemWrite, Written};
use crate::partition::{Answer, Look, Partition, Refusal, Work};
use crate::prepare::{self, Operation, Steps};
use crate::query::{Query, QueryError, Value};
use crate::secondary::Secondary;
use crate::topology::Topology;
use crate::{maintenance, topology};
use bytes::Bytes;
use headwater_model::{
    ChangeKind, ContainerId, ContainerRid, Etag, ItemId, Lsn, PartitionId, PartitionKey, Timestamp,
};
use headwater_runtime::Bell;
use parking_lot::RwLock;
use std::sync::{Arc, Weak};

/// Most operations of a transaction.
const BATCH_OPERATIONS_MAX: usize = 100;
/// Most bytes of a transaction's bodies.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Attempts of a read whose item is rewritten between the look-up of its row and that of its record.
const CHASES_MAX: u32 = 100;

/// A container. Cheap to clone; every clone is the same container, and keeps its store open.
#[derive(Clone, Debug)]
pub struct Container {
    state: Arc<ContainerState>,
    account: Arc<AccountState>,
}

#[derive(Debug)]
pub(crate) struct ContainerState {
    pub(crate) rid: ContainerRid,
    pub(crate) shared: Arc<Shared>,
    pub(crate) account: Weak<AccountState>,
    pub(crate) settings: Arc<RwLock<Arc<Settings>>>,
    pub(crate) topology: RwLock<Arc<Topology>>,
    /// Rung when `topology` is replaced.
    pub(crate) topology_changed: Bell,
    /// Allows one split or merge at a time.
    pub(crate) reshaping: tokio::sync::Mutex<()>,
    /// Secondary indexes, for queries.
    pub(crate) secondary: Secondary,
    pub(crate) long: LongScopes,
}

impl ContainerState {
    pub(crate) async fn open(
        account: &Arc<AccountState>,
        entry: &ContainerEntry,
    ) -> Result<Arc<ContainerState>, OpenError> {
        let shared = account.shared.clone();
        let settings = Arc::new(RwLock::new(Arc::new(Settings::new(entry.definition.clone()))));
        let state = Arc::new(ContainerState {
            rid: entry.rid,
            account: Arc::downgrade(account),
            settings,
            topology: RwLock::new(Arc::new(Topology::default())),
            topology_changed: Bell::default(),
            reshaping: tokio::sync::Mutex::new(()),
            secondary: Secondary::load(&*shared.index, entry.rid)?,
            long: LongScopes::default(),
            shared,
        });
        topology::open(&state, &account.catalog).await?;
        maintenance::reindex_expiry_if_needed(&state, &*state.shared.index, entry.stamp.lsn)?;
        Ok(state)
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.topology.read().clone()
    }

    pub(crate) fn install(&self, topology: Topology) {
        *self.topology.write() = Arc::new(topology);
        self.topology_changed.ring();
    }

    /// Takes a dropped container out of service: later calls find it gone, and its partitions are retired.
    pub(crate) async fn retire(&self) {
        let _reshaping = self.reshaping.lock().await;
        let before = self.topology();
        self.install(Topology { dropped: true, ..Topology::default() });
        for partition in &before.partitions {
            partition.retire().await;
        }
    }

    /// Closes the container to readers and wakes those that wait for changes.
    pub(crate) fn close(&self) {
        self.install(Topology { closed: true, ..Topology::clone(&self.topology()) });
    }

    /// Wakes callers that wait for the successors of these partitions: the split or merge failed, so none
    /// will come.
    pub(crate) fn abandon(&self, partitions: &[Arc<Partition>]) {
        for partition in partitions {
            partition.abandon();
        }
        self.topology_changed.ring();
    }

    pub(crate) fn checkpoint(&self) -> std::io::Result<()> {
        for partition in &self.topology().partitions {
            if let Ok(log) = partition.log() {
                log.checkpoint()?;
            }
        }
        Ok(())
    }

    /// Applies the newest definition in the catalog.
    pub(crate) fn adopt_definition(
        self: &Arc<Self>,
        catalog: &Catalog,
    ) -> Result<(), StorageError> {
        let resources = catalog.resources();
        let Some(entry) = resources.containers.get(&self.rid.as_u64()) else {
            return Ok(());
        };
        let definition = entry.definition.clone();
        *self.settings.write() = Arc::new(Settings::new(definition));
        maintenance::reindex_expiry_if_needed(self, &*self.shared.index, entry.stamp.lsn)
    }

    /// Sends work to the partition that owns `epk`, and follows splits and merges.
    pub(crate) async fn submit(&self, epk: &[u8], mut work: Work) -> Result<Answer, Refusal> {
        loop {
            let mut changed = self.topology_changed.listen();
            let topology = self.topology();
            if topology.dropped {
                return Err(Refusal::Gone(Box::new(work)));
            }
            let Some(partition) = topology.partition_of(epk) else {
                return Err(Refusal::Storage(StorageError::Closed));
            };
            let log = partition.log().map_err(Refusal::Storage)?;
            match partition.submit(work).await {
                Err(Refusal::Gone(returned)) => work = *returned,
                decided => return decided,
            }
            // The partition takes no more writes. Either its successors are about to be installed, or the
            // split failed, or the store is closing.
            let replaced =
                self.topology().partition_of(epk).is_none_or(|now| !Arc::ptr_eq(now, partition));
            if replaced {
                continue;
            }
            if partition.is_abandoned() {
                return Err(Refusal::Storage(StorageError::Interrupted));
            }
            if !log.is_sealed() {
                return Err(Refusal::Storage(partition.stopped().await));
            }
            changed.rang().await;
        }
    }
}

impl Container {
    pub(crate) fn new(state: Arc<ContainerState>, account: Arc<AccountState>) -> Container {
        Container { state, account }
    }

    pub(crate) fn state(&self) -> &Arc<ContainerState> {
        &self.state
    }

    /// The id of the container.
    #[must_use]
    pub fn id(&self) -> ContainerId {
        self.definition().id().clone()
    }

    /// The resource id of the container. A container that is dropped and created again gets a new one.
    #[must_use]
    pub fn rid(&self) -> ContainerRid {
        self.state.rid
    }

    /// The current definition of the container.
    #[must_use]
    pub fn definition(&self) -> ContainerDefinition {
        self.settings().definition.clone()
    }

    /// Parses a query against this container's computed properties.
    ///
    /// # Errors
    /// When the query is not valid.
    pub fn parse_query(
        &self,
        text: &str,
        parameters: &[(String, Value<'static>)],
    ) -> Result<Query, QueryError> {
        let parsed = self.state.shared.understood.parse(text)?;
        parsed.with(parameters, self.settings().definition.computed_properties())
    }

    /// The etag, which changes with every change of the definition; `None` once the container is dropped.
    #[must_use]
    pub fn etag(&self) -> Option<Etag> {
        let resources = self.account.catalog.resources();
        resources.containers.get(&self.state.rid.as_u64()).map(|entry| entry.stamp.etag())
    }

    /// The time of the last change of the definition; `None` once the container is dropped.
    #[must_use]
    pub fn timestamp(&self) -> Option<Timestamp> {
        let resources = self.account.catalog.resources();
        resources.containers.get(&self.state.rid.as_u64()).map(|entry| entry.stamp.timestamp)
    }

    /// The id of its database; `None` once the database is dropped.
    pub(crate) fn database_id(&self) -> Option<String> {
        let resources = self.account.catalog.resources();
        let database = resources.databases.values();
        let mut database = database.filter(|database| database.rid == self.state.rid.database());
        database.next().map(|database| database.id.to_string())
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.state.settings.read().clone()
    }

    /// Creates an item. The body must have an `id`.
    ///
    /// # Errors
    /// When the item exists, or the body is not valid.
    pub async fn create(&self, body: impl Into<Bytes>) -> Result<Written, WriteError> {
        self.write(ItemWrite::create(body)).await
    }

    /// Creates an item, or replaces it if it exists.
    ///
    /// # Errors
    /// When the body is not valid.
    pub async fn upsert(&self, body: impl Into<Bytes>) -> Result<Written, WriteError> {
        self.write(ItemWrite::upsert(body)).await
    }

    /// Replaces an item.
    ///
    /// # Errors
    /// When the item does not exist, or the body is not valid.
    pub async fn replace(&self, id: &str, body: impl Into<Bytes>) -> Result<Written, WriteError> {
        self.write(ItemWrite::replace(id, body)).await
    }

    /// Deletes an item.
    ///
    /// # Errors
    /// When the item does not exist.
    pub async fn delete(
        &self,
        partition_key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<Written, WriteError> {
        self.write(ItemWrite::delete(partition_key, id)).await
    }

    /// Applies a patch to an item.
    ///
    /// # Errors
    /// When the item does not exist, or the patch cannot be applied.
    pub async fn patch(
        &self,
        partition_key: impl Into<PartitionKey>,
        id: &str,
        patch: Patch,
    ) -> Result<Written, WriteError> {
        self.write(ItemWrite::patch(partition_key, id, patch)).await
    }

    /// Executes one operation. When this returns, the change has the durability of the store's options and is
    /// in the change feed.
    ///
    /// # Errors
    /// When the operation is refused. Then nothing was changed.
    pub async fn write(&self, write: ItemWrite) -> Result<Written, WriteError> {
        let steps = prepare::prepare(&self.settings(), write)?;
        let Some(epk) = steps.first().map(|step| step.key.epk.clone()) else {
            return Err(WriteError::EmptyBatch);
        };
        let count = steps.len();
        match self.state.submit(epk.as_bytes(), Work::Transaction(steps)).await {
            Ok(Answer::Transaction(mut written)) => {
                let last = written.pop().map(|last| answer_of(last, count));
                last.ok_or(WriteError::Storage(StorageError::Closed))
            }
            Ok(_) => Err(StorageError::Closed.into()),
            Err(refusal) => Err(write_error(refusal)),
        }
    }

    /// Executes operations on items of one partition key as a transaction: all of them or none. They share
    /// one LSN.
    ///
    /// # Errors
    /// Names the operation that was refused. Then nothing was changed.
    pub async fn batch(
        &self,
        partition_key: impl Into<PartitionKey>,
        writes: Vec<ItemWrite>,
    ) -> Result<Vec<Written>, BatchError> {
        let key = partition_key.into();
        let whole = |error| BatchError { index: 0, error };
        let (steps, counts) = self.prepare_batch(&key, writes)?;
        let Some(first) = steps.first() else {
            return Err(whole(WriteError::EmptyBatch));
        };
        let epk = first.key.epk.clone();
        match self.state.submit(epk.as_bytes(), Work::Transaction(steps)).await {
            Ok(Answer::Transaction(written)) => {
                let mut written = written.into_iter();
                let last = |&count: &usize| Some(answer_of(written.nth(count - 1)?, count));
                Ok(counts.iter().filter_map(last).collect())
            }
            Ok(_) => Err(whole(StorageError::Closed.into())),
            Err(Refusal::Operation(step, error)) => {
                let mut behind = 0;
                let write = counts.iter().position(|count| {
                    behind += count;
                    step < behind
                });
                Err(BatchError { index: write.unwrap_or(0), error })
            }
            Err(refusal) => Err(whole(write_error(refusal))),
        }
    }

    /// The steps of all writes, and the number of steps of each.
    fn prepare_batch(
        &self,
        key: &PartitionKey,
        writes: Vec<ItemWrite>,
    ) -> Result<(Steps, Vec<usize>), BatchError> {
        let count = writes.len();
        if count > BATCH_OPERATIONS_MAX {
            let error = WriteError::TooManyOperations { count, limit: BATCH_OPERATIONS_MAX };
            return Err(BatchError { index: 0, error });
        }
        let settings = self.settings();
        let mut steps = Steps::with_capacity(count);
        let mut counts = Vec::with_capacity(count);
        let mut bytes = 0;
        for (index, write) in writes.into_iter().enumerate() {
            let failed = |error| BatchError { index, error };
            let write = match &write.partition_key {
                Some(other) if other != key => {
                    return Err(failed(WriteError::PartitionKeyMismatch {
                        given: key.to_json(),
                        in_body: other.to_json(),
                    }));
                }
                _ => write.partition_key(key.clone()),
            };
            let prepared = prepare::prepare(&settings, write).map_err(failed)?;
            bytes += prepared.iter().map(Operation::byte_count).sum::<usize>();
            if bytes > BATCH_BYTES_MAX {
                let error = WriteError::BatchTooLarge { bytes, limit: BATCH_BYTES_MAX };
                return Err(BatchError { index, error });
            }
            counts.push(prepared.len());
            steps.extend(prepared);
        }
        Ok((steps, counts))
    }

    /// Deletes all items that a partition key has now. Returns their number.
    ///
    /// # Errors
    /// When the key is not valid or the store fails. Some items may be deleted then.
    pub async fn delete_partition_key(
        &self,
        partition_key: impl Into<PartitionKey>,
    ) -> Result<usize, WriteError> {
        let key = partition_key.into();
        let epk = self.settings().definition.partition_key().epk(&key)?;
        let mut encoded = Vec::new();
        key.encode_into(&mut encoded);
        let owner = self.state.topology().partition_of(epk.as_bytes()).cloned();
        let upto = owner.ok_or(WriteError::ContainerGone)?.visible();
        let mut deleted = 0;
        loop {
            let work = Work::DeleteKey { epk: epk.clone(), encoded: encoded.clone(), upto };
            match self.state.submit(epk.as_bytes(), work).await {
                Ok(Answer::Deleted(0)) => return Ok(deleted),
                Ok(Answer::Deleted(count)) => deleted += count,
                Ok(_) => return Err(StorageError::Closed.into()),
                Err(refusal) => return Err(write_error(refusal)),
            }
        }
    }

    /// Whether the container was dropped. A handle stays dropped, also when the id is used again.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.state.topology().dropped
    }

    /// The range that owns a partition key, and its newest visible LSN.
    ///
    /// # Errors
    /// When the key does not fit the container, or the container is gone.
    pub fn locate(&self, key: &PartitionKey) -> Result<(PartitionId, Lsn), ItemReadError> {
        let epk = self.settings().definition.partition_key().epk(key)?;
        let topology = self.state.topology();
        let partition = topology.partition_of(epk.as_bytes());
        let partition = partition.ok_or(ItemReadError::ContainerGone)?;
        partition.check_served()?;
        Ok((partition.id, partition.visible()))
    }

    /// The newest visible LSN of a range; `None` if the range is gone.
    #[must_use]
    pub fn newest(&self, range: PartitionId) -> Option<Lsn> {
        self.state.topology().partition(range).map(|partition| partition.visible())
    }

    /// Reads an item; `None` if it does not exist.
    ///
    /// # Errors
    /// When the key or id is not valid, or the store fails.
    pub async fn read(
        &self,
        partition_key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<Option<Item>, ItemReadError> {
        Ok(self.find(&partition_key.into(), id).await?.2)
    }

    /// Like [`read`](Container::read), and also returns the range that answered and an LSN of it that the
    /// answer includes.
    ///
    /// # Errors
    /// When the key or id is not valid, or the store fails.
    pub async fn find(
        &self,
        partition_key: &PartitionKey,
        id: &str,
    ) -> Result<(PartitionId, Lsn, Option<Item>), ItemReadError> {
        let epk = self.settings().definition.partition_key().epk(partition_key)?;
        let key = ItemKey::new(epk, partition_key, &ItemId::new(id)?);
        self.find_key(&key).await
    }

    /// Reads the current version of an item.
    pub(crate) async fn read_key(&self, key: &ItemKey) -> Result<Option<Item>, ItemReadError> {
        Ok(self.find_key(key).await?.2)
    }

    async fn find_key(
        &self,
        key: &ItemKey,
    ) -> Result<(PartitionId, Lsn, Option<Item>), ItemReadError> {
        for _ in 0..CHASES_MAX {
            let topology = self.state.topology();
            let partition = topology.partition_of(key.epk.as_bytes());
            let partition = partition.ok_or(ItemReadError::ContainerGone)?;
            let seen = partition.visible();
            match partition.look(key)? {
                Look::Found(item) => {
                    // The item may be newer than `seen`, which was read first. LSNs of other partitions
                    // cannot be compared.
                    let own = item.as_ref().filter(|item| item.partition() == partition.id);
                    let seen = own.map_or(seen, |item| seen.max(item.lsn()));
                    return Ok((partition.id, seen, item));
                }
                Look::Moved => partition.until_applied().await,
            }
        }
        let what = "a row points to a record that is not in the log";
        Err(self.state.shared.index.doubt(what).into())
    }
}

/// What a write reports: the result of its last step. A write of several steps is a rename, reported as a
/// replace.
fn answer_of(last: Written, steps: usize) -> Written {
    if steps > 1 { Written { change: Some(ChangeKind::Replace), ..last } } else { last }
}

fn write_error(refusal: Refusal) -> WriteError {
    match refusal {
        Refusal::Operation(_, error) => error,
        Refusal::Storage(error) => error.into(),
        Refusal::Gone(_) => WriteError::ContainerGone,
    }
}
