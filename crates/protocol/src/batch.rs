//! Several operations in one request: transactional batches and bulk.
//!
//! Both are a JSON array of operations and an array of results in the same order. Bodies stay bytes:
//! they are cut out of the request as they are, and results are copied into the answer as they are.
//!
//! ```text
//! [{"operationType":"Create","resourceBody":{…}},{"operationType":"Read","id":"1"}]
//! [{"statusCode":201,"requestCharge":6.67,"eTag":"\"…\"","resourceBody":{…}},…]
//! ```
//!
//! A batch is all or nothing: when one operation fails with its status, all others are 424 and the
//! whole answer is 207. In bulk each stands alone, and the answer is 207 as soon as one failed. SDKs
//! of .NET send a binary form instead, which is refused with a message that says so.

use crate::charge::Charge;
use crate::error::Code;
use headwater_model::{BadPartitionKey, PartitionKey};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::io::Write as _;

/// The most operations in one request.
pub const OPERATIONS_MAX: usize = 100;

/// The largest request.
pub const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// Create an item.
    Create,
    /// Create or replace an item.
    Upsert,
    /// Read an item.
    Read,
    /// Replace an item.
    Replace,
    /// Delete an item.
    Delete,
    /// Change parts of an item.
    Patch,
}

impl OperationKind {
    fn parse(text: &str) -> Option<OperationKind> {
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

    fn needs_id(self) -> bool {
        !matches!(self, OperationKind::Create | OperationKind::Upsert)
    }

    fn needs_body(self) -> bool {
        !matches!(self, OperationKind::Read | OperationKind::Delete)
    }
}

/// One operation. It has the id and the body its kind needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation<'a> {
    /// What it does.
    pub kind: OperationKind,
    /// The item, where the body does not name it.
    pub id: Option<String>,
    /// The partition key, in bulk requests.
    pub partition_key: Option<PartitionKey>,
    /// Only if the item is at this etag.
    pub if_match: Option<String>,
    /// Only if the item is not at this etag.
    pub if_none_match: Option<String>,
    /// The item, or the patch, as it was sent.
    pub body: Option<&'a [u8]>,
    /// Do not send back what was written.
    pub wants_minimal: bool,
}

/// Why a whole request is refused. What is wrong with one operation's item shows when it runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The binary form of .NET.
    #[error(
        "the batch is in HybridRow, which is not supported here; send a JSON array of operations, \
         or the operations one by one"
    )]
    HybridRow,
    /// Larger than allowed.
    #[error("batch request is {bytes} bytes; send at most {BODY_BYTES_MAX} at once")]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// Nothing to do.
    #[error("Batch request has no operations.")]
    Empty,
    /// More than allowed.
    #[error("Batch request has more operations than what is supported.")]
    TooManyOperations,
    /// Not an array of operations.
    #[error("batch request is not a JSON array of operations: {0}")]
    Json(String),
    /// No such kind.
    #[error("operation {index} of the batch has an operationType there is not: `{kind}`")]
    Kind {
        /// Which operation, from 0.
        index: usize,
        /// The beginning of what it said.
        kind: String,
    },
    /// Lacks what its kind needs.
    #[error("operation {index} of the batch has no {property}; add it")]
    Missing {
        /// Which operation, from 0.
        index: usize,
        /// What is missing.
        property: &'static str,
    },
    /// Not a partition key.
    #[error("operation {index} of the batch: {problem}")]
    PartitionKey {
        /// Which operation, from 0.
        index: usize,
        /// What is wrong with it.
        problem: BadPartitionKey,
    },
}

impl BatchError {
    /// The status the whole request is answered with.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            BatchError::TooLarge { .. } => Code::RequestEntityTooLarge,
            _ => Code::BadRequest,
        }
    }
}

/// An operation as it is written.
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

/// The operations as they are written, never more than are allowed.
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

/// Reads the operations of a batch or bulk request.
///
/// # Errors
/// When the request as a whole makes no sense or is too large.
pub fn decode(body: &[u8]) -> Result<Vec<Operation<'_>>, BatchError> {
    if body.len() > BODY_BYTES_MAX {
        return Err(BatchError::TooLarge { bytes: body.len() });
    }
    match body.trim_ascii_start().first() {
        None => return Err(BatchError::Empty),
        Some(b'[') => {}
        // An object or a string is somebody's mistake in JSON; the binary form starts with 0x81.
        Some(byte) if byte.is_ascii_graphic() => {
            return Err(BatchError::Json("it does not start with [".to_owned()));
        }
        Some(_) => return Err(BatchError::HybridRow),
    }
    let wires: Wires<'_> =
        serde_json::from_slice(body).map_err(|error| BatchError::Json(error.to_string()))?;
    if wires.too_many {
        return Err(BatchError::TooManyOperations);
    }
    if wires.operations.is_empty() {
        return Err(BatchError::Empty);
    }
    wires.operations.into_iter().enumerate().map(|(index, wire)| operation(index, wire)).collect()
}

