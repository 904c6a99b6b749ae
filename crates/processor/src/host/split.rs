//! Replaces a lease whose range was split by leases for the new ranges.
//!
//! Children begin at the handled position, never at the read position. If the store can write several documents
//! atomically, one transaction retires the parent and creates its children, so two leases never cover the same
//! keys. Otherwise the parent is retired first and records its children. After a crash any host can then finish
//! the split, and a late host can do no harm (`promised`).
//!
//! Leases shared with the .NET and Java libraries have no such record. There each child is created only if no
//! other lease covers its keys, and the parent is deleted last.

use super::bootstrap::fulfill;
use super::fence::Fence;
use super::held::HeldLease;
use super::shared::Shared;
use crate::coverage;
use crate::event::Event;
use crate::failure::Backoff;
use crate::handler::CloseReason;
use crate::lease::Lease;
use crate::lease_store::{StoreError, StoreWrite};
use crate::namespace::Kind;
use crate::position::Position;
use crate::promised::Promise;
use headwater_model::{KeyRange, PartitionId};
use std::sync::Arc;
use std::time::Duration;

/// The ranges that now contain the keys of a lease.
pub(crate) struct Successors {
    pub(crate) pieces: Vec<(PartitionId, KeyRange)>,
    /// The read position; used only by a deliberately broken host in tests.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) read: Option<Position>,
}

const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// A stale service may show no new ranges for a while.
const LOOKS_MAX: u32 = 1000;

/// Finds the ranges that now contain the keys. Returns `None` if the lease ended first.
pub(crate) async fn successors(
    shared: &Shared,
    fence: &Fence,
    range: &KeyRange,
) -> Option<Successors> {
    for look in 1..LOOKS_MAX {
        if let Some(Ok(ranges)) =
            shared.runtime.timeout(shared.options.feed_timeout, shared.source.ranges(true)).await
        {
            let pieces = coverage::successors(range, &ranges);
            let all = coverage::gaps(range, pieces.iter().map(|(_, keys)| keys)).next().is_none();
            if !pieces.is_empty() && all {
                return Some(Successors { pieces, read: None });
            }
        }
        let pause = shared.runtime.sleep(PAUSES.jittered(look, shared.runtime.random()));
        tokio::select! { biased; () = fence.leaving() => return None, () = pause => {} }
    }
    None
}

/// Replaces a lease by its children, all of which begin at `position`.
pub(crate) async fn replace(
    shared: &Arc<Shared>,
    fence: &Fence,
    mut held: HeldLease,
    position: Option<&Position>,
    successors: &Successors,
) -> Result<(), CloseReason> {
    // Store what was handled first, so that any host that finishes the split knows it.
    held.write(shared, fence, |lease| lease.checkpointed(position)).await?;
    #[cfg(test)]
    if shared.sabotaged(crate::proof::Sabotage::SplitsAtWhatWasRead) {
        held.lease.position = position.cloned();
    }
    let children = children(shared, &held.lease, successors);
    let tokens: Vec<String> = children.iter().map(|child| child.token.clone()).collect();
    let mut failures = 0;
    while !fence.is_ended() {
        let attempt = match shared.promises() {
            true => retire_and_create(shared, &held, &children).await,
            false => one_by_one(shared, &held, &children).await,
        };
        match attempt {
            Ok(()) => {
                let lease = held.lease.token.clone();
                shared.tell(Event::Split { lease, children: tokens });
                return Ok(());
            }
            Err(StoreError::Gone(why)) => {
                shared.fail(super::Fatal::LeaseStoreGone(why));
                return Err(CloseReason::LeaseStoreGone);
            }
            Err(StoreError::NotFound) => return Ok(()),
            Err(StoreError::PreconditionFailed) => {
                // Perhaps an answer was lost. A write that changes nothing shows whether the lease is still ours.
                if is_over(shared, &held).await {
                    return Ok(());
                }
                held.write(shared, fence, |lease| lease.checkpointed(None)).await?;
            }
            Err(error) => {
                failures += 1;
                if failures == 3 {
                    shared.tell(Event::StoreTrouble { error: error.to_string() });
                }
                let pause = PAUSES.jittered(failures, shared.runtime.random());
                shared.runtime.sleep(pause.min(fence.time_left())).await;
            }
        }
    }
    Err(fence.reason().unwrap_or(CloseReason::LeaseExpired))
}

