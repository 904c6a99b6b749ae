//! Damages every kind of file in a data directory in every way.
//!
//! The store never panics. It opens and serves everything, or quarantines only the damaged partition, or does not open
//! and names the damaged file and the remedy. By default one file of each kind is damaged; `HEADWATER_MATRIX=1`
//! damages all files.

#![allow(clippy::unwrap_used)] // a failed test names the line

#[path = "../support/mod.rs"]
mod support;

mod files;

use files::{DAMAGE, Kind};
use headwater_runtime::Runtime;
use headwater_store::{
    Account, Container, ContainerDefinition, FeedError, FeedStart, ItemReadError, Options, Remedy,
    StorageError, WriteError,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use support::{Reader, Scope, scratch};

const ITEMS: u32 = 40;
/// Maximum number of attempts of a request while the index is rebuilt.
const ATTEMPTS_MAX: u32 = 3_000;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 4 << 10;
    options.recent_bytes = 0;
    options.maintenance_interval = Duration::ZERO;
    options
}

/// Creates two containers with three partitions in all, each with several segments.
async fn build(dir: &Path) {
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    for (id, partitions) in [("one", 2), ("two", 1)] {
        let definition = ContainerDefinition::new(id, "/pk").unwrap();
        let container = database.create_container_with(definition, partitions).await.unwrap();
        for version in 0..3 {
            for number in 0..ITEMS {
                container.upsert(body(number, version)).await.unwrap();
            }
        }
    }
    account.close().await.unwrap();
}

