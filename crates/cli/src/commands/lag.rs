//! `headwater lag`: shows the lag of a processor (Headwater, .NET or Java) once, or serves it to scalers over HTTP.

use super::scaler::{self, Place};
use super::units::Monitored;
use crate::connect::block_on;
use crate::output::say;
use anyhow::{Result, bail, ensure};
use clap::Args;
use headwater_model::FeedMode;
use headwater_processor::lag::Lag as Behind;
use headwater_processor::lag_of;
use headwater_runtime::Runtime;
use std::time::Duration;

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Show how far a processor is behind

    headwater lag shop/orders
    headwater lag shop/orders --leases shop/leases --processor mailer --max 1000
    headwater lag shop/orders --serve 9090

Counts unhandled transactions by processor and lease, and the age of the oldest. With --max the command fails
when a processor is further behind, for scripts and health checks. `headwater watch` shows the same as it changes.

With --serve it answers over HTTP, on this machine unless another address is given: how much waits as the
Functions scale controller counts it (legacyLag), how many leases there are, and how many hosts should run
(instances: one for each --batch that waits, never more than leases). KEDA's metrics-api scaler takes it with
valueLocation instances and targetValue 1. What is not known is said as an error and never as a number.";

/// Help heading of the options for `--serve`.
const SCALERS: &str = "Scalers over HTTP";

/// Of what.
#[derive(Debug, Args)]
pub(crate) struct Lag {
    /// Fail when the processor is further behind than this, or its lag is unknown
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Print the total alone
    #[arg(long)]
    total: bool,
    /// Answer scalers over HTTP: a port of this machine, or ADDRESS:PORT; port 0 takes any free one
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["max", "total"], help_heading = SCALERS)]
    serve: Option<Place>,
    /// Number of changes a host handles at once
    #[arg(
        long,
        value_name = "N",
        requires = "serve",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = SCALERS
    )]
    batch: Option<u32>,
    /// Seconds between two looks
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "serve",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        help_heading = SCALERS
    )]
    every: u64,
    #[command(flatten)]
    monitored: Monitored,
}

/// Runs the command.
pub(crate) fn run(lag: Lag) -> Result<()> {
    block_on(async {
        match lag.serve {
            Some(place) => {
                let every = Duration::from_secs(lag.every);
                scaler::serve(place, lag.monitored.places()?, lag.batch, every).await
            }
            None => show(lag).await,
        }
    })
}

async fn show(lag: Lag) -> Result<()> {
    let places = lag.monitored.places()?;
    let runtime = Runtime::system();
    let units = places.units().await?;
    let several = units.len() > 1;
    let names =
        || units.iter().map(|unit| unit.namespace().as_str()).collect::<Vec<_>>().join(", ");
    ensure!(
        !several || (lag.max.is_none() && !lag.total),
        "--max and --total look at one processor, and {} keep leases here ({}); name one with --processor",
        units.len(),
        names()
    );
    for unit in &units {
        if !lag.total {
            say(format_args!("{}", unit.namespace().as_str()));
        }
        let mut all = Vec::new();
        for info in &unit.look().await?.leases {
            let mode = info.lease.mode.unwrap_or(FeedMode::LatestVersion);
            let now = runtime.unix_millis() / 1000;
            let behind = lag_of(&places.source, &info.lease, mode, now).await?;
            if !lag.total {
                let owner = info.lease.owner.as_deref().unwrap_or("-");
                let (lease, text) = (&info.lease.token, describe(behind));
                say(format_args!("  {lease:<36}  {text:<28}  {owner}"));
            }
            all.push(behind);
        }
        let total = Behind::total(all);
        match lag.total {
            true => say(format_args!(
                "{}",
                total.transactions.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX))
            )),
            false => say(format_args!("  {:<36}  {}", "total", describe(total))),
        }
        if let Some(max) = lag.max {
            let Some(behind) = total.transactions else {
                bail!("the lag of some leases is unknown");
            };
            ensure!(behind <= max, "{behind} transactions behind; at most {max} are allowed");
        }
    }
    Ok(())
}

fn describe(lag: Behind) -> String {
    let transactions = lag.transactions.map_or_else(|| "?".to_owned(), |n| n.to_string());
    match lag.time {
        Some(time) if !time.is_zero() => format!("{transactions} behind, {} s", time.as_secs()),
        _ => format!("{transactions} behind"),
    }
}
