//! Why a request was not carried out, as clients understand it. Every error of the layers below becomes
//! a status here and nowhere else.

use crate::answer::Answer;
use crate::budget::Exceeded;
use headwater_model::{BadPageLimit, BadPartitionKey, Lsn, PartitionId, PartitionKeyError};
use headwater_protocol::auth::AuthError;
use headwater_protocol::batch::BatchError;
use headwater_protocol::charge::Charge;
use headwater_protocol::error::{Code, body_with_info};
use headwater_protocol::feed::BadFeedRequest;
use headwater_protocol::headers::{self, BadHeader};
use headwater_protocol::resource::{BadDocument, BadPolicy, BadThroughput};
use headwater_protocol::route::RouteError;
use headwater_protocol::session::BadSessionToken;
use headwater_store::{
    BodyError, CatalogError, ExecuteError, FeedError, ItemReadError, PatchError, Remedy,
    ScriptFailure, StorageError, WriteError,
};
use hyper::StatusCode;
use hyper::header::RETRY_AFTER;
use std::time::Duration;

/// The service's words for a key that does not fit, which clients look for.
const KEY_MISMATCH: &str = "Partition key provided either doesn't correspond to definition in the \
     collection or doesn't match partition key field values specified in the document.";

/// After this a client tries again when the store cannot answer now, for example while its index is rebuilt.
const UNAVAILABLE_RETRY: Duration = Duration::from_secs(1);

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// A query plan, for clients that have to run the query themselves.
    pub(crate) info: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// The number a script gave to its error, in the place of the code's own.
    pub(crate) substatus: Option<u32>,
    /// The partition that has nothing to give, and how far it is.
    pub(crate) served: Option<(PartitionId, Lsn)>,
    /// Whether the client reads only session tokens of the old form.
    pub(crate) is_for_old_client: bool,
    /// The oldest position that a reader behind retention can resume at, and how much it misses.
    pub(crate) oldest: Option<Box<(String, u64)>>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            info: None,
            retry_after: None,
            substatus: None,
            served: None,
            is_for_old_client: false,
            oldest: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(Code::BadRequest, message)
    }

    /// More than a request may bring, in the words clients look for.
    pub(crate) fn too_large(detail: &str) -> Failure {
        let errors = errors("Request size is too large");
        Failure::new(Code::RequestEntityTooLarge, format!("{errors}\r\n{detail}"))
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Failure {
        let message = format!("Resource Not Found: {what} {id} does not exist; check its id.");
        Failure::new(Code::NotFound, message)
    }

    /// What the request is about belongs to something that is not there: clients look it up again.
    pub(crate) fn owner_not_found(what: &str, id: &str) -> Failure {
        let message = format!("Owner resource does not exist: {what} {id}; create it first.");
        Failure::new(Code::OwnerResourceNotFound, message)
    }

    pub(crate) fn into_answer(self, activity: &str) -> Answer {
        let status = StatusCode::from_u16(self.code.status());
        let body = body_with_info(self.code, &self.message, activity, self.info.as_deref());
        let substatus = self.substatus.unwrap_or(self.code.substatus());
        let substatus = Some(substatus).filter(|number| *number != 0);
        let is_unavailable = self.code == Code::ServiceUnavailable;
        let retry_after = self.retry_after.or(is_unavailable.then_some(UNAVAILABLE_RETRY));
        let wait = retry_after.map(|wait| wait.as_millis().max(1));
        let answer = Answer::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
            .charged(Charge::ONE)
            .header_if(headers::SUBSTATUS, substatus)
            .header_if(headers::RETRY_AFTER_MS, wait)
            .header_if(RETRY_AFTER, wait.map(|millis| millis.div_ceil(1000)));
        let (oldest, missing) = self.oldest.map(|oldest| *oldest).unzip();
        let answer = answer
            .header_if(headers::FEED_OLDEST, oldest)
            .header_if(headers::FEED_MISSING, missing);
        let answer = match self.served {
            Some((partition, lsn)) => answer.served_by(partition, lsn),
            None => answer,
        };
        if self.is_for_old_client { answer.with_old_session() } else { answer }
    }
}

