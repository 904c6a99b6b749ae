//! Who is asking, and may they.
//!
//! Three kinds of token arrive in `authorization`. A master token signs the request itself with an
//! account key, so nothing is looked up to check it; a resource token is a grant we minted earlier
//! and signed ourselves, good while its permission grants as much; an identity token is a JWT:
//!
//! ```text
//! authorization   type%3Dmaster%26ver%3D1.0%26sig%3D…
//! parse_token     Token::Master { sig }
//! verify_master   get\ndocs\ndbs/a/colls/b\ntue, 01 nov 1994 08:12:31 gmt\n\n   signed by a key of ours?
//! ```
//!
//! Clients disagree on how the link is written (by name, as sent, by lower-cased resource id), so
//! each candidate is tried. Signatures and keys are compared in constant time, and no key is ever
//! printed. Whether a date is fresh is checked apart from the signature, for a server may have been
//! told not to care.
//!
//! Nothing here knows which operations a grant or a read-only key permits: callers ask, and decide.

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

/// What a caller that proved itself may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a read-only caller must not write"]
pub enum Access {
    /// Everything.
    ReadWrite,
    /// Only what changes nothing.
    ReadOnly,
}

/// Why a caller is not let in.
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
    /// The token is not of the form we read.
    #[error(
        "The input authorization token can't serve the request. It is malformed: {0}. Send \
         type={{master|resource|aad}}&ver=1.0&sig={{signature}}, URL-encoded."
    )]
    Malformed(&'static str),
    /// The signature is not one of ours. The payload is what developers compare with their own.
    #[error(
        "The input authorization token can't serve the request. Check the key that was used, and \
         that the payload is built as the protocol says. Server used the following payload to \
         sign: '{payload}'"
    )]
    Signature {
        /// What was signed here.
        payload: String,
    },
    /// A resource token we did not mint, or with another key.
    #[error(
        "The input authorization token can't serve the request. The resource token was not issued \
         by this account; read the permission again to get a new one."
    )]
    ForeignGrant,
    /// An identity token that no key of ours vouches for.
    #[error(
        "The input authorization token can't serve the request. The identity token is not one this \
         account accepts; use the emulator's token form with an account key."
    )]
    ForeignIdentity,
    /// The date is not one.
    #[error("The date header of the request is not valid: {0}.")]
    Date(#[from] BadTimestamp),
    /// The date is too far from ours.
    #[error(
        "The authorization token is not valid at the current time. The request is dated {sent}, \
         the server's time is {now}; correct the clock that is wrong."
    )]
    Skew {
        /// The date of the request.
        sent: String,
        /// The time here.
        now: String,
    },
    /// A resource token whose time is over.
    #[error(
        "The authorization token is not valid at the current time. It expired at {expired}, the \
         server's time is {now}; ask for a new one."
    )]
    Expired {
        /// When it expired.
        expired: String,
        /// The time here.
        now: String,
    },
    /// An identity token whose time is over. Clients keep such a token until they are told that they
    /// are not known, which to be forbidden something does not say.
    #[error(
        "Provided AAD token has been expired since [{expired}]. Current server time is [{now}]. \
         Please refresh the AAD token."
    )]
    IdentityExpired {
        /// When it expired.
        expired: String,
        /// The time here.
        now: String,
    },
}

impl AuthError {
    /// The status it is answered with.
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

/// Refuses a resource token that ended before `now_seconds`.
fn check_expiry(expires: u64, now_seconds: u64) -> Result<(), AuthError> {
    if now_seconds < expires {
        return Ok(());
    }
    let (expired, now) = (format_http_date(expires), format_http_date(now_seconds));
    Err(AuthError::Expired { expired, now })
}

/// Seeded tampering with tokens of every kind: a changed token is refused and nothing panics.
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
