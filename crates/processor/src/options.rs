//! How a processor behaves. Every option names what the originals call it.

use crate::balance::{Balancer, Cooperative, EqualLeases};
use crate::checkpoint::Checkpoint;
use crate::dead_letter::DeadLetters;
use crate::event::{EventSink, Events};
use crate::failure::{FailurePolicy, RetryForever};
use crate::lease::{Flavour, Start};
use crate::member::Bounds;
use headwater_model::{FeedMode, KeyRange};
use std::sync::Arc;
use std::time::Duration;

/// With whom leases are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Only with hosts of this library: one heartbeat per host instead of one per lease, orderly
    /// handover, operators can pause and seek.
    Native,
    /// With .NET or Java hosts: their documents, their intervals, their way of sharing.
    Interop(Flavour),
}

/// See the head of this file. Times and counts that make no sense are refused when a processor is built.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// With whom leases are shared.
    pub profile: Profile,
    /// What ids of leases start with; several processors on one container differ in it (`LeasePrefix`,
    /// `processorName`).
    pub processor_name: String,
    /// What this host is called; by default it is made up (`WithHostName`, `WithInstanceName`,
    /// `hostName`).
    pub host_name: Option<String>,
    /// The whole namespace of ids, for leases made under another endpoint.
    pub namespace: Option<String>,
    /// Which feed.
    pub mode: FeedMode,
    /// Where to begin if there are no leases yet (`StartFromBeginning`, `StartTime`,
    /// `RequestContinuation`). Otherwise the leases say.
    pub start: Start,
    /// Only these keys; everything by default.
    pub scope: KeyRange,
    /// How often a lease is renewed where every lease is (`LeaseRenewInterval`), and how often a host
    /// says that it is alive where that is enough.
    pub renew_interval: Duration,
    /// How often to look whether leases are free or unequally shared (`LeaseAcquireInterval`).
    pub acquire_interval: Duration,
    /// How long a host may be silent before others take its leases (`LeaseExpirationInterval`).
    pub expiration: Duration,
    /// How long to wait when nothing is new and the feed cannot wait itself (`FeedPollDelay`).
    pub poll_delay: Duration,
    /// How long the feed may wait for a change, where it can; zero asks every poll delay instead.
    pub feed_wait: Duration,
    /// How many changes a page has at most (`MaxItemCount`, `WithMaxItems`).
    pub items_max: Option<u32>,
    /// How many changes a handler is given at once at most.
    pub batch_items_max: usize,
    /// How many bytes a handler is given at once at most, unless one transaction has more.
    pub batch_bytes_max: usize,
    /// How long to gather changes before a batch that is not full is delivered.
    pub batch_wait: Duration,
    /// How many pages are read ahead of those that handlers work on: with one lane no more than these
    /// and one are in memory, unless changes are gathered or acknowledged later.
    pub prefetch_pages: usize,
    /// What reading the feed may cost in a second, in request units, all leases of this host together
    /// (`feedPollThroughputControlConfig`); as much as it does by default.
    pub charge_per_second_max: Option<f64>,
    /// How many changes may be delivered and not handled before reading stops.
    pub unhandled_max: usize,
    /// How many handlers work on one lease, each on keys of its own; order per key is kept.
    pub lanes: usize,
    /// In how many leases a range of the service is divided when leases are first made, so that more
    /// hosts than ranges find work. Not in containers shared with the originals.
    pub leases_per_range: usize,
    /// When positions are stored (`CheckpointFrequency`).
    pub checkpoint: Checkpoint,
    /// The fewest and the most leases of this host (`MinPartitionCount`, `MaxPartitionCount`).
    pub bounds: Bounds,
    /// Hosts of a higher priority are filled first.
    pub priority: i32,
    /// How much this host can carry, relative to the others.
    pub weight: f64,
    /// How long a batch may take to finish when a lease is handed over.
    pub handover_timeout: Duration,
    /// How long everything may take to finish when the host stops.
    pub drain_timeout: Duration,
    /// How long a handler may take for a batch; for ever by default.
    pub handler_timeout: Option<Duration>,
    /// How long a lease with changes waiting may make no progress before [`crate::Event::Stalled`].
    pub stall_after: Duration,
    /// How often leases are checked for gaps and overlaps (`leaseVerificationEnabledOnRestart`).
    pub audit_interval: Duration,
    /// How long somebody may take to set up leases before others do it (`lock_time`).
    pub lock_time: Duration,
    /// How long a lease whose feed cannot be read is kept.
    pub feed_unreachable_after: Duration,
    /// How long one request to the lease container may take.
    pub store_timeout: Duration,
    /// How long one request to the feed may take, beyond waiting (`ChangeFeedTimeout`).
    pub feed_timeout: Duration,
    /// Whether to take over leases under our own name at once; only safe if names are unique.
    pub adopt_own_name: bool,
    /// Throws existing leases away first (`DiscardExistingLeases`). Refused while other hosts work.
    pub discard_existing: bool,
    /// Who should work on what.
    pub balancer: Arc<dyn Balancer>,
    /// What happens when a handler fails.
    pub failure: Arc<dyn FailurePolicy>,
    /// Where changes go that could not be handled.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(crate) events: Events,
    #[cfg(test)]
    pub(crate) sabotage: Option<crate::proof::Sabotage>,
}

