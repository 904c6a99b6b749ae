//! `headwater import`: writes the items of a file or a pipe into a container.
//!
//! All items of one partition key use the same lane, in file order, so the last of several versions wins. Lanes write
//! concurrently.

use crate::connect::{Connect, block_on};
use crate::output;
use crate::transfer::{Format, Found, Object, read_items};
use anyhow::{Context, Result, bail};
use clap::Args;
use headwater_client::{Client, Container, Options, Precondition, RetryPolicy};
use headwater_model::{PartitionKey, PartitionKeyPath, PartitionKeyValue};
use headwater_runtime::{Runtime, TaskGroup};
use indicatif::ProgressBar;
use serde::Deserialize;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// Capacity of a lane's queue, in items.
const LANE_ITEMS: usize = 64;
/// Number of failures to print; later ones are only counted.
const SHOWN_MAX: u64 = 20;

/// What to import, and where to.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// database/container, context:database/container or a URL
    address: String,
    /// File that ends in .json, .ndjson or .csv; `-` for standard input
    file: String,
    /// Format of the items [default: by the name of the file, NDJSON from standard input]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Create the database and the container with this partition key; an existing container must have it
    #[arg(long, value_name = "PATH")]
    partition_key: Option<PartitionKeyPath>,
    /// Number of writes at the same time
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Generate an id for each item without one
    #[arg(long)]
    generate_ids: bool,
    /// Read all cells of a table as texts
    #[arg(long)]
    texts: bool,
    /// Number of failed items after which to give up
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_failures: u64,
    #[command(flatten)]
    connect: Connect,
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Write every item of a file into a container

    headwater import shop/orders orders.ndjson --partition-key /customer
    gunzip < orders.ndjson.gz | headwater import prod:shop/orders -
    headwater import shop/orders orders.csv

An item whose id is there already is replaced. What fails is shown with its line and does not stop the
rest; then the command ends with an error. Throttling is waited for.";

/// Runs the command.
pub(crate) fn run(import: Import) -> Result<()> {
    let format = Format::of(import.format, &import.file)?;
    let mut options = Options::default();
    options.retry = RetryPolicy::default();
    options.retry.throttled_max = 1000;
    options.retry.wait_max = Duration::from_secs(600);
    let container = import.connect.container(&import.address, options)?;
    let (input, progress) = open(&import.file)?;
    block_on(copy(import, format, container, input, progress))
}

fn open(file: &str) -> Result<(Box<dyn BufRead + Send>, ProgressBar)> {
    if file == "-" {
        return Ok((Box::new(BufReader::new(std::io::stdin())), output::counter("items")));
    }
    let opened = std::fs::File::open(file).with_context(|| format!("cannot read {file}"))?;
    let progress = output::bytes(opened.metadata()?.len());
    Ok((Box::new(BufReader::new(progress.wrap_read(opened))), progress))
}

/// Counts of written and failed items.
#[derive(Debug, Default)]
struct Tally {
    written: AtomicU64,
    failed: AtomicU64,
}

/// The shared state of all lanes; each lane gets a clone.
#[derive(Clone, Debug)]
struct Lane {
    container: Container,
    tally: Arc<Tally>,
    progress: ProgressBar,
    max_failures: u64,
}

struct Ready {
    place: String,
    key: PartitionKey,
    body: String,
}

async fn copy(
    import: Import,
    format: Format,
    container: Container,
    input: Box<dyn BufRead + Send>,
    progress: ProgressBar,
) -> Result<()> {
    let paths = paths(&container, import.partition_key.as_ref()).await?;
    let runtime = Runtime::system();
    let max_failures = import.max_failures;
    let lane = Lane { container, tally: Arc::default(), progress: progress.clone(), max_failures };
    let tasks = TaskGroup::new(runtime.clone());
    let mut lanes = Vec::new();
    for _ in 0..import.concurrency {
        let (sender, receiver) = mpsc::channel(LANE_ITEMS);
        let lane = lane.clone();
        // A lane ends when its channel closes; it ignores the stop signal, so no queued item is dropped.
        tasks.spawn("import", |_| lane.write_all(receiver));
        lanes.push(sender);
    }
    let read = runtime.blocking(|| {
        read_items(input, format, import.texts, &mut |found| {
            let sent = match prepare(found, &paths, import.generate_ids.then_some(&runtime)) {
                Ok(ready) => {
                    let at = lane_of(&ready.key, lanes.len());
                    lanes[at].blocking_send(ready).is_ok()
                }
                Err(what) => {
                    lane.fail(&what);
                    true
                }
            };
            sent && !lane.has_given_up()
        })
    });
    drop(lanes);
    tasks.shutdown().await;
    progress.finish_and_clear();
    lane.report()?;
    read
}