fn children(shared: &Shared, parent: &Lease, successors: &Successors) -> Vec<Lease> {
    let child = |(id, keys): &(PartitionId, KeyRange)| {
        // Formats that name range ids keep doing so; a part of a range can only be named by its keys.
        let named = !parent.flavour().has_hashes() || parent.token.parse::<u32>().is_ok();
        let by_id = named && !shared.options.is_native();
        let token = match by_id {
            true => id.to_string(),
            false => crate::lease::token_of(keys),
        };
        let key = shared.key(shared.namespace.lease(&token));
        let mut child = parent.part(key, token, keys.clone());
        child.mode = parent.mode.or(Some(shared.options.mode));
        child
    };
    successors.pieces.iter().map(child).collect()
}

/// Retires the parent and creates its children.
async fn retire_and_create(
    shared: &Arc<Shared>,
    held: &HeldLease,
    children: &[Lease],
) -> Result<(), StoreError> {
    if shared.writes_at_once() {
        let retired = shared.document(&held.lease.retired(Vec::new()));
        let create = |child: &Lease| StoreWrite::Create(shared.document(child));
        // The parent's replace goes first. If an earlier attempt succeeded and its answer was lost, the error
        // must be the parent's failed precondition, not a conflict with its children.
        let writes = std::iter::once(StoreWrite::Replace(retired, held.etag.clone()))
            .chain(children.iter().map(create))
            .collect();
        match shared.answer(shared.store.atomic(writes)).await {
            Ok(Some(())) => return Ok(()),
            // The store cannot write atomically, or a child already exists.
            Ok(None) | Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    let starts = children.iter().filter_map(|child| child.range.as_ref());
    let cuts = starts.skip(1).map(|range| range.min().clone()).collect();
    let retired = held.lease.retired(cuts);
    let replace = shared.store.replace(shared.document(&retired), &held.etag);
    let stored = shared.answer(replace).await?;
    // The children are promised now: if creating them fails here, the next audit of any host does it.
    let _ = fulfill(shared, &Promise::of_lease(&shared.namespace, &retired, &stored)).await;
    Ok(())
}

/// Whether the parent was already retired, by this host (answer lost) or by one that completed the split.
async fn is_over(shared: &Shared, held: &HeldLease) -> bool {
    let read = shared.answer(shared.store.read(&held.lease.key)).await;
    let stored = read.ok().flatten();
    let lease = stored.and_then(|stored| Lease::parse(&stored.body).ok());
    lease.is_some_and(|lease| lease.is_retired() && lease.extra.epoch == held.lease.extra.epoch)
}

async fn one_by_one(
    shared: &Shared,
    held: &HeldLease,
    children: &[Lease],
) -> Result<(), StoreError> {
    // An earlier attempt may have succeeded with its answer lost; a stale listing would not show it.
    if shared.store.read(&held.lease.key).await?.is_none() {
        return Err(StoreError::NotFound);
    }
    let listing = shared.store.list(&shared.namespace.prefix()).await?;
    let known: Vec<KeyRange> = listing
        .documents
        .iter()
        .filter(|stored| matches!(shared.namespace.kind(&stored.key.id), Kind::Lease(_)))
        .filter(|stored| stored.key != held.lease.key)
        .filter_map(|stored| Lease::parse(&stored.body).ok())
        .filter(|lease| !lease.is_retired())
        .filter_map(|lease| lease.range)
        .collect();
    // Its own children may already exist, from an interrupted attempt.
    let is_missing = |child: &&Lease| {
        let range = child.range.as_ref();
        !known.iter().any(|known| range.is_some_and(|range| known.overlaps(range)))
    };
    for child in children.iter().filter(is_missing) {
        match shared.store.create(shared.document(child)).await {
            Ok(_) | Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    match shared.store.delete(&held.lease.key, &held.etag).await {
        // Deleting is not permitted: the parent stays, marked as retired.
        Err(StoreError::Refused(_)) => {
            let retired = shared.document(&held.lease.retired(Vec::new()));
            shared.store.replace(retired, &held.etag).await.map(drop)
        }
        other => other,
    }
}
