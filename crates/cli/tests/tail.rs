//! `headwater tail` prints every change, in order, across restarts and splits.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::{
    Account, ContainerDefinition, Continuation, FeedError, FeedRequest, FeedStart, Lsn, Options,
};
use std::collections::BTreeMap;
use std::time::Duration;
use support::{Running, Served, fails, headwater, ids, import, items, ok, run};

/// Checks that the changes of one customer are printed in the order of the writes.
fn in_order_per_customer(lines: &[String]) {
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    for id in ids(lines) {
        let before = last.insert(id % 7, id);
        assert!(before.is_none_or(|before| before < id), "{before:?} before {id}");
    }
}

#[test]
fn tail_prints_what_import_wrote_in_order() {
    let served = Served::in_memory(&["--partitions", "3"]);
    import(&served, &items(0..200));
    let orders = served.orders();
    let out = ok(&["tail", &orders, "--from", "beginning", "--limit", "200"]);
    let lines: Vec<String> = out.lines().map(str::to_owned).collect();
    in_order_per_customer(&lines);
    let mut seen = ids(&lines);
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
    assert!(out.contains("\"n\":7.50,"), "numbers keep their text");
}

#[test]
fn tail_from_now_prints_only_what_comes() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..5));
    let tail = Running::start(&["tail", &served.orders()]);
    // Its start is not visible from outside, so write until something is printed.
    let mut first = None;
    for round in 1..100 {
        import(&served, &items(round * 10..round * 10 + 5));
        first = tail.line_soon();
        if first.is_some() {
            break;
        }
    }
    let seen = ids(&[first.expect("a later write is seen")]);
    assert!(seen[0] >= 10, "what was before is not printed: {seen:?}");
}

#[test]
fn tail_goes_on_from_its_position_after_the_server_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let served = Served::on(&data, "127.0.0.1:0");
    let address = served.address();
    import(&served, &items(0..50));
    let orders = served.orders();
    let arguments = ["tail", &orders, "--from", "beginning", "--limit", "20"];
    let first = headwater(&arguments).output().unwrap();
    let stderr = String::from_utf8(first.stderr).unwrap();
    let position = stderr.rsplit("--from ").next().unwrap().trim().to_owned();
    let mut seen: Vec<String> =
        String::from_utf8(first.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(seen.len(), 20);
    served.kill();
    let served = Served::on(&data, &address);
    let rest = ok(&["tail", &served.orders(), "--from", &position, "--limit", "30"]);
    seen.extend(rest.lines().map(str::to_owned));
    in_order_per_customer(&seen);
    let mut seen = ids(&seen);
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<_>>(), "each once: none lost, none twice");
}

#[test]
fn tail_reconnects_by_itself_when_the_server_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let served = Served::on(&data, "127.0.0.1:0");
    let address = served.address();
    import(&served, &items(0..10));
    let tail = Running::start(&["tail", &served.orders(), "--from", "beginning"]);
    let mut lines = tail.lines(10);
    served.kill();
    let served = Served::on(&data, &address);
    import(&served, &items(10..20));
    lines.extend(tail.lines(10));
    in_order_per_customer(&lines);
    assert_eq!(ids(&lines).iter().sum::<u32>(), (0..20).sum::<u32>());
}

#[test]
fn tail_survives_splits_and_merges_while_it_reads() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..10));
    let orders = served.orders();
    let tail = Running::start(&["tail", &orders, "--from", "beginning"]);
    let mut lines = tail.lines(10);
    ok(&["partitions", "split", &orders, "0"]);
    import(&served, &items(10..40));
    lines.extend(tail.lines(30));
    ok(&["partitions", "split", &orders, "1"]);
    import(&served, &items(40..70));
    lines.extend(tail.lines(30));
    ok(&["partitions", "merge", &orders, "3", "4"]);
    import(&served, &items(70..100));
    lines.extend(tail.lines(30));
    assert_eq!(tail.line_soon(), None, "nothing comes twice");
    in_order_per_customer(&lines);
    let mut seen = ids(&lines);
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

#[test]
fn tail_keeps_its_position_in_a_file() {
    let served = Served::in_memory(&["--partitions", "2"]);
    import(&served, &items(0..30));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("position");
    let file = file.to_str().unwrap();
    let orders = served.orders();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let arguments = ["tail", &orders, "--from", "beginning", "--resume", file, "--limit", "10"];
        seen.extend(ids(&ok(&arguments).lines().map(str::to_owned).collect::<Vec<_>>()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..30).collect::<Vec<_>>());
}

