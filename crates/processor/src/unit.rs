//! Operator actions on a unit: list its leases, pause it, seek to another position.
//!
//! A seek is safe because no host works meanwhile. The control document requests a stop, every live host confirms it
//! in its heartbeat, then positions are written, then all hosts resume. An interrupted seek leaves the unit paused,
//! which is visible, and the seek can be repeated.

use crate::coverage;
use crate::kept::Kept;
use crate::lag::{Lag, Look};
use crate::lease::{DocumentKey, Lease, LeaseState, Start};
use crate::lease_store::{LeaseStore, Listing, NewDocument, StoreError, Stored};
use crate::member::{Control, Member, silence_max};
use crate::namespace::{Kind, Namespace};
use crate::promised::{self, Promise};
use crate::source::{FeedSource, ReadRequest, SourceError};
use headwater_model::{FeedMode, Timestamp};
use headwater_runtime::Runtime;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The leases, members and control document of one processor.
#[derive(Clone)]
pub struct Unit {
    store: Arc<dyn LeaseStore>,
    namespace: Namespace,
    runtime: Runtime,
}

/// The state of a unit at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The leases in key order, without retired ones.
    pub leases: Vec<LeaseInfo>,
    /// The hosts that take part; empty if leases are shared with .NET or Java hosts.
    pub members: Vec<Member>,
    /// What operators have requested.
    pub control: Control,
    /// Ids of documents that cannot be parsed.
    pub unreadable: Vec<String>,
    /// Leases that were promised and may not exist yet.
    promises: Vec<Promise>,
    /// Names of the hosts whose last heartbeat is younger than their lease expiration.
    beating: HashSet<String>,
}

impl Snapshot {
    /// Whether the heartbeat of a host is younger than its lease expiration.
    pub(crate) fn is_beating(&self, host: &str) -> bool {
        self.beating.contains(host)
    }

    /// Returns promised leases that do not exist yet.
    pub(crate) fn promised(&self) -> impl Iterator<Item = &Lease> {
        self.promises.iter().flat_map(|promise| &promise.missing)
    }
}

/// A lease and its age.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The lease.
    pub lease: Lease,
    /// Time since its last write by the store's clock, if known.
    pub age: Option<Duration>,
    etag: String,
}

/// Errors of operator actions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The lease container failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A host is still working.
    #[error("{0} is still working on its leases; stop it first")]
    StillWorking(String),
    /// The lease does not exist.
    #[error("there is no lease {0:?}; list them first")]
    NoSuchLease(String),
    /// The unit has leases already.
    #[error("this processor already has leases; export and reset them first")]
    NotEmpty,
    /// The monitored container failed.
    #[error("the monitored container: {0}")]
    Source(#[from] SourceError),
    /// The name cannot be part of an id.
    #[error("{0:?} is not a valid name: use 1 to 100 characters without / \\ ? and #")]
    BadName(String),
    /// The position of a lease is unknown.
    #[error("the lease {0} has no position yet; take the snapshot after every lease was processed")]
    NoPosition(String),
    /// The snapshot does not exist.
    #[error("there is no snapshot {0:?}; list the snapshots")]
    NothingKept(String),
    /// The snapshot does not cover a lease.
    #[error("the snapshot {1:?} does not cover the keys of lease {0}; nothing was moved")]
    NotKept(String, String),
    /// Every attempt conflicted with another write.
    #[error("other programs kept writing to the leases; retry")]
    Busy,
}

/// Where leases continue after a seek.
enum Target<'a> {
    /// At this start; with a source it is looked up and stored as a position.
    Start(&'a Start, Option<&'a dyn FeedSource>),
    /// At the positions of a snapshot.
    Kept(&'a Kept),
}

impl Target<'_> {
    async fn of(&self, lease: &Lease) -> Result<Start, UnitError> {
        match self {
            Target::Start(to, None) => Ok((*to).clone()),
            Target::Start(to, Some(source)) => {
                Ok(Start::Position(crate::archive::position_of(*source, lease, to).await?))
            }
            Target::Kept(kept) => kept.start_of(lease),
        }
    }
}

/// Interval of listings while waiting for hosts to stop.
const LOOK: Duration = Duration::from_secs(1);
const ATTEMPTS: u32 = 20;

impl Unit {
    /// Creates a unit from its namespace.
    #[must_use]
    pub fn new(store: Arc<dyn LeaseStore>, namespace: Namespace, runtime: Runtime) -> Unit {
        Unit { store, namespace, runtime }
    }

