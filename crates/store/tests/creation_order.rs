//! Listings and unsorted queries return items in creation order, page by page, also across changes between pages.
//! Where that order is not available, they use another one and keep it to the end.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::disk::MemoryDisk;
use headwater_runtime::{Random, Simulation};
use headwater_store::query::Query;
use headwater_store::{
    Account, Container, ContainerDefinition, Item, ItemWrite, MemoryIndex, Options, PageLimit,
    PartitionKey, ScanPosition, ScanScope,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Seed, merge_some, open_simulated, rounds, split_some};

fn options(sort_up_to: usize) -> Options {
    let mut options = Options::default();
    options.maintenance_interval = Duration::ZERO;
    options.sort_listings_up_to = sort_up_to;
    options
}

async fn container_of(account: &Account, partitions: u32) -> Container {
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    database.create_container_with(definition, partitions).await.unwrap()
}

fn item(number: u32) -> String {
    json!({"id": format!("{:x}", number.wrapping_mul(2_654_435_761)), "pk": format!("k{}", number % 7),
           "n": number, "third": number % 3})
    .to_string()
}

async fn filled(account: &Account, partitions: u32, count: u32) -> Container {
    let container = container_of(account, partitions).await;
    for number in 0..count {
        container.create(item(number)).await.unwrap();
    }
    container
}

fn number_in(item: &Item) -> u32 {
    let item: Value = item.parse().unwrap();
    u32::try_from(item["n"].as_u64().unwrap()).unwrap()
}

/// Lists all items of a scope in pages of `size`; returns them and the number of pages.
async fn listed(container: &Container, scope: &ScanScope, size: u32) -> (Vec<u32>, usize) {
    let limit = PageLimit::items(size).unwrap();
    let (mut numbers, mut after) = (Vec::new(), None::<ScanPosition>);
    for pages in 1..10_000 {
        let page = container.list(scope, after.as_ref(), limit).await.unwrap();
        numbers.extend(page.items.iter().map(number_in));
        // A client stores only the text of a position.
        after = page.next.map(|next| ScanPosition::from_text(&next.to_string()));
        if after.is_none() {
            return (numbers, pages);
        }
    }
    panic!("the listing never ends");
}

/// Reads all rows of a query for numbers; returns them and the number of pages.
async fn asked(
    container: &Container,
    text: &str,
    scope: &ScanScope,
    size: u32,
) -> (Vec<u32>, usize) {
    let query = Query::parse(text, &[]).unwrap();
    let limit = PageLimit::items(size).unwrap();
    let (mut numbers, mut after) = (Vec::new(), None::<String>);
    for pages in 1..10_000 {
        let page = container.query(&query, scope, after.as_deref(), limit).await.unwrap();
        let rows = page.rows.iter().map(|row| serde_json::from_slice::<u32>(row).unwrap());
        numbers.extend(rows);
        after = page.next;
        if after.is_none() {
            return (numbers, pages);
        }
    }
    panic!("{text} never ends");
}

#[tokio::test]
async fn a_listing_comes_in_the_order_of_creation() {
    let account = Account::ephemeral_with(options(1_000)).await.unwrap();
    let container = filled(&account, 1, 200).await;
    // An item that is replaced keeps its place.
    container.upsert(item(0)).await.unwrap();
    container.upsert(item(150)).await.unwrap();
    let all: Vec<u32> = (0..200).collect();
    let of_key: Vec<u32> = all.iter().copied().filter(|n| n % 7 == 3).collect();
    let thirds: Vec<u32> = all.iter().copied().filter(|n| n % 3 == 0).collect();
    for size in [1, 7, 100, 1_000] {
        let everything = ScanScope::Container;
        assert_eq!(listed(&container, &everything, size).await.0, all);
        let key = ScanScope::Key("k3".into());
        assert_eq!(listed(&container, &key, size).await.0, of_key);
        let text = "SELECT VALUE c.n FROM c";
        assert_eq!(asked(&container, text, &everything, size).await.0, all);
        assert_eq!(asked(&container, text, &key, size).await.0, of_key);
        let text = "SELECT VALUE c.n FROM c WHERE c.pk = 'k3'";
        assert_eq!(asked(&container, text, &everything, size).await.0, of_key);
        let text = "SELECT VALUE c.n FROM c WHERE c.third = 0";
        assert_eq!(asked(&container, text, &everything, size).await.0, thirds);
        let text = "SELECT VALUE c.n FROM c OFFSET 5 LIMIT 20";
        assert_eq!(asked(&container, text, &everything, size).await.0, all[5..25]);
    }
    account.close().await.unwrap();
}

