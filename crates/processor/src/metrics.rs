//! OpenTelemetry metrics of a processor.
//!
//! ```text
//! headwater.processor.read.changes         changes read from the feed
//! headwater.processor.read.charge          request charge of those reads
//! headwater.processor.throttled            throttled reads of the feed
//! headwater.processor.handled.changes      changes handled successfully
//! headwater.processor.handler.duration     duration of successful handler calls in seconds
//! headwater.processor.handler.failures     failed handler calls
//! headwater.processor.dead_letters         changes moved to the dead letters
//! headwater.processor.skipped.changes      changes skipped, and lost
//! headwater.processor.checkpoints          positions stored
//! headwater.processor.leases.acquired      leases acquired
//! headwater.processor.leases.closed        leases released or lost, by reason
//! headwater.processor.troubles             warnings and errors, by kind
//! headwater.processor.leases               leases owned now
//! headwater.processor.lag.transactions     unhandled transactions, by lease
//! headwater.processor.lag.time             age of the oldest unhandled change in seconds, by lease
//!
//! headwater.processor.scale.lag            lag, as the .NET and Java libraries count it
//! headwater.processor.scale.leases         existing leases
//! headwater.processor.scale.workers        working hosts
//! headwater.processor.scale.instances      recommended number of hosts
//! ```
//!
//! The last four describe a whole processor, so one [`ScaleMetrics`] is enough for all its hosts. This module uses
//! the OpenTelemetry API only: the owner of the meter decides where metrics are exported. Unknown lags are not
//! reported, and neither are leases of other hosts.

use crate::event::{Event, EventSink};
use crate::handler::CloseReason;
use crate::lag::Lag;
use crate::scale::{Demand, Scaler};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Leases = Arc<Mutex<BTreeMap<String, Option<Lag>>>>;

/// An event sink that reports to OpenTelemetry; pass it to
/// [`Options::on_event`](crate::Options::on_event). One per host.
#[derive(Debug)]
pub struct Metrics {
    processor: KeyValue,
    read: Counter<u64>,
    charge: Counter<f64>,
    throttled: Counter<u64>,
    handled: Counter<u64>,
    took: Histogram<f64>,
    failures: Counter<u64>,
    dead_letters: Counter<u64>,
    skipped: Counter<u64>,
    checkpoints: Counter<u64>,
    acquired: Counter<u64>,
    closed: Counter<u64>,
    troubles: Counter<u64>,
    leases: Leases,
}

impl Metrics {
    /// Reports to this meter, with this processor name as an attribute.
    #[must_use]
    pub fn new(meter: &Meter, processor: impl Into<String>) -> Metrics {
        let processor = KeyValue::new("headwater.processor.name", processor.into());
        let counter = |name: &'static str, unit: &'static str, what: &'static str| {
            let name = format!("headwater.processor.{name}");
            meter.u64_counter(name).with_unit(unit).with_description(what).build()
        };
        let leases = Leases::default();
        observe(meter, &processor, &leases);
        Metrics {
            read: counter("read.changes", "{change}", "Changes read from the feed"),
            charge: meter
                .f64_counter("headwater.processor.read.charge")
                .with_unit("{request_unit}")
                .with_description("Request charge of reading the feed")
                .build(),
            throttled: counter("throttled", "{answer}", "Throttled reads of the feed"),
            handled: counter("handled.changes", "{change}", "Changes handled successfully"),
            took: meter
                .f64_histogram("headwater.processor.handler.duration")
                .with_unit("s")
                .with_description("Duration of successful handler calls")
                .build(),
            failures: counter("handler.failures", "{call}", "Failed handler calls"),
            dead_letters: counter("dead_letters", "{change}", "Changes moved to the dead letters"),
            skipped: counter("skipped.changes", "{change}", "Changes skipped, and lost"),
            checkpoints: counter("checkpoints", "{write}", "Positions stored"),
            acquired: counter("leases.acquired", "{lease}", "Leases acquired"),
            closed: counter("leases.closed", "{lease}", "Leases released or lost"),
            troubles: counter("troubles", "{event}", "Warnings and errors"),
            processor,
            leases,
        }
    }

    fn add(&self, counter: &Counter<u64>, count: usize) {
        counter
            .add(u64::try_from(count).unwrap_or(u64::MAX), std::slice::from_ref(&self.processor));
    }

    fn add_kind(&self, counter: &Counter<u64>, name: &'static str, kind: &'static str) {
        counter.add(1, &[self.processor.clone(), KeyValue::new(name, kind)]);
    }

    fn trouble(&self, kind: &'static str) {
        self.add_kind(&self.troubles, "kind", kind);
    }
}

/// Registers the gauges, which report the current state at collection time.
fn observe(meter: &Meter, processor: &KeyValue, leases: &Leases) {
    let (known, name) = (leases.clone(), processor.clone());
    meter
        .u64_observable_gauge("headwater.processor.leases")
        .with_unit("{lease}")
        .with_description("Leases owned now")
        .with_callback(move |seen| {
            let count = u64::try_from(known.lock().len()).unwrap_or(u64::MAX);
            seen.observe(count, std::slice::from_ref(&name));
        })
        .build();
    let of_lease =
        |name: &KeyValue, lease: &str| [name.clone(), KeyValue::new("lease", lease.to_owned())];
    let (known, name) = (leases.clone(), processor.clone());
    meter
        .u64_observable_gauge("headwater.processor.lag.transactions")
        .with_unit("{transaction}")
        .with_description("Unhandled transactions")
        .with_callback(move |seen| {
            for (lease, lag) in &*known.lock() {
                if let Some(count) = lag.and_then(|lag| lag.transactions) {
                    seen.observe(count, &of_lease(&name, lease));
                }
            }
        })
        .build();
    let (known, name) = (leases.clone(), processor.clone());
    meter
        .f64_observable_gauge("headwater.processor.lag.time")
        .with_unit("s")
        .with_description("Age of the oldest unhandled change")
        .with_callback(move |seen| {
            for (lease, lag) in &*known.lock() {
                if let Some(time) = lag.and_then(|lag| lag.time) {
                    seen.observe(time.as_secs_f64(), &of_lease(&name, lease));
                }
            }
        })
        .build();
}