    /// Lists the namespaces of all units in a lease container, including those of other libraries.
    ///
    /// # Errors
    /// Fails if the container cannot be read.
    pub async fn discover(store: &dyn LeaseStore) -> Result<Vec<Namespace>, StoreError> {
        let listing = store.list("").await?;
        let mut found: Vec<String> = Vec::new();
        for stored in &listing.documents {
            let marker = stored.key.id.strip_suffix(".info");
            let lease = || Lease::parse(&stored.body).ok().and(stored.key.id.split_once(".."));
            if let Some(name) = marker.or_else(|| lease().map(|(name, _)| name))
                && !found.iter().any(|known| known == name)
            {
                found.push(name.to_owned());
            }
        }
        found.sort();
        Ok(found.into_iter().map(Namespace::given).collect())
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn store(&self) -> &Arc<dyn LeaseStore> {
        &self.store
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Lists the documents of the unit.
    ///
    /// # Errors
    /// Fails if the container cannot be read.
    pub async fn look(&self) -> Result<Snapshot, StoreError> {
        Ok(self.parse_listing(self.store.list(&self.namespace.prefix()).await?))
    }

    pub(crate) fn parse_listing(&self, listing: Listing) -> Snapshot {
        let mut snapshot = Snapshot {
            leases: Vec::new(),
            members: Vec::new(),
            control: Control::default(),
            unreadable: Vec::new(),
            promises: Vec::new(),
            beating: HashSet::new(),
        };
        let age_of = |stored: &Stored| {
            let times = listing.seconds.zip(stored.seconds);
            times.map(|(now, then)| Duration::from_secs(now.saturating_sub(then)))
        };
        let (mut leases, mut marker) = (Vec::new(), None);
        for stored in listing.documents {
            match self.namespace.kind(&stored.key.id) {
                Kind::Lease(_) => match Lease::parse(&stored.body) {
                    Ok(lease) => leases.push((lease, stored)),
                    Err(_) => snapshot.unreadable.push(stored.key.id),
                },
                Kind::Member(_) => {
                    let Some(member) = Member::parse(&stored.body) else { continue };
                    let silence = age_of(&stored).zip(silence_max(&stored.body));
                    if silence.is_none_or(|(silence, max)| silence <= max) {
                        snapshot.beating.insert(member.host.name.clone());
                    }
                    snapshot.members.push(member);
                }
                Kind::Control => match Control::parse(&stored.body) {
                    Some(control) => snapshot.control = control,
                    None => {
                        snapshot.control = Control::UNREADABLE;
                        snapshot.unreadable.push(stored.key.id);
                    }
                },
                Kind::Marker => marker = Some(stored),
                _ => {}
            }
        }
        let all: Vec<&(Lease, Stored)> = leases.iter().collect();
        snapshot.promises = promised::find(&self.namespace, &all, marker.as_ref());
        leases.retain(|(lease, _)| !lease.is_retired());
        snapshot.leases.extend(leases.into_iter().map(|(lease, stored)| {
            let age = age_of(&stored);
            LeaseInfo { lease, age, etag: stored.etag }
        }));
        snapshot.leases.sort_by(|one, other| {
            let from = |info: &LeaseInfo| info.lease.range.as_ref().map(|r| r.min().clone());
            from(one).cmp(&from(other)).then_with(|| one.lease.token.cmp(&other.lease.token))
        });
        snapshot
    }

    /// Returns the key of a document of this unit, in the partition of its leases.
    pub(crate) fn key_beside(&self, snapshot: &Snapshot, id: String) -> DocumentKey {
        let partition = snapshot.leases.first().and_then(|info| info.lease.key.partition.clone());
        let shared = partition.as_deref().is_some_and(|text| text != self.namespace.as_str());
        self.store.layout().key(self.namespace.as_str(), id, shared)
    }

    async fn set_control(&self, paused: bool) -> Result<u64, UnitError> {
        for _ in 0..ATTEMPTS {
            let snapshot = self.look().await?;
            let key = self.key_beside(&snapshot, self.namespace.control());
            let known = self.store.read(&key).await?;
            let before = known.as_ref().and_then(|known| Control::parse(&known.body));
            // Generations applied by hosts count too: the document may have been damaged or deleted.
            let obeyed = snapshot.members.iter().map(|member| member.generation);
            let newest = obeyed.max().max(before.map(|before| before.generation));
            let generation = newest.map_or(1, |newest| newest + 1);
            let body = Control { generation, paused }.to_bytes(&key).into();
            let document = NewDocument { key, body };
            let written = match known {
                Some(known) => self.store.replace(document, &known.etag).await,
                None => self.store.create(document).await,
            };
            match written {
                Ok(_) => return Ok(generation),
                Err(
                    StoreError::Conflict | StoreError::PreconditionFailed | StoreError::NotFound,
                ) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(UnitError::Busy)
    }

    /// Requests all hosts to stop and waits until they have. A host that is silent for `silence` counts as gone.
    ///
    /// # Errors
    /// Fails if a host keeps working, such as a .NET or Java host, which does not support pauses.
    pub async fn pause(&self, silence: Duration) -> Result<(), UnitError> {
        let generation = self.set_control(true).await?;
        self.wait_for_quiet(generation, silence).await
    }

    /// Lets all hosts resume.
    ///
    /// # Errors
    /// Fails if the container cannot be written.
    pub async fn resume(&self) -> Result<(), UnitError> {
        self.set_control(false).await.map(drop)
    }

    async fn wait_for_quiet(&self, generation: u64, silence: Duration) -> Result<(), UnitError> {
        let began = self.runtime.elapsed();
        let mut seen: BTreeMap<String, (String, Duration)> = BTreeMap::new();
        loop {
            let listing = self.store.list(&self.namespace.prefix()).await?;
            let now = self.runtime.elapsed();
            let mut working = None;
            for stored in &listing.documents {
                let busy = match self.namespace.kind(&stored.key.id) {
                    Kind::Member(name) => {
                        let member = Member::parse(&stored.body);
                        member
                            .filter(|member| member.generation < generation)
                            .map(|_| name.to_owned())
                    }
                    Kind::Lease(_) => Lease::parse(&stored.body).ok().and_then(|lease| lease.owner),
                    _ => None,
                };
                let Some(busy) = busy else { continue };
                let known =
                    seen.entry(stored.key.id.clone()).or_insert_with(|| (stored.etag.clone(), now));
                if known.0 != stored.etag {
                    *known = (stored.etag.clone(), now);
                }
                if now.saturating_sub(known.1) < silence {
                    working = Some(busy);
                }
            }
            match working {
                None => return Ok(()),
                Some(who) if now.saturating_sub(began) > silence * 5 => {
                    return Err(UnitError::StillWorking(who));
                }
                Some(_) => self.runtime.sleep(LOOK.min(silence / 4)).await,
            }
        }
    }

    /// Moves one lease, or all of them, to another start. No host works meanwhile. Returns the number moved.
    ///
    /// The .NET and Java formats store positions only: with `source`, a position is looked up for each lease.
    ///
    /// # Errors
    /// Fails if a host keeps working, or if either container cannot be used. The unit then stays paused.
    pub async fn seek(
        &self,
        lease: Option<&str>,
        to: &Start,
        source: Option<&dyn FeedSource>,
        silence: Duration,
    ) -> Result<usize, UnitError> {
        self.go(lease, Target::Start(to, source), silence).await
    }

    /// Moves one lease, or all of them, back to the positions of a snapshot.
    ///
    /// # Errors
    /// Fails without any effect if the snapshot does not exist or does not cover these leases; otherwise like
    /// [`Unit::seek`].
    pub async fn seek_to_kept(
        &self,
        lease: Option<&str>,
        name: &str,
        silence: Duration,
    ) -> Result<usize, UnitError> {
        let kept = self.kept(name).await?;
        for lease in self.leases(lease).await? {
            kept.start_of(&lease)?;
        }
        self.go(lease, Target::Kept(&kept), silence).await
    }

    async fn go(
        &self,
        lease: Option<&str>,
        target: Target<'_>,
        silence: Duration,
    ) -> Result<usize, UnitError> {
        let generation = self.set_control(true).await?;
        self.wait_for_quiet(generation, silence).await?;
        self.keep_promises().await?;
        let mut moved = 0;
        for lease in self.leases(lease).await? {
            let to = target.of(&lease).await?;
            self.rewrite(&lease.token, |lease| {
                lease.owner = None;
                lease.extra.session = None;
                lease.extra.reserved_for = None;
                (lease.position, lease.extra.start) = match &to {
                    Start::Position(position) => (Some(position.clone()), None),
                    start => (None, Some(start.clone())),
                };
                if lease.extra.state == LeaseState::Halted {
                    lease.extra.state = LeaseState::Running;
                }
            })
            .await?;
            moved += 1;
        }
        self.resume().await?;
        Ok(moved)
    }

    /// Creates leases that were promised and do not exist, so that they are moved with the others.
    async fn keep_promises(&self) -> Result<(), UnitError> {
        for promise in self.look().await?.promises {
            for lease in &promise.missing {
                promised::make(&*self.store, lease, self.document(lease)).await?;
            }
            let kept = promise.cleared(|lease| self.document(lease));
            match self.store.replace(kept, &promise.etag).await {
                Ok(_) | Err(StoreError::PreconditionFailed) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Pauses, resumes or halts a single lease. Its owner notices at its next write.
    ///
    /// # Errors
    /// Fails if the lease does not exist, or if the container cannot be written.
    pub async fn set_state(&self, lease: &str, state: LeaseState) -> Result<(), UnitError> {
        self.leases(Some(lease)).await?;
        self.rewrite(lease, |lease| {
            if state != LeaseState::Running {
                // The owner then finds at its next write that it lost the lease.
                lease.owner = None;
                lease.extra.session = None;
            }
            lease.extra.state = state;
        })
        .await
    }

    /// Returns one lease, or all leases that are not retired.
    async fn leases(&self, lease: Option<&str>) -> Result<Vec<Lease>, UnitError> {
        let all = self.look().await?.leases.into_iter().map(|info| info.lease);
        let wanted = |one: &Lease| lease.is_none_or(|token| one.token == token);
        let wanted: Vec<Lease> = all.filter(wanted).collect();
        match (wanted.is_empty(), lease) {
            (true, Some(lease)) => Err(UnitError::NoSuchLease(lease.to_owned())),
            _ => Ok(wanted),
        }
    }

    /// Returns the document that stores a lease.
    pub(crate) fn document(&self, lease: &Lease) -> NewDocument {
        let now = Timestamp::from_millis(self.runtime.unix_millis());
        let rid = self.namespace.as_str().rsplit('_').next().unwrap_or_default();
        NewDocument { key: lease.key.clone(), body: lease.to_bytes(now, rid).into() }
    }

    async fn rewrite(&self, token: &str, change: impl Fn(&mut Lease)) -> Result<(), UnitError> {
        for _ in 0..ATTEMPTS {
            let snapshot = self.look().await?;
            let generation = snapshot.control.generation;
            let found = snapshot.leases.into_iter().find(|info| info.lease.token == token);
            let Some(LeaseInfo { mut lease, etag, .. }) = found else {
                return Err(UnitError::NoSuchLease(token.to_owned()));
            };
            change(&mut lease);
            lease.extra.generation = generation;
            match self.store.replace(self.document(&lease), &etag).await {
                Ok(_) => return Ok(()),
                Err(StoreError::PreconditionFailed | StoreError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(UnitError::Busy)
    }
}

/// Measures the lag of a lease (`IRemainingWorkEstimator`) with one small read after its position.
///
/// # Errors
/// Fails if the feed cannot be read. If the range was split, its parts are read.
pub async fn lag_of(
    source: &dyn FeedSource,
    lease: &Lease,
    mode: FeedMode,
    now_seconds: u64,
) -> Result<Lag, SourceError> {
    let ranges = source.ranges(false).await?;
    let by_id = || coverage::keys_of(lease.token.parse().ok()?, &ranges);
    let range = lease.range.clone().or_else(by_id).ok_or(SourceError::RangeGone)?;
    let from = match (&lease.position, &lease.extra.start) {
        (Some(position), _) => Start::Position(position.clone()),
        (None, Some(start)) => start.clone(),
        // The start is unknown, and so is the lag.
        (None, None) => return Ok(Lag { transactions: None, time: None }),
    };
    let mut lags = Vec::new();
    let ranges = source.ranges(true).await?;
    for (_, keys) in coverage::successors(&range, &ranges) {
        let from = from.clone();
        let (items_max, wait) = (Some(1), Duration::ZERO);
        let request = ReadRequest { container: None, range: keys, from, mode, items_max, wait };
        let page = source.read(request).await?;
        let first = page.changes.first();
        lags.push(Lag::of(&Look {
            newest: page.newest,
            next: first.and_then(crate::source::Change::lsn),
            next_at: first.and_then(crate::source::Change::seconds),
            waiting: first.is_some(),
            now: Some(now_seconds),
        }));
    }
    Ok(Lag::total(lags))
}
