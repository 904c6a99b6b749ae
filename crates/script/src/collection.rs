//! The items that a script works on: those of one logical partition, behind a trait, so that this crate
//! does not depend on a store.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The items of one logical partition, including all changes the script has made so far.
///
/// Items go in and out as JSON text. A refused write changes nothing.
pub trait Collection: Send + 'static {
    /// Links of the collection: by resource ids, with a trailing slash, and by names, without one.
    fn links(&self) -> (String, String);

    /// Creates an item. If it has no id, `generate_id` decides whether it gets one.
    fn create(&mut self, body: &str, generate_id: bool) -> Result<Stored, OperationError>;

    /// Creates an item, or replaces it if it exists and has this etag.
    fn upsert(
        &mut self,
        body: &str,
        generate_id: bool,
        etag: Option<&str>,
    ) -> Result<Stored, OperationError>;

    /// Replaces an item.
    fn replace(
        &mut self,
        target: &Target,
        body: &str,
        etag: Option<&str>,
    ) -> Result<Stored, OperationError>;

    /// Deletes an item.
    fn delete(&mut self, target: &Target, etag: Option<&str>) -> Result<(), OperationError>;

    /// Reads an item.
    fn read(&mut self, target: &Target) -> Result<Stored, OperationError>;

    /// Reads a page of a query, or of all items.
    fn query(&mut self, request: &PageRequest<'_>) -> Result<Page, OperationError>;
}

/// Identifies an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The item with this id.
    Id(String),
    /// The item with this resource id, or else with this id.
    Rid(String),
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The item as JSON, system properties included.
    pub json: String,
    /// Its etag, as in the item.
    pub etag: String,
}

/// A script's request for a page of items or query results.
#[derive(Clone, Debug)]
pub struct PageRequest<'a> {
    /// The query; `None` for all items.
    pub query: Option<&'a str>,
    /// Parameters: names with their `@`, and values as JSON.
    pub parameters: Vec<(String, Option<&'a str>)>,
    /// The continuation of the previous page.
    pub continuation: Option<&'a str>,
    /// The most results of the page.
    pub page_size: u32,
}

/// A page of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The results as a JSON array.
    pub rows: String,
    /// The continuation of the next page; `None` at the end.
    pub continuation: Option<String>,
}

/// Why a collection did not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationError {
    /// The operation is refused; the script receives the error and may continue.
    Refused {
        /// The kind of refusal.
        reason: Reason,
        /// The message for users.
        message: String,
    },
    /// The script has used up the operations of one call; it should return and be called again.
    NotAccepted,
    /// The script must stop; the collection knows the cause.
    Stop,
}

/// The refusals that scripts can distinguish, by the service's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The request is malformed.
    BadRequest,
    /// The operation is not allowed here.
    Forbidden,
    /// The item does not exist.
    NotFound,
    /// The item or a unique key exists already.
    Conflict,
    /// The item has another etag.
    PreconditionFailed,
    /// The item is too large.
    TooLarge,
    /// The store failed.
    Internal,
}

impl Reason {
    /// The status number of a refusal and its name.
    #[must_use]
    pub const fn number(self) -> (u16, &'static str) {
        match self {
            Reason::BadRequest => (400, "BadRequest"),
            Reason::Forbidden => (403, "Forbidden"),
            Reason::NotFound => (404, "NotFound"),
            Reason::Conflict => (409, "Conflict"),
            Reason::PreconditionFailed => (412, "PreconditionFailed"),
            Reason::TooLarge => (413, "RequestEntityTooLarge"),
            Reason::Internal => (500, "InternalServerError"),
        }
    }
}

impl OperationError {
    /// Refuses a malformed request.
    pub fn bad_request(message: impl Into<String>) -> OperationError {
        OperationError::Refused { reason: Reason::BadRequest, message: message.into() }
    }
}

/// The options of a call, as the prelude writes them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options<'a> {
    name: Option<String>,
    by_rid: bool,
    etag: Option<String>,
    if_none_match: Option<String>,
    generate_id: bool,
    query: Option<String>,
    #[serde(borrow)]
    parameters: Option<Vec<Parameter<'a>>>,
    continuation: Option<String>,
    page_size: u32,
}

#[derive(Deserialize)]
struct Parameter<'a> {
    name: String,
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

/// Answers a script's collection calls: the collection itself, or a channel to the server that has it.
pub(crate) trait Answerer: Send + 'static {
    /// Carries out one call of the prelude. The answer is text: a character for the outcome, then the
    /// payload.
    fn answer(&mut self, operation: &str, options: &str, body: Option<&str>) -> String;
}

/// The answer that ends a script.
pub(crate) const STOP: &str = ".";

/// The answer to a call that is not accepted.
pub(crate) const NOT_ACCEPTED: &str = "!";

impl<C: Collection> Answerer for C {
    fn answer(&mut self, operation: &str, options: &str, body: Option<&str>) -> String {
        match carry_out(self, operation, options, body) {
            Ok(answer) => format!("+{answer}"),
            Err(OperationError::NotAccepted) => NOT_ACCEPTED.to_owned(),
            Err(OperationError::Stop) => STOP.to_owned(),
            Err(OperationError::Refused { reason, message }) => {
                let ((number, code), message) = (reason.number(), quoted(&message));
                format!(r#"-{{"number":{number},"code":"{code}","message":{message}}}"#)
            }
        }
    }
}

fn carry_out(
    collection: &mut dyn Collection,
    operation: &str,
    options: &str,
    body: Option<&str>,
) -> Result<String, OperationError> {
    let options: Options<'_> = serde_json::from_str(options)
        .map_err(|error| OperationError::bad_request(format!("invalid options: {error}")))?;
    let etag = options.etag.as_deref().filter(|etag| !etag.is_empty());
    let body = body.unwrap_or_default();
    match operation {
        "create" => collection.create(body, options.generate_id).map(|stored| item(&stored)),
        "upsert" => collection.upsert(body, options.generate_id, etag).map(|stored| item(&stored)),
        "replace" => collection.replace(&options.target(), body, etag).map(|stored| item(&stored)),
        "delete" => collection.delete(&options.target(), etag).map(|()| "null".to_owned()),
        "read" => collection.read(&options.target()).map(|stored| {
            let seen = options.if_none_match.as_deref().is_some_and(|seen| seen == stored.etag);
            if seen { r#"{"notModified":true}"#.to_owned() } else { item(&stored) }
        }),
        "query" => collection.query(&options.page()).map(|page| rows(&page)),
        other => Err(OperationError::bad_request(format!("there is no operation {other}"))),
    }
}

impl Options<'_> {
    fn target(&self) -> Target {
        let name = self.name.clone().unwrap_or_default();
        if self.by_rid { Target::Rid(name) } else { Target::Id(name) }
    }

    fn page(&self) -> PageRequest<'_> {
        let parameters = self.parameters.iter().flatten();
        PageRequest {
            query: self.query.as_deref(),
            parameters: parameters
                .map(|one| (one.name.clone(), one.value.map(RawValue::get)))
                .collect(),
            continuation: self.continuation.as_deref().filter(|text| !text.is_empty()),
            page_size: self.page_size.max(1),
        }
    }
}

fn item(stored: &Stored) -> String {
    format!(r#"{{"item":{},"etag":{}}}"#, stored.json, quoted(&stored.etag))
}

fn rows(page: &Page) -> String {
    match &page.continuation {
        None => format!(r#"{{"rows":{}}}"#, page.rows),
        Some(position) => {
            format!(r#"{{"rows":{},"continuation":{}}}"#, page.rows, quoted(position))
        }
    }
}

/// Writes a text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
