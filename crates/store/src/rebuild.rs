//! Rebuilds a failed index while the store is in use.
//!
//! ```text
//! 1  every log is applied to a new index; reads and writes use the old one
//! 2  the writers pause, and the entries written meanwhile are applied too
//! 3  the new index replaces the old one, secondary indexes are dropped, the writers continue
//! ```
//!
//! A request that meets the damage fails with [`StorageError::Index`] and can be repeated. A partition whose
//! log is damaged too is quarantined before the new index is used, because its rows are missing there. Its
//! requests fail with [`StorageError::Quarantined`]; all other partitions are served. After any other error,
//! such as a full disk, the old index stays.

use crate::account::Account;
use crate::container::ContainerState;
use crate::error::{OpenError, StorageError};
use crate::index::Index;
use crate::maintenance::reindex_expiry_if_needed;
use crate::partition::recover::{Target, catch_up_to};
use crate::partition::{Answer, Partition, Work};
use crate::quarantine::Quarantine;
use headwater_log::Opened;
use headwater_model::Lsn;
use headwater_runtime::{Stop, TaskFailure};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Pause after a failed rebuild.
const PAUSE: Duration = Duration::from_secs(60);

/// Starts the task that rebuilds the index when it fails.
pub(crate) fn start(account: &Account) {
    let Some(mut failures) = account.0.shared.index.failures() else { return };
    let runtime = account.0.shared.runtime.clone();
    let shared = account.0.shared.clone();
    let on_end = move |ended: Result<(), TaskFailure>| {
        if let Err(TaskFailure { message, .. }) = ended {
            let task = "the rebuild of the index".to_owned();
            shared.note_stopped(&StorageError::Stopped { task, message });
        }
    };
    // Weak, or the task would keep a store open that has no other users.
    let weak = Arc::downgrade(&account.0);
    let run = |mut stop: Stop| async move {
        loop {
            // The index may have failed while the store was being opened.
            let failed = Weak::upgrade(&weak).map(|state| state.shared.index.has_failed());
            match failed {
                None => return,
                Some(true) => {}
                Some(false) => {
                    tokio::select! {
                        biased;
                        () = stop.requested() => return,
                        () = failures.rang() => continue,
                    }
                }
            }
            let Some(state) = Weak::upgrade(&weak) else { return };
            let Err(error) = rebuild(&Account(state), &stop).await else { continue };
            if stop.is_requested() {
                return;
            }
            tracing::error!(
                %error,
                "the index cannot be rebuilt; the next attempt is in a minute. If this repeats, stop the \
                 server and run `headwater doctor --data`"
            );
            tokio::select! {
                biased;
                () = stop.requested() => return,
                () = runtime.sleep(PAUSE) => {}
            }
        }
    };
    account.maintenance_tasks().spawn_watched("index rebuild", run, on_end);
}

async fn rebuild(account: &Account, stop: &Stop) -> Result<(), OpenError> {
    let shared = &account.0.shared;
    let begun = shared.runtime.elapsed();
    // Until the rebuild ends, no container is created or dropped, and no partition split or merged.
    let _creating = account.0.creating.lock().await;
    let mut containers = account.open_container_states();
    // The same lock order as a backup.
    containers.sort_by_key(|container| container.rid);
    let mut held = Vec::new();
    for container in &containers {
        held.push(container.reshaping.lock().await);
    }
    let successor = shared.index.successor()?;
    let mut partitions: Vec<(&ContainerState, Arc<Partition>)> = containers
        .iter()
        .flat_map(|container| {
            container.topology().partitions.clone().into_iter().map(move |one| (&**container, one))
        })
        .filter(|(_, partition)| partition.quarantine().is_none())
        .collect();
    for (container, partition) in &partitions {
        let upto = partition.visible();
        shared
            .runtime
            .blocking(|| replay_or_quarantine(container, partition, &*successor, upto, stop))?;
        tokio::task::yield_now().await;
    }
    partitions.retain(|(_, partition)| partition.quarantine().is_none());

    let mut paused = Vec::new();
    for (_, partition) in &partitions {
        paused.push(pause(partition).await);
    }
    shared.runtime.blocking(|| {
        for ((container, partition), (upto, _)) in partitions.iter().zip(&paused) {
            replay_or_quarantine(container, partition, &*successor, *upto, stop)?;
        }
        let resources = account.0.catalog.resources();
        for container in &containers {
            if let Some(entry) = resources.containers.get(&container.rid.as_u64()) {
                reindex_expiry_if_needed(container, &*successor, entry.stamp.lsn)?;
            }
        }
        // The new index has no entries of secondary indexes, so a look-up would find nothing.
        let _forgotten: Vec<_> =
            containers.iter().map(|container| container.secondary.forget_all()).collect();
        shared.index.replace_by(successor)?;
        Ok::<(), OpenError>(())
    })?;
    for (_, resume) in paused {
        let _ = resume.map(|resume| resume.send(()));
    }
    let took = shared.runtime.elapsed().saturating_sub(begun);
    let (data, milliseconds) = (shared.root.display(), took.as_millis());
    tracing::warn!(%data, milliseconds, "the index was rebuilt from the log");
    Ok(())
}

/// Pauses the writer of a partition until the sender is used or dropped. Returns the end of the log. A
/// partition that was split or merged, or whose writer stopped, changes no more.
async fn pause(partition: &Partition) -> (Lsn, Option<oneshot::Sender<()>>) {
    let (resume, until) = oneshot::channel();
    match partition.submit(Work::Pause(until)).await {
        Ok(Answer::Paused(upto)) => (upto, Some(resume)),
        _ => (partition.visible(), None),
    }
}

/// Applies the log of a partition to a new index. Quarantines the partition if its log is damaged.
///
/// # Errors
/// Errors that are not about this partition's log.
fn replay_or_quarantine(
    container: &ContainerState,
    partition: &Partition,
    index: &dyn Index,
    upto: Lsn,
    stop: &Stop,
) -> Result<(), OpenError> {
    if let Err(error) = replay(container, partition, index, upto, stop) {
        partition.set_aside(Quarantine::new(container, partition.id, error)?);
    }
    Ok(())
}

/// Applies the log of a partition to a new index.
fn replay(
    container: &ContainerState,
    partition: &Partition,
    index: &dyn Index,
    upto: Lsn,
    stop: &Stop,
) -> Result<(), OpenError> {
    let log = partition.log()?.clone();
    // Lost dead bits were restored before the partition was first served.
    let opened = Opened { log, liveness_lost: false, torn_bytes: 0 };
    let tally = partition.population.tally();
    let target = Target { index, upto, tally, stop: Some(stop) };
    catch_up_to(&container.shared, container.rid, &partition.range, &opened, &target)?;
    Ok(())
}
