//! The ranges of a container: lists them, and on a Headwater server splits and merges them.
//!
//! The list is itself a change feed, read until the server has nothing newer. It is cached until a request
//! fails because a range is gone.

use crate::container::Container;
use crate::error::ClientError;
use crate::list;
use crate::request::Request;
use bytes::Bytes;
use headwater_model::{Epk, KeyRange, Lsn, PartitionId};
use headwater_protocol::headers;
use headwater_protocol::route::Route;
use hyper::Method;
use serde::Deserialize;
use std::sync::Arc;

/// The most pages of one list; a server that sends more is broken.
const PAGES_MAX: usize = 1000;

/// A range of hashed partition keys, stored by one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The partition that stores it.
    pub id: PartitionId,
    /// The range of hashes.
    pub keys: KeyRange,
    /// The partitions it came from, if it was split or merged.
    pub parents: Vec<PartitionId>,
}

/// A partition: its range, position and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The range.
    pub range: Range,
    /// The newest position of its log.
    pub lsn: Lsn,
    /// Bytes of its live items, if the server reports them.
    pub live_bytes: Option<u64>,
}

/// The ranges as last read.
#[derive(Debug, Default)]
pub(crate) struct RangeCache(Option<Arc<[Range]>>);

impl RangeCache {
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    id: String,
    min_inclusive: String,
    max_exclusive: String,
    #[serde(default)]
    parents: Option<Vec<String>>,
    #[serde(default)]
    lsn: Option<u64>,
    #[serde(default)]
    live_bytes: Option<u64>,
}

impl Document {
    fn parse(bytes: &[u8]) -> Result<Partition, String> {
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| format!("a range ({error})"))?;
        let epk = |text: &str| Epk::from_hex(text).map_err(|error| format!("a range: {error}"));
        let (min, max) = (epk(&document.min_inclusive)?, epk(&document.max_exclusive)?);
        let keys = KeyRange::new(min, max).map_err(|error| format!("a range: {error}"))?;
        let id = |text: &str| text.parse().map_err(|_| format!("a range with the id {text:?}"));
        let parents = document.parents.unwrap_or_default();
        let parents = parents.iter().map(|text| id(text)).collect::<Result<_, _>>()?;
        let range = Range { id: id(&document.id)?, keys, parents };
        let lsn = Lsn::new(document.lsn.unwrap_or(0));
        Ok(Partition { range, lsn, live_bytes: document.live_bytes })
    }
}

impl Container {
    /// The ranges in ascending order; read once, then cached.
    ///
    /// # Errors
    /// When the container does not exist, or the server refuses.
    pub async fn ranges(&self) -> Result<Arc<[Range]>, ClientError> {
        let known = self.ranges_cache().lock().0.clone();
        match known {
            Some(known) => Ok(known),
            None => self.refresh_ranges().await,
        }
    }

    /// Reads the current ranges and updates the cache.
    ///
    /// # Errors
    /// When the container does not exist, or the server refuses.
    pub async fn refresh_ranges(&self) -> Result<Arc<[Range]>, ClientError> {
        let route = Route::PkRanges { db: self.database().to_owned(), coll: self.id().to_owned() };
        let mut found: Vec<Range> = Vec::new();
        let mut etag = None;
        for _ in 0..PAGES_MAX {
            let request = Request::new(Method::GET, &route)
                .header(headers::A_IM, "Incremental Feed")
                .header(headers::MAX_ITEM_COUNT, -1)
                .header_if(headers::IF_NONE_MATCH, etag.as_deref());
            let answer = self.send(request).await?;
            let next = answer.etag();
            if answer.status == 304 || next.is_none() || next == etag {
                let ranges: Arc<[Range]> = without_parents(found).into();
                self.ranges_cache().lock().0 = Some(ranges.clone());
                return Ok(ranges);
            }
            etag = next;
            for entry in self.parse_ranges(&answer.body)? {
                found.retain(|known| known.id != entry.range.id);
                found.push(entry.range);
            }
        }
        Err(self.client().bad_answer("its list of ranges has no end"))
    }

    /// The partitions of a container with their positions. Headwater only.
    ///
    /// # Errors
    /// When the server refuses, or is not a Headwater server.
    pub async fn partitions(&self) -> Result<Vec<Partition>, ClientError> {
        self.reshape(Method::GET, "", Bytes::new()).await
    }

    /// Splits a range in the middle or at a given hash and returns its children. Headwater only.
    ///
    /// # Errors
    /// When the range does not exist or cannot be split.
    pub async fn split(
        &self,
        range: PartitionId,
        at: Option<&Epk>,
    ) -> Result<Vec<Partition>, ClientError> {
        let at = at.map(Epk::to_hex);
        let body = serde_json::json!({ "range": range.to_string(), "at": at }).to_string();
        self.reshape(Method::POST, "/split", body.into()).await
    }

    /// Merges two adjacent ranges and returns their child. Headwater only.
    ///
    /// # Errors
    /// When one of the ranges does not exist, or they are not adjacent.
    pub async fn merge(
        &self,
        one: PartitionId,
        other: PartitionId,
    ) -> Result<Vec<Partition>, ClientError> {
        let ranges = [one.to_string(), other.to_string()];
        let body = serde_json::json!({ "ranges": ranges }).to_string();
        self.reshape(Method::POST, "/merge", body.into()).await
    }

    async fn reshape(
        &self,
        verb: Method,
        action: &str,
        body: Bytes,
    ) -> Result<Vec<Partition>, ClientError> {
        let request = Request::extension(verb, self.database(), self.id(), action);
        let answer = self.send(request.body(body)).await?;
        self.ranges_cache().lock().forget();
        self.parse_ranges(&answer.body)
    }

    fn parse_ranges(&self, body: &Bytes) -> Result<Vec<Partition>, ClientError> {
        let entries = list::entries(body).map_err(|what| self.client().bad_answer(what))?;
        let parsed = entries.iter().map(|entry| Document::parse(entry));
        parsed.collect::<Result<_, String>>().map_err(|what| self.client().bad_answer(what))
    }
}

/// Removes parents: a list read during a split may hold a range and its children.
fn without_parents(mut ranges: Vec<Range>) -> Vec<Range> {
    let gone: Vec<PartitionId> =
        ranges.iter().flat_map(|range| range.parents.iter().copied()).collect();
    ranges.retain(|range| !gone.contains(&range.id));
    ranges.sort_by(|one, other| one.keys.min().cmp(other.keys.min()));
    ranges
}
