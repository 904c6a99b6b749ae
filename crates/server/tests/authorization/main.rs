//! Who may do what: every operation, by every principal, in every disguise.
//!
//! The expectation comes from the tables in `table.rs`, which are written by hand and use nothing of the
//! server's own classification. Each refused request must also leave the store as it was.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

#[path = "../support/mod.rs"]
mod support;

mod table;
mod world;

use std::time::Duration;
use support::{World, read_answer};
use table::{Disguise, Expected, Mode, Op, Principal, Scope};
use tokio::io::AsyncWriteExt;
use world::Stage;

/// Every principal that a server can meet.
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

/// Runs the table for one principal on a server of its own.
async fn check(principal: Principal, disguises: &[Disguise], ops: &[Op]) -> Vec<String> {
    let stage = Stage::new().await;
    let mut wrong = Vec::new();
    let mut client = stage.client(principal).await;
    for op in ops {
        for (index, disguise) in disguises.iter().enumerate() {
            let expected = table::expected(principal, op, disguise);
            // What removes its own target can be permitted only once.
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
    assert!(wrong.is_empty(), "{} wrong answers, such as\n{}", wrong.len(), shown.join("\n"));
}

/// A read-only key created items with a batch that called itself a query, and ran procedures that wrote.
#[tokio::test(flavor = "multi_thread")]
async fn every_operation_is_permitted_by_what_it_is_and_not_by_what_its_headers_claim() {
    let (disguises, ops) = (table::disguises(2), table::operations());
    let mut wrong = Vec::new();
    for principal in PRINCIPALS {
        wrong.extend(check(principal, &disguises, &ops).await);
    }
    report(&wrong);
}

/// The paths that are several operations, with every combination of the headers that choose one.
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

/// `A-IM` and `Prefer: wait` on any request took it past the limit on requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_only_claims_to_wait_counts_as_a_request() {
    let world = World::with(|config| config.limits.requests = 1).await.with_container().await;
    let docs = "/dbs/db/colls/c/docs";
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    let wait = [key, ("A-IM", "Incremental Feed"), ("Prefer", "wait=1")];
    let item = r#"{"id":"1","pk":"a"}"#;
    // One request is under way for as long as its body is incomplete.
    let request = world.request("POST", docs, &[key], item.as_bytes());
    let (start, rest) = request.split_at(request.len() - 1);
    let mut slow = world.connect().await;
    slow.write_all(start).await.unwrap();
    let is_taken = async || world.send("GET", "/dbs", &[], "").await.status == 503;
    for _ in 0..100 {
        if is_taken().await {
            break;
        }
        world.runtime.sleep(Duration::from_millis(10)).await;
    }
    assert!(is_taken().await, "the only permit is taken");
    for (verb, path) in [("GET", "/dbs/db/colls/c/docs/1"), ("GET", "/dbs"), ("POST", docs)] {
        assert_eq!(world.send(verb, path, &wait, item).await.status, 503, "{verb} {path}");
    }
    assert_eq!(world.send("GET", docs, &wait, "").await.status, 304, "a feed read that waits");
    slow.write_all(rest).await.unwrap();
    assert_eq!(read_answer(&mut slow).await.unwrap().status, 201);
    world.stop().await;
}
