//! Queries through indexes return the same rows as a scan, in the same order.
//!
//! Random histories write, patch, batch and delete items with unusual values, compact, split, merge, restart, are
//! killed, lose their index, let items expire, and change the indexing policy. All along, queries of many kinds run in
//! pages of any size, on a store that indexes at once. The expected rows come from a model that knows only a list of
//! items and the query language. One seed is one history.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use bytes::Bytes;
use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Node, Random, Simulation};
use headwater_store::query::{Query, QueryPage};
use headwater_store::{
    Account, Container, ContainerDefinition, ItemWrite, MemoryIndex, Options, PageLimit,
    PartitionKey, Patch, ScanScope,
};
use serde_json::{Value, json};
use std::time::Duration;
use support::{Seed, merge_some, open_simulated, rounds, split_some};

/// Filters of every kind that uses an index, and some that use none.
const FILTERS: &[&str] = &[
    "c.n = 3",
    "c.n = 3.0 AND c.s = 'ab'",
    "3 = c.n",
    "c.n > 2",
    "c.n <= 2",
    "2 < c.n",
    "c.n > 1 AND c.n < 4",
    "c.n BETWEEN 1 AND 3",
    "c.n IN (1, 3, 'ab', null)",
    "c.n = -1",
    "c.n = null",
    "c.n = true",
    "c.n >= 'a'",
    "c.n = [1]",
    "c.n = {\"a\": 1}",
    "c.b",
    "c.n = undefined",
    "c.n > 3 AND c.n < 2",
    "STARTSWITH(c.s, 'a')",
    "STARTSWITH(c.s, 'A', true)",
    "STARTSWITH(c.s, '')",
    "c.s LIKE 'a%'",
    "c.s LIKE '%b'",
    "c.s LIKE 'a_c'",
    "c.s > 'ab'",
    "ARRAY_CONTAINS(c.tags, 1)",
    "ARRAY_CONTAINS(c.tags, {'k': 1}, true)",
    "ARRAY_CONTAINS([1, 'ab'], c.n)",
    "EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t > 1)",
    "EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t.k = 1)",
    "EXISTS(SELECT VALUE COUNT(1) FROM t IN c.tags WHERE t = 99)",
    "c.o.x = 2",
    "c.o.x = 2 OR c.o.x = 5",
    "c.n = 3 OR c.s = 'ab'",
    "(c.n = 3 AND c.b) OR c.n = 1",
    "NOT (c.n = 3)",
    "c.n != 3",
    "c.tags[0] = 1",
    "c.id = '2'",
    "c.id = '2' AND c.t = 't1'",
    "c.t = 't2'",
    "c._ts > 0",
    "c.secret = 1",
    "c.n + 1 = 4",
    "true",
    "c.t = 't1' AND c.n = 3",
    "c.n >= 2 AND c.s = 'ab'",
];

/// Queries over the items that pass the filter.
const SHAPES: &[(&str, &str)] = &[
    ("SELECT * FROM c", ""),
    ("SELECT VALUE c.n FROM c", ""),
    ("SELECT VALUE t FROM c JOIN t IN c.tags", ""),
    ("SELECT VALUE t FROM c JOIN t IN c.tags", "t = 1"),
    ("SELECT TOP 3 VALUE c.id FROM c", ""),
    ("SELECT VALUE c.id FROM c", "ORDER BY c.n"),
    ("SELECT c.id, t FROM c JOIN t IN c.tags", "ORDER BY c.n DESC, c.s"),
    ("SELECT VALUE c.id FROM c", "ORDER BY c.s DESC OFFSET 2 LIMIT 5"),
    ("SELECT VALUE c.id FROM c", "ORDER BY c.n DESC"),
    ("SELECT VALUE c.id FROM c", "ORDER BY c.s, c.n DESC"),
    ("SELECT TOP 4 c.id, c.o FROM c", "ORDER BY c.o.x, c.id DESC"),
    ("SELECT VALUE t FROM c JOIN t IN c.tags", "ORDER BY c._ts DESC"),
    ("SELECT DISTINCT VALUE c.n FROM c", ""),
    ("SELECT VALUE COUNT(1) FROM c", ""),
    ("SELECT c.b, SUM(c.n) AS s FROM c", "GROUP BY c.b"),
    ("SELECT VALUE x.n FROM (SELECT * FROM c WHERE c.n > 0) x", ""),
];

