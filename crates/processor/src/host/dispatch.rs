//! Distributes the pages of a lease to its lanes, in order, until the range or the lease ends.
//!
//! Changes of one key go to one lane, and batches are cut between transactions only. Never writes a position: the
//! lanes report what was handled.

use super::fence::Fence;
use super::fetch::{FetchEnd, FetchResult, PagePermit, fetch};
use super::lane::{Job, Portion};
use super::shared::Shared;
use super::split::{self, Successors};
use super::tenure::Tenure;
use crate::checkpoint::Checkpoint;
use crate::failure::Backoff;
use crate::handler::Diagnostics;
use crate::lease::Start;
use crate::source::{Change, Page};
use crate::watermark::Ticket;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Pauses while the service reports a range as gone but does not list its successors yet.
const RANGES_BEHIND: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// Why the loop over pages ended.
pub(super) enum Stop {
    Leaving,
    Split(Successors),
    Fetch(FetchEnd),
    LaneFailed,
}

/// Distributes pages to lanes.
pub(super) struct Dispatch<'a> {
    shared: &'a Arc<Shared>,
    fence: &'a Fence,
    tenure: &'a Arc<Tenure>,
    lanes: Vec<mpsc::Sender<Job>>,
    /// How often hosts vanished at the initial position; applies to the first batch only.
    attempts_before: u32,
    /// Changes that wait for a batch to fill.
    waiting: Vec<(Change, Ticket)>,
    /// The permit of their page; none while a batch is gathered from several pages.
    room: Option<PagePermit>,
    /// Diagnostics of the waiting pages, by page number.
    reads: Vec<(u64, Diagnostics)>,
}

impl<'a> Dispatch<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        fence: &'a Fence,
        tenure: &'a Arc<Tenure>,
        lanes: Vec<mpsc::Sender<Job>>,
        attempts_before: u32,
    ) -> Dispatch<'a> {
        let (waiting, room, reads) = (Vec::new(), None, Vec::new());
        Dispatch { shared, fence, tenure, lanes, attempts_before, waiting, room, reads }
    }

    /// Runs until the range is gone, a handler gives up, or the lease ends.
    pub(super) async fn run(
        &mut self,
        mut from: Start,
        giving_up: &mut mpsc::Receiver<()>,
    ) -> Stop {
        let shared = self.shared;
        let mut gone_in_a_row = 0;
        loop {
            let (pages, mut fetched) = mpsc::channel(shared.options.prefetch_pages);
            let reading = fetch(shared.clone(), self.tenure.clone(), from.clone(), pages);
            shared.runtime.spawn("fetch", reading);
            let end = loop {
                let timer = self.timer();
                tokio::select! {
                    biased;
                    () = self.fence.leaving() => return Stop::Leaving,
                    _ = giving_up.recv() => return Stop::LaneFailed,
                    next = fetched.recv() => match next {
                        Some(FetchResult::Page(page, read, room)) => {
                            gone_in_a_row = 0;
                            from = Start::Position(page.position.clone());
                            self.page(page, read, room).await;
                        }
                        Some(FetchResult::Idle(page)) => {
                            gone_in_a_row = 0;
                            from = Start::Position(page.position.clone());
                            self.idle(page).await;
                        }
                        Some(FetchResult::End(end)) => break end,
                        None => return Stop::Leaving,
                    },
                    () = shared.runtime.sleep(timer) => self.tick().await,
                }
            };
            if !matches!(end, FetchEnd::RangeGone) {
                return Stop::Fetch(end);
            }
            match split::successors(shared, self.fence, &self.tenure.lease.range).await {
                None => return Stop::Leaving,
                // The keys lie in one range as before, but a different one. Or the service does not know the
                // successors of the old range yet and needs time.
                Some(found) if found.pieces.len() == 1 => {
                    gone_in_a_row += 1;
                    let pause = match gone_in_a_row {
                        1 => Duration::ZERO,
                        again => RANGES_BEHIND.jittered(again, shared.runtime.random()),
                    };
                    let pause = shared.runtime.sleep(pause);
                    let leaving = self.fence.leaving();
                    tokio::select! { biased; () = leaving => return Stop::Leaving, () = pause => {} }
                }
                Some(mut found) => {
                    if let Start::Position(position) = &from {
                        found.read = Some(position.clone());
                    }
                    return Stop::Split(found);
                }
            }
        }
    }

    /// How long to wait before the next tick if no page arrives.
    fn timer(&self) -> Duration {
        let options = &self.shared.options;
        let now = self.shared.runtime.elapsed();
        let checkpoint = self.tenure.pace.lock().timer().map(|at| at.saturating_sub(now));
        // Handlers send no notification when done, so work in progress is checked again in time.
        let under_way = self.tenure.watermark.lock().under_way() > 0;
        let checkpoint = checkpoint.or_else(|| options.checkpoint.interval().filter(|_| under_way));
        let batch = (!self.waiting.is_empty()).then_some(options.batch_wait);
        checkpoint.into_iter().chain(batch).min().unwrap_or(Duration::from_secs(3600))
    }

    async fn tick(&mut self) {
        self.flush().await;
        let now = self.shared.runtime.elapsed();
        let due = self.tenure.pace.lock().is_due(now);
        if due && self.shared.options.checkpoint != Checkpoint::EveryBatch {
            let _ = self.tenure.store().await;
        }
    }

    async fn idle(&mut self, page: Page) {
        self.flush().await;
        self.tenure.watermark.lock().begin([], page.position);
        self.tenure.note_feed_end(page.newest, true);
        for lane in &self.lanes {
            // A full queue means that the handler is not idle.
            let _ = lane.try_send(Job::Idle);
        }
    }

    async fn page(&mut self, page: Page, read: Diagnostics, room: PagePermit) {
        let lsns: Vec<_> = page.changes.iter().map(Change::lsn).collect();
        let made = page.changes.first().and_then(Change::seconds);
        self.tenure.note_feed_end(page.newest, false);
        let tickets = self.tenure.watermark.lock().begin_made(lsns, page.position, made);
        self.reads.extend(tickets.first().map(|ticket| (ticket.page, read)));
        self.waiting.extend(page.changes.into_iter().zip(tickets));
        let options = &self.shared.options;
        self.room = options.batch_wait.is_zero().then_some(room);
        let size: usize = self.waiting.iter().map(|(change, _)| change.body().len()).sum();
        let full = self.waiting.len() >= options.batch_items_max || size >= options.batch_bytes_max;
        if options.batch_wait.is_zero() || full {
            self.flush().await;
        }
    }

    /// Sends everything that waits to the lanes, in batches within the size limits.
    async fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let attempts_before = std::mem::take(&mut self.attempts_before);
        let reads = std::mem::take(&mut self.reads);
        let count = self.lanes.len();
        let mut of_lanes: Vec<Vec<(Change, Ticket)>> = (0..count).map(|_| Vec::new()).collect();
        let paths = &self.shared.identity.partition_key;
        for (change, ticket) in self.waiting.drain(..) {
            let lane = match count {
                1 => 0,
                _ => usize::try_from(change.key(paths) % count as u64).unwrap_or(0),
            };
            #[cfg(test)]
            let lane = match self.shared.sabotaged(crate::proof::Sabotage::LanesIgnoreKeys) {
                true => of_lanes.iter().map(Vec::len).sum::<usize>() % count,
                false => lane,
            };
            of_lanes[lane].push((change, ticket));
        }
        let options = &self.shared.options;
        let (items, bytes) = (options.batch_items_max, options.batch_bytes_max);
        let mut batches: Vec<_> =
            of_lanes.into_iter().map(|all| chunks(all, items, bytes).into_iter()).collect();
        // Round robin, so that no lane waits until another has received all its batches.
        while batches.iter().any(|left| left.len() > 0) {
            for (lane, left) in self.lanes.iter().zip(&mut batches) {
                let Some(batch) = left.next() else { continue };
                let (changes, tickets): (_, Vec<Ticket>) = batch.into_iter().unzip();
                let (room, reads) = (self.room.clone(), reads_of(&reads, &tickets));
                let job = Job::Work(Portion { changes, tickets, attempts_before, room, reads });
                tokio::select! {
                    biased;
                    () = self.fence.leaving() => return,
                    sent = lane.send(job) => if sent.is_err() { return },
                }
            }
        }
        self.room = None;
    }
}

