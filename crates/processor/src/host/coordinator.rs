//! Lists all leases periodically and does this host's part: acquires free leases, hands over surplus ones,
//! detects lost ones and repairs broken ones.
//!
//! A listing may be stale, so it only leads to attempts: every write is conditional on the version that was
//! listed, and a lease missing from a listing is read before it counts as missing.

use super::acquire::{Candidate, acquire, all};
use super::repair::Auditor;
use super::session::{self, AcquiredLease, SessionEnd, SessionHandle};
use super::shared::Shared;
use super::{Fatal, Report, Stopped};
use crate::balance::{ClusterView, LeaseView, MemberView, Owner, Plan};
use crate::coverage;
use crate::event::Event;
use crate::expiry::{Observations, Sign};
use crate::handler::CloseReason;
use crate::lease::Lease;
use crate::lease_store::{Listing, StoreError, Stored};
use crate::member::{Control, Member};
use crate::namespace::Kind;
use crate::promised::{self, Promise};
use headwater_runtime::{BoxFuture, Stop};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How soon to list again while ownership changes.
const UNSETTLED_INTERVAL: Duration = Duration::from_secs(1);
/// How long a host that could not read the feed takes no new leases.
const FEED_UNREACHABLE_PAUSE: Duration = Duration::from_secs(60);

pub(crate) struct Coordinator {
    shared: Arc<Shared>,
    sessions: BTreeMap<String, SessionHandle>,
    ended: mpsc::UnboundedReceiver<SessionEnd>,
    ending: mpsc::UnboundedSender<SessionEnd>,
    seen: Observations,
    /// Leases this host does not acquire before the given time.
    avoid: BTreeMap<String, Duration>,
    picture: String,
    stable_rounds: u32,
    auditor: Auditor,
    report: watch::Sender<Report>,
    stopped: Vec<Stopped>,
    stopping: bool,
}

/// The documents of one listing, parsed and sorted by kind.
pub(crate) struct View {
    pub(crate) leases: Vec<(Lease, Stored)>,
    /// Extra documents for ranges that already have a lease; none of them is less advanced than that lease.
    pub(crate) duplicates: Vec<(Lease, Stored)>,
    /// Leases that are over and will not be processed again.
    pub(crate) retired: Vec<(Lease, Stored)>,
    /// Leases that were announced but may not exist yet.
    pub(crate) promises: Vec<Promise>,
    members: Vec<(Member, Stored)>,
    control: Control,
    pub(crate) marker: Option<Stored>,
    pub(crate) seconds: Option<u64>,
}

impl Coordinator {
    pub(crate) fn new(shared: Arc<Shared>, report: watch::Sender<Report>) -> Coordinator {
        let (ending, ended) = mpsc::unbounded_channel();
        Coordinator {
            auditor: Auditor::new(shared.clone()),
            shared,
            sessions: BTreeMap::new(),
            ended,
            ending,
            seen: Observations::default(),
            avoid: BTreeMap::new(),
            picture: String::new(),
            stable_rounds: 0,
            report,
            stopped: Vec::new(),
            stopping: false,
        }
    }

    /// Runs until the host is stopped, fails or is dropped.
    pub(crate) async fn run(mut self, stopping: watch::Receiver<bool>, mut gone: Stop) {
        let mut nudged = self.shared.nudge.listen();
        loop {
            self.collect();
            if gone.is_requested() || *stopping.borrow() || self.shared.fatal.lock().is_some() {
                break;
            }
            let wait = self.round().await;
            self.publish(false);
            tokio::select! {
                biased;
                () = gone.requested() => break,
                () = nudged.rang() => {}
                () = self.shared.runtime.sleep(wait) => {}
            }
        }
        if gone.is_requested() && !*stopping.borrow() {
            // Dropped without a stop: nothing is released, the sessions just end.
            self.sessions.values().for_each(|handle| handle.fence.end(CloseReason::LeaseExpired));
        } else {
            self.drain().await;
        }
        self.shared.set_over();
        self.publish(true);
    }

