//! What is not about data: health, metrics, the certificate, and the headers of CORS.

use crate::answer::Answer;
use crate::gateway::Gateway;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use std::sync::atomic::Ordering;

const TEXT: &str = "text/plain; charset=utf-8";
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS");
/// Where metrics are read, without a key.
pub(crate) const METRICS: &str = "/metrics";
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, accept, a-im, if-match, if-none-match, if-modified-since, prefer, \
     cache-control, last-event-id, user-agent, x-headwater-feed-changed, x-headwater-feed-ops, \
     x-headwater-feed-select, x-headwater-feed-where, x-ms-activity-id, x-ms-client-request-id, \
     x-ms-consistency-level, x-ms-continuation, x-ms-cosmos-allow-tentative-writes, \
     x-ms-cosmos-batch-atomic, x-ms-cosmos-batch-continue-on-error, \
     x-ms-cosmos-changefeed-wire-format-version, x-ms-cosmos-correlated-activityid, \
     x-ms-cosmos-is-batch-request, x-ms-cosmos-is-query-plan-request, \
     x-ms-cosmos-priority-level, x-ms-cosmos-query-version, x-ms-cosmos-sdk-supportedcapabilities, \
     x-ms-cosmos-supported-query-features, x-ms-date, x-ms-documentdb-is-upsert, \
     x-ms-documentdb-isquery, x-ms-documentdb-partitionkey, x-ms-documentdb-partitionkeyrangeid, \
     x-ms-documentdb-populatequerymetrics, x-ms-documentdb-query-enable-scan, \
     x-ms-documentdb-query-enablecrosspartition, x-ms-documentdb-query-parallelizecrosspartitionquery, \
     x-ms-documentdb-responsecontinuationtokenlimitinkb, x-ms-end-epk, x-ms-max-item-count, \
     x-ms-offer-throughput, x-ms-read-key-type, x-ms-session-token, x-ms-start-epk, x-ms-version",
);
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "etag, lsn, x-ms-activity-id, x-ms-alt-content-path, x-ms-content-path, x-ms-continuation, \
     x-ms-cosmos-index-utilization, x-ms-cosmos-llsn, x-ms-documentdb-partitionkeyrangeid, \
     x-ms-documentdb-query-metrics, x-ms-item-count, x-ms-item-lsn, x-ms-request-charge, \
     x-ms-request-duration-ms, x-ms-retry-after-ms, x-ms-session-token, x-ms-substatus, x-ms-version",
);

/// Answers what needs no signature; `None` if the request is about something else.
pub(crate) fn answer(gateway: &Gateway, request: &Request<Incoming>) -> Option<Answer> {
    if request.method() != Method::GET {
        return None;
    }
    match request.uri().path() {
        "/health/live" => Some(Answer::text(StatusCode::OK, TEXT, "alive\n")),
        "/health/ready" => Some(ready(gateway)),
        METRICS => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let text = gateway.runtime.blocking(|| gateway.metrics.text(gateway));
            Some(Answer::text(StatusCode::OK, kind, text))
        }
        "/_explorer/emulator.pem" => Some(match &gateway.certificates {
            Some(known) => {
                Answer::text(StatusCode::OK, "application/x-pem-file", known.authority_pem())
            }
            None => Answer::text(StatusCode::NOT_FOUND, TEXT, "this server does not speak TLS\n"),
        }),
        _ => None,
    }
}

fn ready(gateway: &Gateway) -> Answer {
    if gateway.is_stopping.load(Ordering::Relaxed) {
        return Answer::text(StatusCode::SERVICE_UNAVAILABLE, TEXT, "stopping\n");
    }
    match gateway.stopped_tasks() {
        0 => Answer::text(StatusCode::OK, TEXT, "ready\n"),
        // What they say may be about data; this needs no key.
        count => {
            let line =
                format!("{count} background tasks stopped; see the log and restart the server\n");
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, TEXT, line)
        }
    }
}

/// Lets the scripts of a page read the answer.
pub(crate) fn allow_cross_origin(head: &mut HeaderMap, origin: HeaderValue) {
    head.insert("access-control-allow-origin", origin);
    head.insert("vary", HeaderValue::from_static("origin"));
    head.insert("access-control-allow-methods", METHODS);
    head.insert("access-control-allow-headers", HEADERS);
    head.insert("access-control-expose-headers", EXPOSED);
    head.insert("access-control-max-age", HeaderValue::from_static("3600"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use headwater_runtime::Runtime;
    use headwater_store::Account;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_server_that_no_longer_accepts_is_not_ready() {
        let account = Account::ephemeral().await.unwrap();
        let (config, runtime) = (Config::emulator().unwrap(), Runtime::system());
        let gateway = Gateway::new(config, account, runtime.clone(), runtime.clone(), None);
        let gateway = Arc::new(gateway);
        assert_eq!(ready(&gateway).status, StatusCode::OK);
        let accepting = runtime.watch("accept", async { panic!("the listener") }).await;
        gateway.note_end(accepting);
        assert_eq!(ready(&gateway).status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
