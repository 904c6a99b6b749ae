//! Decodes and encodes requests with several operations: transactional batches and bulk.
//!
//! A request is a list of operations; the response is a list of results in the same order. There are
//! two encodings, told apart by the first byte of the request: JSON (`json`), and HybridRow of the .NET
//! SDK (`rows`). A response has the encoding of its request. Bodies are not parsed: they are slices of
//! the request, and results are copied into the response unchanged.
//!
//! ```text
//! [{"operationType":"Create","resourceBody":{…}},{"operationType":"Read","id":"1"}]
//! [{"statusCode":201,"requestCharge":6.67,"eTag":"\"…\"","resourceBody":{…}},…]
//! ```
//!
//! A batch is all or nothing: when one operation fails with its status, all others get 424 and the
//! response is 207. In bulk, operations are independent; the response is 207 if any of them failed.

mod json;
mod rows;

use crate::charge::Charge;
use crate::error::Code;
use crate::hybridrow::{self, HybridRowError};
use headwater_model::{BadPartitionKey, PartitionKey};
use std::borrow::Cow;

/// The maximum number of operations in one request.
pub const OPERATIONS_MAX: usize = 100;

/// The encoding of a request and of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// A JSON array.
    Json,
    /// Rows in the binary format of the .NET SDK.
    HybridRow,
}

impl Encoding {
    /// Detects the encoding of a request by its first byte; no header announces it.
    #[must_use]
    pub fn of(body: &[u8]) -> Encoding {
        if hybridrow::is_hybridrow(body) { Encoding::HybridRow } else { Encoding::Json }
    }

    /// The largest request in bytes, also the limit for its binary items as JSON text. The .NET SDK splits
    /// bulk requests by its own, slightly higher limit.
    #[must_use]
    pub const fn body_bytes_max(self) -> usize {
        match self {
            Encoding::Json => 2 * 1024 * 1024,
            Encoding::HybridRow => 2_202_010,
        }
    }
}

/// The kind of an operation.
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
    fn needs_id(self) -> bool {
        !matches!(self, OperationKind::Create | OperationKind::Upsert)
    }

    fn needs_body(self) -> bool {
        !matches!(self, OperationKind::Read | OperationKind::Delete)
    }
}

/// One operation. It has the id and the body that its kind requires.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation<'a> {
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The item's id, for kinds whose body does not contain it.
    pub id: Option<String>,
    /// The partition key; only bulk requests have one per operation.
    pub partition_key: Option<PartitionKey>,
    /// Runs only if the item has this etag.
    pub if_match: Option<String>,
    /// Runs only if the item does not have this etag.
    pub if_none_match: Option<String>,
    /// The item, or the patch, as JSON: a slice of the request, unless it was sent as binary JSON.
    pub body: Option<Cow<'a, [u8]>>,
    /// Whether the response should omit the written item.
    pub wants_minimal: bool,
    /// Why this operation fails with 400 regardless of the item's state.
    pub problem: Option<String>,
}

impl Operation<'_> {
    /// Checks that the id and the body are there if the kind requires them.
    fn checked(self, index: usize) -> Result<Self, BatchError> {
        if self.kind.needs_id() && self.id.is_none() {
            return Err(BatchError::Missing { index, property: "id" });
        }
        if self.kind.needs_body() && self.body.is_none() {
            return Err(BatchError::Missing { index, property: "resourceBody" });
        }
        Ok(self)
    }
}

/// Why a whole request is refused. Errors in a single item appear in that operation's result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The request is larger than allowed.
    #[error("batch request is {bytes} bytes; send at most {bytes_max} at once")]
    TooLarge {
        /// The size of the request.
        bytes: usize,
        /// The largest allowed size.
        bytes_max: usize,
    },
    /// The binary items are larger than allowed once decoded to text.
    #[error("the items of the batch exceed {bytes_max} bytes as text; send fewer at once")]
    TextTooLarge {
        /// The largest allowed size of all decoded items together.
        bytes_max: usize,
    },
    /// The request has no operations.
    #[error("Batch request has no operations.")]
    Empty,
    /// The request has more than [`OPERATIONS_MAX`] operations.
    #[error("Batch request has more operations than what is supported.")]
    TooManyOperations,
    /// The body is not a JSON array of operations.
    #[error("batch request is not a JSON array of operations: {0}")]
    Json(String),
    /// The body is not a stream of HybridRow records.
    #[error("batch request is not HybridRow at operation {index}: {problem}")]
    HybridRow {
        /// Index of the operation, from 0.
        index: usize,
        /// What is wrong with the row.
        problem: HybridRowError,
    },
    /// The operation targets something other than an item.
    #[error("operation {index} of the batch has resourceType {found}; only items (2) have batches")]
    ResourceType {
        /// Index of the operation, from 0.
        index: usize,
        /// The resource type that was sent.
        found: i32,
    },
    /// The operation type does not exist.
    #[error("operation {index} of the batch has an unknown operationType: `{kind}`")]
    Kind {
        /// Index of the operation, from 0.
        index: usize,
        /// The operation type that was sent, shortened.
        kind: String,
    },
    /// The operation lacks a property that its kind requires.
    #[error("operation {index} of the batch has no {property}; add it")]
    Missing {
        /// Index of the operation, from 0.
        index: usize,
        /// Name of the missing property.
        property: &'static str,
    },
    /// The operation's partition key is invalid.
    #[error("operation {index} of the batch: {problem}")]
    PartitionKey {
        /// Index of the operation, from 0.
        index: usize,
        /// What is wrong with the partition key.
        problem: BadPartitionKey,
    },
}

