//! Topology: the partitions of a container, and how they split and merge while in use.
//!
//! ```text
//! split  1  the parent's writer appends a control entry that names the children, and seals the log
//!        2  the children get the parent's segments by hard links, with its dead bits
//!        3  the catalog records the children: this commits the split
//!        4  the topology of the container is replaced, and waiting callers go to the children
//! ```
//!
//! After a crash that follows step 1, the next open finishes the split as the control entry says. The LSNs of
//! children start after the parent's last, so every position of a reader of the parent is valid in both; a
//! merged partition starts after both parents. Moves no items.

use crate::account::Shared;
use crate::catalog::{Catalog, Event, PartitionEntry};
use crate::container::{Container, ContainerState};
use crate::container_file;
use crate::error::{CatalogError, OpenError, StorageError, TopologyError};
use crate::index::Batch;
use crate::keys::{self, PartitionRow};
use crate::partition::control::Seal;
use crate::partition::recover::{catch_up, first_rid};
use crate::partition::{Answer, Identity, Partition, Prepared, Refusal, Work};
use crate::quarantine::Quarantine;
use headwater_log::{
    Ancestor, AppendError, Damage, LocalLog, OpenError as LogOpenError, Opened, ReadRequest,
    RecordKind, Which,
};
use headwater_model::{ContainerRid, Epk, KeyRange, Lsn, PartitionId};
use headwater_runtime::TaskFailure;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The partitions of a container in the order of their ranges, without gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) partitions: Vec<Arc<Partition>>,
    pub(crate) dropped: bool,
    pub(crate) closed: bool,
    pub(crate) next_partition: u32,
}

/// A range of a container and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeInfo {
    /// The id, which is never reused within the container.
    pub id: PartitionId,
    /// The hashed keys of the range.
    pub range: KeyRange,
    /// Ranges this one was split or merged from, the oldest first.
    pub ancestors: Vec<PartitionId>,
    /// The newest visible LSN.
    pub lsn: Lsn,
}

impl Topology {
    pub(crate) fn partition_of(&self, epk: &[u8]) -> Option<&Arc<Partition>> {
        let behind =
            self.partitions.partition_point(|partition| partition.range.min().as_bytes() <= epk);
        self.partitions.get(behind.checked_sub(1)?).filter(|found| found.range.contains(epk))
    }

    /// Refuses a new split or merge after one that failed halfway: it may have written a control entry with
    /// the next ids. Only the next open finishes it.
    fn refuse_if_interrupted(&self) -> Result<(), StorageError> {
        let interrupted = self.partitions.iter().any(|partition| partition.is_abandoned());
        if interrupted { Err(StorageError::Interrupted) } else { Ok(()) }
    }

    /// Fails if a quarantined partition overlaps this range.
    pub(crate) fn check_served(&self, range: &KeyRange) -> Result<(), StorageError> {
        let asked = |one: &&Arc<Partition>| one.range.intersect(range).is_some();
        self.partitions.iter().filter(asked).try_for_each(|partition| partition.check_served())
    }

    pub(crate) fn partition(&self, id: PartitionId) -> Option<&Arc<Partition>> {
        self.partitions.iter().find(|partition| partition.id == id)
    }

    fn replace(&self, gone: &[PartitionId], new: Vec<Arc<Partition>>) -> Topology {
        let mut partitions: Vec<Arc<Partition>> =
            self.partitions.iter().filter(|known| !gone.contains(&known.id)).cloned().collect();
        partitions.extend(new);
        partitions.sort_by(|one, two| one.range.min().cmp(two.range.min()));
        let next = partitions.iter().map(|partition| partition.id.get() + 1).max().unwrap_or(0);
        Topology {
            partitions,
            next_partition: self.next_partition.max(next),
            ..Topology::default()
        }
    }
}

