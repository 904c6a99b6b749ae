//! A running processor: one coordinator, and one session per lease it holds.
//!
//! ```text
//! bootstrap    creates missing leases, behind a lock where leases are shared with other libraries
//! heartbeat    renews this host's member document and extends its deadline
//! coordinator  lists all leases periodically: acquires, hands over, repairs
//! session      works on one lease: fetch, dispatch, lanes or runner, and the writer
//! fence        whether this host may still work on a lease
//! held         a lease this host holds; the only way to write it
//! split        replaces a lease whose range was split by its children
//! watch        monitors the host: suspended machine, blocked threads, stalled leases
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

/// Errors returned by [`ProcessorBuilder::build`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A required part was not given to the builder.
    #[error("a processor needs {0}; give it to the builder")]
    Missing(&'static str),
    /// An option is invalid, or two options contradict each other.
    #[error("{0}")]
    Option(String),
}

/// Errors returned by [`Processor::start`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The monitored container cannot be read.
    #[error("the monitored container: {0}")]
    Source(#[from] SourceError),
    /// The lease container cannot be used.
    #[error("the lease container: {0}")]
    Store(#[from] StoreError),
    /// Another running process uses the same host name.
    #[error("another process uses the host name \"{0}\"; give every host a unique name")]
    DuplicateHostName(String),
    /// The existing leases belong to another profile or feed mode, or other hosts use them.
    #[error("{0}")]
    ForeignLeases(String),
    /// The lease container is the monitored container.
    #[error(
        "leases cannot be stored in the monitored container: every lease write would be a change to \
             handle; use a separate lease container"
    )]
    SameContainer,
    /// The threads for handlers cannot be started.
    #[error("cannot start the handler threads: {0}; configure fewer, or raise the process limit")]
    Threads(String),
}

/// Errors that stop a running processor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fatal {
    /// The monitored container is gone.
    #[error("the monitored container is gone: {0}")]
    FeedGone(String),
    /// The lease container is gone. Without it hosts cannot coordinate.
    #[error("the lease container is gone: {0}")]
    LeaseStoreGone(String),
    /// Another process took over this host's name.
    #[error("another process uses the host name \"{0}\"; give every host a unique name")]
    DuplicateHostName(String),
    /// A handler failed and the failure policy decided to stop the processor.
    #[error("a handler failed: {0}")]
    Handler(String),
}

/// A configured change feed processor; [`Processor::start`] runs it.
#[derive(Clone)]
pub struct Processor {
    source: Arc<dyn FeedSource>,
    store: Arc<dyn LeaseStore>,
    workers: Workers,
    options: Options,
    runtime: Runtime,
    handler_threads: usize,
}

/// Builds a [`Processor`] (`ChangeFeedProcessorBuilder`).
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
    /// Sets the monitored container (`WithFeedCollection`, `feedContainer`).
    #[must_use]
    pub fn source(mut self, source: impl FeedSource) -> ProcessorBuilder {
        self.source = Some(Arc::new(source));
        self
    }

    /// Sets the store of the leases (`WithLeaseCollection`, `leaseContainer`).
    #[must_use]
    pub fn leases(mut self, store: impl LeaseStore) -> ProcessorBuilder {
        self.store = Some(Arc::new(store));
        self
    }

    /// Sets the handler: a factory or a closure (`WithObserverFactory`, `handleChanges`).
    #[must_use]
    pub fn handler(mut self, factory: impl HandlerFactory) -> ProcessorBuilder {
        self.workers = Some(Workers::Handlers(Arc::new(factory)));
        self
    }

    /// Sets a runner, which replaces handlers and pulls batches itself
    /// (`WithPartitionProcessorFactory`).
    #[must_use]
    pub fn runner(mut self, factory: impl RunnerFactory) -> ProcessorBuilder {
        self.workers = Some(Workers::Runners(Arc::new(factory)));
        self
    }

    /// Sets the options (`WithProcessorOptions`).
    #[must_use]
    pub fn options(mut self, options: Options) -> ProcessorBuilder {
        self.options = Some(options);
        self
    }

    /// Sets the source of time, randomness and tasks; defaults to the system.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> ProcessorBuilder {
        self.runtime = Some(runtime);
        self
    }

    /// Runs handlers on `count` dedicated threads instead of the shared ones.
    ///
    /// For handlers that block their thread: blocking handlers then cannot delay the host's heartbeat.
    #[must_use]
    pub fn handler_threads(mut self, count: usize) -> ProcessorBuilder {
        self.handler_threads = count;
        self
    }

    /// Builds the processor.
    ///
    /// # Errors
    /// Fails if a part is missing or an option is invalid.
    pub fn build(self) -> Result<Processor, BuildError> {
        let options = self.options.ok_or(BuildError::Missing("options"))?;
        if let Some(objection) = options.objection() {
            return Err(BuildError::Option(objection));
        }
        if matches!(self.workers, Some(Workers::Runners(_))) && options.lanes > 1 {
            let what = "lanes work with handlers only; a runner controls its own concurrency";
            return Err(BuildError::Option(what.to_owned()));
        }
        Ok(Processor {
            source: self.source.ok_or(BuildError::Missing("a feed source"))?,
            store: self.store.ok_or(BuildError::Missing("a lease store"))?,
            workers: self.workers.ok_or(BuildError::Missing("a handler"))?,
            options,
            runtime: self.runtime.unwrap_or_else(Runtime::system),
            handler_threads: self.handler_threads,
        })
    }
}

