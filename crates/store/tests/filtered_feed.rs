//! A filtered change feed returns the same as the unfiltered feed, filtered afterwards.
//!
//! Random histories write, patch, delete and batch in few partition keys, compact, split, merge and restart. After
//! some steps the test reads the feed without a filter, filters it with its own code, and compares the result with
//! the feed through the filter. One seed is one history.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Random, Simulation};
use headwater_store::{
    Account, Change, ChangeKind, Container, ContainerDefinition, Continuation, FeedError,
    FeedFilter, FeedMode, FeedPage, FeedStart, ItemWrite, Lsn, MemoryIndex, Options, PageLimit,
    PartitionKey, Patch,
};
use serde_json::{Value, json};
use std::time::Duration;
use support::{Reader, Scope, Seed, merge_some, open_simulated, rounds, split_some};

/// A filter, and an equivalent predicate on the changes of the unfiltered feed.
#[derive(Clone)]
struct Case {
    filter: FeedFilter,
    wanted: fn(&Seen) -> bool,
    /// The properties returned; all if empty.
    columns: &'static [&'static str],
    all_versions_only: bool,
}

/// A change of the unfiltered feed.
struct Seen {
    kind: ChangeKind,
    after: Option<Value>,
    before: Option<Value>,
}

impl Seen {
    fn of(change: &Change) -> Seen {
        Seen {
            kind: change.kind(),
            after: change.item().map(|item| item.parse().unwrap()),
            before: change.previous().map(|item| item.parse().unwrap()),
        }
    }

    /// The item that a condition applies to, if it is known.
    fn judged(&self) -> Option<&Value> {
        if self.kind == ChangeKind::Delete { self.before.as_ref() } else { self.after.as_ref() }
    }

    fn changed(&self, name: &str) -> bool {
        if self.kind != ChangeKind::Create && self.before.is_none() {
            return true;
        }
        let of = |item: &Option<Value>| item.as_ref().and_then(|item| item.get(name)).cloned();
        of(&self.before) != of(&self.after)
    }
}

fn third(item: &Value) -> bool {
    item["v"].as_u64().unwrap().is_multiple_of(3)
}

fn cases() -> Vec<Case> {
    let filter = FeedFilter::new;
    let case = |filter, wanted| Case { filter, wanted, columns: &[], all_versions_only: false };
    let all = |filter, wanted| Case { filter, wanted, columns: &[], all_versions_only: true };
    vec![
        case(filter().matching("c.v % 3 = 0").unwrap(), |seen| seen.judged().is_none_or(third)),
        case(filter().matching("false").unwrap(), |seen| seen.judged().is_none()),
        case(filter().matching("IS_DEFINED(c.hits) OR c.id = '2'").unwrap(), |seen| {
            seen.judged().is_none_or(|item| item.get("hits").is_some() || item["id"] == "2")
        }),
        case(filter().only(&[ChangeKind::Create]), |seen| seen.kind == ChangeKind::Create),
        case(filter().only_named("replace, create").unwrap(), |seen| {
            seen.kind != ChangeKind::Delete
        }),
        Case {
            columns: &["id", "v", "twice"],
            ..case(filter().showing("c.id, c.v, c.v * 2 AS twice").unwrap(), |_| true)
        },
        Case {
            columns: &["v"],
            ..case(filter().matching("c.v % 3 = 0").unwrap().showing("c.v").unwrap(), |seen| {
                seen.judged().is_none_or(third)
            })
        },
        all(filter().only(&[ChangeKind::Delete]), |seen| seen.kind == ChangeKind::Delete),
        all(filter().when_changed(&["/hits"]).unwrap(), |seen| seen.changed("hits")),
        all(filter().when_changed(&["/p", "/hits"]).unwrap(), |seen| {
            seen.changed("p") || seen.changed("hits")
        }),
        all(
            filter()
                .only_named("replace,delete")
                .unwrap()
                .matching("c.v % 3 = 0")
                .unwrap()
                .when_changed(&["/hits"])
                .unwrap(),
            |seen| {
                seen.kind != ChangeKind::Create
                    && seen.judged().is_none_or(third)
                    && seen.changed("hits")
            },
        ),
    ]
}

