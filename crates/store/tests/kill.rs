//! Crash test: `kill -9` loses no acknowledged write and leaves no unacknowledged one half done.
//!
//! ```text
//! this process                                writer process (the same binary)
//! start ────────────────────────────────────► open the store; several tasks write, one splits and merges
//! wait for a random time                      try 2 17 …   before an operation
//! SIGKILL ──────────────────────────────────► ack 2 17     after it was acknowledged
//! read its output, open the store, compare
//! ```
//!
//! The writer's standard output goes to a file: bytes that reached the kernel outlive the process, as those
//! of the store must. Each task has one operation in flight at a time and its own items. So after a kill at
//! most one operation per task is undecided, and all others must match exactly. One directory is used for all
//! kills of a test. Its segments are small, so that rolls, compactions, splits and merges are killed too.
//!
//! `HEADWATER_KILLS` sets the number of kills; see [`rounds`].

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_runtime::{Random, Runtime};
use headwater_store::{
    Account, ChangeKind, Container, ContainerDefinition, Continuation, Durability, ExecuteError,
    FeedStart, ItemWrite, Lsn, Options, PartitionKey, ProcedureCall, Script, ScriptFailure,
    WriteError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{Reader, Scope, rounds, scan_all};

const DIR: &str = "HEADWATER_KILL_DIR";
const DURABILITY: &str = "HEADWATER_KILL_DURABILITY";
const ROUND: &str = "HEADWATER_KILL_ROUND";
const TASKS: u64 = 4;
const KEYS: u64 = 3;
const IDS: u64 = 8;
/// `kept` retains all versions for longer than the test runs; `bare` retains none, so it is compacted often.
const CONTAINERS: [&str; 2] = ["kept", "bare"];

fn options(durability: Durability, maintenance: Duration) -> Options {
    let mut options = Options::default();
    options.durability = durability;
    options.segment_bytes = 16 << 10;
    options.ring_bytes = 4 << 10;
    options.maintenance_interval = maintenance;
    options.compaction_dead_percent = 10;
    options.history = Duration::ZERO;
    options
}

/// One operation on one item, as written in the writer's output.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Create(String, u64),
    Upsert(String, u64),
    Replace(String, u64),
    Delete(String),
    /// All items of the partition key.
    DeleteKey,
}

impl Step {
    fn to_text(&self) -> String {
        match self {
            Step::Create(id, v) => format!("c,{id},{v}"),
            Step::Upsert(id, v) => format!("u,{id},{v}"),
            Step::Replace(id, v) => format!("r,{id},{v}"),
            Step::Delete(id) => format!("d,{id}"),
            Step::DeleteKey => "x".to_owned(),
        }
    }

    fn parse(text: &str) -> Step {
        let parts: Vec<&str> = text.split(',').collect();
        let version = |text: &str| text.parse().unwrap();
        match parts[..] {
            ["c", id, v] => Step::Create(id.to_owned(), version(v)),
            ["u", id, v] => Step::Upsert(id.to_owned(), version(v)),
            ["r", id, v] => Step::Replace(id.to_owned(), version(v)),
            ["d", id] => Step::Delete(id.to_owned()),
            ["x"] => Step::DeleteKey,
            _ => panic!("not a step: {text}"),
        }
    }

    fn write(&self, key: &str) -> ItemWrite {
        match self {
            Step::Create(id, v) => ItemWrite::create(body(key, id, *v)),
            Step::Upsert(id, v) => ItemWrite::upsert(body(key, id, *v)),
            Step::Replace(id, v) => ItemWrite::replace(id, body(key, id, *v)),
            Step::Delete(id) => ItemWrite::delete(key, id),
            Step::DeleteKey => unreachable!("never part of a batch"),
        }
    }
}

/// The body of a version. Versions differ in length, so that half of one is not mistaken for another.
fn body(key: &str, id: &str, version: u64) -> String {
    let padding = "p".repeat(usize::try_from(version % 701).unwrap());
    format!(r#"{{"id":"{id}","pk":"{key}","v":{version},"padding":"{padding}"}}"#)
}

// ---- the writer process

/// Prints a line with a single write, so that a kill leaves a whole line or one without its end.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Not a test: runs as the process that is killed. Without the environment of [`start`] it does nothing.
#[test]
fn writer_process() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let round: u64 = std::env::var(ROUND).unwrap().parse().unwrap();
    let durability = match std::env::var(DURABILITY).unwrap().as_str() {
        "fsync" => Durability::Fsync,
        _ => Durability::Os,
    };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    tokio.block_on(write_until_killed(Path::new(&dir), round, durability));
}

