//! The examples run to their end and print the expected text.

#![allow(clippy::unwrap_used)] // a failed test names the line

use std::path::PathBuf;
use std::process::Command;

/// Path of a built example. Cargo builds examples with the tests, unless it runs a single test target.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    let path = profile.join("examples").join(name);
    if !path.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--package", env!("CARGO_PKG_NAME"), "--example", name]);
        cargo.args(if cfg!(debug_assertions) { &[][..] } else { &["--release"] });
        cargo.arg("--target-dir").arg(profile.parent().unwrap());
        assert!(cargo.status().unwrap().success(), "example {name} cannot be built");
    }
    path
}

#[track_caller]
fn check(name: &str, says: &[&str]) {
    let output = Command::new(built(name)).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed: {text}{complaints}");
    for expected in says {
        assert!(text.contains(expected), "{name} does not say {expected:?}: {text}");
    }
}

#[test]
fn the_quickstart_runs() {
    check(
        "quickstart",
        &["heard while it happened:", "lsn 4", "from the beginning, later:", r#""total":150"#],
    );
}

#[test]
fn the_leaderboard_resumes_where_it_was() {
    // Twenty players: the newest of each player's hundred changes is read, then one more round.
    let says = ["after five rounds (20 changes read", "one more round (40 changes read", "1. p"];
    check("leaderboard", &says);
}
