//! Follows a piece of a container's keys: reads, waits, reconnects, and continues after splits and merges.
//!
//! A piece is a range of hashes with a position, independent of the partitions that hold those hashes. When its
//! partition splits, the piece becomes one piece per child, at the same position. When its partition is merged
//! with others, the piece is unchanged and covers a part of the larger partition. Once all parts of that partition
//! have the same position, they become one piece again. No change is skipped or read twice.

use super::rejoin::{ReaderId, Waiting};
use bytes::Bytes;
use headwater_client::{ClientError, Container, FeedFilter, FeedFrom, FeedRead, FeedScope, Range};
use headwater_model::{FeedMode, KeyRange, PartitionId};
use headwater_runtime::{Stop, TaskGroup};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a server may hold a request when nothing is new.
pub(crate) const WAIT: Duration = Duration::from_secs(20);
/// Polling interval for servers without long polling.
const POLL: Duration = Duration::from_secs(1);
const PAGE_ITEMS: u32 = 100;
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(15);

/// A range of keys to follow, from a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) keys: KeyRange,
    pub(crate) from: FeedFrom,
}

/// One page of changes of a piece.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) keys: KeyRange,
    pub(crate) range: PartitionId,
    pub(crate) changes: Vec<Bytes>,
    pub(crate) etag: String,
}

/// What a reader sends to the printer.
#[derive(Debug)]
pub(crate) enum Event {
    /// Changes, or only a new position.
    Page(Page),
    /// The readers of `gone` have ended; these pieces replace them.
    Reshaped { gone: Vec<KeyRange>, pieces: Vec<Piece> },
    /// A note for the user.
    Note(String),
    /// A reader cannot continue.
    Failed(ClientError),
}

/// The shared state of all readers of a container.
#[derive(Clone, Debug)]
pub(crate) struct Following {
    pub(crate) container: Container,
    pub(crate) mode: FeedMode,
    pub(crate) filter: FeedFilter,
    /// How long the server may hold a request when nothing is new.
    pub(crate) wait: Duration,
    pub(crate) sender: mpsc::Sender<Event>,
    pub(crate) waiting: Waiting,
}

/// The receiver of events is gone.
struct Unheard;

impl Following {
    /// Follows a piece in a task of its own.
    pub(crate) fn start(&self, tasks: &TaskGroup, piece: Piece) {
        let following = self.clone();
        let reader = following.waiting.reader();
        tasks.spawn("tail", |mut stop: Stop| async move {
            tokio::select! {
                _ = following.follow(reader, piece) => {}
                () = stop.requested() => {}
            }
        });
    }

    async fn follow(&self, reader: ReaderId, mut piece: Piece) -> Result<(), Unheard> {
        let mut failures = 0;
        loop {
            // After a lost range, the next read must not wait: other readers may already be at the same position.
            let wait = if failures == 0 { self.wait } else { Duration::ZERO };
            match self.step(reader, &mut piece, wait).await {
                Ok(Step::GoOn) => failures = 0,
                Ok(Step::Reshape { gone, pieces }) => {
                    return self.say(Event::Reshaped { gone, pieces }).await;
                }
                Ok(Step::End) => return Ok(()),
                Ok(Step::Unheard) => return Err(Unheard),
                Err(error) if error.is_range_gone() => {
                    // The client has dropped its list of ranges; pause briefly in case the next list is still old.
                    self.pause(Duration::from_millis(20) * failures.min(50)).await;
                    failures += 1;
                }
                Err(error) if error.is_passing() => {
                    let wait = (BACK_OFF_FIRST * 2u32.pow(failures.min(8))).min(BACK_OFF_MAX);
                    failures += 1;
                    let note = format!("{error}; trying again in {:.1} s", wait.as_secs_f64());
                    self.say(Event::Note(note)).await?;
                    self.pause(wait).await;
                }
                Err(error) => {
                    return self.say(Event::Failed(error)).await;
                }
            }
        }
    }

    /// Reads one page and sends it to the printer.
    async fn step(
        &self,
        reader: ReaderId,
        piece: &mut Piece,
        wait: Duration,
    ) -> Result<Step, ClientError> {
        let ranges = self.container.ranges().await?;
        let keeping: Vec<&Range> =
            ranges.iter().filter(|range| range.keys.overlaps(&piece.keys)).collect();
        let [range] = keeping[..] else {
            // A replaced reader ends; its successor follows the range.
            let is_replaced = self.waiting.leave(reader);
            return Ok(if is_replaced { Step::End } else { self.reshape(piece, &keeping) });
        };
        let scope = match range.keys == piece.keys {
            true => FeedScope::Range(range.id),
            false => FeedScope::Part(range.id, piece.keys.clone()),
        };
        // "Now" must become a position at once: later it would mean a later position.
        let wait = if piece.from == FeedFrom::Now { Duration::ZERO } else { wait };
        let read = FeedRead::new(scope, piece.from.clone());
        let read = read.mode(self.mode).items(PAGE_ITEMS).wait(wait).filter(self.filter.clone());
        let runtime = self.container.client().runtime();
        let asked = runtime.elapsed();
        let page = self.container.read_feed(&read).await;
        if self.waiting.leave(reader) {
            // Another reader has taken over at this position and reads the same page, so this page is dropped.
            return Ok(Step::End);
        }
        let page = page?;
        let quick = runtime.elapsed().saturating_sub(asked) < POLL;
        let from = FeedFrom::After(page.etag.clone());
        let is_new = from != piece.from;
        let (is_empty, is_end) = (page.changes.is_empty(), page.is_end);
        piece.from = from;
        if is_new || !is_empty {
            let (keys, id) = (piece.keys.clone(), range.id);
            let page = Page { keys, range: id, changes: page.changes, etag: page.etag };
            if self.say(Event::Page(page)).await.is_err() {
                return Ok(Step::Unheard);
            }
        }
        if is_empty && is_end && quick && !wait.is_zero() {
            self.pause(POLL).await;
        }
        if is_end && let Some(gone) = self.waiting.wait(reader, &range.keys, piece) {
            let whole = Piece { keys: range.keys.clone(), from: piece.from.clone() };
            return Ok(Step::Reshape { gone, pieces: vec![whole] });
        }
        Ok(Step::GoOn)
    }

    /// Divides a piece among the partitions that hold its keys now.
    fn reshape(&self, piece: &Piece, keeping: &[&Range]) -> Step {
        let parts = keeping.iter().filter_map(|range| range.keys.intersect(&piece.keys));
        let pieces: Vec<Piece> =
            parts.map(|keys| Piece { keys, from: piece.from.clone() }).collect();
        if pieces.is_empty() {
            // The list has a gap at our keys, so it is stale. Retry with the next one.
            return Step::GoOn;
        }
        Step::Reshape { gone: vec![piece.keys.clone()], pieces }
    }

    async fn pause(&self, wait: Duration) {
        self.container.client().runtime().sleep(wait).await;
    }

    async fn say(&self, event: Event) -> Result<(), Unheard> {
        self.sender.send(event).await.map_err(|_| Unheard)
    }
}

enum Step {
    GoOn,
    /// Other readers continue with the same keys.
    Reshape {
        gone: Vec<KeyRange>,
        pieces: Vec<Piece>,
    },
    /// Another reader has already taken over.
    End,
    Unheard,
}
