//! The change feed as a stream of pages, for a program that follows it.
//!
//! A page of it is a page of [`Container::read_feed`]; this is the loop around it, and how long to wait where
//! a server does not. It keeps no position of its own, and follows no split: see [`Container::changes`].

use crate::container::Container;
use crate::error::ClientError;
use crate::feed::{FeedFrom, FeedPage, FeedRead};
use futures_util::stream::{Stream, try_unfold};
use std::time::Duration;

/// How long a server may wait with one answer, unless the request says otherwise.
const WAIT: Duration = Duration::from_secs(20);
/// How long to wait where it does not, as the processors of the SDKs do.
const POLL: Duration = Duration::from_secs(5);

impl Container {
    /// Follows the change feed, from the start of a request on and for ever: each page has changes, and
    /// the stream waits for the next one.
    ///
    /// A page's [etag](FeedPage::etag) is where to begin again after what it holds was handled. Azure does
    /// not wait with its answers and is asked every five seconds.
    ///
    /// # Errors
    /// As [`read_feed`](Container::read_feed); the stream ends with one. Of a range that was split or
    /// merged it ends with [`Reason::RangeGone`](crate::Reason); that of the whole container goes on.
    pub fn changes(
        &self,
        read: FeedRead,
    ) -> impl Stream<Item = Result<FeedPage, ClientError>> + Send + use<> {
        try_unfold((self.clone(), read.waiting(WAIT)), |(container, mut read)| async {
            let runtime = container.client().runtime().clone();
            loop {
                let asked = runtime.elapsed();
                let page = container.read_feed(&read).await?;
                read = read.starting(FeedFrom::After(page.etag.clone()));
                if !page.changes.is_empty() {
                    return Ok(Some((page, (container, read))));
                }
                // A filter that has seen enough for one answer has not come to the end.
                if page.is_end && runtime.elapsed() - asked < POLL {
                    runtime.sleep(POLL).await;
                }
            }
        })
    }
}
