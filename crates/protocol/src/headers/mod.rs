//! Header names, and parsers for the values that are more than text.
//!
//! SDKs spell the same value differently, so values are compared without case and accepted where the
//! meaning is clear. Otherwise the request is refused with the name of the header. Partition keys,
//! session tokens and feed positions have their own parsers in `headwater_model`, [`crate::session`]
//! and [`crate::feed`].
//!
//! This module takes strings, not a header map, so it does not depend on an HTTP library.

mod names;
mod partition_key;

pub use names::*;
pub use partition_key::partition_key;

use crate::error::{Code, shortened};
use headwater_model::{Epk, KeyRange, PartitionId};

/// The media type of JSON bodies.
pub const JSON: &str = "application/json";
/// The media type of query bodies in JSON.
pub const QUERY_JSON: &str = "application/query+json";
/// The media type of bodies that are bare query text.
pub const SQL: &str = "application/sql";
/// The API version that the server announces.
pub const API_VERSION: &str = "2020-07-15";

/// How much of a refused value an error message repeats.
const SHOWN_BYTES_MAX: usize = 200;

/// A header whose value is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is `{value}`; {remedy}")]
pub struct BadHeader {
    /// The name of the header.
    pub name: &'static str,
    /// The value that was sent, shortened.
    pub value: String,
    /// What to send instead.
    pub remedy: &'static str,
}

impl BadHeader {
    fn new(name: &'static str, value: &str, remedy: &'static str) -> BadHeader {
        BadHeader { name, value: shortened(value, SHOWN_BYTES_MAX).to_owned(), remedy }
    }

    /// The status code of the response.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::BadRequest
    }
}

/// Whether a header's value is `true`, in any case.
#[must_use]
pub fn bool_of(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true")
}

/// [`bool_of`] for a header that may be absent.
#[must_use]
pub fn flag(value: Option<&str>) -> bool {
    value.is_some_and(bool_of)
}

/// Parses `x-ms-max-item-count`; -1 gives `None`, which leaves the page size to the server.
///
/// # Errors
/// When the value is neither -1 nor a number from 1.
pub fn max_item_count(value: &str) -> Result<Option<u32>, BadHeader> {
    let text = value.trim();
    let decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (text, text.parse()) {
        ("-1", _) => Ok(None),
        (_, Ok(count)) if decimal && count > 0 => Ok(Some(count)),
        _ => {
            let remedy = "send a page size from 1, or -1 to leave it to the server";
            Err(BadHeader::new(MAX_ITEM_COUNT, value, remedy))
        }
    }
}

/// The physical partition that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PkRangeScope<'a> {
    /// The container's resource id, which some SDKs send.
    pub container: Option<&'a str>,
    /// The partition; `None` for an id that no partition can have.
    pub partition: Option<PartitionId>,
}

/// Parses `x-ms-documentdb-partitionkeyrangeid`: `3` or `<container rid>,3`.
///
/// # Errors
/// When there is nothing after the last comma. An id that no partition can have is not an error: the
/// response is that of any other range that is gone.
pub fn partition_key_range_id(value: &str) -> Result<PkRangeScope<'_>, BadHeader> {
    let text = value.trim();
    let (container, id) = match text.rsplit_once(',') {
        Some((container, id)) => (Some(container), id),
        None => (None, text),
    };
    if id.is_empty() {
        let remedy = "send the id of a range of `pkranges`";
        return Err(BadHeader::new(PARTITION_KEY_RANGE_ID, value, remedy));
    }
    Ok(PkRangeScope { container, partition: id.parse().ok() })
}

/// Parses `x-ms-start-epk` and `x-ms-end-epk` as a range; `None` without either, regardless of
/// `x-ms-read-key-type`.
///
/// # Errors
/// When a bound is not hexadecimal, or the range is empty.
pub fn epk_range(start: Option<&str>, end: Option<&str>) -> Result<Option<KeyRange>, BadHeader> {
    let [start, end] = [start, end].map(|bound| bound.map(str::trim));
    if start.is_none() && end.is_none() {
        return Ok(None);
    }
    let bound = |name, text: Option<&str>, open: fn() -> Epk| match text {
        None => Ok(open()),
        Some(text) => Epk::from_hex(text).map_err(|_| {
            BadHeader::new(name, text, "send a bound of `pkranges`, in hexadecimal digits")
        }),
    };
    let (min, max) = (bound(START_EPK, start, Epk::min)?, bound(END_EPK, end, Epk::max)?);
    let range = KeyRange::new(min, max).map_err(|_| {
        let remedy = "send an end after x-ms-start-epk";
        BadHeader::new(END_EPK, end.unwrap_or_default(), remedy)
    })?;
    Ok(Some(range))
}

