//! Creates missing leases, once.
//!
//! If the store can write several documents atomically, leases are created together with a marker that records
//! them. There is only one marker, so a second host creates nothing, however late it is and however the
//! container's ranges have changed since. If there are more leases than one transaction can hold, they are created
//! from the lowest keys up, and the marker records the progress:
//!
//! ```text
//! create  marker: made to 3F    and leases -0F, 0F-1F, … -3F
//! replace marker: all made      and leases 3F-4F, … -FF        if its etag is unchanged
//! ```
//!
//! If the store writes one document at a time, the marker is written first and promises the leases. Any host may
//! then create them (`promised`):
//!
//! ```text
//! create  marker: made to 3F, makes -0F, … -3F      create leases -0F, … -3F      replace marker: made to 3F
//! replace marker: all made, makes 3F-4F, … -FF      create leases 3F-4F, … -FF    replace marker: all made
//! ```
//!
//! Leases shared with the .NET and Java libraries are created one by one behind a lock, the marker last. Creating a
//! lease twice is harmless there, because its id names its keys. But nothing prevents two hosts that saw different
//! ranges from creating leases that overlap.

use super::StartError;
use super::acquire::all;
use super::lock::{Lock, Turn};
use super::shared::Shared;
use crate::coverage::{self, PhysicalRange};
use crate::event::Event;
use crate::lease::{Extra, Lease, Start, token_of};
use crate::lease_store::{Listing, NewDocument, StoreError, StoreWrite, Stored, WRITES_MAX};
use crate::member::{Control, Marker, Member};
use crate::namespace::Kind;
use crate::position::Position;
use crate::promised::{self, Promise};
use crate::source::ReadRequest;
use headwater_model::{KeyRange, Timestamp};
use headwater_runtime::BoxFuture;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a round is retried after a failure, including a lost race against another host.
const FAILURES_MAX: u32 = 20;

/// Makes sure that all leases exist.
pub(crate) async fn run(shared: &Arc<Shared>) -> Result<(), StartError> {
    let mut creator = LeaseCreator {
        shared: shared.clone(),
        lock: Lock::new(shared),
        discarded: None,
        looked_elsewhere: false,
    };
    let mut failures = 0;
    loop {
        let pause = match creator.round().await {
            Ok(Progress::All) => return Ok(()),
            Ok(Progress::Some) => continue,
            Ok(Progress::NotOurTurn) => shared.options.lock_time / 10,
            Err(error @ StartError::Store(StoreError::Gone(_) | StoreError::Refused(_))) => {
                return Err(error);
            }
            Err(StartError::Store(_)) if failures < FAILURES_MAX => {
                failures += 1;
                shared.options.lock_time / 20
            }
            Err(error) => return Err(error),
        };
        shared.runtime.sleep(pause).await;
    }
}

/// How many of the leases exist after a round.
enum Progress {
    All,
    Some,
    /// Unknown: another host is creating them.
    NotOurTurn,
}

/// Creates leases for one host.
struct LeaseCreator {
    shared: Arc<Shared>,
    lock: Lock,
    /// Etags of the documents it deleted, if `discard_existing` is set.
    discarded: Option<BTreeSet<String>>,
    looked_elsewhere: bool,
}

/// Leases to create, and the marker to write with them.
struct Plan {
    leases: Vec<Lease>,
    marker: Marker,
}

impl LeaseCreator {
    /// Lists the documents and creates what is missing.
    async fn round(&mut self) -> Result<Progress, StartError> {
        let shared = self.shared.clone();
        let mut listing = shared.answer(shared.store.list(&shared.namespace.prefix())).await?;
        shared.note_server_time(listing.seconds);
        if let Some(discarded) = &self.discarded {
            // A stale listing may still contain deleted documents.
            listing.documents.retain(|stored| !discarded.contains(&stored.etag));
        }
        check(&shared, &listing)?;
        let discards = shared.options.discard_existing && self.discarded.is_none();
        let marker = find_marker(&shared, &listing).map(|stored| Marker::parse(&stored.body));
        if !discards && marker.is_some_and(|marker| marker.says_all()) {
            return Ok(Progress::All);
        }
        if shared.promises() {
            self.discard(&mut listing).await?;
            return self.make_some(&listing).await;
        }
        let turn = self.lock.take(&shared, &listing).await?;
        if matches!(turn, Turn::Wait) {
            return Ok(Progress::NotOurTurn);
        }
        let made = self.make_one_by_one(listing).await;
        if let Turn::Ours(etag) = &turn {
            self.lock.release(&shared, etag).await;
        }
        made.map(|()| Progress::All)
    }