struct World {
    random: Random,
    /// The filters of this history. Few, so that an index created for one is used when it is asked again.
    filters: Vec<&'static str>,
    shapes: Vec<(&'static str, &'static str)>,
    simulation: Simulation,
    node: Node,
    disk: MemoryDisk,
    index: MemoryIndex,
    options: Options,
    account: Account,
    container: Container,
    lookups: usize,
    walks: usize,
    /// Number of streamed results in creation order.
    created: usize,
}

fn random_policy(random: &mut Random) -> Value {
    random
        .pick(&[
            json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/secret/?"}]}),
            json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/n/?"}]}),
            json!({"includedPaths": [{"path": "/s/?"}, {"path": "/tags/[]/?"}],
                   "excludedPaths": [{"path": "/*"}]}),
            json!({"includedPaths": [{"path": "/s/?"}], "excludedPaths": [{"path": "/*"}],
                   "compositeIndexes": [[{"path": "/n"}, {"path": "/s"}]]}),
            json!({"indexingMode": "none"}),
        ])
        .clone()
}

fn definition(policy: Option<Value>) -> ContainerDefinition {
    let definition = ContainerDefinition::new("c", "/t").unwrap().with_default_ttl(-1);
    match policy {
        Some(policy) => definition.with_indexing_policy(policy),
        None => definition,
    }
}

impl World {
    async fn new(simulation: Simulation) -> World {
        let mut random = simulation.random();
        let mut options = Options::default();
        options.segment_bytes = *random.pick(&[1 << 10, 20 << 10]);
        options.maintenance_interval = Duration::ZERO;
        options.compaction_dead_percent = *random.pick(&[1, 60]);
        options.history = Duration::ZERO;
        options.index_after_items = 0;
        options.sweep_after_items = *random.pick(&[0, 3, 1_000]);
        options.sort_listings_up_to = *random.pick(&[0, 6, 1_000]);
        let (disk, index) = (MemoryDisk::new(), MemoryIndex::with_history());
        let node = simulation.node();
        let account = open_simulated(&node, &disk, &index, &options).await;
        let database = account.create_database("db").await.unwrap();
        let partitions = u32::try_from(1 + random.below(3)).unwrap();
        let policy = random.chance(50).then(|| random_policy(&mut random));
        let container =
            database.create_container_with(definition(policy), partitions).await.unwrap();
        let filters = (0..4).map(|_| *random.pick(FILTERS)).collect();
        let sorted: Vec<_> = SHAPES.iter().filter(|(_, rest)| rest.starts_with("ORDER")).collect();
        let mut shapes = vec![**random.pick(&sorted), **random.pick(&sorted)];
        shapes.extend((0..2).map(|_| *random.pick(SHAPES)));
        World {
            random,
            filters,
            shapes,
            simulation,
            node,
            disk,
            index,
            options,
            account,
            container,
            lookups: 0,
            walks: 0,
            created: 0,
        }
    }

    fn random_value(&mut self) -> Value {
        self.random
            .pick(&[
                json!(1),
                json!(2),
                json!(3),
                json!(3.0),
                json!(-1),
                json!(4.5),
                json!("a"),
                json!("ab"),
                json!("abc"),
                json!("\u{0}"),
                json!("b"),
                json!("é"),
                json!(true),
                json!(false),
                Value::Null,
                json!([1]),
                json!({"a": 1}),
                json!("a".repeat(80)),
            ])
            .clone()
    }

