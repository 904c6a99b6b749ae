//! A page of the change feed that two threads read at a time.
//!
//! Most of what a large page costs is copying it out of the files and checking it, and a reader that catches
//! up waits for nothing else. Where the page is in the middle is known without reading any of it:
//!
//! ```text
//! log      5  6  7  8  9  10        a page of six after 4
//! first    5  6  7                  whatever is alive up to 7
//! second            8  9  10        whatever is alive behind 7
//! ```
//!
//! Both are read from the partition that was asked, whatever becomes of it meanwhile, and both together are
//! the page that one reader would have read. Only plain pages of latest versions are worth it.

use crate::container::Container;
use crate::error::FeedError;
use crate::feed::{FeedPage, FeedRequest};
use crate::partition::Partition;
use crate::partition::feed::PartitionRequest;
use headwater_log::{ReadRequest, Which};
use headwater_model::{Continuation, FeedMode, Lsn, PageLimit};
use std::sync::Arc;

/// Bytes of the first half below which one reader is as quick.
const BYTES_MIN: usize = 256 << 10;
/// Items of a page below which nobody looks how many bytes they are.
const ITEMS_MIN: u32 = 64;

/// See the head of this file.
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
    /// The page a request asks for, for two to read, where that is worth it.
    ///
    /// # Errors
    /// As [`Container::read_feed`].
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
    /// The first of them.
    ///
    /// # Errors
    /// When the half is larger than the request takes, or the log cannot be read or is damaged.
    pub fn first(&self) -> Result<FeedPage, FeedError> {
        self.read(self.first)
    }

    /// The other, which goes on where the first ends.
    ///
    /// # Errors
    /// When the half is larger than the request takes, or the log cannot be read or is damaged.
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
