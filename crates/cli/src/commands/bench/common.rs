//! What every benchmark can be told, and what follows from it: the harness it runs in, and how it is printed.

use super::Topic;
use super::harness::{Harness, Plan};
use super::report::Report;
use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Under which heading help lists these options.
const HEADING: &str = "Measurement";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// End within a minute: fewer items, shorter and fewer rounds
    #[arg(long, help_heading = HEADING)]
    pub(super) quick: bool,
    /// Number of rounds of each measurement, of which the median counts [default: 5, with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = HEADING)]
    rounds: Option<u32>,
    /// Directory for the data, on the disk to measure; the data is removed afterwards [default: the current directory]
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    dir: Option<PathBuf>,
    /// Print JSON: {"machine": …, "rows": [{"question", "ours", "limit", "ratio", "hold", "holds", …}]}
    #[arg(long, help_heading = HEADING)]
    pub(super) json: bool,
}

/// How much a benchmark measures unless it is told otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) items: u64,
    pub(super) rounds: u32,
    pub(super) window: Duration,
}

impl Common {
    /// One of two sizes.
    pub(super) fn size(&self, quick: Size, full: Size) -> Size {
        if self.quick { quick } else { full }
    }

    pub(super) fn harness(&self, size: Size, only: Vec<Topic>) -> Result<Harness> {
        let Size { items, rounds, window } = size;
        let plan = Plan { items, rounds: self.rounds.unwrap_or(rounds), window, only };
        let parent = match &self.dir {
            Some(dir) => dir.clone(),
            None => std::env::current_dir().context("the current directory is gone")?,
        };
        Harness::new(plan, parent)
    }

    pub(super) fn print(&self, report: &Report) -> Result<()> {
        if self.json {
            println!("{}", report.to_json()?);
        } else {
            print!("{}", report.to_table());
        }
        Ok(())
    }
}
