//! Events of a processor, for listeners and for `tracing`. Never changes what the processor does.

use crate::handler::CloseReason;
use crate::lag::Lag;
use crate::position::Position;
use headwater_model::KeyRange;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An event of a running processor. Losing a lease is normal; see [`Event::is_critical`] for what is not.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A lease was acquired; work on it begins.
    Acquired {
        /// The lease.
        lease: String,
        /// Its new epoch.
        epoch: u64,
        /// The position it continues from.
        from: Option<Position>,
    },
    /// Work on a lease ended.
    Closed {
        /// The lease.
        lease: String,
        /// Why it ended.
        reason: CloseReason,
    },
    /// A page was read, possibly without changes.
    Read {
        /// The lease.
        lease: String,
        /// Number of changes on the page.
        changes: usize,
        /// The request charge.
        charge: f64,
    },
    /// The service throttled a read.
    Throttled {
        /// The lease.
        lease: String,
        /// How long reading pauses.
        wait: Duration,
    },
    /// A handler succeeded.
    Handled {
        /// The lease.
        lease: String,
        /// Number of changes.
        changes: usize,
        /// How long it took.
        took: Duration,
    },
    /// The lag of a lease; sent when it changed, at most once a second.
    Behind {
        /// The lease.
        lease: String,
        /// Its lag.
        lag: Lag,
    },
    /// A position was stored.
    Checkpointed {
        /// The lease.
        lease: String,
        /// The stored position.
        position: Option<Position>,
    },
    /// A handler failed.
    HandlerFailed {
        /// The lease.
        lease: String,
        /// The number of this attempt, counted from 1.
        attempt: u32,
        /// Its error message.
        error: String,
    },
    /// A change was moved to the dead letters.
    DeadLettered {
        /// The lease.
        lease: String,
        /// The handler's error message.
        error: String,
    },
    /// Failed changes were skipped by the failure policy; they are lost.
    Skipped {
        /// The lease.
        lease: String,
        /// Number of changes.
        changes: usize,
        /// The handler's error message.
        error: String,
    },
    /// The feed has not been readable for a while.
    FeedTrouble {
        /// The lease.
        lease: String,
        /// The error of the last attempt.
        error: String,
        /// For how long.
        since: Duration,
    },
    /// The lease container could not be read or written.
    StoreTrouble {
        /// The error of the last attempt.
        error: String,
    },
    /// The range of a lease was split; its children continue.
    Split {
        /// The parent.
        lease: String,
        /// Its children.
        children: Vec<String>,
    },
    /// Work on a lease stopped for all hosts, until an operator resumes it.
    Halted {
        /// The lease.
        lease: String,
        /// Why.
        why: String,
    },
    /// A lease has waiting changes and makes no progress.
    Stalled {
        /// The lease.
        lease: String,
        /// For how long.
        since: Duration,
        /// The cause, as far as it is known.
        cause: StallCause,
    },
    /// A handler has blocked its thread, and everything else on that thread stands still. Use asynchronous waits,
    /// or dedicated threads ([`ProcessorBuilder::handler_threads`](crate::ProcessorBuilder::handler_threads)).
    HandlerBlocks {
        /// The lease.
        lease: String,
        /// For how long.
        since: Duration,
    },
    /// No lease covered these keys; one was created.
    CoverageGap {
        /// The keys.
        range: KeyRange,
    },
    /// Two leases share keys, and it is unknown which one is right.
    CoverageOverlap {
        /// One lease.
        one: String,
        /// The other lease.
        other: String,
    },
    /// One of two documents for the same range was removed.
    DuplicateLease {
        /// The removed document.
        document: String,
    },
    /// Another live process uses the same host name.
    DuplicateHostName {
        /// The host name.
        name: String,
    },
    /// A host that is not a copy of this function uses the same lease container and prefix: each of the two gets
    /// only a part of the changes. Harmless if it is the same function under another name.
    UnknownMember {
        /// Its host name.
        name: String,
        /// Number of leases it owns.
        leases: usize,
    },
    /// Leases of this processor and container exist under another endpoint and are not used, so that work starts
    /// again. To continue from them, set [`Options::namespace`](crate::Options::namespace).
    SuspiciousNamespace {
        /// The other namespace.
        found: String,
    },
    /// A balancer returned an invalid plan.
    PlanRefused {
        /// What is invalid.
        why: String,
    },
    /// The monitored container is gone.
    FeedGone {
        /// The error of the service.
        why: String,
    },
    /// The lease container is gone.
    LeaseStoreGone {
        /// The error of the service.
        why: String,
    },
}

/// Why a lease makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallCause {
    /// A handler blocks its thread.
    Blocked,
    /// Handlers fail, with this last error message.
    Failing(String),
    /// Changes were delivered and have not been acknowledged.
    Unanswered,
}

impl Event {
    /// Whether an operator should act on it.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        matches!(
            self,
            Event::Halted { .. }
                | Event::CoverageOverlap { .. }
                | Event::DuplicateHostName { .. }
                | Event::SuspiciousNamespace { .. }
                | Event::FeedGone { .. }
                | Event::LeaseStoreGone { .. }
        )
    }

    /// Whether it reports unhandled changes or an obstacle to handling them, while the processor continues.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            Event::HandlerFailed { .. }
                | Event::DeadLettered { .. }
                | Event::Skipped { .. }
                | Event::UnknownMember { .. }
                | Event::FeedTrouble { .. }
                | Event::StoreTrouble { .. }
                | Event::Stalled { .. }
                | Event::HandlerBlocks { .. }
                | Event::CoverageGap { .. }
        )
    }
}

/// Receives events. Must be fast, and cannot fail.
pub trait EventSink: Send + Sync + 'static {
    /// Called for every event.
    fn on(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> EventSink for F {
    fn on(&self, event: &Event) {
        self(event);
    }
}

/// The registered listeners, and the log.
#[derive(Clone, Default)]
pub(crate) struct Events(Vec<Arc<dyn EventSink>>);

impl Events {
    pub(crate) fn add(&mut self, sink: Arc<dyn EventSink>) {
        self.0.push(sink);
    }

    pub(crate) fn tell(&self, event: Event) {
        match &event {
            event if event.is_critical() => tracing::error!("{event}"),
            event if event.is_warning() => tracing::warn!("{event}"),
            Event::Read { .. } | Event::Handled { .. } | Event::Behind { .. } => {
                tracing::trace!("{event}");
            }
            event => tracing::debug!("{event}"),
        }
        for sink in &self.0 {
            sink.on(&event);
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({})", self.0.len())
    }
}
