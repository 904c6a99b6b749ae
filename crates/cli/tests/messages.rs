//! The messages of commands: refusals name the cause, tables distinguish states, and there are no colour codes
//! without a terminal.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use support::fleet::{seen, signal, start, until};
use support::{Running, Served, fails, headwater, import, items, ok, run, run_with_input};

const ESCAPE: char = '\u{1b}';

#[test]
fn a_data_directory_that_a_server_has_open_is_said_to_be_open_and_not_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, copy, out) = (path("data"), path("copy"), path("out"));
    let served = Served::on(dir.path().join("data").as_path(), "127.0.0.1:0");
    import(&served, &items(0..3));
    ok(&["backup", &served.url, &copy]);
    let doctor = ["doctor", "--data", &data];
    let open = format!("another process (pid {}) has the data directory {data} open", served.pid());
    for (arguments, remedy) in [
        (doctor.to_vec(), "headwater doctor http://HOST:PORT"),
        ([&doctor[..], &["--salvage", &out]].concat(), "headwater doctor http://HOST:PORT"),
        ([&doctor[..], &["--from-backup", &copy]].concat(), "headwater doctor http://HOST:PORT"),
        ([&doctor[..], &["--repair-catalog"]].concat(), "headwater doctor http://HOST:PORT"),
        (vec!["backup", &data, &out], "headwater backup http://HOST:PORT PLACE"),
        (vec!["serve", "--data", &data, "--http", "127.0.0.1:0", "--no-https"], "with --data"),
    ] {
        let output = run(&arguments);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        let is_clear = said.contains(&open) && said.contains("Stop it") && said.contains(remedy);
        assert!(is_clear, "{arguments:?}: {said}");
        assert!(!said.contains("damage") && !said.contains("problem"), "{arguments:?}: {said}");
        assert_eq!(said.matches("open").count(), 1, "said once: {said}");
    }
    assert!(fails(&["restore", &copy, &data]).contains("is not empty"));
    served.kill();
    // The lock file of a killed process does not block others.
    ok(&doctor);
}

#[test]
fn a_wrong_scheme_is_answered_with_the_right_one() {
    let any = "127.0.0.1:0";
    let arguments = ["serve", "--ephemeral", "--http", any, "--https", any, "--ready-json"];
    let served = Running::start(&arguments);
    let ready: serde_json::Value = serde_json::from_str(&served.line()).unwrap();
    let address = |scheme: &str| {
        let url = ready[scheme].as_str().unwrap();
        url.strip_prefix(&format!("{scheme}://")).unwrap().to_owned()
    };
    for (port, scheme, speaks) in [("http", "https", "plain HTTP"), ("https", "http", "TLS")] {
        let address = address(port);
        let url = format!("{scheme}://{address}");
        let orders = format!("{url}/shop/orders");
        let text = format!("{address} speaks {speaks}; use {port}://{address}");
        for arguments in [
            vec!["doctor", &url],
            vec!["tail", &orders],
            vec!["import", &orders, "-"],
            vec!["export", &orders, "-"],
            vec!["run", &orders, "--name", "test", "--exec", "cat"],
            vec!["lag", &orders],
            vec!["watch", &orders, "--once"],
            vec!["leases", "list", &orders],
            vec!["partitions", "list", &orders],
            vec!["backup", &url, "copy-that-is-never-made"],
        ] {
            let output = run(&arguments);
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(!output.status.success() && said.contains(&text), "{arguments:?}: {said}");
            assert_eq!(said.matches("speaks").count(), 1, "{arguments:?}: {said}");
        }
    }
}

#[test]
fn import_refuses_a_partition_key_that_is_not_the_containers() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let arguments = ["import", &served.orders(), "-", "--partition-key", "/id"];
    let output = run_with_input(&arguments, &items(1..2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("shop/orders is partitioned by /customer, not by /id"), "{said}");
    assert_eq!(ok(&["export", &served.orders(), "-"]).lines().count(), 1, "nothing was written");
}

