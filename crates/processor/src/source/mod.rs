//! Feed sources: where changes come from.
//!
//! A source reads pages of a key range after a position, and reports when the range is gone. There are three:
//! [`RemoteFeed`] over a client, [`EmbeddedFeed`] on a store in the same process, and [`MemoryFeed`] for tests. A
//! processor names keys; the source finds the physical range to ask. A source never deals with leases.

pub mod conformance;
mod embedded;
mod marks;
mod memory;
mod remote;

pub use embedded::EmbeddedFeed;
pub use memory::{MemoryFeed, Put};
pub use remote::RemoteFeed;

use crate::coverage::PhysicalRange;
use crate::lease::Start;
use crate::namespace::FeedIdentity;
use crate::position::Position;
use bytes::Bytes;
use headwater_model::{FeedMode, KeyRange, Lsn};
use headwater_runtime::BoxFuture;
use marks::Marks;
use serde::de::DeserializeOwned;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// A monitored container.
pub trait FeedSource: Send + Sync + 'static {
    /// Returns the identity of the container. Never cached: a container recreated under its name is another one.
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>>;

    /// Returns the ranges in key order; `refresh` bypasses the cache.
    fn ranges(&self, refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>>;

    /// Reads one page of changes.
    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>>;

    /// Returns the optional features of the source.
    fn capabilities(&self) -> Capabilities;
}

impl<S: FeedSource + ?Sized> FeedSource for std::sync::Arc<S> {
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>> {
        (**self).identity()
    }

    fn ranges(&self, refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>> {
        (**self).ranges(refresh)
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>> {
        (**self).read(request)
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }
}

/// Optional features of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Can read part of a range, by hashes.
    pub parts: bool,
    /// Can continue after any LSN, not only at the end of a page.
    pub any_lsn: bool,
    /// Supports long polling.
    pub waits: bool,
}

/// A request for one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The resource id of the expected container, if known. If it was recreated, the read fails with
    /// [`SourceError::Gone`].
    pub container: Option<String>,
    /// The keys to read. They must lie in one range of the service.
    pub range: KeyRange,
    /// Where to begin.
    pub from: Start,
    /// Latest versions, or all of them with deletes.
    pub mode: FeedMode,
    /// Limit on the number of changes, exceeded only by a larger transaction; the source decides if not given.
    pub items_max: Option<u32>,
    /// How long to wait for a change if there is none, if the source supports long polling.
    pub wait: Duration,
}

/// One page of changes.
#[derive(Clone, Debug)]
pub struct Page {
    /// In order; empty if nothing is new.
    pub changes: Vec<Change>,
    /// Where to continue.
    pub position: Position,
    /// The newest LSN of the range, if the answer contains it.
    pub newest: Option<Lsn>,
    /// The request charge.
    pub charge: f64,
    /// The activity id the service gave to this request, if any.
    pub activity: Option<String>,
}

/// One change: an item in latest-version mode, an envelope in all-versions mode.
#[derive(Clone, Debug)]
pub struct Change {
    body: Bytes,
    lsn: Option<Lsn>,
    seconds: Option<u64>,
    key: Option<u64>,
}

impl Change {
    /// Creates a change with all its metadata. `key` identifies the partition key.
    #[must_use]
    pub fn new(body: Bytes, lsn: Lsn, seconds: u64, key: u64) -> Change {
        Change { body, lsn: Some(lsn), seconds: Some(seconds), key: Some(key) }
    }

    /// Creates a change from the JSON a server sent.
    #[must_use]
    pub fn from_json(body: Bytes, mode: FeedMode) -> Change {
        let Marks { lsn, seconds } = Marks::of(&body, mode);
        Change { body, lsn: lsn.map(Lsn::new), seconds, key: None }
    }

