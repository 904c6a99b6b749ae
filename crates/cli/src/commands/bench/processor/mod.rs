//! `headwater bench processor`: what lies between a feed and its handlers.
//!
//! ```text
//! real      what takes time on this machine: changes delivered, latency, idle leases
//! protocol  what follows from the protocol alone, counted in virtual time: lease writes, failover,
//!           duplicates
//! live      leases and failover again, in processes at a server, beside the Java processor
//!   hosts   this binary again, running hosts
//!   java    the Java processor, where it is installed
//! ```

pub(super) mod hosts;
mod java;
mod live;
mod protocol;
mod real;

use super::common::{Common, Size};
use super::harness::Harness;
use super::machine;
use super::report::{Report, Row};
use anyhow::Result;
use clap::{Args, ValueEnum};
use java::Java;
use std::path::PathBuf;
use std::time::Duration;

/// Items of an ordinary run.
const ITEMS: u64 = 200_000;
/// Items with `--quick`.
const ITEMS_QUICK: u64 = 30_000;

/// What `--help` says.
pub(crate) const HELP: &str = "\
Measure the change feed processor, next to reading the feed without one

    headwater bench processor --quick
    headwater bench processor --only delivered,latency

Items are JSON of 1 KiB in one range, pages have 1000. Rows, by the name that --only takes:

  delivered  Items/s that arrive at a handler ÷ items/s of reading the same pages in a loop, from a
             store in the same process and over HTTP. The position is stored every second; beside
             it, after every page, where a lease is written durably before the next page is handled.
  latency    From sending a write to its arrival at a handler, over HTTP: where the feed waits for a
             change, and where it is asked every 5 seconds as Azure's must be.
  leases     Writes to the lease container per minute, 64 ranges and 4 hosts, nothing to do: ours,
             and in the form shared with .NET and Java. Counted in virtual time.
  failover   From the death of a host to its ranges going on elsewhere: the worst of 20 deaths at
             random moments, with the defaults and with an expiration of 1.5 seconds. Counted in
             virtual time.
  live       Both again in processes, at a server that counts what is committed, beside the official
             Java processor: four hosts each for a minute, all at once and on one container; and a
             process that is killed -9, once with the defaults (which takes Java more than a minute)
             and three times fast. Takes six minutes; with --quick only if it is asked for.
  handover   Changes delivered twice while hosts come and go in order. Counted in virtual time.
  idle       What 1000 leases without changes cost one host: CPU per second, and memory.

The Java processor is that of the compatibility checks; where it is absent, its column is, and a note says why.
Its hosts ask the feed every 5 seconds by default, as they must of Azure; fast, every 0.1 seconds, with an
expiration of 3 seconds, since with less than a second between two looks they never take a lease.";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct ProcessorArguments {
    #[command(flatten)]
    common: Common,
    /// Measure these rows only, separated by commas
    #[arg(long, value_enum, value_name = "ROW", value_delimiter = ',')]
    only: Vec<Asked>,
    /// Directory into which `cargo xtask compatibility java` put the Java processor
    /// [default: target/compatibility/java]
    #[arg(long, value_name = "DIR")]
    java: Option<PathBuf>,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Asked {
    Delivered,
    Latency,
    Leases,
    Failover,
    Live,
    Handover,
    Idle,
}

pub(crate) fn run(arguments: &ProcessorArguments) -> Result<()> {
    let size = arguments.common.size(
        Size { items: ITEMS_QUICK, rounds: 3, window: Duration::from_secs(6) },
        Size { items: ITEMS, rounds: 5, window: Duration::from_secs(20) },
    );
    let harness = arguments.common.harness(size, Vec::new())?;
    // Processes are started, and none may be left running.
    harness.end_in_order()?;
    let machine = machine::describe(&harness)?;
    let report = Report { machine, rows: rows(&harness, arguments)? };
    arguments.common.print(&report)
}

fn rows(harness: &Harness, arguments: &ProcessorArguments) -> Result<Vec<Row>> {
    let only = &arguments.only;
    // What takes minutes is no part of a quick run unless it is asked for.
    let usual = |asked: Asked| asked != Asked::Live || !arguments.common.quick;
    let wants = |asked: Asked| if only.is_empty() { usual(asked) } else { only.contains(&asked) };
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
    if wants(Asked::Live) {
        rows.extend(live::rows(harness, &Java::find(arguments.java.as_deref()))?);
    }
    if wants(Asked::Handover) {
        rows.push(protocol::handover());
    }
    if wants(Asked::Idle) {
        rows.extend(real::idle(harness)?);
    }
    Ok(rows)
}
