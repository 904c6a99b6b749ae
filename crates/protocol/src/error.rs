//! Error codes and bodies in the form that clients act on.
//!
//! SDKs decide by status and sub-status whether to refresh a cache, wait, retry or give up, so the two
//! always travel together as one [`Code`]. The message is for people:
//!
//! ```text
//! {"code":"NotFound","message":"item 7 does not exist\r\nActivityId: 5b0c…, Headwater/0.1.0"}
//! ```
//!
//! The server maps its errors to codes; this module does not.

use serde::{Deserialize, Serialize};

/// Follows the activity id in every message.
const SIGNATURE: &str = concat!("Headwater/", env!("CARGO_PKG_VERSION"));

/// The longest message sent. Longer ones are cut, since parts of them come from the request.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The longest message of one operation of a batch, which has up to a hundred operations.
const OPERATION_MESSAGE_BYTES_MAX: usize = 4 * 1024;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal, $substatus:literal, $code:literal;)*) => {
        /// An HTTP status with its sub-status. No two codes share both numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }

            /// The value of `x-ms-substatus`; with 0 the header is omitted.
            #[must_use]
            pub const fn substatus(self) -> u32 {
                match self { $(Code::$name => $substatus,)* }
            }

            /// The `code` of the body.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }
        }
    };
}

codes! {
    /// The request is malformed or asks for something that is not allowed.
    BadRequest = 400, 0, "BadRequest";
    /// The partition key of the header is not that of the body; clients refresh the container.
    PartitionKeyMismatch = 400, 1001, "BadRequest";
    /// The query needs a plan and a merge by the client.
    CrossPartitionQueryNotServable = 400, 1004, "BadRequest";
    /// The container was recreated under the same name; clients refresh it.
    CollectionRidMismatch = 400, 1024, "BadRequest";
    /// The signature is missing or wrong.
    Unauthorized = 401, 0, "Unauthorized";
    /// The identity token has expired; clients drop their cached one and request another.
    AadTokenExpired = 401, 5006, "Unauthorized";
    /// The caller is authenticated but may not do this, or its resource token or date has expired.
    Forbidden = 403, 0, "Forbidden";
    /// The write was sent to a read-only region.
    WriteForbidden = 403, 3, "Forbidden";
    /// The partition key value holds the maximum amount of data.
    PartitionKeyQuotaReached = 403, 1005, "Forbidden";
    /// The region no longer belongs to the account.
    DatabaseAccountNotFound = 403, 1008, "Forbidden";
    /// The account has reached its quota.
    QuotaReached = 403, 1010, "Forbidden";
    /// The identity token does not permit this.
    AadNotAuthorized = 403, 5300, "Forbidden";
    /// The resource itself is absent.
    NotFound = 404, 0, "NotFound";
    /// The session token is ahead of this server.
    ReadSessionNotAvailable = 404, 1002, "NotFound";
    /// The database or container above the resource is absent; clients refresh it.
    OwnerResourceNotFound = 404, 1003, "NotFound";
    /// The container is still being created.
    ContainerCreateInProgress = 404, 1013, "NotFound";
    /// The resource does not support this HTTP method.
    MethodNotAllowed = 405, 0, "MethodNotAllowed";
    /// A script or query took too long.
    RequestTimeout = 408, 0, "RequestTimeout";
    /// The id or a unique key exists.
    Conflict = 409, 0, "Conflict";
    /// Another change of the same definition is running.
    ConflictWithControlPlane = 409, 1006, "Conflict";
    /// The addressed resource has moved.
    Gone = 410, 0, "Gone";
    /// The container behind a cached name has changed.
    NameCacheIsStale = 410, 1000, "Gone";
    /// The partition was split or merged; clients refresh their ranges.
    PartitionKeyRangeGone = 410, 1002, "Gone";
    /// The partition is being split or merged.
    CompletingSplit = 410, 1007, "Gone";
    /// The partition is being moved.
    CompletingPartitionMigration = 410, 1008, "Gone";
    /// The etag is not the one in the condition.
    PreconditionFailed = 412, 0, "PreconditionFailed";
    /// The condition of a patch does not hold.
    PatchConditionFailed = 412, 1110, "PreconditionFailed";
    /// The body is larger than allowed.
    RequestEntityTooLarge = 413, 0, "RequestEntityTooLarge";
    /// The response to a batch is larger than allowed; clients send fewer operations at once.
    BatchAnswerTooLarge = 413, 3402, "RequestEntityTooLarge";
    /// A throughput change is in progress.
    Locked = 423, 0, "Locked";
    /// The operation did not run, because another operation of the same batch failed.
    FailedDependency = 424, 0, "FailedDependency";
    /// The throughput is used up; clients wait for `x-ms-retry-after-ms`.
    TooManyRequests = 429, 3200, "TooManyRequests";
    /// The write conflicted with another one; clients try again.
    RetryWith = 449, 0, "RetryWith";
    /// An internal error of the server.
    InternalServerError = 500, 0, "InternalServerError";
    /// The server is not ready, or is shutting down.
    ServiceUnavailable = 503, 0, "ServiceUnavailable";
}

