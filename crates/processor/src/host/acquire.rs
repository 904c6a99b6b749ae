//! Acquires leases: one conditional write each. Never retries blindly.

use super::session::{AcquiredLease, generation};
use super::shared::Shared;
use crate::coverage::{self, PhysicalRange};
use crate::event::Event;
use crate::lease::Lease;
use crate::lease_store::StoreError;
use headwater_model::KeyRange;
use headwater_runtime::BoxFuture;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// A lease to acquire, as the listing showed it.
pub(crate) struct Candidate {
    pub(crate) lease: Lease,
    pub(crate) etag: String,
    /// Whether its previous owner expired without releasing it.
    pub(crate) vanished: bool,
}

/// Acquires a lease. Returns `None` if the write was not confirmed.
pub(crate) async fn acquire(shared: Arc<Shared>, candidate: Candidate) -> Option<AcquiredLease> {
    let range = range_of(&shared, &candidate.lease).await?;
    let mut next = candidate.lease.acquired(&shared.me, candidate.vanished);
    next.extra.generation = generation(&shared);
    if next.range.is_none() && next.flavour().has_hashes() {
        next.range = Some(range.clone());
    }
    let (sent, lapses) = (shared.runtime.elapsed(), shared.deadline.lapses());
    if shared.options.is_native() && shared.deadline.get() <= sent {
        return None;
    }
    let replace = shared.store.replace(shared.document(&next), &candidate.etag);
    let answer = shared.runtime.timeout(shared.options.store_timeout, replace).await;
    match answer {
        Some(Ok(stored)) => {
            Some(AcquiredLease { lease: next, range, etag: stored.etag, sent, lapses })
        }
        Some(Err(StoreError::Gone(why))) => {
            shared.fail(super::Fatal::LeaseStoreGone(why));
            None
        }
        // Another host took it, or the outcome is unknown. The next listing shows which; a blind retry
        // could take it twice.
        Some(Err(_)) | None => None,
    }
}

/// Returns the key range of a lease. Leases in older formats name only a range id, which is looked up.
pub(crate) async fn range_of(shared: &Shared, lease: &Lease) -> Option<KeyRange> {
    if let Some(range) = &lease.range {
        return Some(range.clone());
    }
    let id = lease.token.parse().ok()?;
    for refresh in [false, true] {
        let ranges: Vec<PhysicalRange> = shared.source.ranges(refresh).await.ok()?;
        if let Some(keys) = coverage::keys_of(id, &ranges) {
            return Some(keys);
        }
    }
    let why = "its range was merged, which leases of this form cannot express; convert them to \
               leases by hashes";
    shared.tell(Event::Halted { lease: lease.token.clone(), why: why.to_owned() });
    None
}

/// Runs all futures concurrently and returns their results in order.
pub(crate) async fn all<T: Send + 'static>(mut work: Vec<BoxFuture<T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = work.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, slot) in work.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
