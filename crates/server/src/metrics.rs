//! What the server counts, for Prometheus.

use crate::budget::{Budgets, Resource};
use crate::units::UnitCounters;
use headwater_store::Account;
use hyper::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Seconds; the first bounds are where a durable write on a good disk ends.
const SECONDS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    verb: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Place {
    /// Its resource id. Names are not for everybody who can reach the metrics.
    container: String,
}

/// The history of each container, as it is when somebody asks.
#[derive(Debug, Default)]
struct History {
    bytes: Family<Place, Gauge>,
    bytes_max: Family<Place, Gauge>,
    oldest_seconds: Family<Place, Gauge>,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Kind, Counter>,
    seconds: Histogram,
    connections: Gauge,
    waiting_readers: Gauge,
    receiving_bytes: Gauge,
    sending_bytes: Gauge,
    pub(crate) throttled: Counter,
    pub(crate) units: UnitCounters,
    history: History,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("headwater");
        let requests = Family::default();
        let seconds = Histogram::new(SECONDS);
        let (connections, waiting_readers) = (Gauge::default(), Gauge::default());
        let (receiving_bytes, sending_bytes) = (Gauge::default(), Gauge::default());
        let throttled = Counter::default();
        registry.register("requests", "Requests by verb and status", requests.clone());
        registry.register("request_seconds", "Time from head to answer", seconds.clone());
        registry.register("connections", "Open connections", connections.clone());
        let what = "Readers waiting for changes";
        registry.register("waiting_readers", what, waiting_readers.clone());
        let what = "Memory of requests being received";
        registry.register("receiving_bytes", what, receiving_bytes.clone());
        let what = "Memory of answers being sent";
        registry.register("sending_bytes", what, sending_bytes.clone());
        let what = "Requests beyond the provisioned throughput";
        registry.register("throttled_requests", what, throttled.clone());
        let units = UnitCounters::new(&mut registry);
        let history = History::default();
        let what = "Bytes of superseded versions and deletes that are kept";
        registry.register("history_bytes", what, history.bytes.clone());
        let what =
            "The most bytes of history that are kept; absent where a changeFeedPolicy decides";
        registry.register("history_bytes_max", what, history.bytes_max.clone());
        let what = "Age of the oldest change from which on all versions are there";
        registry.register("history_oldest_seconds", what, history.oldest_seconds.clone());
        Metrics {
            registry,
            requests,
            seconds,
            connections,
            waiting_readers,
            receiving_bytes,
            sending_bytes,
            throttled,
            units,
            history,
        }
    }

    pub(crate) fn observe(&self, verb: &Method, status: StatusCode, took: Duration) {
        let verb = match *verb {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        self.requests.get_or_create(&Kind { verb, status: status.as_u16() }).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Looks at the history of every container.
    fn observe_history(&self, account: &Account, now_millis: u64) {
        let History { bytes, bytes_max, oldest_seconds } = &self.history;
        for family in [bytes, bytes_max, oldest_seconds] {
            family.clear();
        }
        for database in account.databases() {
            for container in database.containers() {
                // A container that is dropped or closed meanwhile has no history to show.
                let Ok(found) = container.history() else { continue };
                let place = Place { container: container.rid().to_string() };
                let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
                bytes.get_or_create(&place).set(number(found.bytes));
                if let Some(most) = found.bytes_max {
                    bytes_max.get_or_create(&place).set(number(most));
                }
                if let Some(oldest) = found.oldest {
                    let age = (now_millis / 1000).saturating_sub(oldest.as_seconds());
                    oldest_seconds.get_or_create(&place).set(number(age));
                }
            }
        }
    }

    pub(crate) fn text(&self, budgets: &Budgets, account: &Account, now_millis: u64) -> String {
        self.observe_history(account, now_millis);
        let set = |gauge: &Gauge, value: usize| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.connections, budgets.connections());
        set(&self.waiting_readers, budgets.used(Resource::WaitingReaders));
        set(&self.receiving_bytes, budgets.used(Resource::Receiving));
        set(&self.sending_bytes, budgets.used(Resource::Sending));
        let mut text = String::new();
        // Writing into a text does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
