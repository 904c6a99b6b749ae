//! Damage is contained: it is reported, never skipped, and everything undamaged is served.
//!
//! A closed store is damaged in one place at a time: a flipped bit, a zeroed page, a cut, garbage after the end, a
//! deleted or unreadable file. Then it is opened again, and everything in it is read. It must open. Requests that do
//! not need the damaged partition get the answers of the undamaged store. The others get the same answer if the damaged
//! data is derived and was rebuilt from the log. Otherwise they get an error that names the file, the byte and the
//! problem. Only a damaged catalog prevents a store from opening.
//!
//! The log and the catalog are damaged at many places on a disk in memory, with the index they had and without one. The
//! files of the index belong to its engine and are damaged on a real disk.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::OpenError as LogOpenError;
use headwater_log::disk::{Disk, MemoryDisk};
use headwater_runtime::{Node, Random, Runtime, Simulation};
use headwater_store::{
    Account, Container, ContainerDefinition, Continuation, Damage, Environment, FeedError,
    FeedStart, ItemReadError, ItemWrite, Lsn, MemoryIndex, OpenError, Options, PageLimit, Remedy,
    ScanScope, StorageError, WriteError,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Reader, Scope, rounds, scratch};

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 6 << 10;
    options.history = Duration::ZERO;
    options.ring_bytes = 1 << 10;
    options.maintenance_interval = Duration::ZERO;
    options
}

// ---- a store with all kinds of files

/// Creates a store with several segments, some of them compacted or inherited, a catalog with a history, and an index
/// with several tables.
async fn build(dir: &Path) {
    let day = Duration::from_secs(24 * 3600);
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    account.create_database("empty").await.unwrap();
    let plain = |id| ContainerDefinition::new(id, "/pk").unwrap();
    for (definition, partitions) in [
        (plain("kept").with_all_versions(day), 2),
        (plain("compacted"), 1),
        (plain("reshaped"), 1),
        (plain("limited").with_default_ttl(-1).with_unique_key(&["/n"]), 1),
        (plain("dropped"), 1),
    ] {
        database.create_container_with(definition, partitions).await.unwrap();
    }
    let mut random = Random::seeded(7);
    for id in ["kept", "compacted", "reshaped", "limited", "dropped"] {
        fill(&database.container(id).await.unwrap(), &mut random, 90).await;
    }
    database.drop_container("dropped").await.unwrap();
    database.replace_container(plain("kept").with_all_versions(2 * day)).await.unwrap();
    account.maintain().await.unwrap();
    let reshaped = database.container("reshaped").await.unwrap();
    let children = reshaped.split(reshaped.ranges()[0].id, None).await.unwrap();
    reshaped.split(children[0].id, None).await.unwrap();
    account.close().await.unwrap();
    drop((account, database, reshaped));

    let account = Account::open(dir, options()).await.unwrap();
    let database = account.database("db").await.unwrap();
    for id in ["kept", "compacted", "reshaped", "limited"] {
        fill(&database.container(id).await.unwrap(), &mut random, 40).await;
    }
    let reshaped = database.container("reshaped").await.unwrap();
    let ranges = reshaped.ranges();
    reshaped.merge(ranges[1].id, ranges[2].id).await.unwrap();
    account.maintain().await.unwrap();
    for id in ["kept", "compacted", "reshaped", "limited"] {
        fill(&database.container(id).await.unwrap(), &mut random, 10).await;
    }
    account.close().await.unwrap();
}

