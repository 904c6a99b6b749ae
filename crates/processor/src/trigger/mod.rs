//! A trigger as Azure Functions has it: settings in, a function called with changes.
//!
//! ```text
//! function.json ─► TriggerSettings ─► Options ─► Processor ─► your function
//!                                   + what a mode does about failures
//! ```
//!
//! It is a thin layer: the processor below is the same that everybody uses, with leases as the original writes
//! them, so that both can share the work or take over from each other. Two modes differ in what becomes of
//! changes whose function failed:
//!
//! * [`Mode::Compat`] does what the original does, literally. Changes whose function threw count as handled, at
//!   once or behind the last retry, and are lost; [`Event::Skipped`] says so.
//! * [`Mode::Safe`] never passes a change over: it comes again, or is put away where it can be found.
//!
//! It decides nothing about leases, positions or order; and it never stores a position by itself.

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
use retry::{Literally, safely};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// What becomes of changes whose function failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They come again for ever; with somewhere to put them, those to blame are put away behind the last retry.
    /// What was handled counts, also while the host stops.
    #[default]
    Safe,
    /// As in the original: they count as handled, behind the last retry if there are any.
    Compat {
        /// Whether what the function finishes while the host stops counts as handled. Without drain mode it
        /// does not, and comes again.
        drain: bool,
    },
}

/// Why a trigger cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// Its settings.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// What they were made into.
    #[error(transparent)]
    Build(#[from] BuildError),
}

type Call = Arc<dyn Fn(Batch) -> BoxFuture<Result<(), HandlerError>> + Send + Sync>;
type Tune = Box<dyn FnOnce(Options) -> Options + Send>;

/// Puts a trigger together.
pub struct TriggerBuilder {
    settings: TriggerSettings,
    processor: ProcessorBuilder,
    mode: Mode,
    function: Option<(String, Call)>,
    letters: Option<Arc<dyn DeadLetters>>,
    tune: Option<Tune>,
}

impl TriggerBuilder {
    /// The monitored container; [`TriggerHost::connect`] gives it already.
    #[must_use]
    pub fn source(mut self, source: impl FeedSource) -> TriggerBuilder {
        self.processor = self.processor.source(source);
        self
    }

    /// Where leases are kept; [`TriggerHost::connect`] gives it already.
    #[must_use]
    pub fn leases(mut self, store: impl LeaseStore) -> TriggerBuilder {
        self.processor = self.processor.leases(store);
        self
    }

    /// The function, and its name: copies of one function, and only those, have the same.
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

    /// What becomes of changes whose function failed; nothing is lost by default.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> TriggerBuilder {
        self.mode = mode;
        self
    }

    /// Where changes go that fail again and again, in [`Mode::Safe`].
    #[must_use]
    pub fn dead_letters(mut self, letters: impl DeadLetters) -> TriggerBuilder {
        self.letters = Some(Arc::new(letters));
        self
    }

    /// A last word on the options of the processor: who listens to events, lanes, timeouts.
    #[must_use]
    pub fn tune(
        mut self,
        tune: impl FnOnce(Options) -> Options + Send + 'static,
    ) -> TriggerBuilder {
        self.tune = Some(Box::new(tune));
        self
    }

    /// Where it takes time, chance and tasks from; the system by default.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> TriggerBuilder {
        self.processor = self.processor.runtime(runtime);
        self
    }

    /// The trigger.
    ///
    /// # Errors
    /// When something is missing, or a setting cannot be meant.
    pub fn build(self) -> Result<TriggerHost, TriggerError> {
        let TriggerBuilder { settings, processor, mode, function, letters, tune } = self;
        settings.check()?;
        let (function, call) = function.ok_or(BuildError::Missing("a function"))?;
        let mut options = settings.options();
        options.failure = match mode {
            Mode::Safe => safely(settings.retry, letters.is_some()),
            Mode::Compat { drain } => Arc::new(Literally { retry: settings.retry, drains: drain }),
        };
        options.dead_letters = letters;
        if let Some(tune) = tune {
            options = tune(options);
        }
        let processor = processor.options(options).handler(Invocations { call, mode }).build()?;
        Ok(TriggerHost { processor, function, settings })
    }
}

/// A trigger that is not running yet. See the head of this module.
#[derive(Clone)]
pub struct TriggerHost {
    processor: Processor,
    function: String,
    settings: TriggerSettings,
}

impl TriggerHost {
    /// Begins to put one together, of containers that are open already.
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

    /// Begins to put one together, of the containers the settings name. The lease container, and its database,
    /// are made if the settings say so.
    ///
    /// # Errors
    /// When an app setting is missing, a connection string is none, or the lease container cannot be used.
    pub async fn connect(
        settings: TriggerSettings,
        app: &AppSettings,
    ) -> Result<TriggerBuilder, ConnectError> {
        let runtime = Runtime::system();
        let (feed, leases) = connect::open(&settings, app, &runtime).await?;
        Ok(TriggerHost::builder(settings).source(feed).leases(leases).runtime(runtime))
    }

    /// What it was told.
    #[must_use]
    pub fn settings(&self) -> &TriggerSettings {
        &self.settings
    }

    /// Begins to call the function. Every start is an instance of its own, so that leases of one that vanished
    /// are taken when they have expired. May be called again after a stop. Whoever else uses the same leases
    /// and is no copy of this function is told of first: [`Event::UnknownMember`].
    ///
    /// # Errors
    /// As [`Processor::start`].
    pub async fn start(&self) -> Result<Running, StartError> {
        let unit = self.processor.unit().await?;
        // Whoever cannot look finds out why by starting.
        if let Ok(snapshot) = unit.look().await {
            let options = self.processor.options();
            for (name, leases) in strangers(&snapshot, &self.function, options.expiration) {
                options.events.tell(Event::UnknownMember { name, leases });
            }
        }
        self.processor.named(self.instance()).start().await
    }

    /// How many instances it needs.
    ///
    /// # Errors
    /// When the monitored container cannot be read.
    pub async fn scaler(&self) -> Result<Scaler, SourceError> {
        let unit = self.processor.unit().await?;
        let options = self.processor.options();
        Ok(Scaler::new(self.processor.source().clone(), unit, options.items_max))
    }

    /// A name no instance had before; it begins with that of the function.
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

/// Who has these leases, is alive, and is no copy of this function; with how many leases.
fn strangers(snapshot: &Snapshot, function: &str, expiration: Duration) -> BTreeMap<String, usize> {
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

/// Makes an invocation for every lease.
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

/// A function at work on one lease.
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
                "the function ended after its host was asked to stop; without drain mode that does not count",
            )),
            Ok(()) => Ok(Ack::Done),
            // A function throws or it does not: the original knows of no blame, and runs the whole batch again.
            Err(error) => Err(error.without_blame()),
        }
    }
}
