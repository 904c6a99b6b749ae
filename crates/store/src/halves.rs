//! Reads one page of the change feed on two threads.
//!
//! Copying records out of the files and checking them is most of the cost of a large page, and all a reader
//! that catches up waits for. The split point is taken from the offset tables, so no record is read to find
//! it:
//!
//! ```text
//! log      5  6  7  8  9  10        a page of six after 4
//! first    5  6  7                  live changes up to 7
//! second            8  9  10        live changes after 7
//! ```
//!
//! Both halves keep reading the resolved partition, also if it is split meanwhile. Together they are the page
//! one reader would get. Only used for plain pages of latest versions.

use crate::container::Container;
use crate::error::FeedError;
use crate::feed::{FeedPage, FeedRequest};
use crate::partition::Partition;
use crate::partition::feed::PartitionRequest;
use headwater_log::{ReadRequest, Which};
use headwater_model::{Continuation, FeedMode, Lsn, PageLimit};
use std::sync::Arc;

/// Bytes of the first half below which one reader is as fast.
const BYTES_MIN: usize = 256 << 10;
/// Items of a page below which its bytes are not looked up.
const ITEMS_MIN: u32 = 64;

/// A page divided into two halves that two threads can read.
#[derive(Clone, Debug)]
pub struct Halves {
    partition: Arc<Partition>,
    first: Half,
    second: Half,
    refuse_above: usize,
}

#[derive(Clone, Copy, Debug)]
struct Half {
    after: Lsn,
    limit: PageLimit,
    until: Option<Lsn>,
}

impl Container {
    /// Divides the requested page in two; `None` if one reader is as fast.
    ///
    /// # Errors
    /// The errors of [`Container::read_feed`].
    pub fn halves(&self, request: &FeedRequest) -> Result<Option<Halves>, FeedError> {
        let limit = request.page_limit();
        if limit.items < ITEMS_MIN {
            return Ok(None);
        }
        let Some((partition, after)) = self.one_log(request)? else { return Ok(None) };
        let extent = partition.log()?.extent(&ReadRequest {
            after,
            upto: partition.visible(),
            which: Which::Live,
            range: None,
            records_max: limit.items as usize / 2,
            bytes_max: limit.bytes as usize / 2,
        })?;
        let Some(extent) = extent.filter(|extent| extent.bytes >= BYTES_MIN) else {
            return Ok(None);
        };
        let items = u32::try_from(extent.records).unwrap_or(u32::MAX);
        let of = |items| PageLimit::new(items, limit.bytes / 2).ok();
        let (Some(first), Some(second)) = (of(items), of(limit.items.saturating_sub(items))) else {
            return Ok(None);
        };
        Ok(Some(Halves {
            partition,
            first: Half { after, limit: first, until: Some(extent.upto) },
            second: Half { after: extent.upto, limit: second, until: None },
            refuse_above: request.refused_above(),
        }))
    }
}

impl Halves {
    /// Reads the first half.
    ///
    /// # Errors
    /// When the half exceeds the request's limit, or the log cannot be read or is damaged.
    pub fn first(&self) -> Result<FeedPage, FeedError> {
        self.read(self.first)
    }

    /// Reads the second half, which continues where the first one ends.
    ///
    /// # Errors
    /// When the half exceeds the request's limit, or the log cannot be read or is damaged.
    pub fn second(&self) -> Result<FeedPage, FeedError> {
        self.read(self.second)
    }

    fn read(&self, half: Half) -> Result<FeedPage, FeedError> {
        let page = self.partition.read_feed(&PartitionRequest {
            after: half.after,
            mode: FeedMode::LatestVersion,
            range: None,
            limit: half.limit,
            filter: None,
            scan_bytes: 0,
            until: half.until,
            refuse_above: self.refuse_above,
        })?;
        Ok(FeedPage {
            changes: page.changes,
            continuation: Continuation::Single(page.position),
            unfinished: page.unfinished,
        })
    }
}
