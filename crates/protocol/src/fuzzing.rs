//! Entry points for fuzzers and property tests, one per kind of client input. Not part of the API.
//!
//! Each function accepts arbitrary bytes. It must not panic or allocate memory out of proportion to them,
//! and what it parses must survive being written and parsed again. `fuzz/` calls them with a
//! coverage-guided fuzzer, `tests/requests_survive_anything.rs` with random input.

use crate::auth::{self, EMULATOR_KEY, Grant, GrantMode, Key, Keys, Token};
use crate::feed::{FeedHeaders, FeedRequest, TimeStart};
use crate::headers::{self, ApiVersion, ConsistencyLevel, Prefer};
use crate::hybridrow::{self, OperationRow, Records, ResultRow};
use crate::operation::Operation;
use crate::resource::Throughput;
use crate::route::{self, Route};
use crate::session::SessionToken;
use crate::{batch, binary};
use headwater_model::{
    ContainerRid, Continuation, Epk, Etag, KeyRange, Lsn, PartitionKey, PermissionRid,
    RangePosition, UserRid,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The text limit for binary bodies under test.
const TEXT_BYTES_MAX: usize = 1 << 16;
/// A time before the tokens of these tests expire.
const NOW_SECONDS: u64 = 1_700_000_000;

/// Parses the head of a request: a line with verb and path, then lines of `name: value`.
pub fn request(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let (verb, path) = lines.next().and_then(|line| line.split_once(' ')).unwrap_or_default();
    let lines: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
    let header = |name: &str| {
        let found = lines.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| *value)
    };
    if let Ok(route) = route::parse(path) {
        check_route(&route, path);
        verify(verb, &route, path, header);
        let _ = Operation::classify(verb, &route, header).map(Operation::access);
    }
    headers_of(header);
}

/// Checks that the links to sign are not much longer than the path.
fn check_route(route: &Route, path: &str) {
    let _ = (route.resource_type(), route.other_resource_type(), route.is_feed());
    for links in [route.links(), route.links_for(path)] {
        for link in links.candidates() {
            // Lower-casing may lengthen a text, by half at most.
            assert!(link.len() <= path.len() * 2 + 8, "{link:?} of {path:?}");
        }
    }
}

fn verify<'a>(
    verb: &str,
    route: &Route,
    path: &str,
    header: impl Fn(&'static str) -> Option<&'a str>,
) {
    let Ok(key) = Key::from_base64(EMULATOR_KEY) else { return };
    let keys = Keys::new(key);
    let dates = (header(headers::X_MS_DATE), header(headers::DATE));
    if let Some(Ok(Token::Master { sig })) = header(headers::AUTHORIZATION).map(auth::parse_token) {
        let _ = auth::verify_request(&keys, verb, route, path, dates, &sig);
    }
    if let Some(date) = dates.0.or(dates.1) {
        let _ = auth::check_date(NOW_SECONDS, date, std::time::Duration::from_secs(900));
    }
}

/// Parses every header that is more than a flag.
fn headers_of<'a>(header: impl Fn(&'static str) -> Option<&'a str>) {
    let get = |name| header(name).unwrap_or_default();
    let _ = headers::max_item_count(get(headers::MAX_ITEM_COUNT));
    let _ = headers::partition_key_range_id(get(headers::PARTITION_KEY_RANGE_ID));
    let _ = headers::epk_range(header(headers::START_EPK), header(headers::END_EPK));
    let _ = ConsistencyLevel::parse(get(headers::CONSISTENCY_LEVEL));
    let _ = (Prefer::parse(get(headers::PREFER)), ApiVersion::of(header(headers::VERSION)));
    let _ = headers::expiry_seconds(get(headers::EXPIRY_SECONDS));
    let _ = headers::is_activity_id(get(headers::ACTIVITY_ID));
    let _ = Throughput::from_headers(
        header(headers::OFFER_THROUGHPUT),
        header(headers::OFFER_AUTOPILOT_SETTINGS),
    );
    partition_key(get(headers::PARTITION_KEY).as_bytes());
    position(get(headers::IF_NONE_MATCH).as_bytes());
    session_token(get(headers::SESSION_TOKEN).as_bytes());
    let feed = FeedHeaders {
        a_im: header(headers::A_IM),
        if_none_match: header(headers::IF_NONE_MATCH),
        if_modified_since: header(headers::IF_MODIFIED_SINCE),
        version: header(headers::VERSION),
        start: header(headers::FEED_START),
    };
    for time_start in [TimeStart::ByVersion, TimeStart::PositionFirst, TimeStart::ChangesAtOnce] {
        let _ = FeedRequest::parse(&feed, time_start);
    }
}