/// Opens all partitions of a container and finishes interrupted splits and merges. Quarantines damaged partitions.
pub(crate) async fn open(state: &Arc<ContainerState>, catalog: &Catalog) -> Result<(), OpenError> {
    let resources = catalog.resources();
    let Some(entry) = resources.containers.get(&state.rid.as_u64()) else {
        return Ok(());
    };
    let mut partitions = Vec::new();
    let mut sealed: BTreeMap<u32, (Arc<Partition>, Seal)> = BTreeMap::new();
    for partition in &entry.partitions {
        let (prepared, seal) = match open_partition(state, partition) {
            Ok(opened) => opened,
            Err(error) => {
                partitions.push(quarantine(state, partition, error)?);
                continue;
            }
        };
        match seal {
            Some(seal) => {
                sealed.insert(partition.id, (prepared.partition.clone(), seal));
            }
            None => {
                prepared.writer.start();
            }
        }
        partitions.push(prepared.partition);
    }
    let topology =
        Topology { partitions, next_partition: entry.next_partition, ..Topology::default() };
    state.install(topology);
    let interrupted = unfinished(state, sealed).await?;
    // With damage, do not remove unknown directories: they may be all that is left of a partition.
    let is_whole = state.topology().check_served(&KeyRange::full()).is_ok();
    if interrupted.is_empty() && is_whole {
        remove_strangers(state, &entry.partitions);
    }
    for (parents, seal) in interrupted {
        match finish(state, catalog, &parents, &seal).await {
            Ok(()) => {}
            Err(CatalogError::Storage(error)) if error.damage().is_some() => {
                tracing::error!(container = %state.rid, %error, "a split or merge cannot be finished");
                state.abandon(&parents);
            }
            Err(CatalogError::Storage(error)) => return Err(OpenError::Storage(error)),
            Err(other) => {
                return Err(OpenError::Storage(StorageError::Index(other.to_string())));
            }
        }
    }
    Ok(())
}

/// Opens one partition, and returns its control entry if the partition is sealed.
fn open_partition(
    state: &ContainerState,
    entry: &PartitionEntry,
) -> Result<(Prepared, Option<Seal>), OpenError> {
    let opened = open_log(&state.shared, state.rid, PartitionId::new(entry.id))?;
    let seal = if opened.log.is_sealed() { None } else { last_seal(&opened.log)? };
    if seal.is_some() {
        // The control entry was written, but a crash came before the log was sealed.
        opened.log.seal().map_err(StorageError::from)?;
    }
    let seal = seal.map_or_else(|| last_seal(&opened.log), |seal| Ok(Some(seal)))?;
    let prepared = start_partition(state, entry, &opened)?;
    Ok((prepared, seal.filter(|_| opened.log.is_sealed())))
}

/// Quarantines a partition that could not be opened, if the error is about this partition alone.
fn quarantine(
    state: &ContainerState,
    entry: &PartitionEntry,
    error: OpenError,
) -> Result<Arc<Partition>, OpenError> {
    let quarantine = Quarantine::new(state, PartitionId::new(entry.id), error)?;
    let (shared, settings) = (state.shared.clone(), state.settings.clone());
    Ok(Partition::quarantined(identity_of(state, entry), shared, settings, quarantine))
}

fn identity_of(state: &ContainerState, entry: &PartitionEntry) -> Identity {
    Identity {
        container: state.rid,
        id: PartitionId::new(entry.id),
        range: entry.range.clone(),
        ancestors: entry.ancestors.iter().copied().map(PartitionId::new).collect(),
    }
}

/// Splits and merges to finish, with all their parents sealed.
async fn unfinished(
    state: &Arc<ContainerState>,
    mut sealed: BTreeMap<u32, (Arc<Partition>, Seal)>,
) -> Result<Vec<(Vec<Arc<Partition>>, Seal)>, OpenError> {
    let mut found = Vec::new();
    let ids: Vec<u32> = sealed.keys().copied().collect();
    for id in ids {
        let Some((parent, seal)) = sealed.remove(&id) else {
            continue;
        };
        let mut parents = vec![parent];
        if let Seal::Merge { with, into } = &seal {
            match sealed.remove(with) {
                Some((other, _)) => parents.push(other),
                None => {
                    let topology = state.topology();
                    let other = topology.partition(PartitionId::new(*with));
                    let other = other.ok_or(StorageError::Closed)?.clone();
                    if other.quarantine().is_some() {
                        // The merge cannot be finished without its other half. Until then this half is read-only.
                        state.abandon(&parents);
                        continue;
                    }
                    seal_partition(&other, Seal::Merge { with: id, into: *into }).await?;
                    parents.push(other);
                }
            }
        }
        parents.sort_by(|one, two| one.range.min().cmp(two.range.min()));
        found.push((parents, seal));
    }
    Ok(found)
}

fn last_seal(log: &LocalLog) -> Result<Option<Seal>, OpenError> {
    let tail = log.local_tail().lsn;
    if tail <= log.start() {
        return Ok(None);
    }
    let batch = log.read(&ReadRequest {
        after: tail.previous(),
        upto: tail,
        which: Which::Everything,
        range: None,
        records_max: usize::MAX,
        bytes_max: usize::MAX,
    })?;
    let control = batch.records.iter().find(|record| {
        record.kind == RecordKind::Control && record.position.origin == log.partition()
    });
    Ok(control.and_then(|record| Seal::decode(record.meta())))
}

