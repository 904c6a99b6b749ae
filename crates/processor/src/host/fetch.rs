//! Reads a lease's range ahead of its handlers, within the limits on pages and unhandled changes.

use super::shared::Shared;
use super::tenure::Tenure;
use crate::event::Event;
use crate::failure::Backoff;
use crate::handler::Diagnostics;
use crate::lease::Start;
use crate::source::{Page, ReadRequest, SourceError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// A result of the reader.
pub(crate) enum FetchResult {
    Page(Page, Diagnostics, PagePermit),
    /// Nothing new; the position may still have moved.
    Idle(Page),
    /// The reader cannot continue.
    End(FetchEnd),
}

/// A page's permit to be in memory. It is released when the last of the page's changes was handled.
pub(crate) type PagePermit = Arc<OwnedSemaphorePermit>;

#[derive(Debug)]
pub(crate) enum FetchEnd {
    RangeGone,
    FeedGone(String),
    PositionLost(String),
    Unreachable,
}

const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };
/// Pause after a refused request: a setting must be corrected first.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
const PAGE_ITEMS: u32 = 100;

pub(crate) async fn fetch(
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    mut from: Start,
    pages: mpsc::Sender<FetchResult>,
) {
    let rooms = Arc::new(Semaphore::new(shared.options.prefetch_pages + shared.options.lanes));
    let mut trouble = FeedOutage::default();
    let mut items_max = shared.options.items_max;
    loop {
        while tenure.watermark.lock().under_way() >= shared.options.unhandled_max {
            // Handlers that acknowledge later send no notification, so poll.
            let pause = shared.runtime.sleep(Duration::from_millis(20));
            tokio::select! { biased; () = tenure.fence.leaving() => return, () = pause => {} }
        }
        while !shared.read_delay().is_zero() {
            let pause = shared.runtime.sleep(shared.read_delay());
            tokio::select! { biased; () = tenure.fence.leaving() => return, () = pause => {} }
        }
        let room = tokio::select! {
            biased;
            () = tenure.fence.leaving() => return,
            room = rooms.clone().acquire_owned() => match room {
                Ok(room) => room,
                // The semaphore is never closed.
                Err(_) => return,
            },
        };
        let asked = shared.runtime.elapsed();
        let read = read(&shared, &tenure, &from, items_max);
        let answer = tokio::select! {
            biased;
            () = tenure.fence.leaving() => return,
            answer = read => answer,
        };
        let fetched = match answer {
            Ok(page) => {
                let failures = std::mem::take(&mut trouble).failures;
                let took = shared.runtime.elapsed().saturating_sub(asked);
                shared.spend(page.charge);
                let read = diagnostics(&page, &from, took, failures);
                if items_max != shared.options.items_max {
                    items_max = grow_page_size(items_max, shared.options.items_max);
                }
                from = Start::Position(page.position.clone());
                let (lease, changes) = (tenure.lease.lease.clone(), page.changes.len());
                shared.tell(Event::Read { lease, changes, charge: page.charge });
                match page.changes.is_empty() {
                    true => FetchResult::Idle(page),
                    false => FetchResult::Page(page, read, Arc::new(room)),
                }
            }
            Err(SourceError::TooLarge) if items_max != Some(1) => {
                items_max = Some((items_max.unwrap_or(PAGE_ITEMS) / 2).max(1));
                continue;
            }
            Err(SourceError::RangeGone) => FetchResult::End(FetchEnd::RangeGone),
            Err(SourceError::Gone(why)) => FetchResult::End(FetchEnd::FeedGone(why)),
            Err(SourceError::PositionLost(why)) => FetchResult::End(FetchEnd::PositionLost(why)),
            Err(error) => match trouble.pause(&shared, &tenure, &error) {
                Some(pause) => {
                    let pause = shared.runtime.sleep(pause);
                    tokio::select! { biased; () = tenure.fence.leaving() => return, () = pause => {} }
                    continue;
                }
                None => FetchResult::End(FetchEnd::Unreachable),
            },
        };
        let is_idle = matches!(fetched, FetchResult::Idle(_));
        let is_end = matches!(fetched, FetchResult::End(_));
        tokio::select! {
            biased;
            () = tenure.fence.leaving() => return,
            sent = pages.send(fetched) => if sent.is_err() { return },
        }
        if is_end {
            return;
        }
        // A feed that supports long polling has waited already; others answer at once.
        let took = shared.runtime.elapsed().saturating_sub(asked);
        if is_idle && took < shared.options.poll_delay {
            let pause = shared.runtime.sleep(shared.options.poll_delay - took);
            tokio::select! { biased; () = tenure.fence.leaving() => return, () = pause => {} }
        }
    }
}

