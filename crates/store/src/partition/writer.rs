//! The writer: the only task that writes to a partition and assigns its LSNs.
//!
//! Group commit: requests that arrive during a sync form the next group. The writer evaluates them in order,
//! appends the accepted ones with one sync, applies them to the index, advances `visible`, and answers.
//!
//! Small and large transactions form separate groups, which alternate while both wait. A client that writes
//! megabytes delays other clients by one such group, not by all of them.

use super::apply::apply;
use super::control::Seal;
use super::evaluate::{Effect, Evaluation, Postponed, answer};
use super::population::Change;
use super::{Answer, Cut, Partition, Refusal, Request, Work};
use crate::error::StorageError;
use crate::index::Batch;
use crate::item::{ItemKey, Precondition};
use crate::keys::{self, ItemRow, PartitionRow};
use crate::prepare::{Action, Operation, TRANSACTION_BYTES_MAX};
use headwater_log::{AppendError, Group, LocalLog, PartitionLog, Tail, append_decided, entry};
use headwater_model::{Epk, Lsn, PartitionKey};
use headwater_runtime::Stop;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Most requests taken from the queue at once.
const GROUP_REQUESTS_MAX: usize = 512;
/// A group of this size takes no more requests.
const GROUP_BYTES_MAX: usize = 4 << 20;
/// From this size on, writing a transaction takes longer than syncing it.
const LARGE_BYTES: usize = 256 << 10;
/// A group of large transactions of this size takes no more.
const LARGE_GROUP_BYTES_MAX: usize = 1 << 20;
/// An upper estimate of the bytes of an item's envelope and system properties.
const ENVELOPE_BYTES: usize = 512;
/// How long requests wait while the index is replaced, before they are refused.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Items deleted in one entry when a whole partition key is deleted.
const DELETES_PER_ENTRY: usize = 1_000;

type Reply = oneshot::Sender<Result<Answer, Refusal>>;

pub(crate) struct Writer {
    partition: Arc<Partition>,
    local: Arc<LocalLog>,
    log: Arc<dyn PartitionLog>,
    queue: mpsc::Receiver<Request>,
    tail: Tail,
    next_rid: u64,
    /// Whether the last group preceded a large transaction that waits.
    has_passed_large: bool,
    state: State,
}

enum State {
    Open,
    /// The partition was split, merged, or dropped with its container.
    Sealed,
    /// The log may differ from the state in memory; reopening resolves it.
    Broken,
    /// An entry in the log cannot be applied to the index, for this reason.
    Unapplied(String),
    /// The index failed after the last entry was written. A rebuilt index will have that entry.
    Unindexed,
}

impl Writer {
    pub(crate) fn new(
        partition: Arc<Partition>,
        local: Arc<LocalLog>,
        log: Arc<dyn PartitionLog>,
        queue: mpsc::Receiver<Request>,
        next_rid: u64,
    ) -> Writer {
        let tail = local.local_tail();
        let state = State::Open;
        Writer { partition, local, log, queue, tail, next_rid, has_passed_large: false, state }
    }

    /// Starts the task of this writer. The partition records how it ends.
    pub(crate) fn start(self) {
        let partition = self.partition.clone();
        let shared = partition.shared.clone();
        let on_end = move |ended| partition.note_writer_end(ended);
        shared.writers.spawn_watched("partition writer", |stop| self.run(stop), on_end);
    }

