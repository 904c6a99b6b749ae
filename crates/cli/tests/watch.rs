//! `watch` and `lag --serve` on a running processor, as processes on a real server.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use support::fleet::{seen, signal, start, until};
use support::{Running, Served, fails, headwater, import, items, ok};

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn a_watcher_sees_who_works_on_what_how_far_behind_and_how_fast() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&["--partitions", "2"]);
    import(&served, &items(0..40));
    let orders = served.orders();
    let none = fails(&["watch", &orders, "--once"]);
    assert!(none.contains("lease"), "{none}");

    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 40);
    until(&served, || ok(&["lag", &orders, "--total"]).trim() == "0");
    let table = ok(&["watch", &orders, "--once"]);
    let head = "lease owner position behind for /s age state";
    let head: Vec<&str> = head.split(' ').collect();
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&head), "{table}");
    assert!(table.contains("host only: 2 leases"), "{table}");
    assert!(!table.contains('\u{1b}'), "nothing but text where nobody looks: {table:?}");
    let of_lease =
        |line: &&Vec<&str>| line.get(1) == Some(&"only") && line.last() == Some(&"running");
    assert_eq!(lines.iter().filter(of_lease).count(), 2, "{table}");

    // It is watched while the program is blocked, and after it continues.
    signal(&running, "-STOP");
    import(&served, &items(40..80));
    let watching = Running::start(&["watch", &orders, "--json"]);
    let first = json(&watching.line());
    assert_eq!((&first["transactions"], &first["paused"]), (&40.into(), &false.into()), "{first}");
    assert_eq!(first["hosts"][0]["name"], "only");
    assert_eq!(first["leases"][0]["perSecond"], Value::Null, "one look knows no speed");
    signal(&running, "-CONT");
    let (mut fastest, mut behind) = (0.0_f64, 40);
    for _ in 0..60 {
        let seen = json(&watching.line());
        let rates =
            seen["leases"].as_array().unwrap().iter().filter_map(|one| one["perSecond"].as_f64());
        fastest = fastest.max(rates.sum());
        behind = seen["transactions"].as_u64().unwrap();
        if behind == 0 && fastest > 0.0 {
            break;
        }
    }
    assert!(behind == 0 && fastest > 0.0, "{behind} behind, {fastest} in a second");

    // The leases of a host that stopped cleanly have no owner, and the table shows that.
    signal(&running, "-TERM");
    let owners = |seen: &Value| {
        let leases = seen["leases"].as_array().unwrap().iter();
        leases.filter(|lease| !lease["owner"].is_null()).count()
    };
    let mut left = 2;
    for _ in 0..60 {
        left = owners(&json(&watching.line()));
        if left == 0 {
            break;
        }
    }
    assert_eq!(left, 0);
    watching.kill();
    served.kill();
}

#[test]
fn leases_of_java_are_watched_too() {
    let directory = tempfile::tempdir().unwrap();
    let (into, file) = (directory.path().join("seen"), directory.path().join("leases"));
    let served = Served::in_memory(&[]);
    import(&served, &items(0..10));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 10);
    until(&served, || ok(&["lag", &served.orders(), "--total"]).trim() == "0");
    signal(&running, "-TERM");
    let leases = format!("{}/shop/leases", served.url);
    until(&served, || !ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\"only\""));
    std::fs::write(&file, ok(&["leases", "export", &leases])).unwrap();
    let (java, orders) = (format!("{}/shop/java", served.url), served.orders());
    let import_as = ["leases", "import", file.to_str().unwrap(), &java, "--as", "java-pk"];
    ok(&[&import_as[..], &["--name", "j", "--source", &orders]].concat());
    import(&served, &items(10..13));
    let seen = json(ok(&["watch", &orders, "--leases", &java, "--once", "--json"]).trim());
    assert_eq!(seen["leases"][0]["flavour"], "java-pk", "{seen}");
    assert_eq!(
        (&seen["transactions"], &seen["hosts"]),
        (&3.into(), &serde_json::json!([])),
        "{seen}"
    );
    served.kill();
}

/// Sends one request. Returns the status and the body.
fn ask(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[test]
fn a_scaler_is_told_how_many_hosts_there_should_be() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&["--partitions", "2"]);
    import(&served, &items(0..40));
    let orders = served.orders();
    let scaler = Running::start(&["lag", &orders, "--serve", "0", "--every", "1", "--batch", "5"]);
    let url = scaler.line();
    let address = url.strip_prefix("http://").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let told = || json(&ask(address, "GET /").1);
    // No host has started, so there is no lease container: one host is required.
    let nobody = told();
    let figures = |told: &Value| {
        ["legacyLag", "leases", "workers", "instances"].map(|name| told[name].as_u64().unwrap())
    };
    assert_eq!(figures(&nobody), [1, 0, 0, 1], "{nobody}");
    assert_eq!(nobody["transactions"], Value::Null, "what is not known is not made up");

    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 40);
    until(&served, || figures(&told()) == [0, 2, 1, 0]);
    signal(&running, "-STOP");
    import(&served, &items(40..48));
    until(&served, || figures(&told()) == [8, 2, 1, 2]);
    import(&served, &items(48..80));
    until(&served, || figures(&told()) == [40, 2, 1, 2]);
    until(&served, || told()["vote"] == "out");
    assert_eq!(ask(address, "POST /").0, 405);
    assert_eq!(ask(address, "GET /elsewhere").0, 404);
    signal(&running, "-CONT");
    until(&served, || figures(&told())[0] == 0);
    served.kill();
    // The lag is unknown, so no number is returned.
    let clock = headwater_runtime::Runtime::system();
    while ask(address, "GET /").0 == 200 {
        assert!(clock.elapsed() < support::PATIENCE, "it goes on telling what it saw long ago");
    }
    let (status, body) = ask(address, "GET /");
    assert_eq!((status, json(&body)["instances"].clone()), (503, Value::Null), "{body}");
    assert!(!json(&body)["error"].as_str().unwrap().is_empty());
    scaler.kill();
}

#[test]
fn a_scaler_of_several_processors_has_to_be_told_which() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..3));
    let one = start(&served, "one", &into, &[]);
    let other = Running::start(&["run", &served.orders(), "--name", "other", "--exec", "true"]);
    let orders = served.orders();
    let watched = || headwater(&["watch", &orders, "--once", "--json"]).output().unwrap().stdout;
    until(&served, || String::from_utf8(watched()).unwrap().lines().count() == 2);
    let scaler = Running::start(&["lag", &orders, "--serve", "0"]);
    let address = scaler.line();
    let (status, body) = ask(address.strip_prefix("http://").unwrap(), "GET /");
    assert!(status == 503 && body.contains("--processor"), "{status} {body}");
    let named = Running::start(&["lag", &orders, "--serve", "0", "--processor", "other"]);
    let address = named.line();
    assert_eq!(ask(address.strip_prefix("http://").unwrap(), "GET /").0, 200);
    for running in [one, other, scaler, named] {
        running.kill();
    }
    served.kill();
}