    /// Creates as many leases as fit with one marker write, or those that were already promised.
    async fn make_some(&mut self, listing: &Listing) -> Result<Progress, StartError> {
        let shared = self.shared.clone();
        let marker = find_marker(&shared, listing);
        let leases = leases_of(&shared, listing);
        let all: Vec<_> = leases.iter().collect();
        let promises = promised::find(&shared.namespace, &all, marker);
        for promise in &promises {
            fulfill(&shared, promise).await?;
        }
        if !promises.is_empty() {
            return Ok(Progress::Some);
        }
        let Plan { leases, marker: wanted } = self.plan(listing, WRITES_MAX - 1).await?;
        let all = wanted.made_to.is_none();
        make_with_marker(&shared, leases, wanted, marker).await?;
        Ok(if all { Progress::All } else { Progress::Some })
    }

    /// Creates all leases, then the marker.
    async fn make_one_by_one(&mut self, mut listing: Listing) -> Result<(), StartError> {
        self.discard(&mut listing).await?;
        let plan = self.plan(&listing, usize::MAX).await?;
        let work = plan.leases.into_iter().map(|lease| {
            let shared = self.shared.clone();
            Box::pin(async move { create(&shared, shared.document(&lease)).await })
                as BoxFuture<Result<(), StoreError>>
        });
        all(work.collect()).await.into_iter().collect::<Result<(), StoreError>>()?;
        let key = self.shared.key(self.shared.namespace.marker());
        let body = plan.marker.to_bytes(&key).into();
        Ok(create(&self.shared, NewDocument { key, body }).await?)
    }

    /// Returns the missing leases from the lowest keys up, at most `most`, and the marker to write.
    async fn plan(&mut self, listing: &Listing, most: usize) -> Result<Plan, StartError> {
        let shared = self.shared.clone();
        if !std::mem::replace(&mut self.looked_elsewhere, true) {
            look_elsewhere(&shared).await;
        }
        let ranges = shared.source.ranges(true).await?;
        let before = find_marker(&shared, listing).map(|stored| Marker::parse(&stored.body));
        let before = before.unwrap_or_default();
        let (retired, there): (Vec<_>, Vec<_>) =
            leases_of(&shared, listing).into_iter().partition(|(lease, _)| lease.is_retired());
        let mut known: Vec<KeyRange> = there
            .iter()
            .filter_map(|(lease, _)| {
                let by_id = || coverage::keys_of(lease.token.parse().ok()?, &ranges);
                lease.range.clone().or_else(by_id)
            })
            .collect();
        let first = KeyRange::full().min().clone();
        known.extend(before.made_to.and_then(|key| KeyRange::new(first, key).ok()));
        let missing: Vec<KeyRange> = coverage::gaps(&shared.options.scope, known.iter()).collect();
        let mut leases = leases_for(&shared, &ranges, &missing);
        let left = leases.get(most).and_then(|lease| lease.range.as_ref());
        let made_to = left.map(|range| range.min().clone());
        leases.truncate(most);
        let work = leases.into_iter().map(|lease| {
            let shared = shared.clone();
            let keys = lease.range.as_ref();
            let epoch = keys.and_then(|keys| promised::epoch_after(retired.iter(), keys));
            Box::pin(async move { with_start(&shared, lease, None, epoch.unwrap_or(0)).await })
                as BoxFuture<_>
        });
        let leases: Result<Vec<Lease>, StartError> =
            all(work.collect()).await.into_iter().collect();
        let start = before.start.unwrap_or_else(|| first_start(&shared));
        let marker = Marker { start: Some(start), made_to, makes: Vec::new() };
        Ok(Plan { leases: leases?, marker })
    }

    /// Deletes leases and the marker once if `discard_existing` is set.
    ///
    /// # Errors
    /// Fails while another host works on the leases.
    async fn discard(&mut self, listing: &mut Listing) -> Result<(), StartError> {
        if !self.shared.options.discard_existing || self.discarded.is_some() {
            return Ok(());
        }
        refuse_while_others_work(&self.shared, listing)?;
        let mut discarded = BTreeSet::new();
        for stored in &listing.documents {
            if matches!(self.shared.namespace.kind(&stored.key.id), Kind::Lease(_) | Kind::Marker) {
                let deleted = self.shared.store.delete(&stored.key, &stored.etag);
                match self.shared.answer(deleted).await {
                    Ok(()) | Err(StoreError::NotFound) => {}
                    Err(error) => return Err(error.into()),
                }
                discarded.insert(stored.etag.clone());
            }
        }
        listing.documents.retain(|stored| !discarded.contains(&stored.etag));
        self.discarded = Some(discarded);
        Ok(())
    }
}

