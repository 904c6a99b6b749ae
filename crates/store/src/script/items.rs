//! Gives a script access to the items of its transaction.

use super::UserScripts;
use crate::body::BodyError;
use crate::container::Container;
use crate::error::WriteError;
use crate::item::ItemWrite;
use crate::transaction::{ItemView, QueryTrouble, Transaction, Trouble};
use bytes::Bytes;
use headwater_query::{Limits, Query, Value};
use headwater_script::{Collection, OperationError, Page, PageRequest, Reason, Stored, Target};
use serde::Deserialize;
use std::sync::Arc;

/// Memory limit of a query inside a script. Lower than that of other queries, since several scripts run at a time.
const QUERY_MEMORY_BYTES: usize = 32 << 20;

/// The collection that a script works on, backed by a transaction.
pub(super) struct Items {
    pub(super) transaction: Transaction,
    /// The problem that stopped the script, if one did.
    pub(super) trouble: Option<Trouble>,
    container: Container,
    links: (String, String),
    functions: Option<Arc<UserScripts>>,
}

/// The part of an item that shows whether it has an id.
#[derive(Deserialize)]
struct IdProbe {
    id: Option<serde::de::IgnoredAny>,
}

impl Items {
    pub(super) fn new(
        container: &Container,
        links: (String, String),
        transaction: Transaction,
        functions: Option<Arc<UserScripts>>,
    ) -> Items {
        Items { transaction, trouble: None, container: container.clone(), links, functions }
    }

    fn id_of(&mut self, target: &Target) -> Result<String, OperationError> {
        match target {
            Target::Id(id) => Ok(id.clone()),
            Target::Rid(rid) => {
                let found = self.transaction.id_of(rid);
                found.map_err(|trouble| self.error(trouble))
            }
        }
    }

    fn write(&mut self, write: ItemWrite) -> Result<Option<Stored>, OperationError> {
        let written = self.transaction.write(write);
        written.map(|seen| seen.map(stored)).map_err(|trouble| self.error(trouble))
    }

    fn put(&mut self, write: ItemWrite) -> Result<Stored, OperationError> {
        let gone = || OperationError::bad_request("the write produced no item");
        self.write(write)?.ok_or_else(gone)
    }

    /// The error to return to the script. A problem that the script cannot handle is recorded and stops it.
    fn error(&mut self, trouble: Trouble) -> OperationError {
        match trouble {
            Trouble::Refused(error) => {
                let reason = reason_of(&error);
                OperationError::Refused { reason, message: message_of(&error) }
            }
            Trouble::Full => OperationError::NotAccepted,
            lost => {
                self.trouble = Some(lost);
                OperationError::Stop
            }
        }
    }

    /// Returns the body with its id, or with a new id if it has none and `generate_id` is set.
    fn with_id(&self, body: &str, generate_id: bool) -> Result<String, OperationError> {
        let has_none = serde_json::from_str::<IdProbe>(body).is_ok_and(|named| named.id.is_none());
        let Some(members) = body.strip_prefix('{').filter(|_| has_none) else {
            return Ok(body.to_owned());
        };
        if !generate_id {
            return Err(OperationError::bad_request("the item has no id; give it one"));
        }
        let id = self.transaction.new_id();
        let comma = if members.trim_start().starts_with('}') { "" } else { "," };
        Ok(format!("{{\"id\":\"{id}\"{comma}{members}"))
    }

    fn parse(request: &PageRequest<'_>, text: &str) -> Result<Query, OperationError> {
        let mut parameters = Vec::with_capacity(request.parameters.len());
        for (name, json) in &request.parameters {
            let value = match json {
                None => Value::Undefined,
                Some(json) => Value::from_json(json.as_bytes()).map_err(|error| {
                    OperationError::bad_request(format!("parameter {name}: {error}"))
                })?,
            };
            parameters.push((name.clone(), value));
        }
        let mut limits = Limits::default();
        limits.memory_bytes = QUERY_MEMORY_BYTES;
        Query::parse_within(text, &parameters, &limits)
            .map_err(|error| OperationError::bad_request(error.to_string()))
    }
}

impl Collection for Items {
    fn links(&self) -> (String, String) {
        self.links.clone()
    }

