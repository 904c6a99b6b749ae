//! This binary again, as a process of its own: what can only be seen from outside.
//!
//! How long a start takes, how much memory a process has that did nothing else before, and what is left
//! after `kill -9`. A child says what it found out in lines of JSON; what else it writes goes to standard
//! error. It is ended through the handle it was started with, and never outlives it.

use super::harness::{in_task, start_tokio};
use super::machine::resident_bytes;
use super::ours::{Maintenance, Ours};
use super::processor::hosts;
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use headwater_runtime::{Random, Runtime};
use indicatif::ProgressBar;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// Point reads of a child that reads a little.
const READS: u64 = 1000;
/// Pages of the feed it reads.
const PAGES: u32 = 10;
/// A child that waits to be killed ends by itself after this.
const LONELY: Duration = Duration::from_secs(120);

/// What a child is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Open a store, create new items, and end as told
    Load(TaskArguments),
    /// Open a store, time the first answer, read a little, and end as told
    Start(TaskArguments),
    /// Run hosts of the processor until standard input ends
    Hosts(hosts::HostsArguments),
}

/// About which store, and what then.
#[derive(Clone, Debug, Args)]
pub(crate) struct TaskArguments {
    /// The store
    #[arg(long)]
    dir: PathBuf,
    /// Items it has already
    #[arg(long)]
    has: u64,
    /// New items to create; with `--killed` more follow until that happens
    #[arg(long)]
    create: u64,
    /// Wait to be killed, writing, instead of closing the store
    #[arg(long)]
    killed: bool,
}

/// What a child says after it has answered the first request.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Started {
    /// From opening the store to the first answer.
    pub(crate) millis: f64,
    /// Resident after it has read a little.
    pub(crate) resident_bytes: u64,
}

/// What a child says when its items are written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Created {
    pub(crate) items: u64,
}

/// Inside the child.
pub(crate) fn run(task: Task) -> Result<()> {
    let clock = Runtime::system();
    let tokio = start_tokio()?;
    let inside = clock.clone();
    tokio.block_on(in_task(&clock, async move {
        match task {
            Task::Load(arguments) => {
                let ours = Ours::open(&inside, &arguments.dir, Maintenance::Automatic).await?;
                finish(&ours, &arguments).await
            }
            Task::Start(arguments) => start(&inside, &arguments).await,
            Task::Hosts(arguments) => {
                let running = hosts::start(inside, arguments).await?;
                tokio::task::block_in_place(|| {
                    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
                })?;
                drop(running);
                Ok(())
            }
        }
    }))
}

async fn start(clock: &Runtime, arguments: &TaskArguments) -> Result<()> {
    let before = clock.elapsed();
    let ours = Ours::open(clock, &arguments.dir, Maintenance::Automatic).await?;
    // The newest item: after a crash it is the one most likely to be missing.
    match arguments.has.checked_sub(1) {
        Some(newest) => ours.read_one(newest).await?,
        None => ours.read_nothing().await?,
    }
    let millis = clock.elapsed().saturating_sub(before).as_secs_f64() * 1e3;
    let mut random = Random::seeded(4);
    for _ in 0..READS.min(arguments.has) {
        ours.read_one(random.below(arguments.has)).await?;
    }
    ours.read_feed_pages(PAGES).await?;
    let (resident_bytes, _) = resident_bytes();
    say(&Started { millis, resident_bytes })?;
    finish(&ours, arguments).await
}

async fn finish(ours: &Ours, arguments: &TaskArguments) -> Result<()> {
    ours.continue_from(arguments.has);
    if arguments.create > 0 {
        ours.write_count(arguments.create, &ProgressBar::hidden()).await?;
    }
    say(&Created { items: arguments.has + arguments.create })?;
    if arguments.killed {
        // Into the middle of this the parent sends its signal. Nobody counts on these items, so they
        // get numbers that no other child uses.
        ours.continue_from((1 << 40) + 1000 * (arguments.has + arguments.create));
        ours.write_for(64, LONELY).await?;
        return Ok(());
    }
    Ok(ours.account.close().await?)
}

fn say(what: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(what)?)?;
    Ok(out.flush()?)
}

/// A running child, seen by its parent.
#[derive(Debug)]
pub(crate) struct Child {
    process: std::process::Child,
    lines: BufReader<ChildStdout>,
}

/// How a child is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Killed,
}

impl Child {
    /// Starts a child that fills a store which has `has` items.
    pub(crate) fn load(dir: &Path, has: u64, create: u64, end: End) -> Result<Child> {
        Child::spawn("load", dir, has, create, end)
    }

    /// Starts a child that times its own start.
    pub(crate) fn start(dir: &Path, has: u64, create: u64, end: End) -> Result<Child> {
        Child::spawn("start", dir, has, create, end)
    }

    fn spawn(task: &str, dir: &Path, has: u64, create: u64, end: End) -> Result<Child> {
        let program = std::env::current_exe().context("this program has no file")?;
        let mut command = Command::new(program);
        command.args(["bench", "child", task, "--dir"]).arg(dir);
        command.args(["--has", &has.to_string(), "--create", &create.to_string()]);
        if end == End::Killed {
            command.arg("--killed");
        }
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a child process")?;
        let out = process.stdout.take().context("a child has no output")?;
        Ok(Child { process, lines: BufReader::new(out) })
    }

    /// The next thing it says.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        ensure!(!line.is_empty(), "a child process ended early; see above");
        serde_json::from_str(&line).with_context(|| format!("a child process said {line:?}"))
    }

    /// Waits until it has ended well.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.process.wait()?;
        ensure!(status.success(), "a child process ended with {status}");
        Ok(())
    }

    /// Ends it where it stands, as `kill -9` does.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // After an error of ours; one that has ended already is not harmed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
