//! Readers that follow the feed during the workload, and record each change.
//!
//! A reader continues from its last position through restarts, splits and merges, until it has seen the
//! last item of each of its partition keys. Its changes are judged afterwards.

use crate::judge::{Kind, Print, Seen};
use crate::world::{PARTITION_KEYS, World};
use crate::writers::{END, bare, key_name, partition_key, print};
use headwater_client::{ClientError, FeedFrom, FeedPage, FeedRead, FeedScope, Range, Reason};
use headwater_model::{FeedMode, KeyRange};
use headwater_runtime::Random;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The scope of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Range by range, following splits and merges.
    Ranges,
    Container,
    Key(usize),
}

/// The scope and mode of a reader.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) scope: Scope,
    pub(crate) mode: FeedMode,
    /// From the beginning; otherwise from now.
    pub(crate) whole: bool,
    pub(crate) wait: Duration,
    pub(crate) seed: u64,
}

/// The changes that a reader saw.
pub(crate) struct Log {
    pub(crate) mode: FeedMode,
    pub(crate) seen: Vec<Seen>,
    pub(crate) pages: u64,
    open: HashSet<String>,
}

impl Log {
    pub(crate) fn new(mode: FeedMode, keys: &[String]) -> Log {
        Log { mode, seen: Vec::new(), pages: 0, open: keys.iter().cloned().collect() }
    }

