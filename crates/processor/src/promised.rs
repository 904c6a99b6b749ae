//! Promises (write-ahead intents) of leases that are about to be created.
//!
//! Creating leases takes several writes, and a host may stop between any two. So the intent is written first, in one
//! write, on the condition that nothing has changed since the decision:
//!
//! ```text
//! NS.info     makes  -7F, 7F-FF            where leases were missing
//! NS..-7F     retired, cut at 3F           where a lease was split, into -3F and 3F-7F
//! ```
//!
//! Any host that reads the promise may create the missing leases, and clears the promise once all exist. No lease is
//! created twice, however late a host is: leases are never deleted, only retired, so an existing document blocks a
//! second creation. A retired lease is needed again only if its successors were deleted by hand. The new lease is
//! then promised under a later epoch, which distinguishes it from a late creation.
//!
//! A store that writes several documents atomically needs no promises.

use crate::lease::{DocumentKey, Lease, token_of};
use crate::lease_store::{LeaseStore, NewDocument, StoreError, Stored};
use crate::member::Marker;
use crate::namespace::{Kind, Namespace};
use headwater_model::KeyRange;

/// Leases to create, and the document that promises them.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    /// The leases that did not exist at the time of the listing.
    pub(crate) missing: Vec<Lease>,
    /// The address and the version of the promising document.
    pub(crate) key: DocumentKey,
    pub(crate) etag: String,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    Marker(Marker),
    Lease(Box<Lease>),
}

impl Promise {
    /// Returns the promise of a lease that was just retired.
    pub(crate) fn of_lease(namespace: &Namespace, lease: &Lease, stored: &Stored) -> Promise {
        Promise {
            missing: parts_of(namespace, lease),
            key: stored.key.clone(),
            etag: stored.etag.clone(),
            origin: Origin::Lease(Box::new(lease.clone())),
        }
    }

    /// Returns the promise of a marker that was just written.
    pub(crate) fn of_marker(marker: &Marker, stored: &Stored) -> Promise {
        Promise {
            missing: marker.makes.clone(),
            key: stored.key.clone(),
            etag: stored.etag.clone(),
            origin: Origin::Marker(marker.clone()),
        }
    }

    /// Returns the promising document without the promise, for when all leases exist.
    pub(crate) fn cleared(&self, document: impl Fn(&Lease) -> NewDocument) -> NewDocument {
        match &self.origin {
            Origin::Marker(marker) => {
                let marker = Marker { makes: Vec::new(), ..marker.clone() };
                NewDocument { key: self.key.clone(), body: marker.to_bytes(&self.key).into() }
            }
            Origin::Lease(lease) => {
                let mut lease = Lease::clone(lease);
                lease.extra.cuts.clear();
                document(&lease)
            }
        }
    }
}

/// Returns the leases that a retired lease was cut into.
fn parts_of(namespace: &Namespace, lease: &Lease) -> Vec<Lease> {
    let Some(mut rest) = lease.range.clone().filter(|_| lease.is_retired()) else {
        return Vec::new();
    };
    let mut ranges = Vec::new();
    for cut in &lease.extra.cuts {
        // The document is not trusted: an invalid cut promises nothing.
        let Ok((lower, upper)) = rest.split_at(cut) else { return Vec::new() };
        ranges.push(lower);
        rest = upper;
    }
    if !ranges.is_empty() {
        ranges.push(rest);
    }
    let part = |range: KeyRange| {
        let token = token_of(&range);
        let partition = lease.key.partition.clone();
        lease.part(DocumentKey { id: namespace.lease(&token), partition }, token, range)
    };
    ranges.into_iter().map(part).collect()
}

/// Returns every pending promise in a listing of all leases and the marker.
pub(crate) fn find(
    namespace: &Namespace,
    leases: &[&(Lease, Stored)],
    marker: Option<&Stored>,
) -> Vec<Promise> {
    let cut = leases.iter().filter(|(lease, _)| lease.is_retired() && !lease.extra.cuts.is_empty());
    let by_lease = cut.map(|(lease, stored)| Promise::of_lease(namespace, lease, stored));
    let marker = marker.map(|stored| (Marker::parse(&stored.body), stored));
    let by_marker = marker.filter(|(marker, _)| !marker.makes.is_empty());
    let by_marker = by_marker.map(|(marker, stored)| Promise::of_marker(&marker, stored));
    let mut found: Vec<Promise> = by_marker.into_iter().chain(by_lease).collect();
    let there = |wanted: &Lease| {
        let same = leases.iter().filter(|(_, stored)| stored.key == wanted.key);
        same.into_iter().any(|(lease, _)| !gives_way(lease, wanted))
    };
    let ours = |lease: &Lease| matches!(namespace.kind(&lease.key.id), Kind::Lease(_));
    for promise in &mut found {
        promise.missing.retain(|lease| ours(lease) && !there(lease));
    }
    found
}

