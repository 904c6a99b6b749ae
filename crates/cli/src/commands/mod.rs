//! The commands, one file or folder each, and the one `match` that runs them.

mod bench;
mod serve;

use anyhow::Result;
use clap::Subcommand;

/// What `headwater` can be asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server that Cosmos DB SDKs connect to
    Serve(Box<serve::Serve>),
    /// Measure what this machine gives, and how much of it Headwater uses
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
}

/// Runs a command to its end.
pub(crate) fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(settings) => serve::run(*settings),
        Command::Bench { what } => bench::run(what),
    }
}