async fn write_until_killed(dir: &Path, round: u64, durability: Durability) {
    let account = Account::open(dir, options(durability, Duration::from_millis(15))).await.unwrap();
    let database = match account.database("db").await {
        Ok(database) => database,
        Err(_) => account.create_database("db").await.unwrap(),
    };
    for id in CONTAINERS {
        if database.container(id).await.is_err() {
            let mut definition = ContainerDefinition::new(id, "/pk").unwrap();
            if id == "kept" {
                definition = definition.with_all_versions(Duration::from_secs(24 * 3600));
            }
            database.create_container_with(definition, 2).await.unwrap();
        }
    }
    say("open");
    let runtime = Runtime::system();
    for id in CONTAINERS {
        let container = database.container(id).await.unwrap();
        for task in 0..TASKS {
            runtime.spawn("writer", write(container.clone(), id, task, round));
        }
        let random = Random::seeded(round * 1000 + 999);
        runtime.spawn("reshaper", reshape(account.clone(), container, random));
    }
    // Longer than any round, so that the writer ends even if it is not killed.
    runtime.sleep(Duration::from_secs(120)).await;
}

async fn write(container: Container, name: &'static str, task: u64, round: u64) {
    let mut random = Random::seeded(round * 1000 + task);
    // Unique over all rounds and increasing.
    let mut version = round * 1_000_000 + task;
    for number in 0..1_000_000_u64 {
        let key = format!("{name}-{task}-{}", random.below(KEYS));
        let steps = choose(&mut random, &mut version);
        let text: Vec<String> = steps.iter().map(Step::to_text).collect();
        say(&format!("try {name} {task} {number} {key} {}", text.join(";")));
        let outcome = carry_out(&container, &key, &steps).await;
        match outcome {
            Ok(()) => say(&format!("ack {name} {task} {number}")),
            Err(
                WriteError::AlreadyExists { .. }
                | WriteError::NotFound { .. }
                | WriteError::EtagMismatch { .. },
            ) => say(&format!("no {name} {task} {number}")),
            Err(error) => say(&format!("error {name} {task} {number} {error}")),
        }
    }
}

fn choose(random: &mut Random, version: &mut u64) -> Vec<Step> {
    if random.chance(2) {
        return vec![Step::DeleteKey];
    }
    // No item occurs twice in one batch, so the state of its items shows whether the batch was applied.
    let count = if random.chance(25) { 2 + random.below(4) } else { 1 };
    let first = random.below(IDS);
    let step = |offset: u64| {
        let id = ((first + offset) % IDS).to_string();
        *version += TASKS;
        match random.below(10) {
            0..2 => Step::Create(id, *version),
            2..7 => Step::Upsert(id, *version),
            7..8 => Step::Replace(id, *version),
            _ => Step::Delete(id),
        }
    };
    (0..count).map(step).collect()
}

async fn carry_out(container: &Container, key: &str, steps: &[Step]) -> Result<(), WriteError> {
    match steps {
        [Step::DeleteKey] => container.delete_partition_key(key).await.map(|_| ()),
        [step] => container.write(step.write(key)).await.map(|_| ()),
        [_, _, _, ..] => run_as_script(container, key, steps).await,
        _ => {
            let writes = steps.iter().map(|step| step.write(key)).collect();
            container.batch(key, writes).await.map(|_| ()).map_err(|failed| failed.error)
        }
    }
}

