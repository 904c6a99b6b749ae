//! Errors of the client, why the server refused, and what the caller can do.
//!
//! Callers match on a [`Reason`] or read the [`Remedy`]; status numbers stay internal.

use crate::endpoint::Endpoint;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// How much of a server's message is shown.
const MESSAGE_CHARS_MAX: usize = 400;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Errors returned by the client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection could be made.
    #[error("cannot reach {endpoint}; is the server running, and is the address right?")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// The network error.
        source: Source,
    },
    /// The server's certificate is not trusted.
    #[error(
        "{endpoint} shows a certificate that is not trusted here; trust its authority (see \
         `headwater trust`), name its file, or use plain http on this machine"
    )]
    Untrusted {
        /// The endpoint.
        endpoint: String,
        /// The TLS error.
        source: Source,
    },
    /// The endpoint speaks plain HTTP but was addressed with https, or the other way round.
    #[error("{} speaks {}; use {right}", right.address(), if right.is_tls() { "TLS" } else { "plain HTTP" })]
    WrongScheme {
        /// The endpoint with the scheme that the server speaks.
        right: Endpoint,
    },
    /// The connection broke before the response was complete. A write may or may not have happened.
    #[error("the connection to {endpoint} broke; read the item to see whether a write arrived")]
    Broken {
        /// The endpoint.
        endpoint: String,
        /// The network error.
        source: Source,
    },
    /// No response in time. A write may or may not have happened.
    #[error("{endpoint} did not answer within {} s; it may be overloaded", after.as_secs())]
    TimedOut {
        /// The endpoint.
        endpoint: String,
        /// The time limit.
        after: Duration,
    },
    /// The server refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The response is not one of this protocol.
    #[error("{endpoint} sent a response that is not one of Cosmos DB: {what}; check the address")]
    BadAnswer {
        /// The endpoint.
        endpoint: String,
        /// What is wrong with the response.
        what: String,
    },
    /// The request cannot be built.
    #[error("{0}")]
    BadRequest(String),
    /// No identity token could be obtained.
    #[error(
        "cannot get an identity token: {0}; check the identity, and that its provider can be reached"
    )]
    NoToken(#[source] Source),
    /// The certificate authorities to trust cannot be read.
    #[error("cannot read the authorities to trust from {file}; give a PEM file")]
    Authorities {
        /// The file, or the place that was searched.
        file: String,
        /// The cause.
        source: Source,
    },
}

/// What the caller can do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Correct the request; sending it again cannot succeed.
    FixRequest,
    /// Correct the address, the key or the trusted certificates.
    FixSettings,
    /// Read the item again: it differs from what the request expected.
    RereadItem,
    /// Read the list of ranges again.
    RefreshRanges,
    /// Create the missing database or container, or look up its new name.
    CreateOwner,
    /// Try again later; the client has already used up its retries.
    RetryLater,
}

/// An error response of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why the server rejected the request.
    pub reason: Reason,
    /// The server's message.
    pub message: String,
    /// The activity id of the request, for the server's operator.
    pub activity: Option<String>,
    /// The delay before a retry that the server asked for.
    pub retry_after: Option<Duration>,
    /// The oldest position that is retained, if the requested position is older.
    pub oldest: Option<String>,
}

/// Why the server rejected the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The request is malformed or not allowed.
    BadRequest,
    /// The partition key of the request is not the item's.
    PartitionKeyMismatch,
    /// The client must plan the query and merge its results.
    QueryNeedsPlan,
    /// The credential is not accepted, or the clocks differ too much.
    Unauthorized,
    /// The caller has no permission for this.
    Forbidden,
    /// The region does not accept writes, or has left the account.
    WrongRegion,
    /// The item, database or container does not exist.
    NotFound,
    /// The parent database or container does not exist.
    OwnerNotFound,
    /// The server has not yet reached this client's session token.
    SessionBehind,
    /// The container was deleted and created again under the same name.
    ContainerReplaced,
    /// The id or a unique key is taken.
    AlreadyExists,
    /// The range was split or merged.
    RangeGone,
    /// The item has another etag, or a condition does not hold.
    PreconditionFailed,
    /// The request or the item is too large.
    TooLarge,
    /// Not executed because another operation of the batch failed.
    FailedDependency,
    /// The request exceeds the provisioned throughput.
    Throttled,
    /// The write conflicts with a concurrent one.
    Clashed,
    /// The server exceeded its own time limit.
    ServerTimeout,
    /// The server is not ready, too busy or shutting down.
    Unavailable,
    /// An internal error of the server.
    ServerFault,
    /// A status without a name here.
    Other(u16),
}

impl Reason {
    pub(crate) fn of(status: u16, substatus: u32) -> Reason {
        match (status, substatus) {
            (400, 1001) => Reason::PartitionKeyMismatch,
            (400, 1004) => Reason::QueryNeedsPlan,
            (400, 1024) | (410, 1000) => Reason::ContainerReplaced,
            (400 | 405, _) => Reason::BadRequest,
            (401, _) => Reason::Unauthorized,
            (403, 3 | 1008) => Reason::WrongRegion,
            (403, _) => Reason::Forbidden,
            (404, 1002) => Reason::SessionBehind,
            (404, 1003) => Reason::OwnerNotFound,
            (404, _) => Reason::NotFound,
            (408, _) => Reason::ServerTimeout,
            (409, _) => Reason::AlreadyExists,
            (410, 1002 | 1007 | 1008) => Reason::RangeGone,
            (410 | 503, _) => Reason::Unavailable,
            (412, _) => Reason::PreconditionFailed,
            (413, _) => Reason::TooLarge,
            (423, _) => Reason::Unavailable,
            (424, _) => Reason::FailedDependency,
            (429, _) => Reason::Throttled,
            (449, _) => Reason::Clashed,
            (500, _) => Reason::ServerFault,
            (other, _) => Reason::Other(other),
        }
    }

