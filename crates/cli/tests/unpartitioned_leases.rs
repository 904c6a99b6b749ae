//! Commands on a lease container without a partition key, as old versions of the SDKs created them.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use support::fleet::{given, seen, signal, start};
use support::{PATIENCE, Running, Served, fails, import, items, ok};

/// Creates a container like a client of an API version before partition keys.
fn create_unpartitioned(served: &Served, id: &str) -> String {
    let (address, body) = (served.address(), format!("{{\"id\":\"{id}\"}}"));
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(
        stream,
        "POST /dbs/shop/colls HTTP/1.1\r\nhost: {address}\r\nx-ms-version: 2018-08-31\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    format!("{}/shop/{id}", served.url)
}

/// Starts a server with 20 items and a lease container without a partition key.
fn served() -> (Served, String) {
    let served = Served::in_memory(&["--no-auth", "--partitions", "2"]);
    import(&served, &items(0..20));
    let leases = create_unpartitioned(&served, "fixed");
    (served, leases)
}

/// Polls until a condition holds; the requests of the condition provide the delay.
#[track_caller]
fn until(leases: &str, mut is_so: impl FnMut() -> bool) {
    let clock = headwater_runtime::Runtime::system();
    while clock.elapsed() < PATIENCE {
        if is_so() {
            return;
        }
        let _ = support::run(&["leases", "list", leases]);
    }
    panic!("never\n{}", ok(&["leases", "list", leases]));
}

fn listed(leases: &str) -> Vec<Value> {
    let text = ok(&["leases", "list", leases, "--json"]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn owned_by(leases: &str, host: &str) -> usize {
    listed(leases).iter().filter(|lease| lease["owner"] == host).count()
}

/// Runs a host until it has handled everything, and stops it.
fn handle(served: &Served, leases: &str, into: &Path, count: usize) {
    let running = start(served, "only", into, &["--leases", leases]);
    until(leases, || seen(into).len() == count);
    until(leases, || lag(served, leases) == "0");
    signal(&running, "-TERM");
    until(leases, || owned_by(leases, "only") == 0);
}

fn lag(served: &Served, leases: &str) -> String {
    ok(&["lag", &served.orders(), "--leases", leases, "--total"]).trim().to_owned()
}

#[test]
fn hosts_share_leases_without_a_partition_key_and_are_watched() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let (served, leases) = served();
    let orders = served.orders();
    let first = start(&served, "first", &one, &["--leases", &leases]);
    until(&leases, || seen(&one).len() == 20);
    until(&leases, || lag(&served, &leases) == "0");
    assert_eq!(owned_by(&leases, "first"), 2);
    // A second host takes one lease over.
    let second = start(&served, "second", &two, &["--leases", &leases]);
    until(&leases, || owned_by(&leases, "second") == 1 && owned_by(&leases, "first") == 1);
    import(&served, &items(20..60));
    until(&leases, || seen(&one).union(&seen(&two)).count() == 60);
    until(&leases, || lag(&served, &leases) == "0");
    assert!(given(&two).iter().all(|change| change.id.parse::<u32>().unwrap() >= 20));

    let table = ok(&["watch", &orders, "--leases", &leases, "--once"]);
    for part in ["host first: 1 leases", "host second: 1 leases", "running"] {
        assert!(table.contains(part), "{table}");
    }
    let watched = ok(&["watch", &orders, "--leases", &leases, "--once", "--json"]);
    let watched: Value = serde_json::from_str(watched.trim()).unwrap();
    assert_eq!(watched["transactions"], 0, "{watched}");
    assert_eq!(watched["leases"].as_array().unwrap().len(), 2, "{watched}");
    let text = ok(&["lag", &orders, "--leases", &leases, "--max", "0"]);
    assert!(text.contains("total"), "{text}");
    // A host that is killed is replaced after its leases expire.
    second.kill();
    import(&served, &items(60..80));
    until(&leases, || seen(&one).union(&seen(&two)).count() == 80);
    until(&leases, || owned_by(&leases, "first") == 2);
    first.kill();
    served.kill();
}

#[test]
fn leases_without_a_partition_key_are_paused_moved_kept_and_reset() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let (served, leases) = served();
    let running = start(&served, "only", &into, &["--leases", &leases]);
    until(&leases, || seen(&into).len() == 20);
    until(&leases, || lag(&served, &leases) == "0");
    let kept = ok(&["leases", "snapshot", &leases, "--name", "before"]);
    assert_eq!(kept.trim(), "2 positions kept as before");
    assert!(ok(&["leases", "snapshot", &leases]).starts_with("before "));

    ok(&["leases", "pause", &leases]);
    import(&served, &items(20..30));
    assert_eq!(owned_by(&leases, "only"), 0);
    let behind = fails(&["lag", &served.orders(), "--leases", &leases, "--max", "0"]);
    assert!(behind.contains("behind"), "{behind}");
    assert_eq!(seen(&into).len(), 20);
    ok(&["leases", "resume", &leases]);
    until(&leases, || seen(&into).len() == 30);

    std::fs::remove_file(&into).unwrap();
    ok(&["leases", "seek", &leases, "--to", "beginning"]);
    until(&leases, || seen(&into).len() == 30);
    until(&leases, || lag(&served, &leases) == "0");
    std::fs::remove_file(&into).unwrap();
    let moved = ok(&["leases", "seek", &leases, "--to", "snapshot:before"]);
    assert_eq!(moved.trim(), "2 leases go on from where they were as before");
    until(&leases, || seen(&into).len() == 10);
    until(&leases, || lag(&served, &leases) == "0");

    let lease = listed(&leases)[0]["lease"].as_str().unwrap().to_owned();
    ok(&["leases", "pause", &leases, "--lease", &lease]);
    assert!(listed(&leases).iter().any(|one| one["lease"] == *lease && one["state"] == "paused"));
    ok(&["leases", "resume", &leases, "--lease", &lease]);
    assert!(listed(&leases).iter().all(|one| one["state"] != "paused"));

    let refused = fails(&["leases", "reset", &leases, "--silence", "5"]);
    assert!(refused.contains("only") || refused.contains("host"), "{refused}");
    signal(&running, "-TERM");
    until(&leases, || owned_by(&leases, "only") == 0);
    let deleted = ok(&["leases", "reset", &leases, "--silence", "5"]);
    assert!(deleted.starts_with("2 leases deleted"), "{deleted}");
    assert!(fails(&["leases", "list", &leases]).contains("no leases"));
    // The next start behaves like the first.
    std::fs::remove_file(&into).unwrap();
    handle(&served, &leases, &into, 30);
    served.kill();
}

#[test]
fn leases_without_a_partition_key_are_exported_and_imported_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    let (into, file) = (directory.path().join("seen"), directory.path().join("leases"));
    let (served, leases) = served();
    handle(&served, &leases, &into, 20);
    let positions = |leases: &str| {
        let all = listed(leases);
        all.iter().map(|lease| lease["position"].to_string()).collect::<Vec<_>>()
    };
    let expected = positions(&leases);
    std::fs::write(&file, ok(&["leases", "export", &leases])).unwrap();
    let (path, orders) = (file.to_str().unwrap(), served.orders());

    // Imported unchanged; another processor continues with them.
    let copy = create_unpartitioned(&served, "copy");
    ok(&["leases", "import", path, &copy]);
    assert_eq!(positions(&copy), expected);
    import(&served, &items(20..25));
    assert_eq!(lag(&served, &copy), "5");
    handle(&served, &copy, &into, 25);

    for form in ["dotnet-v2", "dotnet-v3", "java-pk", "java-epk"] {
        let theirs = create_unpartitioned(&served, form);
        let import = ["leases", "import", path, &theirs, "--as", form, "--name", "p"];
        ok(&[&import[..], &["--source", &orders]].concat());
        let found = listed(&theirs);
        assert_eq!(found.len(), 2, "{form}: {found:?}");
        assert!(found.iter().all(|lease| lease["flavour"] == form), "{form}: {found:?}");
        assert_eq!(lag(&served, &theirs), "5", "{form}");
        ok(&["leases", "seek", &theirs, "--to", "beginning", "--source", &orders]);
        assert_eq!(lag(&served, &theirs), "25", "{form}");
        let watched = ok(&["watch", &orders, "--leases", &theirs, "--once", "--json"]);
        assert!(watched.contains(&format!("\"flavour\":\"{form}\"")), "{watched}");
    }
    served.kill();
}

#[test]
fn a_scaler_counts_leases_without_a_partition_key() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let (served, leases) = served();
    handle(&served, &leases, &into, 20);
    import(&served, &items(20..28));
    let orders = served.orders();
    let serve = ["lag", &orders, "--leases", &leases, "--serve", "0", "--every", "1"];
    let scaler = Running::start(&serve);
    let address = scaler.line().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let answer = support::text(stream);
    assert!(answer.contains("\"legacyLag\":8") && answer.contains("\"leases\":2"), "{answer}");
    scaler.kill();
    served.kill();
}
