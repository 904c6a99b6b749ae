//! One page of a change feed, after a raw etag.

use crate::container::Container;
use crate::error::ClientError;
use crate::list;
use crate::request::Request;
use bytes::Bytes;
use headwater_model::{FeedMode, KeyRange, Lsn, PartitionId, PartitionKey, Timestamp};
use headwater_protocol::headers;
use hyper::Method;
use std::time::Duration;

/// The form of all-versions changes the official SDKs ask for.
const WIRE_FORMAT: &str = "2021-09-15";

/// Where to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedFrom {
    /// With the oldest change there is; of all versions, with the oldest that is kept.
    Beginning,
    /// With the next change from now on.
    Now,
    /// With the first change after this moment, to the second.
    Time(Timestamp),
    /// Behind this etag, given as the server gave it.
    After(String),
}

/// Of what.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedScope {
    /// One partition.
    Range(PartitionId),
    /// A part of one partition, by hashes.
    Part(PartitionId, KeyRange),
    /// One partition key.
    Key(PartitionKey),
    /// The whole container at once. Headwater only; Azure wants ranges.
    Container,
}

/// A request for one page.
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

/// What a server leaves out of a feed before it sends it, in its own words. Headwater only; Azure sends
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedFilter {
    /// Only changes of items that meet this condition, such as `c.total > 100`.
    pub condition: Option<String>,
    /// Only these parts of items, such as `c.id, c.total`.
    pub columns: Option<String>,
    /// Only these kinds of change: `create,replace,delete`.
    pub kinds: Option<String>,
    /// Only changes of the values at these paths: `/total,/address/city`. All versions only.
    pub paths: Option<String>,
}

impl FeedRead {
    /// The latest versions, from here on.
    #[must_use]
    pub fn new(scope: FeedScope, from: FeedFrom) -> FeedRead {
        let mode = FeedMode::LatestVersion;
        let filter = FeedFilter::default();
        let (items, container, session) = (None, None, None);
        FeedRead { mode, from, scope, items, wait: Duration::ZERO, filter, container, session }
    }

    /// The same from somewhere else on.
    #[must_use]
    pub fn starting(self, from: FeedFrom) -> FeedRead {
        FeedRead { from, ..self }
    }

    /// Latest versions, or all of them with deletes.
    #[must_use]
    pub fn mode(self, mode: FeedMode) -> FeedRead {
        FeedRead { mode, ..self }
    }

    /// At most so many changes, unless one transaction has more.
    #[must_use]
    pub fn items(self, items: u32) -> FeedRead {
        FeedRead { items: Some(items), ..self }
    }

    /// How long the server may wait for a change when there is none, in whole seconds. Azure does not.
    #[must_use]
    pub fn wait(self, wait: Duration) -> FeedRead {
        FeedRead { wait, ..self }
    }

    /// Waits this long, unless it says how long.
    pub(crate) fn waiting(self, unless_said: Duration) -> FeedRead {
        let wait = if self.wait.is_zero() { unless_said } else { self.wait };
        self.wait(wait)
    }

    /// Only what a filter lets through.
    #[must_use]
    pub fn filter(self, filter: FeedFilter) -> FeedRead {
        FeedRead { filter, ..self }
    }

    /// Only if the container has this resource id: one made anew under the same name is refused with
    /// [`Reason::ContainerReplaced`](crate::Reason).
    #[must_use]
    pub fn of_container(self, rid: String) -> FeedRead {
        FeedRead { container: Some(rid), ..self }
    }

    /// Only from a replica that has come as far as this session token says. A feed goes by its position and
    /// needs none, unless somebody was told of a write elsewhere and expects to see it.
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

/// A header is one line; between words of a query any white space is the same.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}

/// One page of a change feed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FeedPage {
    /// The changes: items in the latest-version mode, envelopes in the other. Empty when nothing is new.
    pub changes: Vec<Bytes>,
    /// Nothing is behind this page. With a filter a page can be empty without being the last.
    pub is_end: bool,
    /// Asks for what comes behind this page. Also there when nothing is new.
    pub etag: String,
    /// The newest position of the partition that answered, if it was one.
    pub lsn: Option<Lsn>,
    /// What it cost.
    pub charge: f64,
    /// What the server calls this request; its operators can find it by that.
    pub activity: Option<String>,
}

impl Container {
    /// Reads one page of the change feed.
    ///
    /// # Errors
    /// [`Reason::RangeGone`](crate::Reason) when the range was split or merged: list the ranges again; the
    /// children go on at the parent's etag.
    pub async fn read_feed(&self, read: &FeedRead) -> Result<FeedPage, ClientError> {
        // No session token of ours: a feed goes by its position, and never shows what is not there yet.
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
