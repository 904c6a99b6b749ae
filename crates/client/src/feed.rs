//! Reads one page of a change feed, after a raw etag.

use crate::container::Container;
use crate::error::ClientError;
use crate::list;
use crate::request::Request;
use bytes::Bytes;
use headwater_model::{FeedMode, KeyRange, Lsn, PartitionId, PartitionKey, Timestamp};
use headwater_protocol::headers;
use hyper::Method;
use std::time::Duration;

/// The wire format that the official SDKs request for all versions.
const WIRE_FORMAT: &str = "2021-09-15";

/// Where a feed read starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedFrom {
    /// At the oldest change; for all versions, the oldest one retained.
    Beginning,
    /// At the first change after the request.
    Now,
    /// At the first change after this time, with a resolution of one second.
    Time(Timestamp),
    /// After this etag, unchanged from an earlier page.
    After(String),
}

/// The part of a container that a feed read covers.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedScope {
    /// One partition.
    Range(PartitionId),
    /// A part of one partition, as a range of hashes.
    Part(PartitionId, KeyRange),
    /// One partition key.
    Key(PartitionKey),
    /// The whole container. Headwater only; Azure requires ranges.
    Container,
}

/// A request for one page of a change feed.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedRead {
    mode: FeedMode,
    from: FeedFrom,
    scope: FeedScope,
    items: Option<u32>,
    wait: Duration,
    filter: FeedFilter,
    container: Option<String>,
    session: Option<String>,
}

/// A server-side filter of a feed, in the server's syntax. Headwater only; Azure ignores it and sends every
/// change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedFilter {
    /// Only changes of items that satisfy this condition, such as `c.total > 100`.
    pub condition: Option<String>,
    /// Only these properties of items, such as `c.id, c.total`.
    pub columns: Option<String>,
    /// Only these kinds of change: `create,replace,delete`.
    pub kinds: Option<String>,
    /// Only changes of the values at these paths: `/total,/address/city`. All versions only.
    pub paths: Option<String>,
}

impl FeedRead {
    /// Reads the latest versions, starting at `from`.
    #[must_use]
    pub fn new(scope: FeedScope, from: FeedFrom) -> FeedRead {
        let mode = FeedMode::LatestVersion;
        let filter = FeedFilter::default();
        let (items, container, session) = (None, None, None);
        FeedRead { mode, from, scope, items, wait: Duration::ZERO, filter, container, session }
    }

    /// Sets another start.
    #[must_use]
    pub fn starting(self, from: FeedFrom) -> FeedRead {
        FeedRead { from, ..self }
    }

    /// Selects the mode: latest versions, or all versions with deletes.
    #[must_use]
    pub fn mode(self, mode: FeedMode) -> FeedRead {
        FeedRead { mode, ..self }
    }

    /// Limits the number of changes per page; a larger transaction exceeds it.
    #[must_use]
    pub fn items(self, items: u32) -> FeedRead {
        FeedRead { items: Some(items), ..self }
    }

    /// How long the server may wait for a change when there is none, in whole seconds. Azure does not wait.
    #[must_use]
    pub fn wait(self, wait: Duration) -> FeedRead {
        FeedRead { wait, ..self }
    }

    /// Sets the wait if the request has none.
    pub(crate) fn waiting(self, unless_said: Duration) -> FeedRead {
        let wait = if self.wait.is_zero() { unless_said } else { self.wait };
        self.wait(wait)
    }

    /// Adds a server-side filter.
    #[must_use]
    pub fn filter(self, filter: FeedFilter) -> FeedRead {
        FeedRead { filter, ..self }
    }

    /// Requires the container to have this resource id. One created again under the same name is refused with
    #[must_use]
    pub fn of_container(self, rid: String) -> FeedRead {
        FeedRead { container: Some(rid), ..self }
    }

    /// Requires a replica that has reached this session token. A feed follows its position and needs no token,
    /// unless the caller must see a write that it knows of from elsewhere.
    #[must_use]
    pub fn session_token(self, token: String) -> FeedRead {
        FeedRead { session: Some(token), ..self }
    }