/// Carries out steps in a stored procedure, with the same effect as a batch.
async fn run_as_script(container: &Container, key: &str, steps: &[Step]) -> Result<(), WriteError> {
    const SOURCE: &str = "function carryOut(steps) {
        var link = __.getSelfLink();
        function must(error) { if (error) throw error; }
        steps.forEach(function (step) {
            var [operation, id, body] = step;
            var accepted = operation === 'c' ? __.createDocument(link, body, must)
                : operation === 'u' ? __.upsertDocument(link, body, must)
                : operation === 'r' ? __.replaceDocument(link + 'docs/' + id, body, must)
                : __.deleteDocument(link + 'docs/' + id, must);
            if (!accepted) throw new Error('not accepted');
        });
    }";
    let arguments: Vec<(&str, &str, String)> = steps
        .iter()
        .map(|step| match step {
            Step::Create(id, v) => ("c", id.as_str(), body(key, id, *v)),
            Step::Upsert(id, v) => ("u", id.as_str(), body(key, id, *v)),
            Step::Replace(id, v) => ("r", id.as_str(), body(key, id, *v)),
            Step::Delete(id) => ("d", id.as_str(), String::new()),
            Step::DeleteKey => unreachable!("never part of a batch"),
        })
        .collect();
    let call = ProcedureCall {
        script: Script { name: "carryOut".to_owned(), source: SOURCE.to_owned() },
        arguments: serde_json::json!([arguments]).to_string(),
        functions: Vec::new(),
    };
    match container.execute(key, &call).await {
        Ok(_) => Ok(()),
        // Rejected as a whole, as a batch would be, or given up after conflicts; nothing was written.
        Err(
            ExecuteError::Script { error: ScriptFailure::Thrown { number: 404 | 409, .. }, .. }
            | ExecuteError::Conflict
            | ExecuteError::Busy,
        ) => Err(WriteError::NotFound { id: "refused by the script".to_owned() }),
        Err(ExecuteError::Write(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// Splits, merges and compacts at random; never creates more than five partitions.
async fn reshape(account: Account, container: Container, mut random: Random) {
    let runtime = Runtime::system();
    for _ in 0..100_000 {
        runtime.sleep(Duration::from_millis(5 + random.below(30))).await;
        let ranges = container.ranges();
        let at = random.index(ranges.len());
        let failed = match random.below(3) {
            0 if ranges.len() < 5 => container.split(ranges[at].id, None).await.err(),
            1 if at + 1 < ranges.len() && ranges.len() > 2 => {
                container.merge(ranges[at].id, ranges[at + 1].id).await.err()
            }
            _ => account.maintain().await.err().map(Into::into),
        };
        if let Some(error) = failed {
            say(&format!("error reshape {} {error:?}", container.id()));
        }
    }
}

// ---- the writer's output, and the state that must follow from it

type ItemName = (String, String);

/// The version of an item; `None` if it is deleted.
type Version = Option<u64>;

#[derive(Clone, Debug)]
struct Attempt {
    key: String,
    steps: Vec<Step>,
}

/// The items of one container according to the acknowledgements.
#[derive(Default)]
struct Model {
    live: BTreeMap<ItemName, u64>,
    /// All versions of each item.
    history: BTreeMap<ItemName, Vec<Version>>,
    /// The versions that the all-versions feed has returned.
    shown: BTreeMap<ItemName, Vec<Version>>,
    /// Position of that feed. `None` before the container was first read.
    position: Option<Continuation>,
    acknowledged: u64,
}

impl Model {
    /// The changes of an attempt; `None` if it must be rejected.
    fn effects(&self, attempt: &Attempt) -> Option<Vec<(ItemName, Version)>> {
        let mut effects = Vec::new();
        for step in &attempt.steps {
            let name = |id: &String| (attempt.key.clone(), id.clone());
            match step {
                Step::Create(id, v) if !self.live.contains_key(&name(id)) => {
                    effects.push((name(id), Some(*v)));
                }
                Step::Upsert(id, v) => effects.push((name(id), Some(*v))),
                Step::Replace(id, v) if self.live.contains_key(&name(id)) => {
                    effects.push((name(id), Some(*v)));
                }
                Step::Delete(id) if self.live.contains_key(&name(id)) => {
                    effects.push((name(id), None));
                }
                Step::DeleteKey => {
                    let of_key = self.live.keys().filter(|(key, _)| *key == attempt.key);
                    effects.extend(of_key.map(|name| (name.clone(), None)));
                }
                _ => return None,
            }
        }
        Some(effects)
    }

    fn apply(&mut self, effects: Vec<(ItemName, Version)>) {
        for (name, version) in effects {
            match version {
                Some(version) => self.live.insert(name.clone(), version),
                None => self.live.remove(&name),
            };
            self.history.entry(name).or_default().push(version);
        }
    }

    /// Decides from the current items whether an unanswered attempt was applied.
    fn settle(&mut self, attempt: &Attempt, found: &BTreeMap<ItemName, u64>) {
        let Some(effects) = self.effects(attempt) else {
            return;
        };
        let now = |name: &ItemName| found.get(name).copied();
        let happened = effects.iter().filter(|(name, version)| now(name) == *version).count();
        if happened == 0 {
            return; // The caller compares with the last acknowledged state.
        }
        assert_eq!(happened, effects.len(), "half of an attempt: {attempt:?} left {found:?}");
        self.apply(effects);
    }
}

#[derive(Default)]
struct World {
    containers: BTreeMap<String, Model>,
}

impl World {
    /// Applies the output of a writer; returns the attempts without an outcome, by container.
    fn listen(&mut self, said: &str) -> Vec<(String, Attempt)> {
        let mut open: BTreeMap<(String, String), (String, Attempt)> = BTreeMap::new();
        // A line without its end was cut off by the kill: an attempt that was never made, or an
        // acknowledgement that was not delivered.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        for line in whole.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["try", container, task, number, key, steps] => {
                    let steps = steps.split(';').map(Step::parse).collect();
                    let attempt = Attempt { key: key.to_owned(), steps };
                    let task = (container.to_owned(), task.to_owned());
                    let before = open.insert(task, (number.to_owned(), attempt));
                    assert!(before.is_none(), "one at a time: {line}");
                }
                [outcome @ ("ack" | "no"), container, task, number] => {
                    let task = (container.to_owned(), task.to_owned());
                    let (tried, attempt) = open.remove(&task).expect("tried before");
                    assert_eq!(tried, number);
                    let model = self.containers.get_mut(container).unwrap();
                    let effects = model.effects(&attempt);
                    assert_eq!(
                        effects.is_some(),
                        outcome == "ack",
                        "{line}: {attempt:?} with {:?}",
                        model.live
                    );
                    model.apply(effects.unwrap_or_default());
                    model.acknowledged += 1;
                }
                ["error", ..] => panic!("the writer failed: {line}"),
                // Output of the test harness.
                _ => {}
            }
        }
        open.into_iter().map(|((container, _), (_, attempt))| (container, attempt)).collect()
    }

    /// Compares a reopened store with everything that was acknowledged.
    async fn check(
        &mut self,
        account: &Account,
        undecided: Vec<(String, Attempt)>,
        random: &mut Random,
    ) {
        for (name, model) in &mut self.containers {
            let Ok(database) = account.database("db").await else {
                assert_eq!(model.acknowledged, 0, "the database is gone");
                continue;
            };
            let Ok(container) = database.container(name).await else {
                assert_eq!(model.acknowledged, 0, "container {name} is gone");
                continue;
            };
            let found = read_items(&container).await;
            for (_, attempt) in undecided.iter().filter(|(container, _)| container == name) {
                model.settle(attempt, &found);
            }
            assert_eq!(found, model.live, "{name}: items that were acknowledged, and no others");
            check_ranges(&container);
            check_latest(&container, &model.live, random).await;
            if name == "kept" {
                check_all_versions(&container, model, random).await;
            }
        }
    }
}