#[test]
fn tail_shows_every_version_and_people_can_read_it() {
    let served = Served::in_memory(&[]);
    let orders = served.orders();
    import(&served, &items(0..1));
    import(&served, &items(0..1));
    let all = ["tail", &orders, "--mode", "all", "--from", "beginning", "--limit", "2"];
    let out = ok(&all);
    assert!(out.lines().next().unwrap().contains("\"operationType\":\"create\""), "{out}");
    assert!(out.lines().nth(1).unwrap().contains("\"operationType\":\"replace\""), "{out}");
    let out = ok(&[&all[..], &["--format", "text"]].concat());
    assert!(out.contains("create  0  customer=\"c0\" n=0.50"), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours where there is no terminal");
}

#[test]
fn what_cannot_be_tailed_is_said_in_one_clear_line() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let orders = served.orders();
    for (arguments, said) in [
        (vec!["tail", "shop"], "names a database but no container"),
        (vec!["tail", "ftp://x/a/b"], "has no supported scheme"),
        (vec!["tail", "nope:shop/orders"], "there is no context \"nope\""),
        (vec!["tail", "http://192.0.2.1:9/shop/orders"], "there is no key for"),
        (vec!["tail", &orders, "--ranges", "7"], "there is no range 7"),
        (vec!["tail", &orders, "--mode", "all", "--from", "1h"], "not from a time"),
    ] {
        let line = fails(&arguments);
        assert!(line.starts_with("error: ") && line.contains(said), "{arguments:?}: {line}");
    }
    let nowhere = format!("{}/shop/nothing", served.url);
    assert!(fails(&["tail", &nowhere]).contains("container nothing does not exist"));
    let wrong = headwater(&["tail", &orders]).env("HEADWATER_KEY", "QUJD").output().unwrap();
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("does not accept the key"), "{said}");
}

/// Splits ranges while items are being written, as fast as the server accepts both.
#[test]
fn tail_loses_nothing_when_ranges_split_under_a_running_import() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let orders = served.orders();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("items.ndjson");
    std::fs::write(&file, items(1..3000)).unwrap();
    let tail = Running::start(&["tail", &orders, "--from", "beginning"]);
    let mut lines = tail.lines(1);
    let _import = Running::start(&["import", &orders, file.to_str().unwrap()]);
    for range in ["0", "1", "2", "3"] {
        lines.extend(tail.lines(300));
        ok(&["partitions", "split", &orders, range]);
    }
    let all = 3000 - lines.len();
    lines.extend(tail.lines(all));
    assert_eq!(tail.line_soon(), None, "nothing comes twice");
    in_order_per_customer(&lines);
    let mut seen = ids(&lines);
    seen.sort_unstable();
    assert_eq!(seen, (0..3000).collect::<Vec<_>>());
}

