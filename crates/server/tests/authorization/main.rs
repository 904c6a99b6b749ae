//! Authorization of every operation, by every principal, with every disguise of the request.
//!
//! The expected results come from the tables in `table.rs`, which are written by hand and do not use the
//! server's classification. A refused request must also leave the store unchanged.

#![allow(clippy::unwrap_used)] // a failed test names the line

#[path = "../support/mod.rs"]
mod support;

mod table;
mod world;

use headwater_store::{ContainerDefinition, ItemWrite};
use std::time::Duration;
use support::World;
use table::{Disguise, Expected, Mode, Op, Principal, Scope};
use world::Stage;

/// Every kind of principal.
const PRINCIPALS: [Principal; 13] = [
    Principal::Nobody,
    Principal::Primary,
    Principal::Secondary,
    Principal::ReadOnly,
    Principal::SecondaryReadOnly,
    Principal::Token(Scope::Database, Mode::Read),
    Principal::Token(Scope::Container, Mode::Read),
    Principal::Token(Scope::Key, Mode::Read),
    Principal::Token(Scope::Item, Mode::Read),
    Principal::Token(Scope::Database, Mode::All),
    Principal::Token(Scope::Container, Mode::All),
    Principal::Token(Scope::Key, Mode::All),
    Principal::Token(Scope::Item, Mode::All),
];

/// Runs the table for one principal on its own server.
async fn check(principal: Principal, disguises: &[Disguise], ops: &[Op]) -> Vec<String> {
    let stage = Stage::new().await;
    let mut wrong = Vec::new();
    let mut client = stage.client(principal).await;
    for op in ops {
        for (index, disguise) in disguises.iter().enumerate() {
            let expected = table::expected(principal, op, disguise);
            // An operation that removes its own target can be permitted only once.
            if op.is_last && expected == Expected::Permitted && index > 0 {
                continue;
            }
            let before = stage.fingerprint();
            let status = client.send(op, disguise).await;
            let unchanged = expected == Expected::Permitted || stage.fingerprint() == before;
            if !expected.is(status) || !unchanged {
                let changed = if unchanged { "" } else { ", and the store changed" };
                wrong.push(format!(
                    "{principal:?}: {} as {}: {status}, expected {expected:?}{changed}",
                    op.name, disguise.name
                ));
            }
        }
    }
    stage.stop().await;
    wrong
}

fn report(wrong: &[String]) {
    let shown: Vec<&str> = wrong.iter().take(40).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} wrong responses, such as\n{}", wrong.len(), shown.join("\n"));
}

/// Regression: a read-only key could create items by a batch marked as a query, and run procedures that write.
#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_permitted_by_what_it_is_and_not_by_what_its_headers_claim() {
    let (disguises, ops) = (table::disguises(2), table::operations());
    let mut wrong = Vec::new();
    for principal in PRINCIPALS {
        wrong.extend(check(principal, &disguises, &ops).await);
    }
    report(&wrong);
}

/// Sends the requests whose operation depends on headers, with every combination of these headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_principal_that_only_reads_changes_nothing_with_any_combination_of_headers() {
    let disguises = table::disguises(usize::MAX);
    let ops = table::operations().into_iter().filter(|op| op.is_ambiguous).collect::<Vec<_>>();
    assert!(ops.len() >= 4, "{} ambiguous operations", ops.len());
    let mut wrong = Vec::new();
    for principal in PRINCIPALS.into_iter().filter(|principal| principal.only_reads()) {
        wrong.extend(check(principal, &disguises, &ops).await);
    }
    report(&wrong);
}

const DOCS: &str = "/dbs/db/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const WAIT: [(&str, &str); 2] = [("A-IM", "Incremental Feed"), ("Prefer", "wait=1")];

/// A server with these limits, and a container with this number of items.
async fn limited(requests: usize, waiting_readers: usize, items: usize) -> World {
    let world = World::with(|config| {
        config.limits.requests = requests;
        config.limits.waiting_readers = waiting_readers;
        config.limits.wait_max = Duration::from_millis(5);
    });
    let world = world.await;
    let database = world.account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 1).await.unwrap();
    for number in 0..items {
        let text = "x".repeat(8000);
        let item = format!(r#"{{"id":"{number}","pk":"a","text":"{text}"}}"#);
        container.write(ItemWrite::create(item)).await.unwrap();
    }
    world
}

/// Regression: `A-IM` and `Prefer: wait` exempted any request from the limit on requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_only_claims_to_wait_counts_as_a_request() {
    let world = limited(0, 1, 0).await;
    let head = [KEY, WAIT[0], WAIT[1]];
    let item = r#"{"id":"1","pk":"a"}"#;
    for (verb, path) in [("GET", "/dbs/db/colls/c/docs/1"), ("GET", "/dbs"), ("POST", DOCS)] {
        assert_eq!(world.send(verb, path, &head, item).await.status, 503, "{verb} {path}");
    }
    assert_eq!(world.send("GET", DOCS, &WAIT[..1], "").await.status, 503, "without waiting");
    assert_eq!(world.send("GET", DOCS, &WAIT, "").await.status, 304, "a feed read that waits");
    world.stop().await;
}

/// Regression: a page that was available at once was read under no limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_read_that_would_wait_counts_as_a_waiting_reader_also_if_there_are_changes() {
    let world = limited(1, 0, 200).await;
    assert_eq!(world.send("GET", DOCS, &WAIT[..1], "").await.status, 200);
    // The larger page is read by two threads.
    for count in ["1", "100"] {
        let head = [WAIT[0], WAIT[1], ("x-ms-max-item-count", count)];
        assert_eq!(world.send("GET", DOCS, &head, "").await.status, 503, "{count} items");
    }
    world.stop().await;
}
