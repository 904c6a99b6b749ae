//! `headwater bench processor`: what lies between a feed and its handlers.
//!
//! ```text
//! real      what takes time on this machine: changes delivered, latency, idle leases
//! protocol  what follows from the protocol alone, counted in virtual time: lease writes, failover,
//!           duplicates
//! ```

mod protocol;
mod real;

use super::common::{Common, Size};
use super::harness::Harness;
use super::machine;
use super::report::{Report, Row};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::time::Duration;

/// Items of an ordinary run.
const ITEMS: u64 = 200_000;
/// Items with `--quick`.
const ITEMS_QUICK: u64 = 30_000;

/// What `--help` says.
pub(crate) const HELP: &str = "\
Measure the change feed processor beside reading the feed without one

Items are JSON of 1 KiB in one range, pages have 1000. Rows, by the name that --only takes:

  delivered  Items/s that arrive at a handler ÷ items/s of reading the same pages in a loop, from a store in
             the same process and over HTTP. The position is stored every second; beside it, after every
             page, where a lease is written durably before the next page is handled.
  latency    From sending a write to its arrival at a handler, over HTTP: where the feed waits for a change,
             and where it is asked every 5 seconds as Azure's must be.
  leases     Writes to the lease container per minute, 64 ranges and 4 hosts, nothing to do: ours, and in
             the form shared with .NET and Java. Counted in virtual time.
  failover   From the death of a host to its ranges going on elsewhere: the worst of 20 deaths at random
             moments, with the defaults and with an expiration of 1.5 seconds. Counted in virtual time.
  handover   Changes delivered twice while hosts come and go in order. Counted in virtual time.
  idle       What 1000 leases without changes cost one host: CPU per second, and memory.

The Java processor is not measured here.";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct ProcessorArguments {
    #[command(flatten)]
    common: Common,
    /// Only these rows, separated by commas
    #[arg(long, value_enum, value_name = "ROW", value_delimiter = ',')]
    only: Vec<Asked>,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Asked {
    Delivered,
    Latency,
    Leases,
    Failover,
    Handover,
    Idle,
}

pub(crate) fn run(arguments: &ProcessorArguments) -> Result<()> {
    let size = arguments.common.size(
        Size { items: ITEMS_QUICK, rounds: 3, window: Duration::from_secs(6) },
        Size { items: ITEMS, rounds: 5, window: Duration::from_secs(20) },
    );
    let harness = arguments.common.harness(size, Vec::new())?;
    let machine = machine::describe(&harness)?;
    let report = Report { machine, rows: rows(&harness, &arguments.only)? };
    arguments.common.print(&report)
}

fn rows(harness: &Harness, only: &[Asked]) -> Result<Vec<Row>> {
    let wants = |asked: Asked| only.is_empty() || only.contains(&asked);
    let mut rows = Vec::new();
    if wants(Asked::Delivered) {
        rows.extend(real::embedded(harness)?);
    }
    if wants(Asked::Delivered) || wants(Asked::Latency) {
        rows.extend(real::served(harness, wants(Asked::Delivered), wants(Asked::Latency))?);
    }
    if wants(Asked::Leases) {
        rows.extend(protocol::lease_writes());
    }
    if wants(Asked::Failover) {
        rows.extend(protocol::failover());
    }
    if wants(Asked::Handover) {
        rows.push(protocol::handover());
    }
    if wants(Asked::Idle) {
        rows.extend(real::idle(harness)?);
    }
    Ok(rows)
}