/// Parses the partition key header. A parsed key must survive being written and parsed again.
pub fn partition_key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(key) = headers::partition_key(&text) else { return };
    let json = key.to_json();
    assert_eq!(PartitionKey::parse(&json).as_ref(), Ok(&key), "{json}");
    let mut encoded = Vec::new();
    key.encode_into(&mut encoded);
    assert_eq!(PartitionKey::decode(&encoded).as_ref(), Ok(&key), "{json}");
}

/// Parses a feed position, and an item's etag.
pub fn position(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(position) = text.parse::<Continuation>() {
        let again = position.to_string();
        assert_eq!(again.parse::<Continuation>().as_ref(), Ok(&position), "{again}");
        let _ = (position.container(), position.position_for(&KeyRange::full()));
    }
    if let Ok(etag) = text.parse::<Etag>() {
        assert_eq!(etag.to_string().parse::<Etag>().as_ref(), Ok(&etag));
    }
}

/// Parses a session token and merges it into an empty one.
pub fn session_token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(token) = text.parse::<SessionToken>() else { return };
    let again = token.to_string();
    assert_eq!(again.parse::<SessionToken>().as_ref(), Ok(&token), "{again}");
    let mut merged = SessionToken::default();
    if merged.merge(&token).is_ok() {
        for (partition, _) in token.parts() {
            assert!(merged.lsn_of(partition).is_some(), "{again}");
        }
    }
}

/// Parses the authorization header, and signs the text as the resource of a token.
pub fn authorization(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(key) = Key::from_base64(EMULATOR_KEY) else { return };
    let keys = Keys::new(key.clone());
    match auth::parse_token(&text) {
        Ok(Token::Resource { sig }) => drop(auth::open(&key, &sig, NOW_SECONDS)),
        Ok(Token::Aad { jwt }) => drop(auth::verify_aad(&keys, &jwt, NOW_SECONDS, false)),
        Ok(Token::Master { .. }) | Err(_) => {}
    }
    let _ = auth::open(&key, &text, NOW_SECONDS);
    for any in [true, false] {
        let _ = auth::verify_aad(&keys, &text, NOW_SECONDS, any);
    }
    let grant = Grant {
        permission: PermissionRid::new(UserRid::new(1, 2), 3),
        resource: text.into_owned(),
        mode: GrantMode::Read,
        partition_key: None,
        expires: NOW_SECONDS + 1,
    };
    let opened = auth::open(&key, &auth::mint(&key, &grant), NOW_SECONDS);
    if let Ok(opened) = opened {
        assert_eq!(opened, grant, "a token says what was granted");
    }
    let _ = grant.covers(&grant.resource);
}

/// Decodes a binary body. The text must be JSON within the limit and pass [`json_body`].
pub fn binary_body(bytes: &[u8]) {
    let Ok(text) = binary::decode(bytes, binary::Limits::of_text_bytes(TEXT_BYTES_MAX)) else {
        return;
    };
    assert!(text.len() <= TEXT_BYTES_MAX, "{} bytes", text.len());
    assert!(is_json(&text), "{:?}", String::from_utf8_lossy(&text));
    json_body(&text);
}