/// All items with their versions, as a scan finds them. Asserts that each item is complete.
async fn read_items(container: &Container) -> BTreeMap<ItemName, u64> {
    let mut found = BTreeMap::new();
    for ((_, id), item) in scan_all(container).await {
        let value: serde_json::Value = item.parse().unwrap();
        let key = value["pk"].as_str().unwrap().to_owned();
        let version = value["v"].as_u64().unwrap();
        let sent = body(&key, &id, version);
        let starts = sent.trim_end_matches('}').as_bytes();
        assert!(item.to_bytes().starts_with(starts), "not what was sent: {item:?}");
        let read = container.read(PartitionKey::from(key.as_str()), &id).await.unwrap();
        assert_eq!(read.map(|read| read.etag()), Some(item.etag()), "read and scan agree");
        found.insert((key, id), version);
    }
    found
}

fn check_ranges(container: &Container) {
    let ranges = container.ranges();
    let touch = ranges.windows(2).all(|pair| pair[0].range.max() == pair[1].range.min());
    assert!(touch, "ranges have no gaps: {ranges:?}");
    let ids: BTreeSet<_> = ranges.iter().map(|range| range.id).collect();
    assert_eq!(ids.len(), ranges.len(), "ids are not reused: {ranges:?}");
}

/// Asserts that the feed from the beginning returns the live items, each once, in order.
async fn check_latest(container: &Container, live: &BTreeMap<ItemName, u64>, random: &mut Random) {
    let mut seen = BTreeMap::new();
    for range in container.ranges() {
        let reader = Reader::latest(Scope::Range(range.id), page_size(random));
        let (changes, end) = reader.drain(container, FeedStart::Beginning).await.unwrap();
        assert_eq!(end, Continuation::Single(range.lsn), "the end is the newest change");
        for change in &changes {
            let value: serde_json::Value = serde_json::from_slice(&change.body()).unwrap();
            let name = (value["pk"].as_str().unwrap().to_owned(), change.id().to_owned());
            let before = seen.insert(name, value["v"].as_u64().unwrap());
            assert!(before.is_none(), "shown twice: {change:?}");
        }
    }
    assert_eq!(&seen, live, "the feed shows the live items");
}