impl Options {
    /// For hosts of this library only.
    #[must_use]
    pub fn native(processor_name: impl Into<String>) -> Options {
        Options {
            profile: Profile::Native,
            processor_name: processor_name.into(),
            host_name: None,
            namespace: None,
            mode: FeedMode::LatestVersion,
            start: Start::Now,
            scope: KeyRange::full(),
            renew_interval: Duration::from_secs(3),
            acquire_interval: Duration::from_secs(5),
            expiration: Duration::from_secs(15),
            poll_delay: Duration::from_secs(5),
            feed_wait: Duration::from_secs(20),
            items_max: None,
            batch_items_max: usize::MAX,
            batch_bytes_max: usize::MAX,
            batch_wait: Duration::ZERO,
            prefetch_pages: 2,
            charge_per_second_max: None,
            unhandled_max: 10_000,
            lanes: 1,
            leases_per_range: 1,
            checkpoint: Checkpoint::EveryBatch,
            bounds: Bounds::default(),
            priority: 0,
            weight: 1.0,
            handover_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            handler_timeout: None,
            stall_after: Duration::from_secs(60),
            audit_interval: Duration::from_secs(60),
            lock_time: Duration::from_secs(30),
            feed_unreachable_after: Duration::from_secs(120),
            store_timeout: Duration::from_secs(5),
            feed_timeout: Duration::from_secs(65),
            adopt_own_name: false,
            discard_existing: false,
            balancer: Arc::new(Cooperative),
            failure: Arc::new(RetryForever::default()),
            dead_letters: None,
            events: Events::default(),
            #[cfg(test)]
            sabotage: None,
        }
    }

    /// For containers shared with .NET or Java hosts, with their intervals.
    #[must_use]
    pub fn interop(flavour: Flavour, processor_name: impl Into<String>) -> Options {
        Options {
            profile: Profile::Interop(flavour),
            renew_interval: Duration::from_secs(17),
            acquire_interval: Duration::from_secs(13),
            expiration: Duration::from_secs(60),
            balancer: Arc::new(EqualLeases::default()),
            ..Options::native(processor_name)
        }
    }

    /// Adds somebody who listens to events (`WithErrorNotification`, `WithHealthMonitor`).
    #[must_use]
    pub fn on_event(mut self, sink: impl EventSink) -> Options {
        self.events.add(Arc::new(sink));
        self
    }

    /// The form leases are written in.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        match self.profile {
            Profile::Native => Flavour::DotNetV3,
            Profile::Interop(flavour) => flavour,
        }
    }

    pub(crate) fn is_native(&self) -> bool {
        self.profile == Profile::Native
    }

    /// What makes no sense, and what to do about it.
    pub(crate) fn objection(&self) -> Option<String> {
        let zero = |name: &str, value: usize| {
            (value == 0).then(|| format!("{name} is zero; use at least 1"))
        };
        let mut found = [
            zero("batch_items_max", self.batch_items_max),
            zero("batch_bytes_max", self.batch_bytes_max),
            zero("prefetch_pages", self.prefetch_pages),
            zero("unhandled_max", self.unhandled_max),
            zero("lanes", self.lanes),
            zero("leases_per_range", self.leases_per_range),
            (self.renew_interval.is_zero() || self.acquire_interval.is_zero())
                .then(|| "an interval is zero; give it some time".to_owned()),
            (self.expiration < self.renew_interval * 3).then(|| {
                "the expiration is less than three renewals, so that one lost request costs a lease; \
                 make it longer, or renew more often"
                    .to_owned()
            }),
            self.charge_per_second_max
                .filter(|most| !most.is_finite() || *most <= 0.0)
                .map(|_| "what reading may cost is not a positive number".to_owned()),
            (!self.weight.is_finite() || self.weight <= 0.0)
                .then(|| "the weight is not a positive number".to_owned()),
            (self.bounds.max > 0 && self.bounds.min > self.bounds.max)
                .then(|| "fewest leases are more than most leases".to_owned()),
            (self.lanes > 256).then(|| "more than 256 lanes".to_owned()),
            (!self.is_native() && self.leases_per_range > 1)
                .then(|| "the originals know one lease per range only; use the native profile".to_owned()),
            (self.is_native() && self.processor_name.is_empty())
                .then(|| "a processor needs a name; leases are found by it".to_owned()),
        ];
        found.iter_mut().find_map(Option::take)
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Options({:?}, {:?})", self.profile, self.processor_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_a_remedy() {
        assert_eq!(Options::native("p").objection(), None);
        assert_eq!(Options::interop(Flavour::JavaPk, "").objection(), None);
        for odd in [
            Options::native(""),
            Options { expiration: Duration::from_secs(8), ..Options::native("p") },
            Options { lanes: 0, ..Options::native("p") },
            Options { charge_per_second_max: Some(0.0), ..Options::native("p") },
            Options { weight: f64::NAN, ..Options::native("p") },
            Options { leases_per_range: 2, ..Options::interop(Flavour::DotNetV3, "p") },
            Options { bounds: Bounds { min: 3, max: 2 }, ..Options::native("p") },
        ] {
            assert!(odd.objection().is_some(), "{odd:?}");
        }
    }
}