    fn create(&mut self, body: &str, generate_id: bool) -> Result<Stored, OperationError> {
        let body = self.with_id(body, generate_id)?;
        self.put(ItemWrite::create(body))
    }

    fn upsert(
        &mut self,
        body: &str,
        generate_id: bool,
        etag: Option<&str>,
    ) -> Result<Stored, OperationError> {
        let body = self.with_id(body, generate_id)?;
        self.put(conditional(ItemWrite::upsert(body), etag))
    }

    fn replace(
        &mut self,
        target: &Target,
        body: &str,
        etag: Option<&str>,
    ) -> Result<Stored, OperationError> {
        let id = self.id_of(target)?;
        self.put(conditional(ItemWrite::replace(&id, body.to_owned()), etag))
    }

    fn delete(&mut self, target: &Target, etag: Option<&str>) -> Result<(), OperationError> {
        let id = self.id_of(target)?;
        let write = ItemWrite::delete(self.transaction.partition_key(), &id);
        self.write(conditional(write, etag)).map(|_| ())
    }

    fn read(&mut self, target: &Target) -> Result<Stored, OperationError> {
        let id = self.id_of(target)?;
        let found = self.transaction.read(&id).map_err(|trouble| self.error(trouble))?;
        let missing = || Trouble::Refused(WriteError::NotFound { id: id.clone() });
        found.map(stored).ok_or_else(|| self.error(missing()))
    }

    fn query(&mut self, request: &PageRequest<'_>) -> Result<Page, OperationError> {
        let query = request.query.map(|text| Items::parse(request, text)).transpose()?;
        let functions = self.functions.clone();
        let watch = self.transaction.watch();
        let query =
            query.as_ref().map(|query| (query, self.container.query_context(functions, watch)));
        let most = usize::try_from(request.page_size).unwrap_or(usize::MAX);
        let found = self.transaction.query(query, request.continuation, most);
        let (rows, continuation) = found.map_err(|trouble| match trouble {
            QueryTrouble::Evaluation(error) => OperationError::bad_request(error.to_string()),
            QueryTrouble::BadContinuation => OperationError::bad_request(
                "the continuation is not valid for this query; start again without it",
            ),
            QueryTrouble::Other(trouble) => self.error(trouble),
        })?;
        Ok(Page { rows: array_of(&rows), continuation })
    }
}

fn conditional(write: ItemWrite, etag: Option<&str>) -> ItemWrite {
    match etag {
        Some(etag) => write.if_match(etag),
        None => write,
    }
}

fn stored(seen: ItemView) -> Stored {
    let json = String::from_utf8_lossy(&seen.json).into_owned();
    Stored { json, etag: seen.etag.to_string() }
}

fn array_of(rows: &[Bytes]) -> String {
    let mut text = String::with_capacity(rows.iter().map(|row| row.len() + 1).sum::<usize>() + 2);
    text.push('[');
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push_str(&String::from_utf8_lossy(row));
    }
    text.push(']');
    text
}

fn reason_of(error: &WriteError) -> Reason {
    match error {
        WriteError::Body(BodyError::TooLarge { .. }) => Reason::TooLarge,
        WriteError::AlreadyExists { .. } | WriteError::UniqueKey { .. } => Reason::Conflict,
        WriteError::NotFound { .. } | WriteError::ContainerGone => Reason::NotFound,
        WriteError::EtagMismatch { .. } => Reason::PreconditionFailed,
        WriteError::Storage(_) => Reason::Internal,
        _ => Reason::BadRequest,
    }
}

fn message_of(error: &WriteError) -> String {
    match error {
        WriteError::AlreadyExists { .. } | WriteError::UniqueKey { .. } => {
            format!("Resource with specified id or name already exists: {error}")
        }
        WriteError::NotFound { .. } => format!("Resource Not Found: {error}"),
        WriteError::PartitionKeyMismatch { .. } => format!(
            "Requests originating from scripts cannot reference partition keys other than the one \
             for which client request was submitted: {error}"
        ),
        WriteError::EtagMismatch { .. } => {
            format!("One of the specified pre-condition is not met: {error}")
        }
        other => other.to_string(),
    }
}
