//! `headwater partitions`: lists, splits and merges the ranges of a container.

use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use headwater_client::{Client, Container, Options, Partition, Reason};
use headwater_model::{Epk, Lsn, PartitionId};

/// What to do with ranges.
#[derive(Debug, Subcommand)]
pub(crate) enum Partitions {
    /// Show the ranges, how much was written to each and how much of it is live
    #[command(long_about = LIST_HELP)]
    List(Which),
    /// Split a range in two, in its middle or at a given hash (Headwater only)
    #[command(long_about = SPLIT_HELP)]
    Split {
        #[command(flatten)]
        which: Which,
        /// Id of the range [default: the range with the most changes]
        range: Option<u32>,
        /// First hash of the upper half, in hexadecimal
        #[arg(long, value_name = "HEX")]
        at: Option<String>,
    },
    /// Merge two neighbouring ranges (Headwater only)
    #[command(long_about = MERGE_HELP)]
    Merge {
        #[command(flatten)]
        which: Which,
        /// Id of one range
        one: u32,
        /// Id of the other
        other: u32,
    },
}

const LIST_HELP: &str = "\
Show the ranges, how much was written to each and how much of it is live

    headwater partitions list shop/orders

A server splits a range whose live bytes exceed its --split-at. A dash stands where a server does not say.";

const SPLIT_HELP: &str = "\
Split a range in two, in its middle or at a given hash (Headwater only)

    headwater partitions split shop/orders
    headwater partitions split shop/orders 0 --at 1F

Readers of the range get an answer that it is gone, and continue in both children from their position.";

const MERGE_HELP: &str = "\
Merge two neighbouring ranges (Headwater only)

    headwater partitions merge shop/orders 1 2";

/// Which container, and how to show it.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// database/container, context:database/container or a URL
    address: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Runs the command.
pub(crate) fn run(command: Partitions) -> Result<()> {
    block_on(async {
        let (which, partitions) = match command {
            Partitions::List(which) => {
                let partitions = list(&which.container()?).await?;
                (which, partitions)
            }
            Partitions::Split { which, range, at } => {
                let at = at.as_deref().map(Epk::from_hex).transpose().context("--at")?;
                let container = which.container()?;
                let range = match range {
                    Some(range) => PartitionId::new(range),
                    None => busiest(&container.partitions().await?)?,
                };
                let children = container.split(range, at.as_ref()).await?;
                (which, children)
            }
            Partitions::Merge { which, one, other } => {
                let container = which.container()?;
                let (one, other) = (PartitionId::new(one), PartitionId::new(other));
                let child = container.merge(one, other).await?;
                (which, child)
            }
        };
        show(&partitions, which.json);
        Ok(())
    })
}

impl Which {
    fn container(&self) -> Result<Container> {
        self.connect.container(&self.address, Options::default())
    }
}

fn busiest(partitions: &[Partition]) -> Result<PartitionId> {
    let busiest = partitions.iter().max_by_key(|partition| partition.lsn);
    Ok(busiest.context("the container has no ranges")?.range.id)
}

/// Lists the ranges, with their positions if the server is Headwater.
async fn list(container: &Container) -> Result<Vec<Partition>> {
    match container.partitions().await {
        Ok(partitions) => Ok(partitions),
        Err(error) if is_foreign(container.client(), error.reason()) => {
            let ranges = container.ranges().await?;
            let of_range = |range: &headwater_client::Range| Partition {
                range: range.clone(),
                lsn: Lsn::new(0),
                live_bytes: None,
            };
            Ok(ranges.iter().map(of_range).collect())
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns whether an error shows a server other than Headwater: it rejects our path, and is not the emulator here.
fn is_foreign(client: &Client, reason: Option<Reason>) -> bool {
    let unknown =
        matches!(reason, Some(Reason::BadRequest | Reason::NotFound | Reason::Unauthorized));
    unknown && !client.endpoint().is_loopback()
}

fn show(partitions: &[Partition], json: bool) {
    let parents = |partition: &Partition| {
        partition.range.parents.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    if json {
        for partition in partitions {
            let line = serde_json::json!({
                "id": partition.range.id.to_string(),
                "min": partition.range.keys.min().to_hex(),
                "max": partition.range.keys.max().to_hex(),
                "parents": parents(partition),
                "lsn": partition.lsn.get(),
                "live_bytes": partition.live_bytes,
            });
            say(format_args!("{line}"));
        }
        return;
    }
    say(format_args!(
        "{:>4}  {:<32}  {:<32}  {:>10}  {:>13}  parents",
        "id", "from hash", "to hash", "lsn", "live bytes"
    ));
    for partition in partitions {
        let range = &partition.range;
        let (min, max) = (range.keys.min().to_hex(), range.keys.max().to_hex());
        let min = if min.is_empty() { "-".to_owned() } else { min };
        let parents = parents(partition).join(",");
        let live = partition.live_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
        say(format_args!(
            "{:>4}  {min:<32}  {max:<32}  {:>10}  {live:>13}  {parents}",
            range.id.get(),
            partition.lsn
        ));
    }
}
