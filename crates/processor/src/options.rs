//! Options of a processor. Each names its counterpart in the .NET and Java libraries.

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

/// Which hosts share the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Only hosts of this library: one heartbeat per host instead of one per lease, orderly handover, and
    /// operators can pause and seek.
    Native,
    /// Also .NET or Java hosts: their documents, their intervals, their balancing.
    Interop(Flavour),
}

/// Options of a processor. Invalid times and counts are refused when the processor is built.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// Which hosts share the leases.
    pub profile: Profile,
    /// The prefix of lease ids; distinguishes several processors on one container (`LeasePrefix`,
    /// `processorName`).
    pub processor_name: String,
    /// The host name; random by default (`WithHostName`, `WithInstanceName`, `hostName`).
    pub host_name: Option<String>,
    /// The whole namespace of lease ids, for leases created under another endpoint.
    pub namespace: Option<String>,
    /// The feed mode: latest versions, or all versions and deletes.
    pub mode: FeedMode,
    /// Where to begin if there are no leases yet (`StartFromBeginning`, `StartTime`,
    /// `RequestContinuation`). Existing leases keep their positions.
    pub start: Start,
    /// The keys to process; all by default.
    pub scope: KeyRange,
    /// Interval of heartbeats in the native profile, and of lease renewals otherwise (`LeaseRenewInterval`).
    pub renew_interval: Duration,
    /// Interval of listing the leases and balancing them (`LeaseAcquireInterval`).
    pub acquire_interval: Duration,
    /// How long a host may be silent before others acquire its leases (`LeaseExpirationInterval`).
    pub expiration: Duration,
    /// Pause after an empty page if the feed does not support long polling (`FeedPollDelay`).
    pub poll_delay: Duration,
    /// How long a long poll may wait for a change; zero polls after every `poll_delay` instead.
    pub feed_wait: Duration,
    /// Largest number of changes per page (`MaxItemCount`, `WithMaxItems`).
    pub items_max: Option<u32>,
    /// Largest number of changes per batch.
    pub batch_items_max: usize,
    /// Largest number of bytes per batch, exceeded only by a larger transaction.
    pub batch_bytes_max: usize,
    /// How long to gather changes before a partial batch is delivered.
    pub batch_wait: Duration,
    /// How many pages are read ahead of the handlers. With one lane at most one more page is in memory, unless
    /// changes are gathered or acknowledged later.
    pub prefetch_pages: usize,
    /// Limit on the request charge per second for reading the feed, over all leases of this host
    /// (`feedPollThroughputControlConfig`); unlimited by default.
    pub charge_per_second_max: Option<f64>,
    /// How many delivered changes may be unhandled before reading stops.
    pub unhandled_max: usize,
    /// How many handlers process one lease in parallel, each with its own keys; order per key is kept.
    pub lanes: usize,
    /// Into how many leases each physical range is divided at creation, so that there can be more hosts than ranges.
    /// Only for the native profile.
    pub leases_per_range: usize,
    /// When positions are stored (`CheckpointFrequency`).
    pub checkpoint: Checkpoint,
    /// The minimum and maximum number of leases of this host (`MinPartitionCount`, `MaxPartitionCount`).
    pub bounds: Bounds,
    /// Hosts with a higher priority are filled first.
    pub priority: i32,
    /// The capacity of this host, relative to other hosts.
    pub weight: f64,
    /// How long running batches may take to finish when a lease is handed over.
    pub handover_timeout: Duration,
    /// How long running batches may take to finish when the host stops.
    pub drain_timeout: Duration,
    /// How long a handler may take for a batch; unlimited by default.
    pub handler_timeout: Option<Duration>,
    /// How long a lease with changes waiting may make no progress before [`crate::Event::Stalled`].
    pub stall_after: Duration,
    /// How often leases are checked for gaps and overlaps (`leaseVerificationEnabledOnRestart`).
    pub audit_interval: Duration,
    /// How long another host may take to create leases before this one does (`lock_time`).
    pub lock_time: Duration,
    /// How long a lease is kept while its feed cannot be read.
    pub feed_unreachable_after: Duration,
    /// Timeout of one request to the lease container.
    pub store_timeout: Duration,
    /// Timeout of one request to the feed, not counting long polling (`ChangeFeedTimeout`).
    pub feed_timeout: Duration,
    /// Whether to acquire leases under this host's name at once; safe only if host names are unique.
    pub adopt_own_name: bool,
    /// Deletes existing leases first (`DiscardExistingLeases`). Refused while other hosts work.
    pub discard_existing: bool,
    /// The balancing strategy.
    pub balancer: Arc<dyn Balancer>,
    /// The failure policy for handlers.
    pub failure: Arc<dyn FailurePolicy>,
    /// The sink for changes that could not be handled.
    pub dead_letters: Option<Arc<dyn DeadLetters>>,
    pub(crate) events: Events,
    #[cfg(test)]
    pub(crate) sabotage: Option<crate::proof::Sabotage>,
}

impl Options {
    /// Returns options for hosts of this library only.
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

    /// Returns options for containers shared with .NET or Java hosts, with the intervals of those.
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

    /// Adds an event listener (`WithErrorNotification`, `WithHealthMonitor`).
    #[must_use]
    pub fn on_event(mut self, sink: impl EventSink) -> Options {
        self.events.add(Arc::new(sink));
        self
    }

    /// Returns the document format of the leases.
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

    /// Returns why the options are invalid, with a remedy.
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
                .then(|| "an interval is zero; set a positive duration".to_owned()),
            (self.expiration < self.renew_interval * 3).then(|| {
                "the expiration is less than three renewal intervals, so that one lost request costs a \
                 lease; raise it, or renew more often"
                    .to_owned()
            }),
            self.charge_per_second_max
                .filter(|most| !most.is_finite() || *most <= 0.0)
                .map(|_| "charge_per_second_max is not a positive number".to_owned()),
            (!self.weight.is_finite() || self.weight <= 0.0)
                .then(|| "the weight is not a positive number".to_owned()),
            (self.bounds.max > 0 && self.bounds.min > self.bounds.max)
                .then(|| "bounds.min exceeds bounds.max; lower it".to_owned()),
                (self.lanes > 256).then(|| "lanes exceeds 256; use fewer".to_owned()),
            (!self.is_native() && self.leases_per_range > 1)
                .then(|| "leases_per_range exceeds 1; use the native profile, or 1".to_owned()),
            (self.is_native() && self.processor_name.is_empty())
                .then(|| "the processor name is empty; set one, lease ids start with it".to_owned()),
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