fn find_marker<'a>(shared: &Shared, listing: &'a Listing) -> Option<&'a Stored> {
    let is_marker = |id: &str| shared.namespace.kind(id) == Kind::Marker;
    listing.documents.iter().find(|stored| is_marker(&stored.key.id))
}

fn leases_of(shared: &Shared, listing: &Listing) -> Vec<(Lease, Stored)> {
    let is_lease = |id: &str| matches!(shared.namespace.kind(id), Kind::Lease(_));
    let of = listing.documents.iter().filter(|stored| is_lease(&stored.key.id));
    of.filter_map(|stored| Some((Lease::parse(&stored.body).ok()?, stored.clone()))).collect()
}

/// Returns where unknown ranges begin. `Now` becomes the time of this call, less one second.
fn first_start(shared: &Shared) -> Start {
    match &shared.options.start {
        Start::Now => {
            let now = shared.server_time().as_millis();
            Start::Time(Timestamp::from_millis(now.saturating_sub(1000)))
        }
        other => other.clone(),
    }
}

/// Creates leases, provided the marker is still in the version the decision was based on.
pub(crate) async fn make_with_marker(
    shared: &Arc<Shared>,
    leases: Vec<Lease>,
    mut marker: Marker,
    before: Option<&Stored>,
) -> Result<(), StoreError> {
    let key = shared.key(shared.namespace.marker());
    let document =
        |marker: &Marker| NewDocument { key: key.clone(), body: marker.to_bytes(&key).into() };
    if shared.writes_at_once() {
        let written = match before {
            Some(before) => StoreWrite::Replace(document(&marker), before.etag.clone()),
            None => StoreWrite::Create(document(&marker)),
        };
        let leases = leases.iter().map(|lease| StoreWrite::Create(shared.document(lease)));
        let writes = std::iter::once(written).chain(leases).collect();
        match shared.answer(shared.store.atomic(writes)).await {
            Ok(Some(())) => return Ok(()),
            // The store cannot write atomically, or a retired lease has the id of a new one.
            Ok(None) | Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    marker.makes = leases;
    let written = match before {
        Some(before) => shared.store.replace(document(&marker), &before.etag),
        None => shared.store.create(document(&marker)),
    };
    let stored = shared.answer(written).await?;
    if marker.makes.is_empty() {
        return Ok(());
    }
    fulfill(shared, &Promise::of_marker(&marker, &stored)).await
}

/// Creates promised leases, then clears the promise.
pub(crate) async fn fulfill(shared: &Arc<Shared>, promise: &Promise) -> Result<(), StoreError> {
    let work = promise.missing.iter().map(|lease| {
        let (shared, lease) = (shared.clone(), lease.clone());
        Box::pin(async move {
            let document = shared.document(&lease);
            shared.answer(promised::make(&*shared.store, &lease, document)).await
        }) as BoxFuture<Result<(), StoreError>>
    });
    all(work.collect()).await.into_iter().collect::<Result<(), StoreError>>()?;
    let kept = promise.cleared(|lease| shared.document(lease));
    match shared.answer(shared.store.replace(kept, &promise.etag)).await {
        // Another host has done it.
        Ok(_) | Err(StoreError::PreconditionFailed) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Creates a document, unless it already exists.
pub(crate) async fn create(shared: &Shared, document: NewDocument) -> Result<(), StoreError> {
    match shared.answer(shared.store.create(document)).await {
        Ok(_) | Err(StoreError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Refuses leases of another profile or feed mode, and adopts the generation of the control document.
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

/// Reports leases that this processor has for this container under another endpoint name.
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

/// Returns new leases for these keys, one or more per range of the service.
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

/// Sets the initial position or start of a new lease. `Now` is resolved to a position by reading the feed.
pub(crate) async fn with_start(
    shared: &Shared,
    mut lease: Lease,
    begin: Option<Result<Position, Start>>,
    epoch: u64,
) -> Result<Lease, StartError> {
    let generation = shared.generation.load(Ordering::SeqCst);
    lease.extra = Extra { generation, epoch, ..Extra::default() };
    match begin.unwrap_or_else(|| Err(shared.options.start.clone())) {
        Ok(position) | Err(Start::Position(position)) => lease.position = Some(position),
        Err(Start::Now) => lease.position = Some(now(shared, &lease).await?),
        Err(start) => lease.extra.start = Some(start),
    }
    Ok(lease)
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

/// Refuses to discard leases while other hosts work on them.
fn refuse_while_others_work(shared: &Shared, listing: &Listing) -> Result<(), StartError> {
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
    Ok(())
}
