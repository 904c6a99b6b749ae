//! Verifies identity tokens in the form that SDK test suites build for an emulator.
//!
//! `b64url(header).b64url(claims).b64url(account key as text)`: the third part is the key itself, not
//! a signature, so such a token grants what the key grants. Real identity tokens are signed by a
//! directory that the server does not contact. A developer's server can be configured to accept any
//! well-formed one.

use super::{Access, AuthError, Keys, format_http_date};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Accepts padded and unpadded text: the format has no padding, but some encoders add it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const TOKEN_BYTES_MAX: usize = 32 * 1024;

#[derive(Deserialize)]
struct Claims {
    exp: Option<f64>,
}

/// Checks that the token carries an account key. With `any`, every well-formed, unexpired token passes.
///
/// # Errors
/// When the token is malformed, carries none of the keys, or has expired.
pub fn verify_aad(
    keys: &Keys,
    jwt: &str,
    now_seconds: u64,
    any: bool,
) -> Result<Access, AuthError> {
    if jwt.len() > TOKEN_BYTES_MAX {
        return Err(AuthError::Malformed("it is too long"));
    }
    let mut parts = jwt.split('.');
    let (Some(header), Some(claims), Some(third), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(AuthError::Malformed(
            "its identity token is not three parts separated by dots",
        ));
    };
    let _: BTreeMap<String, IgnoredAny> = decoded_json(header)?;
    let claims: Claims = decoded_json(claims)?;
    let third = decoded(third)?;
    // Compares every key, so that the time taken does not reveal which one matched.
    let mut found = any.then_some(Access::ReadWrite);
    for (key, access) in keys.each() {
        if key.is(&third).into() {
            found = found.or(Some(access));
        }
    }
    let access = found.ok_or(AuthError::ForeignIdentity)?;
    let expires = expiry(&claims)?;
    if now_seconds < expires {
        return Ok(access);
    }
    let (expired, now) = (format_http_date(expires), format_http_date(now_seconds));
    Err(AuthError::IdentityExpired { expired, now })
}

fn decoded(part: &str) -> Result<Vec<u8>, AuthError> {
    let malformed = AuthError::Malformed("its identity token is not base64url");
    BASE64.decode(part).map_err(|_| malformed)
}

fn decoded_json<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, AuthError> {
    let malformed = AuthError::Malformed("its identity token has parts that are not JSON objects");
    serde_json::from_slice(&decoded(part)?).map_err(|_| malformed)
}

/// Returns the expiry in seconds since 1970. A token without one is malformed.
fn expiry(claims: &Claims) -> Result<u64, AuthError> {
    match claims.exp {
        // The cast saturates at both ends of the range, which is the wanted result.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Some(seconds) if !seconds.is_nan() => Ok(seconds as u64),
        _ => Err(AuthError::Malformed("its identity token has no exp")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EMULATOR_KEY, Key};
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn jwt(claims: &str, third: &str) -> String {
        let encode = |text: &str| BASE64.encode(text).trim_end_matches('=').to_owned();
        let header = r#"{"typ":"JWT","alg":"RS256","kid":"CosmosEmulatorPrimaryMaster"}"#;
        format!("{}.{}.{}", encode(header), encode(claims), encode(third))
    }

    fn keys() -> Keys {
        Keys {
            primary: Key::from_base64(EMULATOR_KEY).unwrap(),
            secondary: None,
            primary_read_only: Some(Key::from_base64("QUJD").unwrap()),
            secondary_read_only: None,
        }
    }

    #[test]
    fn the_key_in_the_token_decides() {
        let fresh = r#"{"aud":"https://localhost","exp":1700000060,"iat":1}"#;
        let old = r#"{"exp":1700000000}"#;
        for (claims, third, any, expected) in [
            (fresh, EMULATOR_KEY, false, Ok(Access::ReadWrite)),
            (fresh, "QUJD", false, Ok(Access::ReadOnly)),
            (fresh, "QUJE", false, Err((401, 0))),
            (fresh, "", false, Err((401, 0))),
            (fresh, "anything", true, Ok(Access::ReadWrite)),
            (old, EMULATOR_KEY, false, Err((401, 5006))),
            (old, "anything", true, Err((401, 5006))),
            ("{}", EMULATOR_KEY, false, Err((401, 0))),
            ("[]", EMULATOR_KEY, true, Err((401, 0))),
            (r#"{"exp":1e300}"#, EMULATOR_KEY, false, Ok(Access::ReadWrite)),
            (r#"{"exp":-1}"#, EMULATOR_KEY, false, Err((401, 5006))),
        ] {
            let verified = verify_aad(&keys(), &jwt(claims, third), NOW, any);
            let verified = verified.map_err(|error| {
                let code = error.code();
                (code.status(), code.substatus())
            });
            assert_eq!(verified, expected, "{claims} {third}");
        }
    }

    #[test]
    fn what_is_no_jwt_is_refused_even_if_any_is_taken() {
        for text in ["", ".", "..", "a.b", "a.b.c.d", "!.!.!", "e30.e30.x"] {
            assert!(verify_aad(&keys(), text, NOW, true).is_err(), "{text}");
        }
    }
}