    /// Returns the bytes as received.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the LSN of its transaction, if known.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        self.lsn
    }

    /// Returns when it was made, in seconds since 1970 by the service's clock, if known.
    #[must_use]
    pub fn seconds(&self) -> Option<u64> {
        self.seconds
    }

    /// Deserializes the change.
    ///
    /// # Errors
    /// Fails if the JSON does not match the type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Returns a number that is equal for all changes of one partition key, given the key's paths.
    #[must_use]
    pub fn key(&self, paths: &[String]) -> u64 {
        if let Some(key) = self.key {
            return key;
        }
        let Ok(json) = serde_json::from_slice::<serde_json::Value>(&self.body) else {
            return 0;
        };
        let envelope = json.get("metadata").is_some();
        let full = |name: &str| json.get(name).filter(|item| item.get("id").is_some());
        let item = match envelope {
            true => full("current").or_else(|| full("previous")),
            false => Some(&json),
        };
        let text = match item {
            Some(item) => {
                let value = |path: &String| item.pointer(path).map(ToString::to_string);
                let values: Vec<_> = paths.iter().map(value).collect();
                format!("{values:?}")
            }
            // A delete without its item lists the key's properties in its metadata.
            None => {
                let named = json.pointer("/metadata/partitionKey");
                let value = |path: &String| {
                    let name = path.rsplit('/').next()?;
                    named?.get(name).map(ToString::to_string)
                };
                let values: Vec<_> = paths.iter().map(value).collect();
                format!("{values:?}")
            }
        };
        xxh3_64(text.as_bytes())
    }
}

/// Errors of a feed source. Never about leases.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The keys now lie in several ranges, or in others.
    #[error("the range was split or merged; list the ranges again")]
    RangeGone,
    /// The container was deleted or recreated.
    #[error("the monitored container is gone ({0}); start again with another lease prefix")]
    Gone(String),
    /// The feed cannot continue from the position.
    #[error("the feed cannot continue from the stored position ({0}); seek to another one")]
    PositionLost(String),
    /// The page would exceed what the service sends.
    #[error("the page would be too large; request fewer changes")]
    TooLarge,
    /// Too many requests.
    #[error("the feed is throttled; retry later")]
    Throttled {
        /// How long the service asks to wait.
        after: Option<Duration>,
    },
    /// A temporary failure.
    #[error("the feed is temporarily unavailable: {0}")]
    Unavailable(String),
    /// A permanent failure, until a setting is corrected.
    #[error("the server refused to read the feed: {0}")]
    Refused(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_in_both_modes_and_their_absence_is_no_error() {
        let item = Change::from_json(
            Bytes::from_static(br#"{"id":"a","_lsn":7,"_ts":9}"#),
            FeedMode::LatestVersion,
        );
        assert_eq!((item.lsn(), item.seconds()), (Some(Lsn::new(7)), Some(9)));
        let envelope = br#"{"current":{},"metadata":{"lsn":7,"crts":9}}"#;
        let change =
            Change::from_json(Bytes::from_static(envelope), FeedMode::AllVersionsAndDeletes);
        assert_eq!((change.lsn(), change.seconds()), (Some(Lsn::new(7)), Some(9)));
        for odd in ["{}", "[]", "nonsense", r#"{"_lsn":-1}"#] {
            assert_eq!(Change::from_json(Bytes::from(odd), FeedMode::LatestVersion).lsn(), None);
        }
    }

    #[test]
    fn one_key_is_one_number_whatever_happened_to_the_item() {
        let key = |json: &'static str| {
            let paths = ["/a/b".to_owned(), "/c".to_owned()];
            Change::from_json(json.into(), FeedMode::LatestVersion).key(&paths)
        };
        let item = key(r#"{"id":"1","a":{"b":"x"},"c":1}"#);
        assert_eq!(key(r#"{"current":{"id":"2","a":{"b":"x"},"c":1},"metadata":{}}"#), item);
        assert_eq!(
            key(r#"{"current":{},"previous":{"id":"2","a":{"b":"x"},"c":1},"metadata":{}}"#),
            item
        );
        assert_eq!(key(r#"{"metadata":{"partitionKey":{"b":"x","c":1}}}"#), item);
        assert_ne!(key(r#"{"id":"1","a":{"b":"y"},"c":1}"#), item);
    }
}