fn operation(index: usize, wire: Wire<'_>) -> Result<Operation<'_>, BatchError> {
    let kind = OperationKind::parse(&wire.operation_type).ok_or_else(|| BatchError::Kind {
        index,
        kind: crate::error::shortened(&wire.operation_type, 100).to_owned(),
    })?;
    // A null is the same as no body: a RawValue keeps it as text.
    let body = wire.resource_body.map(RawValue::get).filter(|body| *body != "null");
    if kind.needs_id() && wire.id.is_none() {
        return Err(BatchError::Missing { index, property: "id" });
    }
    if kind.needs_body() && body.is_none() {
        return Err(BatchError::Missing { index, property: "resourceBody" });
    }
    let partition_key = wire.partition_key.map(RawValue::get).filter(|key| *key != "null");
    let partition_key = partition_key
        .map(parse_partition_key)
        .transpose()
        .map_err(|problem| BatchError::PartitionKey { index, problem })?;
    Ok(Operation {
        kind,
        id: wire.id,
        partition_key,
        if_match: wire.if_match,
        if_none_match: wire.if_none_match,
        body: body.map(str::as_bytes),
        wants_minimal: wire.minimal_return_preference.unwrap_or(false),
    })
}

/// A string that holds the JSON of a key, or that JSON itself.
fn parse_partition_key(json: &str) -> Result<PartitionKey, BadPartitionKey> {
    match serde_json::from_str::<String>(json) {
        Ok(text) => PartitionKey::parse(&text),
        Err(_) => PartitionKey::parse(json),
    }
}

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationResult<'a> {
    /// Its status.
    pub status: u16,
    /// Its sub-status, or 0.
    pub substatus: u32,
    /// What it cost.
    pub charge: Charge,
    /// The etag of the item, with its quotes.
    pub etag: Option<&'a str>,
    /// The item, as JSON.
    pub body: Option<&'a [u8]>,
    /// When to try it again.
    pub retry_after_ms: Option<u32>,
}

impl OperationResult<'_> {
    /// A result without an item.
    #[must_use]
    pub fn of_status(status: u16) -> OperationResult<'static> {
        OperationResult {
            status,
            substatus: 0,
            charge: Charge::ZERO,
            etag: None,
            body: None,
            retry_after_ms: None,
        }
    }

    /// An operation that failed by itself.
    #[must_use]
    pub fn of_code(code: Code) -> OperationResult<'static> {
        let substatus = code.substatus();
        OperationResult { substatus, ..OperationResult::of_status(code.status()) }
    }

    fn failed(&self) -> bool {
        self.status >= 400
    }

    fn write_into(&self, out: &mut Vec<u8>) {
        // Writing into a vector does not fail.
        let _ = write!(out, "{{\"statusCode\":{}", self.status);
        if self.substatus != 0 {
            let _ = write!(out, ",\"subStatusCode\":{}", self.substatus);
        }
        let _ = write!(out, ",\"requestCharge\":{}", self.charge);
        if let Some(wait) = self.retry_after_ms {
            let _ = write!(out, ",\"retryAfterMilliseconds\":{wait}");
        }
        if let Some(etag) = self.etag {
            // The capital T is what clients look for.
            out.extend_from_slice(b",\"eTag\":");
            let _ = serde_json::to_writer(&mut *out, etag);
        }
        if let Some(body) = self.body {
            out.extend_from_slice(b",\"resourceBody\":");
            out.extend_from_slice(body);
        }
        out.push(b'}');
    }
}

/// The results of a batch that was undone because the operation at `index` failed: its own status
/// there, 424 everywhere else.
#[must_use]
pub fn undone<'a>(
    operations: usize,
    index: usize,
    failure: OperationResult<'a>,
) -> Vec<OperationResult<'a>> {
    let other = OperationResult::of_code(Code::FailedDependency);
    (0..operations).map(|at| if at == index { failure } else { other }).collect()
}