    fn remedy(self) -> Remedy {
        match self {
            Reason::BadRequest
            | Reason::PartitionKeyMismatch
            | Reason::QueryNeedsPlan
            | Reason::AlreadyExists
            | Reason::TooLarge
            | Reason::FailedDependency
            | Reason::Other(_) => Remedy::FixRequest,
            Reason::Unauthorized | Reason::Forbidden => Remedy::FixSettings,
            Reason::NotFound | Reason::PreconditionFailed => Remedy::RereadItem,
            Reason::OwnerNotFound | Reason::ContainerReplaced => Remedy::CreateOwner,
            Reason::RangeGone => Remedy::RefreshRanges,
            Reason::WrongRegion
            | Reason::SessionBehind
            | Reason::Throttled
            | Reason::Clashed
            | Reason::ServerTimeout
            | Reason::Unavailable
            | Reason::ServerFault => Remedy::RetryLater,
        }
    }

    /// Our own message for reasons where the server's text addresses authors of clients.
    fn advice(self) -> Option<&'static str> {
        match self {
            Reason::Unauthorized => Some("the server does not accept the key; use this account's"),
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    message: String,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, body: &[u8]) -> Refusal {
        let parsed: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
        let mut message = parsed.message;
        if message.is_empty() {
            message = String::from_utf8_lossy(&body[..body.len().min(MESSAGE_CHARS_MAX)]).into();
        }
        // The activity id has its own field.
        let said = message.split("ActivityId:").next().unwrap_or_default();
        let words: Vec<&str> = said.split_whitespace().collect();
        let message = words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect();
        Refusal { reason, message, activity: None, retry_after: None, oldest: None }
    }
}

/// Prints one line, however many the server's message has.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(advice) = self.reason.advice() {
            return f.write_str(advice);
        }
        if self.message.is_empty() {
            return write!(f, "the server refused ({:?}) and did not say why", self.reason);
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl ClientError {
    /// What the caller can do next.
    #[must_use]
    pub fn remedy(&self) -> Remedy {
        match self {
            ClientError::Refused(refusal) => refusal.reason.remedy(),
            ClientError::Untrusted { .. }
            | ClientError::WrongScheme { .. }
            | ClientError::BadAnswer { .. }
            | ClientError::Authorities { .. } => Remedy::FixSettings,
            ClientError::BadRequest(_) => Remedy::FixRequest,
            ClientError::Unreachable { .. }
            | ClientError::Broken { .. }
            | ClientError::TimedOut { .. }
            | ClientError::NoToken(_) => Remedy::RetryLater,
        }
    }

    /// Why the server refused, if the error is a refusal.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            ClientError::Refused(refusal) => Some(refusal.reason),
            _ => None,
        }
    }

    /// The oldest retained position of a feed, if the server refused an older one.
    #[must_use]
    pub fn oldest_position(&self) -> Option<&str> {
        match self {
            ClientError::Refused(refusal) => refusal.oldest.as_deref(),
            _ => None,
        }
    }

    /// Whether the resource, or its parent, does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.reason(), Some(Reason::NotFound | Reason::OwnerNotFound))
    }

    /// Whether the range was split or merged.
    #[must_use]
    pub fn is_range_gone(&self) -> bool {
        self.reason() == Some(Reason::RangeGone)
    }

    /// Whether the item was changed concurrently.
    #[must_use]
    pub fn is_precondition_failed(&self) -> bool {
        self.reason() == Some(Reason::PreconditionFailed)
    }

    /// Whether the id or a unique key is taken.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some(Reason::AlreadyExists)
    }

    /// Whether a later retry may succeed.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.remedy() == Remedy::RetryLater
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::error::Code;

    /// Every code of our own server maps to a named reason.
    #[test]
    fn every_code_of_the_protocol_has_a_reason() {
        for code in Code::ALL {
            let reason = Reason::of(code.status(), code.substatus());
            assert!(!matches!(reason, Reason::Other(_)), "{code:?}");
        }
        assert_eq!(Reason::of(410, 1002), Reason::RangeGone);
        assert_eq!(Reason::of(404, 1002), Reason::SessionBehind);
    }

    #[test]
    fn a_refusal_is_one_short_line() {
        let long = "x ".repeat(5000);
        for body in [
            br#"{"code":"Unauthorized","message":"no:\nget\ndocs\n"}"#.to_vec(),
            format!(r#"{{"message":"{long}"}}"#).into_bytes(),
            b"<html>\n<p>proxy".to_vec(),
            Vec::new(),
        ] {
            let shown = Refusal::new(Reason::Unauthorized, &body).to_string();
            assert!(!shown.contains('\n') && shown.len() < 600, "{shown}");
        }
    }
}
