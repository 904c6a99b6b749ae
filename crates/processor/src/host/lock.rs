//! The lock for creating leases that are shared with the .NET and Java libraries.
//!
//! It only saves work and protects nothing: a host that waited long enough proceeds without it.

use super::StartError;
use super::shared::Shared;
use crate::expiry::{Observations, Sign};
use crate::lease::{Document, DocumentKey};
use crate::lease_store::{Listing, NewDocument, StoreError, Stored};
use crate::member::with_key;
use std::time::Duration;

/// The property that names the lock's holder. Other libraries neither write nor read it.
const HELD_BY: &str = "heldBy";

/// One host's attempt to take the lock.
pub(crate) struct Lock {
    key: DocumentKey,
    /// The value this host writes to [`HELD_BY`].
    mark: String,
    began: Duration,
    seen: Observations,
}

/// Whether leases may be made now.
pub(crate) enum Turn {
    /// Yes: this host holds the lock, in the version with this etag.
    Ours(String),
    /// Yes: it waited longer than twice the lock time.
    Anyway,
    /// Not yet: another host holds the lock.
    Wait,
}

impl Lock {
    pub(crate) fn new(shared: &Shared) -> Lock {
        Lock {
            key: shared.key(shared.namespace.lock()),
            mark: format!("{:016x}", shared.runtime.random()),
            began: shared.runtime.elapsed(),
            seen: Observations::default(),
        }
    }

    /// Takes the lock if it is free, expired, or already ours because the answer to an earlier attempt was lost.
    pub(crate) async fn take(
        &mut self,
        shared: &Shared,
        listing: &Listing,
    ) -> Result<Turn, StartError> {
        let now = shared.runtime.elapsed();
        let lock_time = shared.options.lock_time;
        let otherwise = match now.saturating_sub(self.began) < lock_time * 2 {
            true => Turn::Wait,
            false => Turn::Anyway,
        };
        if let Some(known) = listing.documents.iter().find(|stored| stored.key == self.key) {
            if self.is_ours(known) {
                return Ok(Turn::Ours(known.etag.clone()));
            }
            let sign = Sign { of: &self.key.id, version: &known.etag, written: known.seconds };
            self.seen.note(sign, now);
            if !self.seen.is_expired(sign, now, listing.seconds, lock_time) {
                return Ok(otherwise);
            }
            let _ = shared.answer(shared.store.delete(&self.key, &known.etag)).await;
        }
        let mut document = with_key(&self.key);
        document.set("ttl", &lock_time.as_secs().max(1));
        document.set(HELD_BY, &self.mark);
        let body = document.to_bytes().into();
        let created = shared.store.create(NewDocument { key: self.key.clone(), body });
        match shared.answer(created).await {
            Ok(stored) => Ok(Turn::Ours(stored.etag)),
            Err(error @ (StoreError::Gone(_) | StoreError::Refused(_))) => Err(error.into()),
            Err(_) => Ok(otherwise),
        }
    }

    fn is_ours(&self, lock: &Stored) -> bool {
        let document = Document::parse(&lock.body).ok();
        let held_by = document.and_then(|document| document.get::<String>(HELD_BY));
        held_by.is_some_and(|held_by| held_by == self.mark)
    }

    /// Releases the lock. If that fails, other hosts break it when it expires.
    pub(crate) async fn release(&self, shared: &Shared, etag: &str) {
        let _ = shared.answer(shared.store.delete(&self.key, etag)).await;
    }
}
