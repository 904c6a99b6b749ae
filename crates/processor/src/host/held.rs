//! A lease this host holds; the only way to write it.
//!
//! Not `Clone`, and written by one task: two copies would race on the etag, and the host would lose the lease to
//! itself. When an answer is lost, the outcome is found out by reading the lease, never assumed.

use super::fence::Fence;
use super::shared::Shared;
use crate::event::Event;
use crate::expiry::deadline;
use crate::failure::Backoff;
use crate::handler::CloseReason;
use crate::lease::{Claim, Lease, Standing};
use crate::lease_store::{StoreError, Stored};
use std::time::Duration;

pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    pub(crate) etag: String,
    pub(crate) claim: Claim,
    /// When its last confirmed write was sent.
    pub(crate) sent: Duration,
}

const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(2) };
/// Consecutive conflicts while the lease stays ours: another program keeps writing to the document.
const CONFLICTS_MAX: u32 = 20;

impl HeldLease {
    /// Writes `change(lease)`, provided the lease is still ours. Retries until the fence ends.
    ///
    /// # Errors
    /// Returns why the lease ended. Whether the last attempt was written is then unknown, and irrelevant.
    pub(crate) async fn write(
        &mut self,
        shared: &Shared,
        fence: &Fence,
        change: impl Fn(&Lease) -> Lease,
    ) -> Result<(), CloseReason> {
        let (mut failures, mut conflicts) = (0, 0);
        loop {
            if fence.is_ended() {
                return Err(fence.reason().unwrap_or(CloseReason::LeaseExpired));
            }
            let next = change(&self.lease);
            let sent = shared.runtime.elapsed();
            let patience = shared.options.store_timeout.min(fence.time_left());
            let replace = shared.store.replace(shared.document(&next), &self.etag);
            let answer = shared.runtime.timeout(patience, replace).await;
            match answer.unwrap_or_else(|| Err(StoreError::Unavailable("no answer".to_owned()))) {
                Ok(stored) => {
                    self.lease = next;
                    self.etag = stored.etag;
                    self.sent = sent;
                    if !shared.options.is_native() {
                        let until = deadline(sent, shared.options.expiration);
                        fence.deadline().extend(until, shared.runtime.elapsed());
                    }
                    return Ok(());
                }
                Err(StoreError::Gone(why)) => {
                    shared.fail(super::Fatal::LeaseStoreGone(why));
                    return Err(CloseReason::LeaseStoreGone);
                }
                Err(
                    StoreError::PreconditionFailed | StoreError::NotFound | StoreError::Conflict,
                ) => {
                    conflicts += 1;
                    if self.look_again(shared, &next).await? {
                        return Ok(());
                    }
                    if conflicts >= CONFLICTS_MAX {
                        return Err(CloseReason::LeaseLost);
                    }
                }
                Err(error) => {
                    failures += 1;
                    self.pause(shared, fence, failures, &error).await;
                }
            }
        }
    }

    async fn pause(&self, shared: &Shared, fence: &Fence, failures: u32, error: &StoreError) {
        if failures == 3 {
            shared.tell(Event::StoreTrouble { error: error.to_string() });
        }
        let asked = match error {
            StoreError::Throttled { after } => *after,
            _ => None,
        };
        let wait = asked.unwrap_or_else(|| PAUSES.jittered(failures, shared.runtime.random()));
        shared.runtime.sleep(wait.min(fence.time_left())).await;
    }

    /// After a conflict: checks that the lease is still ours. Returns true if `wanted` is already stored.
    async fn look_again(&mut self, shared: &Shared, wanted: &Lease) -> Result<bool, CloseReason> {
        let patience = shared.options.store_timeout;
        let read = shared.store.read(&self.lease.key);
        let stored = match shared.runtime.timeout(patience, read).await {
            Some(Ok(Some(stored))) => stored,
            Some(Ok(None)) => return Err(CloseReason::LeaseLost),
            Some(Err(StoreError::Gone(_))) => return Err(CloseReason::LeaseStoreGone),
            // Unknown; the next attempt finds out.
            Some(Err(_)) | None => return Ok(false),
        };
        let Ok(current) = Lease::parse(&stored.body) else {
            return Err(CloseReason::LeaseLost);
        };
        match current.judge(&self.claim) {
            #[cfg(test)]
            Standing::Lost if shared.sabotaged(crate::proof::Sabotage::WritesAnyway) => {
                self.etag.clone_from(&stored.etag);
                Ok(false)
            }
            Standing::Lost => Err(CloseReason::LeaseLost),
            Standing::Reset => Err(CloseReason::Reset),
            Standing::Held => {
                let landed = current.position == wanted.position
                    && current.owner == wanted.owner
                    && current.extra.sequence == wanted.extra.sequence;
                self.adopt(current, &stored);
                Ok(landed)
            }
        }
    }

    /// Continues from the stored lease. Keeps the later position: one that was set back by hand is ignored.
    fn adopt(&mut self, mut current: Lease, stored: &Stored) {
        if let Some(ours) = &self.lease.position {
            current.position = Some(match &current.position {
                Some(theirs) => ours.clone().or_later(theirs),
                None => ours.clone(),
            });
        }
        self.lease = current;
        self.etag.clone_from(&stored.etag);
    }
}