#[tokio::test]
async fn items_of_several_ranges_come_range_by_range() {
    let account = Account::ephemeral_with(options(1_000)).await.unwrap();
    let container = filled(&account, 3, 100).await;
    let mut by_range = Vec::new();
    for range in container.ranges() {
        let (of_range, _) = listed(&container, &ScanScope::Range(range.id), 7).await;
        assert!(of_range.is_sorted(), "{of_range:?}");
        by_range.extend(of_range);
    }
    assert_eq!(listed(&container, &ScanScope::Container, 9).await.0, by_range);
    let text = "SELECT VALUE c.n FROM c";
    assert_eq!(asked(&container, text, &ScanScope::Container, 9).await.0, by_range);
    account.close().await.unwrap();
}

#[tokio::test]
async fn no_empty_page_follows_the_last_match() {
    let account = Account::ephemeral_with(options(1_000)).await.unwrap();
    let container = filled(&account, 1, 60).await;
    let scope = ScanScope::Container;
    assert_eq!(listed(&container, &scope, 20).await.1, 3);
    for (text, rows) in [
        ("SELECT VALUE c.n FROM c", 60),
        ("SELECT VALUE c.n FROM c WHERE c.n < 30", 30),
        ("SELECT VALUE c.n FROM c WHERE c.n IN (3, 4, 5)", 3),
        ("SELECT VALUE c.n FROM c WHERE c.third = 0", 20),
        ("SELECT VALUE c.third FROM c JOIN x IN c.nothing", 0),
    ] {
        for size in [1, 3, 10] {
            let (found, pages) = asked(&container, text, &scope, size).await;
            assert_eq!(found.len(), rows, "{text}");
            assert_eq!(pages, rows.div_ceil(size as usize).max(1), "{text} in pages of {size}");
        }
    }
    account.close().await.unwrap();
}

/// A container with more items than a listing sorts.
#[test]
fn a_long_listing_keeps_its_order_and_the_third_has_that_of_creation() {
    let simulation = Simulation::new(1);
    simulation.clone().run(async move {
        let (node, disk, index) = (simulation.node(), MemoryDisk::new(), MemoryIndex::default());
        let account = open_simulated(&node, &disk, &index, &options(100)).await;
        let container = filled(&account, 2, 1_000).await;
        for (scope, key) in [(ScanScope::Container, None), (ScanScope::Key("k3".into()), Some(3))] {
            let created: Vec<u32> =
                (0..1_000).filter(|n| key.is_none_or(|key| n % 7 == key)).collect();
            let (first, _) = listed(&container, &scope, 60).await;
            let sorted: BTreeSet<u32> = first.iter().copied().collect();
            assert_eq!((first.len(), sorted.len()), (created.len(), created.len()));
            if key.is_none() {
                let (second, _) = listed(&container, &scope, 60).await;
                assert_eq!(first, second, "neither has an index");
            }
            let (third, _) = listed(&container, &scope, 60).await;
            let numbers = listed_by_number(&container, &scope).await;
            assert_ne!(first, numbers, "there was none");
            assert_eq!(third, numbers);
            if key.is_some() {
                assert_eq!(third, created);
            }
            for size in [1, 7, 1_000] {
                assert_eq!(listed(&container, &scope, size).await.0, numbers);
                let text = "SELECT VALUE c.n FROM c";
                assert_eq!(asked(&container, text, &scope, size).await.0, numbers);
            }
            let thirds: Vec<u32> = numbers.iter().copied().filter(|n| n % 3 == 0).collect();
            let text = "SELECT VALUE c.n FROM c WHERE c.third = 0";
            assert_eq!(asked(&container, text, &scope, 50).await.0, thirds);
        }
        account.close().await.unwrap();
    });
}

/// The expected order: all items of a scan, sorted by their numbers.
async fn listed_by_number(container: &Container, scope: &ScanScope) -> Vec<u32> {
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let limit = PageLimit::items(100).unwrap();
        let page = container.scan(scope, after.as_ref(), limit).await.unwrap();
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    items.sort_by_key(Item::number);
    items.iter().map(number_in).collect()
}

#[tokio::test]
async fn few_matches_of_a_long_filter_come_in_the_order_of_creation() {
    let mut options = options(10);
    options.sweep_after_items = 50;
    let account = Account::ephemeral_with(options).await.unwrap();
    let container = filled(&account, 2, 2_000).await;
    let scope = ScanScope::Container;
    let expected: Vec<u32> = listed_by_number(&container, &scope).await;
    let expected: Vec<u32> = expected.into_iter().filter(|n| n % 40 == 0).collect();
    for size in [1, 9, 1_000] {
        let text = "SELECT VALUE c.n FROM c WHERE c.n % 40 = 0";
        assert_eq!(asked(&container, text, &scope, size).await.0, expected, "pages of {size}");
    }
    account.close().await.unwrap();
}

