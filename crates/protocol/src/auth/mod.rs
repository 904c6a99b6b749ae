//! Authentication: parses and verifies the `authorization` header.
//!
//! There are three kinds of token. A master token signs the request itself with an account key, so
//! verifying it needs no lookup. A resource token is a grant that a server minted and signed earlier; it
//! is valid while its permission still grants as much. An identity token is a JWT:
//!
//! ```text
//! authorization   type%3Dmaster%26ver%3D1.0%26sig%3D…
//! parse_token     Token::Master { sig }
//! verify_master   get\ndocs\ndbs/a/colls/b\ntue, 01 nov 1994 08:12:31 gmt\n\n   signed by a key of ours?
//! ```
//!
//! Clients disagree on how the link is written (by name, as sent, by lower-cased resource id), so
//! each candidate is tried. Signatures and keys are compared in constant time, and no key is ever
//! printed. The date's freshness is checked separately from the signature, because a server can be
//! configured to skip that check.
//!
//! Nothing here knows which operations a grant or a read-only key permits; that is the caller's decision.

mod aad;
mod date;
mod grant;
mod key;
mod master;
mod token;

pub use aad::verify_aad;
pub use date::{check_date, format_http_date, parse_http_date};
pub use grant::{Grant, GrantMode, mint, open};
pub use key::{BadKey, EMULATOR_KEY, Key, Keys};
pub use master::{Signable, sign, verify_master, verify_request};
pub use token::{Token, parse_token};

use crate::error::Code;
use headwater_model::BadTimestamp;

/// The access of an authenticated caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a read-only caller must not write"]
pub enum Access {
    /// Reads and writes.
    ReadWrite,
    /// Reads only.
    ReadOnly,
}

/// Why authentication failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// There is no `authorization` header.
    #[error(
        "Required Header authorization is missing. Ensure a valid authorization token is passed."
    )]
    MissingAuthorization,
    /// There is neither `x-ms-date` nor `Date`.
    #[error("Required Header x-ms-date is missing; send the current time as an RFC 1123 date.")]
    MissingDate,
    /// The token does not have the documented form.
    #[error(
        "The input authorization token can't serve the request. It is malformed: {0}. Send \
         type={{master|resource|aad}}&ver=1.0&sig={{signature}}, URL-encoded."
    )]
    Malformed(&'static str),
    /// No account key made the signature. Developers compare the payload with their own.
    #[error(
        "The input authorization token can't serve the request. Check the key that was used, and \
         that the payload is built as the protocol says. Server used the following payload to \
         sign: '{payload}'"
    )]
    Signature {
        /// The payload that the server signed.
        payload: String,
    },
    /// The resource token was not minted with this account's key.
    #[error(
        "The input authorization token can't serve the request. The resource token was not issued \
         by this account; read the permission again to get a new one."
    )]
    ForeignGrant,
    /// The identity token carries none of the account's keys.
    #[error(
        "The input authorization token can't serve the request. The identity token is not one this \
         account accepts; use the emulator's token form with an account key."
    )]
    ForeignIdentity,
    /// The request's date cannot be parsed.
    #[error("The date header of the request is not valid: {0}.")]
    Date(#[from] BadTimestamp),
    /// The request's date is too far from the server's time.
    #[error(
        "The authorization token is not valid at the current time. The request is dated {sent}, \
         the server's time is {now}; correct the clock that is wrong."
    )]
    Skew {
        /// The date of the request.
        sent: String,
        /// The server's time.
        now: String,
    },
    /// The resource token has expired.
    #[error(
        "The authorization token is not valid at the current time. It expired at {expired}, the \
         server's time is {now}; ask for a new one."
    )]
    Expired {
        /// When the token expired.
        expired: String,
        /// The server's time.
        now: String,
    },
    /// The identity token has expired. The status is 401, not 403: clients keep such a token until they
    /// receive a 401.
    #[error(
        "Provided AAD token has been expired since [{expired}]. Current server time is [{now}]. \
         Please refresh the AAD token."
    )]
    IdentityExpired {
        /// When the token expired.
        expired: String,
        /// The server's time.
        now: String,
    },
}

impl AuthError {
    /// The status code of the answer.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            AuthError::Skew { .. } | AuthError::Expired { .. } => Code::Forbidden,
            AuthError::IdentityExpired { .. } => Code::AadTokenExpired,
            AuthError::Date(_) => Code::BadRequest,
            AuthError::MissingAuthorization
            | AuthError::MissingDate
            | AuthError::Malformed(_)
            | AuthError::Signature { .. }
            | AuthError::ForeignGrant
            | AuthError::ForeignIdentity => Code::Unauthorized,
        }
    }
}

/// Refuses a resource token that expired at or before `now_seconds`.
fn check_expiry(expires: u64, now_seconds: u64) -> Result<(), AuthError> {
    if now_seconds < expires {
        return Ok(());
    }
    let (expired, now) = (format_http_date(expires), format_http_date(now_seconds));
    Err(AuthError::Expired { expired, now })
}

/// Random texts as tokens of every kind: nothing panics, and no random resource token opens.
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC{0,200}", now in any::<u64>()) {
            let keys = Keys::new(Key::from_base64(EMULATOR_KEY).unwrap());
            let _ = parse_token(&text);
            let _ = parse_http_date(&text);
            let _ = check_date(now, &text, std::time::Duration::from_secs(900));
            let _ = open(&keys.primary, &text, now);
            let _ = verify_aad(&keys, &text, now, true);
            let _ = Key::from_base64(&text);
        }

        #[test]
        fn token_like_texts_do_not_panic(text in "(type|ver|sig|master|resource|aad|[=&%;.+a-zA-Z0-9]){0,40}") {
            let _ = parse_token(&text);
            let key = Key::from_base64(EMULATOR_KEY).unwrap();
            prop_assert!(open(&key, &text, 0).is_err());
        }
    }
}