impl Processor {
    /// Returns an empty builder.
    #[must_use]
    pub fn builder() -> ProcessorBuilder {
        ProcessorBuilder::default()
    }

    /// Returns a copy with another host name.
    pub(crate) fn named(&self, host_name: String) -> Processor {
        let mut named = self.clone();
        named.options.host_name = Some(host_name);
        named
    }

    /// Returns the unit (the set of leases) this processor belongs to.
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

    /// Creates missing leases and starts to work. May be called again after a stop.
    ///
    /// # Errors
    /// Fails if either container cannot be used, if the leases belong to another profile, or if another
    /// process has the same host name.
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

/// Returns the namespace of lease ids: the configured one, or one derived from the monitored container.
fn namespace(options: &Options, identity: &FeedIdentity) -> Namespace {
    match &options.namespace {
        Some(given) => Namespace::given(given.clone()),
        None => Namespace::new(&options.processor_name, identity, options.flavour().uses_names()),
    }
}

/// State of a running processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Tokens of the leases this host works on.
    pub owned: Vec<String>,
    /// Number of leases in the last listing.
    pub leases: usize,
    /// Whether every lease has a live owner.
    pub settled: bool,
    /// How each session ended after the host was asked to stop.
    pub stopped: Vec<Stopped>,
    /// Whether the processor has ended.
    pub ended: bool,
    /// Why the processor stopped without being asked to, if it did.
    pub fatal: Option<Fatal>,
}

/// How work on one lease ended when the host stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stopped {
    /// The token of the lease.
    pub lease: String,
    /// Why it ended.
    pub reason: CloseReason,
    /// Whether everything that was handled was stored and the lease was released.
    pub orderly: bool,
}

/// A running processor. If it is dropped without [`Running::stop`], its leases stay owned until they expire.
pub struct Running {
    shared: Arc<Shared>,
    tasks: TaskGroup,
    stop: Sender<bool>,
    watched: Receiver<Report>,
}

impl Running {
    /// Returns the identity of this host.
    #[must_use]
    pub fn host(&self) -> &HostId {
        &self.shared.me
    }

    /// Returns the current state.
    #[must_use]
    pub fn report(&self) -> Report {
        self.watched.borrow().clone()
    }

    /// Completes when every lease has a live owner, or the processor ended.
    pub async fn ready(&self) {
        let mut watched = self.watched.clone();
        let _ = watched.wait_for(|report| report.settled || report.ended).await;
    }

    /// Completes when the processor has ended, with its last report.
    pub async fn ended(&self) -> Report {
        let mut watched = self.watched.clone();
        match watched.wait_for(|report| report.ended).await {
            Ok(report) => report.clone(),
            Err(_) => self.report(),
        }
    }

    /// Stops the processor: finishes running handlers, stores every position and releases every lease, within
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