    fn random_item(&mut self, key: &str) -> Value {
        let id = self.random.below(9).to_string();
        let mut item = json!({ "id": id, "t": key });
        for name in ["n", "s", "b", "secret"] {
            if self.random.chance(80) {
                item[name] = self.random_value();
            }
        }
        if self.random.chance(60) {
            let count = self.random.below(4);
            let mut tags: Vec<Value> = (0..count).map(|_| self.random_value()).collect();
            tags.push(json!({ "k": self.random.below(3) }));
            item["tags"] = json!(tags);
        }
        if self.random.chance(20) {
            item["ttl"] = json!(1 + self.random.below(60));
        }
        if self.random.chance(50) {
            item["o"] = json!({ "x": self.random.below(6) });
        }
        item
    }

    fn random_write(&mut self, key: &str) -> ItemWrite {
        let item = self.random_item(key);
        let id = item["id"].as_str().unwrap().to_owned();
        match self.random.below(10) {
            0..7 => ItemWrite::upsert(item.to_string()),
            7..9 => {
                let patch = br#"{"operations":[{"op":"set","path":"/n","value":3}]}"#;
                ItemWrite::patch(key, &id, Patch::parse(patch).unwrap())
            }
            _ => ItemWrite::delete(key, &id),
        }
    }

    async fn step(&mut self) {
        let key = format!("t{}", self.random.below(4));
        match self.random.below(32) {
            // A write may fail because the item does not exist.
            0..14 => {
                let write = self.random_write(&key);
                let _ = self.container.write(write).await;
            }
            14..16 => {
                let count = 1 + self.random.below(4);
                let writes: Vec<ItemWrite> = (0..count).map(|_| self.random_write(&key)).collect();
                let _ = self.container.batch(PartitionKey::from(key.as_str()), writes).await;
            }
            16 => self.account.maintain().await.unwrap(),
            17 => split_some(&self.container, &mut self.random, 5).await,
            18 => merge_some(&self.container, &mut self.random).await,
            19 => self.restart().await,
            20 => {
                let policy = random_policy(&mut self.random);
                let database = self.account.database("db").await.unwrap();
                database.replace_container(definition(Some(policy))).await.unwrap();
            }
            21 => {
                let wait = Duration::from_secs(self.random.below(20));
                self.node.runtime().sleep(wait).await;
            }
            _ => self.ask().await,
        }
    }

    async fn restart(&mut self) {
        if self.random.chance(50) {
            self.account.close().await.unwrap();
        } else {
            self.node.kill();
            self.index.crash(&mut self.random);
        }
        if self.random.chance(20) {
            self.index.clear();
        }
        self.node = self.simulation.node();
        self.account = open_simulated(&self.node, &self.disk, &self.index, &self.options).await;
        self.container = support::container_of(&self.account).await;
    }

    fn random_query(&mut self) -> String {
        let filter = *self.random.pick(&self.filters);
        let (select, rest) = *self.random.pick(&self.shapes);
        if select.contains("(SELECT") {
            return select.to_owned();
        }
        if rest.starts_with("t ") {
            return format!("{select} WHERE {filter} AND {rest}");
        }
        format!("{select} WHERE {filter} {rest}")
    }

    /// Asks a query and compares it with the model.
    async fn ask(&mut self) {
        let text = self.random_query();
        let query = Query::parse(&text, &[]).unwrap();
        let scope = match self.random.below(3) {
            0 => ScanScope::Key(format!("t{}", self.random.below(4)).as_str().into()),
            1 => ScanScope::Range(self.random.pick(&self.container.ranges()).id),
            _ => ScanScope::Container,
        };
        // Rows with equal sort keys, groups, distinct rows and streamed rows come in creation order, which is the
        // order of resource ids. Streamed rows may come in scan order if there are more items than are sorted.
        let mut items = Vec::new();
        let mut position = None;
        loop {
            let limit = PageLimit::items(7).unwrap();
            let page = self.container.scan(&scope, position.as_ref(), limit).await.unwrap();
            items.extend(page.items);
            position = page.next;
            if position.is_none() {
                break;
            }
        }
        let in_scan_order: Vec<Bytes> = items.iter().map(|item| item.to_bytes()).collect();
        items.sort_by_key(|item| item.number());
        let by_number: Vec<Bytes> = items.iter().map(|item| item.to_bytes()).collect();
        let page_size = *self.random.pick(&[1, 2, 5, 100]);
        let found = texts(&self.all_pages(&query, &scope, page_size).await);
        if query.is_streaming() && items.len() > self.options.sort_listings_up_to {
            let expected = texts(&self.account.query_documents(&query, &in_scan_order).unwrap());
            if found == expected {
                return;
            }
        }
        let expected = texts(&self.account.query_documents(&query, &by_number).unwrap());
        self.created += usize::from(query.is_streaming());
        assert_eq!(found, expected, "{text} in {scope:?}");
    }

