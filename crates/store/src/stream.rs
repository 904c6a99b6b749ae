//! The change feed as an endless stream of pages.
//!
//! Each page is a page of [`Container::read_feed`]; this file only adds the loop. Stores no position: each
//! page holds the one to continue from.

use crate::container::Container;
use crate::error::FeedError;
use crate::feed::{FeedPage, FeedRequest};
use futures_util::stream::{Stream, try_unfold};
use std::time::Duration;

/// How long one read waits for changes. Reading again is cheap, and a wake-up may have been lost.
const LOOK: Duration = Duration::from_secs(600);

impl Container {
    /// Follows the change feed from the start of a request, without end. Every page has changes; the stream
    /// waits for the next one.
    ///
    /// A page's [continuation](FeedPage::continuation) is the position to resume from once its changes are
    /// handled. [`FeedRequest::wait`] is ignored here.
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
    /// Those of [`read_feed`](Container::read_feed). The stream ends after an error.
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
