//! The `headwater` command: reads the command line, starts the log output, runs one command.
//!
//! Every command is a file in `commands/`. This file decides nothing else.

mod address;
mod commands;
mod connect;
mod contexts;
mod output;
mod secret;
mod transfer;

use clap::Parser;
use commands::Command;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// A request is many small pieces of memory, made on one thread and given back on another.
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
    let arguments = Arguments::parse();
    start_logging();
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_logging() {
    let filter =
        EnvFilter::try_from_env("HEADWATER_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
