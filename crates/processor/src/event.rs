//! What a processor has to tell: to whoever listens, and to `tracing`.

use crate::handler::CloseReason;
use crate::lag::Lag;
use crate::position::Position;
use headwater_model::KeyRange;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something that happened. Losing a lease is ordinary; what needs somebody is [`Event::is_critical`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A lease was taken; work on it begins.
    Acquired {
        /// Which.
        lease: String,
        /// Under which epoch.
        epoch: u64,
        /// From where.
        from: Option<Position>,
    },
    /// Work on a lease ended.
    Closed {
        /// Which.
        lease: String,
        /// Why.
        reason: CloseReason,
    },
    /// A page was read, also one without changes.
    Read {
        /// Which.
        lease: String,
        /// How many changes are on it.
        changes: usize,
        /// What it cost, in the service's units.
        charge: f64,
    },
    /// The feed asked for patience.
    Throttled {
        /// Which.
        lease: String,
        /// How long it is left alone.
        wait: Duration,
    },
    /// A handler succeeded.
    Handled {
        /// Which.
        lease: String,
        /// With how many changes.
        changes: usize,
        /// How long it took.
        took: Duration,
    },
    /// How far behind a lease is; told at most once a second, when it changed.
    Behind {
        /// Which.
        lease: String,
        /// How far.
        lag: Lag,
    },
    /// A position was stored.
    Checkpointed {
        /// Which.
        lease: String,
        /// Up to where.
        position: Option<Position>,
    },
    /// A handler failed.
    HandlerFailed {
        /// Which.
        lease: String,
        /// How often these changes were tried.
        attempt: u32,
        /// What it said.
        error: String,
    },
    /// A change was put away.
    DeadLettered {
        /// Which.
        lease: String,
        /// What the handler said about it.
        error: String,
    },
    /// Changes that failed were passed over, because a policy is to do so: they are lost.
    Skipped {
        /// Which.
        lease: String,
        /// How many.
        changes: usize,
        /// What the handler said about them.
        error: String,
    },
    /// The feed could not be read, for a while now.
    FeedTrouble {
        /// Which.
        lease: String,
        /// What it said.
        error: String,
        /// For how long.
        since: Duration,
    },
    /// The lease container could not be read or written.
    StoreTrouble {
        /// What it said.
        error: String,
    },
    /// A range was split; these leases go on.
    Split {
        /// The lease that is gone.
        lease: String,
        /// Its children.
        children: Vec<String>,
    },
    /// Work on a lease stopped for everybody, until somebody has looked.
    Halted {
        /// Which.
        lease: String,
        /// Why.
        why: String,
    },
    /// A lease has changes waiting and does not get on.
    Stalled {
        /// Which.
        lease: String,
        /// For how long.
        since: Duration,
        /// Why, as far as that can be seen.
        cause: StallCause,
    },
    /// A handler has kept its thread for so long without giving way: whatever else runs there stands
    /// still. Let it wait asynchronously, or give handlers threads of their own
    /// ([`ProcessorBuilder::handler_threads`](crate::ProcessorBuilder::handler_threads)).
    HandlerBlocks {
        /// Which.
        lease: String,
        /// For how long.
        since: Duration,
    },
    /// Nobody covered these keys; somebody does now.
    CoverageGap {
        /// Which keys.
        range: KeyRange,
    },
    /// Two leases share keys, and it cannot be told who is right.
    CoverageOverlap {
        /// One.
        one: String,
        /// The other.
        other: String,
    },
    /// Of two documents for one range, one was removed.
    DuplicateLease {
        /// The one that was removed.
        document: String,
    },
    /// Another process has the same host name and is alive.
    DuplicateHostName {
        /// The name.
        name: String,
    },
    /// Somebody who is not a copy of this function has the same lease container and the same prefix: each of
    /// the two is given a part of the changes only. Harmless if it is the same function under another name.
    UnknownMember {
        /// What it calls itself.
        name: String,
        /// How many leases it has.
        leases: usize,
    },
    /// Leases of this processor on this container were made through another endpoint, and are not used: work
    /// begins anew. If it should go on there, name their namespace
    /// ([`Options::namespace`](crate::Options::namespace)).
    SuspiciousNamespace {
        /// Theirs.
        found: String,
    },
    /// A balancer planned something it may not.
    PlanRefused {
        /// What is wrong with it.
        why: String,
    },
    /// The monitored container is gone.
    FeedGone {
        /// What is known about it.
        why: String,
    },
    /// The lease container is gone.
    LeaseStoreGone {
        /// What is known about it.
        why: String,
    },
}

/// Why a lease does not get on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallCause {
    /// A handler keeps its thread and does not give way.
    Blocked,
    /// Handlers fail; what the last one said.
    Failing(String),
    /// Changes were delivered, and nobody has said yet that they are handled.
    Unanswered,
}

impl Event {
    /// Whether somebody should look.
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

    /// Whether it tells of changes that were not handled, or of an obstacle to handling them, while the
    /// processor continues by itself.
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

/// Listens to events. Must be quick, and cannot fail.
pub trait EventSink: Send + Sync + 'static {
    /// Something happened.
    fn on(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> EventSink for F {
    fn on(&self, event: &Event) {
        self(event);
    }
}

/// Whoever listens, and the log.
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