#[test]
fn run_refuses_a_program_that_is_not_there_before_anything_starts() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let text = tempfile::NamedTempFile::new().unwrap();
    let not_executable = text.path().to_str().unwrap();
    for missing in ["no-such-program", "./no-such-program", not_executable] {
        let said = fails(&["run", &served.orders(), "--name", "test", "--exec", missing]);
        assert!(said.contains("no such executable file"), "{missing}: {said}");
    }
    let leases = fails(&["leases", "list", &format!("{}/shop/leases", served.url)]);
    assert!(!leases.contains("no leases"), "the lease container was not created: {leases}");
}

#[test]
fn run_on_a_missing_container_says_that_and_nothing_else() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let missing = format!("{}/shop/odrers", served.url);
    let output = run(&["run", &missing, "--name", "test", "--exec", "cat"]);
    assert!(!output.status.success());
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: there is no container shop/odrers; create it first, or correct the address\n"
    );
    let leases = fails(&["export", &format!("{}/shop/leases", served.url), "-"]);
    assert!(!leases.is_empty(), "the lease container was not created");
}

#[test]
fn a_change_that_is_put_away_is_announced_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let (dead, said) = (directory.path().join("dead"), directory.path().join("said"));
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let (orders, dead) = (served.orders(), dead.to_str().unwrap().to_owned());
    let arguments = ["run", &orders, "--name", "test", "--from", "beginning", "--attempts", "1"];
    let more = ["--dead-letters", &dead, "--exec", "false"];
    let mut child = headwater(&[&arguments[..], &more].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let text = || std::fs::read_to_string(&said).unwrap();
    until(&served, || text().contains("a change was moved to the dead letters: false ended with"));
    child.kill().unwrap();
    child.wait().unwrap();
    let text = text();
    assert!(!text.contains('{') && !text.contains(ESCAPE), "a sentence, no value: {text}");
    let told = text.lines().filter(|line| line.contains("moved to the dead letters")).count();
    assert_eq!(told, 1, "said once: {text}");
}

#[test]
fn lag_is_shown_by_processor_and_a_bound_looks_at_one() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..5));
    let orders = served.orders();
    let ahead = start(&served, "ahead", &into, &[]);
    until(&served, || seen(&into).len() == 5);
    let arguments = ["run", &orders, "--name", "late", "--from", "beginning", "--exec", "false"];
    let late = Running::start(&arguments);
    until(&served, || ok(&["lag", &orders]).matches("total").count() == 2);
    let table = ok(&["lag", &orders]);
    let heads: Vec<&str> = table.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(heads.len(), 2, "{table}");
    assert!(heads[0].starts_with("late") && heads[1].starts_with("test"), "{table}");
    for bound in [&["--max", "9"][..], &["--total"]] {
        let said = fails(&[&["lag", &orders], bound].concat());
        assert!(said.contains("name one with --processor"), "{said}");
    }
    until(&served, || ok(&["lag", &orders, "--processor", "test", "--total"]).trim() == "0");
    let said = fails(&["lag", &orders, "--processor", "late", "--max", "0"]);
    assert!(said.contains("5 transactions behind"), "{said}");
    ahead.kill();
    late.kill();
}

#[test]
fn leases_list_tells_running_from_ownerless_and_paused() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..5));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 5);
    let leases = format!("{}/shop/leases", served.url);
    let state = || {
        let table = ok(&["leases", "list", &leases]);
        table
            .lines()
            .find(|line| line.contains("-FF"))
            .unwrap()
            .rsplit(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    until(&served, || state() == "running");
    let table = ok(&["leases", "list", &leases]);
    assert!(table.contains("host only: 1 leases"), "{table}");
    ok(&["leases", "pause", &leases]);
    assert_eq!(state(), "paused");
    ok(&["leases", "resume", &leases]);
    until(&served, || state() == "running");
    signal(&running, "-TERM");
    until(&served, || state() == "ownerless");
}

#[test]
fn leases_of_a_killed_host_are_ownerless_after_their_expiration() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..5));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 5);
    let leases = format!("{}/shop/leases", served.url);
    let list = || ok(&["leases", "list", &leases]);
    until(&served, || list().contains("running"));
    running.kill();
    until(&served, || list().contains("ownerless"));
    assert!(!list().contains("running"), "{}", list());
    let watched = ok(&["watch", &served.orders(), "--once"]);
    assert!(watched.contains("ownerless") && !watched.contains("running"), "{watched}");
}