/// Creates the empty logs of a new container, and syncs the name of its directory.
pub(crate) fn create_logs(
    shared: &Shared,
    container: ContainerRid,
    entries: &[PartitionEntry],
) -> Result<(), StorageError> {
    shared.runtime.blocking(|| {
        for entry in entries {
            inherit_log(shared, container, PartitionId::new(entry.id), &[], Lsn::ZERO)?;
        }
        let synced = shared.disk.sync_dir(&shared.root.join("containers"));
        synced.map_err(|error| AppendError::Io(error).into())
    })
}

fn inherit_log(
    shared: &Shared,
    container: ContainerRid,
    partition: PartitionId,
    ancestors: &[Ancestor],
    start: Lsn,
) -> Result<Opened, StorageError> {
    let opened = LocalLog::inherit(
        shared.disk.clone(),
        &shared.partition_dir(container, partition),
        partition,
        ancestors,
        start,
        shared.log_options(),
        shared.runtime.clone(),
    );
    opened.map_err(|error| match error {
        LogOpenError::Io { source, .. } => AppendError::Io(source).into(),
        LogOpenError::Damaged(damage) => StorageError::Damaged(damage),
        other => StorageError::Index(other.to_string()),
    })
}

fn open_log(
    shared: &Shared,
    container: ContainerRid,
    partition: PartitionId,
) -> Result<Opened, OpenError> {
    let dir = shared.partition_dir(container, partition);
    let opened = shared.runtime.blocking(|| {
        LocalLog::open(
            shared.disk.clone(),
            &dir,
            partition,
            shared.log_options(),
            shared.runtime.clone(),
        )
    });
    opened.map_err(|error| match error {
        LogOpenError::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            let file = dir.join("MANIFEST").display().to_string();
            Damage { file, offset: 0, lsn: None, what: "the file is missing".to_owned() }.into()
        }
        other => other.into(),
    })
}

/// Removes directories of partitions that the catalog does not list: replaced, or never completed.
fn remove_strangers(state: &ContainerState, entries: &[PartitionEntry]) {
    let dir = state.shared.container_dir(state.rid);
    for name in state.shared.disk.list(&dir).unwrap_or_default() {
        let id = name.parse::<u32>().ok();
        let replaced = id.is_some_and(|id| entries.iter().all(|entry| entry.id != id));
        if replaced && let Err(error) = state.shared.disk.remove_dir(&dir.join(&name)) {
            let dir = dir.join(name);
            tracing::warn!(dir = %dir.display(), %error, "cannot remove a replaced partition; the next open retries");
        }
    }
}

fn start_partition(
    state: &ContainerState,
    entry: &PartitionEntry,
    opened: &Opened,
) -> Result<Prepared, OpenError> {
    let next_rid = catch_up(&state.shared, state.rid, &entry.range, opened)?;
    let (shared, settings) = (state.shared.clone(), state.settings.clone());
    Ok(Partition::prepare(
        identity_of(state, entry),
        shared,
        settings,
        opened.log.clone(),
        next_rid,
    ))
}

async fn seal_partition(partition: &Partition, seal: Seal) -> Result<Lsn, StorageError> {
    match partition.submit(Work::Seal(seal)).await {
        Ok(Answer::Sealed(lsn)) => Ok(lsn),
        Err(Refusal::Storage(error)) => Err(error),
        _ => Err(partition.stopped().await),
    }
}

