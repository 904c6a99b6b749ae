//! What a script works on: the items of one logical partition, through a trait, so that this crate need
//! not know who keeps them.

use serde::Deserialize;
use serde_json::value::RawValue;

/// The items of one logical partition, as they are with everything the script has done so far.
///
/// Items go in and out as JSON text. A write that is refused has changed nothing.
pub trait Collection: Send + 'static {
    /// Links of the collection: by resource ids, with a slash at its end, and by names, without one.
    fn links(&self) -> (String, String);

    /// Creates an item; one without an id is given one if `generate_id` says so.
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

/// Which item a script means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The one of this id.
    Id(String),
    /// The one of this resource id, or else of this id.
    Rid(String),
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// As JSON, system properties included.
    pub json: String,
    /// Its etag, as it stands in the item.
    pub etag: String,
}

/// What a script wants to read.
#[derive(Clone, Debug)]
pub struct PageRequest<'a> {
    /// The query; `None` for all items.
    pub query: Option<&'a str>,
    /// Names with their `@`, and values as JSON.
    pub parameters: Vec<(String, Option<&'a str>)>,
    /// Where an earlier page ended.
    pub continuation: Option<&'a str>,
    /// How many results at most.
    pub page_size: u32,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The results as a JSON array.
    pub rows: String,
    /// Where to go on; `None` at the end.
    pub continuation: Option<String>,
}

/// Why a collection did not do what a script asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationError {
    /// It cannot be done; the script is told and may go on.
    Refused {
        /// What kind of refusal it is.
        reason: Reason,
        /// Why, for people.
        message: String,
    },
    /// The script has done as much as one call may; it should end and be called again.
    NotAccepted,
    /// The script must not go on, and the collection knows why.
    Stop,
}

/// The refusals scripts tell apart, by the numbers the service gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It makes no sense.
    BadRequest,
    /// It is not allowed here.
    Forbidden,
    /// There is no such item.
    NotFound,
    /// An item or a unique key is there already.
    Conflict,
    /// The item has another etag.
    PreconditionFailed,
    /// The item is too large.
    TooLarge,
    /// The store failed.
    Internal,
}

impl Reason {
    /// The number of an error, and the word for it.
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
    /// A request that makes no sense.
    pub fn bad_request(message: impl Into<String>) -> OperationError {
        OperationError::Refused { reason: Reason::BadRequest, message: message.into() }
    }
}

/// Options as the prelude writes them.
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

/// Answers what a script asks of its collection: the collection itself, or a server that has it.
pub(crate) trait Answerer: Send + 'static {
    /// Carries out one call of the prelude. The answer is the text it expects: a character that says what came
    /// of it, and the rest.
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
        .map_err(|error| OperationError::bad_request(format!("the options: {error}")))?;
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

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
