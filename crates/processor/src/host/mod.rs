//! A running processor: one coordinator, and one session for every lease it holds.
//!
//! ```text
//! bootstrap    makes leases where there are none, behind a lock where it has to
//! heartbeat    says that this host is alive, and how long it may believe so itself
//! coordinator  looks at all leases now and then: takes, hands over, repairs
//! session      works on one lease, with its fetch, its dispatch, its lanes or its runner, and its writer
//! fence        whether a host may still work on a lease
//! held         a lease this host holds, and the one way it is written
//! split        a lease whose range is gone, replaced by others
//! watch        looks after the host itself: suspended machines, blocked threads, leases that stand still
//! ```

mod acquire;
mod bootstrap;
mod coordinator;
mod dispatch;
mod fence;
mod fetch;
mod heartbeat;
mod held;
mod lane;
mod lock;
mod repair;
mod runner;
mod session;
mod shared;
mod split;
mod tenure;
mod watch;

pub(crate) use acquire::all;
pub(crate) use lane::{Job, Portion};
pub(crate) use shared::Shared;
pub(crate) use tenure::Tenure;

use crate::handler::{CloseReason, HandlerFactory};
use crate::lease::HostId;
use crate::lease_store::{LeaseStore, StoreError};
use crate::namespace::{FeedIdentity, Namespace};
use crate::options::Options;
use crate::runner::RunnerFactory;
use crate::source::{FeedSource, SourceError};
use crate::unit::Unit;
use coordinator::Coordinator;
use headwater_runtime::{Runtime, TaskGroup};
use shared::Workers;
use std::sync::Arc;
use tokio::sync::watch::{Receiver, Sender, channel};

/// Why a processor cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Something was not given.
    #[error("a processor needs {0}; give it to the builder")]
    Missing(&'static str),
    /// An option makes no sense.
    #[error("{0}")]
    Option(String),
}

/// Why a processor did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The monitored container cannot be read.
    #[error("the monitored container: {0}")]
    Source(#[from] SourceError),
    /// The lease container cannot be used.
    #[error("the lease container: {0}")]
    Store(#[from] StoreError),
    /// Another process has the same host name.
    #[error("another process called {0:?} is alive; give every host a name of its own")]
    DuplicateHostName(String),
    /// The leases are of another kind.
    #[error("{0}")]
    ForeignLeases(String),
    /// The leases are in the monitored container.
    #[error(
        "leases cannot be kept in the monitored container: every one that is written would be a change to \
             handle; give them a container of their own"
    )]
    SameContainer,
    /// Handlers cannot have threads of their own.
    #[error("no threads for handlers: {0}; ask for fewer, or allow the process more")]
    Threads(String),
}

/// Why a processor stopped by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fatal {
    /// The monitored container is gone.
    #[error("the monitored container is gone: {0}")]
    FeedGone(String),
    /// The lease container is gone; without it nobody knows who works on what.
    #[error("the lease container is gone: {0}")]
    LeaseStoreGone(String),
    /// Another process took this host's name.
    #[error("another process called {0:?} is alive; give every host a name of its own")]
    DuplicateHostName(String),
    /// A handler failed, and the policy is to stop.
    #[error("a handler failed: {0}")]
    Handler(String),
}

/// A change feed processor that is not running yet.
#[derive(Clone)]
pub struct Processor {
    source: Arc<dyn FeedSource>,
    store: Arc<dyn LeaseStore>,
    workers: Workers,
    options: Options,
    runtime: Runtime,
    handler_threads: usize,
}

/// Puts a processor together (`ChangeFeedProcessorBuilder`).
#[derive(Default)]
pub struct ProcessorBuilder {
    source: Option<Arc<dyn FeedSource>>,
    store: Option<Arc<dyn LeaseStore>>,
    workers: Option<Workers>,
    options: Option<Options>,
    runtime: Option<Runtime>,
    handler_threads: usize,
}

impl ProcessorBuilder {
    /// The monitored container (`WithFeedCollection`, `feedContainer`).
    #[must_use]
    pub fn source(mut self, source: impl FeedSource) -> ProcessorBuilder {
        self.source = Some(Arc::new(source));
        self
    }

    /// Where leases are kept (`WithLeaseCollection`, `leaseContainer`).
    #[must_use]
    pub fn leases(mut self, store: impl LeaseStore) -> ProcessorBuilder {
        self.store = Some(Arc::new(store));
        self
    }

    /// Who handles changes: a factory, or a closure (`WithObserverFactory`, `handleChanges`).
    #[must_use]
    pub fn handler(mut self, factory: impl HandlerFactory) -> ProcessorBuilder {
        self.workers = Some(Workers::Handlers(Arc::new(factory)));
        self
    }

    /// Instead of handlers: who works on leases in a way of its own
    /// (`WithPartitionProcessorFactory`).
    #[must_use]
    pub fn runner(mut self, factory: impl RunnerFactory) -> ProcessorBuilder {
        self.workers = Some(Workers::Runners(Arc::new(factory)));
        self
    }

    /// How it behaves (`WithProcessorOptions`).
    #[must_use]
    pub fn options(mut self, options: Options) -> ProcessorBuilder {
        self.options = Some(options);
        self
    }