/// A position stays valid in its order, even if the store would choose another order by then.
#[tokio::test]
async fn a_listing_that_has_grown_too_long_keeps_its_order() {
    let account = Account::ephemeral_with(options(100)).await.unwrap();
    let container = filled(&account, 1, 90).await;
    let limit = PageLimit::items(30).unwrap();
    let scope = ScanScope::Container;
    let page = container.list(&scope, None, limit).await.unwrap();
    let query = Query::parse("SELECT VALUE c.n FROM c", &[]).unwrap();
    let rows = container.query(&query, &scope, None, limit).await.unwrap();
    for number in 90..500 {
        container.create(item(number)).await.unwrap();
    }
    container.split(container.ranges()[0].id, None).await.unwrap();
    let (mut numbers, mut after) = (Vec::new(), page.next);
    while let Some(position) = after {
        let page = container.list(&scope, Some(&position), limit).await.unwrap();
        numbers.extend(page.items.iter().map(number_in));
        after = page.next;
    }
    assert_eq!(numbers, (30..500).collect::<Vec<u32>>());
    let (mut numbers, mut after) = (Vec::new(), rows.next);
    while let Some(position) = after {
        let page = container.query(&query, &scope, Some(&position), limit).await.unwrap();
        numbers.extend(page.rows.iter().map(|row| serde_json::from_slice::<u32>(row).unwrap()));
        after = page.next;
    }
    assert_eq!(numbers, (30..500).collect::<Vec<u32>>());
    account.close().await.unwrap();
}

#[tokio::test]
async fn positions_that_were_made_up_are_refused_or_harmless() {
    let account = Account::ephemeral_with(options(3)).await.unwrap();
    let container = filled(&account, 2, 20).await;
    let limit = PageLimit::items(7).unwrap();
    let scope = ScanScope::Container;
    for _ in 0..4 {
        container.list(&scope, None, limit).await.unwrap();
    }
    for text in ["~", "~x", "~-1", "~18446744073709551616", "~ 1"] {
        let position = ScanPosition::from_text(text);
        assert!(container.list(&scope, Some(&position), limit).await.is_err(), "{text}");
        assert!(container.scan(&scope, Some(&position), limit).await.is_err(), "{text}");
    }
    for text in ["~0", "~1", "~18446744073709551615"] {
        let position = ScanPosition::from_text(text);
        let page = container.list(&scope, Some(&position), limit).await.unwrap();
        assert_eq!(page.items.len(), if text.len() > 3 { 0 } else { 7 }, "{text}");
    }
    account.close().await.unwrap();
}

/// A reader of a listing. It must see items that exist during the whole listing exactly once, and no item twice.
struct Reader {
    scope: ScanScope,
    /// Numbers of the items that have existed since it began. An item that is created again gets a new number.
    there: BTreeSet<u64>,
    seen: Vec<u64>,
    after: Option<ScanPosition>,
}

struct World {
    random: Random,
    container: Container,
    alive: BTreeMap<(String, String), u64>,
    readers: Vec<Reader>,
    created: usize,
    finished: usize,
}

impl World {
    fn gone(&mut self, number: u64) {
        for reader in &mut self.readers {
            reader.there.remove(&number);
        }
    }

    async fn write(&mut self) {
        let (pk, id) = (format!("k{}", self.random.below(4)), self.random.below(12).to_string());
        let body = json!({"id": id, "pk": pk, "n": self.random.below(100)}).to_string();
        let key = (pk.clone(), id.clone());
        if self.random.chance(30) && self.alive.contains_key(&key) {
            self.container.delete(pk.as_str(), &id).await.unwrap();
            let number = self.alive.remove(&key).unwrap();
            self.gone(number);
        } else {
            let item = self.container.write(ItemWrite::upsert(body)).await.unwrap().into_item();
            let known = self.alive.insert(key, item.number());
            assert!(known.is_none_or(|known| known == item.number()), "an item keeps its number");
            self.created += usize::from(known.is_none());
        }
    }

    fn random_scope(&mut self) -> ScanScope {
        match self.random.below(3) {
            0 => ScanScope::Key(format!("k{}", self.random.below(4)).as_str().into()),
            _ => ScanScope::Container,
        }
    }