impl BatchError {
    /// The status code of the whole response.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            BatchError::TooLarge { .. } | BatchError::TextTooLarge { .. } => {
                Code::RequestEntityTooLarge
            }
            _ => Code::BadRequest,
        }
    }
}

/// Decodes the operations of a batch or bulk request.
///
/// # Errors
/// When the request as a whole is malformed or too large.
pub fn decode(body: &[u8]) -> Result<Vec<Operation<'_>>, BatchError> {
    let encoding = Encoding::of(body);
    let (bytes, bytes_max) = (body.len(), encoding.body_bytes_max());
    if bytes > bytes_max {
        return Err(BatchError::TooLarge { bytes, bytes_max });
    }
    let operations = match encoding {
        Encoding::Json => json::decode(body)?,
        Encoding::HybridRow => rows::decode(body)?,
    };
    if operations.is_empty() { Err(BatchError::Empty) } else { Ok(operations) }
}

/// The result of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationResult<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The sub-status, or 0.
    pub substatus: u32,
    /// The request charge.
    pub charge: Charge,
    /// The etag of the item, with its quotes.
    pub etag: Option<&'a str>,
    /// The item, or the error, as JSON.
    pub body: Option<&'a [u8]>,
    /// How long to wait before a retry, in milliseconds.
    pub retry_after_ms: Option<u32>,
}

impl OperationResult<'_> {
    /// Creates a result without an item.
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

    /// Creates the result of an operation that failed with this code.
    #[must_use]
    pub fn of_code(code: Code) -> OperationResult<'static> {
        let substatus = code.substatus();
        OperationResult { substatus, ..OperationResult::of_status(code.status()) }
    }

    fn failed(&self) -> bool {
        self.status >= 400
    }
}

/// Builds the results of a batch that was rolled back because the operation at `index` failed: its own
/// failure there, 424 everywhere else.
#[must_use]
pub fn undone<'a>(
    operations: usize,
    index: usize,
    failure: OperationResult<'a>,
) -> Vec<OperationResult<'a>> {
    let other = OperationResult::of_code(Code::FailedDependency);
    (0..operations).map(|at| if at == index { failure } else { other }).collect()
}

/// Appends the body of the response and returns its status.
#[must_use]
pub fn encode(encoding: Encoding, results: &[OperationResult<'_>], out: &mut Vec<u8>) -> u16 {
    match encoding {
        Encoding::Json => json::encode(results, out),
        Encoding::HybridRow => rows::encode(results, out),
    }
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
        // Items pass byte for byte.
        assert_eq!(operations[0].body.as_deref(), Some(br#"{"id":"1","n":1.50}"#.as_slice()));
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
        let large = vec![b' '; Encoding::Json.body_bytes_max() + 1];
        assert_eq!(decode(&large).unwrap_err().code(), Code::RequestEntityTooLarge);
    }

    /// Item bodies are not parsed here, so their nesting is not limited here either.
    #[test]
    fn deep_items_pass_as_bytes_and_deep_requests_do_not() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = format!(r#"[{{"operationType":"Create","resourceBody":{deep}}}]"#);
        assert_eq!(decode(body.as_bytes()).unwrap()[0].body.as_deref(), Some(deep.as_bytes()));
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
        assert_eq!(
            encode(Encoding::Json, &[created, OperationResult::of_status(304)], &mut out),
            200
        );
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
        assert_eq!(encode(Encoding::Json, &undone(3, 1, failure), &mut out), 207);
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
