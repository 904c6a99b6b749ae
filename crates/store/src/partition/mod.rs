//! A partition: one range of hashed keys, one log, one writer, many readers.
//!
//! ```text
//! requests ─► writer ─► log ─► apply ─► visible ─► readers
//! ```
//!
//! Only [`writer`] decides a write and gives out an LSN; [`apply`] turns an entry into index rows and
//! reads neither clock nor chance; [`feed`] reads. `visible` moves after the index has applied an
//! entry, so whoever sees a change in the feed also finds the item.

pub(crate) mod apply;
pub(crate) mod control;
mod evaluate;
pub(crate) mod feed;
mod filtered;
mod newest;
pub(crate) mod population;
pub(crate) mod recover;
mod touched;
pub(crate) mod writer;

use crate::account::Shared;
use crate::definition::Settings;
use crate::error::StorageError;
use crate::item::{Item, ItemKey, Meta, Written, item_of, item_with};
use crate::keys::{self, ItemRow};
use crate::prepare::{Action, Judged, Looked, Operation};
use crate::quarantine::Quarantine;
use crate::recent::Kept;
use headwater_log::{Damage, LocalLog, PartitionLog, Position, RecordKind, Tail};
use headwater_model::{ContainerRid, Epk, KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::{Bell, Listener, TaskFailure};
use parking_lot::RwLock;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for a writer before callers have to wait to be let in.
const QUEUE_REQUESTS_MAX: usize = 1024;
/// How long a caller waits for the report of a writer that has ended.
const ENDING_MAX: Duration = Duration::from_secs(1);
/// How long a reader waits for the index before it looks again.
const APPLYING_MAX: Duration = Duration::from_millis(50);

/// What a writer is asked to do.
pub(crate) enum Work {
    /// All of these, or none.
    Transaction(SmallVec<[Operation; 1]>),
    /// Delete some of the items of one partition key that were there at `upto`.
    DeleteKey { epk: Epk, encoded: Vec<u8>, upto: Lsn },
    /// Take no more writes.
    Seal(control::Seal),
    /// Cut through log and index at the same LSN.
    Cut,
    /// Write nothing until the index was replaced, or until the sender is dropped.
    Pause(oneshot::Receiver<()>),
    /// Finish what was asked before, and end.
    Retire,
}

/// What a writer answers.
pub(crate) enum Answer {
    Transaction(Vec<Written>),
    Deleted(usize),
    Sealed(Lsn),
    Cut(Cut),
    /// The writer writes no more; the log ends here.
    Paused(Lsn),
    Retired,
}

/// A partition at one exact LSN, while writes go on.
pub(crate) struct Cut {
    pub(crate) log: headwater_log::Snapshot,
    pub(crate) index: Arc<dyn crate::index::IndexView>,
}

/// Why a writer did not do it.
pub(crate) enum Refusal {
    /// The partition was split or merged away; the work is for whoever replaced it.
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
    /// Oldest first.
    pub(crate) ancestors: Vec<PartitionId>,
    pub(crate) container: ContainerRid,
    /// Its log, or why there is none.
    log: Result<Arc<LocalLog>, Arc<Quarantine>>,
    /// Why it is no longer served, though it was opened.
    set_aside: OnceLock<Arc<Quarantine>>,
    /// Damage that a read has met since the partition was opened.
    damage: OnceLock<Damage>,
    pub(crate) settings: Arc<RwLock<Arc<Settings>>>,
    /// What the `_self` of every item here begins with.
    self_prefix: String,
    shared: Arc<Shared>,
    visible: AtomicU64,
    /// Carries no data: a reader that misses one only looks later.
    changed: Bell,
    /// For transactions that have read a whole partition key.
    pub(crate) touched: touched::Touched,
    pub(crate) population: population::Population,
    requests: mpsc::Sender<Request>,
    writer_end: OnceLock<Result<(), TaskFailure>>,
    writer_ended: Bell,
    /// The latest time this partition has acted on, so that a clock set back brings nothing back.
    newest_millis: AtomicU64,
    /// It takes no more writes, and whoever was to replace it did not come.
    abandoned: AtomicBool,
}

/// What a look for an item finds.
pub(crate) enum Look {
    Found(Option<Item>),
    /// The item is not where somebody thought it is: it was written again, and the next row knows the new
    /// place, here or in whoever replaced this partition.
    Moved,
}

/// A partition whose writer has not been started.
pub(crate) struct Prepared {
    pub(crate) partition: Arc<Partition>,
    pub(crate) writer: writer::Writer,
}

impl Partition {
    /// A partition on its log, and the writer to start for it.
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

    /// A partition that is not served. It has no writer.
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
            touched: touched::Touched::since(tail.lsn),
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

    /// The partition's log.
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

    /// Refuses when the partition is quarantined. Called before the index is asked for its rows, and again
    /// behind a read that found none: a rebuild may have left them out meanwhile.
    pub(crate) fn check_served(&self) -> Result<(), StorageError> {
        self.log().map(|_| ())
    }

    /// Why the partition is not served, if it is not.
    pub(crate) fn quarantine(&self) -> Option<&Arc<Quarantine>> {
        self.set_aside.get().or(self.log.as_ref().err())
    }

    /// Quarantines a partition that is in use. Called before its rows are missing in the index.
    pub(crate) fn set_aside(&self, quarantine: Arc<Quarantine>) {
        let _ = self.set_aside.set(quarantine);
        self.wake_waiters();
    }

    /// Remembers damage that was met while the partition was in use, and logs it once.
    pub(crate) fn note_damage(&self, error: &StorageError) {
        if let StorageError::Damaged(damage) = error
            && self.damage.set(damage.clone()).is_ok()
        {
            tracing::error!(partition = %self.id, %error, "damage found; the rest of the partition is served");
        }
    }

    /// Damage that was met while the partition was in use.
    pub(crate) fn known_damage(&self) -> Option<&Damage> {
        self.damage.get()
    }

    /// How often the partition has changed hands.
    pub(crate) fn epoch(&self) -> u32 {
        self.log.as_ref().map_or(0, |log| log.epoch())
    }

    /// Everything up to here can be read.
    pub(crate) fn visible(&self) -> Lsn {
        Lsn::new(self.visible.load(Ordering::Acquire))
    }

    fn publish(&self, lsn: Lsn) {
        debug_assert!(lsn >= self.visible(), "a partition never takes back what was seen");
        self.visible.store(lsn.get(), Ordering::Release);
        self.changed.ring_spread(&self.shared.runtime);
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Wakes whoever waits here, for it to find out that the partition is gone.
    pub(crate) fn wake_waiters(&self) {
        self.changed.ring();
    }

    /// Tells when something may have become visible.
    pub(crate) fn listen(&self) -> Listener {
        self.changed.listen()
    }

    /// The time, which does not go back here.
    pub(crate) fn now(&self) -> Timestamp {
        let clock = self.shared.runtime.unix_millis();
        let before = self.newest_millis.fetch_max(clock, Ordering::AcqRel);
        Timestamp::from_millis(before.max(clock))
    }

    pub(crate) fn current_settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// Hands work to the writer and waits for its answer.
    pub(crate) async fn submit(&self, mut work: Work) -> Result<Answer, Refusal> {
        if let Work::Transaction(operations) = &mut work {
            operations.iter_mut().for_each(|operation| self.look_ahead(operation));
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

    /// Ends the writer of a partition that was dropped or replaced. The writer keeps the partition in memory and its
    /// files open until it ends.
    pub(crate) async fn retire(&self) {
        self.wake_waiters();
        // One that is refused has ended already.
        let _ = self.submit(Work::Retire).await;
    }

    /// Why the writer no longer answers: the store closes, or the writer panicked.
    pub(crate) async fn stopped(&self) -> StorageError {
        let mut ended = self.writer_ended.listen();
        // What the writer owned is dropped a moment before its end is reported.
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

    /// Looks in the caller's task for the row the writer will ask for, and evaluates the condition of a
    /// patch: there is one writer and many callers. If the row is written meanwhile, the writer notices and
    /// looks itself.
    fn look_ahead(&self, operation: &mut Operation) {
        let key = keys::item(self.container, operation.key.epk.as_bytes(), &operation.key.tail);
        let at = self.visible();
        // What goes wrong here goes wrong there too, and is reported then.
        operation.looked = self.row(&key).ok().map(|row| Looked { at, row });
        if let (Action::Patch(_, Some(holds)), Some(Looked { row: Some(row), .. })) =
            (&operation.action, operation.looked)
        {
            let record = self.log().ok().and_then(|log| {
                log.record(row.position, operation.key.epk.as_bytes()).ok().flatten()
            });
            operation.judged = record
                .as_ref()
                .and_then(item_of)
                .map(|item| Judged { version: row.position, holds: holds(&item.to_bytes()) })
                .map(Box::new);
        }
    }

    pub(crate) fn row(&self, key: &[u8]) -> Result<Option<ItemRow>, StorageError> {
        let row = self.shared.index.get(key)?;
        let malformed = || self.shared.index.doubt("a row is malformed");
        row.map(|value| ItemRow::decode(&value).ok_or_else(malformed)).transpose()
    }

    /// Looks for one item as it is now.
    pub(crate) fn look(&self, key: &ItemKey) -> Result<Look, StorageError> {
        self.find_newest(key).inspect_err(|error| self.note_damage(error))
    }

    fn find_newest(&self, key: &ItemKey) -> Result<Look, StorageError> {
        let log = self.log()?;
        let row_key = keys::item(self.container, key.epk.as_bytes(), &key.tail);
        let ticket = match self.shared.recent.look(&row_key) {
            Ok(Kept { row, .. }) if self.is_expired(&row) => return Ok(Look::Found(None)),
            Ok(Kept { record, .. }) => return Ok(Look::Found(item_of(&record))),
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

    /// Looks for an item where an index has once seen it. While that record lives, it is what everybody sees:
    /// an index sees nothing before the others do, and what replaces a record kills it first.
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
        // The clock is asked only where time matters.
        let expires = self.settings.read().expires_at(written, ttl);
        expires.is_some_and(|second| second <= self.now().as_seconds())
    }

    /// Waits for the index to have applied what is in the log, but not for long: whoever waits looks
    /// again anyway.
    pub(crate) async fn until_applied(&self) {
        let Ok(log) = self.log() else { return };
        let mut changed = self.listen();
        if self.visible() < log.local_tail().lsn {
            let _ = self.shared.runtime.timeout(APPLYING_MAX, changed.rang()).await;
        }
    }

    /// The unique keys an item holds, as its record says.
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

    /// Whether items of one key have more bytes than this. Tables answer unless entries with several items leave it
    /// open.
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

/// What a partition is, before it has a log.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) container: ContainerRid,
    pub(crate) id: PartitionId,
    pub(crate) range: KeyRange,
    pub(crate) ancestors: Vec<PartitionId>,
}
