//! The change feed as a stream of pages, for a program that follows it.
//!
//! A page of it is a page of [`Container::read_feed`], and nothing else happens here: what is missing in a
//! stream is only the loop around it. It keeps no position of its own; each page brings the one behind it.

use crate::container::Container;
use crate::error::FeedError;
use crate::feed::{FeedPage, FeedRequest};
use futures_util::stream::{Stream, try_unfold};
use std::time::Duration;

/// How long one look waits. Looking again costs next to nothing, and a wake-up may have been lost.
const LOOK: Duration = Duration::from_secs(600);

impl Container {
    /// Follows the change feed, from the start of a request on and for ever: each page has changes, and
    /// the stream waits for the next one.
    ///
    /// A page's [continuation](FeedPage::continuation) is where to begin again after what it holds was
    /// handled. [`FeedRequest::wait`] has no meaning here.
    ///
    /// ```no_run
    /// # use headwater_store::{Container, FeedError, FeedRequest, FeedStart};
    /// use futures_util::TryStreamExt;
    ///
    /// # async fn follow(orders: Container) -> Result<(), FeedError> {
    /// let mut pages = std::pin::pin!(orders.changes(FeedRequest::new(FeedStart::Now)));
    /// while let Some(page) = pages.try_next().await? {
    ///     for change in &page.changes {
    ///         println!("{} is new at {}", change.id(), page.continuation);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read_feed`](Container::read_feed); the stream ends with one.
    pub fn changes(
        &self,
        request: FeedRequest,
    ) -> impl Stream<Item = Result<FeedPage, FeedError>> + Send + use<> {
        try_unfold((self.clone(), request.wait(LOOK)), |(container, mut request)| async {
            loop {
                let page = container.read_feed(&request).await?;
                request = request.behind(&page);
                if !page.changes.is_empty() {
                    return Ok(Some((page, (container, request))));
                }
            }
        })
    }
}