/// Asserts that the all-versions feed resumes at its position and returns every version once, in order.
async fn check_all_versions(container: &Container, model: &mut Model, random: &mut Random) {
    let reader = Reader::all_versions(Scope::Container, page_size(random));
    let position = model.position.take().unwrap_or(Continuation::Single(Lsn::ZERO));
    let (changes, end) = reader.drain(container, FeedStart::After(position)).await.unwrap();
    model.position = Some(end);
    let mut touched = BTreeSet::new();
    for change in &changes {
        let key = change.partition_key().to_json();
        let key = key.trim_matches(['[', ']', '"']).to_owned();
        let name = (key, change.id().to_owned());
        let item = change.item().map(|item| item.parse::<serde_json::Value>().unwrap());
        let version = item.map(|item| item["v"].as_u64().unwrap());
        let previous = change.previous().map(|item| item.parse::<serde_json::Value>().unwrap());
        let previous = previous.map(|item| item["v"].as_u64().unwrap());
        let shown = model.shown.entry(name.clone()).or_default();
        let before = shown.last().copied().flatten();
        assert_eq!(previous, before, "the image before {change:?} of {name:?}");
        let kind = match (before, version) {
            (_, None) => ChangeKind::Delete,
            (None, Some(_)) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Replace,
        };
        assert_eq!(change.kind(), kind, "{change:?} of {name:?}");
        shown.push(version);
        touched.insert(name);
    }
    for (name, history) in &model.history {
        let shown = model.shown.get(name);
        assert_eq!(shown, Some(history), "every version of {name:?}, once, in order");
    }
    assert!(touched.iter().all(|name| model.history.contains_key(name)));
}

fn page_size(random: &mut Random) -> u32 {
    u32::try_from(1 + random.below(400)).unwrap()
}

// ---- the killing

fn start(dir: &Path, said: &Path, round: u64, durability: &str) -> Child {
    let out = File::create(said).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer_process", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .env(ROUND, round.to_string())
        .env(DURABILITY, durability)
        .stdin(Stdio::null())
        .stdout(Stdio::from(out))
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Waits until the writer has opened the store.
async fn opened(runtime: &Runtime, said: &Path, child: &mut Child) {
    for _ in 0..30_000 {
        if std::fs::read_to_string(said).unwrap().contains("open\n") {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "the writer ended by itself");
        runtime.sleep(Duration::from_millis(1)).await;
    }
    panic!("the writer does not open the store");
}

async fn kill_again_and_again(durability: &str, seed: u64) {
    let place = tempfile::tempdir().unwrap();
    let (dir, said) = (place.path().join("store"), place.path().join("said"));
    let runtime = Runtime::system();
    let mut random = Random::seeded(seed);
    let models = CONTAINERS.map(|name| (name.to_owned(), Model::default()));
    let mut world = World { containers: BTreeMap::from(models) };
    let kills = rounds("HEADWATER_KILLS", 26, 200) / 2;
    let mut after_open = 0;
    for round in 0..kills {
        let mut child = start(&dir, &said, round, durability);
        // Mostly while it writes, sometimes while it still recovers from the last kill.
        let delay = if round > 0 && random.chance(25) {
            random.below(40)
        } else {
            opened(&runtime, &said, &mut child).await;
            after_open += 1;
            random.below(150)
        };
        runtime.sleep(Duration::from_millis(delay)).await;
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None, "the writer was killed and did not fail before");

        let undecided = world.listen(&std::fs::read_to_string(&said).unwrap());
        let quiet = if durability == "fsync" { Durability::Fsync } else { Durability::Os };
        let account = Account::open(&dir, options(quiet, Duration::ZERO)).await.unwrap();
        world.check(&account, undecided, &mut random).await;
        let hash = account.state_hash().unwrap();
        account.close().await.unwrap();
        drop(account);
        if random.chance(10) || round + 1 == kills {
            std::fs::remove_dir_all(dir.join("index")).unwrap();
            let account = Account::open(&dir, options(quiet, Duration::ZERO)).await.unwrap();
            assert_eq!(account.state_hash().unwrap(), hash, "the index is what the log says");
            account.close().await.unwrap();
        }
    }
    let mut summary = format!("{durability}: {kills} kills, {after_open} while writing");
    for (name, model) in &world.containers {
        let (count, live) = (model.acknowledged, model.live.len());
        write!(summary, "; {name}: {count} acknowledged, {live} live").unwrap();
        assert!(count > kills, "{summary}: too little was written to prove anything");
    }
    println!("{summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_acknowledged_is_lost_by_kill_9() {
    kill_again_and_again("fsync", 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_acknowledged_is_lost_by_kill_9_without_syncs() {
    kill_again_and_again("os", 2).await;
}
