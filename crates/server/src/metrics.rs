//! What the server counts, for Prometheus.

use crate::budget::{Budgets, Resource};
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
        Metrics {
            registry,
            requests,
            seconds,
            connections,
            waiting_readers,
            receiving_bytes,
            sending_bytes,
            throttled,
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

    pub(crate) fn text(&self, budgets: &Budgets) -> String {
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
