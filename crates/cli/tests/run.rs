//! Several processes share the changes of a container while processes are killed and frozen, the server
//! restarts and ranges split. Nothing is lost.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use support::fleet::{Given, check_promises, given, seen, signal, start, until};
use support::{Running, Served, fails, import, items, ok};

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
    // On a clean stop, they release all leases.
    signal(&second, "-TERM");
    signal(&third, "-TERM");
    let leases = format!("{}/shop/leases", served.url);
    until(&served, || !ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\""));
    assert_eq!(ok(&["lag", &served.orders(), "--total", "--max", "0"]).trim(), "0");
    check_promises(&given(&into));
    served.kill();
}

#[test]
fn the_check_of_promises_can_fail() {
    let change = |epoch, id: &str, lsn| Given {
        lease: "-FF".to_owned(),
        epoch,
        key: "k".to_owned(),
        id: id.to_owned(),
        lsn,
    };
    let one: Vec<Given> = (1..9).map(|lsn| change(1, &lsn.to_string(), lsn)).collect();
    check_promises(&one);
    let again: Vec<Given> = (4..9).map(|lsn| change(2, &lsn.to_string(), lsn)).collect();
    check_promises(&[one.clone(), again].concat());
    let broken = [
        [one.clone(), vec![change(1, "3", 3)]].concat(),
        [one.clone(), vec![change(1, "8", 8)]].concat(),
        [one.clone(), (3..9).map(|lsn| change(2, &lsn.to_string(), lsn)).collect()].concat(),
    ];
    for all in broken {
        assert!(std::panic::catch_unwind(|| check_promises(&all)).is_err(), "{all:?}");
    }
}

/// Returns the values of a property in lines of JSON.
fn all_of(lines: &str, name: &str) -> Vec<String> {
    let value = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        json[name].to_string()
    };
    lines.lines().map(value).collect()
}

#[test]
fn leases_can_be_brought_elsewhere_and_nothing_comes_twice() {
    let directory = tempfile::tempdir().unwrap();
    let (into, file) = (directory.path().join("seen"), directory.path().join("leases"));
    let served = Served::in_memory(&[]);
    import(&served, &items(0..20));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 20);
    let leases = format!("{}/shop/leases", served.url);
    let refused = fails(&["leases", "reset", &leases, "--silence", "5"]);
    assert!(refused.contains("only is still working"), "{refused}");
    signal(&running, "-TERM");
    until(&served, || !ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\"only\""));
    let exported = ok(&["leases", "export", &leases]);
    std::fs::write(&file, &exported).unwrap();
    let deleted = ok(&["leases", "reset", &leases, "--silence", "5"]);
    assert!(deleted.starts_with("1 leases deleted"), "{deleted}");
    let none = fails(&["leases", "list", &leases]);
    assert!(none.contains("no leases"), "{none}");

    let elsewhere = format!("{}/shop/elsewhere", served.url);
    let path = file.to_str().unwrap();
    ok(&["leases", "import", path, &elsewhere]);
    let again = fails(&["leases", "import", path, &elsewhere]);
    assert!(again.contains("reset"), "{again}");
    import(&served, &items(20..30));
    let running = start(&served, "again", &into, &["--leases", &elsewhere]);
    until(&served, || seen(&into).len() == 30);
    assert_eq!(given(&into).len(), 30, "it went on where the leases were");
    check_promises(&given(&into));
    running.kill();
    served.kill();
}

#[test]
fn leases_can_be_given_the_form_of_java_and_set_to_a_time_there() {
    let directory = tempfile::tempdir().unwrap();
    let (into, file) = (directory.path().join("seen"), directory.path().join("leases"));
    let served = Served::in_memory(&[]);
    import(&served, &items(0..20));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 20);
    let leases = format!("{}/shop/leases", served.url);
    until(&served, || ok(&["lag", &served.orders(), "--total"]).trim() == "0");
    signal(&running, "-TERM");
    until(&served, || !ok(&["leases", "list", &leases, "--json"]).contains("\"owner\":\"only\""));
    std::fs::write(&file, ok(&["leases", "export", &leases])).unwrap();
    let positions = all_of(&ok(&["leases", "list", &leases, "--json"]), "position");

    let java = format!("{}/shop/java", served.url);
    let (path, orders) = (file.to_str().unwrap(), served.orders());
    let convert =
        ["leases", "import", path, &java, "--as", "java-pk", "--name", "j", "--source", &orders];
    let planned = ok(&[&convert[..], &["--dry-run"]].concat());
    assert!(planned.contains("\"LeaseToken\":\"0\"") && !planned.contains("hw."), "{planned}");
    ok(&convert);
    let listed = ok(&["leases", "list", &java, "--json"]);
    assert_eq!(all_of(&listed, "flavour"), ["\"java-pk\""]);
    assert_eq!(all_of(&listed, "position"), positions);
    let refused = fails(&["leases", "seek", &java, "--to", "beginning"]);
    assert!(refused.contains("--source"), "{refused}");
    ok(&["leases", "seek", &java, "--to", "beginning", "--source", &orders]);
    let listed = ok(&["leases", "list", &java, "--json"]);
    assert_eq!(all_of(&listed, "position"), ["\"\\\"0\\\"\""]);
    // And back into Headwater leases, which continue from there.
    std::fs::write(&file, ok(&["leases", "export", &java])).unwrap();
    let ours = format!("{}/shop/ours", served.url);
    let convert =
        ["leases", "import", path, &ours, "--as", "native", "--name", "test", "--source", &orders];
    ok(&convert);
    std::fs::remove_file(&into).unwrap();
    let running = start(&served, "back", &into, &["--leases", &ours]);
    until(&served, || seen(&into).len() == 20);
    running.kill();
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
    let lease = all_of(&ok(&["leases", "list", &leases, "--json"]), "lease").remove(0);
    let lease = lease.trim_matches('"').to_owned();
    ok(&["leases", "pause", &leases, "--lease", &lease]);
    let state = || all_of(&ok(&["leases", "list", &leases, "--json"]), "state");
    assert_eq!(state(), ["\"paused\""]);
    ok(&["leases", "resume", &leases, "--lease", &lease]);
    // An idle host writes nothing, so it notices the pause and the resume with its next checkpoint.
    assert_eq!(state(), ["\"ownerless\""]);
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

#[test]
fn positions_kept_under_a_name_can_be_gone_back_to_also_after_a_split() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..10));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 10);
    until(&served, || ok(&["lag", &served.orders(), "--total"]).trim() == "0");
    let leases = format!("{}/shop/leases", served.url);
    let kept = ok(&["leases", "snapshot", &leases, "--name", "before"]);
    assert_eq!(kept.trim(), "1 positions kept as before");
    ok(&["partitions", "split", &served.orders(), "0"]);
    import(&served, &items(10..30));
    until(&served, || seen(&into).len() == 30);
    until(&served, || ok(&["lag", &served.orders(), "--total"]).trim() == "0");
    let missing = fails(&["leases", "seek", &leases, "--to", "snapshot:after"]);
    assert!(missing.contains("\"after\""), "{missing}");
    assert!(ok(&["leases", "snapshot", &leases]).starts_with("before "));
    std::fs::remove_file(&into).unwrap();
    let moved = ok(&["leases", "seek", &leases, "--to", "snapshot:before"]);
    assert_eq!(moved.trim(), "2 leases go on from where they were as before");
    until(&served, || seen(&into).len() == 20);
    let again = seen(&into);
    assert!(again.iter().all(|id| id.parse::<u32>().unwrap() >= 10), "{again:?}");
    running.kill();
    served.kill();
}