    /// Releases every lease, within a time limit.
    async fn drain(&mut self) {
        self.stopping = true;
        self.shared.drain();
        let fatal = self.shared.fatal.lock().clone();
        let reason = match &fatal {
            None => CloseReason::Shutdown,
            Some(Fatal::FeedGone(_)) => CloseReason::FeedGone,
            Some(Fatal::LeaseStoreGone(_)) => CloseReason::LeaseStoreGone,
            Some(Fatal::DuplicateHostName(_)) => CloseReason::LeaseLost,
            Some(Fatal::Handler(_)) => CloseReason::Shutdown,
        };
        match &fatal {
            Some(Fatal::FeedGone(why)) => self.shared.tell(Event::FeedGone { why: why.clone() }),
            Some(Fatal::LeaseStoreGone(why)) => {
                self.shared.tell(Event::LeaseStoreGone { why: why.clone() });
            }
            _ => {}
        }
        // Without the lease store, or with the name lost, ownership is unknown: end everything at once.
        let at_once = matches!(reason, CloseReason::LeaseStoreGone | CloseReason::LeaseLost);
        for handle in self.sessions.values() {
            if at_once {
                handle.fence.end(reason.clone());
            } else {
                handle.fence.leave(reason.clone());
            }
        }
        // A session gives its handlers `drain_timeout` and then releases its lease, which takes no longer
        // than its fence allows.
        let patience = self.shared.options.drain_timeout + self.shared.options.expiration;
        let until = self.shared.runtime.elapsed() + patience;
        while !self.sessions.is_empty() {
            let left = until.saturating_sub(self.shared.runtime.elapsed());
            match self.shared.runtime.timeout(left, self.ended.recv()).await {
                Some(Some(end)) => self.note(end),
                Some(None) | None => break,
            }
        }
    }

    fn collect(&mut self) {
        while let Ok(end) = self.ended.try_recv() {
            self.note(end);
        }
    }

    fn note(&mut self, end: SessionEnd) {
        self.sessions.remove(&end.token);
        self.shared.set_owned(self.sessions.len());
        if end.reason == CloseReason::FeedUnreachable && !self.stopping {
            self.shared.pause_acquiring(FEED_UNREACHABLE_PAUSE);
        }
        if let Some(avoid) = end.avoid {
            self.avoid.insert(end.token.clone(), self.shared.runtime.elapsed() + avoid);
        }
        if let Some(known) = end.known.filter(|_| !end.orderly) {
            self.auditor.remember(known);
        }
        if self.stopping {
            let (lease, reason, orderly) = (end.token, end.reason, end.orderly);
            self.stopped.push(Stopped { lease, reason, orderly });
        }
    }

    fn publish(&self, ended: bool) {
        self.report.send_modify(|report| {
            report.owned = self.sessions.keys().cloned().collect();
            report.stopped.clone_from(&self.stopped);
            report.ended = ended;
            report.fatal.clone_from(&self.shared.fatal.lock());
        });
    }

    /// Lists once and acts on the result. Returns how long to wait before the next listing.
    async fn round(&mut self) -> Duration {
        let listed = self.shared.store.list(&self.shared.namespace.prefix());
        let listed = self.shared.runtime.timeout(self.shared.options.store_timeout, listed).await;
        let arrived = self.shared.runtime.elapsed();
        let listing = match listed {
            Some(Ok(listing)) => listing,
            Some(Err(StoreError::Gone(why))) => {
                self.shared.fail(Fatal::LeaseStoreGone(why));
                return Duration::ZERO;
            }
            Some(Err(error)) => {
                self.shared.tell(Event::StoreTrouble { error: error.to_string() });
                return self.interval();
            }
            None => return self.interval(),
        };
        self.shared.note_server_time(listing.seconds);
        let view = self.parse_listing(&listing, arrived);
        if !self.apply_control(view.control) {
            return UNSETTLED_INTERVAL;
        }
        self.notice_lost(&view);
        let cluster = self.cluster(&view, arrived);
        let plan = self.shared.options.balancer.plan(&cluster, &self.shared.me);
        let restless = self.stable_rounds < 2 || !plan.take.is_empty() || !plan.offer.is_empty();
        match plan.objection(&cluster, &self.shared.me) {
            Some(why) => self.shared.tell(Event::PlanRefused { why }),
            None => self.carry_out(&view, &cluster, plan).await,
        }
        let alive =
            |(lease, stored): &&(Lease, Stored)| self.is_alive(&view, (lease, stored), arrived);
        let alive =
            view.leases.iter().filter(alive).map(|(_, stored)| stored.key.clone()).collect();
        self.auditor.round(&view, &alive).await;
        let settled = !cluster.leases.is_empty()
            && cluster
                .leases
                .iter()
                .all(|lease| lease.owner.is_some() || self.sessions.contains_key(&lease.token));
        let leases = view.leases.len();
        self.report.send_modify(|report| (report.leases, report.settled) = (leases, settled));
        if restless && self.shared.options.is_native() {
            UNSETTLED_INTERVAL.min(self.interval())
        } else {
            self.interval()
        }
    }