    async fn all_pages(&mut self, query: &Query, scope: &ScanScope, size: u32) -> Vec<Bytes> {
        let limit = PageLimit::items(size).unwrap();
        let (mut rows, mut after) = (Vec::new(), None::<String>);
        for _ in 0..10_000 {
            let page: QueryPage =
                self.container.query(query, scope, after.as_deref(), limit).await.unwrap();
            self.lookups += usize::from(page.index.entries > 0);
            self.walks += usize::from(!page.index.used_composites.is_empty());
            rows.extend(page.rows);
            after = page.next;
            if after.is_none() {
                return rows;
            }
        }
        panic!("{query:?} never ends");
    }
}

fn texts(rows: &[Bytes]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
}

#[test]
fn a_query_through_an_index_answers_what_a_scan_answers() {
    let (mut lookups, mut walks, mut created) = (0, 0, 0);
    for seed in 0..rounds("HEADWATER_SEEDS", 60, 600) {
        let seed = std::env::var("HEADWATER_SEED").map_or(seed, |one| one.parse().unwrap());
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        let (looked_up, walked, in_order) = simulation.clone().run(async move {
            let mut world = World::new(simulation).await;
            for _ in 0..120 {
                world.step().await;
            }
            world.account.close().await.unwrap();
            (world.lookups, world.walks, world.created)
        });
        lookups += looked_up;
        walks += walked;
        created += in_order;
    }
    assert!(lookups > 100, "only {lookups} pages came from an index");
    assert!(walks > 50, "only {walks} pages came along an index");
    assert!(created > 100, "only {created} results were in creation order");
}

