//! The commands, one file or folder each, and the `match` that dispatches them.

mod backup;
mod bench;
mod completions;
mod context;
mod demo;
mod doctor;
mod export;
mod fleet;
mod import;
mod lag;
mod leases;
mod partitions;
mod program;
mod run;
mod scaler;
mod script_worker;
mod serve;
mod tail;
mod trust;
mod units;
mod watch;

use anyhow::Result;
use clap::Subcommand;

/// The commands of `headwater`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server that Cosmos DB SDKs connect to
    #[command(long_about = serve::HELP)]
    Serve(Box<serve::Serve>),
    /// Watch a small shop: a server in memory, incoming orders and their change feed
    #[command(long_about = demo::HELP)]
    Demo(demo::Demo),
    /// Print a container's changes as they happen
    #[command(long_about = tail::HELP)]
    Tail(Box<tail::Tail>),
    /// Write every item of a file into a container
    #[command(long_about = import::HELP)]
    Import(import::Import),
    /// Write every item of a container into a file
    #[command(long_about = export::HELP)]
    Export(export::Export),
    /// Show, split and merge the ranges of a container
    Partitions {
        #[command(subcommand)]
        what: partitions::Partitions,
    },
    /// Run a program for every batch of changes, on one machine or many
    #[command(long_about = run::HELP)]
    Run(Box<run::Run>),
    /// Try dead letters again
    #[command(long_about = run::REPLAY_HELP)]
    Replay(run::Replay),
    /// List the leases of processors; pause, resume, seek, snapshot, reset, export, import
    Leases {
        #[command(subcommand)]
        what: leases::Leases,
    },
    /// Show how far a processor is behind
    #[command(long_about = lag::HELP)]
    Lag(lag::Lag),
    /// Watch the hosts of processors: their leases, lag and speed
    #[command(long_about = watch::HELP)]
    Watch(watch::Watch),
    /// Name servers, and choose the one to use
    Context {
        #[command(subcommand)]
        what: context::Context,
    },
    /// Copy a running server or a data directory into a directory or an object store
    #[command(long_about = backup::HELP)]
    Backup(backup::Backup),
    /// Restore a backup to a new data directory
    #[command(long_about = backup::RESTORE_HELP)]
    Restore(backup::Restore),
    /// Check a server or a data directory
    #[command(long_about = doctor::HELP)]
    Doctor(doctor::Doctor),
    /// Show or install the certificate that HTTPS needs
    #[command(long_about = trust::HELP)]
    Trust(trust::Trust),
    /// Measure Headwater against the limits of this machine, and against other databases
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// Print a script that completes commands in a shell
    #[command(long_about = completions::HELP)]
    Completions(completions::Completions),
    /// Print the manual page, or write one per command into a directory
    #[command(long_about = completions::MAN_HELP)]
    Man(completions::Man),
    /// Run scripts for a server that started this process
    #[command(name = script_worker::NAME, hide = true)]
    ScriptWorker,
}

/// Runs a command to completion.
pub(crate) fn run(command: Command) -> Result<()> {
    if command.keeps_data() {
        restrict_new_files();
    }
    match command {
        Command::Serve(settings) => serve::run(*settings),
        Command::Demo(demo) => demo::run(demo),
        Command::Tail(tail) => tail::run(*tail),
        Command::Import(import) => import::run(import),
        Command::Export(export) => export::run(export),
        Command::Partitions { what } => partitions::run(what),
        Command::Run(run) => run::run(*run),
        Command::Replay(replay) => run::replay(replay),
        Command::Leases { what } => leases::run(what),
        Command::Lag(lag) => lag::run(lag),
        Command::Watch(watch) => watch::run(watch),
        Command::Context { what } => context::run(what),
        Command::Backup(backup) => backup::run(&backup),
        Command::Restore(restore) => backup::run_restore(&restore),
        Command::Doctor(doctor) => doctor::run(&doctor),
        Command::Trust(trust) => trust::run(trust),
        Command::Bench { what } => bench::run(what),
        Command::Completions(completions) => completions::run(&completions),
        Command::Man(man) => completions::run_man(&man),
        Command::ScriptWorker => script_worker::run(),
    }
}

impl Command {
    /// Returns whether the command creates files of a data directory or a backup.
    fn keeps_data(&self) -> bool {
        matches!(
            self,
            Command::Serve(_) | Command::Backup(_) | Command::Restore(_) | Command::Doctor(_)
        )
    }
}

/// Sets the umask so that only the owner can read new files, including those that libraries create.
fn restrict_new_files() {
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}
