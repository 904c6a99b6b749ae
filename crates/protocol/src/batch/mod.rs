//! Several operations in one request: transactional batches and bulk.
//!
//! A request is a list of operations, an answer a list of results in the same order. There are two
//! forms, and the first byte of a request tells them apart: JSON (`json`), and HybridRow of the .NET
//! SDK (`rows`). An answer has the form of its request. Bodies stay bytes: they are slices of the
//! request, and results are copied into the answer as they are.
//!
//! ```text
//! [{"operationType":"Create","resourceBody":{…}},{"operationType":"Read","id":"1"}]
//! [{"statusCode":201,"requestCharge":6.67,"eTag":"\"…\"","resourceBody":{…}},…]
//! ```
//!
//! A batch is all or nothing: when one operation fails with its status, all others are 424 and the
//! whole answer is 207. In bulk each stands alone, and the answer is 207 as soon as one failed.

mod json;
mod rows;

use crate::charge::Charge;
use crate::error::Code;
use crate::hybridrow::{self, HybridRowError};
use headwater_model::{BadPartitionKey, PartitionKey};
use std::borrow::Cow;

/// The most operations in one request.
pub const OPERATIONS_MAX: usize = 100;

/// The form of a request and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// A JSON array.
    Json,
    /// Rows in the binary format of the .NET SDK.
    HybridRow,
}

impl Encoding {
    /// The form of a request, by its first byte: no header announces it.
    #[must_use]
    pub fn of(body: &[u8]) -> Encoding {
        if hybridrow::is_hybridrow(body) { Encoding::HybridRow } else { Encoding::Json }
    }

    /// The largest request, and the most that its binary items may unfold to. The .NET SDK splits bulk
    /// requests with its own idea of the limit in mind.
    #[must_use]
    pub const fn body_bytes_max(self) -> usize {
        match self {
            Encoding::Json => 2 * 1024 * 1024,
            Encoding::HybridRow => 2_202_010,
        }
    }
}

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
    /// The item, or the patch, as JSON. Only what was sent in binary JSON is not a slice of the request.
    pub body: Option<Cow<'a, [u8]>>,
    /// Do not send back what was written.
    pub wants_minimal: bool,
    /// Why this operation fails with 400, whatever the state of the item.
    pub problem: Option<String>,
}

impl Operation<'_> {
    /// Checks for the id and the body that its kind needs.
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

/// Why a whole request is refused. What is wrong with one operation's item shows when it runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// Larger than allowed.
    #[error("batch request is {bytes} bytes; send at most {bytes_max} at once")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
    },
    /// Binary JSON that stands for more than it may.
    #[error("the items of the batch are more than {bytes_max} bytes as text; send fewer at once")]
    TextTooLarge {
        /// How many bytes they may have.
        bytes_max: usize,
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
    /// Not a stream of rows.
    #[error("batch request is not HybridRow at operation {index}: {problem}")]
    HybridRow {
        /// Which operation, from 0.
        index: usize,
        /// What is wrong with it.
        problem: HybridRowError,
    },
    /// Not an operation on an item.
    #[error("operation {index} of the batch has resourceType {found}; only items (2) have batches")]
    ResourceType {
        /// Which operation, from 0.
        index: usize,
        /// Its type.
        found: i32,
    },
    /// No such kind.
    #[error("operation {index} of the batch has an unknown operationType: `{kind}`")]
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
            BatchError::TooLarge { .. } | BatchError::TextTooLarge { .. } => {
                Code::RequestEntityTooLarge
            }
            _ => Code::BadRequest,
        }
    }
}

/// Reads the operations of a batch or bulk request.
///
/// # Errors
/// When the request as a whole makes no sense or is too large.
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
    /// The item, or the error, as JSON.
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

/// Appends the body of the answer; returns the status of the answer.
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
        // Not a byte of an item is changed.
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

    /// How deep an item may be is decided where it is looked into.
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