#[test]
fn a_key_ends_watch_also_while_the_server_does_not_answer() {
    let served = Served::in_memory(&[]);
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    import(&served, &items(0..5));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 5);
    let watch = format!("{} watch {}", env!("CARGO_BIN_EXE_headwater"), served.orders());
    let mut script = support::without_settings(std::process::Command::new("script"));
    script.args(["--quiet", "--flush", "--return", "--command", &watch, "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    // The screen is complete once its footer is shown.
    let mut shown = child.stdout.take().unwrap();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("q quits") {
        let mut bytes = [0; 4096];
        let count = std::io::Read::read(&mut shown, &mut bytes).unwrap();
        assert!(count > 0, "watch ended: {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&bytes[..count]);
    }
    let stop = |name: &str| {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([name, &served.pid().to_string()]).status().unwrap().success());
    };
    stop("-STOP");
    let clock = headwater_runtime::Runtime::system();
    // Long enough for the next read to be in progress, waiting for an answer that does not arrive.
    let _ = std::process::Command::new("sleep").arg("1.5").status();
    let pressed = clock.elapsed();
    std::io::Write::write_all(&mut keys, b"q").unwrap();
    let status = child.wait().unwrap();
    let took = clock.elapsed() - pressed;
    stop("-CONT");
    assert!(status.success());
    assert!(
        took < std::time::Duration::from_secs(5),
        "{took:?}: less than any time-out of a request"
    );
    running.kill();
}

#[test]
fn watch_uses_the_alternate_screen_and_quits_by_q() {
    let directory = tempfile::tempdir().unwrap();
    let into = directory.path().join("seen");
    let served = Served::in_memory(&[]);
    import(&served, &items(0..5));
    let running = start(&served, "only", &into, &[]);
    until(&served, || seen(&into).len() == 5);
    // util-linux's `script` runs the command on a terminal and forwards its own input.
    let watch = format!("{} watch {}", env!("CARGO_BIN_EXE_headwater"), served.orders());
    let mut script = support::without_settings(std::process::Command::new("script"));
    script.args(["--quiet", "--return", "--command", &watch, "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let clock = headwater_runtime::Runtime::system();
    let started = clock.elapsed();
    // Pressed repeatedly, because keys typed before the screen is ready may be lost.
    while child.try_wait().unwrap().is_none() {
        assert!(clock.elapsed() - started < support::PATIENCE, "q did not end it");
        std::io::Write::write_all(&mut keys, b"q").unwrap_or_default();
        // The request itself provides the delay.
        ok(&["lag", &served.orders(), "--total"]);
    }
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"), "{shown:?}");
    running.kill();
}

#[test]
fn a_terminal_has_colours_unless_no_color_is_set() {
    let served = Served::in_memory(&[]);
    import(&served, &items(0..1));
    let program = env!("CARGO_BIN_EXE_headwater");
    let tail = format!("{program} tail {} --from beginning --limit 1", served.orders());
    for (value, is_coloured) in [("", true), ("1", false)] {
        let mut script = support::without_settings(std::process::Command::new("script"));
        script.args(["--quiet", "--return", "--command", &tail, "/dev/null"]);
        script.env("NO_COLOR", value).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        // Kept open, because the end of its input would close the terminal.
        let keys = child.stdin.take();
        let shown = support::text(child.stdout.take().unwrap());
        assert!(child.wait().unwrap().success(), "{shown}");
        assert!(shown.contains("customer="), "{shown}");
        assert_eq!(shown.contains(ESCAPE), is_coloured, "NO_COLOR={value:?}: {shown:?}");
        drop(keys);
    }
}

#[test]
fn a_log_that_is_not_a_terminal_has_no_colour_codes() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut serve = headwater(&["serve", "--ephemeral", "--http", "127.0.0.1:0", "--no-https"]);
    let mut child = serve
        .arg("--ready-json")
        .env("HEADWATER_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    ok(&["doctor", ready["http"].as_str().unwrap()]);
    child.kill().unwrap();
    child.wait().unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("answered"), "requests were logged: {text}");
    assert!(!text.contains(ESCAPE), "{text}");
}
