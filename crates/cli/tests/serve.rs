//! `headwater serve`: invalid settings are refused, and the start messages are correct.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use support::{Running, fails, ok};

#[test]
fn what_everyone_may_use_listens_on_loopback_alone() {
    let dir = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let long = key("long", "bG9uZyBlbm91Z2ggdGhhdCBpdCBjYW5ub3QgYmUgZ3Vlc3NlZCBieSBhbnlvbmU=");
    let short = key("short", "QUJD");
    let known = key("known", headwater_protocol::auth::EMULATOR_KEY);
    let open = ["serve", "--ephemeral", "--no-https", "--http", "0.0.0.0:0"];
    for (more, says) in [
        (&[][..], "the primary key is the well-known key"),
        (
            &["--key-file", &long, "--secondary-key-file", &known],
            "the secondary key is the well-known",
        ),
        (
            &["--key-file", &long, "--read-only-key-file", &known],
            "the read-only key is the well-known",
        ),
        (&["--key-file", &short], "the primary key has 3 bytes"),
        (&["--key-file", &long, "--no-auth"], "authentication is off"),
        (&["--key-file", &long, "--any-identity"], "any identity token is accepted"),
    ] {
        let said = fails(&[&open[..], more].concat());
        assert!(said.contains(says) && said.contains("0.0.0.0:0"), "{more:?}: {said}");
    }
    let said = fails(&["serve", "--ephemeral", "--cors-origin", "*"]);
    assert!(said.contains("\"*\" is not an origin"), "{said}");
}

#[test]
fn the_line_at_the_start_says_where_data_is_and_that_authentication_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let common = ["serve", "--no-https", "--http", "localhost:0"];
    let line = |more: &[&str]| Running::start(&[&common[..], more].concat()).line();
    let said = line(&["--data", data]);
    assert!(said.contains(&format!("data in {data}")) && !said.contains("off"), "{said}");
    let said = line(&["--ephemeral", "--no-auth"]);
    assert!(said.contains("authentication is off (--no-auth)"), "{said}");
    let ready: serde_json::Value =
        serde_json::from_str(&line(&["--data", data, "--no-auth", "--ready-json"])).unwrap();
    assert_eq!((&ready["authentication"], &ready["data"]), (&false.into(), &data.into()));
    for (more, expected) in [(&["--any-identity"][..], false), (&[], true)] {
        let said = line(&[&["--ephemeral", "--ready-json"], more].concat());
        let ready: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(ready["authentication"], expected, "{more:?}");
    }
}

#[test]
fn a_name_to_listen_on_is_resolved() {
    let started = Running::start(&[
        "serve",
        "--ephemeral",
        "--no-https",
        "--http",
        "localhost:0",
        "--ready-json",
    ]);
    let ready: serde_json::Value = serde_json::from_str(&started.line()).unwrap();
    ok(&["doctor", ready["http"].as_str().unwrap()]);
    let said = fails(&["serve", "--ephemeral", "--no-https", "--http", "no port"]);
    assert!(said.contains("cannot listen on \"no port\""), "{said}");
}

/// Returns every directory and file under a directory, with the bits in which its mode differs from 0700 and 0600.
#[cfg(unix)]
fn modes(dir: &std::path::Path) -> Vec<(std::path::PathBuf, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let mut found = vec![(dir.to_owned(), mode(dir) ^ 0o700)];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(modes(&path));
        } else {
            let others = mode(&path) ^ 0o600;
            found.push((path, others));
        }
    }
    found
}

#[cfg(unix)]
#[test]
fn data_and_backups_are_for_their_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (data, copy, restored) = (path("data"), path("copy"), path("restored"));
    let any = "127.0.0.1:0";
    let arguments = ["serve", "--data", &data, "--http", any, "--https", any, "--ready-json"];
    let process = Running::start(&arguments);
    let ready: serde_json::Value = serde_json::from_str(&process.line()).unwrap();
    let orders = format!("{}/shop/orders", ready["http"].as_str().unwrap());
    let import = ["import", &orders, "-", "--partition-key", "/customer"];
    assert!(support::run_with_input(&import, &support::items(0..40)).status.success());
    process.kill();
    ok(&["backup", &data, &copy]);
    ok(&["restore", &copy, &restored]);
    ok(&["doctor", "--data", &restored]);
    for place in [&data, &copy, &restored] {
        let found = modes(std::path::Path::new(place));
        assert!(found.len() > 5, "{place} holds {found:?}");
        let open: Vec<_> = found.iter().filter(|(_, others)| *others != 0).collect();
        assert!(open.is_empty(), "{open:?}");
    }
    let ignored = std::fs::read_to_string(dir.path().join("data/.gitignore")).unwrap();
    assert_eq!(ignored, "*\n");
}