    /// Returns the acquire interval with ±20 % jitter, so that hosts do not all list at once.
    fn interval(&self) -> Duration {
        let interval = self.shared.options.acquire_interval;
        let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        let spread = (micros / 5 * 2).max(1);
        Duration::from_micros(micros - micros / 5 + self.shared.runtime.random() % spread)
    }

    fn parse_listing(&mut self, listing: &Listing, arrived: Duration) -> View {
        let mut view = View {
            leases: Vec::new(),
            duplicates: Vec::new(),
            retired: Vec::new(),
            promises: Vec::new(),
            members: Vec::new(),
            control: Control::default(),
            marker: None,
            seconds: listing.seconds,
        };
        for stored in &listing.documents {
            match self.shared.namespace.kind(&stored.key.id) {
                Kind::Lease(_) => match Lease::parse(&stored.body) {
                    Ok(lease) if lease.is_retired() => view.retired.push((lease, stored.clone())),
                    Ok(lease) => view.leases.push((lease, stored.clone())),
                    Err(error) => {
                        let lease = stored.key.id.clone();
                        self.shared.tell(Event::Halted { lease, why: error.to_string() });
                    }
                },
                Kind::Member(_) => {
                    self.seen.note(sign(stored), arrived);
                    let member = Member::parse(&stored.body);
                    view.members.extend(member.map(|member| (member, stored.clone())));
                }
                Kind::Control => {
                    let control = Control::parse(&stored.body);
                    if control.is_none() {
                        let why = "the control document is unreadable, so no host works; \
                                   pause or resume rewrites it";
                        let (lease, why) = (stored.key.id.clone(), why.to_owned());
                        self.shared.tell(Event::Halted { lease, why });
                    }
                    view.control = control.unwrap_or(Control::UNREADABLE);
                }
                Kind::Marker => view.marker = Some(stored.clone()),
                Kind::Lock | Kind::Snapshot(_) | Kind::Foreign => {}
            }
        }
        let ids: BTreeSet<&str> = listing.documents.iter().map(|one| one.key.id.as_str()).collect();
        self.seen.keep(|id| ids.contains(id));
        let all: Vec<&(Lease, Stored)> = view.leases.iter().chain(&view.retired).collect();
        view.promises = promised::find(&self.shared.namespace, &all, view.marker.as_ref());
        let order = |lease: &Lease| lease.range.as_ref().map(|range| range.min().clone());
        view.leases.sort_by(|(one, _), (other, _)| {
            order(one).cmp(&order(other)).then_with(|| one.token.cmp(&other.token))
        });
        separate_duplicates(&mut view);
        // Duplicates have the same id, so only one of them can be observed.
        view.leases.iter().for_each(|(_, stored)| self.seen.note(sign(stored), arrived));
        view
    }

    /// Applies the operators' control document. Returns false while this host must not work.
    fn apply_control(&mut self, control: Control) -> bool {
        let known = self.shared.generation.load(Ordering::SeqCst);
        if control.generation <= known && !control.paused {
            return true;
        }
        self.sessions.values().for_each(|handle| handle.fence.leave(CloseReason::Reset));
        if self.sessions.is_empty() {
            // The next heartbeat publishes the generation: this host has stopped its sessions.
            self.shared.generation.store(control.generation.max(known), Ordering::SeqCst);
            return !control.paused;
        }
        false
    }