/// A reason in the form in which the service's partitions give theirs.
fn errors(reason: &str) -> String {
    format!("Message: {}", serde_json::json!({ "Errors": [reason] }))
}

/// How the store's own failures look from outside. What to do is in the message.
fn storage_code(error: &StorageError) -> Code {
    match error.remedy() {
        Remedy::FreeDisk => Code::QuotaReached,
        Remedy::Restore | Remedy::Reopen => Code::InternalServerError,
        _ => Code::ServiceUnavailable,
    }
}

/// An error with what caused it.
fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

pub(crate) fn write_code(error: &WriteError) -> Code {
    match error {
        WriteError::Body(BodyError::TooLarge { .. })
        | WriteError::BatchTooLarge { .. }
        | WriteError::TransactionTooLarge { .. } => Code::RequestEntityTooLarge,
        WriteError::PartitionKeyMismatch { .. }
        | WriteError::PartitionKey(PartitionKeyError::ComponentCount { .. }) => {
            Code::PartitionKeyMismatch
        }
        WriteError::AlreadyExists { .. } | WriteError::UniqueKey { .. } => Code::Conflict,
        WriteError::NotFound { .. } => Code::NotFound,
        WriteError::EtagMismatch { .. } => Code::PreconditionFailed,
        WriteError::ConditionFalse { .. } => Code::PatchConditionFailed,
        WriteError::ContainerGone => Code::OwnerResourceNotFound,
        WriteError::Outdated => Code::RetryWith,
        WriteError::Storage(error) => storage_code(error),
        _ => Code::BadRequest,
    }
}

/// The sub-status of a script that is not JavaScript.
const COMPILE_ERROR: u32 = 0xFFFF;
/// After this a client whose script found no place tries again.
const SCRIPT_RETRY: Duration = Duration::from_millis(200);

impl Failure {
    /// Too many scripts are running.
    pub(crate) fn busy(message: String) -> Failure {
        let retry_after = Some(SCRIPT_RETRY);
        Failure { retry_after, ..Failure::new(Code::TooManyRequests, message) }
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Failure {
        match error {
            ExecuteError::Script { error, .. } => script_failure(&error),
            ExecuteError::Write(error) => error.into(),
            ExecuteError::Read(error) => error.into(),
            ExecuteError::Busy => Failure::busy(error.to_string()),
            ExecuteError::Blocked { .. } => Failure::new(Code::Forbidden, error.to_string()),
            ExecuteError::Conflict => Failure::new(Code::RetryWith, error.to_string()),
            other => Failure::new(Code::InternalServerError, other.to_string()),
        }
    }
}

/// What a script did wrong, in the shape in which the service says it.
fn script_failure(error: &ScriptFailure) -> Failure {
    let (code, substatus) = match error {
        ScriptFailure::Compile(_) => (Code::BadRequest, Some(COMPILE_ERROR)),
        ScriptFailure::Thrown { number, .. } => (Code::BadRequest, Some(*number)),
        ScriptFailure::NoFunction => (Code::BadRequest, None),
        ScriptFailure::Time(_) => (Code::RequestTimeout, None),
        ScriptFailure::Memory(_) => (Code::Forbidden, None),
        ScriptFailure::Response(_) => (Code::RequestEntityTooLarge, None),
        ScriptFailure::NoWorker(_) => (Code::ServiceUnavailable, None),
        _ => (Code::InternalServerError, None),
    };
    let errors = serde_json::json!({ "Errors": [error.to_string()] });
    Failure { substatus, ..Failure::new(code, format!("Message: {errors}")) }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        let message = match &error {
            WriteError::EmptyBatch => "Batch request has no operations.".to_owned(),
            WriteError::TooManyOperations { .. } => {
                format!("Batch request has more operations than what is supported. {error}.")
            }
            WriteError::AlreadyExists { .. } | WriteError::UniqueKey { .. } => {
                format!("Entity with the specified id or unique key already exists: {error}.")
            }
            WriteError::EtagMismatch { .. } | WriteError::ConditionFalse { .. } => {
                format!("One of the specified pre-condition is not met: {error}.")
            }
            WriteError::PartitionKeyMismatch { .. }
            | WriteError::PartitionKey(PartitionKeyError::ComponentCount { .. }) => {
                format!("{KEY_MISMATCH} {error}.")
            }
            WriteError::NotFound { .. } => format!("Resource Not Found: {error}."),
            WriteError::Body(BodyError::TooLarge { .. })
            | WriteError::BatchTooLarge { .. }
            | WriteError::TransactionTooLarge { .. } => {
                return Failure::too_large(&error.to_string());
            }
            other => explain(other),
        };
        Failure::new(write_code(&error), message)
    }
}

