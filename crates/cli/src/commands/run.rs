//! `headwater run`: runs a program for every batch of changes; copies on several machines share the work.

use super::leases::{Form, start_of};
use super::program::Program;
use super::units::leases_beside;
use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use headwater_client::{Container, Options as ClientOptions};
use headwater_processor::lease_store::{ContainerLeases, Layout};
use headwater_processor::source::RemoteFeed;
use headwater_processor::{
    Batch, DeadLetter, DeadLetterFile, Event, Options, Processor, RetryThenDeadLetter,
};
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Run a program for every batch of changes

    headwater run shop/orders --name mailer --exec ./send-mail
    headwater run shop/orders --name mailer --dead-letters failed.ndjson --exec ./send-mail

The program reads changes from standard input, one JSON a line, and ends with 0 when it has handled them;
otherwise they are delivered again. HEADWATER_LEASE, HEADWATER_EPOCH and HEADWATER_ATTEMPT describe the batch. Positions
are kept as leases in the container --leases, which is created if it is missing. Started several times with the same
--name, on one machine or many, the copies share the work; when one dies the others take over. Every change is
handled at least once, those of one partition key in order.

With --shared the leases are those of .NET or Java hosts, which share the work with the copies of this one.

With --dead-letters, changes that fail again and again are put into that file, and the rest continues; `headwater
replay FILE --exec PROGRAM` tries them again.";

/// Help headings of the options.
const PROGRAM: &str = "Program";
const LEASES: &str = "Leases";
const FAILURES: &str = "Failures";

/// The long help text of the command.
pub(crate) const REPLAY_HELP: &str = "\
Try dead letters again

    headwater replay failed.ndjson --exec ./send-mail

The program gets one change at a time, as from `headwater run`. Changes that fail again stay in the file.";

/// What to run, on which changes.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// database/container, context:database/container or a URL
    address: String,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
    /// Program, run for every batch
    #[arg(long, value_name = "PROGRAM", help_heading = PROGRAM)]
    exec: PathBuf,
    /// Number of changes in a batch, at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = PROGRAM
    )]
    batch: u32,
    /// Number of copies of the program that work on one lease at once, each on keys of its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=256),
        help_heading = PROGRAM
    )]
    lanes: u32,
    /// Name of the processor; the copies with the same name share the work
    #[arg(long, value_name = "NAME", help_heading = LEASES)]
    name: String,
    /// Lease container [default: `leases` in the same database]
    #[arg(long, value_name = "ADDRESS", help_heading = LEASES)]
    leases: Option<String>,
    /// Name of this copy, unlike that of any other [default: a random one]
    #[arg(long, value_name = "NAME", help_heading = LEASES)]
    host: Option<String>,
    /// Where to start if there are no leases yet: beginning, now, a time, an age (10m, 2h, 1d)
    #[arg(long, value_name = "WHERE", default_value = "now", help_heading = LEASES)]
    from: String,
    /// Seconds without a renewal after which the leases of a copy expire [default: 15, with --shared 60]
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(3..=3600),
        help_heading = LEASES
    )]
    expiration: Option<u64>,
    /// Share the leases with hosts of .NET or Java, in their form; --name is their lease prefix then
    #[arg(long, value_enum, value_name = "FORM", help_heading = LEASES)]
    shared: Option<Form>,
    /// File for changes that fail again and again
    #[arg(long, value_name = "FILE", help_heading = FAILURES)]
    dead_letters: Option<PathBuf>,
    /// Number of attempts before a change is put into that file
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = FAILURES
    )]
    attempts: u32,
    /// Print every event: leases taken and released, pages read, checkpoints
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What to try again.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// File of dead letters
    file: PathBuf,
    /// Program, run for every change
    #[arg(long, value_name = "PROGRAM")]
    exec: PathBuf,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Runs until it is interrupted.
