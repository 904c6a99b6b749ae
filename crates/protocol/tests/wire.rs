//! Parses session tokens, feed requests and headers as SDKs and the change feed's reference write them.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_model::{Continuation, FeedStart, Lsn, PartitionKey};
use headwater_protocol::batch;
use headwater_protocol::feed::{FeedHeaders, FeedRequest, TimeStart};
use headwater_protocol::headers;
use headwater_protocol::operation::{ItemOperation, Operation};
use headwater_protocol::route;
use headwater_protocol::session::{Progress, SessionToken};
use serde_json::{Value, json};

fn cases(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap()
}

fn as_json(progress: &Progress) -> Value {
    let regions: serde_json::Map<String, Value> =
        progress.regions.iter().map(|(region, lsn)| (region.to_string(), json!(lsn))).collect();
    json!({
        "version": progress.version,
        "globalLsn": progress.global_lsn,
        "localLsnByRegion": regions,
    })
}

#[test]
fn session_tokens_parse_as_in_the_sdks() {
    for case in cases(include_str!("vectors/session_token_parse.json")) {
        let token = case["input"]["token"].as_str().unwrap();
        let parsed = token.parse::<Progress>();
        let found = parsed.as_ref().map_or(Value::Null, as_json);
        assert_eq!(found, case["expected"], "{token}");
        if let Ok(progress) = parsed {
            assert_eq!(progress.to_string(), token);
        }
    }
}

#[test]
fn session_headers_parse_as_in_the_sdks() {
    for case in cases(include_str!("vectors/session_token_header.json")) {
        let header = case["input"]["header"].as_str().unwrap();
        let token: SessionToken = header.parse().unwrap();
        let parts: serde_json::Map<String, Value> = token
            .parts()
            .map(|(partition, progress)| (partition.to_string(), as_json(progress)))
            .collect();
        assert_eq!(Value::Object(parts), case["expected"], "{header}");
        assert_eq!(token.to_string(), header);
    }
}

#[test]
fn session_tokens_merge_as_in_the_sdks() {
    for case in cases(include_str!("vectors/session_token_merge.json")) {
        let progress = |name: &str| case["input"][name].as_str().unwrap().parse::<Progress>();
        let (a, b) = (progress("a").unwrap(), progress("b").unwrap());
        for merged in [a.merge(&b), b.merge(&a)] {
            match case["expected"].as_str() {
                Some(expected) => assert_eq!(merged.unwrap().to_string(), expected, "{case}"),
                None => assert!(merged.is_err(), "{case}"),
            }
        }
    }
}

/// The headers of each scenario parse to the start that its outcome requires.
#[test]
fn feed_scenarios_are_understood() {
    let cases = cases(include_str!("vectors/change_feed_scenarios.json"));
    assert!(cases.len() >= 36);
    for case in cases {
        let sent = &case["input"]["request"]["headers"];
        let value = |name: &str| sent[name].as_str();
        let headers = FeedHeaders {
            a_im: value("A-IM"),
            if_none_match: value("If-None-Match"),
            if_modified_since: value("If-Modified-Since"),
            version: value("x-ms-version"),
            start: None,
        };
        let parsed = FeedRequest::parse(&headers, TimeStart::ByVersion);
        let refused = case["expected"]["status"] == 400;
        assert_eq!(parsed.is_err(), refused, "{sent}");
        let Ok(parsed) = parsed else { continue };
        let request = parsed.unwrap();
        let expected = match (value("If-None-Match"), value("If-Modified-Since")) {
            (Some("*"), _) => FeedStart::Now,
            (None | Some(""), None) => FeedStart::Beginning,
            (None | Some(""), Some(_)) => match &request.start {
                FeedStart::Time(time) => FeedStart::Time(*time),
                other => panic!("{sent}: {other:?}"),
            },
            (Some(etag), _) => {
                let lsn: Lsn = etag.trim_matches('"').parse().unwrap();
                FeedStart::After(Continuation::Single(lsn))
            }
        };
        assert_eq!(request.start, expected, "{sent}");
        let old = value("x-ms-version").is_none_or(|version| version < "2018-12-31");
        let by_time = matches!(request.start, FeedStart::Time(_));
        assert_eq!(request.position_only, old && by_time, "{sent}");
        if request.position_only {
            assert_eq!(case["expected"]["status"], 304, "{sent}");
        }
    }
}

#[test]
fn partition_keys_arrive_as_sdks_write_them() {
    for case in cases(include_str!("vectors/partition_key_header.json")) {
        let header = case["expected"]["value"].as_str().unwrap();
        assert_eq!(case["expected"]["header"], headers::PARTITION_KEY);
        assert_eq!(PartitionKey::parse(header).unwrap().to_json(), header);
    }
}

/// Every recorded `POST …/docs` is classified as the SDK meant it, and every recorded value parses.
#[test]
fn recorded_headers_are_understood() {
    let traces = [
        include_str!("vectors/trace_python.json"),
        include_str!("vectors/trace_js.json"),
        include_str!("vectors/trace_documentdb.json"),
    ];
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for operation in traces.iter().flat_map(|trace| cases(trace)) {
        for request in operation["expected"]["requests"].as_array().unwrap() {
            let sent = request["headers"].as_object().unwrap();
            let value = |name: &str| {
                let header = sent.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                header.and_then(|(_, value)| value.as_str())
            };
            assert_values_are_taken(value);
            let path = request["path"].as_str().unwrap().trim_end_matches('/');
            if request["method"] == "POST" && path.ends_with("/docs") {
                let operation =
                    Operation::classify("POST", &route::parse(path).unwrap(), value).unwrap();
                let Operation::Items(kind) = operation else { panic!("{request}") };
                let body = request["body"].as_str().unwrap();
                let is_batch = matches!(kind, ItemOperation::Transaction | ItemOperation::Bulk);
                assert_eq!(is_batch, body.starts_with('['), "{request}");
                let query = matches!(kind, ItemOperation::Query | ItemOperation::PlanQuery);
                assert_eq!(query, body.contains("\"query\":"), "{request}");
                if is_batch {
                    assert!(!batch::decode(body.as_bytes()).unwrap().is_empty(), "{body}");
                }
                *kinds.entry(format!("{kind:?}")).or_default() += 1;
            }
        }
    }
    let kinds: Vec<_> = kinds.into_keys().collect();
    assert_eq!(kinds, ["Bulk", "Create", "PlanQuery", "Query", "Transaction", "Upsert"]);
}

fn assert_values_are_taken<'a>(value: impl Fn(&'static str) -> Option<&'a str>) {
    if let Some(count) = value(headers::MAX_ITEM_COUNT) {
        headers::max_item_count(count).unwrap();
    }
    if let Some(id) = value(headers::PARTITION_KEY_RANGE_ID) {
        assert!(headers::partition_key_range_id(id).unwrap().partition.is_some());
    }
    let bounds = (value(headers::START_EPK), value(headers::END_EPK));
    let range = headers::epk_range(bounds.0, bounds.1).unwrap();
    assert_eq!(range.is_some(), bounds.0.is_some());
    if let Some(level) = value(headers::CONSISTENCY_LEVEL) {
        headers::ConsistencyLevel::parse(level).unwrap();
    }
    if let Some(prefer) = value(headers::PREFER) {
        assert!(headers::Prefer::parse(prefer).minimal);
    }
    if let Some(key) = value(headers::PARTITION_KEY) {
        PartitionKey::parse(key).unwrap();
    }
}