/// Reports to OpenTelemetry how many hosts a processor needs.
#[derive(Debug)]
pub struct ScaleMetrics {
    seen: Arc<Mutex<Option<Demand>>>,
}

impl ScaleMetrics {
    /// Reports to this meter, with this processor name as an attribute. Reports nothing before [`ScaleMetrics::set`].
    #[must_use]
    pub fn new(meter: &Meter, processor: impl Into<String>) -> ScaleMetrics {
        let processor = KeyValue::new("headwater.processor.name", processor.into());
        let seen: Arc<Mutex<Option<Demand>>> = Arc::default();
        type Figure = fn(&Demand) -> u64;
        let gauges: [(&str, &str, &str, Figure); 4] = [
            ("lag", "{transaction}", "Lag, as the .NET and Java libraries count it", |seen| {
                seen.legacy_lag
            }),
            ("leases", "{lease}", "Existing leases", |seen| seen.leases as u64),
            ("workers", "{host}", "Working hosts", |seen| seen.workers as u64),
            ("instances", "{host}", "Recommended number of hosts", |seen| seen.instances),
        ];
        for (name, unit, what, figure) in gauges {
            let (known, processor) = (seen.clone(), processor.clone());
            meter
                .u64_observable_gauge(format!("headwater.processor.scale.{name}"))
                .with_unit(unit)
                .with_description(what)
                .with_callback(move |gauge| {
                    if let Some(demand) = &*known.lock() {
                        gauge.observe(figure(demand), std::slice::from_ref(&processor));
                    }
                })
                .build();
        }
        ScaleMetrics { seen }
    }

    /// Sets the reported demand; with `None` nothing is reported.
    pub fn set(&self, demand: Option<Demand>) {
        *self.seen.lock() = demand;
    }

    /// Measures the demand periodically, as long as the future is polled.
    pub async fn follow(&self, scaler: &Scaler, every: Duration) {
        loop {
            let seen = scaler.measure().await;
            if let Err(error) = &seen {
                tracing::warn!(%error, "cannot measure how many hosts are needed");
            }
            self.set(seen.ok());
            scaler.runtime().sleep(every).await;
        }
    }
}

impl EventSink for Metrics {
    fn on(&self, event: &Event) {
        match event {
            Event::Acquired { lease, .. } => {
                self.add(&self.acquired, 1);
                self.leases.lock().insert(lease.clone(), None);
            }
            Event::Closed { lease, reason } => {
                self.add_kind(&self.closed, "reason", name_of(reason));
                self.leases.lock().remove(lease);
            }
            Event::Behind { lease, lag } => {
                // The event may be late, for a lease that is closed already.
                if let Some(known) = self.leases.lock().get_mut(lease) {
                    *known = Some(*lag);
                }
            }
            Event::Read { changes, charge, .. } => {
                self.add(&self.read, *changes);
                self.charge.add(charge.max(0.0), std::slice::from_ref(&self.processor));
            }
            Event::Throttled { .. } => self.add(&self.throttled, 1),
            Event::Handled { changes, took, .. } => {
                self.add(&self.handled, *changes);
                self.took.record(took.as_secs_f64(), std::slice::from_ref(&self.processor));
            }
            Event::HandlerFailed { .. } => self.add(&self.failures, 1),
            Event::DeadLettered { .. } => self.add(&self.dead_letters, 1),
            Event::Skipped { changes, .. } => self.add(&self.skipped, *changes),
            Event::Checkpointed { .. } => self.add(&self.checkpoints, 1),
            Event::FeedTrouble { .. } => self.trouble("feed"),
            Event::StoreTrouble { .. } => self.trouble("leases"),
            Event::Halted { .. } => self.trouble("halted"),
            Event::Stalled { .. } => self.trouble("stalled"),
            Event::HandlerBlocks { .. } => self.trouble("handler blocks"),
            Event::CoverageGap { .. } => self.trouble("gap"),
            Event::CoverageOverlap { .. } => self.trouble("overlap"),
            Event::DuplicateLease { .. } => self.trouble("duplicate lease"),
            Event::DuplicateHostName { .. } => self.trouble("duplicate host name"),
            Event::SuspiciousNamespace { .. } => self.trouble("suspicious namespace"),
            Event::UnknownMember { .. } => self.trouble("unknown member"),
            Event::PlanRefused { .. } => self.trouble("plan refused"),
            Event::FeedGone { .. } => self.trouble("feed gone"),
            Event::LeaseStoreGone { .. } => self.trouble("lease store gone"),
            Event::Split { .. } => {}
        }
    }
}

fn name_of(reason: &CloseReason) -> &'static str {
    match reason {
        CloseReason::Shutdown => "shutdown",
        CloseReason::Handover => "handover",
        CloseReason::LeaseLost => "lease lost",
        CloseReason::LeaseExpired => "lease expired",
        CloseReason::RangeGone => "range gone",
        CloseReason::FeedGone => "feed gone",
        CloseReason::FeedUnreachable => "feed unreachable",
        CloseReason::LeaseStoreGone => "lease store gone",
        CloseReason::HandlerError => "handler error",
        CloseReason::Halted => "halted",
        CloseReason::Reset => "reset",
    }
}