    /// Whether the end of every key was seen.
    pub(crate) fn is_done(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a page.
    pub(crate) fn add(&mut self, changes: impl Iterator<Item = Value>) {
        self.pages += 1;
        for change in changes {
            let seen = match self.mode {
                FeedMode::LatestVersion => seen_item(&change, self.pages),
                FeedMode::AllVersionsAndDeletes => seen_change(&change, self.pages),
            };
            if seen.item.1 == END {
                self.open.remove(&seen.item.0);
            }
            self.seen.push(seen);
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn version(body: &Value) -> (Option<Print>, Option<String>) {
    (Some(print(body)), body["_etag"].as_str().map(bare))
}

fn seen_item(item: &Value, page: u64) -> Seen {
    let (made, etag) = version(item);
    let lsn = item["_lsn"].as_u64().unwrap_or(0);
    let item = (text(&item["pk"]), text(&item["id"]));
    Seen { item, kind: None, lsn, made, etag, previous: None, page }
}

fn seen_change(change: &Value, page: u64) -> Seen {
    let (current, metadata) = (&change["current"], &change["metadata"]);
    let kind = match metadata["operationType"].as_str() {
        Some("create") => Some(Kind::Create),
        Some("replace") => Some(Kind::Replace),
        Some("delete") => Some(Kind::Delete),
        _ => None,
    };
    let (item, (made, etag)) = match kind {
        Some(Kind::Delete) => {
            ((text(&metadata["partitionKey"]["pk"]), text(&metadata["id"])), (None, None))
        }
        _ => ((text(&current["pk"]), text(&current["id"])), version(current)),
    };
    let previous = change["previous"].as_object().map(|_| print(&change["previous"]));
    let lsn = metadata["lsn"].as_u64().unwrap_or(0);
    Seen { item, kind, lsn, made, etag, previous, page }
}

impl Plan {
    /// Returns the partition keys in its scope.
    pub(crate) fn keys(&self) -> Vec<String> {
        match self.scope {
            Scope::Key(index) => vec![key_name(index)],
            Scope::Ranges | Scope::Container => (0..PARTITION_KEYS).map(key_name).collect(),
        }
    }

    fn start(&self) -> FeedFrom {
        match (self.whole, self.mode) {
            (false, _) => FeedFrom::Now,
            (true, FeedMode::LatestVersion) => FeedFrom::Beginning,
            // All versions have a beginning too, but only as a position.
            (true, FeedMode::AllVersionsAndDeletes) => FeedFrom::After("\"0\"".to_owned()),
        }
    }
}

/// Keys to follow from a position.
#[derive(Clone, Debug)]
struct Piece {
    keys: KeyRange,
    from: FeedFrom,
}

/// The pieces that one reader follows, a page of each in turn.
///
/// Splits make ever more pieces, and most of them are empty. The reader waits in one only when all
/// were empty: waiting in each in turn would delay it by a second per piece.
struct Pieces {
    list: Vec<Piece>,
    at: usize,
    /// Number of consecutive pieces without new changes.
    quiet: usize,
}

impl Pieces {
    fn new(from: FeedFrom) -> Pieces {
        Pieces { list: vec![Piece { keys: KeyRange::full(), from }], at: 0, quiet: 0 }
    }

    /// The current piece.
    fn current(&self) -> &Piece {
        &self.list[self.at]
    }

    /// Returns whether every piece was empty when it was last read.
    fn are_quiet(&self) -> bool {
        self.quiet >= self.list.len()
    }

    /// Divides the current piece among several ranges.
    fn divide<'a>(&mut self, ranges: impl Iterator<Item = &'a KeyRange>) {
        let piece = self.current().clone();
        let parts = ranges.filter_map(|keys| keys.intersect(&piece.keys));
        let parts: Vec<Piece> =
            parts.map(|keys| Piece { keys, from: piece.from.clone() }).collect();
        if !parts.is_empty() {
            self.list.splice(self.at..=self.at, parts);
        }
    }

    /// Records the position of the current piece, and moves to the next one.
    fn advance(&mut self, etag: String, nothing: bool) {
        self.list[self.at].from = FeedFrom::After(etag);
        self.quiet = if nothing { self.quiet + 1 } else { 0 };
        self.at = (self.at + 1) % self.list.len();
    }
}

/// The result of a page: the position after it, and whether it had changes.
struct Reached {
    etag: String,
    nothing: bool,
}

struct Reader {
    world: Arc<World>,
    plan: Plan,
    random: Random,
    log: Log,
}

/// Follows the feed to its end.
pub(crate) async fn follow(world: Arc<World>, plan: Plan) -> Log {
    let log = Log::new(plan.mode, &plan.keys());
    let random = Random::seeded(plan.seed);
    let mut reader = Reader { world, plan, random, log };
    match reader.plan.scope.clone() {
        Scope::Container => reader.follow_one(FeedScope::Container).await,
        Scope::Key(index) => {
            reader.follow_one(FeedScope::Key(partition_key(&key_name(index)))).await;
        }
        Scope::Ranges => reader.follow_ranges().await,
    }
    reader.log
}

impl Reader {
    async fn follow_one(&mut self, scope: FeedScope) {
        let mut from = self.plan.start();
        while !self.log.is_done() {
            if let Ok(reached) = self.read(scope.clone(), &from, self.plan.wait).await {
                from = FeedFrom::After(reached.etag);
            }
        }
    }

    async fn follow_ranges(&mut self) {
        let mut pieces = Pieces::new(self.plan.start());
        while !self.log.is_done() {
            let Some(ranges) = self.ranges().await else { continue };
            let piece = pieces.current();
            let keeping: Vec<&Range> =
                ranges.iter().filter(|range| range.keys.overlaps(&piece.keys)).collect();
            let [range] = keeping[..] else {
                pieces.divide(keeping.iter().map(|range| &range.keys));
                continue;
            };
            let scope = match range.keys == piece.keys {
                true => FeedScope::Range(range.id),
                false => FeedScope::Part(range.id, piece.keys.clone()),
            };
            let wait = if pieces.are_quiet() { self.plan.wait } else { Duration::ZERO };
            if let Ok(reached) = self.read(scope, &piece.from, wait).await {
                pieces.advance(reached.etag, reached.nothing);
            }
        }
    }

    async fn ranges(&mut self) -> Option<Arc<[Range]>> {
        match self.world.items().refresh_ranges().await {
            Ok(ranges) => Some(ranges),
            Err(error) => {
                self.endure(&error).await;
                None
            }
        }
    }

    /// Reads a page and records it.
    async fn read(
        &mut self,
        scope: FeedScope,
        from: &FeedFrom,
        wait: Duration,
    ) -> Result<Reached, ()> {
        let items = 1 + u32::try_from(self.random.below(100)).unwrap();
        let wait = if *from == FeedFrom::Now { Duration::ZERO } else { wait };
        let read = FeedRead::new(scope, from.clone()).mode(self.plan.mode).items(items).wait(wait);
        match self.world.items().read_feed(&read).await {
            Ok(page) => {
                let nothing = page.changes.is_empty();
                let etag = self.take(page);
                if nothing && wait.is_zero() {
                    self.world.pause(5).await;
                }
                Ok(Reached { etag, nothing })
            }
            Err(error) => {
                self.endure(&error).await;
                Err(())
            }
        }
    }

    fn take(&mut self, page: FeedPage) -> String {
        let parsed = page.changes.iter().map(|bytes| serde_json::from_slice(bytes).unwrap());
        if !page.changes.is_empty() {
            self.world.note_page();
            self.log.add(parsed);
        }
        page.etag
    }

    /// Handles an error: a stopped server comes back, and a removed range has children.
    async fn endure(&mut self, error: &ClientError) {
        match error {
            ClientError::Refused(refusal)
                if !matches!(refusal.reason, Reason::RangeGone | Reason::Unavailable) =>
            {
                self.world.complain(format!("{:?} was refused: {refusal}", self.plan));
                self.world.pause(100).await;
            }
            ClientError::BadAnswer { what, .. } => self.world.complain(what.clone()),
            _ => {}
        }
        self.world.pause(20).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_model::PartitionKeyDefinition;

    /// Regression: a soak of ten minutes did not end in time. Its reader had sixty pieces, waited a second in each
    /// empty one, and so read each of the others once a minute.
    #[test]
    fn a_reader_of_many_pieces_waits_only_when_all_had_nothing() {
        let mut pieces = Pieces::new(FeedFrom::Beginning);
        let definition = PartitionKeyDefinition::hash("/pk").unwrap();
        pieces.divide(definition.default_ranges(60).iter());
        assert_eq!(pieces.list.len(), 60);
        assert!(pieces.list.iter().all(|piece| piece.from == FeedFrom::Beginning));
        for turn in 0..300 {
            assert!(!pieces.are_quiet(), "turn {turn}");
            pieces.advance(turn.to_string(), turn % 60 != 7);
        }
        for turn in 0..60 {
            assert_eq!(pieces.are_quiet(), turn >= 8, "turn {turn}");
            pieces.advance(turn.to_string(), true);
        }
        assert!(pieces.are_quiet());
        pieces.advance("new".to_owned(), false);
        assert!(!pieces.are_quiet());
        assert!(
            pieces.list.iter().all(|piece| piece.from != FeedFrom::Beginning),
            "each had a turn"
        );
    }
}