    /// Ends sessions whose lease was taken by another host. A listing may be stale, but epochs only grow.
    fn notice_lost(&self, view: &View) {
        for (lease, stored) in &view.duplicates {
            let same = |handle: &&SessionHandle| handle.key == stored.key;
            if let Some(handle) = self.sessions.get(&lease.token).filter(same) {
                // Another document for these keys counts; the audit removes this one.
                handle.fence.leave(CloseReason::LeaseLost);
            }
        }
        for (lease, _) in &view.leases {
            let newer = |handle: &&SessionHandle| lease.extra.epoch > handle.epoch;
            if let Some(handle) = self.sessions.get(&lease.token).filter(newer) {
                handle.fence.end(CloseReason::LeaseLost);
            }
        }
    }

    /// Whether the owner of a lease is alive.
    fn is_alive(&self, view: &View, lease: (&Lease, &Stored), arrived: Duration) -> bool {
        let (lease, stored) = lease;
        let Some(owner) = &lease.owner else { return false };
        let expiration = self.shared.options.expiration;
        let expired =
            |stored: &Stored| self.seen.is_expired(sign(stored), arrived, view.seconds, expiration);
        let named: Vec<_> = match self.shared.options.is_native() {
            true => view
                .members
                .iter()
                .filter(|(one, _)| one.host.name.eq_ignore_ascii_case(owner))
                .collect(),
            false => Vec::new(),
        };
        let session = lease.extra.session.as_ref();
        let same = named.iter().find(|(one, _)| session.is_none_or(|s| *s == one.host.session));
        match same {
            Some((_, beat)) => !expired(beat),
            // Same name but another run of the process: the owner is gone.
            None if named.iter().any(|(one, _)| one.host.name == *owner) => false,
            None => !expired(stored),
        }
    }

    fn cluster(&mut self, view: &View, arrived: Duration) -> ClusterView {
        let native = self.shared.options.is_native();
        let keep = self.shared.options.acquire_interval * 2;
        let leases: Vec<LeaseView> = view
            .leases
            .iter()
            .filter(|(lease, _)| lease.is_runnable())
            .map(|(lease, stored)| {
                // Without a session id, a lease under our name is ours only if we work on it.
                let certain = lease.extra.session.is_some()
                    || self.sessions.contains_key(&lease.token)
                    || self.shared.options.adopt_own_name;
                let mine = lease.is_held_by(&self.shared.me) && certain;
                let alive = mine || self.is_alive(view, (lease, stored), arrived);
                let owner = lease.owner.as_ref().filter(|_| alive).map(|name| Owner {
                    name: name.clone(),
                    session: lease.extra.session.clone(),
                    unresponsive: false,
                });
                let since = self.seen.unchanged_for(&stored.key.id, arrived);
                let reserved = lease.extra.reserved_for.clone();
                LeaseView {
                    token: lease.token.clone(),
                    expired: lease.owner.is_some() && owner.is_none(),
                    owner,
                    reserved_for: reserved.filter(|_| since.is_some_and(|since| since < keep)),
                    rate: lease.extra.rate,
                }
            })
            .collect();
        let expiration = self.shared.options.expiration;
        let alive = |stored: &Stored| {
            !self.seen.is_expired(sign(stored), arrived, view.seconds, expiration)
        };
        let mut members: Vec<MemberView> = view
            .members
            .iter()
            .filter(|(member, stored)| native && member.host != self.shared.me && alive(stored))
            .map(|(member, _)| MemberView {
                host: member.host.clone(),
                priority: member.priority,
                weight: member.weight,
                bounds: member.bounds,
                draining: member.draining,
            })
            .collect();
        members.push(MemberView {
            host: self.shared.me.clone(),
            priority: self.shared.options.priority,
            weight: self.shared.options.weight,
            bounds: self.shared.options.bounds,
            draining: self.shared.is_draining(),
        });
        let owners: Vec<_> = leases.iter().map(|lease| (&lease.token, &lease.owner)).collect();
        let picture = format!("{members:?}{owners:?}");
        self.stable_rounds = match picture == self.picture {
            true => self.stable_rounds.saturating_add(1),
            false => 0,
        };
        self.picture = picture;
        ClusterView { leases, members, stable_rounds: self.stable_rounds }
    }

