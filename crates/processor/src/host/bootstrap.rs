//! Makes leases where there are none, once.
//!
//! Making a lease twice does no harm: its id says which keys it is about, and the second time it is
//! there already. So the lock only saves work, and whoever waited long enough goes on without it.

use super::StartError;
use super::acquire::all;
use super::shared::Shared;
use crate::coverage::{self, PhysicalRange};
use crate::event::Event;
use crate::expiry::{Observations, Sign};
use crate::lease::{Document, Extra, Lease, LeaseState, Start, token_of};
use crate::lease_store::{Listing, NewDocument, StoreError, Stored};
use crate::member::{Control, Member, with_key};
use crate::namespace::Kind;
use crate::position::Position;
use crate::source::ReadRequest;
use headwater_model::{KeyRange, Timestamp};
use headwater_runtime::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Makes sure that there are leases.
pub(crate) async fn run(shared: &Arc<Shared>) -> Result<(), StartError> {
    let began = shared.runtime.elapsed();
    let mut seen = Observations::default();
    let mark = format!("{:016x}", shared.runtime.random());
    let prefix = shared.namespace.prefix();
    let mut failures = 0;
    loop {
        let listing = match shared.answer(shared.store.list(&prefix)).await {
            Ok(listing) => listing,
            Err(error @ (StoreError::Gone(_) | StoreError::Refused(_))) => return Err(error.into()),
            Err(error) => {
                failures += 1;
                if failures > 20 {
                    return Err(error.into());
                }
                shared.runtime.sleep(shared.options.lock_time / 20).await;
                continue;
            }
        };
        shared.note_server_time(listing.seconds);
        check(shared, &listing)?;
        let marker = find(shared, &listing, Kind::Marker);
        if marker && !shared.options.discard_existing {
            return Ok(());
        }
        let waited = shared.runtime.elapsed().saturating_sub(began);
        let lock = take_lock(shared, &listing, &mark, &mut seen).await?;
        if lock.is_none() && waited < shared.options.lock_time * 2 {
            shared.runtime.sleep(shared.options.lock_time / 10).await;
            continue;
        }
        let made = make(shared, &listing).await;
        if let Some((key, etag)) = lock {
            let _ = shared.answer(shared.store.delete(&key, &etag)).await;
        }
        return made;
    }
}

fn find(shared: &Shared, listing: &Listing, kind: Kind<'_>) -> bool {
    listing.documents.iter().any(|stored| shared.namespace.kind(&stored.key.id) == kind)
}