/// Appends the body of the answer; says which status the answer has.
#[must_use]
pub fn encode(results: &[OperationResult<'_>], out: &mut Vec<u8>) -> u16 {
    out.push(b'[');
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        result.write_into(out);
    }
    out.push(b']');
    if results.iter().any(OperationResult::failed) { 207 } else { 200 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(body: &str) -> Result<Vec<OperationKind>, BatchError> {
        Ok(decode(body.as_bytes())?.into_iter().map(|operation| operation.kind).collect())
    }

    #[test]
    fn operations_as_clients_send_them() {
        let body = r#" [
            {"operationType":"Create","resourceBody":{"id":"1","n":1.50}},
            {"operationType":"Upsert","resourceBody":{"id":"2"},"ifMatch":"x"},
            {"operationType":"Read","id":"1","ifNoneMatch":"\"e\""},
            {"operationType":"Replace","id":"1","resourceBody":{},"partitionKey":"[\"a\"]"},
            {"operationType":"Delete","id":"1","partitionKey":["a"],"resourceBody":null},
            {"operationType":"Patch","id":"1","resourceBody":{"operations":[]},"unknown":[1]}]"#;
        let operations = decode(body.as_bytes()).unwrap();
        let kinds: Vec<_> = operations.iter().map(|operation| operation.kind).collect();
        use OperationKind::{Create, Delete, Patch, Read, Replace, Upsert};
        assert_eq!(kinds, [Create, Upsert, Read, Replace, Delete, Patch]);
        // Not a byte of an item is changed.
        assert_eq!(operations[0].body, Some(br#"{"id":"1","n":1.50}"#.as_slice()));
        assert_eq!(operations[1].if_match.as_deref(), Some("x"));
        assert_eq!(operations[2].if_none_match.as_deref(), Some("\"e\""));
        assert_eq!(operations[3].partition_key, Some(PartitionKey::from("a")));
        assert_eq!(operations[4].partition_key, Some(PartitionKey::from("a")));
        assert_eq!(operations[4].body, None);
    }

    #[test]
    fn undefined_null_and_empty_keys_stay_apart() {
        for (key, expected) in [("[{}]", "[{}]"), ("[null]", "[null]"), ("[]", "[]")] {
            let body = format!(r#"[{{"operationType":"Delete","id":"1","partitionKey":"{key}"}}]"#);
            let operations = decode(body.as_bytes()).unwrap();
            assert_eq!(operations[0].partition_key.as_ref().unwrap().to_json(), expected);
        }
    }

    #[test]
    fn whole_requests_that_are_refused() {
        let many =
            |count| format!("[{}]", vec![r#"{"operationType":"Read","id":"1"}"#; count].join(","));
        for (body, message) in [
            ("", "Batch request has no operations."),
            ("[]", "Batch request has no operations."),
            (&many(101), "Batch request has more operations than what is supported."),
            ("{}", "does not start with ["),
            ("[1]", "not a JSON array of operations"),
            ("[{}]", "operationType"),
            ("[", "not a JSON array of operations"),
            (r#"[{"operationType":"Drop","id":"1"}]"#, "`Drop`"),
            (r#"[{"operationType":"Read"}]"#, "operation 0 of the batch has no id"),
            (r#"[{"operationType":"Create"}]"#, "has no resourceBody"),
            (r#"[{"operationType":"Create","resourceBody":null}]"#, "has no resourceBody"),
            (r#"[{"operationType":"Read","id":"1","partitionKey":"x"}]"#, "operation 0"),
        ] {
            let refused = kinds(body).unwrap_err();
            assert!(refused.to_string().contains(message), "{body}: {refused}");
            assert_eq!(refused.code(), Code::BadRequest);
        }
        assert_eq!(kinds(&many(100)).unwrap().len(), 100);
        let large = vec![b' '; BODY_BYTES_MAX + 1];
        assert_eq!(decode(&large).unwrap_err().code(), Code::RequestEntityTooLarge);
    }

    #[test]
    fn the_binary_form_is_refused_with_a_reason() {
        let refused = decode(&[0x81, 1, 2, 3]).unwrap_err();
        assert_eq!(refused, BatchError::HybridRow);
        assert!(refused.to_string().contains("HybridRow") && refused.code().status() == 400);
    }

    /// How deep an item may be is decided where it is looked into.
    #[test]
    fn deep_items_pass_as_bytes_and_deep_requests_do_not() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = format!(r#"[{{"operationType":"Create","resourceBody":{deep}}}]"#);
        assert_eq!(decode(body.as_bytes()).unwrap()[0].body, Some(deep.as_bytes()));
        assert!(decode(deep.as_bytes()).is_err());
    }

    #[test]
    fn results() {
        let created = OperationResult {
            charge: Charge::from_hundredths(667),
            etag: Some("\"e\""),
            body: Some(b"{\"n\":1.50}"),
            ..OperationResult::of_status(201)
        };
        let mut out = Vec::new();
        assert_eq!(encode(&[created, OperationResult::of_status(304)], &mut out), 200);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "[{\"statusCode\":201,\"requestCharge\":6.67,\"eTag\":\"\\\"e\\\"\",\
             \"resourceBody\":{\"n\":1.50}},{\"statusCode\":304,\"requestCharge\":0}]"
        );
    }

    #[test]
    fn one_failure_undoes_the_batch() {
        let mut out = Vec::new();
        let failure = OperationResult::of_code(Code::Conflict);
        assert_eq!(encode(&undone(3, 1, failure), &mut out), 207);
        let results: Vec<serde_json::Value> = serde_json::from_slice(&out).unwrap();
        let statuses: Vec<_> = results.iter().map(|result| result["statusCode"].clone()).collect();
        assert_eq!(statuses, [424, 409, 424]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn json_like_texts_do_not_panic(
            text in "\\[(\\{|\\}|\\[|\\]|,|:|\"operationType\"|\"Create\"|\"id\"|\"resourceBody\"|\"partitionKey\"|null|1|\"\\[\\]\"){0,30}"
        ) {
            let _ = decode(text.as_bytes());
        }
    }
}