/// Whether an existing lease may be replaced by a promised one: it was retired before the promise.
fn gives_way(there: &Lease, promised: &Lease) -> bool {
    there.is_retired() && there.extra.epoch < promised.extra.epoch
}

/// Returns the first epoch after those of all retired leases for these keys.
pub(crate) fn epoch_after<'a>(
    retired: impl Iterator<Item = &'a (Lease, Stored)>,
    keys: &KeyRange,
) -> Option<u64> {
    let same = |lease: &&Lease| lease.range.as_ref().is_some_and(|range| range.overlaps(keys));
    let epochs = retired.map(|(lease, _)| lease).filter(same);
    epochs.map(|lease| lease.extra.epoch.saturating_add(1)).max()
}

/// Creates a promised lease, unless it exists already.
pub(crate) async fn make(
    store: &dyn LeaseStore,
    lease: &Lease,
    document: NewDocument,
) -> Result<(), StoreError> {
    match store.create(document.clone()).await {
        Ok(_) => return Ok(()),
        Err(StoreError::Conflict) => {}
        Err(error) => return Err(error),
    }
    let Some(stored) = store.read(&document.key).await? else { return Ok(()) };
    if !Lease::parse(&stored.body).is_ok_and(|there| gives_way(&there, lease)) {
        return Ok(());
    }
    match store.replace(document, &stored.etag).await {
        Ok(_) | Err(StoreError::PreconditionFailed | StoreError::NotFound) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Archive;
    use crate::lease::{Flavour, Start};
    use crate::lease_store::{Layout, MemoryLeases};
    use crate::position::Position;
    use crate::unit::{Unit, UnitError};
    use headwater_model::{Epk, FeedMode, Lsn};
    use headwater_runtime::{BoxFuture, Simulation};
    use std::sync::Arc;
    use std::time::Duration;

    const SILENCE: Duration = Duration::from_secs(5);

    fn key(hex: &str) -> Epk {
        Epk::from_hex(hex).unwrap()
    }

    fn lease(min: &str, max: &str) -> Lease {
        let range = KeyRange::new(key(min), key(max)).unwrap();
        let token = token_of(&range);
        let at = DocumentKey { id: format!("NS..{token}"), partition: None };
        let mut lease = Lease::new(Flavour::DotNetV3, at, token, range, FeedMode::LatestVersion);
        lease.position = Some(Position::after(Lsn::new(40)));
        lease.extra.epoch = 3;
        lease
    }

    fn stored(lease: &Lease) -> (Lease, Stored) {
        let (key, body) = (lease.key.clone(), Vec::new().into());
        (lease.clone(), Stored { key, body, etag: "1".to_owned(), seconds: None })
    }

    #[track_caller]
    fn check(leases: &[Lease], expected: &[&str]) {
        let leases: Vec<_> = leases.iter().map(stored).collect();
        let all: Vec<_> = leases.iter().collect();
        let found = find(&Namespace::given("NS"), &all, None);
        let missing: Vec<&str> = found
            .iter()
            .flat_map(|promise| promise.missing.iter().map(|lease| lease.token.as_str()))
            .collect();
        assert_eq!(missing, expected);
    }

    #[test]
    fn a_retired_lease_promises_those_parts_of_it_that_were_never_made() {
        let whole = lease("", "FF");
        let parent = whole.retired(vec![key("3F"), key("7F")]);
        check(std::slice::from_ref(&parent), &["-3F", "3F-7F", "7F-FF"]);
        check(&[parent.clone(), lease("3F", "7F")], &["-3F", "7F-FF"]);
        let split = lease("3F", "7F").retired(Vec::new());
        check(&[parent.clone(), split, lease("", "3F"), lease("7F", "FF")], &[]);
        let mut older = lease("", "3F").retired(Vec::new());
        older.extra.epoch = 2;
        check(&[parent, older], &["-3F", "3F-7F", "7F-FF"]);
        check(&[whole.retired(Vec::new())], &[]);
    }

    #[test]
    fn invalid_cuts_promise_nothing() {
        let whole = lease("20", "60");
        for cuts in [&["60"][..], &["20"], &["70"], &["40", "30"], &["30", "30"]] {
            check(&[whole.retired(cuts.iter().map(|cut| key(cut)).collect())], &[]);
        }
        let mut running = whole;
        running.extra.cuts = vec![key("30")];
        check(&[running], &[]);
    }

    fn play(script: impl FnOnce(Unit) -> BoxFuture<()>) {
        let simulation = Simulation::new(5);
        let runtime = simulation.node().runtime();
        let store = Arc::new(MemoryLeases::with_layout(runtime.clone(), Layout::Id));
        let unit = Unit::new(store, Namespace::given("NS"), runtime);
        simulation.run(script(unit));
    }

    /// Creates a unit whose only lease was split by a host that crashed before it created the children.
    async fn interrupted(unit: &Unit) -> Vec<Lease> {
        let (namespace, whole) = (Namespace::given("NS"), lease("", "FF"));
        let leases = vec![whole.clone()];
        unit.import(&Archive { namespace, leases, start: None }).await.unwrap();
        let stored = unit.store().read(&whole.key).await.unwrap().unwrap();
        let retired = whole.retired(vec![key("7F")]);
        unit.store().replace(unit.document(&retired), &stored.etag).await.unwrap();
        parts_of(unit.namespace(), &retired)
    }

    async fn tokens(unit: &Unit) -> Vec<String> {
        let leases = unit.look().await.unwrap().leases;
        leases.into_iter().map(|info| info.lease.token).collect()
    }

    #[test]
    fn what_was_promised_moves_with_the_others_and_whoever_is_late_moves_nothing_back() {
        play(|unit| {
            Box::pin(async move {
                let parts = interrupted(&unit).await;
                assert_eq!(unit.seek(None, &Start::Beginning, None, SILENCE).await, Ok(2));
                for part in &parts {
                    make(&**unit.store(), part, unit.document(part)).await.unwrap();
                }
                let snapshot = unit.look().await.unwrap();
                let starts = snapshot.leases.iter().map(|info| info.lease.extra.start.clone());
                assert_eq!(starts.collect::<Vec<_>>(), vec![Some(Start::Beginning); 2]);
                assert!(snapshot.promised().next().is_none());
                // A lease that was retired since blocks it as well, until it is promised under a later epoch.
                let stored = unit.store().read(&parts[0].key).await.unwrap().unwrap();
                let retired = parts[0].retired(Vec::new());
                unit.store().replace(unit.document(&retired), &stored.etag).await.unwrap();
                make(&**unit.store(), &parts[0], unit.document(&parts[0])).await.unwrap();
                assert_eq!(tokens(&unit).await, ["7F-FF"]);
                let mut anew = parts[0].clone();
                anew.extra.epoch += 1;
                make(&**unit.store(), &anew, unit.document(&anew)).await.unwrap();
                assert_eq!(tokens(&unit).await, ["-7F", "7F-FF"]);
            })
        });
    }

    #[test]
    fn operators_see_nothing_of_retired_leases_and_miss_nothing_that_was_promised() {
        play(|unit| {
            Box::pin(async move {
                interrupted(&unit).await;
                assert!(tokens(&unit).await.is_empty());
                let exported = unit.export().await.unwrap();
                let names: Vec<&str> = exported.leases.iter().map(|one| &*one.token).collect();
                assert_eq!(names, ["-7F", "7F-FF"]);
                assert_eq!(unit.keep("then").await.unwrap().leases(), 2);
                assert_eq!(unit.import(&exported).await, Err(UnitError::NotEmpty));
                let no_such = UnitError::NoSuchLease("-FF".to_owned());
                let resumed = unit.set_state("-FF", crate::lease::LeaseState::Running).await;
                assert_eq!(resumed, Err(no_such));
                assert_eq!(unit.reset(SILENCE).await, Ok(0), "no lease, and nothing is left");
                assert_eq!(unit.import(&exported).await, Ok(2));
            })
        });
    }
}
