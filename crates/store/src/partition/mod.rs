//! A partition: one range of hashed keys, one log, one writer, many readers.
//!
//! ```text
//! requests ─► writer ─► log ─► apply ─► visible ─► readers
//! ```
//!
//! Only [`writer`] decides writes and assigns LSNs. [`apply`] turns an entry into index rows and is
//! deterministic. [`feed`] reads. `visible` advances after the index has applied an entry, so a reader that
//! sees a change in the feed also finds the item.

pub(crate) mod apply;
pub(crate) mod control;
mod evaluate;
pub(crate) mod feed;
mod filtered;
mod last_writes;
mod newest;
pub(crate) mod population;
pub(crate) mod recover;
pub(crate) mod writer;

use crate::account::Shared;
use crate::definition::Settings;
use crate::error::StorageError;
use crate::item::{Item, ItemKey, Meta, Written, item_of, item_with};
use crate::keys::{self, ItemRow};
use crate::prepare::{Action, ConditionResult, Operation, PrefetchedRow};
use crate::quarantine::Quarantine;
use crate::recent::CachedItem;
use headwater_log::{Damage, LocalLog, PartitionLog, Position, RecordKind, Tail};
use headwater_model::{ContainerRid, Epk, KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::{Bell, Listener, TaskFailure};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Capacity of the writer's queue. When it is full, callers wait (backpressure).
const QUEUE_REQUESTS_MAX: usize = 1024;
/// How long a caller waits for the result of a writer that has ended.
const ENDING_MAX: Duration = Duration::from_secs(1);
/// How long a reader waits for the index before it reads again.
const APPLYING_MAX: Duration = Duration::from_millis(50);

/// Requests to the writer.
pub(crate) enum Work {
    /// Execute all operations, or none.
    Transaction(SmallVec<[Operation; 1]>),
    /// Delete some of the items of a partition key that existed at `upto`.
    DeleteKey { epk: Epk, encoded: Vec<u8>, upto: Lsn },
    /// Seal the log: take no more writes.
    Seal(control::Seal),
    /// Take a snapshot of log and index at the same LSN.
    Cut,
    /// Write nothing until the index is replaced, or until the sender is dropped.
    Pause(oneshot::Receiver<()>),
    /// Finish earlier requests, then end.
    Retire,
}

/// Results of the writer.
pub(crate) enum Answer {
    Transaction(Vec<Written>),
    Deleted(usize),
    Sealed(Lsn),
    Cut(Cut),
    /// The writer is paused; the log ends at this LSN.
    Paused(Lsn),
    Retired,
}

/// A consistent snapshot of a partition at one LSN. Writes continue meanwhile.
pub(crate) struct Cut {
    pub(crate) log: headwater_log::Snapshot,
    pub(crate) index: Arc<dyn crate::index::IndexView>,
}

/// Reasons why the writer refused a request.
pub(crate) enum Refusal {
    /// The partition was split, merged or dropped; the work belongs to its successors.
    Gone(Box<Work>),
    /// An operation of a transaction failed.
    Operation(usize, crate::error::WriteError),
    Storage(StorageError),
}

pub(crate) struct Request {
    pub(crate) work: Work,
    pub(crate) reply: oneshot::Sender<Result<Answer, Refusal>>,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    pub(crate) range: KeyRange,
    /// Partitions this one was split or merged from, the oldest first.
    pub(crate) ancestors: Vec<PartitionId>,
    pub(crate) container: ContainerRid,
    /// The log, or the quarantine of a partition that could not be opened.
    log: Result<Arc<LocalLog>, Arc<Quarantine>>,
    /// The quarantine of a partition that was opened and failed later.
    set_aside: OnceLock<Arc<Quarantine>>,
    /// Damage that a read found since the partition was opened.
    damage: OnceLock<Damage>,
    pub(crate) settings: Arc<RwLock<Arc<Settings>>>,
    /// The common prefix of the `_self` link of all items.
    self_prefix: String,
    shared: Arc<Shared>,
    visible: AtomicU64,
    /// Rung when `visible` advances. Carries no data: a reader that misses it only reads later.
    changed: Bell,
    /// The last write of each partition key, for transactions that have read a whole key.
    pub(crate) last_writes: last_writes::LastWrites,
    pub(crate) population: population::Population,
    requests: mpsc::Sender<Request>,
    writer_end: OnceLock<Result<(), TaskFailure>>,
    writer_ended: Bell,
    /// The latest time this partition has used. It never decreases, so a clock that jumps back cannot
    /// resurrect expired items.
    newest_millis: AtomicU64,
    /// Set when a split or merge of this partition failed: it takes no more writes and gets no successors.
    abandoned: AtomicBool,
}

/// Result of reading an item.
pub(crate) enum Look {
    Found(Option<Item>),
    /// The item is not at the expected position because it was written again. Read its row again, in this
    /// partition or its successor.
    Moved,
}

/// A partition whose writer is not started yet.
pub(crate) struct Prepared {
    pub(crate) partition: Arc<Partition>,
    pub(crate) writer: writer::Writer,
}

impl Partition {
    /// Creates a partition on its log, and the writer to start.
    pub(crate) fn prepare(
        identity: Identity,
        shared: Arc<Shared>,
        settings: Arc<RwLock<Arc<Settings>>>,
        local: Arc<LocalLog>,
        next_rid: u64,
    ) -> Prepared {
        let tail = local.local_tail();
        let log: Arc<dyn PartitionLog> = shared.wrap_log(local.clone());
        let (partition, queue) =
            Partition::new(identity, shared, settings, Ok(local.clone()), tail);
        let writer = writer::Writer::new(partition.clone(), local, log, queue, next_rid);
        Prepared { partition, writer }
    }

    /// Creates a partition that is not served. It has no writer.
    pub(crate) fn quarantined(
        identity: Identity,
        shared: Arc<Shared>,
        settings: Arc<RwLock<Arc<Settings>>>,
        quarantine: Arc<Quarantine>,
    ) -> Arc<Partition> {
        let tail = Tail::start(Lsn::ZERO);
        Partition::new(identity, shared, settings, Err(quarantine), tail).0
    }

    fn new(
        identity: Identity,
        shared: Arc<Shared>,
        settings: Arc<RwLock<Arc<Settings>>>,
        log: Result<Arc<LocalLog>, Arc<Quarantine>>,
        tail: Tail,
    ) -> (Arc<Partition>, mpsc::Receiver<Request>) {
        let (requests, queue) = mpsc::channel(QUEUE_REQUESTS_MAX);
        let partition = Arc::new(Partition {
            id: identity.id,
            range: identity.range,
            ancestors: identity.ancestors,
            self_prefix: format!(
                "dbs/{}/colls/{}/docs/",
                identity.container.database(),
                identity.container
            ),
            container: identity.container,
            visible: AtomicU64::new(tail.lsn.get()),
            newest_millis: AtomicU64::new(tail.timestamp.as_millis()),
            abandoned: AtomicBool::new(false),
            changed: Bell::default(),
            last_writes: last_writes::LastWrites::since(tail.lsn),
            population: population::Population::new(tail.lsn == Lsn::ZERO),
            damage: OnceLock::new(),
            set_aside: OnceLock::new(),
            requests,
            writer_end: OnceLock::new(),
            writer_ended: Bell::default(),
            settings,
            log,
            shared,
        });
        (partition, queue)
    }

    /// The log of the partition.
    ///
    /// # Errors
    /// When the partition is quarantined.
    pub(crate) fn log(&self) -> Result<&Arc<LocalLog>, StorageError> {
        match (self.quarantine(), &self.log) {
            (None, Ok(log)) => Ok(log),
            (Some(quarantine), _) | (None, Err(quarantine)) => {
                Err(StorageError::Quarantined(quarantine.clone()))
            }
        }
    }

    /// Fails when the partition is quarantined. Called before its index rows are read, and again after a read
    /// that found none: a rebuild may have omitted them meanwhile.
    pub(crate) fn check_served(&self) -> Result<(), StorageError> {
        self.log().map(|_| ())
    }

    /// The quarantine of the partition, if it is not served.
    pub(crate) fn quarantine(&self) -> Option<&Arc<Quarantine>> {
        self.set_aside.get().or(self.log.as_ref().err())
    }

    /// Quarantines a partition in use. Called before its rows disappear from the index.
    pub(crate) fn set_aside(&self, quarantine: Arc<Quarantine>) {
        let _ = self.set_aside.set(quarantine);
        self.wake_waiters();
    }

    /// Records damage found while the partition is in use. Only the first is kept and logged.
    pub(crate) fn note_damage(&self, error: &StorageError) {
        if let StorageError::Damaged(damage) = error
            && self.damage.set(damage.clone()).is_ok()
        {
            tracing::error!(partition = %self.id, %error, "damage found; the rest of the partition is served");
        }
    }

    /// Damage found while the partition is in use.
    pub(crate) fn known_damage(&self) -> Option<&Damage> {
        self.damage.get()
    }

    /// The fencing epoch of the log.
    pub(crate) fn epoch(&self) -> u32 {
        self.log.as_ref().map_or(0, |log| log.epoch())
    }

    /// The newest LSN that can be read.
    pub(crate) fn visible(&self) -> Lsn {
        Lsn::new(self.visible.load(Ordering::Acquire))
    }

    fn publish(&self, lsn: Lsn) {
        debug_assert!(lsn >= self.visible(), "the visible LSN never decreases");
        self.visible.store(lsn.get(), Ordering::Release);
        self.changed.ring_spread(&self.shared.runtime);
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Wakes waiting readers, so that they find the partition gone.
    pub(crate) fn wake_waiters(&self) {
        self.changed.ring();
    }

    /// A listener for changes of the visible LSN.
    pub(crate) fn listen(&self) -> Listener {
        self.changed.listen()
    }

    /// The current time, which never decreases within a partition.
    pub(crate) fn now(&self) -> Timestamp {
        let clock = self.shared.runtime.unix_millis();
        let before = self.newest_millis.fetch_max(clock, Ordering::AcqRel);
        Timestamp::from_millis(before.max(clock))
    }

    pub(crate) fn current_settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// Sends work to the writer and waits for its result.
    pub(crate) async fn submit(&self, mut work: Work) -> Result<Answer, Refusal> {
        if let Work::Transaction(operations) = &mut work {
            operations.iter_mut().for_each(|operation| self.prefetch(operation));
        }
        let (reply, answer) = oneshot::channel();
        if let Err(mpsc::error::SendError(request)) =
            self.requests.send(Request { work, reply }).await
        {
            return Err(Refusal::Gone(Box::new(request.work)));
        }
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(Refusal::Storage(self.stopped().await)),
        }
    }

    /// Ends the writer of a partition that was dropped or replaced. Until it ends, it keeps the partition in
    /// memory and its files open.
    pub(crate) async fn retire(&self) {
        self.wake_waiters();
        // The submit fails if the writer has ended already.
        let _ = self.submit(Work::Retire).await;
    }

    /// The reason why the writer does not answer: the store closes, or the writer panicked.
    pub(crate) async fn stopped(&self) -> StorageError {
        let mut ended = self.writer_ended.listen();
        // The writer's channels are dropped shortly before its end is reported, so wait for the report.
        if self.writer_end.get().is_none() {
            let _ = self.shared.runtime.timeout(ENDING_MAX, ended.rang()).await;
        }
        match self.writer_end.get() {
            Some(Err(failure)) => self.stopped_with(failure.message.clone()),
            _ => StorageError::Closed,
        }
    }

    /// The error of a writer that cannot continue.
    fn stopped_with(&self, message: String) -> StorageError {
        let settings = self.current_settings();
        let (id, container) = (self.id, settings.definition.id());
        let task = format!("the writer of partition {id} of container {container}");
        StorageError::Stopped { task, message }
    }

    fn note_writer_end(&self, ended: Result<(), TaskFailure>) {
        if let Err(failure) = &ended {
            self.shared.note_stopped(&self.stopped_with(failure.message.clone()));
        }
        let _ = self.writer_end.set(ended);
        self.writer_ended.ring();
    }

    /// Reads the row that the writer will need, and evaluates the condition of a patch, in the caller's task:
    /// there is one writer and many callers. If the row changes meanwhile, the writer notices and reads it
    /// again.
    fn prefetch(&self, operation: &mut Operation) {
        let key = keys::item(self.container, operation.key.epk.as_bytes(), &operation.key.tail);
        let at = self.visible();
        // An error here also occurs in the writer, which reports it.
        operation.prefetched = self.row(&key).ok().map(|row| PrefetchedRow { at, row });
        if let (Action::Patch(_, Some(holds)), Some(PrefetchedRow { row: Some(row), .. })) =
            (&operation.action, operation.prefetched)
        {
            let record = self.log().ok().and_then(|log| {
                log.record(row.position, operation.key.epk.as_bytes()).ok().flatten()
            });
            operation.condition_result = record
                .as_ref()
                .and_then(item_of)
                .map(|item| ConditionResult {
                    version: row.position,
                    holds: holds(&item.to_bytes()),
                })
                .map(Box::new);
        }
    }

    pub(crate) fn row(&self, key: &[u8]) -> Result<Option<ItemRow>, StorageError> {
        let row = self.shared.index.get(key)?;
        let malformed = || self.shared.index.doubt("a row is malformed");
        row.map(|value| ItemRow::decode(&value).ok_or_else(malformed)).transpose()
    }

    /// Reads the current version of an item.
    pub(crate) fn look(&self, key: &ItemKey) -> Result<Look, StorageError> {
        self.find_newest(key).inspect_err(|error| self.note_damage(error))
    }

    fn find_newest(&self, key: &ItemKey) -> Result<Look, StorageError> {
        let log = self.log()?;
        let row_key = keys::item(self.container, key.epk.as_bytes(), &key.tail);
        let ticket = match self.shared.recent.look(&row_key) {
            Ok(CachedItem { row, .. }) if self.is_expired(&row) => return Ok(Look::Found(None)),
            Ok(CachedItem { record, .. }) => return Ok(Look::Found(item_of(&record))),
            Err(ticket) => ticket,
        };
        let Some(row) = self.row(&row_key)?.filter(|row| !self.is_expired(row)) else {
            self.check_served()?;
            return Ok(Look::Found(None));
        };
        let Some(record) = log.record(row.position, key.epk.as_bytes())? else {
            return Ok(Look::Moved);
        };
        self.shared.recent.keep(ticket, row_key, row, &record);
        Ok(Look::Found(item_of(&record)))
    }

    /// Reads an item at a position taken from a secondary index. While that record is live it is the current
    /// version: an index only has visible entries, and a record is marked dead before the one that replaces
    /// it is visible.
    pub(crate) fn look_at(
        &self,
        position: Position,
        epk: &[u8],
        tail: &[u8],
    ) -> Result<Look, StorageError> {
        let Some(record) = self.log()?.live_record(position, epk)? else { return Ok(Look::Moved) };
        let meta = Meta::decode(record.meta()).filter(|meta| {
            record.kind == RecordKind::Put && meta.tail == tail && record.epk() == epk
        });
        let Some(meta) = meta else { return Ok(Look::Moved) };
        let is_expired = self.has_expired(record.timestamp.as_seconds(), meta.ttl);
        Ok(Look::Found((!is_expired).then(|| item_with(&record, &meta))))
    }

    fn is_expired(&self, row: &ItemRow) -> bool {
        self.has_expired(row.written, row.ttl)
    }

    fn has_expired(&self, written: u64, ttl: i32) -> bool {
        // Read the clock only if the item can expire.
        let expires = self.settings.read().expires_at(written, ttl);
        expires.is_some_and(|second| second <= self.now().as_seconds())
    }

    /// Waits until the index has applied the end of the log, for at most [`APPLYING_MAX`]. Callers read again
    /// in any case.
    pub(crate) async fn until_applied(&self) {
        let Ok(log) = self.log() else { return };
        let mut changed = self.listen();
        if self.visible() < log.local_tail().lsn {
            let _ = self.shared.runtime.timeout(APPLYING_MAX, changed.rang()).await;
        }
    }

    /// The unique keys that an item claims, read from its record.
    pub(crate) fn unique_keys_of(
        &self,
        row: &ItemRow,
        epk: &[u8],
    ) -> Result<Vec<u8>, StorageError> {
        let record = self.log()?.record(row.position, epk)?;
        let unique = record
            .as_ref()
            .and_then(|record| Meta::decode(record.meta()).map(|meta| meta.unique.to_vec()));
        Ok(unique.unwrap_or_default())
    }

    /// Whether items of one key have more bytes than this in total. Offset tables answer unless entries of
    /// several items make the sum uncertain.
    pub(crate) fn do_items_exceed(
        &self,
        positions: &[Position],
        epk: &[u8],
        bytes_max: usize,
    ) -> Result<bool, StorageError> {
        let log = self.log()?;
        let mut positions = positions.to_vec();
        positions.sort_unstable();
        let mut entries = positions.clone();
        entries.dedup_by_key(|position| (position.origin, position.lsn));
        let mut bytes = 0;
        for entry in &entries {
            bytes += log.entry_bytes(*entry, epk)? as usize;
        }
        if bytes <= bytes_max {
            return Ok(false);
        }
        let mut reader = log.record_reader();
        bytes = 0;
        for position in &positions {
            let record = reader.record(*position, epk)?;
            bytes += record.as_ref().and_then(item_of).map_or(0, |item| item.to_bytes().len());
        }
        Ok(bytes > bytes_max)
    }
}

/// The identity of a partition, independent of its log.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) container: ContainerRid,
    pub(crate) id: PartitionId,
    pub(crate) range: KeyRange,
    pub(crate) ancestors: Vec<PartitionId>,
}
