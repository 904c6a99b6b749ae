//! What all parts of one running host share.

use super::fence::Deadline;
use super::tenure::Tenure;
use crate::event::Event;
use crate::handler::AnyFactory;
use crate::lease::{DocumentKey, HostId};
use crate::lease_store::{Layout, LeaseStore, NewDocument, StoreError};
use crate::namespace::{FeedIdentity, Namespace};
use crate::options::Options;
use crate::runner::AnyRunnerFactory;
use crate::source::FeedSource;
use headwater_model::Timestamp;
use headwater_runtime::{Bell, Runtime};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Who works on leases.
#[derive(Clone)]
pub(crate) enum Workers {
    Handlers(Arc<dyn AnyFactory>),
    Runners(Arc<dyn AnyRunnerFactory>),
}

pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) options: Options,
    pub(crate) source: Arc<dyn FeedSource>,
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) workers: Workers,
    pub(crate) identity: FeedIdentity,
    pub(crate) namespace: Namespace,
    pub(crate) me: HostId,
    /// Until when this host may work on any lease, where its heartbeat keeps all of them alive.
    pub(crate) deadline: Deadline,
    /// The generation of the control document this host has carried out.
    pub(crate) generation: AtomicU64,
    /// How far the store's clock is ahead of ours, in seconds.
    server_ahead: AtomicI64,
    /// Rung when more time has passed than timers show: then everybody looks at the clock.
    pub(crate) woke: Bell,
    /// Where handlers run; the same as everything else unless they have threads of their own.
    pub(crate) handlers: Runtime,
    tenures: Mutex<Vec<Weak<Tenure>>>,
    /// Rung when the coordinator should look before its time.
    pub(crate) nudge: Bell,
    /// When the feed may be read again, for what it has cost.
    paid_until: Mutex<Duration>,
    draining: AtomicBool,
    /// Set when no session is left and none will begin.
    over: AtomicBool,
    unwell_until: AtomicU64,
    owned: AtomicUsize,
    /// Why the whole host has to stop, if it has.
    pub(crate) fatal: Mutex<Option<super::Fatal>>,
}

impl Shared {
    #[allow(clippy::too_many_arguments)] // Put together in one place only.
    pub(crate) fn new(
        runtime: Runtime,
        handlers: Runtime,
        options: Options,
        source: Arc<dyn FeedSource>,
        store: Arc<dyn LeaseStore>,
        workers: Workers,
        identity: FeedIdentity,
        namespace: Namespace,
        me: HostId,
    ) -> Shared {
        Shared {
            runtime,
            options,
            source,
            store,
            workers,
            identity,
            namespace,
            me,
            deadline: Deadline::default(),
            generation: AtomicU64::new(0),
            server_ahead: AtomicI64::new(0),
            woke: Bell::default(),
            handlers,
            tenures: Mutex::default(),
            nudge: Bell::default(),
            paid_until: Mutex::default(),
            draining: AtomicBool::new(false),
            over: AtomicBool::new(false),
            unwell_until: AtomicU64::new(0),
            owned: AtomicUsize::new(0),
            fatal: Mutex::default(),
        }
    }

