//! A request after its head is parsed: the operation, and typed access to its parameters.
//!
//! `headwater_protocol::operation` has already classified the request. Nothing here or later reads a header to
//! find out whether it is a query, a batch or a feed.

use crate::budget::Peer;
use crate::failure::Failure;
use crate::head::Head;
use crate::names;
use bytes::Bytes;
use headwater_model::{KeyRange, PageLimit, PartitionId, PartitionKey};
use headwater_protocol::auth::Grant;
use headwater_protocol::headers::{self, ConsistencyLevel};
use headwater_protocol::operation::Operation;
use headwater_protocol::route::Route;
use hyper::header::{AsHeaderName, HeaderName, IF_MATCH, IF_NONE_MATCH};
use std::sync::Arc;
use std::time::Duration;

/// Items per page if the client does not say.
const PAGE_ITEMS: u32 = 100;
/// Items per page if the client leaves it to the server (-1).
const PAGE_ITEMS_MAX: u32 = 1000;
/// The maximum number of items per page.
const PAGE_ITEMS_LIMIT: u32 = 10_000;
/// The maximum size of a page in bytes.
const PAGE_BYTES: u32 = 4 << 20;

/// The sender of a request, which determines its access.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// The holder of a key of the account.
    Owner,
    /// The holder of a read-only key.
    Reader,
    /// The holder of a resource token.
    Guest(Grant),
}

/// A request.
#[derive(Debug)]
pub(crate) struct Call {
    /// What to do.
    pub(crate) operation: Operation,
    /// On which resource.
    pub(crate) route: Route,
    /// The query string, which only extensions read.
    pub(crate) query: Option<String>,
    pub(crate) head: Head,
    pub(crate) body: Bytes,
    pub(crate) caller: Caller,
    /// Scheme, host and port by which the client reached the server.
    pub(crate) origin: String,
    /// The address of the client, and its budgets.
    pub(crate) peer: Arc<Peer>,
}

/// The part of a container that a list, feed or query reads. All parts that are set apply.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    pub(crate) range: Option<PartitionId>,
    pub(crate) key: Option<PartitionKey>,
    pub(crate) hashes: Option<KeyRange>,
}

impl Call {
    /// Returns a header as text. One that is not visible ASCII counts as absent.
    pub(crate) fn header(&self, name: impl AsHeaderName + AsRef<str>) -> Option<&str> {
        self.head.text(name)
    }

    /// Returns a header whose value may contain UTF-8.
    pub(crate) fn header_utf8(&self, name: &HeaderName) -> Result<Option<&str>, Failure> {
        let Some(value) = self.head.get(name) else {
            return Ok(None);
        };
        let text = std::str::from_utf8(value.as_bytes());
        text.map(Some).map_err(|_| Failure::bad_request(format!("the header {name} is not UTF-8")))
    }

    pub(crate) fn flag(&self, name: impl AsHeaderName + AsRef<str>) -> bool {
        self.header(name).is_some_and(headers::bool_of)
    }

    pub(crate) fn wants_minimal(&self) -> bool {
        self.preferences().minimal
    }

    /// Whether the client accepts only binary JSON. All such clients can read text too.
    pub(crate) fn prefers_binary(&self) -> bool {
        let offered = self.header(&names::SUPPORTED_SERIALIZATION_FORMATS).unwrap_or_default();
        let mut names = headers::names_in(offered).peekable();
        names.peek().is_some() && names.all(|name| name.eq_ignore_ascii_case("CosmosBinary"))
    }

    /// Refuses an unknown consistency level. All known ones are served, because every read is strong.
    pub(crate) fn check_consistency(&self) -> Result<(), Failure> {
        let asked = self.header(&names::CONSISTENCY_LEVEL).filter(|text| !text.is_empty());
        asked.map(ConsistencyLevel::parse).transpose()?;
        Ok(())
    }

    pub(crate) fn wait(&self, at_most: Duration) -> Duration {
        let seconds = self.preferences().wait_seconds.unwrap_or(0);
        Duration::from_secs(u64::from(seconds)).min(at_most)
    }

    fn preferences(&self) -> headers::Prefer {
        self.header(&names::PREFER).map(headers::Prefer::parse).unwrap_or_default()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> Result<&str, Failure> {
        std::str::from_utf8(&self.body)
            .map_err(|_| Failure::bad_request("the body is not UTF-8; encode it as UTF-8"))
    }

    pub(crate) fn partition_key(&self) -> Result<Option<PartitionKey>, Failure> {
        match self.header_utf8(&names::PARTITION_KEY)? {
            None => Ok(None),
            Some(text) => Ok(Some(headers::partition_key(text)?)),
        }
    }

    /// Parses the part of the container that the request is about.
    pub(crate) fn scope(&self) -> Result<Scope, Failure> {
        let range = match self.header(&names::PARTITION_KEY_RANGE_ID) {
            None => None,
            Some(text) => headers::partition_key_range_id(text)?.partition,
        };
        let hashes =
            headers::epk_range(self.header(headers::START_EPK), self.header(headers::END_EPK))?;
        Ok(Scope { range, key: self.partition_key()?, hashes })
    }

    /// Parses the page limit.
    pub(crate) fn page_limit(&self) -> Result<PageLimit, Failure> {
        let asked = self.header(headers::MAX_ITEM_COUNT).filter(|text| !text.is_empty());
        let items = match asked {
            None => PAGE_ITEMS,
            Some(text) => headers::max_item_count(text)?.unwrap_or(PAGE_ITEMS_MAX),
        };
        Ok(PageLimit::new(items.min(PAGE_ITEMS_LIMIT), PAGE_BYTES)?)
    }

    /// Parses the page limit of a query. A client that merges ranges asks for the rows that it still needs, which are
    /// none for `TOP 0`; the query itself limits the rows.
    pub(crate) fn query_page_limit(&self) -> Result<PageLimit, Failure> {
        match self.header(headers::MAX_ITEM_COUNT).map(str::trim) {
            Some("0") => Ok(PageLimit::new(PAGE_ITEMS, PAGE_BYTES)?),
            _ => self.page_limit(),
        }
    }

    pub(crate) fn continuation(&self) -> Option<&str> {
        self.header(headers::CONTINUATION).filter(|text| !text.is_empty())
    }

    /// The `If-Match` header; an empty one counts as absent.
    pub(crate) fn if_match(&self) -> Option<&str> {
        self.header(IF_MATCH).filter(|text| !text.is_empty())
    }

    pub(crate) fn if_none_match(&self) -> Option<&str> {
        self.header(IF_NONE_MATCH).filter(|text| !text.is_empty())
    }
}

pub(crate) fn no_partition_key() -> Failure {
    Failure::bad_request(
        "PartitionKey value must be supplied for this operation: send x-ms-documentdb-partitionkey.",
    )
}
