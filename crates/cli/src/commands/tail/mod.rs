//! `headwater tail`: prints a container's changes as they happen.
//!
//! ```text
//! start      parse and apply --from
//! reader     one task per range: read, wait, reconnect, follow splits and merges
//! rejoin     detect that the readers of one range have reached the same position
//! position   the position of everything printed, as one text to resume from
//! show       print one line per change, as JSON or text
//! ```

pub(crate) mod position;
pub(crate) mod reader;
pub(crate) mod rejoin;
pub(crate) mod show;
pub(crate) mod start;

use crate::connect::{Connect, block_on};
use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use headwater_client::{
    ClientError, Container, FeedFilter, FeedFrom, FeedRead, FeedScope, Options,
};
use headwater_model::{ContainerRid, FeedMode};
use headwater_runtime::{Runtime, TaskGroup};
use headwater_store::query::{Query, QueryError};
use position::Positions;
use reader::{Event, Following, Page};
use rejoin::Waiting;
use serde::Deserialize;
use show::{Change, Printer, Style};
use start::{Moment, Start};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

/// Capacity of the queue of pages; readers wait while it is full.
const PAGES_AHEAD: usize = 4;
/// Time that readers get to finish their requests after tail has ended.
const GRACE: Duration = Duration::from_millis(200);

/// Help headings of the options.
const CHANGES: &str = "Changes";
const FILTERS: &str = "Filters in the server (Headwater only)";

/// What to print.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// database/container, context:database/container or a URL
    address: String,
    /// Where to start: beginning, now, a time (2026-01-31, 2026-01-31T08:00:00Z), an age (10m, 2h, 1d) or a position
    #[arg(long, value_name = "WHERE", default_value = "now", help_heading = CHANGES)]
    from: Start,
    /// Which versions to print
    #[arg(long, value_enum, default_value = "latest", help_heading = CHANGES)]
    mode: Mode,
    /// Number of changes after which to stop
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = CHANGES)]
    limit: Option<u64>,
    /// Read these ranges only, by id: 0,3 (see `headwater partitions list`)
    #[arg(long, value_name = "IDS", value_delimiter = ',', help_heading = CHANGES)]
    ranges: Vec<u32>,
    /// File that keeps the position, to continue from it the next time
    #[arg(long, value_name = "FILE", help_heading = CHANGES)]
    resume: Option<PathBuf>,
    /// Print changes of items that meet this: "c.total > 100"
    #[arg(long = "where", value_name = "CONDITION", help_heading = FILTERS)]
    condition: Option<String>,
    /// Print these parts of items: "c.id, c.total"
    #[arg(long = "select", value_name = "COLUMNS", help_heading = FILTERS)]
    columns: Option<String>,
    /// Print these kinds of change: create,replace,delete (delete with --mode all)
    #[arg(long = "ops", value_name = "KINDS", help_heading = FILTERS)]
    kinds: Option<String>,
    /// Print changes of the values at these paths: /total,/address/city (with --mode all)
    #[arg(long = "changed", value_name = "PATHS", help_heading = FILTERS)]
    paths: Option<String>,
    /// Format of the lines, for programs or for people [default: text on a terminal, json elsewhere]
    #[arg(long, value_enum)]
    format: Option<Style>,
    #[command(flatten)]
    connect: Connect,
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Print a container's changes as they happen

    headwater tail shop/orders
    headwater tail shop/orders --from beginning --limit 10
    headwater tail prod:shop/orders --mode all | jq .metadata
    headwater tail shop/orders --resume orders.position | ./handle-orders
    headwater tail shop/orders --where \"c.total > 100\" --select \"c.id, c.total\"
    headwater tail shop/orders --mode all --ops replace --changed /status,/address/city

Changes of one partition key come in the order in which they happened; between partitions there is no
order. Every range is read at the same time; splits and merges are followed, lost connections are made
again. When it ends, tail prints the position to continue from to standard error.

With --mode latest an item appears once, as it is now; deletes do not appear. With --mode all every version
appears, in an envelope with `current` and `metadata`, as far back as the container keeps them.

--where, --select, --ops and --changed filter in the server, which has to be a Headwater. Positions do not depend on
them: continue from any position with another filter or with none.";

/// Which changes there are.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Each item once, as it is now
    Latest,
    /// Every version, and deletes
    All,
}

impl Mode {
    fn feed(self) -> FeedMode {
        match self {
            Mode::Latest => FeedMode::LatestVersion,
            Mode::All => FeedMode::AllVersionsAndDeletes,
        }
    }
}

/// Runs the command until it is interrupted or `--limit` is reached.
pub(crate) fn run(tail: Tail) -> Result<()> {
    block_on(follow(tail))
}

/// Checks the filter locally. The error marks the faulty place with a caret, which the server's error does not.
fn check_filter(tail: &Tail) -> Result<()> {
    let check = |option: &str,
                 text: &Option<String>,
                 parse: fn(&str) -> std::result::Result<Query, QueryError>| {
        let Some(text) = text else { return Ok(()) };
        parse(text).map(drop).map_err(|error| {
            let shown = error.with_caret(text);
            anyhow!("{option}: {}", shown.strip_prefix("error: ").unwrap_or(&shown))
        })
    };
    check("--where", &tail.condition, Query::condition)?;
    check("--select", &tail.columns, Query::shape)
}

