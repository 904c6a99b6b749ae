//! The Azure Functions trigger: reads its settings and calls a function with changes.
//!
//! ```text
//! function.json ─► TriggerSettings ─► Options ─► Processor ─► your function
//!                                   + the failure policy of a mode
//! ```
//!
//! It is a thin layer over the processor. Leases have the format of Azure's own trigger, so that both can share the
//! work or take over from each other. Two modes differ in the treatment of changes whose function failed:
//!
//! * [`Mode::Compat`] behaves exactly like Azure's trigger. Changes whose function threw count as handled, at once or
//!   after the last retry, and are lost; [`Event::Skipped`] reports them.
//! * [`Mode::Safe`] never skips a change: it is retried or dead-lettered.
//!
//! The trigger decides nothing about leases, positions or order, and never stores a position.

mod connect;
mod retry;
mod settings;

pub use connect::{AppSettings, ConnectError};
pub use retry::Retry;
pub use settings::{SettingsError, TriggerSettings};

use crate::dead_letter::DeadLetters;
use crate::event::Event;
use crate::failure::HandlerError;
use crate::handler::{Ack, Batch, Handler, HandlerFactory, LeaseContext};
use crate::host::{BuildError, Processor, ProcessorBuilder, Running, StartError};
use crate::lease_store::LeaseStore;
use crate::options::Options;
use crate::scale::Scaler;
use crate::source::{FeedSource, SourceError};
use crate::unit::Snapshot;
use headwater_runtime::{BoxFuture, Runtime};
use retry::{CompatPolicy, safe_policy};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What happens to changes whose function failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They are retried forever. With a dead-letter sink, the changes to blame are dead-lettered after the last
    /// retry. Changes handled while the host stops count.
    #[default]
    Safe,
    /// As in Azure's trigger: they count as handled, after the last retry if there are any.
    Compat {
        /// Whether changes that the function finishes while the host stops count as handled (drain mode).
        /// Otherwise they are delivered again.
        drain: bool,
    },
}

/// Errors of building a trigger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The resulting options are invalid, or a part is missing.
    #[error(transparent)]
    Build(#[from] BuildError),
}

type Call = Arc<dyn Fn(Batch) -> BoxFuture<Result<(), HandlerError>> + Send + Sync>;
type Tune = Box<dyn FnOnce(Options) -> Options + Send>;

/// Builds a [`TriggerHost`].
pub struct TriggerBuilder {
    settings: TriggerSettings,
    processor: ProcessorBuilder,
    mode: Mode,
    function: Option<(String, Call)>,
    letters: Option<Arc<dyn DeadLetters>>,
    tune: Option<Tune>,
}

impl TriggerBuilder {
    /// Sets the monitored container; [`TriggerHost::connect`] has set it already.
    #[must_use]
    pub fn source(mut self, source: impl FeedSource) -> TriggerBuilder {
        self.processor = self.processor.source(source);
        self
    }

    /// Sets the lease store; [`TriggerHost::connect`] has set it already.
    #[must_use]
    pub fn leases(mut self, store: impl LeaseStore) -> TriggerBuilder {
        self.processor = self.processor.leases(store);
        self
    }

    /// Sets the function and its name. All instances of one function, and only those, share a name.
    #[must_use]
    pub fn function<F, Work>(mut self, name: impl Into<String>, function: F) -> TriggerBuilder
    where
        F: Fn(Batch) -> Work + Send + Sync + 'static,
        Work: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let call: Call = Arc::new(move |batch| Box::pin(function(batch)));
        self.function = Some((name.into(), call));
        self
    }

    /// Sets what happens to changes whose function failed; by default nothing is lost.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> TriggerBuilder {
        self.mode = mode;
        self
    }

    /// Sets the sink for changes that fail repeatedly, in [`Mode::Safe`].
    #[must_use]
    pub fn dead_letters(mut self, letters: impl DeadLetters) -> TriggerBuilder {
        self.letters = Some(Arc::new(letters));
        self
    }

    /// Adjusts the processor's options at the end: event listeners, lanes, timeouts.
    #[must_use]
    pub fn tune(
        mut self,
        tune: impl FnOnce(Options) -> Options + Send + 'static,
    ) -> TriggerBuilder {
        self.tune = Some(Box::new(tune));
        self
    }

    /// Sets the source of time, randomness and tasks; defaults to the system.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> TriggerBuilder {
        self.processor = self.processor.runtime(runtime);
        self
    }

    /// Builds the trigger.
    ///
    /// # Errors
    /// Fails if a part is missing or a setting is invalid.
    pub fn build(self) -> Result<TriggerHost, TriggerError> {
        let TriggerBuilder { settings, processor, mode, function, letters, tune } = self;
        settings.check()?;
        let (function, call) = function.ok_or(BuildError::Missing("a function"))?;
        let mut options = settings.options();
        options.failure = match mode {
            Mode::Safe => safe_policy(settings.retry, letters.is_some()),
            Mode::Compat { drain } => {
                Arc::new(CompatPolicy { retry: settings.retry, drains: drain })
            }
        };
        options.dead_letters = letters;
        if let Some(tune) = tune {
            options = tune(options);
        }
        let processor = processor.options(options).handler(Invocations { call, mode }).build()?;
        Ok(TriggerHost { processor, function, settings })
    }
}

