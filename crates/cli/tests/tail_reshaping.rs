//! `headwater tail` while ranges split and merge under writes: every change once, in order, in both modes.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use support::{Running, Served, headwater, import, items, ok};

const ITEMS: u64 = 120;

/// Splits and merges, each during a round of writes. The ids of ranges follow from the earlier steps.
const ROUNDS: [&[&str]; 8] = [
    &["split", "0"],
    &["split", "1"],
    &["merge", "3", "4"],
    &["merge", "5", "2"],
    &["split", "6"],
    &["split", "8"],
    &["merge", "7", "9"],
    &["merge", "11", "10"],
];

/// Writes every item once more, and moves ranges meanwhile.
fn write_and_reshape(served: &Served, dir: &Path, round: usize) {
    let file = dir.join(format!("{round}.ndjson"));
    let item = |id| format!("{{\"id\":\"{id}\",\"customer\":\"c{}\",\"n\":{round}}}\n", id % 23);
    std::fs::write(&file, (0..ITEMS).map(item).collect::<String>()).unwrap();
    let orders = served.orders();
    let mut writing = headwater(&["import", &orders, file.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let [action, ranges @ ..] = ROUNDS[round] else { panic!("a round moves something") };
    ok(&[&["partitions", action, &orders], ranges].concat());
    assert!(writing.wait().unwrap().success());
}

/// Returns the id and the round of each line.
fn versions(lines: &[String]) -> Vec<(String, u64)> {
    let version = |line: &String| {
        let json: Value = serde_json::from_str(line).unwrap();
        let item = json.get("current").unwrap_or(&json);
        (item["id"].as_str().unwrap().to_owned(), item["n"].as_u64().unwrap())
    };
    lines.iter().map(version).collect()
}

/// The rounds in which each item was seen, in the order in which they were.
fn by_item(lines: &[String]) -> BTreeMap<String, Vec<u64>> {
    let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (id, round) in versions(lines) {
        seen.entry(id).or_default().push(round);
    }
    seen
}

#[test]
fn tail_shows_every_version_once_and_in_order_while_ranges_split_and_merge() {
    let served = Served::in_memory(&[]);
    import(&served, "{\"id\":\"0\",\"customer\":\"c0\",\"n\":100}\n");
    let dir = tempfile::tempdir().unwrap();
    let orders = served.orders();
    let tail = Running::start(&["tail", &orders, "--mode", "all", "--from", "beginning"]);
    assert_eq!(versions(&tail.lines(1)), [("0".to_owned(), 100)]);
    let mut lines = Vec::new();
    for round in 0..ROUNDS.len() {
        write_and_reshape(&served, dir.path(), round);
        if round % 2 == 0 {
            lines.extend(tail.lines(usize::try_from(ITEMS).unwrap()));
        }
    }
    let all = ROUNDS.len() * usize::try_from(ITEMS).unwrap();
    lines.extend(tail.lines(all - lines.len()));
    assert_eq!(tail.line_soon(), None, "nothing comes twice");
    let rounds: Vec<u64> = (0..ROUNDS.len() as u64).collect();
    let seen = by_item(&lines);
    assert_eq!(seen.len() as u64, ITEMS);
    for (id, seen) in seen {
        assert_eq!(seen, rounds, "{id}");
    }
}

#[test]
fn tail_that_is_started_again_and_again_loses_no_item_while_ranges_split_and_merge() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let dir = tempfile::tempdir().unwrap();
    let (orders, file) = (served.orders(), dir.path().join("position"));
    let file = file.to_str().unwrap();
    let mut lines = Vec::new();
    for round in 0..ROUNDS.len() {
        write_and_reshape(&served, dir.path(), round);
        // Print only a part, so that the next one continues in the middle, at positions of removed ranges.
        let limit = (ITEMS / 3).to_string();
        let some = ["tail", &orders, "--from", "beginning", "--resume", file, "--limit", &limit];
        lines.extend(ok(&some).lines().map(str::to_owned));
    }
    let rest = Running::start(&["tail", &orders, "--from", "beginning", "--resume", file]);
    let last = ROUNDS.len() as u64 - 1;
    let is_whole = |lines: &[String]| {
        let seen = by_item(lines);
        seen.len() as u64 == ITEMS && seen.values().all(|seen| seen.last() == Some(&last))
    };
    while !is_whole(&lines) {
        lines.push(rest.line());
    }
    assert_eq!(rest.line_soon(), None, "nothing comes twice");
    for (id, seen) in by_item(&lines) {
        assert!(seen.is_sorted_by(|one, other| one < other), "{id}: none twice, {seen:?}");
    }
}

/// Returns the number of waiting readers in the server.
fn waiting_readers(served: &Served) -> String {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    let ask = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(ask).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let line = lines.find(|line| line.contains("waiting_readers")).unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

/// Waits for up to a minute. Readers whose last changes differ come to one position when their requests return,
/// after 20 s, and those that were replaced end when their next requests return.
fn wait_for_readers(served: &Served, count: &str) {
    let mut seen = String::new();
    for _ in 0..1200 {
        seen = waiting_readers(served);
        if seen == count {
            return;
        }
        #[allow(clippy::disallowed_methods)]
        std::thread::sleep(Duration::from_millis(50)); // tidy: allow, no runtime in these tests
    }
    panic!("{seen} readers wait, not {count}");
}

#[test]
fn tail_has_one_reader_for_each_range_again_after_a_merge() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..10));
    let orders = served.orders();
    let tail = Running::start(&["tail", &orders, "--from", "beginning"]);
    tail.lines(10);
    ok(&["partitions", "split", &orders, "0"]);
    ok(&["partitions", "split", &orders, "1"]);
    wait_for_readers(&served, "3");
    ok(&["partitions", "merge", &orders, "3", "4"]);
    ok(&["partitions", "merge", &orders, "5", "2"]);
    // A replaced reader ends when its request returns.
    import(&served, &items(10..30));
    tail.lines(20);
    wait_for_readers(&served, "1");
    import(&served, &items(30..40));
    tail.lines(10);
    assert_eq!(tail.line_soon(), None, "nothing comes twice");
}
