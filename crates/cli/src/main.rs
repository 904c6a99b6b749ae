//! The `headwater` command: reads the command line, starts the log output, runs one command.
//!
//! Every command is a file in `commands/`. This file decides nothing else.

mod address;
mod commands;
mod connect;
mod contexts;
mod data;
mod help;
mod memory;
mod output;
mod place;
mod screen;
mod secret;
mod transfer;

use clap::{FromArgMatches, Parser};
use commands::Command;
use std::io::IsTerminal;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// mimalloc: requests make many small allocations that are freed on another thread.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Headwater: a document database you can listen to.
///
/// Every partition of a container is a log, and reading the log is the change feed. The same store
/// is a library (the crate `headwater-store`); this command is what you run it with.
///
/// What a command has to say goes to standard output, what happens meanwhile to standard error.
/// HEADWATER_LOG sets how much of that is said, for example HEADWATER_LOG=info (a server then logs
/// every request), HEADWATER_LOG=debug or HEADWATER_LOG=headwater_store=trace.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let matches = help::command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    start_logging();
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            if data::is_in_use(&error) { data::IN_USE.into() } else { ExitCode::FAILURE }
        }
    }
}

fn start_logging() {
    // `run` prints the events of its processor itself, so the processor's log lines would repeat them.
    let filter = EnvFilter::try_from_env("HEADWATER_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,headwater_processor=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(output::is_coloured(std::io::stderr().is_terminal()))
        .with_writer(std::io::stderr)
        .init();
}
