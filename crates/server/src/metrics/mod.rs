//! Exports metrics in the text format of Prometheus (OpenMetrics).
//!
//! Request counters are updated when a request ends, with relaxed atomics per operation. All other values are
//! read when metrics are requested; see `snapshot`. Nothing here influences requests.

mod histogram;
mod snapshot;

use crate::gateway::Gateway;
use crate::units::UnitCounters;
use headwater_protocol::operation::Operation;
use histogram::Latencies;
use hyper::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    verb: &'static str,
    status: u16,
}

/// The metrics of a server, and the registry that encodes them.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Kind, Counter>,
    latencies: Latencies,
    pub(crate) throttled: Counter,
    pub(crate) units: UnitCounters,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("headwater");
        let requests = Family::default();
        let latencies = Latencies::new();
        let throttled = Counter::default();
        registry.register("requests", "Requests by verb and status", requests.clone());
        let what = "Time from the request head to the response, by operation";
        registry.register("request_seconds", what, latencies.clone());
        let what = "Requests beyond the provisioned throughput, and waits of event streams";
        registry.register("throttled_requests", what, throttled.clone());
        let units = UnitCounters::new(&mut registry);
        Metrics { registry, requests, latencies, throttled, units }
    }

    /// Counts a request. One refused before classification has no operation.
    pub(crate) fn observe(
        &self,
        verb: &Method,
        operation: Option<Operation>,
        status: StatusCode,
        took: Duration,
    ) {
        let verb = match *verb {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::PATCH => "PATCH",
            Method::DELETE => "DELETE",
            _ => "other",
        };
        self.requests.get_or_create(&Kind { verb, status: status.as_u16() }).inc();
        self.latencies.observe(operation, took);
    }

    /// Returns all metrics of a server as text.
    pub(crate) fn text(&self, gateway: &Gateway) -> String {
        let mut text = String::new();
        // Writing to a `String` does not fail.
        let _ = encode_registry(&mut text, &self.registry);
        let _ = encode_registry(&mut text, &snapshot::server(gateway));
        let _ = encode_registry(&mut text, &snapshot::process());
        let _ = encode_eof(&mut text);
        text
    }
}