/// Returns the diagnostics of the pages that these tickets belong to. Tickets are in page order.
fn reads_of(reads: &[(u64, Diagnostics)], tickets: &[Ticket]) -> Arc<[Diagnostics]> {
    let ends = tickets.first().zip(tickets.last()).map(|(first, last)| first.page..=last.page);
    let of_them = |(page, _): &&(u64, Diagnostics)| ends.as_ref().is_some_and(|e| e.contains(page));
    reads.iter().filter(of_them).map(|(_, read)| read.clone()).collect()
}

/// Cuts changes into batches, between transactions only.
fn chunks(
    all: Vec<(Change, Ticket)>,
    items_max: usize,
    bytes_max: usize,
) -> Vec<Vec<(Change, Ticket)>> {
    let mut batches: Vec<Vec<(Change, Ticket)>> = Vec::new();
    let mut size = 0;
    for (change, ticket) in all {
        let bytes = change.body().len();
        let joins = batches.last().is_some_and(|batch: &Vec<(Change, Ticket)>| {
            let same = change.lsn().is_some()
                && batch.last().is_some_and(|(last, _)| last.lsn() == change.lsn());
            same || (batch.len() < items_max && size + bytes <= bytes_max)
        });
        match batches.last_mut().filter(|_| joins) {
            Some(batch) => {
                size += bytes;
                batch.push((change, ticket));
            }
            None => {
                size = bytes;
                batches.push(vec![(change, ticket)]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Position;
    use crate::watermark::Watermark;
    use headwater_model::Lsn;

    #[test]
    fn batches_are_cut_between_transactions_only() {
        let lsns = [1, 1, 1, 2, 3, 4, 4];
        let mut mark = Watermark::new(None, false);
        let tickets = mark.begin(lsns.map(|lsn| Some(Lsn::new(lsn))), Position::after(Lsn::new(4)));
        let all = || {
            let change = |lsn| Change::new("0123456789".into(), Lsn::new(lsn), 0, 0);
            lsns.map(change).into_iter().zip(tickets.clone()).collect::<Vec<_>>()
        };
        let sizes =
            |items, bytes| chunks(all(), items, bytes).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(usize::MAX, usize::MAX), [7]);
        assert_eq!(sizes(2, usize::MAX), [3, 2, 2]);
        assert_eq!(sizes(1, usize::MAX), [3, 1, 1, 2]);
        assert_eq!(sizes(usize::MAX, 1), [3, 1, 1, 2]);
        assert_eq!(sizes(usize::MAX, 40), [4, 3]);
    }
}
