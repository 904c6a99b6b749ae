//! Feeds that start at a time, also after ranges were split and merged.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_protocol::auth::format_http_date;
use headwater_store::Options;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use support::World;

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEYS: usize = 8;

async fn write(world: &World, prefix: &str, ids: &mut BTreeSet<String>) {
    for number in 0..3 * KEYS {
        let (id, key) = (format!("{prefix}{number}"), format!("k{}", number % KEYS));
        let item = json!({ "id": id, "pk": key }).to_string();
        let key = json!([key]).to_string();
        let head = [("x-ms-documentdb-partitionkey", key.as_str())];
        assert_eq!(world.send("POST", DOCS, &head, &item).await.status, 201);
        ids.insert(id);
    }
}

/// Waits for a new second and returns it: what was written before is older.
async fn next_second(world: &World) -> u64 {
    let second = world.runtime.unix_millis() / 1000 + 1;
    while world.runtime.unix_millis() / 1000 < second {
        world.runtime.sleep(Duration::from_millis(10)).await;
    }
    second
}

/// The ids of all changes from a time on, with a page size that does not divide them.
async fn changes_since(world: &World, second: u64, scope: Option<&str>) -> Vec<String> {
    let time = format_http_date(second);
    let mut ids = Vec::new();
    let mut etag: Option<String> = None;
    loop {
        let mut head = vec![
            ("A-IM", "Incremental feed"),
            ("x-ms-max-item-count", "5"),
            ("If-Modified-Since", &time),
        ];
        head.extend(etag.as_deref().map(|etag| ("If-None-Match", etag)));
        head.extend(scope.map(|range| ("x-ms-documentdb-partitionkeyrangeid", range)));
        let got = world.send("GET", DOCS, &head, "").await;
        if got.status == 304 {
            return ids;
        }
        assert_eq!(got.status, 200, "{got:?}");
        etag = got.header("etag").map(str::to_owned);
        let page = got.json()["Documents"].as_array().unwrap().clone();
        ids.extend(page.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
    }
}

/// Exactly these ids, from the whole container and from its ranges.
async fn check(world: &World, second: u64, expected: &BTreeSet<String>, what: &str) {
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    let mut of_ranges = Vec::new();
    for range in container.ranges() {
        of_ranges.extend(changes_since(world, second, Some(&range.id.to_string())).await);
    }
    for (scope, found) in
        [("the container", changes_since(world, second, None).await), ("its ranges", of_ranges)]
    {
        assert_eq!(found.len(), expected.len(), "{what}, {scope}: {found:?}");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), *expected, "{what}, {scope}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_time_shows_nothing_older_after_a_split_and_a_merge() {
    let mut options = Options::default();
    options.segment_bytes = 4 << 10;
    options.maintenance_interval = Duration::ZERO;
    let world = World::with_options(options, |_| ()).await.with_container().await;
    let container = world.account.find_database("db").unwrap().find_container("c").unwrap();
    let (mut all, mut newer) = (BTreeSet::new(), BTreeSet::new());
    write(&world, "old", &mut all).await;
    let second = next_second(&world).await;
    check(&world, second, &newer, "nothing is newer").await;
    write(&world, "new", &mut newer).await;
    check(&world, second, &newer, "before the split").await;
    let halves = container.split(container.ranges()[0].id, None).await.unwrap();
    check(&world, second, &newer, "after the split").await;
    write(&world, "half", &mut newer).await;
    world.account.maintain().await.unwrap();
    check(&world, second, &newer, "after writes to both halves").await;
    let between = next_second(&world).await;
    container.merge(halves[0].id, halves[1].id).await.unwrap();
    check(&world, second, &newer, "after the merge").await;
    let mut newest = BTreeSet::new();
    check(&world, between, &newest, "the merge is no change").await;
    write(&world, "merged", &mut newest).await;
    world.account.maintain().await.unwrap();
    check(&world, between, &newest, "after writes to the merged range").await;
    newer.extend(newest);
    check(&world, second, &newer, "all of it").await;
    all.extend(newer);
    check(&world, second - 3_600, &all, "from before the first write").await;
    world.stop().await;
}
