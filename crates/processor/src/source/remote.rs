//! A feed source for a container of a server, ours or Azure's, read through a client.

use super::{Capabilities, Change, FeedSource, Page, ReadRequest, SourceError};
use crate::coverage::PhysicalRange;
use crate::lease::Start;
use crate::namespace::{FeedIdentity, Names};
use crate::position::Position;
use headwater_client::{ClientError, Container, FeedFrom, FeedRead, FeedScope, Range, Reason};
use headwater_model::KeyRange;
use headwater_runtime::BoxFuture;
use serde::Deserialize;

/// A container of a server as a feed source. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RemoteFeed {
    container: Container,
    any_lsn: bool,
    session: Option<String>,
}

impl RemoteFeed {
    /// Creates a source for this container.
    #[must_use]
    pub fn new(container: Container) -> RemoteFeed {
        RemoteFeed { container, any_lsn: false, session: None }
    }

    /// Declares that the server can continue after any LSN, as Headwater can. Then less is repeated after a crash in
    /// the middle of a page.
    #[must_use]
    pub fn any_lsn(self, any_lsn: bool) -> RemoteFeed {
        RemoteFeed { any_lsn, ..self }
    }

    /// Reads only from regions that have reached this session token (`SessionToken`), for example one that an
    /// earlier write returned. That write is then not missed while a region lags.
    #[must_use]
    pub fn session_token(self, token: impl Into<String>) -> RemoteFeed {
        RemoteFeed { session: Some(token.into()), ..self }
    }
}

#[derive(Deserialize)]
struct Resource {
    id: String,
    #[serde(rename = "_rid")]
    rid: String,
    #[serde(rename = "partitionKey")]
    partition_key: Option<Paths>,
}

#[derive(Deserialize)]
struct Paths {
    paths: Vec<String>,
}

fn parse(body: &[u8]) -> Result<Resource, SourceError> {
    serde_json::from_slice(body)
        .map_err(|error| SourceError::Refused(format!("cannot parse the server's answer: {error}")))
}

fn physical(range: &Range) -> PhysicalRange {
    let (id, keys, parents) = (range.id, range.keys.clone(), range.parents.clone());
    PhysicalRange { id, keys, parents }
}

async fn scope_of(container: &Container, wanted: &KeyRange) -> Result<FeedScope, SourceError> {
    for refresh in [false, true] {
        let ranges = match refresh {
            false => container.ranges().await,
            true => container.refresh_ranges().await,
        };
        let ranges = ranges.map_err(translate)?;
        let found = ranges.iter().find(|range| range.keys.contains_range(wanted));
        if let Some(range) = found {
            let whole = range.keys == *wanted;
            return Ok(match whole {
                true => FeedScope::Range(range.id),
                false => FeedScope::Part(range.id, wanted.clone()),
            });
        }
    }
    Err(SourceError::RangeGone)
}

fn translate(error: ClientError) -> SourceError {
    let text = error.to_string();
    match error.reason() {
        Some(Reason::RangeGone) => SourceError::RangeGone,
        Some(Reason::NotFound | Reason::OwnerNotFound | Reason::ContainerReplaced) => {
            SourceError::Gone(text)
        }
        Some(Reason::TooLarge) => SourceError::TooLarge,
        Some(Reason::BadRequest) if text.to_lowercase().contains("reduce page size") => {
            SourceError::TooLarge
        }
        Some(Reason::BadRequest) => SourceError::PositionLost(text),
        Some(Reason::Throttled) => {
            let after = match &error {
                ClientError::Refused(refusal) => refusal.retry_after,
                _ => None,
            };
            SourceError::Throttled { after }
        }
        _ if error.is_passing() => SourceError::Unavailable(text),
        _ => SourceError::Refused(text),
    }
}

impl FeedSource for RemoteFeed {
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>> {
        let container = self.container.clone();
        Box::pin(async move {
            let client = container.client();
            let database = client.read_database(container.database()).await.map_err(translate)?;
            let database = parse(&database)?;
            let definition = parse(&container.definition().await.map_err(translate)?)?;
            let paths = definition.partition_key.map(|key| key.paths).unwrap_or_default();
            Ok(FeedIdentity::new(
                client.endpoint().host(),
                Names { rid: database.rid, id: database.id },
                Names { rid: definition.rid, id: definition.id },
                paths,
            ))
        })
    }

    fn ranges(&self, refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>> {
        let container = self.container.clone();
        Box::pin(async move {
            let ranges = match refresh {
                false => container.ranges().await,
                true => container.refresh_ranges().await,
            };
            Ok(ranges.map_err(translate)?.iter().map(physical).collect())
        })
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>> {
        let (container, session) = (self.container.clone(), self.session.clone());
        Box::pin(async move {
            let scope = scope_of(&container, &request.range).await?;
            let from = match request.from {
                Start::Beginning => FeedFrom::Beginning,
                Start::Now => FeedFrom::Now,
                Start::Time(time) => FeedFrom::Time(time),
                Start::Position(position) => FeedFrom::After(position.as_str().to_owned()),
            };
            let mut read = FeedRead::new(scope, from).mode(request.mode).wait(request.wait);
            if let Some(items) = request.items_max {
                read = read.items(items);
            }
            if let Some(token) = session {
                read = read.session_token(token);
            }
            if let Some(rid) = request.container {
                read = read.of_container(rid);
            }
            let page = container.read_feed(&read).await.map_err(translate)?;
            let nowhere = || SourceError::Refused("a page without a position".to_owned());
            let position = Position::new(page.etag).ok_or_else(nowhere)?;
            let change = |body| Change::from_json(body, request.mode);
            let changes = page.changes.into_iter().map(change).collect();
            let (newest, charge, activity) = (page.lsn, page.charge, page.activity);
            Ok(Page { changes, position, newest, charge, activity })
        })
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { parts: true, any_lsn: self.any_lsn, waits: true }
    }
}
