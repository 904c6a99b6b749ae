//! Heartbeat: one member document per host, which keeps every lease of that host alive.
//!
//! A confirmed heartbeat extends the host's own deadline, counted from when it was sent. Never touches leases.

use super::Fatal;
use super::StartError;
use super::shared::Shared;
use crate::event::Event;
use crate::expiry::{Observations, Sign, deadline};
use crate::lease_store::{NewDocument, StoreError, Stored};
use crate::member::{Member, time_to_live_seconds};
use headwater_runtime::Stop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// This host's member document and its pending heartbeats.
pub(crate) struct Membership {
    member: Member,
    etag: String,
    /// When the first heartbeat was sent.
    sent: Duration,
    /// Heartbeats without an answer: number and time of sending.
    unanswered: Vec<(u64, Duration)>,
}

const CHECKS: u32 = 8;
/// How many unanswered heartbeats are kept. A late confirmation of an older one extends the deadline little.
const UNANSWERED_MAX: usize = 16;

/// Writes the first heartbeat. Waits until a predecessor of the same name has expired.
pub(crate) async fn join(shared: &Shared) -> Result<Membership, StartError> {
    let options = &shared.options;
    let member = Member {
        host: shared.me.clone(),
        heartbeat: 1,
        draining: false,
        weight: options.weight,
        priority: options.priority,
        bounds: options.bounds,
        owned: 0,
        generation: shared.generation.load(Ordering::SeqCst),
    };
    let key = shared.key(shared.namespace.member(&shared.me.name));
    let mut seen = Observations::default();
    let mut first: Option<Stored> = None;
    // Four times the expiration, so that a predecessor expires before this gives up.
    for _ in 0..CHECKS * 4 {
        let sent = shared.runtime.elapsed();
        let written = match shared.store.read(&key).await? {
            None => shared.store.create(document(shared, &member)).await,
            Some(known) => {
                let arrived = shared.runtime.elapsed();
                let sign = Sign { of: &key.id, version: &known.etag, written: known.seconds };
                seen.note(sign, arrived);
                let listing = shared.store.list(&key.id).await?;
                let gone = Member::parse(&known.body).is_none_or(|other| other.draining)
                    || seen.is_expired(
                        sign,
                        shared.runtime.elapsed(),
                        listing.seconds,
                        options.expiration,
                    );
                if !gone && first.as_ref().is_some_and(|first| first.etag != known.etag) {
                    let name = shared.me.name.clone();
                    shared.tell(Event::DuplicateHostName { name: name.clone() });
                    return Err(StartError::DuplicateHostName(name));
                }
                first.get_or_insert(known.clone());
                match gone {
                    true => shared.store.replace(document(shared, &member), &known.etag).await,
                    false => Err(StoreError::PreconditionFailed),
                }
            }
        };
        match written {
            Ok(stored) => {
                confirm(shared, sent);
                return Ok(Membership { member, etag: stored.etag, sent, unanswered: Vec::new() });
            }
            Err(StoreError::Conflict | StoreError::PreconditionFailed | StoreError::NotFound) => {}
            Err(error @ (StoreError::Gone(_) | StoreError::Refused(_))) => return Err(error.into()),
            Err(_) => {}
        }
        shared.runtime.sleep(options.expiration / CHECKS).await;
    }
    Err(StartError::Store(StoreError::Unavailable("no heartbeat could be written".to_owned())))
}

fn document(shared: &Shared, member: &Member) -> NewDocument {
    let key = shared.key(shared.namespace.member(&member.host.name));
    let ttl = time_to_live_seconds(shared.options.expiration);
    let body = member.to_bytes(&key, ttl).into();
    NewDocument { key, body }
}