/// A configured trigger; [`TriggerHost::start`] runs it. See the module documentation.
#[derive(Clone)]
pub struct TriggerHost {
    processor: Processor,
    function: String,
    settings: TriggerSettings,
}

impl TriggerHost {
    /// Returns a builder for containers that are open already.
    #[must_use]
    pub fn builder(settings: TriggerSettings) -> TriggerBuilder {
        TriggerBuilder {
            settings,
            processor: Processor::builder(),
            mode: Mode::default(),
            function: None,
            letters: None,
            tune: None,
        }
    }

    /// Opens the containers named in the settings and returns a builder. Creates the lease container and its
    /// database if the settings say so.
    ///
    /// # Errors
    /// Fails if an app setting is missing, a connection string is invalid, or the lease container cannot be used.
    pub async fn connect(
        settings: TriggerSettings,
        app: &AppSettings,
    ) -> Result<TriggerBuilder, ConnectError> {
        let runtime = Runtime::system();
        let (feed, leases) = connect::open(&settings, app, &runtime).await?;
        Ok(TriggerHost::builder(settings).source(feed).leases(leases).runtime(runtime))
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &TriggerSettings {
        &self.settings
    }

    /// Starts to call the function. May be called again after a stop.
    ///
    /// Every start is a new instance, so leases of a crashed instance are acquired only after they expire. First
    /// reports every host that uses the same leases for another function: [`Event::UnknownMember`].
    /// # Errors
    /// Fails like [`Processor::start`].
    pub async fn start(&self) -> Result<Running, StartError> {
        let unit = self.processor.unit().await?;
        // If listing fails, starting reports the reason.
        if let Ok(snapshot) = unit.look().await {
            let options = self.processor.options();
            for (name, leases) in other_functions(&snapshot, &self.function, options.expiration) {
                options.events.tell(Event::UnknownMember { name, leases });
            }
        }
        self.processor.named(self.instance()).start().await
    }

    /// Returns a scaler, which measures how many instances are needed.
    ///
    /// # Errors
    /// Fails if the monitored container cannot be read.
    pub async fn scaler(&self) -> Result<Scaler, SourceError> {
        let unit = self.processor.unit().await?;
        let options = self.processor.options();
        Ok(Scaler::new(self.processor.source().clone(), unit, options.items_max))
    }

    /// Returns a unique instance name that begins with the function's name.
    fn instance(&self) -> String {
        let random = self.processor.runtime().random_u128();
        let hex = format!("{random:032x}");
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        format!("{}.{a}-{b}-{c}-{d}-{e}", self.function)
    }
}

impl std::fmt::Debug for TriggerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TriggerHost({} on {})", self.function, self.settings.container)
    }
}

/// Returns the live hosts that own these leases but run another function, with their numbers of leases.
fn other_functions(
    snapshot: &Snapshot,
    function: &str,
    expiration: Duration,
) -> BTreeMap<String, usize> {
    let copies = format!("{function}.");
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for member in snapshot.members.iter().filter(|member| !member.draining) {
        found.insert(member.host.name.clone(), member.owned);
    }
    let no_members = found.is_empty();
    for info in snapshot.leases.iter().filter(|_| no_members) {
        let alive = info.age.is_none_or(|age| age < expiration);
        if let Some(owner) = info.lease.owner.as_ref().filter(|_| alive) {
            *found.entry(owner.clone()).or_default() += 1;
        }
    }
    found.retain(|name, _| !name.starts_with(&copies));
    found
}

/// Creates an invocation for every lease.
struct Invocations {
    call: Call,
    mode: Mode,
}

impl HandlerFactory for Invocations {
    type Handler = Invocation;

    fn create(&self, _: &LeaseContext) -> Invocation {
        Invocation { call: self.call.clone(), mode: self.mode }
    }
}

/// Calls the function for one lease.
struct Invocation {
    call: Call,
    mode: Mode,
}

impl Handler for Invocation {
    async fn process(&mut self, batch: Batch) -> Result<Ack, HandlerError> {
        let context = batch.context.clone();
        let outcome = (self.call)(batch).await;
        let Mode::Compat { drain } = self.mode else { return outcome.map(|()| Ack::Done) };
        match outcome {
            Ok(()) if context.is_stopping() && !drain => Err(HandlerError::new(
                "the function ended after its host was asked to stop; this does not count without drain mode",
            )),
            Ok(()) => Ok(Ack::Done),
            // Azure's trigger knows no blamed changes: if the function throws, the whole batch is retried.
            Err(error) => Err(error.without_blame()),
        }
    }
}