    /// Serves requests until the queue is closed and empty.
    pub(crate) async fn run(mut self, mut stop: Stop) {
        let mut arrived = Vec::new();
        let mut waiting = VecDeque::new();
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                count = self.queue.recv_many(&mut arrived, GROUP_REQUESTS_MAX) => {
                    if count == 0 {
                        return;
                    }
                    waiting.extend(arrived.drain(..));
                    while !waiting.is_empty() {
                        self.serve(&mut waiting).await;
                        self.take_arrived(&mut waiting);
                    }
                }
                () = stop.requested(), if !stopping => {
                    // Requests already in the queue are still served.
                    stopping = true;
                    self.queue.close();
                }
            }
        }
    }

    /// Adds requests that arrived meanwhile, so that small ones need not wait for all earlier ones.
    fn take_arrived(&mut self, waiting: &mut VecDeque<Request>) {
        while !waiting.is_empty() && waiting.len() < GROUP_REQUESTS_MAX {
            let Ok(request) = self.queue.try_recv() else { break };
            waiting.push_back(request);
        }
    }

    /// Serves the request at the front, and the ones that fit in the same group.
    async fn serve(&mut self, requests: &mut VecDeque<Request>) {
        if let Some(request) = requests.pop_front() {
            let ends = matches!(request.work, Work::Retire);
            if let Err(error) = self.partition.check_served()
                && !ends
            {
                let _ = request.reply.send(Err(Refusal::Storage(error)));
                return;
            }
            match (&self.state, request.work) {
                (_, Work::Retire) => {
                    self.state = State::Sealed;
                    self.queue.close();
                    let _ = request.reply.send(Ok(Answer::Retired));
                }
                (_, Work::Pause(until)) => {
                    let _ = request.reply.send(Ok(Answer::Paused(self.tail.lsn)));
                    self.pause(until, requests).await;
                }
                (State::Unindexed, _) => {
                    let error = StorageError::Index("the last write is not in it yet".to_owned());
                    let _ = request.reply.send(Err(Refusal::Storage(error)));
                }
                (State::Sealed, work) => {
                    let _ = request.reply.send(Err(Refusal::Gone(Box::new(work))));
                }
                (State::Broken, _) => {
                    let error = StorageError::Append(AppendError::Poisoned);
                    let _ = request.reply.send(Err(Refusal::Storage(error)));
                }
                (State::Unapplied(reason), _) => {
                    let error = self.partition.stopped_with(reason.clone());
                    let _ = request.reply.send(Err(Refusal::Storage(error)));
                }
                (State::Open, Work::Transaction(operations)) => {
                    requests.push_front(Request {
                        work: Work::Transaction(operations),
                        reply: request.reply,
                    });
                    self.serve_group(requests).await;
                }
                (State::Open, Work::DeleteKey { epk, encoded, upto }) => {
                    let result = self.delete_key(&epk, &encoded, upto).await;
                    let _ =
                        request.reply.send(result.map(Answer::Deleted).map_err(Refusal::Storage));
                }
                (State::Open, Work::Cut) => {
                    // Between two groups, log and index are at the same LSN.
                    let log = self.local.snapshot();
                    let (from, to) =
                        keys::items_in(self.partition.container, &self.partition.range);
                    let view = self.partition.shared.index.view_between(&from, &to);
                    let cut = view.map(|index| Cut { log, index });
                    let _ = request.reply.send(cut.map(Answer::Cut).map_err(Refusal::Storage));
                }
                (State::Open, Work::Seal(seal)) => {
                    let result = self.seal(&seal).await;
                    let _ =
                        request.reply.send(result.map(Answer::Sealed).map_err(Refusal::Storage));
                }
            }
        }
    }

    /// Writes nothing while the index is replaced. Requests wait up to [`PAUSE_MAX`] and are then refused.
    async fn pause(&mut self, mut until: oneshot::Receiver<()>, requests: &mut VecDeque<Request>) {
        let runtime = self.partition.shared.runtime.clone();
        let mut resumed = runtime.timeout(PAUSE_MAX, &mut until).await;
        while resumed.is_none() {
            for request in requests.drain(..) {
                let error = StorageError::Index("writes wait for the rebuild".to_owned());
                let _ = request.reply.send(Err(Refusal::Storage(error)));
            }
            tokio::select! {
                biased;
                done = &mut until => resumed = Some(done),
                Some(request) = self.queue.recv() => requests.push_back(request),
            }
        }
        let is_replaced = resumed.is_some_and(|done| done.is_ok());
        if is_replaced && matches!(self.state, State::Unindexed) {
            self.state = State::Open;
            self.partition.publish(self.tail.lsn);
        }
    }

    /// Decides whether the next group is of large transactions, and moves those of its size to the front. The
    /// order within each size stays, and no transaction passes another kind of request.
    fn choose_size(&mut self, requests: &mut VecDeque<Request>) -> bool {
        let is_transaction = |request: &Request| matches!(request.work, Work::Transaction(_));
        let end = requests.iter().position(|request| !is_transaction(request));
        let end = end.unwrap_or(requests.len());
        let large = requests.iter().take(end).filter(|request| is_large(request)).count();
        if large == 0 || large == end {
            self.has_passed_large = false;
            return large > 0;
        }
        let is_large_group = self.has_passed_large;
        self.has_passed_large = !is_large_group;
        let waiting = &mut requests.make_contiguous()[..end];
        waiting.sort_by_key(|request| is_large(request) != is_large_group);
        is_large_group
    }

    /// Evaluates and writes one group of transactions from the front.
    async fn serve_group(&mut self, requests: &mut VecDeque<Request>) {
        let partition = self.partition.clone();
        let is_large_group = self.choose_size(requests);
        let bytes_max = if is_large_group { LARGE_GROUP_BYTES_MAX } else { GROUP_BYTES_MAX };
        let room = requests.iter().map(room_of).sum::<usize>().min(GROUP_BYTES_MAX);
        let mut evaluation = Evaluation::with_capacity(&partition, self.tail, self.next_rid, room);
        let mut decided: Vec<(Reply, Result<Vec<Effect>, Refusal>)> = Vec::new();
        while let Some(request) = requests.pop_front() {
            if is_large(&request) != is_large_group {
                requests.push_front(request);
                break;
            }
            let Work::Transaction(operations) = request.work else {
                requests.push_front(request);
                break;
            };
            match evaluation.transaction(&operations) {
                Ok(effects) => decided.push((request.reply, Ok(effects))),
                Err(Postponed::Refused(refusal)) if evaluation.byte_count() == 0 => {
                    let _ = request.reply.send(Err(refusal));
                }
                // The refusal may depend on writes of this group, which must not be known before they are durable.
                Err(Postponed::Refused(refusal)) => decided.push((request.reply, Err(refusal))),
                Err(Postponed::NextGroup) => {
                    let work = Work::Transaction(operations);
                    requests.push_front(Request { work, reply: request.reply });
                    break;
                }
            }
            if evaluation.byte_count() >= bytes_max {
                break;
            }
        }
        let (group, next_rid) = evaluation.finish();
        match self.commit(&group, next_rid).await {
            Ok(()) => {
                for (reply, decision) in decided {
                    let _ = reply.send(decision.map(|effects| answer(effects, &group, &partition)));
                }
                // Let clients that were answered continue before this thread waits for the disk again, so
                // that they can join the next group. With an empty queue this task waits anyway, and yielding
                // would wake another thread.
                if !self.queue.is_empty() || !requests.is_empty() {
                    tokio::task::yield_now().await;
                }
            }
            Err(error) => {
                for (reply, _) in decided {
                    let _ = reply.send(Err(Refusal::Storage(copy_error(&error))));
                }
            }
        }
    }

    /// Appends a group, applies it to the index and publishes it.
    async fn commit(&mut self, group: &Group, next_rid: u64) -> Result<(), StorageError> {
        if group.entries().is_empty() {
            return Ok(());
        }
        let runtime = &self.partition.shared.runtime;
        if let Err(error) = append_decided(&*self.log, group, runtime).await {
            let nothing_written = matches!(
                error,
                AppendError::DiskFull | AppendError::Io(_) | AppendError::TooLarge { .. }
            );
            if !nothing_written || self.local.is_poisoned() {
                tracing::error!(partition = %self.partition.id, %error, "the partition refuses writes until it is reopened");
                self.state = State::Broken;
            }
            return Err(error.into());
        }
        self.tail = group.tail();
        self.next_rid = next_rid;
        if let Err(error) = self.apply(group) {
            // The entry is in the log and stays there; a rebuilt index will have it.
            self.state = match &error {
                StorageError::Stopped { message, .. } => State::Unapplied(message.clone()),
                _ if self.partition.shared.index.has_failed() => State::Unindexed,
                _ => State::Broken,
            };
            return Err(error);
        }
        self.partition.publish(group.tail().lsn);
        Ok(())
    }

    fn apply(&self, group: &Group) -> Result<(), StorageError> {
        let container = self.partition.container;
        let mut batch = Batch::default();
        let mut change = Change::default();
        for placed in group.entries() {
            let bytes = group.bytes().slice(placed.bytes.clone());
            let mut unapplied = None;
            let read = entry::decode_header(&bytes).and_then(|header| {
                entry::for_each_record(&bytes, &header, |record| {
                    self.partition.last_writes.note(record.epk(), record.position.lsn);
                    change.note(&record);
                    if !apply(container, &record, &mut batch) {
                        unapplied = Some(record.position.lsn);
                    }
                })
            });
            if let Err(what) = read {
                return Err(self.report_unapplied(&format!("an entry cannot be read back: {what}")));
            }
            if let Some(lsn) = unapplied {
                return Err(
                    self.report_unapplied(&format!("the record at LSN {lsn} cannot be applied"))
                );
            }
        }
        let tally = self.partition.population.tally_after(change);
        let state = PartitionRow { applied: group.tail().lsn, next_rid: self.next_rid, tally };
        batch.put(keys::partition(container, self.partition.id), state.encode());
        // An index that fails here has these rows in memory; it failed to write a table of older rows.
        let applied = self.partition.shared.index.write(&batch);
        self.partition.population.changed(change);
        let written = batch.changes.iter().map(|(key, _)| key);
        self.partition.shared.recent.forget(written.filter(|key| keys::is_item(key)));
        applied
    }

    /// Reports a defect: this writer cannot apply an entry it wrote. It stops, so that the index does not
    /// miss the entry.
    fn report_unapplied(&self, what: &str) -> StorageError {
        let error = self.partition.stopped_with(what.to_owned());
        tracing::error!(%error, "the partition refuses writes until the store is opened again");
        self.partition.shared.note_stopped(&error);
        error
    }

    /// Deletes up to [`DELETES_PER_ENTRY`] items of a partition key that existed at `upto`.
    async fn delete_key(
        &mut self,
        epk: &Epk,
        encoded: &[u8],
        upto: Lsn,
    ) -> Result<usize, StorageError> {
        let partition = self.partition.clone();
        let rows = rows_of_key(&partition, epk, encoded, upto)?;
        if rows.is_empty() {
            return Ok(0);
        }
        let mut evaluation = Evaluation::new(&partition, self.tail, self.next_rid);
        match evaluation.delete_rows(&rows) {
            Ok(()) => {}
            Err(Postponed::Refused(Refusal::Storage(error))) => return Err(error),
            Err(_) => return Err(StorageError::Closed),
        }
        let (group, next_rid) = evaluation.finish();
        self.commit(&group, next_rid).await?;
        Ok(rows.len())
    }

    /// Writes the control entry and seals the log.
    async fn seal(&mut self, seal: &Seal) -> Result<Lsn, StorageError> {
        let partition = self.partition.clone();
        let mut evaluation = Evaluation::new(&partition, self.tail, self.next_rid);
        evaluation.control(&seal.encode());
        let (group, next_rid) = evaluation.finish();
        self.commit(&group, next_rid).await?;
        let sealed = partition.shared.runtime.blocking(|| self.local.seal());
        match sealed {
            Ok(lsn) => {
                self.state = State::Sealed;
                Ok(lsn)
            }
            Err(error) => {
                self.state = State::Broken;
                Err(error.into())
            }
        }
    }
}