/// The parts of a change that a reader gets.
#[derive(Debug, PartialEq)]
struct Shown {
    lsn: Lsn,
    kind: ChangeKind,
    id: String,
    key: String,
    after: Option<Value>,
    before: Option<Value>,
}

fn shown(change: &Change) -> Shown {
    let parse = |bytes: Option<bytes::Bytes>| bytes.map(|b| serde_json::from_slice(&b).unwrap());
    Shown {
        lsn: change.lsn(),
        kind: change.kind(),
        id: change.id().to_owned(),
        key: change.partition_key().to_json(),
        after: parse(change.current_bytes()).map(without_lsn),
        before: parse(change.previous_bytes()).map(without_lsn),
    }
}

/// Removes the `_lsn` that items of latest versions contain; other tests check it.
fn without_lsn(mut item: Value) -> Value {
    item.as_object_mut().unwrap().remove("_lsn");
    item
}

fn expected(case: &Case, changes: &[Change]) -> Vec<Shown> {
    let wanted = changes.iter().filter(|change| (case.wanted)(&Seen::of(change)));
    let cut = |item: Value| match case.columns {
        [] => item,
        columns => columns
            .iter()
            .filter_map(|name| match *name {
                "twice" => Some(((*name).to_owned(), json!(item["v"].as_u64().unwrap() * 2))),
                name => Some((name.to_owned(), item.get(name)?.clone())),
            })
            .collect(),
    };
    wanted
        .map(|change| {
            let whole = shown(change);
            Shown { after: whole.after.map(cut), before: whole.before.map(cut), ..whole }
        })
        .collect()
}

struct World {
    random: Random,
    simulation: Simulation,
    node: Node,
    disk: MemoryDisk,
    index: MemoryIndex,
    options: Options,
    account: Account,
    container: Container,
    next_value: u64,
}

impl World {
    async fn new(simulation: Simulation) -> World {
        let mut random = simulation.random();
        let mut options = Options::default();
        options.segment_bytes = *random.pick(&[1 << 10, 20 << 10]);
        options.ring_bytes = *random.pick(&[0, 600, 1 << 20]);
        options.maintenance_interval = Duration::ZERO;
        options.compaction_dead_percent = *random.pick(&[1, 60]);
        options.history = Duration::ZERO;
        let mut definition = ContainerDefinition::new("c", "/t").unwrap();
        if random.chance(60) {
            definition = definition.with_all_versions(Duration::from_secs(1_000_000));
        }
        let (disk, index) = (MemoryDisk::new(), MemoryIndex::default());
        let node = simulation.node();
        let account = open_simulated(&node, &disk, &index, &options).await;
        let database = account.create_database("db").await.unwrap();
        let partitions = u32::try_from(1 + random.below(3)).unwrap();
        let container = database.create_container_with(definition, partitions).await.unwrap();
        let next_value = 0;
        World { random, simulation, node, disk, index, options, account, container, next_value }
    }

    fn random_write(&mut self, key: &str) -> ItemWrite {
        let id = self.random.below(6).to_string();
        self.next_value += 1;
        let mut item = json!({ "id": id, "t": key, "v": self.next_value });
        item["p"] = json!("p".repeat(self.random.index(3)));
        match self.random.below(10) {
            0..5 => ItemWrite::upsert(item.to_string()),
            5..8 => {
                let patch = br#"{"operations":[{"op":"incr","path":"/hits","value":1}]}"#;
                ItemWrite::patch(key, &id, Patch::parse(patch).unwrap())
            }
            8 => ItemWrite::delete(key, &id),
            _ => ItemWrite::create(item.to_string()),
        }
    }

    async fn step(&mut self) {
        let key = format!("t{}", self.random.below(4));
        match self.random.below(20) {
            // A write may be rejected because the item exists or not; then there is no change.
            0..12 => {
                let write = self.random_write(&key);
                let _ = self.container.write(write).await;
            }
            12..15 => {
                let count = 1 + self.random.below(5);
                let writes: Vec<ItemWrite> = (0..count).map(|_| self.random_write(&key)).collect();
                let _ = self.container.batch(PartitionKey::from(key.as_str()), writes).await;
            }
            15 => self.account.maintain().await.unwrap(),
            16 => split_some(&self.container, &mut self.random, 5).await,
            17 => merge_some(&self.container, &mut self.random).await,
            18 => self.restart().await,
            _ => self.check().await,
        }
    }

