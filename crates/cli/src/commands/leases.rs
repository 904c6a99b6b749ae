//! `headwater leases`: who works on what, how far they are; pause, resume, seek. Of .NET and Java
//! processors as well.

use crate::commands::tail::start::Start as Where;
use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use headwater_client::Options;
use headwater_model::Timestamp;
use headwater_processor::lease::LeaseState;
use headwater_processor::lease_store::{ContainerLeases, LeaseStore};
use headwater_processor::{LeaseInfo, Namespace, Position, Snapshot, Start, Unit};
use headwater_runtime::Runtime;
use std::sync::Arc;
use std::time::Duration;

/// How long a host that says nothing is waited for.
const SILENCE: Duration = Duration::from_secs(20);

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub(crate) enum Leases {
    /// Show who works on what, and how far they are
    List(Which),
    /// Let every host stop, and wait until they have (not for .NET and Java hosts)
    Pause(Which),
    /// Let every host go on; with --lease, one lease that was paused or halted
    Resume {
        #[command(flatten)]
        which: Which,
        /// Only this lease
        #[arg(long, value_name = "LEASE")]
        lease: Option<String>,
    },
    /// Set leases to another position while nobody works on them
    Seek {
        #[command(flatten)]
        which: Which,
        /// beginning, now, a time, an age (10m, 2h, 1d), or the position of one lease
        #[arg(long, value_name = "WHERE")]
        to: String,
        /// Only this lease
        #[arg(long, value_name = "LEASE")]
        lease: Option<String>,
    },
}

/// Which leases.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The lease container: database/container, context:database/container or a URL
    address: String,
    /// The processor, if there are several: a part of its namespace, as `list` shows it
    #[arg(long, value_name = "TEXT")]
    processor: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Which {
    async fn store(&self) -> Result<Arc<dyn LeaseStore>> {
        let container = self.connect.container(&self.address, Options::default())?;
        Ok(Arc::new(ContainerLeases::open(container).await?))
    }

    async fn units(&self) -> Result<Vec<Unit>> {
        let store = self.store().await?;
        let wanted = |name: &Namespace| {
            self.processor.as_ref().is_none_or(|text| name.as_str().contains(text.as_str()))
        };
        let found = Unit::discover(&*store).await?;
        let unit = |name| Unit::new(store.clone(), name, Runtime::system());
        let units: Vec<Unit> = found.into_iter().filter(wanted).map(unit).collect();
        ensure!(!units.is_empty(), "there are no leases of such a processor in this container");
        Ok(units)
    }

    async fn unit(&self) -> Result<Unit> {
        let mut units = self.units().await?;
        match units.len() {
            1 => Ok(units.remove(0)),
            count => bail!("there are leases of {count} processors; name one with --processor"),
        }
    }
}

/// Runs the command.
pub(crate) fn run(command: Leases) -> Result<()> {
    block_on(async {
        match command {
            Leases::List(which) => {
                for unit in which.units().await? {
                    show(&unit, &unit.look().await?, which.json);
                }
            }
            Leases::Pause(which) => {
                which.unit().await?.pause(SILENCE).await?;
                say(format_args!("paused; nobody works on these leases until they are resumed"));
            }
            Leases::Resume { which, lease: None } => {
                which.unit().await?.resume().await?;
                say(format_args!("resumed"));
            }
            Leases::Resume { which, lease: Some(lease) } => {
                which.unit().await?.set_state(&lease, LeaseState::Running).await?;
                say(format_args!("resumed {lease}"));
            }
            Leases::Seek { which, to, lease } => {
                let start = start_of(&to)?;
                let one = matches!(start, Start::Position(_)) && lease.is_none();
                ensure!(!one, "a position belongs to one lease; name it with --lease");
                let moved = which.unit().await?.seek(lease.as_deref(), &start, SILENCE).await?;
                say(format_args!("{moved} leases go on from {start}"));
            }
        }
        Ok(())
    })
}

/// What `--from` and `--to` mean here; a position is an etag as leases hold it.
pub(crate) fn start_of(text: &str) -> Result<Start> {
    let now = Runtime::system().unix_millis();
    Ok(match text.parse::<Where>() {
        Ok(Where::Beginning) => Start::Beginning,
        Ok(Where::Now) => Start::Now,
        Ok(Where::Time(time)) => Start::Time(time),
        Ok(Where::Age(age)) => Start::Time(Timestamp::from_millis(now.saturating_sub(age))),
        Ok(Where::Position(_)) | Err(_) if text.trim_matches('"').parse::<u64>().is_ok() => {
            let quoted = format!("\"{}\"", text.trim_matches('"'));
            Start::Position(Position::new(quoted).context("an empty position")?)
        }
        Ok(Where::Position(_)) => bail!("a position of tail is not one of a lease; give a number"),
        Err(error) => return Err(error),
    })
}

fn show(unit: &Unit, snapshot: &Snapshot, json: bool) {
    if json {
        for info in &snapshot.leases {
            say(format_args!("{}", to_json(unit, info)));
        }
        return;
    }
    let state = if snapshot.control.paused { "  (paused)" } else { "" };
    say(format_args!("{}{state}", unit.namespace().as_str()));
    say(format_args!(
        "  {:<36}  {:<24}  {:>12}  {:>6}  {:>8}  state",
        "lease", "owner", "position", "epoch", "written"
    ));
    for info in &snapshot.leases {
        let lease = &info.lease;
        let position = lease.position.as_ref().map_or("-", Position::as_str).trim_matches('"');
        let age = info.age.map_or_else(|| "?".to_owned(), |age| format!("{} s", age.as_secs()));
        say(format_args!(
            "  {:<36}  {:<24}  {position:>12}  {:>6}  {age:>8}  {}",
            lease.token,
            lease.owner.as_deref().unwrap_or("-"),
            lease.extra.epoch,
            lease.extra.state.as_str(),
        ));
    }
    for member in &snapshot.members {
        let leaving = if member.draining { ", about to leave" } else { "" };
        let (name, owned) = (&member.host.name, member.owned);
        say(format_args!("  host {name}: {owned} leases{leaving}"));
    }
    for document in &snapshot.unreadable {
        say(format_args!("  {document} is no lease"));
    }
}

fn to_json(unit: &Unit, info: &LeaseInfo) -> serde_json::Value {
    let lease = &info.lease;
    serde_json::json!({
        "processor": unit.namespace().as_str(),
        "lease": lease.token,
        "owner": lease.owner,
        "position": lease.position.as_ref().map(Position::as_str),
        "epoch": lease.extra.epoch,
        "state": lease.extra.state.as_str(),
        "flavour": lease.flavour().to_string(),
        "ageSeconds": info.age.map(|age| age.as_secs()),
    })
}