    /// Whether a session that has been fenced off is still running on keys of this lease.
    ///
    /// It may hold an earlier lease that was lost and has become this one since, for example by a split.
    fn is_left_behind(&self, lease: &Lease) -> bool {
        let Some(range) = &lease.range else { return false };
        self.sessions.values().any(|handle| handle.range.overlaps(range) && handle.fence.is_ended())
    }

    async fn carry_out(&mut self, view: &View, cluster: &ClusterView, plan: Plan) {
        for (token, to) in &plan.offer {
            if let Some(handle) = self.sessions.get(token) {
                *handle.successor.lock() = Some(to.clone());
                handle.fence.leave(CloseReason::Handover);
            }
        }
        let now = self.shared.runtime.elapsed();
        self.avoid.retain(|_, until| *until > now);
        // Leases owned by this host without a session: the answer to an acquisition was lost, or this host
        // ended the session. They are acquired again under a new epoch.
        let adopted = view.leases.iter().filter(|(lease, _)| {
            let ours = lease.is_held_by(&self.shared.me);
            let certain = lease.extra.session.is_some() || self.shared.options.adopt_own_name;
            ours && certain && lease.is_runnable()
        });
        let mut wanted: BTreeSet<&str> = adopted.map(|(lease, _)| lease.token.as_str()).collect();
        wanted.extend(plan.take.iter().chain(&plan.preempt).map(String::as_str));
        #[cfg(test)]
        if self.shared.sabotaged(crate::proof::Sabotage::LeavesTheDeadAlone) {
            wanted.retain(|token| !cluster.leases.iter().any(|l| l.token == *token && l.expired));
        }
        let mut work: Vec<BoxFuture<Option<AcquiredLease>>> = Vec::new();
        for (lease, stored) in &view.leases {
            let token = lease.token.as_str();
            // While a range has several documents no session starts: a running session would advance the one
            // that is least advanced, and the choice of document would change.
            let duplicated = view.duplicates.iter().any(|(double, _)| double.token == token);
            if !wanted.contains(token)
                || duplicated
                || self.sessions.contains_key(token)
                || self.is_left_behind(lease)
                || self.avoid.contains_key(token)
            {
                continue;
            }
            let vanished = cluster.leases.iter().any(|one| one.token == token && one.expired);
            let candidate = Candidate { lease: lease.clone(), etag: stored.etag.clone(), vanished };
            work.push(Box::pin(acquire(self.shared.clone(), candidate)));
        }
        for taken in all(work).await.into_iter().flatten() {
            let token = taken.lease.token.clone();
            let handle = session::start(&self.shared, taken, self.ending.clone());
            self.sessions.insert(token, handle);
        }
        self.shared.set_owned(self.sessions.len());
    }
}

/// Keeps one document per range: the least advanced, because the others would skip changes. The rest become
/// duplicates. .NET has created duplicates where every document has its own partition.
fn separate_duplicates(view: &mut View) {
    let mut kept: Vec<(Lease, Stored)> = Vec::with_capacity(view.leases.len());
    for (lease, stored) in std::mem::take(&mut view.leases) {
        match kept.last_mut().filter(|(last, _)| last.token == lease.token) {
            None => kept.push((lease, stored)),
            Some(last) => {
                let (one, other) = (lease.position.as_ref(), last.0.position.as_ref());
                let lower = match coverage::is_lower(one, other) || coverage::is_lower(other, one) {
                    true => coverage::is_lower(one, other),
                    // Arbitrary, but every host decides the same.
                    false => stored.key < last.1.key,
                };
                let surplus = match lower {
                    true => std::mem::replace(last, (lease, stored)),
                    false => (lease, stored),
                };
                view.duplicates.push(surplus);
            }
        }
    }
    view.leases = kept;
}

fn sign(stored: &Stored) -> Sign<'_> {
    Sign { of: &stored.key.id, version: &stored.etag, written: stored.seconds }
}