async fn follow(tail: Tail) -> Result<()> {
    check_filter(&tail)?;
    let container = tail.connect.container(&tail.address, Options::default())?;
    let runtime = Runtime::system();
    let rid = rid_of(&container).await?;
    let mode = tail.mode.feed();
    let moment = Moment { mode, now_millis: runtime.unix_millis() };
    let kept = tail.resume.as_deref().and_then(kept_position);
    let kept = kept.map(|text| text.parse::<Start>()).transpose()?;
    let start = kept.as_ref().unwrap_or(&tail.from);
    start.check(rid)?;
    let otherwise = kept.as_ref().map(|_| &tail.from);
    let pieces = start.pieces(otherwise, &container, &tail.ranges, moment).await?;
    let mut session = Session {
        positions: Positions::new(rid, &pieces),
        printer: Printer::new(tail.format, mode),
        left: tail.limit,
        resume: tail.resume.clone(),
    };
    let (sender, mut events) = mpsc::channel(PAGES_AHEAD);
    let tasks = TaskGroup::new(runtime.clone());
    let filter = FeedFilter {
        condition: tail.condition,
        columns: tail.columns,
        kinds: tail.kinds,
        paths: tail.paths,
    };
    let following = Following {
        container,
        mode,
        filter,
        wait: reader::WAIT,
        sender,
        waiting: Waiting::default(),
    };
    for piece in pieces {
        following.start(&tasks, piece);
    }
    let ended = tokio::select! {
        ended = session.print(&mut events, &following, &tasks) => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
    };
    drop(events);
    let _ = runtime.timeout(GRACE, tasks.shutdown()).await;
    if let Some(position) = session.positions.text() {
        let position = match mode {
            FeedMode::LatestVersion => position,
            FeedMode::AllVersionsAndDeletes => {
                oldest_kept(&following.container, rid, position).await
            }
        };
        eprintln!("to go on from here: --from {position}");
    }
    ended
}

/// Returns the position, moved to the oldest kept one in each range whose history no longer reaches back to it. The
/// printed position is therefore readable.
async fn oldest_kept(container: &Container, rid: ContainerRid, position: String) -> String {
    let etag = format!("\"{position}\"");
    let mut kept = Positions::new(rid, &[]);
    let read_all = async {
        for range in container.ranges().await?.iter() {
            let scope = FeedScope::Range(range.id);
            let read = FeedRead::new(scope, FeedFrom::After(etag.clone())).items(1);
            let answer = container.read_feed(&read.mode(FeedMode::AllVersionsAndDeletes)).await;
            let oldest = answer.as_ref().err().and_then(ClientError::oldest_position);
            kept.resume_at(&range.keys, oldest.unwrap_or(&etag));
        }
        Ok::<_, ClientError>(())
    };
    match container.client().runtime().timeout(GRACE, read_all).await {
        Some(Ok(())) => kept.text().unwrap_or(position),
        _ => position,
    }
}

/// The progress of printing: positions, and how many changes are left.
struct Session {
    positions: Positions,
    printer: Printer,
    left: Option<u64>,
    resume: Option<PathBuf>,
}

impl Session {
    /// Prints events until the limit is reached, a reader fails, or the output is closed.
    async fn print(
        &mut self,
        events: &mut mpsc::Receiver<Event>,
        following: &Following,
        tasks: &TaskGroup,
    ) -> Result<()> {
        while let Some(event) = events.recv().await {
            match event {
                Event::Page(page) => {
                    if !self.print_page(&page)? {
                        return Ok(());
                    }
                }
                Event::Reshaped { gone, pieces } => {
                    self.positions.reshape(&gone, &pieces);
                    for piece in pieces {
                        following.start(tasks, piece);
                    }
                }
                Event::Note(note) => eprintln!("{note}"),
                Event::Failed(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Prints a page. Returns false if the limit is reached or the output is closed.
    fn print_page(&mut self, page: &Page) -> Result<bool> {
        let changes: Vec<Change<'_>> = page.changes.iter().map(|bytes| Change::of(bytes)).collect();
        let wanted = self.left.map_or(changes.len(), |left| {
            changes.len().min(usize::try_from(left).unwrap_or(usize::MAX))
        });
        for change in &changes[..wanted] {
            if !self.printer.print(page.range, change)? {
                return Ok(false);
            }
        }
        self.printer.flush()?;
        self.positions.printed(page, &changes, wanted);
        if let Some(left) = &mut self.left {
            *left -= u64::try_from(wanted).unwrap_or(0);
        }
        if let (Some(file), Some(position)) = (&self.resume, self.positions.text()) {
            keep(file, &position)?;
        }
        Ok(self.left != Some(0))
    }
}

/// Returns the container's resource id, which differs for a container recreated under the same name.
async fn rid_of(container: &Container) -> Result<ContainerRid> {
    #[derive(Deserialize)]
    struct Document {
        #[serde(rename = "_rid")]
        rid: String,
    }
    let definition = container
        .definition()
        .await
        .with_context(|| format!("cannot tail {}/{}", container.database(), container.id()))?;
    let document: Document = serde_json::from_slice(&definition).context("an odd container")?;
    ContainerRid::parse(&document.rid).context("the container has an odd resource id")
}

fn kept_position(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Replaces the position file atomically, because a partly written position is unusable.
fn keep(file: &Path, position: &str) -> Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(dir).and_then(|mut new| {
        std::io::Write::write_all(&mut new, position.as_bytes())?;
        new.persist(file).map(drop).map_err(|error| error.error)
    });
    written.with_context(|| format!("cannot keep the position in {}", file.display()))?;
    ensure!(file.exists(), "the position in {} is gone", file.display());
    Ok(())
}
