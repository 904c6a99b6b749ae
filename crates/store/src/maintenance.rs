//! Background maintenance: deletes expired items, compacts logs, lets secondary indexes catch up, and splits
//! a range that has grown.
//!
//! An expired item is invisible at once; the sweeper deletes it later. The delete is a log entry written by
//! the partition's writer. No timer changes state without a log entry.

use crate::account::Account;
use crate::container::ContainerState;
use crate::error::StorageError;
use crate::history::compaction_policy;
use crate::index::{Batch, Index, remove_range};
use crate::item::{ItemKey, Precondition};
use crate::keys::{self, ItemRow, Key, Value};
use crate::partition::{Partition, Refusal, Work};
use crate::prepare::{Action, Operation};
use crate::split_by_size;
use headwater_model::{Lsn, PartitionKey};
use headwater_runtime::{Stop, TaskFailure};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Expired items deleted between two reads of the clock.
const SWEEP_ROWS: usize = 1_000;

/// Starts the maintenance task, unless the options turn it off.
pub(crate) fn start(account: &Account) {
    let interval = account.0.shared.options.maintenance_interval;
    if interval.is_zero() {
        return;
    }
    let runtime = account.0.shared.runtime.clone();
    // Weak, or the task would keep a store open that has no other users.
    let weak = Arc::downgrade(&account.0);
    let shared = account.0.shared.clone();
    let on_end = move |ended: Result<(), TaskFailure>| {
        if let Err(TaskFailure { message, .. }) = ended {
            let task = "maintenance (expiry, compaction, indexes)".to_owned();
            shared.note_stopped(&StorageError::Stopped { task, message });
        }
    };
    let tasks = account.maintenance_tasks();
    let run = |mut stop: Stop| async move {
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return,
                () = runtime.sleep(interval) => {}
            }
            let Some(state) = Weak::upgrade(&weak) else {
                return;
            };
            if let Err(error) = run_once(&Account(state)).await {
                tracing::warn!(%error, "maintenance failed; it is tried again later");
            }
        }
    };
    tasks.spawn_watched("maintenance", run, on_end);
}

/// Runs one round of maintenance on all containers.
pub(crate) async fn run_once(account: &Account) -> Result<(), StorageError> {
    // An error in one container does not stop the others.
    let mut first_error = None;
    for container in account.open_container_states() {
        if let Err(error) = maintain(&container).await {
            first_error.get_or_insert(error);
        }
        // Rewriting a segment can take long, so give other tasks a turn.
        tokio::task::yield_now().await;
    }
    if let Err(error) = split_by_size::split_largest(account).await {
        first_error.get_or_insert(error);
    }
    first_error.map_or(Ok(()), Err)
}

async fn maintain(container: &Arc<ContainerState>) -> Result<(), StorageError> {
    let swept = sweep(container).await;
    let compacted = compact(container);
    let shared = &container.shared;
    // `blocking` may start another thread, so it is called only where there is work: there may be thousands
    // of containers.
    if !container.secondary.all().is_empty() {
        shared.runtime.blocking(|| container.secondary.maintain(container))?;
    }
    swept.and(compacted)
}