/// The JSON body of a response with status 400 or above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The name of the status, such as `NotFound`.
    pub code: String,
    /// What happened, for humans.
    pub message: String,
    /// The query plan as JSON text, when the client has to run the query itself.
    #[serde(rename = "additionalErrorInfo", skip_serializing_if = "Option::is_none", default)]
    pub additional_error_info: Option<String>,
}

/// Builds the body of an error response.
#[must_use]
pub fn body(code: Code, message: &str, activity_id: &str) -> Vec<u8> {
    body_with_info(code, message, activity_id, None)
}

/// Builds the body of an error response that carries a query plan.
#[must_use]
pub fn body_with_info(
    code: Code,
    message: &str,
    activity_id: &str,
    additional_error_info: Option<&str>,
) -> Vec<u8> {
    let message = shortened(message, MESSAGE_BYTES_MAX);
    let error = ErrorBody {
        code: code.name().to_owned(),
        message: format!("{message}\r\nActivityId: {activity_id}, {SIGNATURE}"),
        additional_error_info: additional_error_info.map(str::to_owned),
    };
    // Strings always serialise; should that ever change, a plain body is better than none.
    serde_json::to_vec(&error).unwrap_or_else(|_| b"{\"code\":\"InternalServerError\"}".to_vec())
}

/// Builds the body of a failed operation's result in a batch.
#[must_use]
pub fn operation_body(code: Code, message: &str) -> Vec<u8> {
    let message = shortened(message, OPERATION_MESSAGE_BYTES_MAX);
    let error = serde_json::json!({ "code": code.name(), "message": message });
    error.to_string().into_bytes()
}

/// Cuts a text to at most `bytes_max` bytes, at a character boundary.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_codes_share_their_numbers() {
        let numbers: HashSet<_> =
            Code::ALL.iter().map(|code| (code.status(), code.substatus())).collect();
        assert_eq!(numbers.len(), Code::ALL.len());
    }

    #[test]
    fn one_status_has_one_word() {
        for one in Code::ALL {
            for other in Code::ALL {
                let same = one.status() == other.status();
                assert_eq!(same, one.name() == other.name(), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn codes_clients_act_on() {
        for (code, status, substatus, name) in [
            (Code::PartitionKeyMismatch, 400, 1001, "BadRequest"),
            (Code::CrossPartitionQueryNotServable, 400, 1004, "BadRequest"),
            (Code::CollectionRidMismatch, 400, 1024, "BadRequest"),
            (Code::WriteForbidden, 403, 3, "Forbidden"),
            (Code::ReadSessionNotAvailable, 404, 1002, "NotFound"),
            (Code::OwnerResourceNotFound, 404, 1003, "NotFound"),
            (Code::PartitionKeyRangeGone, 410, 1002, "Gone"),
            (Code::CompletingSplit, 410, 1007, "Gone"),
            (Code::PatchConditionFailed, 412, 1110, "PreconditionFailed"),
            (Code::RequestEntityTooLarge, 413, 0, "RequestEntityTooLarge"),
            (Code::TooManyRequests, 429, 3200, "TooManyRequests"),
            (Code::RetryWith, 449, 0, "RetryWith"),
        ] {
            assert_eq!((code.status(), code.substatus(), code.name()), (status, substatus, name));
        }
    }

    #[test]
    fn bodies_have_the_shape_clients_parse() {
        let written = body(Code::NotFound, "no \"such\" item\n", "5b0c");
        let read: ErrorBody = serde_json::from_slice(&written).unwrap();
        assert_eq!(read.code, "NotFound");
        assert!(read.message.starts_with("no \"such\" item\n\r\nActivityId: 5b0c, Headwater/"));
        assert!(!String::from_utf8(written).unwrap().contains("additionalErrorInfo"));

        let code = Code::CrossPartitionQueryNotServable;
        let written = body_with_info(code, "needs a plan", "5b0c", Some("{\"queryInfo\":{}}"));
        let read: ErrorBody = serde_json::from_slice(&written).unwrap();
        assert_eq!(read.additional_error_info.as_deref(), Some("{\"queryInfo\":{}}"));
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let message = "é".repeat(MESSAGE_BYTES_MAX);
        let read: ErrorBody =
            serde_json::from_slice(&body(Code::BadRequest, &message, "1")).unwrap();
        assert!(read.message.len() < MESSAGE_BYTES_MAX + 100);
    }
}
