//! A leaderboard kept in step with a container, and resumed after a restart without reading anything
//! twice or missing anything.
//!
//! Players' scores are written to a durable store with four partitions. A follower keeps the best
//! players in memory and writes down how far it has read. Then both restart: the follower goes on from
//! its position, and the board is right again.
//!
//! ```sh
//! cargo run --release --package headwater-store --example leaderboard
//! ```

use headwater_store::{
    Account, Container, ContainerDefinition, Continuation, FeedRequest, FeedStart, Options,
};
use serde::Deserialize;
use std::collections::BTreeMap;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Deserialize)]
struct Score {
    player: String,
    points: u64,
}

/// The board and how far it has followed. A real one would keep both in one place.
#[derive(Default)]
struct Board {
    points: BTreeMap<String, u64>,
    position: Option<Continuation>,
    changes_read: usize,
}

impl Board {
    /// Reads what is new, page by page, until there is nothing newer.
    async fn follow(&mut self, scores: &Container) -> Result<(), Failure> {
        loop {
            let start = self.position.clone().map_or(FeedStart::Beginning, FeedStart::After);
            let page = scores.read_feed(&FeedRequest::new(start)).await?;
            self.position = Some(page.continuation);
            if page.changes.is_empty() {
                return Ok(());
            }
            self.changes_read += page.changes.len();
            for item in page.changes.iter().filter_map(|change| change.item()) {
                let score: Score = item.parse()?;
                self.points.insert(score.player, score.points);
            }
        }
    }

    fn print(&self, title: &str) {
        println!("{title} ({} changes read so far)", self.changes_read);
        let mut best: Vec<_> = self.points.iter().collect();
        best.sort_by(|one, two| two.1.cmp(one.1).then(one.0.cmp(two.0)));
        for (place, (player, points)) in best.iter().take(3).enumerate() {
            println!("  {}. {player:8} {points}", place + 1);
        }
    }
}

async fn play(scores: &Container, rounds: std::ops::Range<u64>) -> Result<(), Failure> {
    for round in rounds {
        for player in 0..20 {
            let points = (player * 37 + round * 53) % 1000;
            let body = format!(r#"{{"id":"p{player}","player":"p{player}","points":{points}}}"#);
            scores.upsert(body).await?;
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let mut board = Board::default();

    let account = Account::open(dir.path(), Options::default()).await?;
    let game = account.create_database("game").await?;
    let definition = ContainerDefinition::new("scores", "/player")?;
    let scores = game.create_container_with(definition, 4).await?;
    play(&scores, 0..5).await?;
    board.follow(&scores).await?;
    board.print("after five rounds");
    account.close().await?;

    // What a follower writes down is text.
    let saved = board.position.as_ref().map(ToString::to_string).ok_or("nothing was read")?;
    board.position = Some(saved.parse()?);

    let account = Account::open(dir.path(), Options::default()).await?;
    let scores = account.database("game").await?.container("scores").await?;
    play(&scores, 5..6).await?;
    board.follow(&scores).await?;
    board.print("after a restart and one more round");
    account.close().await?;
    Ok(())
}
