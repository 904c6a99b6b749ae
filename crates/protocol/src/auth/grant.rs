//! Resource tokens: a permission in the hands of a client that has no account key.
//!
//! The token carries its grant and our signature over it, so every server with the same key opens it:
//!
//! ```text
//! type=resource&ver=1&sig=<base64 signature>;<base64 grant>;
//! ```
//!
//! The signed text starts in upper case, which no signed request does (its verb is lower-cased). So a
//! token can never pass for the signature of a request, nor the other way round.
//!
//! An open token is not valid yet. It names its permission, and the server compares the two with
//! [`Grant::includes`]: a permission that was deleted or narrowed takes its tokens back.

use super::{AuthError, Key, check_expiry};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater_model::{PartitionKey, PermissionRid};
use hmac::Mac;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

const PREFIX: &str = "type=resource&ver=1&sig=";
const CONTEXT: &[u8] = b"RESOURCE TOKEN 1\n";

/// The longest token we open: a partition key is the long part of one.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// What a resource token permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The permission it was minted for.
    pub permission: PermissionRid,
    /// The resource and everything under it: a link by resource ids, such as `dbs/…/colls/…`.
    pub resource: String,
    /// What may be done with it.
    pub mode: GrantMode,
    /// Only items of this partition key.
    pub partition_key: Option<PartitionKey>,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

/// What may be done with a granted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantMode {
    /// Read and write.
    All,
    /// Read.
    Read,
}

/// The grant as it is signed. Names are short because the token is sent with every request.
#[derive(Serialize, Deserialize)]
struct Claims {
    i: String,
    r: String,
    m: GrantMode,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    p: Option<String>,
    e: u64,
}

impl Grant {
    /// Whether the grant reaches the resource with this link by resource ids.
    #[must_use]
    pub fn covers(&self, link: &str) -> bool {
        let (granted, link) = (self.resource.trim_start_matches('/'), link.trim_start_matches('/'));
        // Nothing is inside of an item, but another one may have a slash in its id, also at its end.
        if granted.splitn(6, '/').nth(5).is_some_and(|item| !item.is_empty()) {
            return granted == link;
        }
        let (granted, link) = (granted.trim_end_matches('/'), link.trim_end_matches('/'));
        match link.strip_prefix(granted) {
            Some(rest) => !granted.is_empty() && (rest.is_empty() || rest.starts_with('/')),
            None => false,
        }
    }

    /// Whether it permits everything that `other` permits, whenever either ends.
    #[must_use]
    pub fn includes(&self, other: &Grant) -> bool {
        self.covers(&other.resource)
            && (self.may_write() || !other.may_write())
            && (self.partition_key.is_none() || self.partition_key == other.partition_key)
    }

    /// Refuses a grant whose time is over.
    ///
    /// # Errors
    /// [`AuthError::Expired`].
    pub fn check_expiry(&self, now_seconds: u64) -> Result<(), AuthError> {
        check_expiry(self.expires, now_seconds)
    }

    /// Whether it permits to change things.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.mode == GrantMode::All
    }
}

/// Makes the token for a grant.
#[must_use]
pub fn mint(secret: &Key, grant: &Grant) -> String {
    let claims = Claims {
        i: grant.permission.to_string(),
        r: grant.resource.clone(),
        m: grant.mode,
        p: grant.partition_key.as_ref().map(PartitionKey::to_json),
        e: grant.expires,
    };
    // Texts and numbers always serialise; an empty grant would not open.
    let claims = serde_json::to_vec(&claims).unwrap_or_default();
    let signature = STANDARD.encode(signature(secret, &claims));
    format!("{PREFIX}{signature};{};", STANDARD.encode(&claims))
}

fn signature(secret: &Key, claims: &[u8]) -> [u8; 32] {
    secret.signature(|mac| {
        mac.update(CONTEXT);
        mac.update(claims);
    })
}

/// Opens a token, given whole or only what follows `sig=`.
///
/// # Errors
/// When it is malformed, was not minted with this key, or has expired.
pub fn open(secret: &Key, token: &str, now_seconds: u64) -> Result<Grant, AuthError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(AuthError::Malformed("it is too long"));
    }
    let sig = token.strip_prefix(PREFIX).unwrap_or(token);
    let (sent, claims) = parts(sig).ok_or(AuthError::Malformed("its sig has another form"))?;
    if !bool::from(signature(secret, &claims).as_slice().ct_eq(&sent)) {
        return Err(AuthError::ForeignGrant);
    }
    // Only we can have written it, so what does not parse is from another version of ours.
    let claims: Claims = serde_json::from_slice(&claims).map_err(|_| AuthError::ForeignGrant)?;
    let partition_key = claims.p.as_deref().map(PartitionKey::parse).transpose();
    let partition_key = partition_key.map_err(|_| AuthError::ForeignGrant)?;
    let permission = PermissionRid::parse(&claims.i).map_err(|_| AuthError::ForeignGrant)?;
    check_expiry(claims.e, now_seconds)?;
    let (resource, mode, expires) = (claims.r, claims.m, claims.e);
    Ok(Grant { permission, resource, mode, partition_key, expires })
}