/// Estimated bytes of a request in a group.
fn room_of(request: &Request) -> usize {
    match &request.work {
        Work::Transaction(operations) => {
            operations.iter().map(|operation| operation.byte_count() + ENVELOPE_BYTES).sum()
        }
        _ => 0,
    }
}

fn is_large(request: &Request) -> bool {
    room_of(request) >= LARGE_BYTES
}

fn rows_of_key(
    partition: &Partition,
    epk: &Epk,
    encoded: &[u8],
    upto: Lsn,
) -> Result<Vec<(Operation, ItemRow)>, StorageError> {
    let (from, to) = keys::items_of(partition.container, epk.as_bytes(), encoded);
    let mut rows = Vec::new();
    let mut malformed = false;
    partition.shared.index.scan(&from, &to, &mut |key, value| {
        let (Some((epk, tail)), Some(row)) = (keys::parse_item(key), ItemRow::decode(value)) else {
            malformed = true;
            return false;
        };
        // Valid also for items that ancestors wrote: LSNs continue after theirs.
        let there = row.position.lsn <= upto;
        if there {
            let key_bytes = u16::try_from(encoded.len()).unwrap_or(u16::MAX);
            let key = ItemKey { epk, tail: tail.to_vec(), key_bytes };
            let precondition = Precondition::None;
            rows.push((Operation::new(key, Action::Delete, precondition), row));
        }
        rows.len() < DELETES_PER_ENTRY
    })?;
    if malformed {
        return Err(partition.shared.index.doubt("a row is malformed"));
    }
    debug_assert!(PartitionKey::decode(encoded).is_ok());
    truncate_to_bytes(partition, &mut rows)?;
    Ok(rows)
}

