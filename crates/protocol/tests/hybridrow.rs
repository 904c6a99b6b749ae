//! HybridRow as the .NET SDK sends and reads it: recorded requests, responses it accepted, and malformed ones
//! of both.

#![allow(clippy::unwrap_used)] // a failed test names the line

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use headwater_protocol::batch::{self, Encoding};
use headwater_protocol::hybridrow::{self, HybridRowError, OperationRow, Records, ResultRow};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

fn vectors(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn requests() -> Vec<Value> {
    vectors(include_str!("vectors/hybridrow_requests.json"))
}

fn answers() -> Vec<Value> {
    vectors(include_str!("vectors/hybridrow_responses.json"))
}

/// The bytes of a column in a vector: in full, or built from a recipe for a long one.
fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        Value::Object(parts) if parts.contains_key("base64") => {
            STANDARD.decode(parts["base64"].as_str().unwrap()).unwrap()
        }
        recipe => {
            let part = |name: &str| recipe[name].as_str().unwrap();
            let times = usize::try_from(recipe["times"].as_u64().unwrap()).unwrap();
            [part("starts"), &part("then").repeat(times), part("ends")].concat().into_bytes()
        }
    }
}

fn optional_bytes(row: &Value, column: &str) -> Option<Vec<u8>> {
    row.get(column).map(bytes_of)
}

/// Encodes the rows that a vector describes as a stream.
fn encode_operations(rows: &[Value]) -> Vec<u8> {
    let mut stream = Vec::new();
    hybridrow::start(&mut stream);
    for row in rows {
        let number = |column: &str| row[column].as_i64().map(|value| i32::try_from(value).unwrap());
        let text = |column: &str| row[column].as_str();
        let bytes = |column: &str| optional_bytes(row, column);
        let (epk, binary_id) = (bytes("effectivePartitionKey"), bytes("binaryId"));
        let body = bytes("resourceBody");
        let operation = OperationRow {
            operation_type: number("operationType"),
            resource_type: number("resourceType"),
            partition_key: text("partitionKey"),
            effective_partition_key: epk.as_deref(),
            id: text("id"),
            binary_id: binary_id.as_deref(),
            resource_body: body.as_deref(),
            indexing_directive: text("indexingDirective"),
            if_match: text("ifMatch"),
            if_none_match: text("ifNoneMatch"),
            time_to_live_seconds: number("timeToLiveInSeconds"),
            wants_minimal: row["minimalReturnPreference"].as_bool(),
        };
        hybridrow::append_record(&mut stream, |out| operation.encode_into(out));
    }
    stream
}

fn encode_results(rows: &[Value]) -> Vec<u8> {
    let mut stream = Vec::new();
    hybridrow::start(&mut stream);
    for row in rows {
        let number = |column: &str| row[column].as_i64().map(|value| i32::try_from(value).unwrap());
        let body = optional_bytes(row, "resourceBody");
        let wait = row["retryAfterMilliseconds"].as_u64();
        let result = ResultRow {
            status: number("statusCode"),
            substatus: number("subStatusCode"),
            etag: row["eTag"].as_str(),
            resource_body: body.as_deref(),
            retry_after_ms: wait.map(|wait| u32::try_from(wait).unwrap()),
            request_charge: row["requestCharge"].as_f64(),
        };
        hybridrow::append_record(&mut stream, |out| result.encode_into(out));
    }
    stream
}

/// The bytes of a vector. Those built from a recipe are checked against the vector's digest.
fn body_of(vector: &Value, encode: fn(&[Value]) -> Vec<u8>) -> Vec<u8> {
    match vector["body_base64"].as_str() {
        Some(text) => STANDARD.decode(text).unwrap(),
        None => {
            let recipe = &vector["recipe"];
            let times = recipe["times"].as_u64().unwrap_or(0);
            let repeated = (0..times).map(|_| recipe["result"].clone()).collect();
            let body = encode(recipe.as_array().unwrap_or(&repeated));
            let digest: String =
                Sha256::digest(&body).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(vector["body_sha256"], digest, "{}", vector["name"]);
            body
        }
    }
}

/// Formats bytes in the form of the vectors.
fn shown(bytes: &[u8], like: &Value) -> Value {
    if like.get("utf8_bytes").is_some() {
        let starts = String::from_utf8_lossy(&bytes[..like["starts"].as_str().unwrap().len()]);
        let crc32 = format!("{:08x}", crc32fast::hash(bytes));
        return json!({"utf8_bytes": bytes.len(), "starts": starts, "crc32": crc32});
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if like.is_string() => json!(text),
        _ => json!({"base64": STANDARD.encode(bytes)}),
    }
}

fn set(map: &mut Map<String, Value>, column: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(column.to_owned(), value.into());
    }
}

