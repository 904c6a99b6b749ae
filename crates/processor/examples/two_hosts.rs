//! A leaderboard that follows the scores of a game: a store, a writer and two hosts in one process.
//!
//! ```sh
//! cargo run -p headwater-processor --example two_hosts
//! ```

use headwater_processor::lease_store::EmbeddedLeases;
use headwater_processor::source::EmbeddedFeed;
use headwater_processor::{Ack, Batch, HandlerError, Options, Processor, Start};
use headwater_runtime::Runtime;
use headwater_store::{Account, ContainerDefinition};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[derive(serde::Deserialize)]
struct Score {
    player: String,
    points: u64,
}

type Board = Arc<Mutex<BTreeMap<String, u64>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::system();
    let mut options = headwater_store::Options::default();
    options.partitions = 4;
    let account = Account::ephemeral_with(options).await?;
    let game = account.create_database("game").await?;
    let scores = game.create_container(ContainerDefinition::new("scores", "/player")?).await?;
    let leases =
        game.create_container(ContainerDefinition::new("leases", "/partitionKey")?).await?;
    let board = Board::default();

    let mut hosts = Vec::new();
    for name in ["first", "second"] {
        let mut options = Options::native("leaderboard");
        options.host_name = Some(name.to_owned());
        options.start = Start::Beginning;
        let shown = board.clone();
        let processor = Processor::builder()
            .source(EmbeddedFeed::new(game.clone(), scores.clone()))
            .leases(EmbeddedLeases::new(leases.clone(), runtime.clone())?)
            .handler(move |batch: Batch| {
                let board = shown.clone();
                async move { follow(&board, &batch) }
            })
            .options(options)
            .build()?;
        hosts.push(processor.start().await?);
    }

    for number in 0..400_u64 {
        let (player, points) = (format!("player-{}", number % 9), number * 37 % 1000);
        let body = serde_json::json!({ "id": player, "player": player, "points": points });
        scores.upsert(body.to_string()).await?;
        if number % 40 == 0 {
            runtime.sleep(Duration::from_millis(50)).await;
        }
    }
    runtime.sleep(Duration::from_secs(1)).await;
    for host in hosts {
        let name = host.host().name.clone();
        let report = host.stop().await;
        println!("{name} released {} leases", report.stopped.len());
    }
    let mut ranking: Vec<(String, u64)> = {
        let board = board.lock().unwrap_or_else(PoisonError::into_inner);
        board.iter().map(|(player, points)| (player.clone(), *points)).collect()
    };
    ranking.sort_by_key(|(_, points)| std::cmp::Reverse(*points));
    for (place, (player, points)) in ranking.iter().enumerate() {
        println!("{:>2}. {player} {points}", place + 1);
    }
    account.close().await?;
    Ok(())
}

/// Sets the newest score instead of adding to it, because a change may be delivered again.
fn follow(board: &Board, batch: &Batch) -> Result<Ack, HandlerError> {
    for score in batch.parse::<Score>()? {
        let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
        board.insert(score.player, score.points);
    }
    Ok(Ack::Done)
}
