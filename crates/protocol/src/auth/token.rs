//! Parses the `authorization` header into its kind and signature, without verifying either.
//!
//! Clients differ in the case of their percent escapes, and some do not escape at all. One decoding
//! handles both, because no part of a token contains a percent sign. A plus stays a plus: it is a
//! base64 digit, and only HTML forms decode it as a space.

use super::AuthError;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;

/// The longest header accepted. Identity tokens are the long ones.
const HEADER_BYTES_MAX: usize = 32 * 1024;

/// How the header of nearly every request starts.
const ESCAPED_MASTER: &str = "type%3Dmaster%26ver%3D1.0%26sig%3D";

/// A parsed `authorization` header. Nothing in it is verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A request signed with an account key.
    Master {
        /// The signature in base64.
        sig: Cow<'a, str>,
    },
    /// A grant minted for a permission.
    Resource {
        /// The input of [`open`](super::open).
        sig: Cow<'a, str>,
    },
    /// An identity token.
    Aad {
        /// The input of [`verify_aad`](super::verify_aad).
        jwt: Cow<'a, str>,
    },
}

#[derive(Clone, Copy)]
enum Kind {
    Master,
    Resource,
    Aad,
}

/// Parses the header.
///
/// # Errors
/// When the header is too long, names no known kind, or carries no signature.
pub fn parse_token(header: &str) -> Result<Token<'_>, AuthError> {
    if header.len() > HEADER_BYTES_MAX {
        return Err(AuthError::Malformed("it is too long"));
    }
    let header = header.trim();
    if header.is_empty() {
        return Err(AuthError::MissingAuthorization);
    }
    if let Some(sig) = escaped_master(header) {
        return Ok(Token::Master { sig });
    }
    let text = percent_decode_str(header)
        .decode_utf8()
        .map_err(|_| AuthError::Malformed("it is not UTF-8"))?;
    let (kind, start, end) = parts(&text)?;
    let sig = match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[start..end]),
        Cow::Owned(mut text) => {
            text.truncate(end);
            text.drain(..start);
            Cow::Owned(text)
        }
    };
    Ok(match kind {
        Kind::Master => Token::Master { sig },
        Kind::Resource => Token::Resource { sig },
        Kind::Aad => Token::Aad { jwt: sig },
    })
}

/// Fast path for the common spelling: fully escaped, with the fields in the usual order. Only the
/// signature is left to decode. `None` for every other spelling.
fn escaped_master(header: &str) -> Option<Cow<'_, str>> {
    let (start, rest) = header.split_at_checked(ESCAPED_MASTER.len())?;
    if !start.eq_ignore_ascii_case(ESCAPED_MASTER) {
        return None;
    }
    let sig = unescaped(rest)?;
    (!sig.is_empty() && !sig.contains('&')).then_some(sig)
}

/// Decodes percent escapes; `None` if one is broken or the result is not UTF-8.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    let Some((start, mut rest)) = text.split_once('%') else {
        return Some(Cow::Borrowed(text));
    };
    let mut bytes = Vec::with_capacity(text.len());
    bytes.extend_from_slice(start.as_bytes());
    loop {
        let digit = |at: usize| char::from(*rest.as_bytes().get(at)?).to_digit(16);
        bytes.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
        rest = &rest[2..];
        let Some((start, end)) = rest.split_once('%') else {
            break;
        };
        bytes.extend_from_slice(start.as_bytes());
        rest = end;
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Returns the kind, and where the signature starts and ends.
fn parts(text: &str) -> Result<(Kind, usize, usize), AuthError> {
    let (mut kind, mut sig) = (None, None);
    let mut start = 0;
    for part in text.split('&') {
        let end = start + part.len();
        // Only the first = separates: a signature may end in = itself.
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name.eq_ignore_ascii_case("type") {
            kind = Some(kind_of(value)?);
        } else if name.eq_ignore_ascii_case("sig") {
            sig = Some((end - value.len(), end));
        } else if name.eq_ignore_ascii_case("ver") && !matches!(value, "1" | "1.0") {
            return Err(AuthError::Malformed("its version is not 1.0"));
        }
        start = end + 1;
    }
    let kind = kind.ok_or(AuthError::Malformed("it has no type"))?;
    match sig {
        Some((start, end)) if start < end => Ok((kind, start, end)),
        _ => Err(AuthError::Malformed("it has no sig")),
    }
}

fn kind_of(text: &str) -> Result<Kind, AuthError> {
    [("master", Kind::Master), ("resource", Kind::Resource), ("aad", Kind::Aad)]
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text))
        .map(|(_, kind)| kind)
        .ok_or(AuthError::Malformed("its type is not master, resource or aad"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(sig: &str) -> Token<'_> {
        Token::Master { sig: sig.into() }
    }

    #[test]
    fn tokens_arrive_in_many_spellings() {
        for (header, expected) in [
            ("type%3Dmaster%26ver%3D1.0%26sig%3Da%2Bb%2Fc%3D", master("a+b/c=")),
            ("type%3dmaster%26ver%3d1.0%26sig%3da%2bb%2fc%3d", master("a+b/c=")),
            ("type=master&ver=1.0&sig=a+b/c==", master("a+b/c==")), // not escaped at all
            ("type%3Dmaster%26ver%3D1.0%26sig%3Da+b", master("a+b")), // escaped, except for the plus
            ("ver=1.0&type=master&sig=x", master("x")),
            ("sig=x&type=master", master("x")),
            (" type=master&ver=1&sig=x ", master("x")),
            ("type%3Dmaster%26ver%3D1.0%26sig%3Dx%26more%3Dy", master("x")),
            ("TYPE%3dmaster%26ver%3d1.0%26sig%3dx", master("x")),
            ("Type=Master&Sig=x", master("x")),
            (
                "type%3Dresource%26ver%3D1%26sig%3Dab%3D%3D%3Bcd%3D%3B",
                Token::Resource { sig: "ab==;cd=;".into() },
            ),
            ("type=aad&ver=1.0&sig=a.b-_.c", Token::Aad { jwt: "a.b-_.c".into() }),
        ] {
            assert_eq!(parse_token(header), Ok(expected), "{header}");
        }
    }

    #[test]
    fn refused_tokens() {
        assert_eq!(parse_token(""), Err(AuthError::MissingAuthorization));
        assert_eq!(parse_token("  "), Err(AuthError::MissingAuthorization));
        for header in [
            "x",
            "type=master",
            "type=master&sig=",
            "type=master&sig",
            "sig=x",
            "type=other&sig=x",
            "type=master&ver=2.0&sig=x",
            "type%253Dmaster%2526sig%253Dx", // escaped twice
            "type=master&sig=%ff",
            &format!("type=master&sig={}", "x".repeat(HEADER_BYTES_MAX)),
        ] {
            let refused = parse_token(header);
            assert!(matches!(refused, Err(AuthError::Malformed(_))), "{header}: {refused:?}");
        }
    }
}