fn lane_of(key: &PartitionKey, lanes: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % lanes.max(1) as u64).unwrap_or(0)
}

impl Lane {
    async fn write_all(self, mut items: mpsc::Receiver<Ready>) {
        while let Some(Ready { place, key, body }) = items.recv().await {
            if self.has_given_up() {
                return;
            }
            match self.container.upsert(&key, body, &Precondition::None).await {
                Ok(_) => {
                    let written = self.tally.written.fetch_add(1, Ordering::Relaxed) + 1;
                    if self.progress.length().is_some() {
                        self.progress.set_message(format!("{written} items"));
                    } else {
                        self.progress.set_position(written);
                    }
                }
                Err(error) => self.fail(&format!("{place}: {error}")),
            }
        }
    }

    fn has_given_up(&self) -> bool {
        self.tally.failed.load(Ordering::Relaxed) > self.max_failures
    }

    fn fail(&self, what: &str) {
        if self.tally.failed.fetch_add(1, Ordering::Relaxed) < SHOWN_MAX {
            self.progress.suspend(|| eprintln!("{what}"));
        }
    }

    fn report(&self) -> Result<()> {
        let written = self.tally.written.load(Ordering::Relaxed);
        let failed = self.tally.failed.load(Ordering::Relaxed);
        eprintln!("{written} items written, {failed} failed");
        if self.has_given_up() {
            bail!("gave up after {failed} failures; correct the file, or raise --max-failures");
        }
        if failed > 0 {
            bail!("{failed} items were not written; correct them and import the file again");
        }
        Ok(())
    }
}

fn prepare(
    found: Found,
    paths: &[PartitionKeyPath],
    ids: Option<&Runtime>,
) -> std::result::Result<Ready, String> {
    let Found { place, item } = found;
    let mut item = item.map_err(|what| format!("{place}: {what}"))?.without_system();
    if item.get("id").is_none() {
        let Some(runtime) = ids else {
            return Err(format!("{place}: the item has no id; give it one, or use --generate-ids"));
        };
        let id = format!("\"{:032x}\"", runtime.random_u128());
        item.properties.insert(0, ("id".to_owned(), id));
    }
    let key = key_of(&item, paths).map_err(|what| format!("{place}: {what}"))?;
    Ok(Ready { place, key, body: item.to_json() })
}

fn key_of(item: &Object, paths: &[PartitionKeyPath]) -> std::result::Result<PartitionKey, String> {
    let values = paths.iter().map(|path| match item.at(path.segments()) {
        None => Ok(PartitionKeyValue::Undefined),
        Some(json) => PartitionKeyValue::from_property_json(&json)
            .map_err(|error| format!("the partition key at {}: {error}", path.as_str())),
    });
    Ok(PartitionKey::from_values(values.collect::<Result<Vec<_>, _>>()?))
}

/// Returns the container's partition key paths. Creates the container first if `wanted` names its key.
async fn paths(
    container: &Container,
    wanted: Option<&PartitionKeyPath>,
) -> Result<Vec<PartitionKeyPath>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        #[serde(default)]
        partition_key: Definition,
    }
    #[derive(Default, Deserialize)]
    struct Definition {
        #[serde(default)]
        paths: Vec<String>,
    }
    let document = match (container.definition().await, wanted) {
        (Ok(document), _) => document,
        (Err(error), Some(path)) if error.is_not_found() => {
            create(container.client(), container, path).await?
        }
        (Err(error), None) if error.is_not_found() => {
            return Err(error)
                .context("there is no such container; --partition-key /path makes it");
        }
        (Err(error), _) => return Err(error.into()),
    };
    let document: Document = serde_json::from_slice(&document).context("an odd container")?;
    let paths = document.partition_key.paths;
    if let Some(wanted) = wanted.filter(|wanted| paths != [wanted.as_str()]) {
        let (database, id) = (container.database(), container.id());
        bail!(
            "the container {database}/{id} is partitioned by {}, not by {}; leave --partition-key out, or \
             import into another container",
            if paths.is_empty() { "no key".to_owned() } else { paths.join(" and ") },
            wanted.as_str(),
        );
    }
    let parsed = paths.iter().map(|path| PartitionKeyPath::parse(path));
    parsed.collect::<Result<_, _>>().context("the container has an odd partition key")
}

async fn create(
    client: &Client,
    container: &Container,
    path: &PartitionKeyPath,
) -> Result<bytes::Bytes> {
    match client.create_database(container.database()).await {
        Err(error) if !error.is_already_exists() => return Err(error.into()),
        _ => {}
    }
    let definition = serde_json::json!({
        "id": container.id(),
        "partitionKey": { "paths": [path.as_str()], "kind": "Hash", "version": 2 },
    });
    let made = client.create_container(container.database(), definition.to_string(), None).await;
    made.context("cannot create the container")
}