/// Executes steps 2 to 4 for sealed parents.
async fn finish(
    state: &Arc<ContainerState>,
    catalog: &Catalog,
    parents: &[Arc<Partition>],
    seal: &Seal,
) -> Result<(), CatalogError> {
    let mut logs = Vec::new();
    for parent in parents {
        logs.push(parent.log()?.clone());
    }
    let start = logs.iter().map(|log| log.local_tail().lsn).max().unwrap_or_default();
    let entries = successors(parents, seal)?;
    let mut children = Vec::new();
    for entry in &entries {
        let ancestors: Vec<Ancestor> = logs
            .iter()
            .zip(parents)
            .filter_map(|(log, parent)| {
                let range = entry.range.intersect(&parent.range)?;
                Some(Ancestor { log: log.clone(), range })
            })
            .collect();
        let storage = |error: OpenError| match error {
            OpenError::Storage(error) => error,
            OpenError::Damaged(damage) | OpenError::Log(LogOpenError::Damaged(damage)) => {
                StorageError::Damaged(damage)
            }
            other => StorageError::Index(other.to_string()),
        };
        let id = PartitionId::new(entry.id);
        let opened = state
            .shared
            .runtime
            .blocking(|| inherit_log(&state.shared, state.rid, id, &ancestors, start))?;
        // The index has the rows of these items already, so a child applies only its own entries.
        let next_rid = first_rid(PartitionId::new(entry.id));
        let row = PartitionRow { applied: start, next_rid, tally: 0 };
        let key = keys::partition(state.rid, PartitionId::new(entry.id));
        if state.shared.index.get(&key)?.is_none() {
            let mut batch = Batch::default();
            batch.put(key, row.encode());
            state.shared.index.write(&batch)?;
        }
        children.push(start_partition(state, entry, &opened).map_err(storage)?);
    }
    let gone: Vec<PartitionId> = parents.iter().map(|parent| parent.id).collect();
    let event = Event::PartitionsReplaced {
        container: state.rid.as_u64(),
        gone: gone.iter().map(|id| id.get()).collect(),
        new: entries,
    };
    catalog.change(|_| Ok(event)).await?;
    container_file::update(&state.shared, &catalog.resources(), state.rid);
    let mut new = Vec::new();
    for child in children {
        child.writer.start();
        new.push(child.partition);
    }
    let topology = state.topology().replace(&gone, new);
    state.install(topology);
    for parent in parents {
        parent.retire().await;
        let dir = state.shared.partition_dir(state.rid, parent.id);
        if let Err(error) = state.shared.disk.remove_dir(&dir) {
            // Only disk space is lost; the next open of the container tries again.
            tracing::warn!(dir = %dir.display(), %error, "cannot remove a replaced partition; the next open retries");
        }
        let mut batch = Batch::default();
        batch.remove(keys::partition(state.rid, parent.id));
        state.shared.index.write(&batch)?;
    }
    Ok(())
}

fn successors(
    parents: &[Arc<Partition>],
    seal: &Seal,
) -> Result<Vec<PartitionEntry>, TopologyError> {
    let mut ancestors: Vec<u32> = Vec::new();
    for parent in parents {
        for id in parent.ancestors.iter().chain([&parent.id]) {
            if !ancestors.contains(&id.get()) {
                ancestors.push(id.get());
            }
        }
    }
    ancestors.sort_unstable();
    match (parents, seal) {
        ([parent], Seal::Split { at, low, high }) => {
            let split = parent.range.split_at(at);
            let (below, above) =
                split.map_err(|_| TopologyError::SplitPoint(parent.range.clone()))?;
            let entry = |id: u32, range| PartitionEntry { id, range, ancestors: ancestors.clone() };
            Ok(vec![entry(*low, below), entry(*high, above)])
        }
        ([one, two], Seal::Merge { into, .. }) => {
            let merged = one.range.merge(&two.range);
            let range = merged.map_err(|_| TopologyError::NotNeighbours(one.id, two.id))?;
            Ok(vec![PartitionEntry { id: *into, range, ancestors }])
        }
        _ => Err(TopologyError::RangeGone(parents.first().map_or(PartitionId::new(0), |p| p.id))),
    }
}

/// Marks parents as abandoned when dropped, unless disarmed.
struct AbandonOnDrop<'a> {
    state: &'a ContainerState,
    parents: Option<&'a [Arc<Partition>]>,
}

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(parents) = self.parents {
            self.state.abandon(parents);
        }
    }
}

impl Container {
    /// The ranges of the container in key order, without gaps.
    #[must_use]
    pub fn ranges(&self) -> Vec<RangeInfo> {
        let info = |partition: &Arc<Partition>| RangeInfo {
            id: partition.id,
            range: partition.range.clone(),
            ancestors: partition.ancestors.clone(),
            lsn: partition.visible(),
        };
        self.state().topology().partitions.iter().map(info).collect()
    }

    /// Splits a range in two, at a hashed key or in the middle, while it is in use.
    ///
    /// # Errors
    /// When the range is gone or cannot be split there, or the store fails.
    pub async fn split(
        &self,
        range: PartitionId,
        at: Option<Epk>,
    ) -> Result<Vec<RangeInfo>, CatalogError> {
        let container = self.clone();
        self.carry_through(async move { container.split_now(range, at).await }).await
    }