    async fn restart(&mut self) {
        self.account.close().await.unwrap();
        self.node = self.simulation.node();
        self.account = open_simulated(&self.node, &self.disk, &self.index, &self.options).await;
        self.container = support::container_of(&self.account).await;
    }

    fn random_scope(&mut self) -> Scope {
        match self.random.below(3) {
            0 => Scope::Container,
            1 => Scope::Range(self.random.pick(&self.container.ranges()).id),
            _ => Scope::Key(format!("t{}", self.random.below(4)).as_str().into()),
        }
    }

    /// Compares a few random filters, each in a random scope.
    async fn check(&mut self) {
        let cases = cases();
        for _ in 0..4 {
            let case = self.random.pick(&cases).clone();
            let scope = self.random_scope();
            let mode = match case.all_versions_only || self.random.chance(50) {
                true => FeedMode::AllVersionsAndDeletes,
                false => FeedMode::LatestVersion,
            };
            let page_size = *self.random.pick(&[1, 2, 7, 100]);
            let reader = Reader { scope, mode, page_size };
            self.compare(&reader, &case).await;
        }
    }

    async fn compare(&mut self, reader: &Reader, case: &Case) {
        let Some((start, whole)) = self.whole(reader).await else { return };
        let filtered = self.drain_filtered(reader, case, start.clone()).await;
        assert_same(case, &filtered, &whole);
        // Positions are valid with and without the filter: switch after any page, either way.
        let pages = self.random.below(4);
        let (mut first, mut position) = (Vec::new(), start.clone());
        for _ in 0..pages {
            let page = self.page(reader, Some(case), position).await;
            first.extend(page.changes);
            position = FeedStart::After(page.continuation);
        }
        let (rest, _) = reader.drain(&self.container, position).await.unwrap();
        let rest = rest.into_iter().filter(|change| (case.wanted)(&Seen::of(change))).count();
        let all = expected(case, &whole).len();
        assert_eq!(first.len() + rest, all, "filtered, then not: {reader:?} {:?}", case.filter);

        let (mut first, mut position) = (0, start);
        for _ in 0..pages {
            let page = self.page(reader, None, position).await;
            first += page.changes.iter().filter(|one| (case.wanted)(&Seen::of(one))).count();
            position = FeedStart::After(page.continuation);
        }
        let rest = self.drain_filtered(reader, case, position).await;
        assert_eq!(first + rest.len(), all, "unfiltered, then not: {reader:?} {:?}", case.filter);
    }