/// Keeps the first rows, at least one, whose entries have at most [`TRANSACTION_BYTES_MAX`].
fn truncate_to_bytes(
    partition: &Partition,
    rows: &mut Vec<(Operation, ItemRow)>,
) -> Result<(), StorageError> {
    let log = partition.log()?;
    let (mut seen, mut bytes) = (HashSet::new(), 0);
    for (index, (operation, row)) in rows.iter().enumerate() {
        let position = row.position;
        if seen.insert((position.origin, position.lsn)) {
            bytes += log.entry_bytes(position, operation.key.epk.as_bytes())? as usize;
        }
        if index > 0 && bytes > TRANSACTION_BYTES_MAX {
            rows.truncate(index);
            break;
        }
    }
    Ok(())
}

/// Copies an error for each request of the group.
fn copy_error(error: &StorageError) -> StorageError {
    match error {
        StorageError::Append(AppendError::DiskFull) => AppendError::DiskFull.into(),
        StorageError::Append(AppendError::Undecided) => AppendError::Undecided.into(),
        StorageError::Append(AppendError::Io(error)) => {
            AppendError::Io(std::io::Error::new(error.kind(), error.to_string())).into()
        }
        StorageError::Index(what) => StorageError::Index(what.clone()),
        StorageError::Stopped { task, message } => {
            StorageError::Stopped { task: task.clone(), message: message.clone() }
        }
        _ => AppendError::Poisoned.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::definition::ContainerDefinition;
    use headwater_log::{GroupBuilder, NewRecord, RecordKind};
    use headwater_model::Timestamp;

    #[tokio::test]
    async fn a_record_that_cannot_be_applied_stops_its_writer() {
        let account = Account::ephemeral().await.unwrap();
        let database = account.create_database("db").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container(definition).await.unwrap();
        let partition = container.state().topology().partitions[0].clone();
        let local = partition.log().unwrap().clone();
        let (_requests, queue) = mpsc::channel(1);
        let mut writer =
            Writer::new(partition.clone(), local.clone(), Arc::new(local.clone()), queue, 1);
        let mut group = GroupBuilder::new(partition.id, 0, local.local_tail());
        group.begin(Timestamp::from_millis(1), 7);
        group.record(&NewRecord {
            kind: RecordKind::Put,
            supersedes: None,
            epk: &[1; 16],
            meta: b"nonsense",
            body: b"{}",
        });
        group.finish();
        let error = writer.commit(&group.build(), 2).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StorageError::Stopped { .. }), "{text}");
        for expected in ["partition 0 of container c", "LSN 1", "restart the server"] {
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(partition.visible(), Lsn::ZERO, "no reader sees it");
        let (reply, answer) = oneshot::channel();
        writer.serve(&mut VecDeque::from([Request { work: Work::Cut, reply }])).await;
        let refused = answer.await.unwrap();
        assert!(matches!(refused, Err(Refusal::Storage(StorageError::Stopped { .. }))));
        assert_eq!(account.stopped_tasks(), [text]);
    }

    #[tokio::test]
    async fn small_and_large_writes_alternate_and_neither_waits_for_all_of_the_other() {
        let account = Account::ephemeral().await.unwrap();
        let database = account.create_database("db").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container(definition).await.unwrap();
        let text = "x".repeat(LARGE_GROUP_BYTES_MAX);
        let upsert = async |body: String| container.upsert(body).await.unwrap().lsn.get();
        let large =
            async |id: u64| upsert(format!(r#"{{"id":"{id}","pk":"p","text":"{text}"}}"#)).await;
        let small = async |count: u64| {
            let mut lsns = Vec::new();
            for number in 0..count {
                lsns.push(upsert(format!(r#"{{"id":"small","pk":"p","n":{number}}}"#)).await);
            }
            lsns
        };
        // On one thread, all of them are queued before the writer begins.
        let (a, b, c, small) = tokio::join!(large(1), large(2), large(3), small(5));
        assert_eq!(small, [1, 3, 5, 7, 8]);
        assert_eq!([a, b, c], [2, 4, 6]);
    }
}