fn operation_as_json(row: &OperationRow<'_>, like: &Value) -> Value {
    let bytes = |column: &str, value: Option<&[u8]>| value.map(|value| shown(value, &like[column]));
    let mut map = Map::new();
    set(&mut map, "operationType", row.operation_type);
    set(&mut map, "resourceType", row.resource_type);
    set(&mut map, "partitionKey", row.partition_key);
    let epk = bytes("effectivePartitionKey", row.effective_partition_key);
    set(&mut map, "effectivePartitionKey", epk);
    set(&mut map, "id", row.id);
    set(&mut map, "binaryId", bytes("binaryId", row.binary_id));
    set(&mut map, "resourceBody", bytes("resourceBody", row.resource_body));
    set(&mut map, "indexingDirective", row.indexing_directive);
    set(&mut map, "ifMatch", row.if_match);
    set(&mut map, "ifNoneMatch", row.if_none_match);
    set(&mut map, "timeToLiveInSeconds", row.time_to_live_seconds);
    set(&mut map, "minimalReturnPreference", row.wants_minimal);
    Value::Object(map)
}

fn result_as_json(row: &ResultRow<'_>, like: &Value) -> Value {
    let mut map = Map::new();
    set(&mut map, "statusCode", row.status);
    set(&mut map, "subStatusCode", row.substatus);
    set(&mut map, "eTag", row.etag);
    let body = row.resource_body.map(|body| shown(body, &like["resourceBody"]));
    set(&mut map, "resourceBody", body);
    set(&mut map, "retryAfterMilliseconds", row.retry_after_ms);
    set(&mut map, "requestCharge", row.request_charge);
    Value::Object(map)
}

fn read<'a, R>(
    stream: &'a [u8],
    decode: fn(&'a [u8]) -> Result<R, HybridRowError>,
) -> Result<Vec<R>, HybridRowError> {
    Records::new(stream).map(|row| row.and_then(decode)).collect()
}

#[test]
fn every_recorded_request_is_read_and_written_again_byte_by_byte() {
    let (mut exact, mut refused) = (0, 0);
    for vector in requests() {
        let name = vector["name"].as_str().unwrap();
        let body = body_of(&vector, encode_operations);
        assert_eq!(vector["content_length"], body.len(), "{name}");
        let rows = read(&body, OperationRow::decode);
        if vector["codec"] == "refuses" {
            assert!(rows.is_err(), "{name}: {rows:?}");
            refused += 1;
            continue;
        }
        let rows = rows.unwrap_or_else(|error| panic!("{name}: {error}"));
        let decoded = vector["decoded"].as_array().unwrap();
        let found: Vec<Value> =
            rows.iter().zip(decoded).map(|(row, like)| operation_as_json(row, like)).collect();
        assert_eq!((rows.len(), &found), (decoded.len(), decoded), "{name}");
        if vector["codec"] == "decodes" {
            continue;
        }
        exact += 1;
        let mut again = Vec::new();
        hybridrow::start(&mut again);
        for row in &rows {
            hybridrow::append_record(&mut again, |out| row.encode_into(out));
        }
        assert!(again == body, "{name} is written differently");
    }
    assert!(exact >= 53 && refused >= 20, "{exact} {refused}");
}

#[test]
fn a_batch_accepts_and_refuses_what_the_service_does() {
    for vector in requests() {
        let name = vector["name"].as_str().unwrap();
        let body = body_of(&vector, encode_operations);
        assert_eq!(Encoding::of(&body), Encoding::HybridRow);
        let operations = batch::decode(&body);
        match vector["must"].as_str().unwrap() {
            // The row has no key, and no header has one; the server refuses it.
            must if must.starts_with("refuse: 400 (internal routing") => {
                assert_eq!(operations.unwrap()[0].partition_key, None);
            }
            must if must.starts_with("refuse") => {
                let error = operations.unwrap_err();
                let status = if must.contains("413") { 413 } else { 400 };
                assert_eq!(error.code().status(), status, "{name}: {error}");
                if let Some((_, message)) = must.split_once("Batch request") {
                    assert_eq!(error.to_string(), format!("Batch request{message}"));
                }
            }
            _ => {
                let operations = operations.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(operations.len(), vector["decoded"].as_array().unwrap().len());
                let is_problem = operations.iter().any(|one| one.problem.is_some());
                assert_eq!(is_problem, ["batch_ttl_property", "batch_all_sparse"].contains(&name));
            }
        }
    }
}

#[test]
fn items_in_binary_json_become_text() {
    let mut found = 0;
    for vector in requests() {
        if vector["must"].as_str().unwrap().contains("binary JSON") {
            let body = body_of(&vector, encode_operations);
            let operations = batch::decode(&body).unwrap();
            let item: Value = serde_json::from_slice(operations[0].body.as_ref().unwrap()).unwrap();
            assert!(item["id"].is_string(), "{item}");
            found += 1;
        }
    }
    assert_eq!(found, 2);
}