    fn begin(&mut self) {
        let scope = self.random_scope();
        let is_asked = |pk: &str| match &scope {
            ScanScope::Key(key) => *key == PartitionKey::from(pk),
            _ => true,
        };
        let there = self.alive.iter().filter(|((pk, _), _)| is_asked(pk));
        let there = there.map(|(_, number)| *number).collect();
        self.readers.push(Reader { scope, there, seen: Vec::new(), after: None });
    }

    async fn read(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let at = usize::try_from(self.random.below(self.readers.len() as u64)).unwrap();
        let limit = PageLimit::items(u32::try_from(1 + self.random.below(9)).unwrap()).unwrap();
        let reader = &mut self.readers[at];
        let page = self.container.list(&reader.scope, reader.after.as_ref(), limit).await.unwrap();
        reader.seen.extend(page.items.iter().map(Item::number));
        reader.after = page.next;
        if reader.after.is_some() {
            return;
        }
        let reader = self.readers.remove(at);
        let seen: BTreeSet<u64> = reader.seen.iter().copied().collect();
        assert_eq!(seen.len(), reader.seen.len(), "something came twice: {:?}", reader.seen);
        let missed: Vec<&u64> = reader.there.difference(&seen).collect();
        assert!(missed.is_empty(), "{missed:?} of {:?}", reader.scope);
        self.finished += 1;
    }
}

#[test]
fn a_listing_misses_nothing_and_shows_nothing_twice_while_items_come_and_go() {
    let mut finished = 0;
    for seed in 0..rounds("HEADWATER_SEEDS", 40, 400) {
        let seed = std::env::var("HEADWATER_SEED").map_or(seed, |one| one.parse().unwrap());
        let _seed = Seed(seed);
        let simulation = Simulation::new(seed);
        finished += simulation.clone().run(async move {
            let mut random = simulation.random();
            let sort_up_to = *random.pick(&[0, 5, 20, 1_000]);
            let options = options(sort_up_to);
            let (disk, index) = (MemoryDisk::new(), MemoryIndex::with_history());
            let mut node = simulation.node();
            let mut account = open_simulated(&node, &disk, &index, &options).await;
            let partitions = u32::try_from(1 + random.below(3)).unwrap();
            let container = container_of(&account, partitions).await;
            let mut world = World {
                random,
                container,
                alive: BTreeMap::new(),
                readers: Vec::new(),
                created: 0,
                finished: 0,
            };
            for _ in 0..400 {
                match world.random.below(40) {
                    0..18 => world.write().await,
                    18..21 => world.begin(),
                    21..36 => world.read().await,
                    36 => split_some(&world.container, &mut world.random, 5).await,
                    37 => merge_some(&world.container, &mut world.random).await,
                    38 => account.maintain().await.unwrap(),
                    _ => {
                        account.close().await.unwrap();
                        if world.random.chance(20) {
                            index.clear();
                        }
                        node = simulation.node();
                        account = open_simulated(&node, &disk, &index, &options).await;
                        world.container = support::container_of(&account).await;
                    }
                }
            }
            account.close().await.unwrap();
            world.finished
        });
    }
    assert!(finished > 200, "only {finished} listings were finished");
}

/// Runs on real threads: writers create, replace and delete while readers list.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn items_that_stay_are_listed_once_while_others_come_and_go() {
    const STAYING: u32 = 300;
    for sort_up_to in [0, 10_000] {
        let account = Account::ephemeral_with(options(sort_up_to)).await.unwrap();
        let container = filled(&account, 2, STAYING).await;
        let is_over = AtomicBool::new(false);
        let writer = |first: u32| {
            let (container, is_over) = (&container, &is_over);
            async move {
                for round in 0..1_000_000_u32 {
                    container.upsert(item((first + round * 2) % STAYING)).await.unwrap();
                    let other = 1_000_000 + first + 2 * (round % 50);
                    let body: Value = serde_json::from_str(&item(other)).unwrap();
                    container.upsert(item(other)).await.unwrap();
                    let (pk, id) = (body["pk"].as_str().unwrap(), body["id"].as_str().unwrap());
                    container.delete(pk, id).await.unwrap();
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        };
        let reader = async {
            for round in 0..rounds("HEADWATER_ROUNDS", 60, 600) {
                let size = [7, 50, 1_000][usize::try_from(round % 3).unwrap()];
                let (mut found, _) = listed(&container, &ScanScope::Container, size).await;
                found.retain(|number| *number < STAYING);
                found.sort_unstable();
                assert_eq!(found, (0..STAYING).collect::<Vec<u32>>(), "pages of {size}");
                tokio::task::yield_now().await;
            }
            is_over.store(true, Ordering::Relaxed);
        };
        tokio::join!(reader, writer(0), writer(1));
        account.close().await.unwrap();
    }
}
