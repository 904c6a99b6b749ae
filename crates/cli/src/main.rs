//! The `headwater` command: reads the command line, starts the log output, runs one command.
//!
//! Every command is a file in `commands/`. This file decides nothing else.

mod address;
mod commands;
mod connect;
mod contexts;
mod memory;
mod output;
mod place;
mod screen;
mod secret;
mod transfer;

use clap::Parser;
use commands::Command;
use std::io::IsTerminal;
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
    // `run` prints the events of its processor itself; a log line for each would say them twice.
    let filter = EnvFilter::try_from_env("HEADWATER_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,headwater_processor=off"));
    let wants_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(wants_colour && std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// Calls `check` with every command and sub-command.
    fn for_each_command(command: &clap::Command, check: &mut dyn FnMut(&clap::Command)) {
        check(command);
        command.get_subcommands().for_each(|inner| for_each_command(inner, check));
    }

    #[test]
    fn help_lists_options_of_the_connection_and_no_others_under_that_heading() {
        let connection = ["key_file", "key_command", "authority", "region"];
        let mut headed = 0;
        for_each_command(&Arguments::command(), &mut |command| {
            let is_headed = |arg: &&clap::Arg| arg.get_help_heading() == Some("Connection");
            for arg in command.get_arguments().filter(is_headed) {
                let (id, name) = (arg.get_id().as_str(), command.get_name());
                assert!(connection.contains(&id), "{name}: {id} is no option of the connection");
                headed += 1;
            }
        });
        assert!(headed > 0, "no command has options of the connection");
    }
}