/// Runs a test in simulated time, so that time limits of pages and of cached rows do not depend on the load of the
/// machine. Without maintenance, only queries let indexes catch up.
fn tell<F>(story: impl FnOnce(Account) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send,
{
    tell_with(Options::default(), story);
}

fn tell_with<F>(mut options: Options, story: impl FnOnce(Account) -> F + Send + 'static)
where
    F: Future<Output = ()> + Send,
{
    let simulation = Simulation::new(1);
    simulation.clone().run(async move {
        options.maintenance_interval = Duration::ZERO;
        let (node, disk, index) = (simulation.node(), MemoryDisk::new(), MemoryIndex::default());
        story(open_simulated(&node, &disk, &index, &options).await).await;
    });
}

async fn filled(account: &Account, count: u32) -> Container {
    let database = account.create_database("db").await.unwrap();
    let container = database.create_container(definition(None)).await.unwrap();
    for first in (0..count).step_by(100) {
        let writes = (first..count.min(first + 100)).map(|number| {
            let item = json!({"id": number.to_string(), "t": "a", "n": number % 1000, "m": number});
            ItemWrite::create(item.to_string())
        });
        container.batch("a", writes.collect()).await.unwrap();
    }
    container
}

async fn ask(container: &Container, text: &str) -> QueryPage {
    ask_for(container, text, 1_000).await
}

async fn ask_for(container: &Container, text: &str, rows: u32) -> QueryPage {
    let query = Query::parse(text, &[]).unwrap();
    let limit = PageLimit::items(rows).unwrap();
    container.query(&query, &ScanScope::Container, None, limit).await.unwrap()
}

#[test]
fn a_path_that_queries_filter_by_is_indexed_and_spares_the_scan() {
    tell(|account| async move {
        let container = filled(&account, 5_000).await;
        let text = "SELECT VALUE c.m FROM c WHERE c.n = 7";
        let scanned = ask(&container, text).await;
        assert_eq!((scanned.items_read, scanned.rows.len()), (5_000, 5));
        assert_eq!(scanned.index.potential, ["/n/?"]);
        assert_eq!(container.index_percent(), 0, "it has begun");
        let found = ask(&container, text).await;
        assert_eq!((found.items_read, found.rows.len()), (5, 5), "{:?}", found.index);
        assert_eq!(found.index.used, ["/n/?"]);
        assert_eq!(container.index_percent(), 100);
        assert_eq!(found.rows, scanned.rows);
        // The newest writes are found.
        container.create(r#"{"id":"new","t":"a","n":7,"m":"new"}"#).await.unwrap();
        container.upsert(r#"{"id":"7","t":"a","n":8,"m":7}"#).await.unwrap();
        let found = ask(&container, text).await;
        assert_eq!((found.items_read, found.rows.len()), (6, 5), "one candidate is stale");
        account.close().await.unwrap();
    });
}

#[test]
fn a_partition_key_and_an_id_are_one_look() {
    tell(|account| async move {
        let container = filled(&account, 2_000).await;
        let page = ask(&container, "SELECT * FROM c WHERE c.id = '77' AND c.t = 'a'").await;
        assert_eq!((page.items_read, page.rows.len()), (1, 1));
        assert_eq!(page.index.used, ["/id/?", "/t/?"]);
        let page =
            ask(&container, "SELECT * FROM c WHERE c.id IN ('1', '2', 'x') AND c.t = 'a'").await;
        assert_eq!((page.items_read, page.rows.len()), (2, 2));
        account.close().await.unwrap();
    });
}

#[test]
fn a_range_that_proposes_too_much_is_read_from_the_log_and_counted_once() {
    let mut options = Options::default();
    // The log has few entries, each with many items.
    options.sweep_after_items = 10;
    tell_with(options, |account| async move {
        let container = filled(&account, 3_000).await;
        // A list has its values in the order in which the items were read.
        let list = "SELECT VALUE MAKELIST(c.m) FROM c WHERE c.m >= 0";
        let few = "SELECT VALUE COUNT(1) FROM c WHERE c.m >= 2990";
        let in_order_of_log: Vec<u32> = (0..3_000).collect();
        let mut entries = Vec::new();
        for round in 0..4 {
            if round == 2 {
                ask(&container, few).await;
            }
            let page = ask(&container, list).await;
            let found: Vec<u32> = serde_json::from_slice(&page.rows[0]).unwrap();
            assert_eq!(found, in_order_of_log, "items were looked up one by one");
            assert!(page.index.used.is_empty(), "{:?}", page.index);
            assert_eq!(page.index.potential, ["/m/?"]);
            entries.push(page.index.entries);
        }
        // No index is created if all items match. Once another query has created it, its entries are counted up to
        // the limit, and never again.
        assert_eq!(entries, [0, 0, 1_000, 0]);
        // A range around it is not counted either; a range inside may have few entries.
        let around = ask(&container, "SELECT VALUE COUNT(1) FROM c WHERE c.m >= -5").await;
        assert_eq!((around.index.entries, around.items_read), (0, 3_000));
        let inside = ask(&container, few).await;
        assert_eq!((inside.index.entries, inside.items_read), (10, 10));
        assert_eq!(inside.index.used, ["/m/?"]);
        account.close().await.unwrap();
    });
}

#[test]
fn an_excluded_path_is_never_indexed() {
    tell(|account| async move {
        let database = account.create_database("db").await.unwrap();
        let policy =
            json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/n/?"}]});
        let container = database.create_container(definition(Some(policy))).await.unwrap();
        for first in 0..20 {
            let writes = (0..100).map(|number| {
                let item = json!({"id": format!("{first}-{number}"), "t": "a", "n": number});
                ItemWrite::create(item.to_string())
            });
            container.batch("a", writes.collect()).await.unwrap();
        }
        for _ in 0..3 {
            let page = ask(&container, "SELECT VALUE c.id FROM c WHERE c.n = 7").await;
            assert_eq!((page.items_read, page.rows.len()), (2_000, 20));
            assert!(page.index.used.is_empty() && page.index.potential.is_empty());
        }
        account.close().await.unwrap();
    });
}

#[test]
fn the_second_page_of_a_sorted_query_costs_only_itself() {
    tell(|account| async move {
        let container = filled(&account, 3_000).await;
        let query = Query::parse("SELECT VALUE c.m FROM c ORDER BY c.m DESC", &[]).unwrap();
        let limit = PageLimit::items(100).unwrap();
        let (mut read, mut rows, mut after) = (Vec::new(), Vec::new(), None::<String>);
        for _ in 0..100 {
            let page = container
                .query(&query, &ScanScope::Container, after.as_deref(), limit)
                .await
                .unwrap();
            read.push(page.items_read);
            rows.extend(texts(&page.rows));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<String> =
            (0..3_000).rev().map(|number: u32| number.to_string()).collect();
        assert_eq!(rows, expected);
        // The rows cached by the first page are enough for ten more pages; then there is an index.
        assert_eq!(read[..11], [3_000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        // Each page also reads the last row of the previous page and one row after the page.
        assert!(read[11..].iter().all(|items| *items <= 102), "{read:?}");
        account.close().await.unwrap();
    });
}

#[test]
fn a_sorted_page_along_an_index_costs_only_itself() {
    tell(|account| async move {
        let container = filled(&account, 5_000).await;
        for (text, single, composite, expected) in [
            (
                "SELECT VALUE c.m FROM c ORDER BY c.m DESC",
                vec!["/m/?"],
                vec![],
                (0..5_000).rev().collect::<Vec<u32>>(),
            ),
            (
                "SELECT VALUE c.m FROM c WHERE c.n = 7 ORDER BY c.m",
                vec![],
                vec![vec!["/n ASC", "/m ASC"]],
                (0..5).map(|thousands| thousands * 1_000 + 7).collect(),
            ),
            (
                "SELECT VALUE c.m FROM c WHERE c.m > 4000 AND c.m <= 4500 ORDER BY c.m",
                vec!["/m/?"],
                vec![],
                (4_001..=4_500).collect(),
            ),
            (
                "SELECT VALUE c.m FROM c ORDER BY c.n DESC, c.m OFFSET 3 LIMIT 400",
                vec![],
                vec![vec!["/n DESC", "/m ASC"]],
                (0..80)
                    .rev()
                    .flat_map(|n| (0..5).map(move |thousands| thousands * 1_000 + 920 + n))
                    .skip(3)
                    .take(397)
                    .collect(),
            ),
        ] {
            let query = Query::parse(text, &[]).unwrap();
            let limit = PageLimit::items(100).unwrap();
            let scope = ScanScope::Container;
            // The first query creates the index; the second one builds it.
            for _ in 0..2 {
                container.query(&query, &scope, None, limit).await.unwrap();
            }
            let (mut rows, mut after) = (Vec::new(), None::<String>);
            for _ in 0..100 {
                let page = container.query(&query, &scope, after.as_deref(), limit).await.unwrap();
                assert!(page.items_read <= 105, "{text}: {} items", page.items_read);
                assert_eq!(page.index.used, single, "{text}");
                assert_eq!(page.index.used_composites, composite, "{text}");
                rows.extend(texts(&page.rows));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let expected: Vec<String> = expected.iter().map(u32::to_string).collect();
            let rows = &rows[..expected.len().min(rows.len())];
            assert_eq!(rows, expected, "{text}");
        }
        account.close().await.unwrap();
    });
}

/// A version that is being replaced is visible until its successor is. An index must not miss the item in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_item_that_always_matches_is_always_found_while_it_is_written_again() {
    const ITEMS: u32 = 20;
    let mut options = Options::default();
    options.maintenance_interval = Duration::ZERO;
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let container = database.create_container(definition(None)).await.unwrap();
    let item = |number: u32, round: u32| {
        let n = if round.is_multiple_of(2) { 7.0 } else { 7.5 };
        json!({"id": number.to_string(), "t": "a", "n": n, "round": round}).to_string()
    };
    for number in 0..ITEMS {
        container.upsert(item(number, 0)).await.unwrap();
    }
    // Enough other items that the path is worth an index.
    for first in 0..15 {
        let writes = (0..100).map(|number| {
            let id = format!("other-{first}-{number}");
            ItemWrite::create(json!({"id": id, "t": "a", "n": number + 100}).to_string())
        });
        container.batch("a", writes.collect()).await.unwrap();
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let writer = |first: u32| {
        let (container, is_over) = (&container, &is_over);
        async move {
            for round in 1..100_000 {
                for number in (first..ITEMS).step_by(4) {
                    container.upsert(item(number, round)).await.unwrap();
                }
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        }
    };
    let reader = async {
        let (mut looked_up, mut walked) = (0, 0);
        for _ in 0..rounds("HEADWATER_ROUNDS", 2_000, 20_000) {
            let page = ask(&container, "SELECT VALUE c.id FROM c WHERE c.n >= 7 AND c.n < 8").await;
            let mut found = texts(&page.rows);
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), ITEMS as usize, "{:?} {:?}", found, page.index);
            assert_eq!(page.rows.len(), ITEMS as usize, "each once");
            looked_up += usize::from(!page.index.used.is_empty());
            // The items come first in this order, before and after each write.
            let page = ask_for(&container, "SELECT VALUE c.id FROM c ORDER BY c.n", ITEMS).await;
            let mut found = texts(&page.rows);
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), ITEMS as usize, "{:?} {:?}", found, page.index);
            walked += usize::from(!page.index.used.is_empty());
            tokio::task::yield_now().await;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(looked_up > 100, "only {looked_up} answers came from an index");
        assert!(walked > 100, "only {walked} answers came along an index");
    };
    tokio::join!(reader, writer(0), writer(1), writer(2), writer(3));
    account.close().await.unwrap();
}

/// An item that is written during a sweep of the log moves to its end, and must still be counted exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_item_counts_once_while_items_are_written_again() {
    const ITEMS: u32 = 3_000;
    let mut options = Options::default();
    options.maintenance_interval = Duration::from_millis(50);
    options.segment_bytes = 64 << 10;
    options.sweep_after_items = 0;
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let policy = json!({"indexingMode": "none"});
    let container = database.create_container_with(definition(Some(policy)), 2).await.unwrap();
    let item = |number: u32, round: u32| {
        let key = format!("t{}", number % 7);
        json!({"id": number.to_string(), "t": key, "n": 1, "round": round}).to_string()
    };
    for number in 0..ITEMS {
        container.upsert(item(number, 0)).await.unwrap();
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let writer = |first: u32| {
        let (container, is_over) = (&container, &is_over);
        async move {
            for round in 1..100_000 {
                for number in (first..ITEMS).step_by(4) {
                    container.upsert(item(number, round)).await.unwrap();
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                }
            }
        }
    };
    let reader = async {
        for _ in 0..rounds("HEADWATER_ROUNDS", 100, 2_000) {
            let page = ask(&container, "SELECT VALUE SUM(c.n) FROM c").await;
            assert_eq!(texts(&page.rows), [ITEMS.to_string()]);
            let page = ask(&container, "SELECT c.t, COUNT(1) AS n FROM c GROUP BY c.t").await;
            assert_eq!(page.rows.len(), 7);
            // A streaming query with one match in a hundred items, found in log order and sorted afterwards.
            let filter = "SELECT VALUE c.id FROM c WHERE ENDSWITH(c.id, '77')";
            let mut found = texts(&ask(&container, filter).await.rows);
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), 30, "{found:?}");
            tokio::task::yield_now().await;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    };
    tokio::join!(reader, writer(0), writer(1), writer(2), writer(3));
    account.close().await.unwrap();
}