    async fn split_now(
        &self,
        range: PartitionId,
        at: Option<Epk>,
    ) -> Result<Vec<RangeInfo>, CatalogError> {
        let state = self.state();
        let _reshaping = state.reshaping.lock().await;
        let topology = state.topology();
        topology.refuse_if_interrupted()?;
        let parent = topology.partition(range).ok_or(TopologyError::RangeGone(range))?.clone();
        parent.check_served()?;
        let at = at
            .unwrap_or_else(|| self.settings().definition.partition_key().middle_of(&parent.range));
        if parent.range.split_at(&at).is_err() {
            return Err(TopologyError::SplitPoint(parent.range.clone()).into());
        }
        let low = topology.next_partition;
        let seal = Seal::Split { at, low, high: low + 1 };
        self.reshape(vec![parent], seal).await
    }

    /// Merges two adjacent ranges into one, while they are in use.
    ///
    /// # Errors
    /// When a range is gone, the ranges are not adjacent, or the store fails.
    pub async fn merge(
        &self,
        one: PartitionId,
        two: PartitionId,
    ) -> Result<Vec<RangeInfo>, CatalogError> {
        let container = self.clone();
        self.carry_through(async move { container.merge_now(one, two).await }).await
    }

    /// Runs a split or merge to its end even if the caller stops waiting: a partition that is sealed without
    /// successors would take no more writes.
    async fn carry_through(
        &self,
        reshape: impl Future<Output = Result<Vec<RangeInfo>, CatalogError>> + Send + 'static,
    ) -> Result<Vec<RangeInfo>, CatalogError> {
        let (answer, result) = oneshot::channel();
        let (failed, failure) = oneshot::channel();
        let shared = self.state().shared.clone();
        let on_end = move |ended: Result<(), TaskFailure>| {
            if let Err(TaskFailure { message, .. }) = ended {
                let task = "a split or merge of partitions".to_owned();
                let error = StorageError::Stopped { task, message };
                shared.note_stopped(&error);
                let _ = failed.send(error);
            }
        };
        let run = |_| async move { drop(answer.send(reshape.await)) };
        self.state().shared.writers.spawn_watched("reshape", run, on_end);
        match result.await {
            Ok(answer) => answer,
            Err(_) => Err(failure.await.unwrap_or(StorageError::Closed).into()),
        }
    }

    async fn merge_now(
        &self,
        one: PartitionId,
        two: PartitionId,
    ) -> Result<Vec<RangeInfo>, CatalogError> {
        let state = self.state();
        let _reshaping = state.reshaping.lock().await;
        let topology = state.topology();
        topology.refuse_if_interrupted()?;
        let find = |id| topology.partition(id).cloned().ok_or(TopologyError::RangeGone(id));
        let mut parents = vec![find(one)?, find(two)?];
        parents.iter().try_for_each(|parent| parent.check_served())?;
        parents.sort_by(|one, two| one.range.min().cmp(two.range.min()));
        if parents[0].range.merge(&parents[1].range).is_err() {
            return Err(TopologyError::NotNeighbours(one, two).into());
        }
        let seal = Seal::Merge { with: parents[1].id.get(), into: topology.next_partition };
        self.reshape(parents, seal).await
    }

    async fn reshape(
        &self,
        parents: Vec<Arc<Partition>>,
        seal: Seal,
    ) -> Result<Vec<RangeInfo>, CatalogError> {
        // Also dropped when this panics: callers must not wait for successors that never come.
        let mut unfinished = AbandonOnDrop { state: self.state(), parents: Some(&parents) };
        let replaced = self.seal_and_replace(&parents, &seal).await;
        let nothing_written =
            matches!(
                replaced,
                Err(CatalogError::Storage(StorageError::Append(AppendError::DiskFull)))
            ) && parents.iter().all(|one| one.log().is_ok_and(|log| !log.is_sealed()));
        if replaced.is_ok() || nothing_written {
            unfinished.parents = None;
        }
        drop(unfinished);
        replaced?;
        let new = seal.successors();
        Ok(self.ranges().into_iter().filter(|range| new.contains(&range.id)).collect())
    }

    async fn seal_and_replace(
        &self,
        parents: &[Arc<Partition>],
        seal: &Seal,
    ) -> Result<(), CatalogError> {
        let state = self.state();
        let account = state.account.upgrade().ok_or(StorageError::Closed)?;
        for parent in parents {
            let seal = match seal {
                Seal::Merge { into, .. } => {
                    let other = parents.iter().find(|other| other.id != parent.id);
                    let with = other.map_or(0, |other| other.id.get());
                    Seal::Merge { with, into: *into }
                }
                split => split.clone(),
            };
            seal_partition(parent, seal).await?;
        }
        finish(state, &account.catalog, parents, seal).await
    }
}