impl From<ItemReadError> for Failure {
    fn from(error: ItemReadError) -> Failure {
        let code = match &error {
            ItemReadError::PartitionKey(PartitionKeyError::ComponentCount { .. }) => {
                let message = format!("{KEY_MISMATCH} {error}.");
                return Failure::new(Code::PartitionKeyMismatch, message);
            }
            ItemReadError::RangeGone(_) => Code::PartitionKeyRangeGone,
            ItemReadError::ContainerGone => Code::OwnerResourceNotFound,
            ItemReadError::Storage(error) => storage_code(error),
            _ => Code::BadRequest,
        };
        Failure::new(code, explain(&error))
    }
}

impl From<FeedError> for Failure {
    fn from(error: FeedError) -> Failure {
        let code = match &error {
            FeedError::RangeGone(_) | FeedError::EmptyScope => Code::PartitionKeyRangeGone,
            FeedError::ContainerGone => Code::OwnerResourceNotFound,
            FeedError::Storage(error) => storage_code(error),
            _ => Code::BadRequest,
        };
        let oldest = match &error {
            FeedError::BeforeRetention { position, missing, .. } => {
                let etag = format!("\"{}\"", position.to_string().trim_matches('"'));
                Some(Box::new((etag, *missing)))
            }
            _ => None,
        };
        Failure { oldest, ..Failure::new(code, explain(&error)) }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Failure {
        let (code, prefix) = match &error {
            CatalogError::AlreadyExists { .. } => {
                (Code::Conflict, "Resource with specified id or name already exists: ")
            }
            CatalogError::NotFound { .. } => (Code::NotFound, "Resource Not Found: "),
            CatalogError::EtagMismatch { .. } => {
                (Code::PreconditionFailed, "One of the specified pre-condition is not met: ")
            }
            CatalogError::ResourcesFull { .. } => (Code::QuotaReached, ""),
            CatalogError::Storage(error) => (storage_code(error), ""),
            _ => (Code::BadRequest, ""),
        };
        Failure::new(code, format!("{prefix}{}", explain(&error)))
    }
}

/// The share of an address is something SDKs can wait for by themselves, as they do at 429.
impl From<Exceeded> for Failure {
    fn from(error: Exceeded) -> Failure {
        let code = if error.is_share { Code::TooManyRequests } else { Code::ServiceUnavailable };
        let retry_after = Some(error.retry_after());
        Failure { retry_after, ..Failure::new(code, error.to_string()) }
    }
}

impl From<AuthError> for Failure {
    fn from(error: AuthError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

impl From<BadHeader> for Failure {
    fn from(error: BadHeader) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

macro_rules! bad_requests {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::bad_request(explain(&error))
            }
        })*
    };
}

bad_requests!(
    BadPartitionKey,
    BadPageLimit,
    BadFeedRequest,
    BadSessionToken,
    BadThroughput,
    BadDocument,
    PatchError
);

impl From<BadPolicy> for Failure {
    fn from(error: BadPolicy) -> Failure {
        Failure::bad_request(errors(&error.to_string()))
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Failure {
        match error.code() {
            Code::RequestEntityTooLarge => Failure::too_large(&error.to_string()),
            code => Failure::new(code, error.to_string()),
        }
    }
}