/// Encodes a JSON text and decodes it. The second round trip must change nothing.
pub fn json_body(text: &[u8]) {
    let Ok(encoded) = binary::encode(text) else { return };
    assert!(is_json(text), "{:?}", String::from_utf8_lossy(text));
    // Text may grow when numbers and escapes are rewritten in another form.
    let room = binary::Limits::of_text_bytes(text.len() * 8 + 1024);
    let once = binary::decode(&encoded, room);
    assert!(once.is_ok(), "{once:?} {:?}", String::from_utf8_lossy(text));
    let once = once.unwrap_or_default();
    let again = binary::encode(&once).and_then(|encoded| binary::decode(&encoded, room));
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    assert_eq!(again.as_deref().map(shown), Ok(shown(&once)), "{}", shown(text));
}

fn is_json(text: &[u8]) -> bool {
    let mut reader = serde_json::Deserializer::from_slice(text);
    // The codec enforces its own nesting limit.
    reader.disable_recursion_limit();
    IgnoredAny::deserialize(&mut reader).is_ok() && reader.end().is_ok()
}

/// Parses the body of a batch, and of an offer.
pub fn batch_body(bytes: &[u8]) {
    if let Ok(operations) = batch::decode(bytes) {
        assert!(!operations.is_empty(), "a batch has operations");
    }
    let _ = Throughput::from_offer(bytes);
}

/// Parses a HybridRow body, and the same bytes as rows behind a valid header and checksum. A parsed row
/// must survive being written and parsed again.
pub fn hybridrow_body(bytes: &[u8]) {
    batch_body(bytes);
    Records::new(bytes).for_each(drop);
    let mut as_operation = Vec::new();
    OperationRow::default().encode_into(&mut as_operation);
    let mut as_result = Vec::new();
    ResultRow::default().encode_into(&mut as_result);
    // The version and the schema of a row, before its presence bits.
    for header in [&[][..], &as_operation[..5], &as_result[..5]] {
        let row = [header, bytes].concat();
        if let Ok(operation) = OperationRow::decode(&row) {
            let mut again = Vec::new();
            operation.encode_into(&mut again);
            assert_eq!(OperationRow::decode(&again), Ok(operation));
        }
        if let Ok(result) = ResultRow::decode(&row) {
            let mut again = Vec::new();
            result.encode_into(&mut again);
            let read = ResultRow::decode(&again);
            // A charge may be NaN, which does not equal itself.
            assert_eq!(format!("{read:?}"), format!("{:?}", Ok::<_, ()>(result)));
        }
        let mut stream = Vec::new();
        hybridrow::start(&mut stream);
        hybridrow::append_record(&mut stream, |out| out.extend_from_slice(&row));
        assert!(Records::new(&stream).eq([Ok(&row[..])]), "a record holds its row");
        batch_body(&stream);
    }
}