pub(crate) fn run(run: Run) -> Result<()> {
    let program = Program::find(run.exec.clone(), run.arguments.clone())?;
    block_on(async {
        let container = run.connect.container(&run.address, ClientOptions::default())?;
        // Checked before the lease container is created, so that a misspelt name creates nothing.
        ensure_exists(&container).await?;
        let leases = run.leases.clone().unwrap_or_else(|| leases_beside(&run.address));
        let leases = run.connect.container(&leases, ClientOptions::default())?;
        // Java requires one partition per lease document; Headwater leases are fastest in one partition.
        let layout = if run.shared.is_some() { Layout::Id } else { Layout::PartitionKey };
        let leases = ContainerLeases::open_or_create(leases, layout, None).await?;
        let processor = Processor::builder()
            .source(RemoteFeed::new(container))
            .leases(leases)
            .handler(move |batch: Batch| {
                let program = program.clone();
                async move { program.handle(&batch).await }
            })
            .options(run.options()?)
            .build()?;
        let running = processor.start().await?;
        eprintln!("{} is ready; end it with Ctrl-C", running.host().name);
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C")?,
            () = terminated() => {}
            report = running.ended() => {
                let why = report.fatal.map_or_else(|| "the host ended".to_owned(), |why| why.to_string());
                bail!(why);
            }
        }
        let report = running.stop().await;
        let orderly = report.stopped.iter().filter(|stopped| stopped.orderly).count();
        eprintln!("released {orderly} of {} leases", report.stopped.len());
        Ok(())
    })
}

async fn ensure_exists(container: &Container) -> Result<()> {
    let (database, id) = (container.database(), container.id());
    match container.definition().await {
        Err(error) if error.is_not_found() => {
            bail!("there is no container {database}/{id}; create it first, or correct the address")
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot read the container {database}/{id}"))
        }
        Ok(_) => Ok(()),
    }
}

/// Completes when the process receives a termination signal.
pub(crate) async fn terminated() {
    #[cfg(unix)]
    if let Ok(mut signal) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        signal.recv().await;
        return;
    }
    std::future::pending().await
}

impl Run {
    fn options(&self) -> Result<Options> {
        let mut options = match self.shared {
            None | Some(Form::Native) => Options::native(self.name.clone()),
            Some(form) => Options::interop(form.flavour(), self.name.clone()),
        };
        options.host_name.clone_from(&self.host);
        options.start = start_of(&self.from)?;
        options.items_max = Some(self.batch);
        options.batch_items_max = usize::try_from(self.batch).unwrap_or(usize::MAX);
        options.lanes = usize::try_from(self.lanes).unwrap_or(1);
        if let Some(expiration) = self.expiration {
            options.expiration = Duration::from_secs(expiration);
            options.renew_interval = options.expiration / 5;
            options.acquire_interval = options.expiration / 3;
        }
        if let Some(file) = &self.dead_letters {
            options.dead_letters = Some(Arc::new(DeadLetterFile::new(file.clone())));
            let attempts = self.attempts;
            options.failure = Arc::new(RetryThenDeadLetter { attempts, ..Default::default() });
        }
        let verbose = self.verbose;
        Ok(options.on_event(move |event: &Event| {
            if verbose || event.is_critical() || event.is_warning() {
                eprintln!("{event}");
            }
        }))
    }
}

/// Runs `headwater replay`: retries dead letters. Those that fail again stay in the file.
pub(crate) fn replay(replay: Replay) -> Result<()> {
    let name = replay.file.display().to_string();
    let file = std::fs::File::open(&replay.file).with_context(|| format!("cannot open {name}"))?;
    let program = Program::find(replay.exec, replay.arguments)?;
    let mut left = Vec::new();
    let (mut handled, mut kept) = (0_usize, 0_usize);
    block_on(async {
        for line in std::io::BufReader::new(file).lines() {
            let line = line.with_context(|| format!("cannot read {name}"))?;
            let letter: DeadLetter = serde_json::from_str(&line)
                .with_context(|| format!("{name} holds something else"))?;
            let mut input = letter.body().to_vec();
            input.push(b'\n');
            let about = [("HEADWATER_LEASE", letter.lease.clone())];
            match program.feed(&input, &about).await {
                Ok(()) => handled += 1,
                Err(error) => {
                    eprintln!("{error}");
                    left.push(line);
                    kept += 1;
                }
            }
        }
        Ok(())
    })?;
    let mut text = left.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    // Write a new file and rename it, so that an interruption loses nothing.
    let beside = replay.file.with_extension("replaying");
    std::fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
    std::fs::rename(&beside, &replay.file).with_context(|| format!("cannot replace {name}"))?;
    say(format_args!("{handled} handled, {kept} left"));
    ensure!(kept == 0, "{kept} changes failed again and stay in {name}");
    Ok(())
}
