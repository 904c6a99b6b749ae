//! Transactional batches: several writes of one partition key, all or none.

use crate::container::Container;
use crate::error::{ClientError, Reason};
use crate::request::Request;
use bytes::Bytes;
use headwater_model::PartitionKey;
use headwater_protocol::headers;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Operations to execute together. Bodies are sent byte for byte.
#[derive(Clone, Debug)]
pub struct Batch {
    key: PartitionKey,
    json: Vec<u8>,
}

/// The result of a batch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchOutcome {
    /// Whether all operations were executed; otherwise none was.
    pub committed: bool,
    /// The results of the operations, in their order.
    pub operations: Vec<OperationOutcome>,
    /// The request charge.
    pub charge: f64,
}

/// The result of one operation of a batch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationOutcome {
    /// Why it failed. When one operation fails, the others report [`Reason::FailedDependency`].
    pub failed: Option<Reason>,
    /// The item's etag.
    pub etag: Option<String>,
    /// The item, if the operation returns one.
    pub body: Bytes,
}

impl Batch {
    /// Creates an empty batch for one partition key.
    #[must_use]
    pub fn new(key: PartitionKey) -> Batch {
        Batch { key, json: b"[".to_vec() }
    }

    /// Creates an item.
    #[must_use]
    pub fn create(self, body: &[u8]) -> Batch {
        self.push("Create", None, Some(body), None)
    }

    /// Creates an item, or replaces it if it exists.
    #[must_use]
    pub fn upsert(self, body: &[u8]) -> Batch {
        self.push("Upsert", None, Some(body), None)
    }

    /// Replaces an item, optionally only at an etag.
    #[must_use]
    pub fn replace(self, id: &str, body: &[u8], if_match: Option<&str>) -> Batch {
        self.push("Replace", Some(id), Some(body), if_match)
    }

    /// Changes parts of an item, optionally only at an etag.
    #[must_use]
    pub fn patch(self, id: &str, operations: &[u8], if_match: Option<&str>) -> Batch {
        self.push("Patch", Some(id), Some(operations), if_match)
    }

    /// Reads an item.
    #[must_use]
    pub fn read(self, id: &str) -> Batch {
        self.push("Read", Some(id), None, None)
    }

    /// Deletes an item, optionally only at an etag.
    #[must_use]
    pub fn delete(self, id: &str, if_match: Option<&str>) -> Batch {
        self.push("Delete", Some(id), None, if_match)
    }

    fn push(
        mut self,
        kind: &str,
        id: Option<&str>,
        body: Option<&[u8]>,
        if_match: Option<&str>,
    ) -> Batch {
        if self.json.len() > 1 {
            self.json.push(b',');
        }
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut head = format!(r#"{{"operationType":"{kind}""#);
        for (name, value) in [("id", id), ("ifMatch", if_match)] {
            if let Some(value) = value {
                head.push_str(&format!(r#","{name}":{}"#, quoted(value)));
            }
        }
        self.json.extend_from_slice(head.as_bytes());
        if let Some(body) = body {
            self.json.extend_from_slice(br#","resourceBody":"#);
            self.json.extend_from_slice(body);
        }
        self.json.push(b'}');
        self
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome<'a> {
    status_code: u16,
    #[serde(default)]
    sub_status_code: u32,
    #[serde(default, rename = "eTag")]
    etag: Option<String>,
    #[serde(default, borrow)]
    resource_body: Option<&'a RawValue>,
}

impl Container {
    /// Executes a batch: all of it or nothing.
    ///
    /// # Errors
    /// When the batch as a whole is refused; a failed operation is part of the outcome.
    pub async fn batch(&self, batch: Batch) -> Result<BatchOutcome, ClientError> {
        let mut json = batch.json;
        json.push(b']');
        let request = Request::new(Method::POST, &self.items_route())
            .body(json)
            .header(headers::PARTITION_KEY, &batch.key)
            .header(headers::IS_BATCH, "True")
            .header(headers::BATCH_ATOMIC, "True")
            .header(headers::BATCH_ORDERED, "True");
        let answer = self.send(request).await?;
        let parsed: Vec<Outcome<'_>> = serde_json::from_slice(&answer.body).map_err(|error| {
            self.client().bad_answer(format!("the results of the batch are malformed ({error})"))
        })?;
        let operations = parsed.into_iter().map(|outcome| OperationOutcome {
            failed: (outcome.status_code >= 400)
                .then(|| Reason::of(outcome.status_code, outcome.sub_status_code)),
            etag: outcome.etag,
            body: outcome
                .resource_body
                .map(|body| answer.body.slice_ref(body.get().as_bytes()))
                .unwrap_or_default(),
        });
        let operations: Vec<OperationOutcome> = operations.collect();
        let committed = operations.iter().all(|operation| operation.failed.is_none());
        Ok(BatchOutcome { committed, operations, charge: answer.charge() })
    }
}
