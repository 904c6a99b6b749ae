//! The signature of a request by an account key.
//!
//! ```text
//! payload = lower(verb) \n lower(resource type) \n link \n lower(x-ms-date) \n lower(date) \n
//! header  = urlencode("type=master&ver=1.0&sig=" base64(HMAC-SHA256(key, payload)))
//! ```
//!
//! `date` counts only when there is no `x-ms-date`. This runs for every request, so the payload is
//! put together on the stack, and becomes a text only when it has to be shown in an error.

use super::key::Signature;
use super::{Access, AuthError, Key, Keys};
use crate::error::shortened;
use crate::route::Route;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use smallvec::SmallVec;
use std::fmt::Write as _;
use subtle::ConstantTimeEq;

/// As browsers' `encodeURIComponent` does it, for the characters that occur in a token.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// How much of a link an error shows. Errors go to senders without a key.
const SHOWN_LINK_BYTES_MAX: usize = 1024;
/// How much of a verb, a resource type or a date an error shows.
const SHOWN_PART_BYTES_MAX: usize = 64;

/// What a signature covers.
#[derive(Clone, Copy, Debug)]
pub struct Signable<'a> {
    /// The HTTP method, in any case.
    pub verb: &'a str,
    /// The last type in the path: `docs`, `colls`, or nothing for the account.
    pub resource_type: &'a str,
    /// The ways the client may have written the link, the likeliest first. A signer uses the first.
    pub links: &'a [&'a str],
    /// The header `x-ms-date`.
    pub x_ms_date: Option<&'a str>,
    /// The header `Date`, which counts when there is no other.
    pub date: Option<&'a str>,
}

impl Signable<'_> {
    /// The two dates as they are signed.
    fn dates(&self) -> (&str, &str) {
        match (self.x_ms_date, self.date) {
            (Some(date), _) => (date, ""),
            (None, Some(date)) => ("", date),
            (None, None) => ("", ""),
        }
    }

    fn signature(&self, key: &Key, link: &str) -> Signature {
        let (x_ms_date, date) = self.dates();
        let parts = [
            (self.verb, true),
            (self.resource_type, true),
            (link, false),
            (x_ms_date, true),
            (date, true),
        ];
        let mut payload = SmallVec::<[u8; 256]>::new();
        for (part, is_lower) in parts {
            let start = payload.len();
            payload.extend_from_slice(part.as_bytes());
            if is_lower {
                payload[start..].make_ascii_lowercase();
            }
            payload.push(b'\n');
        }
        key.signature(|mac| mac.update(&payload))
    }

    /// What is signed, with the first link, as a text for people.
    fn payload(&self) -> String {
        let (x_ms_date, date) = self.dates();
        let link = shortened(self.first_link(), SHOWN_LINK_BYTES_MAX);
        let [verb, resource_type, x_ms_date, date] =
            [self.verb, self.resource_type, x_ms_date, date]
                .map(|part| shortened(part, SHOWN_PART_BYTES_MAX).to_ascii_lowercase());
        format!("{verb}\n{resource_type}\n{link}\n{x_ms_date}\n{date}\n")
    }

    fn first_link(&self) -> &str {
        self.links.first().copied().unwrap_or_default()
    }
}

/// The whole value of the `authorization` header for this request.
#[must_use]
pub fn sign(key: &Key, signable: &Signable<'_>) -> String {
    let signature = STANDARD.encode(signable.signature(key, signable.first_link()));
    let mut header = String::with_capacity(128);
    header.push_str("type%3Dmaster%26ver%3D1.0%26sig%3D");
    // Writing into a text does not fail.
    let _ = write!(header, "{}", utf8_percent_encode(&signature, ESCAPED));
    header
}

/// Whether one of the keys signed this request, and what that key permits.
///
/// # Errors
/// [`AuthError::MissingDate`] without any date; otherwise [`AuthError::Signature`], with the payload
/// that was expected.
pub fn verify_master(keys: &Keys, signable: &Signable<'_>, sig: &str) -> Result<Access, AuthError> {
    if signable.x_ms_date.or(signable.date).is_none() {
        return Err(AuthError::MissingDate);
    }
    let found = decode(sig).and_then(|sent| signer(keys, signable, &sent));
    found.ok_or_else(|| AuthError::Signature { payload: signable.payload() })
}

/// Which key and link made this signature. The common case is the first of each.
fn signer(keys: &Keys, signable: &Signable<'_>, sent: &Signature) -> Option<Access> {
    for &link in signable.links {
        for (key, access) in keys.each() {
            if signable.signature(key, link).ct_eq(sent).into() {
                return Some(access);
            }
        }
    }
    None
}

/// A signature has one length; anything else is not worth hashing for.
fn decode(sig: &str) -> Option<Signature> {
    // 44 characters stand for up to 33 bytes, one more than there are.
    let mut bytes = [0; 33];
    let length = STANDARD.decode_slice(sig, &mut bytes).ok()?;
    bytes[..length].try_into().ok()
}