    /// All changes of the unfiltered feed, and the position they start at.
    async fn whole(&self, reader: &Reader) -> Option<(FeedStart, Vec<Change>)> {
        let zero = FeedStart::After(Continuation::Single(Lsn::ZERO));
        match reader.drain(&self.container, zero.clone()).await {
            Ok((changes, _)) => Some((zero, changes)),
            // If the log is no longer complete, each range has its own first position.
            Err(FeedError::BeforeRetention { oldest, .. }) => {
                let start = FeedStart::After(Continuation::Single(oldest));
                let (changes, _) = reader.drain(&self.container, start.clone()).await.ok()?;
                Some((start, changes))
            }
            Err(FeedError::PositionAhead { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn page(&self, reader: &Reader, case: Option<&Case>, start: FeedStart) -> FeedPage {
        let mut request = reader.request(start);
        if let Some(case) = case {
            request = request.filter(case.filter.clone());
        }
        self.container.read_feed(&request).await.unwrap()
    }

    async fn drain_filtered(&self, reader: &Reader, case: &Case, start: FeedStart) -> Vec<Change> {
        let (mut position, mut all) = (start, Vec::<Change>::new());
        for _ in 0..10_000 {
            let page = self.page(reader, Some(case), position).await;
            // Changes of one transaction share their partition and LSN, and are always on one page.
            if let (Some(last), Some(next)) = (all.last(), page.changes.first()) {
                let is_cut = (last.partition(), last.lsn()) == (next.partition(), next.lsn());
                assert!(!is_cut, "a transaction is cut");
            }
            if page.changes.is_empty() && !page.unfinished {
                return all;
            }
            all.extend(page.changes);
            position = FeedStart::After(page.continuation);
        }
        panic!("the filtered feed does not end: {reader:?}");
    }
}

/// Compares the sets of changes, and the order within each partition key.
fn assert_same(case: &Case, filtered: &[Change], whole: &[Change]) {
    let sorted = |mut all: Vec<Shown>| {
        all.sort_by(|one, two| (&one.key, one.lsn, &one.id).cmp(&(&two.key, two.lsn, &two.id)));
        all
    };
    let found: Vec<Shown> = filtered.iter().map(shown).collect();
    assert_eq!(sorted(found), sorted(expected(case, whole)), "{:?}", case.filter);
    for pair in filtered.windows(2) {
        let same = pair[0].partition_key() == pair[1].partition_key();
        assert!(!same || pair[0].lsn() <= pair[1].lsn(), "out of order");
    }
}

#[test]
fn a_filtered_feed_is_the_feed_filtered_afterwards() {
    for seed in 0..rounds("HEADWATER_SEEDS", 40, 400) {
        let seed = std::env::var("HEADWATER_SEED").map_or(seed, |one| one.parse().unwrap());
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        simulation.clone().run(async move {
            let mut world = World::new(simulation).await;
            for _ in 0..60 {
                world.step().await;
            }
            world.check().await;
            world.account.close().await.unwrap();
        });
    }
}

async fn filled(count: u32) -> (Account, Container) {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/t").unwrap();
    let container = database.create_container(definition).await.unwrap();
    for first in (0..count).step_by(100) {
        let writes = (first..count.min(first + 100)).map(|number| {
            ItemWrite::create(json!({"id": number.to_string(), "t": "a", "v": number}).to_string())
        });
        container.batch("a", writes.collect()).await.unwrap();
    }
    (account, container)
}

#[tokio::test]
async fn a_page_that_filtered_everything_out_still_advances() {
    let (account, container) = filled(40_000).await;
    let filter = FeedFilter::new().matching("c.v = 39999").unwrap();
    let request = |start| {
        let limit = PageLimit::items(10).unwrap();
        headwater_store::FeedRequest::new(start).filter(filter.clone()).limit(limit)
    };
    let first = container.read_feed(&request(FeedStart::Beginning)).await.unwrap();
    assert!(
        first.changes.is_empty() && first.unfinished,
        "a page reads a limited number of changes"
    );
    let Continuation::Single(reached) = first.continuation else { panic!("one range") };
    assert!(reached > Lsn::ZERO);
    let mut position = FeedStart::After(first.continuation);
    for _ in 0..10 {
        let page = container.read_feed(&request(position.clone())).await.unwrap();
        position = FeedStart::After(page.continuation);
        if let [found] = &page.changes[..] {
            assert_eq!(found.id(), "39999");
            // A waiting reader gets it with one request: after an unfinished page it reads on at once.
            let waiting = request(FeedStart::Beginning).wait(Duration::from_secs(600));
            let page = container.read_feed(&waiting).await.unwrap();
            assert_eq!(page.changes[0].id(), "39999");
            account.close().await.unwrap();
            return;
        }
    }
    panic!("never found");
}

#[tokio::test]
async fn what_latest_versions_cannot_tell_is_refused() {
    let (account, container) = filled(1).await;
    for filter in [
        FeedFilter::new().when_changed(&["/v"]).unwrap(),
        FeedFilter::new().only_named("create,delete").unwrap(),
    ] {
        let request = headwater_store::FeedRequest::new(FeedStart::Beginning).filter(filter);
        let refused = container.read_feed(&request).await;
        assert!(matches!(refused, Err(FeedError::FilterNeedsAllVersions(_))), "{refused:?}");
    }
    let filter = FeedFilter::new().showing("c.v").unwrap();
    let request = headwater_store::FeedRequest::new(FeedStart::Beginning).filter(filter);
    let page = container.read_feed(&request).await.unwrap();
    assert_eq!(page.changes[0].body(), r#"{"v":0,"_lsn":1}"#, "with its position");
    account.close().await.unwrap();
}
