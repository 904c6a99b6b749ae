//! `headwater watch`: shows the hosts of Headwater, .NET and Java processors with their leases, lag and speed.
//!
//! Read-only. On a terminal the table is redrawn in place; elsewhere each table is printed below the previous one.

mod view;

use super::run::terminated;
use super::units::{Monitored, Places};
use crate::connect::block_on;
use crate::output::say;
use crate::screen::Screen;
use anyhow::{Context, Result};
use clap::Args;
use headwater_model::FeedMode;
use headwater_processor::lag::Lag;
use headwater_processor::source::SourceError;
use headwater_processor::{LeaseInfo, lag_of};
use headwater_runtime::Runtime;
use std::time::Duration;
use view::{Before, View};

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Watch a processor: its hosts, their leases, how far behind they are and how fast

    headwater watch shop/orders
    headwater watch shop/orders --leases shop/leases --processor mailer
    headwater watch shop/orders --once --json

Shows every processor that keeps leases for the container, those of .NET and Java as well: who takes part, who
owns which lease, its position, how many transactions are behind it that were not handled yet and the age of the
first of them, how many were handled in a second, how long ago the lease was written, and whether it is paused or
halted. On a terminal the table is redrawn every second, and q quits; elsewhere each is printed below the last. With
--json it is one line for each processor every time. Every look costs a small read for each lease; --every makes them
rarer.";

/// What to watch, and how.
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    monitored: Monitored,
    /// Print one table and end
    #[arg(long)]
    once: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

/// Runs until it is interrupted, or once.
pub(crate) fn run(watch: Watch) -> Result<()> {
    block_on(async {
        let mut looking = Looking {
            places: watch.monitored.places()?,
            runtime: Runtime::system(),
            before: Before::default(),
        };
        let views = looking.look().await?;
        if watch.once {
            print(&views, watch.json);
            return Ok(());
        }
        let every = Duration::from_secs(watch.every);
        let screen =
            if watch.json { None } else { Screen::enter().context("cannot use the terminal")? };
        let runtime = looking.runtime.clone();
        tokio::select! {
            ended = looking.watch(views, every, screen.as_ref(), watch.json) => ended,
            quit = quit_pressed(screen.as_ref(), &runtime) => quit,
            interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
            () = terminated() => Ok(()),
        }
    })
}

struct Looking {
    places: Places,
    runtime: Runtime,
    before: Before,
}

impl Looking {
    /// Reads and shows the leases until it is cancelled.
    async fn watch(
        &mut self,
        mut views: Vec<View>,
        every: Duration,
        screen: Option<&Screen>,
        json: bool,
    ) -> Result<()> {
        let mut trouble = None;
        loop {
            match screen {
                Some(screen) => {
                    let mut lines = picture(&views, Some(Screen::columns()));
                    lines.extend(trouble.take());
                    screen.draw(&lines)?;
                }
                None => print(&views, json),
            }
            self.runtime.sleep(every).await;
            match self.look().await {
                Ok(seen) => views = seen,
                // The server may be restarting. Keep the last view and retry.
                Err(error) if screen.is_some() => {
                    trouble = Some(format!("cannot read the leases: {error:#}"));
                }
                Err(error) => eprintln!("cannot read the leases: {error:#}"),
            }
        }
    }

    /// Reads all processors. They are listed every time, because they may come and go.
    async fn look(&mut self) -> Result<Vec<View>> {
        let mut views = Vec::new();
        for unit in self.places.units().await? {
            let snapshot = unit.look().await?;
            let mut lags = Vec::new();
            for info in &snapshot.leases {
                lags.push(self.lag(info).await?);
            }
            views.push(View::new(&unit, &snapshot, &lags));
        }
        View::compare(&mut views, &mut self.before, self.runtime.elapsed());
        Ok(views)
    }

    async fn lag(&self, info: &LeaseInfo) -> Result<Lag> {
        let mode = info.lease.mode.unwrap_or(FeedMode::LatestVersion);
        let now = self.runtime.unix_millis() / 1000;
        match lag_of(&self.places.source, &info.lease, mode, now).await {
            // The range was just split, or the position is older than the history. The lag is unknown until an owner
            // moves the lease.
            Err(SourceError::RangeGone | SourceError::PositionLost(_)) => Ok(UNKNOWN),
            other => Ok(other?),
        }
    }
}

/// Waits for a key that quits, or forever without a screen. An unresponsive server does not delay keys.
async fn quit_pressed(screen: Option<&Screen>, runtime: &Runtime) -> Result<()> {
    let Some(screen) = screen else { return std::future::pending().await };
    while !screen.is_quit_pressed()? {
        runtime.sleep(KEY_POLL).await;
    }
    Ok(())
}

/// How often keys are polled.
const KEY_POLL: Duration = Duration::from_millis(50);
const UNKNOWN: Lag = Lag { transactions: None, time: None };

/// Renders the processors one below the other, no wider than the terminal.
fn picture(views: &[View], columns: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    for view in views {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(view.lines(columns));
    }
    lines
}

fn print(views: &[View], json: bool) {
    match json {
        true => views.iter().for_each(|view| say(format_args!("{}", view.json()))),
        false => say(format_args!("{}", picture(views, None).join("\n"))),
    }
}
