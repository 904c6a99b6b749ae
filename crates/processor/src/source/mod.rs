//! Where changes come from.
//!
//! A source reads pages of a range behind a position, and says when the range is gone. There are three:
//! [`RemoteFeed`] over a client, [`EmbeddedFeed`] on a store in the same process, [`MemoryFeed`] for
//! tests. Each finds out by itself which of the service's ranges it has to ask; a processor names keys.

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

/// A container whose changes are processed.
pub trait FeedSource: Send + Sync + 'static {
    /// Which container it is. Read anew every time: one made anew under the same name is another.
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>>;

    /// The ranges there are, in the order of their keys; with `refresh` not from memory.
    fn ranges(&self, refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>>;

    /// One page of changes.
    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>>;

    /// What it can do beyond the ordinary.
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

/// What a source can do beyond the ordinary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Reading part of a range, by hashes.
    pub parts: bool,
    /// Going on behind any LSN, not only where a page ended.
    pub any_lsn: bool,
    /// Waiting for a change instead of being asked again and again.
    pub waits: bool,
}

/// A request for one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The resource id of the container it is about, if that is known. One made anew under the same name
    /// is another: [`SourceError::Gone`].
    pub container: Option<String>,
    /// Of which keys. They must lie in one range of the service.
    pub range: KeyRange,
    /// From where.
    pub from: Start,
    /// Latest versions, or all of them with deletes.
    pub mode: FeedMode,
    /// At most so many changes, unless one transaction has more; the source decides if not given.
    pub items_max: Option<u32>,
    /// How long to wait for a change if there is none, where the source can.
    pub wait: Duration,
}

/// One page of changes.
#[derive(Clone, Debug)]
pub struct Page {
    /// In order; empty when nothing is new.
    pub changes: Vec<Change>,
    /// Where to go on.
    pub position: Position,
    /// The newest LSN of the range, if the answer said so.
    pub newest: Option<Lsn>,
    /// What it cost.
    pub charge: f64,
    /// What the service calls this request, where it has a name for it.
    pub activity: Option<String>,
}

/// One change: an item in the latest-version mode, an envelope in the other.
#[derive(Clone, Debug)]
pub struct Change {
    body: Bytes,
    lsn: Option<Lsn>,
    seconds: Option<u64>,
    key: Option<u64>,
}

impl Change {
    /// A change with everything known about it. `key` tells partition keys apart.
    #[must_use]
    pub fn new(body: Bytes, lsn: Lsn, seconds: u64, key: u64) -> Change {
        Change { body, lsn: Some(lsn), seconds: Some(seconds), key: Some(key) }
    }

    /// A change as a server sent it.
    #[must_use]
    pub fn from_json(body: Bytes, mode: FeedMode) -> Change {
        let Marks { lsn, seconds } = Marks::of(&body, mode);
        Change { body, lsn: lsn.map(Lsn::new), seconds, key: None }
    }

    /// The bytes as they came.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The transaction, if it is known.
    #[must_use]
    pub fn lsn(&self) -> Option<Lsn> {
        self.lsn
    }

    /// When it was made, in seconds since 1970 by the service's clock, if it is known.
    #[must_use]
    pub fn seconds(&self) -> Option<u64> {
        self.seconds
    }

    /// The change as a type of the user's.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// A number that is the same for all changes of one partition key, given the key's paths.
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
            // A delete without its item names the key in its metadata, property by property.
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

/// Why a page could not be read. Never about leases.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The keys lie in several ranges now, or in others: list the ranges again.
    #[error("the range was split or merged; list the ranges again")]
    RangeGone,
    /// The container is not there, or was made anew.
    #[error("the monitored container is gone ({0}); start anew with another lease prefix")]
    Gone(String),
    /// The position is not one the feed can go on from any more.
    #[error("the feed cannot go on from the stored position ({0}); seek to another one")]
    PositionLost(String),
    /// One page would be more than the service sends.
    #[error("the page would be too large; ask for fewer changes")]
    TooLarge,
    /// Too many requests.
    #[error("the feed is throttled; ask again later")]
    Throttled {
        /// How long the service asks to wait.
        after: Option<Duration>,
    },
    /// Not now.
    #[error("the feed cannot be read right now: {0}")]
    Unavailable(String),
    /// Not at all, until somebody changes settings.
    #[error("the feed refuses: {0}")]
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