    /// Where it takes time, chance and tasks from; the system by default.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> ProcessorBuilder {
        self.runtime = Some(runtime);
        self
    }

    /// Runs handlers on so many threads of their own instead of where everything else runs: for those
    /// that block their thread. Then a host stays alive however many of them do.
    #[must_use]
    pub fn handler_threads(mut self, count: usize) -> ProcessorBuilder {
        self.handler_threads = count;
        self
    }

    /// The processor.
    ///
    /// # Errors
    /// When something is missing, or an option makes no sense.
    pub fn build(self) -> Result<Processor, BuildError> {
        let options = self.options.ok_or(BuildError::Missing("options"))?;
        if let Some(objection) = options.objection() {
            return Err(BuildError::Option(objection));
        }
        if matches!(self.workers, Some(Workers::Runners(_))) && options.lanes > 1 {
            let what = "lanes are for handlers; a runner decides by itself what happens at once";
            return Err(BuildError::Option(what.to_owned()));
        }
        Ok(Processor {
            source: self.source.ok_or(BuildError::Missing("a source of changes"))?,
            store: self.store.ok_or(BuildError::Missing("a place for leases"))?,
            workers: self.workers.ok_or(BuildError::Missing("a handler"))?,
            options,
            runtime: self.runtime.unwrap_or_else(Runtime::system),
            handler_threads: self.handler_threads,
        })
    }
}

impl Processor {
    /// Begins to put one together.
    #[must_use]
    pub fn builder() -> ProcessorBuilder {
        ProcessorBuilder::default()
    }

    /// The same under another host name.
    pub(crate) fn named(&self, host_name: String) -> Processor {
        let mut named = self.clone();
        named.options.host_name = Some(host_name);
        named
    }

    /// The leases of the unit it belongs to.
    pub(crate) async fn unit(&self) -> Result<Unit, SourceError> {
        let identity = self.source.identity().await?;
        Ok(Unit::new(self.store.clone(), namespace(&self.options, &identity), self.runtime.clone()))
    }

    pub(crate) fn source(&self) -> &Arc<dyn FeedSource> {
        &self.source
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Makes leases where there are none, and begins to work. May be called again after a stop.
    ///
    /// # Errors
    /// When either container cannot be used, the leases are of another kind, or another process has the
    /// same host name.
    pub async fn start(&self) -> Result<Running, StartError> {
        let identity = self.source.identity().await?;
        if self.store.is_kept_in(&identity) {
            return Err(StartError::SameContainer);
        }
        let options = self.options.clone();
        let namespace = namespace(&options, &identity);
        let session = format!("{:016x}", self.runtime.random());
        let name = options.host_name.clone().unwrap_or_else(|| format!("host-{session}"));
        let handlers = match self.handler_threads {
            0 => self.runtime.clone(),
            count => Runtime::threads("headwater-handlers", count)
                .map_err(|error| StartError::Threads(error.to_string()))?,
        };
        let shared = Arc::new(Shared::new(
            self.runtime.clone(),
            handlers,
            options,
            self.source.clone(),
            self.store.clone(),
            self.workers.clone(),
            identity,
            namespace,
            HostId { name, session },
        ));
        bootstrap::run(&shared).await?;
        let tasks = TaskGroup::new(self.runtime.clone());
        let native = shared.options.is_native();
        if native {
            let member = heartbeat::join(&shared).await?;
            let beating = shared.clone();
            tasks.spawn("heartbeat", move |stop| heartbeat::run(beating, member, stop));
        }
        let watching = shared.clone();
        tasks.spawn("watch", move |stop| watch::run(watching, stop));
        let (state, watched) = channel(Report::default());
        let (stop, stopping) = channel(false);
        let coordinator = Coordinator::new(shared.clone(), state);
        tasks.spawn("coordinator", move |gone| coordinator.run(stopping, gone));
        Ok(Running { shared, tasks, stop, watched })
    }
}

/// Under which ids the leases are kept.
fn namespace(options: &Options, identity: &FeedIdentity) -> Namespace {
    match &options.namespace {
        Some(given) => Namespace::given(given.clone()),
        None => Namespace::new(&options.processor_name, identity, options.flavour().uses_names()),
    }
}

/// How a running processor is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The leases it works on.
    pub owned: Vec<String>,
    /// How many leases there are, as far as it knows.
    pub leases: usize,
    /// Whether every lease has an owner who is alive.
    pub settled: bool,
    /// How its last sessions ended, since it was asked to stop.
    pub stopped: Vec<Stopped>,
    /// Whether it ended.
    pub ended: bool,
    /// Why it stopped by itself, if it did.
    pub fatal: Option<Fatal>,
}

/// How work on one lease ended when the host stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// Which.
    pub lease: String,
    /// Why it ended.
    pub reason: CloseReason,
    /// Whether everything that was handled was stored, and the lease let go of.
    pub orderly: bool,
}

/// A running processor. Dropped without [`Running::stop`] its leases stay blocked until they expire.
pub struct Running {
    shared: Arc<Shared>,
    tasks: TaskGroup,
    stop: Sender<bool>,
    watched: Receiver<Report>,
}

impl Running {
    /// Who it is.
    #[must_use]
    pub fn host(&self) -> &HostId {
        &self.shared.me
    }

    /// How it is doing.
    #[must_use]
    pub fn report(&self) -> Report {
        self.watched.borrow().clone()
    }

    /// Completes when every lease has an owner who is alive, or the processor ended.
    pub async fn ready(&self) {
        let mut watched = self.watched.clone();
        let _ = watched.wait_for(|report| report.settled || report.ended).await;
    }

    /// Completes when it ended, by itself or because it was asked to.
    pub async fn ended(&self) -> Report {
        let mut watched = self.watched.clone();
        match watched.wait_for(|report| report.ended).await {
            Ok(report) => report.clone(),
            Err(_) => self.report(),
        }
    }

    /// Finishes what runs, stores every position and lets go of every lease, within
    /// [`Options::drain_timeout`].
    pub async fn stop(self) -> Report {
        let _ = self.stop.send(true);
        self.shared.nudge.ring();
        let report = self.ended().await;
        self.tasks.shutdown().await;
        report
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({})", self.shared.me.name)
    }
}