    fn request(&self, container: &Container) -> Request {
        let request = Request::new(Method::GET, &container.items_route());
        let request = match self.mode {
            FeedMode::LatestVersion => request.header(headers::A_IM, "Incremental Feed"),
            FeedMode::AllVersionsAndDeletes => request
                .header(headers::A_IM, "Full-Fidelity Feed")
                .header(headers::CHANGE_FEED_WIRE_FORMAT, WIRE_FORMAT)
                .header(headers::FEED_PREVIOUS, true),
        };
        let request = match &self.from {
            FeedFrom::Beginning if self.mode == FeedMode::AllVersionsAndDeletes => {
                request.header(headers::FEED_START, "oldest")
            }
            FeedFrom::Beginning => request,
            FeedFrom::Now => request.header(headers::IF_NONE_MATCH, "*"),
            FeedFrom::Time(time) => request.header(headers::IF_MODIFIED_SINCE, time.to_rfc1123()),
            FeedFrom::After(etag) => request.header(headers::IF_NONE_MATCH, etag),
        };
        let request = match &self.scope {
            FeedScope::Container => request,
            FeedScope::Key(key) => request.header(headers::PARTITION_KEY, key),
            FeedScope::Range(id) => request.header(headers::PARTITION_KEY_RANGE_ID, id),
            FeedScope::Part(id, keys) => request
                .header(headers::PARTITION_KEY_RANGE_ID, id)
                .header(headers::READ_KEY_TYPE, "EffectivePartitionKeyRange")
                .header(headers::START_EPK, keys.min().to_hex())
                .header(headers::END_EPK, keys.max().to_hex()),
        };
        let filter = &self.filter;
        let request = request
            .header_if(headers::FEED_WHERE, filter.condition.as_deref().map(one_line))
            .header_if(headers::FEED_SELECT, filter.columns.as_deref().map(one_line))
            .header_if(headers::FEED_OPS, filter.kinds.as_deref())
            .header_if(headers::FEED_CHANGED, filter.paths.as_deref());
        let rid = self.container.as_deref();
        let request = request
            .header_if(headers::INTENDED_COLLECTION_RID, rid)
            .header_if(headers::SESSION_TOKEN, self.session.as_deref());
        let seconds = self.wait.as_secs();
        let prefer = (seconds > 0).then(|| format!("wait={seconds}"));
        let size = self.items.map_or_else(|| "-1".to_owned(), |items| items.to_string());
        let request = request.header(headers::MAX_ITEM_COUNT, size);
        let mut request = request.header_if(headers::PREFER, prefer);
        request.wait = self.wait;
        request
    }
}

/// Replaces line breaks and tabs: a header is one line, and a query treats all white space alike.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}

/// One page of a change feed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FeedPage {
    /// The changes: items in latest-version mode, envelopes in all-versions mode. Empty when nothing is new.
    pub changes: Vec<Bytes>,
    /// Whether nothing follows this page. With a filter, an empty page need not be the last.
    pub is_end: bool,
    /// The position after this page. Also present when nothing is new.
    pub etag: String,
    /// The newest LSN of the partition, if a single one answered.
    pub lsn: Option<Lsn>,
    /// The request charge.
    pub charge: f64,
    /// The activity id of the request, for the server's operator.
    pub activity: Option<String>,
}

impl Container {
    /// Reads one page of the change feed.
    ///
    /// # Errors
    /// [`Reason::RangeGone`](crate::Reason) when the range was split or merged: list the ranges again; the
    /// children continue at the parent's etag.
    pub async fn read_feed(&self, read: &FeedRead) -> Result<FeedPage, ClientError> {
        // No session token: a feed follows its position and never shows a change before it exists.
        let answer = self.send(read.request(self)).await?;
        let etag = answer.etag();
        let etag = etag.ok_or_else(|| self.client().bad_answer("a page without an etag"))?;
        let changes = match answer.status {
            304 => Vec::new(),
            _ => list::entries(&answer.body).map_err(|what| self.client().bad_answer(what))?,
        };
        let lsn = answer.number(headers::LSN).map(Lsn::new);
        let is_end = answer.status == 304;
        let activity = answer.header(headers::ACTIVITY_ID).map(str::to_owned);
        Ok(FeedPage { changes, is_end, etag, lsn, charge: answer.charge(), activity })
    }
}
