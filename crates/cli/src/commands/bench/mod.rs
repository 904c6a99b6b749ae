//! `headwater bench`: how much of what the machine can do is left for the user.
//!
//! A figure alone says more about the machine than about the program. So every row stands beside the
//! physical limit measured in the same run (a bare sync, a bare copy out of the page cache) and beside
//! the same work done by two peers, fjall and SQLite. Rounds of ours, limit and peers follow each other
//! closely, and a row shows the median of the rounds: neighbours on the machine then hurt all alike.
//!
//! ```text
//! questions/*  what is asked: one file per kind of work, makes rows
//!   ours       Headwater as a library, one store
//!   peers/*    fjall and SQLite behind one small trait
//!   limits     the bare machine
//!   child      this binary again, to be started, killed and looked at from outside
//! http/*       the same over HTTP, beside a bare server
//! rivals/*     our server beside other servers
//! processor/*  the change feed processor beside the feed it reads
//! query/*      queries over the wire, beside PostgreSQL and SQLite
//! common       what every benchmark can be told
//! report       rows as a table or as JSON
//! ```

mod child;
mod common;
mod harness;
mod http;
mod large;
mod limits;
mod machine;
mod ours;
mod peers;
mod processor;
mod query;
mod questions;
mod report;
mod rivals;
mod workload;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use common::{Common, Size};
use report::Report;
use std::path::PathBuf;
use std::time::Duration;

/// Items of an ordinary run.
const ITEMS: u64 = 1_000_000;
/// Items with `--quick`.
const ITEMS_QUICK: u64 = 100_000;
/// Items with `--large`.
const ITEMS_LARGE: u64 = 10_000_000;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Measure the store as a library, next to the machine's limits and two peers
    #[command(long_about = STORE_HELP)]
    Store(StoreArguments),
    /// Measure the server over loopback, next to a bare HTTP server
    #[command(long_about = http::HELP)]
    Http(http::HttpArguments),
    /// Measure the server next to Cosmos DB emulators, PostgreSQL and Redis
    #[command(long_about = rivals::HELP)]
    Peers(rivals::PeersArguments),
    /// Measure the change feed processor, next to reading the feed without one
    #[command(long_about = processor::HELP)]
    Processor(processor::ProcessorArguments),
    /// Measure queries over the wire, next to PostgreSQL and SQLite
    #[command(long_about = query::HELP)]
    Query(query::QueryArguments),
    /// What `bench query` compares with: SQLite behind a bare HTTP server
    #[command(hide = true)]
    SqliteHttp { file: PathBuf },
    /// What `bench http` compares with: a server that always sends the answer in this file
    #[command(hide = true)]
    BareHttp { file: PathBuf },
    /// What `bench store` runs in a process of its own, to time its start or to kill it
    #[command(hide = true)]
    Child {
        #[command(subcommand)]
        task: child::Task,
    },
}

const STORE_HELP: &str = "\
Measure the store as a library, next to the machine's limits and two peers

    headwater bench store --quick
    headwater bench store --only reads,feed

Items are JSON of 1 KiB, durable writes (an acknowledged write is on the disk), one partition, ids and
partition keys spread. Each row is the median of several rounds; a ratio is the median of the rounds' own
ratios. ✓ and ✗ say whether a row is where the design wants it; they never change the exit code, because
machines are noisy. Close other programs, or read the ratios and not the figures.

Rows, by the name that --only takes:

  commits  Durable commits/s of 1 writer ÷ bare fdatasync/s of the same bytes on a preallocated
           file. What is lost on the way from a task to the disk and back.
  writers  Durable items/s of 64 concurrent writers ÷ what the machine allows: 64 × bare
           fdatasync/s, or the CPU bound if that is lower. The CPU bound is the cores that were free
           in that round (measured by keeping all of them busy for a moment) ÷ 20 µs, the CPU a
           write may cost; a slow store therefore does not lower its own bar. And CPU per durable
           write, all threads of the process, less the making of the items.
  feed     The change feed from its beginning in pages of 1000 ÷ copying the same bytes out of the
           page cache (256 KiB at a time into one buffer). Both per second of CPU of the one reading
           thread, as nothing waits here. Fresh; after one update per item, with creates and updates
           shuffled and nothing compacted yet; and after compaction.
  polls    Feed reads that find nothing new, per second on one core.
  visible  From the start of a write to the moment a waiting reader has it, and the write's own
           time.
  start    From opening the store to the first answered point read, in a new process: with nothing
           in it, with all items after a clean close, and after kill -9. In a new directory too.
  disk     Blocks on the disk after one update per item and compaction ÷ bytes of the live items:
           with history as it is by default, and without.
  memory   Resident memory of a new process that has opened the store and read a little.
  reads    Point reads/s in random order, and items/s of a scan in key order; one core.
  lookups  A query by equality through an index, and by a scan of at most 100 k items.

Peers do the same work on the same bodies: fjall keeps key → sequence and sequence → body, SQLite (WAL,
synchronous=FULL) an items and a feed table. \"64 writers\" is for them one thread that puts 64 items into
each transaction, the best they can do; they have no queue and no tasks to wake.

With --large, one store grows to 10 million items (10 GB) in one process; CPU per write and per feed item
must stay within 1.5 times what they were at a tenth of that, and memory within 1 GB.";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct StoreArguments {
    #[command(flatten)]
    common: Common,
    /// Number of items in the stores that are read [default: 1000000, with --quick 100000, with --large 10000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=1_000_000_000))]
    items: Option<u64>,
    /// Measure these rows only, separated by commas
    #[arg(
        long,
        value_enum,
        value_name = "ROW",
        value_delimiter = ',',
        conflicts_with = "large",
        hide_possible_values = true
    )]
    only: Vec<Topic>,
    /// Compare 10 million items with 1 million in one process, instead of the rows
    #[arg(long, conflicts_with = "quick")]
    large: bool,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topic {
    Commits,
    Writers,
    Feed,
    Polls,
    Visible,
    Start,
    Disk,
    Memory,
    Reads,
    Lookups,
}

pub(crate) fn run(what: Bench) -> Result<()> {
    match what {
        Bench::Store(arguments) => store(&arguments),
        Bench::Http(arguments) => http::run(&arguments),
        Bench::Peers(arguments) => rivals::run(&arguments),
        Bench::Processor(arguments) => processor::run(&arguments),
        Bench::Query(arguments) => query::run(&arguments),
        Bench::SqliteHttp { file } => query::sqlite::serve(&file),
        Bench::BareHttp { file } => http::bare::run(&file),
        Bench::Child { task } => child::run(task),
    }
}

fn store(arguments: &StoreArguments) -> Result<()> {
    let harness = arguments.common.harness(arguments.size(), arguments.only.clone())?;
    let machine = machine::describe(&harness)?;
    let rows = if arguments.large { large::run(&harness)? } else { questions::run(&harness)? };
    let report = Report { machine, rows };
    arguments.common.print(&report)
}

impl StoreArguments {
    fn size(&self) -> Size {
        let size = match self.large {
            true => Size { items: ITEMS_LARGE, rounds: 1, window: Duration::from_secs(1) },
            false => self.common.size(
                Size { items: ITEMS_QUICK, rounds: 3, window: Duration::from_millis(250) },
                Size { items: ITEMS, rounds: 5, window: Duration::from_secs(1) },
            ),
        };
        Size { items: self.items.unwrap_or(size.items), ..size }
    }
}