/// A few bytes of binary JSON can decode to many: an array of references to one long string.
#[test]
fn items_in_binary_json_unfold_to_a_limit_for_the_whole_batch() {
    let long = "x".repeat(1_000_000);
    let text = serde_json::to_vec(&json!({"id": "1", "v": long})).unwrap();
    let item = headwater_protocol::binary::encode(&text).unwrap();
    let fold = json!({"operationType": 0, "resourceType": 2,
        "resourceBody": {"base64": STANDARD.encode(item)}});
    let batch = |count: usize| encode_operations(&vec![fold.clone(); count]);
    assert_eq!(batch::decode(&batch(2)).unwrap().len(), 2);
    let error = batch::decode(&batch(3)).unwrap_err();
    assert_eq!(error.code().status(), 413, "{error}");

    let broken = json!({"operationType": 0, "resourceType": 2, "resourceBody": {"base64": "gP8="}});
    let stream = encode_operations(&[broken]);
    let problem = batch::decode(&stream).unwrap()[0].problem.clone().unwrap();
    assert!(problem.contains("binary JSON"), "{problem}");
}

#[test]
fn answers_are_the_bytes_that_the_sdk_accepted() {
    let (mut sent, mut accepted) = (0, 0);
    for vector in answers() {
        // Exchanges of several requests test what the SDK does next.
        if vector.get("exchanges").is_some() {
            continue;
        }
        let name = vector["name"].as_str().unwrap();
        let body = body_of(&vector, encode_results);
        if vector["accepted"] == true {
            let rows = read(&body, ResultRow::decode).unwrap_or_else(|e| panic!("{name}: {e}"));
            let decoded = vector["decoded"].as_array().unwrap();
            let found: Vec<Value> =
                rows.iter().zip(decoded).map(|(row, like)| result_as_json(row, like)).collect();
            assert_eq!((rows.len(), &found), (decoded.len(), decoded), "{name}");
            accepted += 1;
        }
        if vector["send"] == true {
            if let Some(rows) = vector["decoded"].as_array().filter(|_| name != "large") {
                assert!(encode_results(rows) == body, "{name} is written differently");
            }
            sent += 1;
        }
    }
    assert!(sent >= 25 && accepted >= 38, "{sent} {accepted}");
}

/// Responses that the SDK drops are refused by the decoder too.
#[test]
fn malformed_answers_are_refused() {
    let mut refused = 0;
    for vector in answers() {
        let name = vector["name"].as_str().unwrap();
        let is_malformed = vector["codec"] == "refuses" && vector["status"] == 200;
        if is_malformed && vector.get("exchanges").is_none() {
            let body = body_of(&vector, encode_results);
            assert!(read(&body, ResultRow::decode).is_err(), "{name}");
            refused += 1;
        }
    }
    assert!(refused >= 8, "{refused}");
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..300))
}

fn any_text() -> impl Strategy<Value = Option<String>> {
    prop::option::of(".{0,200}")
}

proptest! {
    #[test]
    fn operations_are_read_as_they_were_written(
        numbers in any::<[Option<i32>; 3]>(),
        texts in [any_text(), any_text(), any_text(), any_text(), any_text()],
        bytes in [any_bytes(), any_bytes(), any_bytes()],
        wants_minimal in any::<Option<bool>>(),
    ) {
        let row = OperationRow {
            operation_type: numbers[0],
            resource_type: numbers[1],
            partition_key: texts[0].as_deref(),
            effective_partition_key: bytes[0].as_deref(),
            id: texts[1].as_deref(),
            binary_id: bytes[1].as_deref(),
            resource_body: bytes[2].as_deref(),
            indexing_directive: texts[2].as_deref(),
            if_match: texts[3].as_deref(),
            if_none_match: texts[4].as_deref(),
            time_to_live_seconds: numbers[2],
            wants_minimal,
        };
        let mut written = Vec::new();
        row.encode_into(&mut written);
        prop_assert_eq!(OperationRow::decode(&written), Ok(row));
    }

    #[test]
    fn results_are_read_as_they_were_written(
        numbers in any::<[Option<i32>; 2]>(),
        etag in any_text(),
        body in any_bytes(),
        retry_after_ms in any::<Option<u32>>(),
        request_charge in prop::option::of(-1e300..1e300f64),
    ) {
        let row = ResultRow {
            status: numbers[0],
            substatus: numbers[1],
            etag: etag.as_deref(),
            resource_body: body.as_deref(),
            retry_after_ms,
            request_charge,
        };
        let mut written = Vec::new();
        row.encode_into(&mut written);
        prop_assert_eq!(ResultRow::decode(&written), Ok(row));
    }

    /// A truncated row is refused or has fewer sparse fields, never other ones.
    #[test]
    fn a_row_cut_short_is_refused_or_has_fewer_fields(cut in 0usize..60) {
        let row = OperationRow {
            operation_type: Some(5),
            resource_type: Some(2),
            id: Some("1"),
            resource_body: Some(b"{\"id\":\"1\",\"pk\":\"q\"}"),
            if_match: Some("\"e\""),
            wants_minimal: Some(true),
            ..OperationRow::default()
        };
        let mut written = Vec::new();
        row.encode_into(&mut written);
        written.truncate(written.len().saturating_sub(1 + cut));
        if let Ok(read) = OperationRow::decode(&written) {
            prop_assert_eq!(read.wants_minimal, None);
            prop_assert_eq!(read.resource_body, row.resource_body);
        }
    }
}
