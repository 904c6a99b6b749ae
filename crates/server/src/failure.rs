//! Why a request was not carried out, as clients understand it. Every error of the layers below becomes
//! a status here and nowhere else.

use crate::answer::Answer;
use headwater_model::{BadPageLimit, BadPartitionKey, Lsn, PartitionId};
use headwater_protocol::auth::AuthError;
use headwater_protocol::batch::BatchError;
use headwater_protocol::charge::Charge;
use headwater_protocol::error::{Code, body_with_info};
use headwater_protocol::feed::BadFeedRequest;
use headwater_protocol::headers::{self, BadHeader};
use headwater_protocol::resource::{BadDocument, BadThroughput};
use headwater_protocol::route::RouteError;
use headwater_protocol::session::BadSessionToken;
use headwater_store::{
    BodyError, CatalogError, FeedError, ItemReadError, PatchError, Remedy, StorageError, WriteError,
};
use hyper::StatusCode;
use std::time::Duration;

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// A query plan, for clients that have to run the query themselves.
    pub(crate) info: Option<String>,
    pub(crate) retry_after: Option<Duration>,
    /// The partition that has nothing to give, and how far it is.
    pub(crate) served: Option<(PartitionId, Lsn)>,
    /// Whether the client reads only session tokens of the old form.
    pub(crate) is_for_old_client: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        let (info, retry_after, served) = (None, None, None);
        let message = message.into();
        Failure { code, message, info, retry_after, served, is_for_old_client: false }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(Code::BadRequest, message)
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
        let substatus = Some(self.code.substatus()).filter(|number| *number != 0);
        let wait = self.retry_after.map(|wait| wait.as_millis().max(1));
        let answer = Answer::json(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), body)
            .charged(Charge::ONE)
            .header_if(headers::SUBSTATUS, substatus)
            .header_if(headers::RETRY_AFTER_MS, wait);
        let answer = match self.served {
            Some((partition, lsn)) => answer.served_by(partition, lsn),
            None => answer,
        };
        if self.is_for_old_client { answer.with_old_session() } else { answer }
    }
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
        WriteError::Body(BodyError::TooLarge { .. }) | WriteError::BatchTooLarge { .. } => {
            Code::RequestEntityTooLarge
        }
        WriteError::PartitionKeyMismatch { .. } => Code::PartitionKeyMismatch,
        WriteError::AlreadyExists { .. } | WriteError::UniqueKey { .. } => Code::Conflict,
        WriteError::NotFound { .. } => Code::NotFound,
        WriteError::EtagMismatch { .. } => Code::PreconditionFailed,
        WriteError::ConditionFalse { .. } => Code::PatchConditionFailed,
        WriteError::ContainerGone => Code::OwnerResourceNotFound,
        WriteError::Storage(error) => storage_code(error),
        _ => Code::BadRequest,
    }
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
            WriteError::NotFound { .. } => format!("Resource Not Found: {error}."),
            other => explain(other),
        };
        Failure::new(write_code(&error), message)
    }
}

impl From<ItemReadError> for Failure {
    fn from(error: ItemReadError) -> Failure {
        let code = match &error {
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
        Failure::new(code, explain(&error))
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
            CatalogError::Storage(error) => (storage_code(error), ""),
            _ => (Code::BadRequest, ""),
        };
        Failure::new(code, format!("{prefix}{}", explain(&error)))
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

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}