/// [`verify_master`] for a parsed route, with every type and link its clients are known to sign.
///
/// # Errors
/// As for [`verify_master`].
pub fn verify_request(
    keys: &Keys,
    verb: &str,
    route: &Route,
    path: &str,
    (x_ms_date, date): (Option<&str>, Option<&str>),
    sig: &str,
) -> Result<Access, AuthError> {
    let links = route.links_for(path);
    let links = links.candidates();
    let resource_type = route.resource_type();
    let signable = Signable { verb, resource_type, links: &links, x_ms_date, date };
    let verified = verify_master(keys, &signable, sig);
    match (route.other_resource_type(), verified) {
        (Some(resource_type), Err(refused)) => {
            verify_master(keys, &Signable { resource_type, ..signable }, sig).map_err(|_| refused)
        }
        (_, verified) => verified,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EMULATOR_KEY, Token, parse_token};
    use super::*;

    const DATE: &str = "Tue, 01 Nov 1994 08:12:31 GMT";

    fn key(text: &str) -> Key {
        Key::from_base64(text).unwrap()
    }

    fn signable<'a>(links: &'a [&'a str]) -> Signable<'a> {
        Signable { verb: "GET", resource_type: "docs", links, x_ms_date: Some(DATE), date: None }
    }

    fn sig(header: &str) -> String {
        match parse_token(header).unwrap() {
            Token::Master { sig } => sig.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_key_opens_what_it_may() {
        let keys = Keys {
            primary: key(EMULATOR_KEY),
            secondary: Some(key("QQ==")),
            primary_read_only: Some(key("Qg==")),
            secondary_read_only: Some(key("Qw==")),
        };
        let signable = signable(&["dbs/a/colls/b"]);
        for (signer, expected) in [
            (EMULATOR_KEY, Ok(Access::ReadWrite)),
            ("QQ==", Ok(Access::ReadWrite)),
            ("Qg==", Ok(Access::ReadOnly)),
            ("Qw==", Ok(Access::ReadOnly)),
            ("RA==", Err(401)),
        ] {
            let sig = sig(&sign(&key(signer), &signable));
            let verified = verify_master(&keys, &signable, &sig);
            assert_eq!(verified.map_err(|error| error.code().status()), expected, "{signer}");
        }
    }

    #[test]
    fn any_candidate_link_may_be_the_signed_one() {
        let keys = Keys::new(key(EMULATOR_KEY));
        let candidates = ["dbs/a/docs/x y", "dbs/a/docs/x%20y", "abcd"];
        for signed in candidates {
            let sig = sig(&sign(&keys.primary, &signable(&[signed])));
            assert_eq!(
                verify_master(&keys, &signable(&candidates), &sig),
                Ok(Access::ReadWrite),
                "{signed}"
            );
        }
        let sig = sig(&sign(&keys.primary, &signable(&["dbs/A/docs/x y"])));
        assert!(verify_master(&keys, &signable(&candidates), &sig).is_err());
    }

    #[test]
    fn date_stands_in_for_x_ms_date() {
        let keys = Keys::new(key(EMULATOR_KEY));
        let with = |x_ms_date, date| Signable { x_ms_date, date, ..signable(&["l"]) };
        let by_date = sig(&sign(&keys.primary, &with(None, Some(DATE))));
        assert!(verify_master(&keys, &with(None, Some(DATE)), &by_date).is_ok());
        assert!(verify_master(&keys, &with(Some(DATE), None), &by_date).is_err());
        let by_both = sig(&sign(&keys.primary, &with(Some(DATE), Some("other"))));
        assert!(verify_master(&keys, &with(Some(DATE), None), &by_both).is_ok());
        let refused = verify_master(&keys, &with(None, None), &by_date);
        assert_eq!(refused, Err(AuthError::MissingDate));
    }

    #[test]
    fn a_refusal_shows_the_payload() {
        let keys = Keys::new(key(EMULATOR_KEY));
        for sig in ["", "x", "QUJD", "!!!!", &"A".repeat(43), &"A".repeat(10_000)] {
            let refused = verify_master(&keys, &signable(&["dbs/A"]), sig).unwrap_err();
            let message = refused.to_string();
            let payload = "get\ndocs\ndbs/A\ntue, 01 nov 1994 08:12:31 gmt\n\n";
            assert!(message.contains(&format!("'{payload}'")), "{message}");
            assert!(message.contains("The input authorization token can't serve the request"));
        }
    }

    #[test]
    fn every_part_is_covered() {
        let keys = Keys::new(key(EMULATOR_KEY));
        let base = signable(&["dbs/a"]);
        let sig = sig(&sign(&keys.primary, &base));
        for changed in [
            Signable { verb: "PUT", ..base },
            Signable { resource_type: "colls", ..base },
            Signable { links: &["dbs/b"], ..base },
            Signable { x_ms_date: Some("Tue, 01 Nov 1994 08:12:32 GMT"), ..base },
        ] {
            assert!(verify_master(&keys, &changed, &sig).is_err(), "{changed:?}");
        }
        let same = Signable { verb: "get", resource_type: "DOCS", ..base };
        assert!(verify_master(&keys, &same, &sig).is_ok());
    }
}
