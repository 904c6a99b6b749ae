//! Decodes and encodes the JSON form of batches: an array of operations, an array of results.

use super::{BatchError, OPERATIONS_MAX, Operation, OperationKind, OperationResult};
use headwater_model::{BadPartitionKey, PartitionKey};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;

/// An operation as the request spells it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    operation_type: String,
    #[serde(default)]
    id: Option<String>,
    #[serde(borrow, default)]
    partition_key: Option<&'a RawValue>,
    #[serde(default)]
    if_match: Option<String>,
    #[serde(default)]
    if_none_match: Option<String>,
    #[serde(borrow, default)]
    resource_body: Option<&'a RawValue>,
    #[serde(default)]
    minimal_return_preference: Option<bool>,
}

/// The operations of a request, at most [`OPERATIONS_MAX`] of them.
struct Wires<'a> {
    operations: Vec<Wire<'a>>,
    too_many: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Wires<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Wires<'a>, D::Error> {
        deserializer.deserialize_seq(WiresVisitor)
    }
}

struct WiresVisitor;

impl<'de> Visitor<'de> for WiresVisitor {
    type Value = Wires<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of operations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Wires<'de>, A::Error> {
        let mut operations = Vec::new();
        while operations.len() < OPERATIONS_MAX {
            match sequence.next_element()? {
                Some(operation) => operations.push(operation),
                None => return Ok(Wires { operations, too_many: false }),
            }
        }
        let mut too_many = false;
        while sequence.next_element::<IgnoredAny>()?.is_some() {
            too_many = true;
        }
        Ok(Wires { operations, too_many })
    }
}

pub(super) fn decode(body: &[u8]) -> Result<Vec<Operation<'_>>, BatchError> {
    match body.trim_ascii_start().first() {
        None => return Ok(Vec::new()),
        Some(b'[') => {}
        Some(_) => return Err(BatchError::Json("it does not start with [".to_owned())),
    }
    let wires: Wires<'_> =
        serde_json::from_slice(body).map_err(|error| BatchError::Json(error.to_string()))?;
    if wires.too_many {
        return Err(BatchError::TooManyOperations);
    }
    wires.operations.into_iter().enumerate().map(|(index, wire)| operation(index, wire)).collect()
}

fn operation(index: usize, wire: Wire<'_>) -> Result<Operation<'_>, BatchError> {
    let kind = parse_kind(&wire.operation_type).ok_or_else(|| BatchError::Kind {
        index,
        kind: crate::error::shortened(&wire.operation_type, 100).to_owned(),
    })?;
    // A null counts as no body; a RawValue holds it as text.
    let body = wire.resource_body.map(RawValue::get).filter(|body| *body != "null");
    let partition_key = wire.partition_key.map(RawValue::get).filter(|key| *key != "null");
    let partition_key = partition_key
        .map(parse_partition_key)
        .transpose()
        .map_err(|problem| BatchError::PartitionKey { index, problem })?;
    let operation = Operation {
        kind,
        id: wire.id,
        partition_key,
        if_match: wire.if_match,
        if_none_match: wire.if_none_match,
        body: body.map(|body| Cow::Borrowed(body.as_bytes())),
        wants_minimal: wire.minimal_return_preference.unwrap_or(false),
        problem: None,
    };
    operation.checked(index)
}

fn parse_kind(text: &str) -> Option<OperationKind> {
    [
        ("Create", OperationKind::Create),
        ("Upsert", OperationKind::Upsert),
        ("Read", OperationKind::Read),
        ("Replace", OperationKind::Replace),
        ("Delete", OperationKind::Delete),
        ("Patch", OperationKind::Patch),
    ]
    .into_iter()
    .find(|(name, _)| name.eq_ignore_ascii_case(text))
    .map(|(_, kind)| kind)
}

/// Parses a partition key from its JSON, or from a string that holds that JSON.
fn parse_partition_key(json: &str) -> Result<PartitionKey, BadPartitionKey> {
    match serde_json::from_str::<String>(json) {
        Ok(text) => PartitionKey::parse(&text),
        Err(_) => PartitionKey::parse(json),
    }
}

pub(super) fn encode(results: &[OperationResult<'_>], out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_result(result, out);
    }
    out.push(b']');
}

fn write_result(result: &OperationResult<'_>, out: &mut Vec<u8>) {
    // Writing to a `Vec` does not fail.
    let _ = write!(out, "{{\"statusCode\":{}", result.status);
    if result.substatus != 0 {
        let _ = write!(out, ",\"subStatusCode\":{}", result.substatus);
    }
    let _ = write!(out, ",\"requestCharge\":{}", result.charge);
    if let Some(wait) = result.retry_after_ms {
        let _ = write!(out, ",\"retryAfterMilliseconds\":{wait}");
    }
    if let Some(etag) = result.etag {
        // Clients look for this spelling, with a capital T.
        out.extend_from_slice(b",\"eTag\":");
        let _ = serde_json::to_writer(&mut *out, etag);
    }
    if let Some(body) = result.body {
        out.extend_from_slice(b",\"resourceBody\":");
        out.extend_from_slice(body);
    }
    out.push(b'}');
}