/// The signature and the claims it covers.
fn parts(sig: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let (signature, claims) = sig.strip_suffix(';').unwrap_or(sig).split_once(';')?;
    Some((STANDARD.decode(signature).ok()?, STANDARD.decode(claims).ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::EMULATOR_KEY;
    use super::*;
    use headwater_model::UserRid;

    const NOW: u64 = 1_700_000_000;

    fn key() -> Key {
        Key::from_base64(EMULATOR_KEY).unwrap()
    }

    fn grant() -> Grant {
        Grant {
            permission: PermissionRid::new(UserRid::new(1, 2), 3),
            resource: "dbs/AQAAAA==/colls/AQAAAIAAAAE=".to_owned(),
            mode: GrantMode::Read,
            partition_key: Some(PartitionKey::parse("[\"é\",1]").unwrap()),
            expires: NOW + 3600,
        }
    }

    #[test]
    fn what_is_minted_opens() {
        for grant in [grant(), Grant { partition_key: None, mode: GrantMode::All, ..grant() }] {
            let token = mint(&key(), &grant);
            assert!(token.starts_with("type=resource&ver=1&sig=") && token.ends_with(';'));
            assert_eq!(open(&key(), &token, NOW), Ok(grant.clone()));
            let sig = token.strip_prefix(PREFIX).unwrap();
            assert_eq!(open(&key(), sig, NOW), Ok(grant));
        }
    }

    #[test]
    fn tokens_expire() {
        let token = mint(&key(), &grant());
        assert!(open(&key(), &token, NOW + 3599).is_ok());
        let refused = open(&key(), &token, NOW + 3600).unwrap_err();
        assert_eq!(refused.code().status(), 403);
    }

    /// Any one character exchanged for another is noticed, and any other key too.
    #[test]
    fn nobody_else_can_mint() {
        let token = mint(&key(), &grant());
        let other = Key::from_base64("QUJD").unwrap();
        assert_eq!(open(&other, &token, NOW), Err(AuthError::ForeignGrant));
        for position in PREFIX.len()..token.len() - 1 {
            for other in ["A", "B", "z", "0", "/", ";"] {
                let changed = format!("{}{other}{}", &token[..position], &token[position + 1..]);
                assert_eq!(open(&key(), &changed, NOW).is_ok(), changed == token, "{changed}");
            }
        }
    }

    #[test]
    fn a_grant_includes_equal_and_smaller_ones() {
        let whole = Grant { mode: GrantMode::All, partition_key: None, ..grant() };
        let of_key = Grant { mode: GrantMode::All, ..grant() };
        let other_key = Grant { partition_key: Some(PartitionKey::from("x")), ..grant() };
        let item = Grant { resource: format!("{}/docs/1", whole.resource), ..whole.clone() };
        let database = Grant { resource: "dbs/AQAAAA==".to_owned(), ..whole.clone() };
        for (one, other, expected) in [
            (&whole, &whole, true),
            (&whole, &of_key, true),
            (&whole, &item, true),
            (&database, &whole, true),
            (&whole, &database, false),
            (&item, &whole, false),
            (&of_key, &whole, false),
            (&of_key, &other_key, false),
            (&of_key, &grant(), true),
            (&grant(), &of_key, false),
        ] {
            assert_eq!(one.includes(other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn grants_reach_what_is_below_them() {
        let grant = Grant { resource: "dbs/a/colls/b/".to_owned(), ..grant() };
        for (link, expected) in [
            ("dbs/a/colls/b", true),
            ("dbs/a/colls/b/", true),
            ("/dbs/a/colls/b/docs/c", true),
            ("dbs/a/colls/bc", false),
            ("dbs/a/colls/B", false),
            ("dbs/a", false),
            ("", false),
        ] {
            assert_eq!(grant.covers(link), expected, "{link}");
        }
        let nothing = Grant { resource: "/".to_owned(), ..grant };
        assert!(!nothing.covers("dbs/a") && !nothing.covers(""));
        let item = Grant { resource: "dbs/a/colls/b/docs/c".to_owned(), ..nothing };
        for (link, expected) in [
            ("dbs/a/colls/b/docs/c", true),
            ("dbs/a/colls/b/docs/c/", false),
            ("dbs/a/colls/b/docs/c/d", false),
            ("dbs/a/colls/b/docs", false),
        ] {
            assert_eq!(item.covers(link), expected, "{link}");
        }
    }
}