async fn fill(container: &Container, random: &mut Random, writes: u64) {
    for number in 0..writes {
        let (key, id) = (format!("k{}", random.below(4)), random.below(9).to_string());
        let padding = "x".repeat(random.index(300));
        let unique = format!("{id}-{}", random.below(1000));
        let body = format!(
            r#"{{"id":"{id}","pk":"{key}","n":"{unique}","ttl":1000000,"p":"{padding}","v":{number}}}"#
        );
        let done = match random.below(10) {
            0 => container.delete(key.as_str(), &id).await.map(|_| ()),
            1..3 => {
                let other = format!(r#"{{"id":"{id}b","pk":"{key}","n":"{id}b-{number}"}}"#);
                let writes = vec![ItemWrite::upsert(body), ItemWrite::upsert(other)];
                container.batch(key.as_str(), writes).await.map(|_| ()).map_err(|error| error.error)
            }
            _ => container.upsert(body).await.map(|_| ()),
        };
        match done {
            Ok(()) | Err(headwater_store::WriteError::NotFound { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

// ---- all answers of a store

/// An answer as text, or the damage that prevents it.
type Answer = Result<String, Damage>;
/// All answers by question. A question about one partition names it: `db/kept r1 latest`.
type Answers = BTreeMap<String, Answer>;

/// An error of opening or reading a store.
#[derive(Debug)]
enum Refusal {
    Open(OpenError),
    Read(ItemReadError),
    Feed(FeedError),
    Storage(StorageError),
}

impl Refusal {
    /// The damaged place, if the error is about damage.
    fn damage(&self) -> Option<&Damage> {
        match self {
            Refusal::Open(OpenError::Damaged(damage))
            | Refusal::Open(OpenError::Log(LogOpenError::Damaged(damage))) => Some(damage),
            Refusal::Open(OpenError::Storage(error))
            | Refusal::Storage(error)
            | Refusal::Read(ItemReadError::Storage(error))
            | Refusal::Feed(FeedError::Storage(error)) => error.damage(),
            _ => None,
        }
    }

    /// Turns an error about damage into an answer; returns any other error.
    fn answer(self) -> Result<Answer, Refusal> {
        self.damage().cloned().map(|damage| Ok(Err(damage))).unwrap_or(Err(self))
    }
}

/// Records an answer, or the damage that prevents it.
fn note(all: &mut Answers, asked: String, answer: Result<String, Refusal>) -> Result<(), Refusal> {
    let answer = match answer {
        Ok(text) => Ok(text),
        Err(refusal) => refusal.answer()?,
    };
    all.insert(asked, answer);
    Ok(())
}

async fn answers(account: &Account) -> Result<Answers, Refusal> {
    let mut all = Answers::new();
    let mut databases = Vec::new();
    for database in account.databases() {
        databases.push((database.id().to_string(), database.etag(), database.rid()));
        for container in database.containers() {
            let name = format!("{}/{}", database.id(), container.id());
            let about = (container.rid(), container.etag(), container.definition().to_json());
            let ranges: Vec<_> = container
                .ranges()
                .into_iter()
                .map(|one| (one.id, one.range, one.ancestors))
                .collect();
            all.insert(name.clone(), Ok(format!("{about:?} {ranges:?}")));
            items(&container, &name, &mut all).await?;
            feeds(&container, &name, &mut all).await?;
        }
    }
    all.insert("databases".to_owned(), Ok(format!("{databases:?}")));
    note(&mut all, "state".to_owned(), account.state_hash().map_err(Refusal::Storage))?;
    Ok(all)
}

async fn items(container: &Container, name: &str, all: &mut Answers) -> Result<(), Refusal> {
    let limit = PageLimit::items(10_000).unwrap();
    let page = container.scan(&ScanScope::Container, None, limit).await.map_err(Refusal::Read);
    note(all, format!("{name} scan"), page.map(|page| format!("{:?}", page.items)))?;
    for key in 0..4 {
        let key = format!("k{key}");
        let range = range_of(container, &key);
        for id in 0..9 {
            for id in [format!("{id}"), format!("{id}b")] {
                let item = container.read(key.as_str(), &id).await.map_err(Refusal::Read);
                note(
                    all,
                    format!("{name} r{range} {key} {id}"),
                    item.map(|item| format!("{item:?}")),
                )?;
            }
        }
    }
    Ok(())
}

/// The range that has a partition key.
fn range_of(container: &Container, key: &str) -> u32 {
    let epk = container.definition().partition_key().epk(&key.into()).unwrap();
    let ranges = container.ranges();
    let owner = ranges.iter().find(|range| range.range.contains(epk.as_bytes()));
    owner.expect("ranges have no gaps").id.get()
}

async fn feeds(container: &Container, name: &str, all: &mut Answers) -> Result<(), Refusal> {
    for range in container.ranges() {
        let latest = Reader::latest(Scope::Range(range.id), 7);
        let read = latest.drain(container, FeedStart::Beginning).await.map_err(Refusal::Feed);
        let text = read.map(|(changes, end)| {
            let text: Vec<String> = changes
                .iter()
                .map(|change| format!("{change:?} {}", String::from_utf8_lossy(&change.body())))
                .collect();
            format!("{text:?} {end}")
        });
        note(all, format!("{name} r{} latest", range.id), text)?;

        let versions = Reader::all_versions(Scope::Range(range.id), 7);
        let start = |lsn| FeedStart::After(Continuation::Single(lsn));
        let read = match versions.drain(container, start(Lsn::ZERO)).await {
            Err(FeedError::BeforeRetention { oldest, .. }) => {
                versions.drain(container, start(oldest)).await
            }
            other => other,
        };
        let text = read.map_err(Refusal::Feed).map(|(changes, end)| {
            let text: Vec<String> = changes
                .iter()
                .map(|change| {
                    let (item, previous) = (change.item(), change.previous());
                    format!("{change:?} {item:?} {previous:?} {}", change.timestamp().as_millis())
                })
                .collect();
            format!("{text:?} {end}")
        });
        note(all, format!("{name} r{} versions", range.id), text)?;
    }
    Ok(())
}

/// The first answer that differs, for messages.
fn difference(expected: &Answers, found: &Answers) -> String {
    let differs = expected.iter().find(|(asked, answer)| found.get(*asked) != Some(answer));
    match differs {
        Some((asked, answer)) => format!("{asked}: {answer:?}\n  became {:?}", found.get(asked)),
        None => "more answers than before".to_owned(),
    }
}

/// Counts, by kind of file, of damage that was reported and of damage without effect.
#[derive(Debug, Default)]
struct Tally {
    reported: BTreeMap<String, u64>,
    unharmed: BTreeMap<String, u64>,
}

impl Tally {
    /// Checks the answers after damage of one place. Questions that do not need the file have the same answers as
    /// before. The others have the same answers or an error that names the file.
    fn judge(
        &mut self,
        file: &str,
        what: &str,
        expected: &Answers,
        found: Result<Answers, Refusal>,
    ) {
        let kind = kind_of(file);
        let found = match found {
            Ok(found) => found,
            Err(refusal) => {
                // Only damage of the catalog may prevent a store from opening.
                assert!(file.starts_with("catalog"), "{file}, {what}: {refusal:?}");
                match (&refusal, refusal.damage()) {
                    (_, Some(damage)) => check_damage(damage, file, what),
                    (Refusal::Open(OpenError::Log(LogOpenError::Io { dir, .. })), _) => {
                        assert!(dir.ends_with(file), "{file}, {what}: {refusal:?}");
                    }
                    _ => panic!("{file}, {what}: {refusal:?}"),
                }
                *self.reported.entry(kind).or_default() += 1;
                return;
            }
        };
        assert!(found.len() == expected.len(), "{file}, {what}: other questions than before");
        let mut is_reported = false;
        for (asked, answer) in &found {
            match answer {
                Ok(_) => assert!(
                    expected.get(asked) == Some(answer),
                    "{file}, {what}: a wrong answer: {asked}: {answer:?}"
                ),
                Err(damage) => {
                    check_damage(damage, file, what);
                    let needed = needs(asked, file, expected);
                    assert!(needed, "{file}, {what}: {asked} does not need it, yet: {damage}");
                    is_reported = true;
                }
            }
        }
        let tally = if is_reported { &mut self.reported } else { &mut self.unharmed };
        *tally.entry(kind).or_default() += 1;
    }
}

/// Whether an answer depends on a file: it is about the partition of the file, or about all partitions.
fn needs(asked: &str, file: &str, expected: &Answers) -> bool {
    if asked == "state" {
        return true;
    }
    let mut parts = file.split('/').skip(1);
    let (rid, partition) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let container = asked.split(' ').next().unwrap_or(asked);
    let about = expected.get(container).and_then(|answer| answer.as_ref().ok());
    let rid = u64::from_str_radix(rid, 16).unwrap();
    let rid = headwater_store::ContainerRid::from_u64(rid).unwrap();
    let is_same = about.is_some_and(|about| about.starts_with(&format!("({rid:?},")));
    let number: u32 = partition.parse().unwrap();
    is_same && (asked.ends_with(" scan") || asked.contains(&format!(" r{number} ")))
}

/// The kind of a file, such as `catalog seg` for `catalog/00000003.seg`.
fn kind_of(file: &str) -> String {
    let part = if file.starts_with("catalog") { "catalog" } else { "partition" };
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("{part} {}", name.rsplit('.').next().unwrap_or(name))
}

/// Asserts that an error names the damaged file, or its directory if the log as a whole is too short.
fn check_damage(damage: &Damage, file: &str, what: &str) {
    let dir = file.rsplit_once('/').map_or(file, |(dir, _)| dir);
    let named = damage.file.ends_with(file) || damage.file.contains(dir);
    assert!(named, "{file}, {what}: the error names another file: {damage}");
    assert!(!damage.what.is_empty() && damage.to_string().contains("at byte"), "{damage}");
    let is_unreadable = damage.what.starts_with("cannot be read");
    if damage.file.ends_with(".seg") && !is_unreadable {
        assert!(damage.lsn.is_some(), "an entry has an LSN: {damage}");
    }
}

// ---- the log and the catalog, in memory

const ROOT: &str = "store";

/// All files below `dir` by relative path, except those of the index and the lock.
fn log_files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for path in all_files(dir) {
        let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("index") && name != "LOCK" {
            files.push((name, std::fs::read(&path).unwrap()));
        }
    }
    files
}

fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

fn memory_disk(files: &[(String, Vec<u8>)]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    for (name, bytes) in files {
        let path = Path::new(ROOT).join(name);
        disk.create_dir(path.parent().unwrap()).unwrap();
        disk.open(&path, true).unwrap().write_at(bytes, 0).unwrap();
    }
    disk
}

async fn open_in_memory(disk: &MemoryDisk, index: &MemoryIndex) -> Result<Account, Refusal> {
    let environment = Environment {
        runtime: Runtime::system(),
        disk: Arc::new(disk.clone()),
        index: Some(index.clone()),
        wrap_log: None,
    };
    Account::open_in(environment, Path::new(ROOT), options()).await.map_err(Refusal::Open)
}

/// Opens a store, reads everything, writes to every partition, and closes it.
async fn look(disk: &MemoryDisk, index: &MemoryIndex) -> Result<Answers, Refusal> {
    let account = open_in_memory(disk, index).await?;
    let found = answers(&account).await;
    write_everywhere(&account).await;
    // Ends its tasks; closing a damaged store may fail.
    let _ = account.close().await;
    found
}

/// Writes to every partition. Quarantined partitions must reject the write with the remedy.
async fn write_everywhere(account: &Account) {
    let set_aside = account.quarantined();
    for database in account.databases() {
        for container in database.containers() {
            for key in 0..4 {
                let key = format!("k{key}");
                let range = range_of(&container, &key);
                let body = format!(r#"{{"id":"new","pk":"{key}","n":"new-{key}","ttl":1000000}}"#);
                let written = container.upsert(body).await;
                let is_set_aside = set_aside
                    .iter()
                    .any(|one| one.container == container.id() && one.partition.get() == range);
                match written {
                    Ok(_) => assert!(!is_set_aside, "{range} is quarantined and takes writes"),
                    Err(WriteError::Storage(error)) => {
                        assert!(error.damage().is_some(), "{error}");
                        assert_eq!(error.remedy(), Remedy::Restore);
                        let text = error.to_string();
                        assert!(text.contains("headwater doctor"), "no remedy: {text}");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// The index of the undamaged store, built from its log.
async fn index_of(disk: &MemoryDisk) -> MemoryIndex {
    let index = MemoryIndex::default();
    let account = open_in_memory(&disk.fork(), &index).await.unwrap();
    account.close().await.unwrap();
    index
}

struct Closed {
    disk: MemoryDisk,
    files: Vec<(String, Vec<u8>)>,
    expected: Answers,
}

async fn closed_store() -> Closed {
    let dir = scratch();
    build(dir.path()).await;
    let files = log_files(dir.path());
    let disk = memory_disk(&files);
    let expected = look(&disk.fork(), &MemoryIndex::default()).await.unwrap();
    let account = Account::open(dir.path(), options()).await.unwrap();
    let on_disk = answers(&account).await.unwrap();
    account.close().await.unwrap();
    assert_eq!(expected, on_disk, "a copy in memory answers like the store on disk");
    let count = |ending: &str| files.iter().filter(|(name, _)| name.ends_with(ending)).count();
    assert!(count(".seg") > 20 && count("MANIFEST") > 6 && count("LIVENESS") > 3, "{files:?}");
    Closed { disk, files, expected }
}

#[tokio::test]
async fn a_flipped_bit_is_reported_or_changes_nothing() {
    let closed = closed_store().await;
    let mut random = Random::seeded(3);
    let mut tally = Tally::default();
    let flips = rounds("HEADWATER_FLIPS", 600, 6000);
    let bytes: usize = closed.files.iter().map(|(_, bytes)| bytes.len()).sum();
    let stride = (bytes as u64 / flips).max(1);
    for (name, bytes) in &closed.files {
        // Segments are by far the largest files, so small files are hit at least about 12 times.
        let stride = stride.min(bytes.len() as u64 / 12).max(1);
        let mut at = random.below(stride);
        while at < bytes.len() as u64 {
            let disk = closed.disk.fork();
            let bit = u8::try_from(random.below(8)).unwrap();
            let with_index = random.chance(50);
            let index = if with_index { index_of(&disk).await } else { MemoryIndex::default() };
            assert!(disk.flip(&Path::new(ROOT).join(name), usize::try_from(at).unwrap(), bit));
            let what = format!("bit {bit} of byte {at}, with index: {with_index}");
            tally.judge(name, &what, &closed.expected, look(&disk, &index).await);
            at += 1 + random.below(2 * stride);
        }
    }
    for kind in ["partition seg", "partition MANIFEST", "catalog seg", "catalog MANIFEST"] {
        assert!(tally.reported.contains_key(kind), "{kind}: {tally:?}");
    }
    for kind in ["partition tab", "partition LIVENESS"] {
        assert!(tally.unharmed.contains_key(kind), "{kind} is derived: {tally:?}");
        assert!(!tally.reported.contains_key(kind), "{kind} is derived: {tally:?}");
    }
}

#[tokio::test]
async fn a_cut_or_missing_file_is_reported_or_changes_nothing() {
    let closed = closed_store().await;
    let mut random = Random::seeded(4);
    let mut tally = Tally::default();
    for (name, bytes) in &closed.files {
        let path = Path::new(ROOT).join(name);
        for _ in 0..rounds("HEADWATER_CUTS", 1, 6) {
            let disk = closed.disk.fork();
            let index = index_of(&disk).await;
            let length = random.below(bytes.len() as u64);
            disk.open(&path, false).unwrap().truncate(length).unwrap();
            let what = format!("cut to {length} of {} bytes", bytes.len());
            tally.judge(name, &what, &closed.expected, look(&disk, &index).await);
        }
        for with_index in [false, true] {
            let disk = closed.disk.fork();
            let index = if with_index { index_of(&disk).await } else { MemoryIndex::default() };
            disk.remove(&path).unwrap();
            let what = format!("deleted, with index: {with_index}");
            let found = look(&disk, &index).await;
            if name.ends_with(".seg") || name.ends_with("MANIFEST") {
                let is_said =
                    found.as_ref().map_or(true, |found| found.values().any(Result::is_err));
                assert!(is_said, "{name} is missing without an error");
            }
            tally.judge(name, &what, &closed.expected, found);
        }
    }
    assert!(tally.reported.contains_key("partition seg"), "{tally:?}");
    assert!(!tally.reported.contains_key("partition tab"), "{tally:?}");
    assert!(!tally.reported.contains_key("partition LIVENESS"), "{tally:?}");
}

/// Damages every kind of file in every way: the store opens and serves what is undamaged. Requests that need the
/// damaged partition get an error that names the file.
#[tokio::test]
async fn damage_of_one_file_keeps_nothing_else_from_being_served() {
    const PAGE: usize = 4096;
    let closed = closed_store().await;
    let mut random = Random::seeded(8);
    let mut tally = Tally::default();
    let mut kinds = BTreeMap::<String, u64>::new();
    for (name, bytes) in &closed.files {
        let path = Path::new(ROOT).join(name);
        // A few files of each kind are enough; the other tests damage all of them.
        let tried = kinds.entry(kind_of(name)).or_default();
        *tried += 1;
        if *tried > rounds("HEADWATER_FILES", 4, 100) {
            continue;
        }
        for what in ["flip", "zero a page", "truncate", "delete", "append garbage", "deny access"] {
            let disk = closed.disk.fork();
            let index = index_of(&disk).await;
            let file = disk.open(&path, false).unwrap();
            match what {
                "flip" => assert!(disk.flip(&path, random.index(bytes.len()), 3)),
                "zero a page" => {
                    let at = random.index(bytes.len()) / PAGE * PAGE;
                    let zeros = vec![0; PAGE.min(bytes.len() - at)];
                    file.write_at(&zeros, at as u64).unwrap();
                }
                "truncate" => file.truncate(random.below(bytes.len() as u64)).unwrap(),
                "delete" => disk.remove(&path).unwrap(),
                "append garbage" => file.write_at(&[0xa5; 300], bytes.len() as u64).unwrap(),
                _ => disk.deny(&path),
            }
            tally.judge(name, what, &closed.expected, look(&disk, &index).await);
        }
    }
    for kind in ["partition seg", "partition MANIFEST", "catalog seg", "catalog MANIFEST"] {
        assert!(tally.reported.contains_key(kind), "{kind}: {tally:?}");
    }
    for kind in ["partition tab", "partition LIVENESS"] {
        assert!(!tally.reported.contains_key(kind), "{kind} is derived: {tally:?}");
    }
}

/// A store whose catalog is lost still has its items. It must not open as an empty store, and must not remove the files
/// of the containers.
#[tokio::test]
async fn a_lost_catalog_is_reported_and_costs_nothing() {
    let closed = closed_store().await;
    let disk = closed.disk.fork();
    disk.remove_dir(&Path::new(ROOT).join("catalog")).unwrap();
    let refusal = look(&disk, &MemoryIndex::default()).await.unwrap_err();
    assert!(refusal.damage().is_some_and(|damage| damage.file.contains("catalog")), "{refusal:?}");
    for (name, bytes) in closed.files.iter().filter(|(name, _)| !name.starts_with("catalog")) {
        let file = disk.open(&Path::new(ROOT).join(name), false).unwrap();
        assert_eq!(file.length().unwrap(), bytes.len() as u64, "{name} is unchanged");
    }
    // With the catalog restored, all answers are as before.
    for (name, bytes) in closed.files.iter().filter(|(name, _)| name.starts_with("catalog")) {
        disk.open(&Path::new(ROOT).join(name), true).unwrap().write_at(bytes, 0).unwrap();
    }
    let found = look(&disk, &MemoryIndex::default()).await.unwrap();
    assert!(found == closed.expected, "{}", difference(&closed.expected, &found));
}

/// The directory of a partition is missing, as after an incomplete copy.
#[tokio::test]
async fn a_lost_partition_is_reported() {
    let closed = closed_store().await;
    let dirs = closed.files.iter().filter_map(|(name, _)| name.strip_suffix("/MANIFEST"));
    for dir in dirs.filter(|dir| *dir != "catalog") {
        let disk = closed.disk.fork();
        let index = index_of(&disk).await;
        disk.remove_dir(&Path::new(ROOT).join(dir)).unwrap();
        let account = open_in_memory(&disk, &index).await.unwrap();
        let quarantined = account.quarantined();
        assert_eq!(quarantined.len(), 1, "{dir}");
        assert!(quarantined[0].damage.file.contains(dir), "{dir}: {quarantined:?}");
        account.close().await.unwrap();
        let mut tally = Tally::default();
        let manifest = format!("{dir}/MANIFEST");
        tally.judge(&manifest, "lost", &closed.expected, look(&disk, &index).await);
        assert_eq!(tally.reported.len(), 1, "{dir}: the loss is not reported");
    }
}

/// Damage of a killed process's last write looks like a torn write. The index shows that the write was complete.
#[test]
fn what_the_index_has_seen_cannot_have_been_torn() {
    let simulation = Simulation::new(1);
    let (disk, index) = (MemoryDisk::new(), MemoryIndex::default());
    let open = |node: &Node| {
        let (runtime, disk, index) = (node.runtime(), disk.clone(), index.clone());
        let index = Some(index);
        let environment = Environment { runtime, disk: Arc::new(disk), index, wrap_log: None };
        async move { Account::open_in(environment, Path::new(ROOT), options()).await }
    };
    let node = simulation.node();
    let opening = open(&node);
    simulation.run(async move {
        let account = opening.await.unwrap();
        let database = account.create_database("db").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container_with(definition, 1).await.unwrap();
        for number in 0..3 {
            let body = format!(r#"{{"id":"{number}","pk":"a"}}"#);
            container.create(body).await.unwrap();
        }
        node.kill();
    });
    let (segment, length) = disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|one| one == "seg"))
        .find(|(path, _)| path.to_string_lossy().contains("containers"))
        .unwrap();
    let file = disk.open(&segment, false).unwrap();
    let mut bytes = vec![0; length];
    file.read_at(&mut bytes, 0).unwrap();
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    assert!(disk.flip(&segment, last - 20, 3));
    let account = simulation.run(open(&simulation.node())).unwrap();
    let quarantined = account.quarantined();
    assert_eq!(quarantined.len(), 1, "{quarantined:?}");
    assert_eq!(quarantined[0].damage.lsn, Some(Lsn::new(3)), "{quarantined:?}");
}

/// A store on a full disk does not open and names the cause; it opens when there is room.
#[tokio::test]
async fn a_full_disk_at_the_start_says_make_room() {
    let disk = MemoryDisk::with_faults();
    disk.set_room(10);
    let refused = open_in_memory(&disk, &MemoryIndex::default()).await.unwrap_err();
    let Refusal::Open(OpenError::DiskFull { dir, free }) = &refused else { panic!("{refused:?}") };
    assert_eq!((dir.as_path(), *free), (Path::new(ROOT), Some(0)));
    let Refusal::Open(error) = &refused else { unreachable!() };
    assert!(error.to_string().contains("Make room and start again"), "{error}");
    disk.set_room(u64::MAX);
    let account = open_in_memory(&disk, &MemoryIndex::default()).await.unwrap();
    account.close().await.unwrap();
}

// ---- the index, on a real disk

/// A log writer that collects the output in memory.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logged {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

/// Opens a store on disk and reads everything. Also returns its log output of level warning and above.
async fn look_on_disk(dir: &Path) -> (Result<Answers, Refusal>, String) {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let found = match Account::open(dir, options()).await {
        Ok(account) => {
            let found = answers(&account).await;
            let _ = account.close().await;
            found
        }
        Err(error) => Err(Refusal::Open(error)),
    };
    (found, logged.text())
}

/// Opens a store on disk and reads everything; a second time if the index failed, since it is rebuilt then.
async fn look_twice(dir: &Path) -> (Result<Answers, Refusal>, String) {
    let (found, logged) = look_on_disk(dir).await;
    match found {
        Err(Refusal::Read(ItemReadError::Storage(StorageError::Index(_))))
        | Err(Refusal::Feed(FeedError::Storage(StorageError::Index(_))))
        | Err(Refusal::Storage(StorageError::Index(_)))
        | Err(Refusal::Open(OpenError::Storage(StorageError::Index(_)))) => {
            let (found, more) = look_on_disk(dir).await;
            (found, logged + &more)
        }
        other => (other, logged),
    }
}

fn copy_dir(from: &Path, to: &Path) {
    for path in all_files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::write(target, std::fs::read(&path).unwrap()).unwrap();
    }
}

/// A closed store on disk, small enough to be copied often.
async fn closed_on_disk(dir: &Path) -> (Answers, Vec<(String, usize)>) {
    build(dir).await;
    for path in all_files(dir) {
        // The engine preallocates its journal. The zeros are cut off to make copies faster.
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let bytes = std::fs::read(&path).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            std::fs::write(&path, &bytes[..used]).unwrap();
        }
    }
    let copy = scratch();
    copy_dir(dir, copy.path());
    let (expected, logged) = look_on_disk(copy.path()).await;
    assert_eq!(logged, "", "an undamaged store logs no warnings");
    let files = all_files(dir).into_iter().filter_map(|path| {
        let length = std::fs::metadata(&path).unwrap().len();
        let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
        name.starts_with("index").then(|| (name, usize::try_from(length).unwrap()))
    });
    (expected.unwrap(), files.collect())
}

async fn check_index(original: &Path, expected: &Answers, what: &str, damage: impl FnOnce(&Path)) {
    let copy = scratch();
    copy_dir(original, copy.path());
    damage(copy.path());
    let (found, logged) = look_twice(copy.path()).await;
    match found {
        Ok(found) => {
            let same = found == *expected;
            assert!(same, "{what}: a wrong answer: {}\n{logged}", difference(expected, &found));
        }
        Err(refusal) => panic!("{what}: the index is derived, yet {refusal:?}\n{logged}"),
    }
}

#[tokio::test]
async fn a_damaged_index_never_changes_an_answer() {
    let original = scratch();
    let (expected, files) = closed_on_disk(original.path()).await;
    assert!(files.iter().any(|(name, _)| name.contains("tables")), "{files:?}");
    assert!(files.iter().any(|(name, _)| name.ends_with(".jnl")), "{files:?}");
    let mut random = Random::seeded(5);
    let per_file = rounds("HEADWATER_INDEX_FLIPS", 4, 40);
    for (name, length) in files.iter().filter(|(_, length)| *length > 0) {
        for _ in 0..per_file.min(2 * *length as u64) {
            let (at, bit) = (random.index(*length), random.below(8));
            let what = format!("{name}, bit {bit} of byte {at}");
            check_index(original.path(), &expected, &what, |copy| {
                let mut bytes = std::fs::read(copy.join(name)).unwrap();
                bytes[at] ^= 1 << bit;
                std::fs::write(copy.join(name), bytes).unwrap();
            })
            .await;
        }
        let cut = random.index(*length);
        check_index(original.path(), &expected, &format!("{name} cut to {cut}"), |copy| {
            let bytes = std::fs::read(copy.join(name)).unwrap();
            std::fs::write(copy.join(name), &bytes[..cut]).unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn a_missing_index_is_rebuilt_with_a_warning() {
    let original = scratch();
    let (expected, files) = closed_on_disk(original.path()).await;
    let mut missing: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    missing.push("index");
    for name in missing {
        let copy = scratch();
        copy_dir(original.path(), copy.path());
        let path = copy.path().join(name);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        let (found, logged) = look_twice(copy.path()).await;
        let found = found.unwrap_or_else(|refusal| panic!("{name}: {refusal:?}\n{logged}"));
        assert!(found == expected, "{name} missing: {}", difference(&expected, &found));
        // Lock files and outdated lists of tables are not needed.
        if !name.ends_with("lock") && !name.contains("/v") {
            assert!(logged.contains("rebuilt from the log"), "{name}: no warning: {logged}");
        }
    }
}

/// Malformed rows in an index whose files are intact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_with_malformed_rows_is_rebuilt_while_the_store_is_open() {
    let original = scratch();
    let (expected, _) = closed_on_disk(original.path()).await;
    for nonsense in [&b"short"[..], &[9; 34]] {
        let copy = scratch();
        copy_dir(original.path(), copy.path());
        {
            let database = fjall::Database::builder(copy.path().join("index")).open().unwrap();
            let options = fjall::KeyspaceCreateOptions::default;
            let rows = database.keyspace("rows", options).unwrap();
            let of_items = rows.iter().filter_map(|row| {
                let key = row.key().unwrap();
                // The second byte of a key is the number of the container times 16 plus the kind of the row.
                (key.get(1) == Some(&(16 + 2))).then(|| key.to_vec())
            });
            let key = of_items.collect::<Vec<_>>().swap_remove(10);
            rows.insert(key, nonsense).unwrap();
            database.persist(fjall::PersistMode::SyncAll).unwrap();
        }
        let account = Account::open(copy.path(), options()).await.unwrap();
        let mut found = answers(&account).await;
        let index =
            matches!(found, Err(Refusal::Read(ItemReadError::Storage(StorageError::Index(_)))));
        assert!(index, "{found:?}");
        for _ in 0..3_000 {
            if found.is_ok() {
                break;
            }
            Runtime::system().sleep(Duration::from_millis(10)).await;
            found = answers(&account).await;
        }
        let found = found.unwrap();
        assert!(found == expected, "{}", difference(&expected, &found));
        write_everywhere(&account).await;
        let after = answers(&account).await.unwrap();
        account.close().await.unwrap();
        drop(account);
        let (found, logged) = look_on_disk(copy.path()).await;
        let found = found.unwrap();
        assert!(found == after, "{}", difference(&after, &found));
        assert_eq!(logged, "", "the next start finds a good index");
    }
}

/// A power cut may leave an old index. Compaction may have removed log entries that the index has not applied.
#[tokio::test]
async fn an_index_from_before_a_compaction_is_rebuilt() {
    let (dir, old) = (scratch(), scratch());
    let account = Account::open(dir.path(), options()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 1).await.unwrap();
    let mut random = Random::seeded(1);
    fill(&container, &mut random, 50).await;
    account.close().await.unwrap();
    drop((account, database, container));
    copy_dir(&dir.path().join("index"), old.path());

    let account = Account::open(dir.path(), options()).await.unwrap();
    let container = support::container_of(&account).await;
    for key in 0..4 {
        container.delete_partition_key(format!("k{key}")).await.unwrap();
    }
    fill(&container, &mut random, 60).await;
    account.maintain().await.unwrap();
    let expected = answers(&account).await.unwrap();
    account.close().await.unwrap();
    drop((account, container));
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    copy_dir(old.path(), &dir.path().join("index"));
    let (found, logged) = look_on_disk(dir.path()).await;
    let found = found.unwrap();
    assert!(found == expected, "{}", difference(&expected, &found));
    assert!(logged.contains("rebuilt from the log"), "{logged}");
}