fn diagnostics(page: &Page, from: &Start, took: Duration, failures: u32) -> Diagnostics {
    Diagnostics {
        from: from.clone(),
        position: page.position.clone(),
        changes: page.changes.len(),
        took,
        failures,
        charge: page.charge,
        newest: page.newest,
        activity: page.activity.clone(),
    }
}

async fn read(
    shared: &Shared,
    tenure: &Tenure,
    from: &Start,
    items_max: Option<u32>,
) -> Result<Page, SourceError> {
    let waits = shared.source.capabilities().waits;
    let wait = if waits { shared.options.feed_wait } else { Duration::ZERO };
    let request = ReadRequest {
        container: Some(shared.identity.container.rid.clone()),
        range: tenure.lease.range.clone(),
        from: from.clone(),
        mode: shared.options.mode,
        items_max,
        wait,
    };
    let patience = shared.options.feed_timeout + wait;
    let answer = shared.runtime.timeout(patience, shared.source.read(request)).await;
    answer.unwrap_or_else(|| Err(SourceError::Unavailable("no answer in time".to_owned())))
}

/// Doubles the page size after it had to shrink, up to the configured size.
fn grow_page_size(now: Option<u32>, wanted: Option<u32>) -> Option<u32> {
    let limit = wanted.unwrap_or(PAGE_ITEMS);
    let doubled = now.unwrap_or(limit).saturating_mul(2);
    if doubled >= limit { wanted } else { Some(doubled) }
}

/// Consecutive failures to read the feed.
#[derive(Default)]
struct FeedOutage {
    failures: u32,
    since: Option<Duration>,
}

impl FeedOutage {
    /// How long to wait before the next attempt. `None` if the feed has been unreachable for too long.
    fn pause(&mut self, shared: &Shared, tenure: &Tenure, error: &SourceError) -> Option<Duration> {
        let now = shared.runtime.elapsed();
        let since = now.saturating_sub(*self.since.get_or_insert(now));
        self.failures = self.failures.saturating_add(1);
        if self.failures == 3 || matches!(error, SourceError::Refused(_)) {
            let (lease, error) = (tenure.lease.lease.clone(), error.to_string());
            shared.tell(Event::FeedTrouble { lease, error, since });
        }
        match error {
            // The service is reachable and throttles: another host would fare no better.
            SourceError::Throttled { after } => {
                let wait = PAUSES.jittered(self.failures, shared.runtime.random());
                let wait = after.unwrap_or(wait);
                shared.tell(Event::Throttled { lease: tenure.lease.lease.clone(), wait });
                Some(wait)
            }
            _ if since >= shared.options.feed_unreachable_after => None,
            SourceError::Refused(_) => Some(REFUSED_PAUSE),
            _ => Some(PAUSES.jittered(self.failures, shared.runtime.random())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_come_back_step_by_step() {
        assert_eq!(grow_page_size(Some(1), None), Some(2));
        assert_eq!(grow_page_size(Some(64), None), None);
        assert_eq!(grow_page_size(Some(10), Some(50)), Some(20));
        assert_eq!(grow_page_size(Some(30), Some(50)), Some(50));
    }
}