/// A request with one operation of the .NET SDK, and a response with one result.
fn rows() -> Vec<Vec<u8>> {
    let operation = OperationRow {
        operation_type: Some(5),
        resource_type: Some(2),
        partition_key: Some("[\"q\"]"),
        id: Some("1"),
        resource_body: Some(br#"{"id":"1","pk":"q"}"#),
        indexing_directive: Some("Exclude"),
        if_match: Some("\"e\""),
        time_to_live_seconds: Some(10),
        wants_minimal: Some(true),
        ..OperationRow::default()
    };
    let result = ResultRow {
        status: Some(429),
        substatus: Some(3200),
        etag: Some("\"e\""),
        resource_body: Some(b"{}"),
        retry_after_ms: Some(250),
        request_charge: Some(0.38),
    };
    let (mut request, mut answer) = (Vec::new(), Vec::new());
    hybridrow::start(&mut request);
    hybridrow::append_record(&mut request, |out| operation.encode_into(out));
    hybridrow::start(&mut answer);
    hybridrow::append_record(&mut answer, |out| result.encode_into(out));
    // Rows without framing and header give the fuzzer a start that needs no checksum.
    let bare = |stream: &[u8]| stream[28..].to_vec();
    vec![bare(&request), bare(&answer), request, answer]
}

/// A position over two ranges.
fn composite() -> Option<String> {
    let (low, high) = KeyRange::full().split_at(&Epk::from_hex("1F").ok()?).ok()?;
    let at = |range, lsn| RangePosition { range, after: Lsn::new(lsn) };
    let container = ContainerRid::parse("AQAAAIAAAAE=").ok()?;
    let position = Continuation::composite(container, vec![at(low, 3), at(high, 28535)]).ok()?;
    Some(position.to_string())
}

/// Sample inputs of real clients for each entry point, as a corpus to start from.
#[must_use]
pub fn examples() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let composite = composite().unwrap_or_default();
    let bodies = [
        r#"{"id":"a","n":[1,300,-5,1.5,70000,9e99],"o":{"_etag":"x","t":[true,null,{}]},"s":"é"}"#,
        r#"["a text that is long enough","a text that is long enough",1e-300,-0.0,123456789012]"#,
    ];
    vec![
        (
            "wire_request",
            texts(&[
                "POST /dbs/shop/colls/orders/docs\nauthorization: \
                 type%3Dmaster%26ver%3D1.0%26sig%3DQUJD\nx-ms-date: Tue, 14 Nov 2023 22:13:20 \
                 GMT\nx-ms-documentdb-partitionkey: [\"a\"]\nx-ms-documentdb-is-upsert: True\n",
                "GET /dbs/shop/colls/orders/docs/a%20b\nA-IM: Incremental Feed\nIf-None-Match: \
                 \"28535\"\nx-ms-documentdb-partitionkeyrangeid: rid,3\nx-ms-start-epk: \
                 05C1\nx-ms-end-epk: FF\nPrefer: wait=5, return=minimal\nx-ms-session-token: \
                 0:-1#5\nx-ms-version: 2018-12-31\nx-ms-max-item-count: -1\n",
                "PUT //offers/abcd/\nx-ms-offer-throughput: 400\nx-ms-consistency-level: Session\n",
            ]),
        ),
        (
            "wire_partition_key",
            texts(&[
                r#"["a",1.5,true,null,{}]"#,
                "[-1e300]",
                r#"["\u00e9\ud83d\ude00"]"#,
                "[\"\\x41\\U0001f600\"]",
                "[]",
            ]),
        ),
        (
            "wire_position",
            texts(&["\"28535\"", &composite, "\"00000000-0000-0000-0000-0000005f5e10\"", "*"]),
        ),
        ("wire_session_token", texts(&["0:-1#5", "0:-1#5#1=4#2=-1,1:3#9", "12:28535"])),
        (
            "wire_authorization",
            texts(&[
                "type=resource&ver=1&sig=QUJD;e30=;",
                "type%3Daad%26ver%3D1.0%26sig%3De30.eyJleHAiOjF9.QUJD",
                r#"{"r":"dbs/a/colls/b","m":"Read","p":"[1]","e":1700000001}"#,
            ]),
        ),
        (
            "wire_binary_body",
            bodies.iter().filter_map(|text| binary::encode(text.as_bytes()).ok()).collect(),
        ),
        ("wire_json_body", texts(&bodies)),
        (
            "wire_batch_body",
            texts(&[
                r#"[{"operationType":"Create","resourceBody":{"id":"1"}},{"operationType":"Patch",
                "id":"1","partitionKey":"[1]","ifMatch":"\"x\"","resourceBody":{"operations":[]}}]"#,
                r#"{"content":{"offerThroughput":400},"offerResourceId":"a","offerVersion":"V2"}"#,
            ]),
        ),
        ("wire_hybridrow_body", rows()),
    ]
}