    /// An answer of the lease store, or that there was none in time.
    pub(crate) async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = self.runtime.timeout(self.options.store_timeout, asked).await;
        answer.unwrap_or_else(|| Err(StoreError::Unavailable("no answer in time".to_owned())))
    }

    /// Reading cost so much: the next page has to wait, where that is bounded.
    pub(crate) fn spend(&self, charge: f64) {
        let Some(most) = self.options.charge_per_second_max else { return };
        // A service may say anything; no page is worth more than a minute.
        let time = Duration::try_from_secs_f64(charge / most).unwrap_or_default();
        let mut until = self.paid_until.lock();
        *until = (*until).max(self.runtime.elapsed()) + time.min(Duration::from_secs(60));
    }

    /// How long the feed has to be left alone for what it has cost.
    pub(crate) fn owed(&self) -> Duration {
        self.paid_until.lock().saturating_sub(self.runtime.elapsed())
    }

    /// Whether this host is about to leave, or cannot read the feed: then it is given nothing.
    pub(crate) fn is_draining(&self) -> bool {
        let unwell = Duration::from_micros(self.unwell_until.load(Ordering::SeqCst));
        self.draining.load(Ordering::SeqCst) || self.runtime.elapsed() < unwell
    }

    /// Leaves everything to others for a while.
    pub(crate) fn set_unwell(&self, duration: Duration) {
        let until = self.runtime.elapsed() + duration;
        let micros = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.unwell_until.store(micros, Ordering::SeqCst);
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.nudge.ring();
    }

    /// Says that this host has ended, whether it was asked to or had to.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.nudge.ring();
    }

    /// Whether this host has ended, or has no lease container any more to say anything in.
    pub(crate) fn is_over(&self) -> bool {
        let lost = matches!(*self.fatal.lock(), Some(super::Fatal::LeaseStoreGone(_)));
        lost || self.over.load(Ordering::SeqCst)
    }

    /// How many leases it works on.
    pub(crate) fn owned(&self) -> usize {
        self.owned.load(Ordering::SeqCst)
    }

    pub(crate) fn set_owned(&self, count: usize) {
        self.owned.store(count, Ordering::SeqCst);
    }

    /// Work on a lease has begun; it is looked after until it ends.
    pub(crate) fn look_after(&self, tenure: &Arc<Tenure>) {
        self.tenures.lock().push(Arc::downgrade(tenure));
    }

    /// The leases that are worked on.
    pub(crate) fn tenures(&self) -> Vec<Arc<Tenure>> {
        let mut tenures = self.tenures.lock();
        tenures.retain(|tenure| tenure.strong_count() > 0);
        tenures.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn tell(&self, event: Event) {
        self.options.events.tell(event);
    }

    /// Remembers what time the store has.
    pub(crate) fn note_server_time(&self, seconds: Option<u64>) {
        if let Some(theirs) = seconds.and_then(|seconds| i64::try_from(seconds).ok()) {
            let ours = i64::try_from(self.runtime.unix_millis() / 1000).unwrap_or(theirs);
            self.server_ahead.store(theirs - ours, Ordering::Relaxed);
        }
    }

    /// The store's time, as well as we know it: the originals compare it with their clocks.
    pub(crate) fn server_time(&self) -> Timestamp {
        let ahead = self.server_ahead.load(Ordering::Relaxed).saturating_mul(1000);
        Timestamp::from_millis(self.runtime.unix_millis().saturating_add_signed(ahead))
    }

    /// Where a document of this unit belongs.
    pub(crate) fn key(&self, id: String) -> DocumentKey {
        let shared = !self.options.is_native();
        self.store.layout().key(self.namespace.as_str(), id, shared)
    }

    /// Whether all documents of this unit are in one place, so that several can be written at once.
    pub(crate) fn writes_at_once(&self) -> bool {
        self.options.is_native() && self.store.layout() == Layout::PartitionKey
    }

    /// Whether leases are promised before they are made, and retired when they are over (`promised`). The originals
    /// know neither.
    pub(crate) fn promises(&self) -> bool {
        #[cfg(test)]
        if self.sabotaged(crate::proof::Sabotage::PromisesNothing) {
            return false;
        }
        self.options.is_native()
    }

    /// The document a lease is written as.
    pub(crate) fn document(&self, lease: &crate::lease::Lease) -> NewDocument {
        let body = lease.to_bytes(self.server_time(), &self.identity.container.rid);
        NewDocument { key: lease.key.clone(), body: body.into() }
    }

    /// Stops the whole host; the first reason counts.
    pub(crate) fn fail(&self, why: super::Fatal) {
        self.fatal.lock().get_or_insert(why);
        self.nudge.ring();
    }

    /// Whether this host breaks a rule on purpose, to see that somebody notices.
    #[cfg(test)]
    pub(crate) fn sabotaged(&self, how: crate::proof::Sabotage) -> bool {
        self.options.sabotage == Some(how)
    }
}