/// The consistency level of a read, the strictest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConsistencyLevel {
    /// Reads see the newest write.
    Strong,
    /// Reads lag behind by a bounded amount.
    BoundedStaleness,
    /// Reads see at least what the client's session has seen.
    Session,
    /// Reads see a past state, without gaps.
    ConsistentPrefix,
    /// Reads see any state.
    Eventual,
}

impl ConsistencyLevel {
    /// Parses the header.
    ///
    /// # Errors
    /// When the value names no level.
    pub fn parse(value: &str) -> Result<ConsistencyLevel, BadHeader> {
        let text = value.trim();
        let known = [
            ("Strong", ConsistencyLevel::Strong),
            ("BoundedStaleness", ConsistencyLevel::BoundedStaleness),
            ("Bounded", ConsistencyLevel::BoundedStaleness),
            ("Session", ConsistencyLevel::Session),
            ("ConsistentPrefix", ConsistencyLevel::ConsistentPrefix),
            ("Eventual", ConsistencyLevel::Eventual),
        ];
        let found = known.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        let remedy =
            "send Strong, BoundedStaleness, Session, ConsistentPrefix or Eventual, or leave it out";
        found
            .map(|(_, level)| *level)
            .ok_or_else(|| BadHeader::new(CONSISTENCY_LEVEL, value, remedy))
    }

    /// The level's name in the account document.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            ConsistencyLevel::Strong => "Strong",
            ConsistencyLevel::BoundedStaleness => "BoundedStaleness",
            ConsistencyLevel::Session => "Session",
            ConsistencyLevel::ConsistentPrefix => "ConsistentPrefix",
            ConsistencyLevel::Eventual => "Eventual",
        }
    }
}

/// The `Prefer` header. Unknown preferences are ignored, as HTTP requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefer {
    /// `return=minimal`: respond to writes without a body.
    pub minimal: bool,
    /// `wait=N`: the seconds that the client is willing to wait for a change.
    pub wait_seconds: Option<u32>,
}

impl Prefer {
    /// Parses the header.
    #[must_use]
    pub fn parse(value: &str) -> Prefer {
        let mut prefer = Prefer::default();
        for preference in value.split([',', ';']) {
            let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("return") {
                prefer.minimal = value.eq_ignore_ascii_case("minimal");
            } else if name.eq_ignore_ascii_case("wait") {
                let decimal = value.bytes().all(|byte| byte.is_ascii_digit());
                prefer.wait_seconds = value.parse().ok().filter(|_| decimal);
            }
        }
        prefer
    }
}

/// The API version a client was written for. Versions are dates and ordered as such.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiVersion([u8; 10]);

impl ApiVersion {
    /// Stands for a missing version.
    pub const OLDEST: ApiVersion = ApiVersion(*b"0000-00-00");
    /// Since this version a session token has a version and regions; before, it was only an LSN.
    pub const V2018_06_18: ApiVersion = ApiVersion(*b"2018-06-18");
    /// Since this version containers have partition keys of version 2.
    pub const V2018_12_31: ApiVersion = ApiVersion(*b"2018-12-31");

    /// Parses the header. A malformed version counts as [`ApiVersion::OLDEST`].
    #[must_use]
    pub fn of(value: Option<&str>) -> ApiVersion {
        let bytes = value.map(str::trim).and_then(|text| text.as_bytes().try_into().ok());
        let well_formed = |bytes: &[u8; 10]| {
            bytes.iter().enumerate().all(|(index, byte)| match index {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            })
        };
        bytes.filter(well_formed).map_or(ApiVersion::OLDEST, ApiVersion)
    }
}

/// Whether a POST to a list is a query.
#[must_use]
pub fn is_query(is_query: Option<&str>, content_type: Option<&str>) -> bool {
    flag(is_query) || content_type.is_some_and(|value| has_media_type(value, QUERY_JSON))
}

/// Whether a content type is `media_type`, ignoring parameters.
#[must_use]
pub fn has_media_type(value: &str, media_type: &str) -> bool {
    let named = value.split(';').next().unwrap_or_default();
    named.trim().eq_ignore_ascii_case(media_type)
}

/// The names in a comma-separated list of triggers.
pub fn names_in(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Whether a client's activity id is a UUID, so that the response may repeat it.
#[must_use]
pub fn is_activity_id(value: &str) -> bool {
    value.len() == 36
        && value.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// Parses `x-ms-documentdb-expiry-seconds`: the lifetime of a resource token, 10 seconds to five hours.
///
/// # Errors
/// When the value is not a number in that range.
pub fn expiry_seconds(value: &str) -> Result<u32, BadHeader> {
    let remedy = "send a number of seconds from 10 to 18000, or leave it out for an hour";
    let seconds = value.trim().parse().ok().filter(|seconds| (10..=18_000).contains(seconds));
    seconds.ok_or_else(|| BadHeader::new(EXPIRY_SECONDS, value, remedy))
}

#[cfg(test)]
mod tests;