/// Renews the heartbeat until the host is stopped or has ended.
pub(crate) async fn run(shared: Arc<Shared>, mut membership: Membership, mut stop: Stop) {
    let mut nudged = shared.nudge.listen();
    let since = shared.runtime.elapsed().saturating_sub(membership.sent);
    let mut pause = shared.options.renew_interval.saturating_sub(since);
    while !stop.is_requested() {
        tokio::select! {
            biased;
            () = stop.requested() => break,
            () = shared.runtime.sleep(pause) => {}
            () = nudged.rang() => {
                if !shared.is_over() && shared.is_draining() == membership.member.draining {
                    continue;
                }
            }
        }
        if shared.is_over() {
            break;
        }
        membership.member.draining = shared.is_draining();
        membership.member.generation = shared.generation.load(Ordering::SeqCst);
        membership.member.owned = shared.owned();
        let began = shared.runtime.elapsed();
        let confirmed = beat(&shared, &mut membership).await;
        // The interval runs from sending to sending, however long answers take. After a failure the next
        // attempt comes sooner, because the deadline approaches.
        let took = shared.runtime.elapsed().saturating_sub(began);
        pause = match confirmed {
            true => shared.options.renew_interval.saturating_sub(took),
            false => retry_pause(&shared),
        };
    }
    leave(&shared, &membership).await;
}

fn retry_pause(shared: &Shared) -> Duration {
    let quarter = shared.options.renew_interval / 4;
    let micros = u64::try_from(quarter.as_micros()).unwrap_or(u64::MAX).max(1);
    quarter / 2 + Duration::from_micros(shared.runtime.random() % micros)
}

/// Sends one heartbeat. Returns true if it was confirmed.
async fn beat(shared: &Shared, membership: &mut Membership) -> bool {
    membership.member.heartbeat += 1;
    let sent = shared.runtime.elapsed();
    membership.unanswered.push((membership.member.heartbeat, sent));
    if membership.unanswered.len() > UNANSWERED_MAX {
        membership.unanswered.remove(0);
    }
    let document = document(shared, &membership.member);
    let key = document.key.clone();
    let write = shared.store.replace(document.clone(), &membership.etag);
    let answer = shared.runtime.timeout(shared.options.store_timeout, write).await;
    let written = match answer {
        Some(Err(StoreError::PreconditionFailed)) => {
            let read = shared.store.read(&key);
            match shared.runtime.timeout(shared.options.store_timeout, read).await {
                Some(Ok(Some(stored))) => match Member::parse(&stored.body) {
                    // The answer to an earlier heartbeat was lost or is late: the deadline counts from when
                    // that one was sent.
                    Some(member) if member.host == shared.me => {
                        membership.etag = stored.etag;
                        let known = |(beat, _): &&(u64, Duration)| *beat == member.heartbeat;
                        if let Some((_, sent)) = membership.unanswered.iter().find(known) {
                            confirm(shared, *sent);
                        }
                        return false;
                    }
                    _ => {
                        let name = shared.me.name.clone();
                        shared.tell(Event::DuplicateHostName { name: name.clone() });
                        shared.fail(Fatal::DuplicateHostName(name));
                        return false;
                    }
                },
                Some(Ok(None)) => {
                    let create = shared.store.create(document);
                    shared.runtime.timeout(shared.options.store_timeout, create).await
                }
                _ => return false,
            }
        }
        Some(Err(StoreError::NotFound)) => {
            let create = shared.store.create(document);
            shared.runtime.timeout(shared.options.store_timeout, create).await
        }
        other => other,
    };
    match written {
        Some(Ok(stored)) => {
            membership.etag = stored.etag;
            membership.unanswered.clear();
            confirm(shared, sent);
            true
        }
        Some(Err(StoreError::Gone(why))) => {
            shared.fail(Fatal::LeaseStoreGone(why));
            false
        }
        Some(Err(error)) => {
            shared.tell(Event::StoreTrouble { error: error.to_string() });
            false
        }
        None => false,
    }
}

/// Extends the deadline by a heartbeat that was sent at `sent` and confirmed.
fn confirm(shared: &Shared, sent: Duration) {
    shared.deadline.extend(deadline(sent, shared.options.expiration), shared.runtime.elapsed());
}

/// Deletes the member document, so that other hosts need not wait for it to expire.
async fn leave(shared: &Shared, membership: &Membership) {
    let key = shared.key(shared.namespace.member(&shared.me.name));
    let delete = shared.store.delete(&key, &membership.etag);
    let _ = shared.runtime.timeout(shared.options.store_timeout, delete).await;
}
