//! Several processes share the changes of a container, and what happens to processes happens to them:
//! they are killed and frozen, the server restarts, ranges split. Nothing is lost.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use support::{Running, Served, fails, headwater, import, items, ok};

/// How often something is looked at before it is given up.
const LOOKS: usize = 900;

fn start(served: &Served, name: &str, into: &Path, more: &[&str]) -> Running {
    let orders = served.orders();
    let script = format!("cat >> {}", into.display());
    let program = ["--exec", "sh"];
    let arguments = ["run", &orders, "--name", "test", "--host", name, "--from", "beginning"];
    let fast = ["--expiration", "4", "--batch", "5"];
    let script = ["--", "-c", &script];
    Running::start(&[&arguments[..], &program, &fast, more, &script].concat())
}

/// The newest version that was seen of every item.
fn seen(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Ok(json) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let id = json["id"].as_str().unwrap().to_owned();
        found.insert(id, json["n"].to_string());
    }
    found
}

/// Looks until it is so; asking for the lag is what takes the time in between.
#[track_caller]
fn until(served: &Served, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so() {
            return;
        }
        let orders = served.orders();
        let _ = headwater(&["lag", &orders, "--total"]).output();
    }
    panic!("it never came so far");
}

fn signal(running: &Running, name: &str) {
    let pid = running.pid().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn processes_that_die_freeze_and_lose_their_server_lose_no_change() {
    let directory = tempfile::tempdir().unwrap();
    let (data, into) = (directory.path().join("data"), directory.path().join("seen"));
    let served = Served::on(&data, "127.0.0.1:0");
    import(&served, &items(0..40));
    let first = start(&served, "first", &into, &[]);
    let second = start(&served, "second", &into, &[]);
    until(&served, || seen(&into).len() == 40);
    first.kill();
    import(&served, &items(40..80));
    until(&served, || seen(&into).len() == 80);
    let third = start(&served, "third", &into, &[]);
    signal(&second, "-STOP");
    import(&served, &items(80..120));
    until(&served, || seen(&into).len() == 120);
    signal(&second, "-CONT");
    ok(&["partitions", "split", &served.orders(), "0"]);
    import(&served, &items(120..160));
    until(&served, || seen(&into).len() == 160);
    let address = served.address();
    served.kill();
    let served = Served::on(&data, &address);
    import(&served, &items(160..200));
    until(&served, || seen(&into).len() == 200);
    // Ended in order, they let go of everything.
    signal(&second, "-TERM");
    signal(&third, "-TERM");
    let leases = format!("{}/shop/leases", served.url);
    until(&served, || !ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\""));
    assert_eq!(ok(&["lag", &served.orders(), "--total", "--max", "0"]).trim(), "0");
    served.kill();
}

#[test]
fn what_a_program_refuses_is_put_away_and_can_be_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (into, dead) = (directory.path().join("seen"), directory.path().join("dead"));
    let served = Served::in_memory(&[]);
    import(&served, &items(0..20));
    let script = format!("tee -a {} | grep -q '\"id\":\"7\"' && exit 1; exit 0", into.display());
    let orders = served.orders();
    let arguments = [
        "run",
        &orders,
        "--name",
        "test",
        "--from",
        "beginning",
        "--attempts",
        "1",
        "--exec",
        "sh",
        "--dead-letters",
        dead.to_str().unwrap(),
        "--",
        "-c",
        &script,
    ];
    let running = Running::start(&arguments);
    let letters = || std::fs::read_to_string(&dead).unwrap_or_default();
    until(&served, || letters().lines().count() == 1 && seen(&into).len() == 20);
    until(&served, || ok(&["lag", &orders, "--total"]).trim() == "0");
    assert!(letters().contains("\"id\":\"7\""), "{}", letters());
    let file = dead.to_str().unwrap();
    let refused = fails(&["replay", file, "--exec", "false"]);
    assert!(refused.contains("1 changes failed again"), "{refused}");
    assert_eq!(letters().lines().count(), 1, "it is still there");
    assert_eq!(ok(&["replay", file, "--exec", "cat"]).lines().last(), Some("1 handled, 0 left"));
    assert_eq!(letters(), "");
    running.kill();
    served.kill();
}

#[test]
fn an_operator_can_look_pause_and_seek() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..20));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 20);
    let leases = format!("{}/shop/leases", served.url);
    let listed = ok(&["leases", "list", &leases]);
    assert!(listed.contains("only") && listed.contains("running"), "{listed}");
    ok(&["leases", "pause", &leases]);
    import(&served, &items(20..30));
    assert!(!ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\"only\""));
    let behind = fails(&["lag", &served.orders(), "--max", "0"]);
    assert!(behind.contains("behind"), "{behind}");
    std::fs::remove_file(&into).unwrap();
    ok(&["leases", "seek", &leases, "--to", "beginning"]);
    until(&served, || seen(&into).len() == 30);
    let refused = fails(&["leases", "seek", &leases, "--to", "\"7\""]);
    assert!(refused.contains("--lease"), "{refused}");
    running.kill();
    served.kill();
}
