//! State shared by all parts of one running host.

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

/// What processes leases: handlers or runners.
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
    /// Until when this host may work on any lease, if its heartbeat renews them all.
    pub(crate) deadline: Deadline,
    /// The generation of the control document this host has applied.
    pub(crate) generation: AtomicU64,
    /// How far the store's clock is ahead of this host's, in seconds.
    server_ahead: AtomicI64,
    /// Notified when the host wakes from suspend, so that deadlines are checked against the clock again.
    pub(crate) woke: Bell,
    /// Where handlers run; the main runtime unless handlers have dedicated threads.
    pub(crate) handlers: Runtime,
    tenures: Mutex<Vec<Weak<Tenure>>>,
    /// Notified when the coordinator should run its next round early.
    pub(crate) nudge: Bell,
    /// When the feed may be read again under the limit on request charge.
    paid_until: Mutex<Duration>,
    draining: AtomicBool,
    /// Set when no session is left and none will start.
    over: AtomicBool,
    acquiring_paused_until: AtomicU64,
    owned: AtomicUsize,
    /// Why the whole host must stop, if it must.
    pub(crate) fatal: Mutex<Option<super::Fatal>>,
}

impl Shared {
    #[allow(clippy::too_many_arguments)] // Called in one place only.
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
            acquiring_paused_until: AtomicU64::new(0),
            owned: AtomicUsize::new(0),
            fatal: Mutex::default(),
        }
    }

    /// Waits for an answer of the lease store; a timeout becomes `Unavailable`.
    pub(crate) async fn answer<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = self.runtime.timeout(self.options.store_timeout, asked).await;
        answer.unwrap_or_else(|| Err(StoreError::Unavailable("no answer in time".to_owned())))
    }

    /// Accounts for the charge of a read. If the charge per second is limited, the next read is delayed.
    pub(crate) fn spend(&self, charge: f64) {
        let Some(most) = self.options.charge_per_second_max else { return };
        // The reported charge is not trusted: one page delays the next by at most a minute.
        let time = Duration::try_from_secs_f64(charge / most).unwrap_or_default();
        let mut until = self.paid_until.lock();
        *until = (*until).max(self.runtime.elapsed()) + time.min(Duration::from_secs(60));
    }

    /// Returns how long reads must pause to stay within the limit on request charge.
    pub(crate) fn read_delay(&self) -> Duration {
        self.paid_until.lock().saturating_sub(self.runtime.elapsed())
    }

    /// Whether this host is stopping or cannot read the feed, so that it receives no leases.
    pub(crate) fn is_draining(&self) -> bool {
        let unwell = Duration::from_micros(self.acquiring_paused_until.load(Ordering::SeqCst));
        self.draining.load(Ordering::SeqCst) || self.runtime.elapsed() < unwell
    }

    /// Stops acquiring leases for a while.
    pub(crate) fn pause_acquiring(&self, duration: Duration) {
        let until = self.runtime.elapsed() + duration;
        let micros = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.acquiring_paused_until.store(micros, Ordering::SeqCst);
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.nudge.ring();
    }

    /// Records that this host has ended.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.nudge.ring();
    }

    /// Whether this host has ended, or has lost the lease container it would report to.
    pub(crate) fn is_over(&self) -> bool {
        let lost = matches!(*self.fatal.lock(), Some(super::Fatal::LeaseStoreGone(_)));
        lost || self.over.load(Ordering::SeqCst)
    }

    /// Returns how many leases this host works on.
    pub(crate) fn owned(&self) -> usize {
        self.owned.load(Ordering::SeqCst)
    }

    pub(crate) fn set_owned(&self, count: usize) {
        self.owned.store(count, Ordering::SeqCst);
    }

    /// Registers work on a lease for monitoring, until it ends.
    pub(crate) fn look_after(&self, tenure: &Arc<Tenure>) {
        self.tenures.lock().push(Arc::downgrade(tenure));
    }

    /// Returns the leases this host works on.
    pub(crate) fn tenures(&self) -> Vec<Arc<Tenure>> {
        let mut tenures = self.tenures.lock();
        tenures.retain(|tenure| tenure.strong_count() > 0);
        tenures.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn tell(&self, event: Event) {
        self.options.events.tell(event);
    }

    /// Records the difference between the store's clock and this host's.
    pub(crate) fn note_server_time(&self, seconds: Option<u64>) {
        if let Some(theirs) = seconds.and_then(|seconds| i64::try_from(seconds).ok()) {
            let ours = i64::try_from(self.runtime.unix_millis() / 1000).unwrap_or(theirs);
            self.server_ahead.store(theirs - ours, Ordering::Relaxed);
        }
    }

    /// Estimates the store's time, which the .NET and Java libraries compare with their clocks.
    pub(crate) fn server_time(&self) -> Timestamp {
        let ahead = self.server_ahead.load(Ordering::Relaxed).saturating_mul(1000);
        Timestamp::from_millis(self.runtime.unix_millis().saturating_add_signed(ahead))
    }

    /// Returns the key of a document of this unit.
    pub(crate) fn key(&self, id: String) -> DocumentKey {
        let shared = !self.options.is_native();
        self.store.layout().key(self.namespace.as_str(), id, shared)
    }

    /// Whether all documents of this unit are in one partition, so that several can be written atomically.
    pub(crate) fn writes_at_once(&self) -> bool {
        self.options.is_native() && self.store.layout() == Layout::PartitionKey
    }

    /// Whether leases are promised before they are created and retired when they are over (`promised`). Leases shared
    /// with the .NET and Java libraries support neither.
    pub(crate) fn promises(&self) -> bool {
        #[cfg(test)]
        if self.sabotaged(crate::proof::Sabotage::PromisesNothing) {
            return false;
        }
        self.options.is_native()
    }

    /// Returns the document that stores a lease.
    pub(crate) fn document(&self, lease: &crate::lease::Lease) -> NewDocument {
        let body = lease.to_bytes(self.server_time(), &self.identity.container.rid);
        NewDocument { key: lease.key.clone(), body: body.into() }
    }

    /// Stops the whole host; the first reason is kept.
    pub(crate) fn fail(&self, why: super::Fatal) {
        self.fatal.lock().get_or_insert(why);
        self.nudge.ring();
    }

    /// Whether this host breaks a rule on purpose, to prove that the checks detect it.
    #[cfg(test)]
    pub(crate) fn sabotaged(&self, how: crate::proof::Sabotage) -> bool {
        self.options.sabotage == Some(how)
    }
}
