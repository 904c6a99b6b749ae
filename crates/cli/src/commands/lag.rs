//! `headwater lag`: how far a processor is behind, ours or one of .NET or Java.

use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Result, ensure};
use clap::Args;
use headwater_client::Options;
use headwater_model::FeedMode;
use headwater_processor::lag::Lag as Behind;
use headwater_processor::lease_store::ContainerLeases;
use headwater_processor::source::RemoteFeed;
use headwater_processor::{Namespace, Unit, lag_of};
use headwater_runtime::Runtime;
use std::sync::Arc;

/// What `--help` says.
pub(crate) const HELP: &str = "\
Show how far a processor is behind

    headwater lag shop/orders
    headwater lag shop/orders --leases shop/leases --processor mailer --max 1000

Counts transactions that were not handled yet, lease by lease, and the age of the first of them. With --max
the command fails when there are more, for scripts and health checks.";

/// Of what.
#[derive(Debug, Args)]
pub(crate) struct Lag {
    /// The monitored container: database/container, context:database/container or a URL
    address: String,
    /// The lease container [default: `leases` in the same database]
    #[arg(long, value_name = "ADDRESS")]
    leases: Option<String>,
    /// The processor, if there are several: a part of its namespace
    #[arg(long, value_name = "TEXT")]
    processor: Option<String>,
    /// Fail when there are more transactions than this, or nobody knows
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Print only the total
    #[arg(long)]
    total: bool,
    #[command(flatten)]
    connect: Connect,
}

/// The lease container when nothing is said.
pub(crate) fn leases_beside(address: &str) -> String {
    match address.rsplit_once('/') {
        Some((before, _)) => format!("{before}/leases"),
        None => format!("{address}/leases"),
    }
}

/// Runs the command.
pub(crate) fn run(lag: Lag) -> Result<()> {
    block_on(async {
        let container = lag.connect.container(&lag.address, Options::default())?;
        let leases = lag.leases.clone().unwrap_or_else(|| leases_beside(&lag.address));
        let leases = lag.connect.container(&leases, Options::default())?;
        let store = Arc::new(ContainerLeases::open(leases).await?);
        let source = RemoteFeed::new(container);
        let identity = headwater_processor::source::FeedSource::identity(&source).await?;
        // Both ways of naming a container: by resource id, and by name as one flavour of Java does.
        let ends = [false, true].map(|names| {
            let whole = Namespace::new("", &identity, names);
            whole.as_str()[identity.host.len()..].to_owned()
        });
        let wanted = |name: &Namespace| {
            let of_container = ends.iter().any(|end| name.as_str().ends_with(end.as_str()));
            let named = lag.processor.as_ref().is_none_or(|text| name.as_str().contains(text));
            of_container && named
        };
        let found = Unit::discover(&*store).await?;
        let found: Vec<Namespace> = found.into_iter().filter(wanted).collect();
        ensure!(!found.is_empty(), "no processor keeps leases for this container there");
        let runtime = Runtime::system();
        let mut all = Vec::new();
        for name in found {
            let unit = Unit::new(store.clone(), name, runtime.clone());
            let snapshot = unit.look().await?;
            for info in &snapshot.leases {
                let mode = info.lease.mode.unwrap_or(FeedMode::LatestVersion);
                let now = runtime.unix_millis() / 1000;
                let behind = lag_of(&source, &info.lease, mode, now).await?;
                if !lag.total {
                    let owner = info.lease.owner.as_deref().unwrap_or("nobody");
                    let (lease, text) = (&info.lease.token, describe(behind));
                    say(format_args!("{lease:<36}  {text:<28}  {owner}"));
                }
                all.push(behind);
            }
        }
        let total = Behind::total(all);
        match lag.total {
            true => say(format_args!(
                "{}",
                total.transactions.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX))
            )),
            false => say(format_args!("{:<36}  {}", "total", describe(total))),
        }
        let Some(max) = lag.max else { return Ok(()) };
        ensure!(total.transactions.is_some(), "nobody knows how far some leases are behind");
        let behind = total.transactions.unwrap_or(0);
        ensure!(behind <= max, "{behind} transactions behind; at most {max} are allowed");
        Ok(())
    })
}

fn describe(lag: Behind) -> String {
    let transactions = lag.transactions.map_or_else(|| "?".to_owned(), |n| n.to_string());
    match lag.time {
        Some(time) if !time.is_zero() => format!("{transactions} behind, {} s", time.as_secs()),
        _ => format!("{transactions} behind"),
    }
}

#[cfg(test)]
mod tests {
    use super::leases_beside;

    #[test]
    fn leases_are_looked_for_beside_the_container() {
        for (address, expected) in [
            ("shop/orders", "shop/leases"),
            ("prod:shop/orders", "prod:shop/leases"),
            ("http://127.0.0.1:8080/shop/orders", "http://127.0.0.1:8080/shop/leases"),
        ] {
            assert_eq!(leases_beside(address), expected);
        }
    }
}