fn body(number: u32, version: u32) -> String {
    let padding = "x".repeat(100);
    format!(r#"{{"id":"{number}","pk":"{number}","v":{version},"p":"{padding}"}}"#)
}

/// The answers of a store by question: the text, or the error.
type Answers = BTreeMap<String, Result<String, StorageError>>;

fn of_read(error: ItemReadError) -> StorageError {
    match error {
        ItemReadError::Storage(error) => error,
        other => panic!("{other}"),
    }
}

/// Retries a request until the index is rebuilt.
async fn patiently<T, F: Future<Output = Result<T, StorageError>>>(
    attempt: impl Fn() -> F,
) -> Result<T, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        match attempt().await {
            Err(error @ StorageError::Index(_)) => {
                assert_eq!(error.remedy(), Remedy::RetryLater);
                Runtime::system().sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
    panic!("the index is never rebuilt");
}

/// Reads every item and every feed. A question names its container and partition: `one/0 item 7`.
async fn ask(account: &Account) -> Answers {
    let mut all = Answers::new();
    for container in account.find_database("db").unwrap().containers() {
        for number in 0..ITEMS {
            let id = number.to_string();
            let read = || async { container.read(id.as_str(), &id).await.map_err(of_read) };
            let found = patiently(read).await.map(|item| format!("{item:?}"));
            all.insert(format!("{} item {id}", partition_of(&container, number)), found);
        }
        for range in container.ranges() {
            let reader = Reader::latest(Scope::Range(range.id), 20);
            let read = || async {
                let drained = reader.drain(&container, FeedStart::Beginning).await;
                drained.map_err(|error| match error {
                    FeedError::Storage(error) => error,
                    other => panic!("{other}"),
                })
            };
            let found = patiently(read).await.map(|(changes, _)| format!("{changes:?}"));
            all.insert(format!("{}/{} feed", container.id(), range.id), found);
        }
    }
    all
}

fn partition_of(container: &Container, number: u32) -> String {
    let key = number.to_string();
    let epk = container.definition().partition_key().epk(&key.as_str().into()).unwrap();
    let ranges = container.ranges();
    let owner = ranges.iter().find(|range| range.range.contains(epk.as_bytes())).unwrap();
    format!("{}/{}", container.id(), owner.id)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Whole,
    Quarantined,
    Refused,
}

/// Opens a damaged store and asks it everything. An error describes how it mishandled the damage.
async fn judge(dir: &Path, kind: &Kind, expected: &Answers) -> Result<Outcome, String> {
    let account = match Account::open(dir, options()).await {
        Ok(account) => account,
        Err(error) => {
            let text = explain(&error);
            let says_what_to_do = text.contains("headwater doctor") || text.contains("Remove it");
            return match text.contains(kind.named) && says_what_to_do {
                true => Ok(Outcome::Refused),
                false => Err(format!("no file or no next step in: {text}")),
            };
        }
    };
    let found = ask(&account).await;
    let mut outcome = Outcome::Whole;
    if !found.keys().eq(expected.keys()) {
        return Err("some items or feeds are missing".to_owned());
    }
    for ((asked, answer), (_, before)) in found.iter().zip(expected) {
        match answer {
            Ok(answer) if before.as_ref().ok() == Some(answer) => {}
            Ok(answer) => return Err(format!("{asked}: {before:?} became {answer:?}")),
            Err(error) => {
                let is_named = error.damage().is_some_and(|one| one.file.contains(kind.named));
                let is_good = is_named && error.to_string().contains("headwater doctor");
                if !asked.starts_with(kind.partition) || !is_good {
                    return Err(format!("{asked}: {error}"));
                }
                outcome = Outcome::Quarantined;
            }
        }
    }
    write_everywhere(&account, kind).await?;
    if let Some(stopped) = account.stopped_tasks().first() {
        return Err(format!("a task panicked: {stopped}"));
    }
    match account.close().await {
        Err(error) if !explain(&error).contains(kind.named) => {
            Err(format!("at close: {}", explain(&error)))
        }
        _ => Ok(outcome),
    }
}

/// An error with its causes.
fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// Writes to every partition and creates a container.
async fn write_everywhere(account: &Account, kind: &Kind) -> Result<(), String> {
    let database = account.find_database("db").unwrap();
    for container in database.containers() {
        for number in [1, 2, 3, 4] {
            let write = || async {
                match container.upsert(body(number, 9)).await {
                    Ok(_) => Ok(()),
                    Err(WriteError::Storage(error)) => Err(error),
                    Err(other) => panic!("{other}"),
                }
            };
            if let Err(error) = patiently(write).await {
                let partition = partition_of(&container, number);
                // Something else at the path of a derived file must be removed before the file can be written.
                let text = explain(&error);
                let is_in_the_way = text.contains(kind.named) && text.contains("Remove it");
                if partition != kind.partition || (error.damage().is_none() && !is_in_the_way) {
                    return Err(format!("a write to {partition}: {error}"));
                }
            }
        }
    }
    let definition = ContainerDefinition::new("new", "/pk").unwrap();
    let made = database.create_container_with(definition, 1).await;
    let made = made.map_err(|error| format!("a new container: {error}"))?;
    let written = made.create(body(1, 1)).await;
    written.map(|_| ()).map_err(|error| format!("a write to a new container: {error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_damage_to_every_kind_of_file_is_contained() {
    let original = scratch();
    build(original.path()).await;
    files::trim_journals(original.path());
    let copy = scratch();
    files::copy(original.path(), copy.path());
    let account = Account::open(copy.path(), options()).await.unwrap();
    let expected = ask(&account).await;
    account.close().await.unwrap();
    drop(account);
    let mut table = BTreeMap::<&str, BTreeMap<Outcome, u32>>::new();
    let mut failures = Vec::new();
    for kind in &files::kinds(original.path()) {
        for damage in DAMAGE.iter().filter(|damage| damage.applies(kind)) {
            let copy = scratch();
            files::copy(original.path(), copy.path());
            damage.apply(&copy.path().join(&kind.path));
            let what = format!("{} {}", kind.path, damage.name());
            match judge(copy.path(), kind, &expected).await {
                Ok(outcome) if kind.allows(outcome) => {
                    *table.entry(kind.name).or_default().entry(outcome).or_default() += 1;
                }
                Ok(outcome) => failures.push(format!("{what}: {outcome:?}")),
                Err(error) => failures.push(format!("{what}: {error}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for name in ["sealed segment", "active segment", "manifest"] {
        assert!(table[name].contains_key(&Outcome::Quarantined), "{name}: {table:?}");
    }
    for name in ["catalog segment", "catalog manifest"] {
        assert!(table[name].contains_key(&Outcome::Refused), "{name}: {table:?}");
    }
}