#[test]
fn tail_begins_at_a_time_and_refuses_positions_of_another_container() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..3));
    let orders = served.orders();
    let out = ok(&["tail", &orders, "--from", "1h", "--limit", "3"]);
    assert_eq!(out.lines().count(), 3);
    let other = format!("{}/shop/other", served.url);
    let input = support::run_with_input(
        &["import", &other, "-", "--partition-key", "/customer"],
        &items(0..1),
    );
    assert!(input.status.success());
    let printed = headwater(&["tail", &other, "--from", "beginning", "--limit", "1"]).output();
    let stderr = String::from_utf8(printed.unwrap().stderr).unwrap();
    let position = stderr.rsplit("--from ").next().unwrap().trim();
    let refused = fails(&["tail", &orders, "--from", position]);
    assert!(refused.contains("the position is of another container"), "{refused}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_tail_says_where_to_go_on() {
    use std::process::Stdio;
    let served = Served::in_memory(&[]);
    import(&served, &items(0..3));
    let mut tail = headwater(&["tail", &served.orders(), "--from", "beginning"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(tail.stdout.take().unwrap());
    for _ in 0..3 {
        std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    }
    let id = rustix::process::Pid::from_child(&tail);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let said = support::text(tail.stderr.take().unwrap());
    assert!(tail.wait().unwrap().success());
    assert!(said.starts_with("to go on from here: --from "), "{said}");
}

#[test]
fn tail_filters_in_the_server_and_its_positions_stay_good() {
    let served = Served::in_memory(&["--partitions", "2"]);
    import(&served, &items(0..40));
    let orders = served.orders();
    let begin = ["tail", &orders, "--from", "beginning", "--limit", "5"];
    let filter = [
        "--where",
        "c.id = '7' OR c.id IN ('36', '37', '38', '39')",
        "--select",
        "c.id, 'é' AS mark",
    ];
    let out = ok(&[&begin[..], &filter[..]].concat());
    let lines: Vec<String> = out.lines().map(str::to_owned).collect();
    let mut seen = ids(&lines);
    seen.sort_unstable();
    assert_eq!(seen, [7, 36, 37, 38, 39]);
    assert!(lines[0].contains(r#""mark":"é","_lsn":"#), "{out}");
    let refused = fails(&["tail", &orders, "--changed", "/n"]);
    assert!(refused.contains("all versions"), "{refused}");
    // A syntax error is shown with the text and a caret under it.
    let complaint = |option: &str, text: &str| {
        let output = run(&["tail", &orders, option, text]);
        assert!(!output.status.success(), "{text}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(complaint("--where", "c.n >").contains("unexpected end"));
    let refused = complaint("--where", "c.n = = 1");
    let lines: Vec<&str> = refused.lines().collect();
    assert!(lines[0].starts_with("error: --where: 1:7: Syntax error"), "{refused}");
    assert_eq!(lines[2..], ["1 | c.n = = 1", "  |       ^"], "{refused}");
    let refused = complaint("--select", "c.id, STARTWITH(c.id, 'a')");
    assert!(refused.contains("Did you mean 'STARTSWITH'?"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_position_that_tail_prints_works_also_where_history_of_several_ranges_has_ended() {
    let mut options = Options::default();
    (options.history, options.segment_bytes) = (Duration::ZERO, 4 << 10);
    options.maintenance_interval = Duration::from_millis(20);
    let account = Account::ephemeral_with(options).await.unwrap();
    let shop = account.create_database_if_absent("shop").await.unwrap();
    let definition = ContainerDefinition::new("orders", "/customer").unwrap();
    let orders = shop.create_container_with(definition, 2).await.unwrap();
    let mut config = Config::emulator().unwrap();
    config.http = Some(([127, 0, 0, 1], 0).into());
    config.https = None;
    let runtime = Runtime::system();
    let server = Server::start(config, account.clone(), runtime.clone()).await.unwrap();
    let address = format!("http://{}/shop/orders", server.http().unwrap());
    let tail = |from: &str| {
        let all = ["tail", &address, "--mode", "all", "--format", "text", "--limit", "1"];
        run(&[&all[..], &["--from", from]].concat())
    };
    let printed = |output: &std::process::Output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let (_, position) = said.rsplit_once("--from ").unwrap_or_else(|| panic!("{said}"));
        position.lines().next().unwrap().to_owned()
    };
    let write = async |round: u32| {
        for customer in 0..8 {
            let pad = "p".repeat(400);
            let body =
                format!(r#"{{"id":"1","customer":"c{customer}","n":{round},"pad":"{pad}"}}"#);
            orders.upsert(body).await.unwrap();
        }
    };
    write(0).await;
    let old = printed(&tail("beginning"));
    // Wait until neither range keeps its first changes.
    let is_trimmed = async |id: headwater_store::PartitionId| {
        let start = FeedStart::After(Continuation::Single(Lsn::ZERO));
        let request = FeedRequest::new(start).all_versions().of_range(id);
        matches!(orders.read_feed(&request).await, Err(FeedError::BeforeRetention { .. }))
    };
    let mut rounds = 1..2_000;
    for range in orders.ranges() {
        while !is_trimmed(range.id).await {
            write(rounds.next().expect("history ends")).await;
        }
    }
    // Wait until maintenance has nothing left to drop.
    let oldest = async || {
        let start = FeedStart::After(Continuation::Single(Lsn::ZERO));
        match orders.read_feed(&FeedRequest::new(start).all_versions()).await {
            Err(FeedError::BeforeRetention { position, .. }) => position.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let mut before = String::new();
    while before != oldest().await {
        before = oldest().await;
        runtime.sleep(Duration::from_millis(300)).await;
    }
    let refused = tail(&old);
    assert!(!refused.status.success(), "{refused:?}");
    // Asked of each range: a tail that is limited can end before it has read all of them.
    let check = async |position: String| {
        let position: Continuation = position.parse().unwrap();
        for range in orders.ranges() {
            let request = FeedRequest::new(FeedStart::After(position.clone())).all_versions();
            let page = orders.read_feed(&request.of_range(range.id)).await;
            assert!(page.is_ok(), "{position}, range {}: {page:?}", range.id);
        }
    };
    check(printed(&refused)).await;
    // Nothing was read of one of the ranges, but its position is printed too.
    let from_beginning = tail("beginning");
    assert!(from_beginning.status.success());
    check(printed(&from_beginning)).await;
    drop(server);
}
