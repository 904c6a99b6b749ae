//! A feed source for a container of a store in the same process; no network.

use super::{Capabilities, Change, FeedSource, Page, ReadRequest, SourceError};
use crate::coverage::PhysicalRange;
use crate::lease::Start;
use crate::namespace::{EMBEDDED, FeedIdentity, Names};
use crate::position::Position;
use bytes::Bytes;
use headwater_model::{Continuation, FeedMode, FeedStart, PageLimit};
use headwater_runtime::BoxFuture;
use headwater_store::{Container, Database, FeedError, FeedRequest};
use xxhash_rust::xxh3::xxh3_64;

/// A container of a store in the same process as a feed source. Cheap to clone.
#[derive(Clone)]
pub struct EmbeddedFeed {
    database: Database,
    container: Container,
}

impl EmbeddedFeed {
    /// Creates a source for this container, which must belong to the database.
    #[must_use]
    pub fn new(database: Database, container: Container) -> EmbeddedFeed {
        EmbeddedFeed { database, container }
    }

    fn ranges_now(&self) -> Vec<PhysicalRange> {
        let ranges = self.container.ranges();
        let physical = |range: headwater_store::RangeInfo| PhysicalRange {
            id: range.id,
            keys: range.range,
            parents: range.ancestors,
        };
        ranges.into_iter().map(physical).collect()
    }
}

fn translate(error: FeedError) -> SourceError {
    let text = error.to_string();
    match error {
        FeedError::RangeGone(_) | FeedError::EmptyScope => SourceError::RangeGone,
        FeedError::ContainerGone | FeedError::WrongContainer => SourceError::Gone(text),
        FeedError::PositionMissing(_)
        | FeedError::PositionAhead { .. }
        | FeedError::BeforeRetention { .. }
        | FeedError::UnsupportedStart(_)
        | FeedError::Continuation(_) => SourceError::PositionLost(text),
        FeedError::PartitionKey(_) => SourceError::Refused(text),
        _ => SourceError::Unavailable(text),
    }
}

fn start_of(from: &Start) -> Result<FeedStart, SourceError> {
    Ok(match from {
        Start::Beginning => FeedStart::Beginning,
        Start::Now => FeedStart::Now,
        Start::Time(time) => FeedStart::Time(*time),
        Start::Position(position) => {
            let parsed = position.as_str().parse::<Continuation>();
            let lost = |error| SourceError::PositionLost(format!("{error}"));
            FeedStart::After(parsed.map_err(lost)?)
        }
    })
}

fn change_of(change: &headwater_store::Change, mode: FeedMode) -> Change {
    let body = match mode {
        FeedMode::LatestVersion => change.body(),
        FeedMode::AllVersionsAndDeletes => envelope(change),
    };
    let key = xxh3_64(change.hashed_key());
    Change::new(body, change.lsn(), change.timestamp().as_seconds(), key)
}

/// Returns a change of all-versions mode in the form servers send it.
fn envelope(change: &headwater_store::Change) -> Bytes {
    let raw = |item: Option<Bytes>| match item {
        Some(item) => String::from_utf8_lossy(&item).into_owned(),
        None => "{}".to_owned(),
    };
    let current = raw(change.item().map(|item| item.to_bytes()));
    let previous = change.previous().map(|item| raw(Some(item.to_bytes())));
    let previous = previous.map(|item| format!(",\"previous\":{item}")).unwrap_or_default();
    let metadata = serde_json::json!({
        "operationType": change.kind().as_str(),
        "lsn": change.lsn().get(),
        "crts": change.timestamp().as_seconds(),
        "previousImageLSN": change.previous_lsn().map(headwater_model::Lsn::get),
        "timeToLiveExpired": change.is_expiry(),
        "id": change.id(),
    });
    Bytes::from(format!("{{\"current\":{current}{previous},\"metadata\":{metadata}}}"))
}

impl FeedSource for EmbeddedFeed {
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>> {
        let names = |rid: String, id: String| Names { rid, id };
        let definition = self.container.definition();
        let paths = definition.partition_key().paths.iter().map(|path| path.as_str().to_owned());
        let identity = FeedIdentity::new(
            EMBEDDED,
            names(self.database.rid().to_string(), self.database.id().to_string()),
            names(self.container.rid().to_string(), self.container.id().to_string()),
            paths.collect(),
        );
        let gone = self.container.is_dropped();
        Box::pin(async move {
            if gone { Err(SourceError::Gone("it was dropped".to_owned())) } else { Ok(identity) }
        })
    }

    fn ranges(&self, _refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>> {
        let ranges = self.ranges_now();
        Box::pin(async move { Ok(ranges) })
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>> {
        let feed = self.clone();
        Box::pin(async move {
            // The handle refers to one incarnation of the container: after it was recreated, reads report it as gone.
            let ranges = feed.ranges_now();
            let found = ranges.iter().find(|range| range.keys.contains_range(&request.range));
            let range = found.ok_or(SourceError::RangeGone)?;
            let mut asked = FeedRequest::new(start_of(&request.from)?)
                .mode(request.mode)
                .of_range(range.id)
                .wait(request.wait);
            if range.keys != request.range {
                asked = asked.of_hashes(request.range.clone());
            }
            if let Some(items) = request.items_max {
                let limit = PageLimit::items(items.clamp(1, PageLimit::ITEMS_MAX));
                asked = asked.limit(limit.unwrap_or(PageLimit::DEFAULT));
            }
            let page = feed.container.read_feed(&asked).await.map_err(translate)?;
            let newest = feed.container.newest(range.id);
            let position = Position::new(page.continuation.to_string());
            let position = position.ok_or(SourceError::RangeGone)?;
            let change = |change| change_of(change, request.mode);
            let changes = page.changes.iter().map(change).collect();
            Ok(Page { changes, position, newest, charge: 0.0, activity: None })
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { parts: true, any_lsn: true, waits: true }
    }
}
