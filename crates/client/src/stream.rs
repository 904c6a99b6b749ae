//! The change feed as a stream of pages, for a program that follows it.
//!
//! Adds a loop and a polling interval to [`Container::read_feed`]. Stores no position and does not follow
//! splits: see [`Container::changes`].

use crate::container::Container;
use crate::error::ClientError;
use crate::feed::{FeedFrom, FeedPage, FeedRead};
use futures_util::stream::{Stream, try_unfold};
use std::time::Duration;

/// How long the server may wait for changes, unless the request sets a wait.
const WAIT: Duration = Duration::from_secs(20);
/// The polling interval where the server does not wait, as in the processors of the SDKs.
const POLL: Duration = Duration::from_secs(5);

impl Container {
    /// Follows the change feed without end, from the start that the request sets. Each page has changes, and
    /// the stream waits for the next one.
    ///
    /// Resume at a page's [etag](FeedPage::etag) after its changes are handled. Azure does not wait for
    /// changes, so it is polled every five seconds.
    ///
    /// # Errors
    /// As [`read_feed`](Container::read_feed); the stream ends with the first error. For a range that was split
    /// or merged that is [`Reason::RangeGone`](crate::Reason); a stream of the whole container continues.
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
                // A filtered page can be empty because it reached its scan limit, not the end of the feed.
                if page.is_end && runtime.elapsed() - asked < POLL {
                    runtime.sleep(POLL).await;
                }
            }
        })
    }
}
