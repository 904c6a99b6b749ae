//! Follows a piece of a container's keys: reads, waits, reconnects, and goes on after splits and merges.
//!
//! A piece is a range of hashes with a position, whatever partitions keep those hashes now. When its
//! partition was split, the piece becomes one piece per child, at the same position. When it was merged
//! with others, the piece stays what it is and becomes a part of a larger partition, until all parts of that
//! partition stand at one position: then they are one piece again. So no change is passed over and none is
//! read twice.

use super::rejoin::{ReaderId, Waiting};
use bytes::Bytes;
use headwater_client::{ClientError, Container, FeedFilter, FeedFrom, FeedRead, FeedScope, Range};
use headwater_model::{FeedMode, KeyRange, PartitionId};
use headwater_runtime::{Stop, TaskGroup};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a server may hold a request when nothing is new.
pub(crate) const WAIT: Duration = Duration::from_secs(20);
/// A server that does not wait is asked again after this.
const POLL: Duration = Duration::from_secs(1);
const PAGE_ITEMS: u32 = 100;
const BACK_OFF_FIRST: Duration = Duration::from_millis(250);
const BACK_OFF_MAX: Duration = Duration::from_secs(15);

/// Keys to follow, from a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) keys: KeyRange,
    pub(crate) from: FeedFrom,
}

/// Some changes of a piece.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) keys: KeyRange,
    pub(crate) range: PartitionId,
    pub(crate) changes: Vec<Bytes>,
    pub(crate) etag: String,
}

/// What a reader has to say.
#[derive(Debug)]
pub(crate) enum Event {
    /// Changes, or only a new position.
    Page(Page),
    /// The readers of `gone` have ended; these pieces go on in their place.
    Reshaped { gone: Vec<KeyRange>, pieces: Vec<Piece> },
    /// Something a person may want to know.
    Note(String),
    /// A reader cannot continue.
    Failed(ClientError),
}

/// What all readers of a container share.
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

/// Nobody listens any more.
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
            // Whoever has just lost its range first finds out where it is: others may be there too.
            let wait = if failures == 0 { self.wait } else { Duration::ZERO };
            match self.step(reader, &mut piece, wait).await {
                Ok(Step::GoOn) => failures = 0,
                Ok(Step::Reshape { gone, pieces }) => {
                    return self.say(Event::Reshaped { gone, pieces }).await;
                }
                Ok(Step::End) => return Ok(()),
                Ok(Step::Unheard) => return Err(Unheard),
                Err(error) if error.is_range_gone() => {
                    // Forgotten by the container already; a moment, in case the list is not new yet.
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

    /// Reads one page and passes it on.
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
            // Whoever was replaced leaves it to the other to follow.
            let is_replaced = self.waiting.leave(reader);
            return Ok(if is_replaced { Step::End } else { self.reshape(piece, &keeping) });
        };
        let scope = match range.keys == piece.keys {
            true => FeedScope::Range(range.id),
            false => FeedScope::Part(range.id, piece.keys.clone()),
        };
        // "Now" must become a position at once: a moment later it would be another now.
        let wait = if piece.from == FeedFrom::Now { Duration::ZERO } else { wait };
        let read = FeedRead::new(scope, piece.from.clone());
        let read = read.mode(self.mode).items(PAGE_ITEMS).wait(wait).filter(self.filter.clone());
        let runtime = self.container.client().runtime();
        let asked = runtime.elapsed();
        let page = self.container.read_feed(&read).await;
        if self.waiting.leave(reader) {
            // Another reader has taken over from where this one was: what it has just read comes from there.
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

    /// The pieces of a piece that several partitions keep now.
    fn reshape(&self, piece: &Piece, keeping: &[&Range]) -> Step {
        let parts = keeping.iter().filter_map(|range| range.keys.intersect(&piece.keys));
        let pieces: Vec<Piece> =
            parts.map(|keys| Piece { keys, from: piece.from.clone() }).collect();
        if pieces.is_empty() {
            // A list without our keys is not one to believe; the next one will have them.
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
    /// Other readers go on with the same keys.
    Reshape {
        gone: Vec<KeyRange>,
        pieces: Vec<Piece>,
    },
    /// Somebody else has gone on already.
    End,
    Unheard,
}