/// Refuses leases of another kind, and remembers what operators want.
fn check(shared: &Shared, listing: &Listing) -> Result<(), StartError> {
    let ours = shared.options.flavour();
    for stored in &listing.documents {
        match shared.namespace.kind(&stored.key.id) {
            Kind::Lease(_) => {
                let Ok(lease) = Lease::parse(&stored.body) else {
                    continue;
                };
                if lease.flavour() != ours {
                    let theirs = lease.flavour();
                    return Err(StartError::ForeignLeases(format!(
                        "the leases were written as {theirs}, not as {ours}; use that profile, or \
                         another processor name"
                    )));
                }
                if lease.mode.is_some_and(|mode| mode != shared.options.mode) {
                    return Err(StartError::ForeignLeases(
                        "the leases are of the other feed mode; use another processor name"
                            .to_owned(),
                    ));
                }
            }
            Kind::Control => {
                if let Some(control) = Control::parse(&stored.body) {
                    shared.generation.store(control.generation, Ordering::SeqCst);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

type Lock = (crate::lease::DocumentKey, String);

/// What the lock says of who holds it. Other libraries write nothing there, and read nothing.
const HELD_BY: &str = "heldBy";

/// Takes the lock if it is free, old, or ours because the answer to an earlier attempt was lost; nothing if
/// somebody else is at work.
async fn take_lock(
    shared: &Shared,
    listing: &Listing,
    mark: &str,
    seen: &mut Observations,
) -> Result<Option<Lock>, StartError> {
    let key = shared.key(shared.namespace.lock());
    let known = listing.documents.iter().find(|stored| stored.key == key);
    if let Some(known) = known {
        if is_held_by(known, mark) {
            return Ok(Some((key, known.etag.clone())));
        }
        let now = shared.runtime.elapsed();
        let sign = Sign { of: &key.id, version: &known.etag, written: known.seconds };
        seen.note(sign, now);
        if !seen.is_expired(sign, now, listing.seconds, shared.options.lock_time) {
            return Ok(None);
        }
        let _ = shared.answer(shared.store.delete(&key, &known.etag)).await;
    }
    let mut document = with_key(&key);
    document.set("ttl", &shared.options.lock_time.as_secs().max(1));
    document.set(HELD_BY, &mark);
    let body = document.to_bytes().into();
    let created = shared.store.create(NewDocument { key: key.clone(), body });
    match shared.answer(created).await {
        Ok(stored) => Ok(Some((key, stored.etag))),
        Err(error @ (StoreError::Gone(_) | StoreError::Refused(_))) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn is_held_by(lock: &Stored, mark: &str) -> bool {
    let document = Document::parse(&lock.body).ok();
    document.and_then(|document| document.get::<String>(HELD_BY)).is_some_and(|held| held == mark)
}

/// Says so if this processor has leases for this container under another name of the endpoint.
async fn look_elsewhere(shared: &Shared) {
    let options = &shared.options;
    if options.namespace.is_some() {
        return;
    }
    let (prefix, by_names) = (&options.processor_name, options.flavour().uses_names());
    let Ok(listing) = shared.answer(shared.store.list(prefix)).await else { return };
    for stored in &listing.documents {
        let id = &stored.key.id;
        if shared.namespace.is_elsewhere(id, prefix, &shared.identity, by_names) {
            let found = id.trim_end_matches(".info").to_owned();
            shared.tell(Event::SuspiciousNamespace { found });
        }
    }
}

async fn make(shared: &Arc<Shared>, listing: &Listing) -> Result<(), StartError> {
    if shared.options.discard_existing {
        discard(shared, listing).await?;
    }
    look_elsewhere(shared).await;
    let ranges = shared.source.ranges(true).await?;
    let known: Vec<KeyRange> = match shared.options.discard_existing {
        true => Vec::new(),
        false => listing
            .documents
            .iter()
            .filter(|stored| matches!(shared.namespace.kind(&stored.key.id), Kind::Lease(_)))
            .filter_map(|stored| Lease::parse(&stored.body).ok())
            .filter(|lease| lease.extra.state != LeaseState::Retired)
            .filter_map(|lease| {
                let by_id = || coverage::keys_of(lease.token.parse().ok()?, &ranges);
                lease.range.clone().or_else(by_id)
            })
            .collect(),
    };
    let missing: Vec<KeyRange> = coverage::gaps(&shared.options.scope, known.iter()).collect();
    let leases = leases_for(shared, &ranges, &missing);
    let work: Vec<BoxFuture<Result<(), StartError>>> = leases
        .into_iter()
        .map(|lease| {
            let shared = shared.clone();
            Box::pin(async move { create(&shared, lease, None, 0).await }) as BoxFuture<_>
        })
        .collect();
    for made in all(work).await {
        made?;
    }
    let key = shared.key(shared.namespace.marker());
    let mut document = with_key(&key);
    // Where a range begins that nobody knows anything about. "Now" was when leases were made.
    let start = match &shared.options.start {
        Start::Now => {
            let second = Duration::from_secs(1).as_millis();
            let now = shared.server_time().as_millis();
            Start::Time(Timestamp::from_millis(
                now.saturating_sub(u64::try_from(second).unwrap_or(0)),
            ))
        }
        other => other.clone(),
    };
    document.set("hwStart", &start.to_string());
    let marker = NewDocument { key, body: document.to_bytes().into() };
    match shared.answer(shared.store.create(marker)).await {
        Ok(_) | Err(StoreError::Conflict) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// New leases for these keys, cut at the ranges of the service and perhaps finer.
pub(crate) fn leases_for(
    shared: &Shared,
    ranges: &[PhysicalRange],
    missing: &[KeyRange],
) -> Vec<Lease> {
    let flavour = shared.options.flavour();
    let by_id = !shared.options.is_native() && flavour != crate::lease::Flavour::JavaEpk;
    let pieces = match by_id {
        true => 1,
        false if shared.source.capabilities().parts => shared.options.leases_per_range,
        false => 1,
    };
    let mut leases = Vec::new();
    for gap in missing {
        for (id, keys) in coverage::successors(gap, ranges) {
            for part in coverage::parts(&keys, pieces) {
                let token = if by_id { id.to_string() } else { token_of(&part) };
                let key = shared.key(shared.namespace.lease(&token));
                leases.push(Lease::new(flavour, key, token, part, shared.options.mode));
            }
        }
    }
    leases
}

/// Stores a new lease, with the position it begins at if that must not be left open.
pub(crate) async fn create(
    shared: &Shared,
    mut lease: Lease,
    begin: Option<Result<Position, Start>>,
    epoch: u64,
) -> Result<(), StartError> {
    let generation = shared.generation.load(Ordering::SeqCst);
    lease.extra = Extra { generation, epoch, ..Extra::default() };
    match begin.unwrap_or_else(|| Err(shared.options.start.clone())) {
        Ok(position) | Err(Start::Position(position)) => lease.position = Some(position),
        Err(Start::Now) => lease.position = Some(now(shared, &lease).await?),
        Err(start) => lease.extra.start = Some(start),
    }
    match shared.answer(shared.store.create(shared.document(&lease))).await {
        Ok(_) | Err(StoreError::Conflict) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn now(shared: &Shared, lease: &Lease) -> Result<Position, StartError> {
    let request = ReadRequest {
        container: Some(shared.identity.container.rid.clone()),
        range: lease.range.clone().unwrap_or_else(KeyRange::full),
        from: Start::Now,
        mode: shared.options.mode,
        items_max: Some(1),
        wait: Duration::ZERO,
    };
    Ok(shared.source.read(request).await?.position)
}

/// Deletes leases and the marker, unless somebody works on them.
async fn discard(shared: &Shared, listing: &Listing) -> Result<(), StartError> {
    let expiration = shared.options.expiration.as_secs();
    for stored in &listing.documents {
        let kind = shared.namespace.kind(&stored.key.id);
        let young =
            stored.seconds.zip(listing.seconds).is_none_or(|(at, now)| now < at + expiration);
        let lease = Lease::parse(&stored.body).ok();
        let owned = matches!(kind, Kind::Lease(_)) && lease.is_some_and(|one| one.owner.is_some());
        let working = matches!(kind, Kind::Member(_))
            && Member::parse(&stored.body).is_some_and(|member| !member.draining);
        if (owned && !shared.options.is_native() || working) && young {
            return Err(StartError::ForeignLeases(
                "other hosts work on these leases; stop them before discarding leases".to_owned(),
            ));
        }
    }
    for stored in &listing.documents {
        if matches!(shared.namespace.kind(&stored.key.id), Kind::Lease(_) | Kind::Marker) {
            match shared.answer(shared.store.delete(&stored.key, &stored.etag)).await {
                Ok(()) | Err(StoreError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}
