//! Why something did not happen, and what to do about it.
//!
//! Callers match on a [`Reason`] or ask for the [`Remedy`]; status numbers stay inside.

use crate::endpoint::Endpoint;
use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// How much of a server's message is shown.
const MESSAGE_CHARS_MAX: usize = 400;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why something did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No connection.
    #[error("cannot reach {endpoint}; is the server running, and is the address right?")]
    Unreachable {
        /// Who was asked.
        endpoint: String,
        /// What the network said.
        source: Source,
    },
    /// A connection, but not to somebody we trust.
    #[error(
        "{endpoint} shows a certificate that is not trusted here; trust its authority (see \
         `headwater trust`), name its file, or use plain http on this machine"
    )]
    Untrusted {
        /// Who was asked.
        endpoint: String,
        /// What TLS said.
        source: Source,
    },
    /// A server that speaks plain HTTP was addressed by https, or one that speaks TLS by http.
    #[error("{} speaks {}; use {right}", right.address(), if right.is_tls() { "TLS" } else { "plain HTTP" })]
    WrongScheme {
        /// The endpoint with the scheme that the server speaks.
        right: Endpoint,
    },
    /// The connection ended in the middle. A write may or may not have happened.
    #[error("the connection to {endpoint} broke; read the item to see whether a write arrived")]
    Broken {
        /// Who was asked.
        endpoint: String,
        /// What the network said.
        source: Source,
    },
    /// No answer in time. A write may or may not have happened.
    #[error("{endpoint} did not answer within {} s; it may be overloaded", after.as_secs())]
    TimedOut {
        /// Who was asked.
        endpoint: String,
        /// How long we waited.
        after: Duration,
    },
    /// An answer that says no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An answer we do not understand.
    #[error("{endpoint} answered in a way no Cosmos DB server does: {what}; check the address")]
    BadAnswer {
        /// Who was asked.
        endpoint: String,
        /// What is wrong with it.
        what: String,
    },
    /// The request cannot be made.
    #[error("{0}")]
    BadRequest(String),
    /// No identity token to send it with.
    #[error(
        "there is no identity token to ask with: {0}; check the identity, and that it can be reached"
    )]
    NoToken(#[source] Source),
    /// The authorities to trust cannot be read.
    #[error("cannot read the authorities to trust from {file}; give a PEM file")]
    Authorities {
        /// The file, or where they were looked for.
        file: String,
        /// What went wrong.
        source: Source,
    },
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The request is wrong, and stays wrong.
    FixRequest,
    /// The address, the key or the certificate is wrong.
    FixSettings,
    /// Read the item again: it is not what was expected.
    RereadItem,
    /// Read the list of ranges again.
    RefreshRanges,
    /// Create what is missing, or look up its new name.
    CreateOwner,
    /// Try again later; this client already did for a while.
    RetryLater,
}

/// An answer that says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of no.
    pub reason: Reason,
    /// What the server says about it.
    pub message: String,
    /// The id of the request, for the server's operator.
    pub activity: Option<String>,
    /// When the server would like to be asked again.
    pub retry_after: Option<Duration>,
    /// The oldest position that is kept, where the position asked for is older.
    pub oldest: Option<String>,
}

/// What kind of no.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Malformed, or not allowed.
    BadRequest,
    /// The partition key given is not the item's.
    PartitionKeyMismatch,
    /// The query needs to be planned and merged by the client.
    QueryNeedsPlan,
    /// The key is not accepted, or the clocks differ.
    Unauthorized,
    /// The caller may not do this.
    Forbidden,
    /// The region does not write, or is no region of the account any more.
    WrongRegion,
    /// The item, database or container is not there.
    NotFound,
    /// The database or container it would be in is not there.
    OwnerNotFound,
    /// The server has not seen what this client has seen.
    SessionBehind,
    /// The container was made anew under the same name.
    ContainerReplaced,
    /// The id, or a unique key, is taken.
    AlreadyExists,
    /// The range was split or merged.
    RangeGone,
    /// The item is not at the etag, or a condition does not hold.
    PreconditionFailed,
    /// More bytes than allowed.
    TooLarge,
    /// Not done because another operation of the batch failed.
    FailedDependency,
    /// More than the provisioned throughput.
    Throttled,
    /// Clashed with another write.
    Clashed,
    /// The server took too long by itself.
    ServerTimeout,
    /// Not ready, too busy or shutting down.
    Unavailable,
    /// The server's fault.
    ServerFault,
    /// A status we have no name for.
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

    /// Said in place of the server's own words, where those are for somebody who writes clients.
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
        // The id of the request has a field of its own.
        let said = message.split("ActivityId:").next().unwrap_or_default();
        let words: Vec<&str> = said.split_whitespace().collect();
        let message = words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect();
        Refusal { reason, message, activity: None, retry_after: None, oldest: None }
    }
}

/// One line, whatever the server wrote.
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
    /// What to do next. A new kind does not compile until it has an answer.
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

    /// Why the server said no, if it was the server who did.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            ClientError::Refused(refusal) => Some(refusal.reason),
            _ => None,
        }
    }

    /// The oldest position of a feed that is kept, if the server refused an older one.
    #[must_use]
    pub fn oldest_position(&self) -> Option<&str> {
        match self {
            ClientError::Refused(refusal) => refusal.oldest.as_deref(),
            _ => None,
        }
    }

    /// Whether what was asked for is not there, or its container or database is not.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self.reason(), Some(Reason::NotFound | Reason::OwnerNotFound))
    }

    /// Whether the range was split or merged.
    #[must_use]
    pub fn is_range_gone(&self) -> bool {
        self.reason() == Some(Reason::RangeGone)
    }

    /// Whether somebody else changed the item meanwhile.
    #[must_use]
    pub fn is_precondition_failed(&self) -> bool {
        self.reason() == Some(Reason::PreconditionFailed)
    }

    /// Whether the id, or a unique key, is taken.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some(Reason::AlreadyExists)
    }

    /// Whether waiting may help.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.remedy() == Remedy::RetryLater
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::error::Code;

    /// Every code our own server uses has a name here.
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