/// Compacts the logs of a container as far as that is worthwhile. A damaged log is left alone: salvage reads
/// its files.
pub(crate) fn compact(container: &ContainerState) -> Result<(), StorageError> {
    let shared = &container.shared;
    let mut has_compacted = false;
    for partition in &container.topology().partitions {
        let Ok(log) = partition.log() else { continue };
        if partition.known_damage().is_some() {
            continue;
        }
        let policy = compaction_policy(container, partition, log);
        loop {
            let compacted = match log.is_worth_compacting(&policy) {
                Ok(true) => shared.runtime.blocking(|| log.compact(&policy)),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            match compacted.map_err(StorageError::from) {
                Ok(Some(done)) => {
                    tracing::debug!(partition = %partition.id, ?done, "compacted");
                    has_compacted = true;
                }
                Ok(None) => break,
                Err(error @ StorageError::Damaged(_)) => {
                    partition.note_damage(&error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    // The index must be durable up to the entries that compaction removed, or a crash would force a rebuild.
    if has_compacted {
        shared.runtime.blocking(|| shared.index.settle())?;
    }
    Ok(())
}

/// Deletes expired items.
async fn sweep(container: &Arc<ContainerState>) -> Result<(), StorageError> {
    if container.settings.read().definition.default_ttl().is_none() {
        return Ok(());
    }
    loop {
        let second = container.shared.runtime.unix_millis() / 1000;
        let (from, to) = keys::expired_until(container.rid, second);
        let mut due: Vec<(Key, Key)> = Vec::new();
        let topology = container.topology();
        let is_served = |item: &Key| {
            let epk = keys::parse_item(item).map(|(epk, _)| epk);
            let owner = epk.and_then(|epk| topology.partition_of(epk.as_bytes()));
            owner.is_none_or(|owner| owner.quarantine().is_none())
        };
        container.shared.index.scan(&from, &to, &mut |key, _| {
            let item = keys::item_of_expiry(container.rid, key);
            if let Some(item) = item.filter(is_served) {
                due.push((Key::from_slice(key), item));
            }
            due.len() < SWEEP_ROWS
        })?;
        if due.is_empty() {
            return Ok(());
        }
        let count = due.len();
        let mut done = Batch::default();
        let mut operations = Vec::with_capacity(count);
        for (expiry, item) in due {
            if let Some((epk, tail)) = keys::parse_item(&item) {
                let key = ItemKey { epk, key_bytes: key_bytes(tail), tail: tail.to_vec() };
                let precondition = Precondition::None;
                operations.push(Operation::new(key, Action::Expire, precondition));
            }
            done.remove(expiry);
        }
        if !expire(container, operations).await? {
            return Ok(());
        }
        container.shared.index.write(&done)?;
        if count < SWEEP_ROWS {
            return Ok(());
        }
    }
}

/// The length of the partition key in an item's tail.
fn key_bytes(tail: &[u8]) -> u16 {
    let length = PartitionKey::decode_prefix(tail).map_or(0, |(_, length)| length);
    u16::try_from(length).unwrap_or(0)
}

/// Sends expired items to the writers, one request per partition. Each delete is still an entry of its own.
/// False if a split or merge prevented some of them.
async fn expire(container: &ContainerState, due: Vec<Operation>) -> Result<bool, StorageError> {
    let topology = container.topology();
    let mut by_partition: BTreeMap<u32, (&Arc<Partition>, SmallVec<[Operation; 1]>)> =
        BTreeMap::new();
    for operation in due {
        if let Some(partition) = topology.partition_of(operation.key.epk.as_bytes()) {
            let (_, operations) = by_partition
                .entry(partition.id.get())
                .or_insert_with(|| (partition, SmallVec::new()));
            operations.push(operation);
        }
    }
    let mut all = true;
    for (partition, operations) in by_partition.into_values() {
        // Not through the container, which follows splits: the operations would belong to different children
        // and fail together. The next sweep uses the new topology.
        match partition.submit(Work::Transaction(operations)).await {
            Ok(_) | Err(Refusal::Operation(..)) => {}
            Err(Refusal::Gone(_)) => all = false,
            Err(Refusal::Storage(error)) => return Err(error),
        }
    }
    Ok(all)
}

/// Rebuilds the expiry rows if the container's default time to live has changed since they were made.
pub(crate) fn reindex_expiry_if_needed(
    container: &ContainerState,
    index: &dyn Index,
    definition: Lsn,
) -> Result<(), StorageError> {
    let marker = keys::ttl(container.rid);
    let known = index.get(&marker)?;
    let current = Value::from_slice(&definition.get().to_le_bytes());
    if known.as_ref() == Some(&current) {
        return Ok(());
    }
    let settings = container.settings.read().clone();
    let (from, to) = keys::all_expiry(container.rid);
    remove_range(index, &from, &to)?;
    if settings.definition.default_ttl().is_some() {
        let (mut from, to) = keys::items_in(container.rid, &headwater_model::KeyRange::full());
        loop {
            let mut batch = Batch::default();
            let mut last = None;
            let mut seen = 0;
            index.scan(&from, &to, &mut |key, value| {
                let row = ItemRow::decode(value);
                let due =
                    row.and_then(|row| settings.expires_at(row.written, row.ttl).zip(Some(row)));
                if let Some((second, row)) = due {
                    let mut position = Value::new();
                    keys::encode_position(&mut position, row.position);
                    batch.put(keys::expiry(container.rid, second, key), position);
                }
                last = Some(Key::from_slice(key));
                seen += 1;
                seen < SWEEP_ROWS
            })?;
            index.write(&batch)?;
            let Some(mut next) = last else { break };
            next.push(0);
            from = next;
        }
    }
    let mut batch = Batch::default();
    batch.put(marker, current);
    index.write(&batch)
}
