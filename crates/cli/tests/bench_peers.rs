//! `headwater bench peers` run as a process, with a Headwater server in the role of a peer.
//!
//! The test checks no timings and installs nothing.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A part of each question, in their order, and the expected side of its ratio.
const QUESTIONS: &[(&str, Option<&str>)] = &[
    ("durable writes, 64 connections ÷ best Cosmos peer", Some("≥ 2")),
    ("durable writes, 64 connections ÷ PostgreSQL", Some("≥ 2")),
    ("durable writes, 64 connections ÷ Redis", None),
    ("point reads, 64 connections ÷ best Cosmos peer", Some("≥ 2")),
    ("point reads, 64 connections ÷ PostgreSQL", None),
    ("feed from the beginning ÷ pgoutput", Some("≥ 3")),
    ("write → waiting reader, p99 ÷ pgoutput", Some("≤ 1")),
    ("resident memory, 1000 items ÷ smallest Cosmos peer", Some("≤ 0.2")),
];

/// A data directory and a cache that holds a stand-in for the cosmium program.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(place.data()).unwrap();
        // Run by root, other users need access to the directory.
        for dir in [place.dir.path(), &place.data()] {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        place
    }

    fn with_cosmium(script: &str) -> Place {
        let place = Place::new();
        let program = place.cache().join("go/server");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    /// Creates a place whose stand-in starts our server with the address from cosmium's arguments.
    fn with_our_server() -> Place {
        let program = env!("CARGO_BIN_EXE_headwater");
        Place::with_cosmium(&format!(
            "echo $$ > \"$0.pid\"\n\
             exec {program} serve --ephemeral --no-https --http \"$2:$4\""
        ))
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(["bench", "peers", "--quick", "--rounds", "1", "--json", "--dir"]);
        command.arg(self.data()).arg("--cache").arg(self.cache()).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    fn bench(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).args(["--items", "1000"]).output().unwrap();
        let report = parsed(&output);
        assert_empty(&self.data());
        report
    }

    /// Checks that the started peer has ended.
    fn assert_peer_ended(&self) {
        let number = std::fs::read_to_string(self.cache().join("go/server.pid")).unwrap();
        let process = Path::new("/proc").join(number.trim());
        assert!(!process.exists(), "{} still runs", process.display());
    }
}

fn parsed(output: &Output) -> Value {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn assert_empty(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "the benchmark left {left:?} behind");
}

fn peer<'a>(report: &'a Value, name: &str) -> &'a Value {
    let peers = report["peers"].as_array().unwrap();
    peers.iter().find(|peer| peer["name"] == name).unwrap()
}

#[test]
fn peers_that_are_there_are_compared_and_the_others_are_named() {
    let place = Place::with_our_server();
    let report = place.bench(&["--only", "cosmium,cosmosdb-server"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), QUESTIONS.len());
    for (row, (question, hold)) in rows.iter().zip(QUESTIONS) {
        assert!(row["question"].as_str().unwrap().starts_with(question), "{row}");
        assert!(row["ours"].as_f64().is_some_and(|ours| ours > 0.0), "{row}");
        if question.contains("Cosmos peer") {
            assert!(row["limit"].as_f64().is_some_and(|limit| limit > 0.0), "{row}");
            assert_eq!(row["limit"], row["cosmium"], "{row}");
            assert_eq!(row["hold"].as_str(), *hold, "{row}");
            assert!(row["holds"].is_boolean(), "{row}");
        } else {
            // Without PostgreSQL and Redis nothing can hold or fail.
            assert!(row["limit"].is_null() && row["holds"].is_null(), "{row}");
        }
    }
    assert!(peer(&report, "cosmium")["absent"].is_null(), "{report}");
    let reason = peer(&report, "cosmosdb-server")["absent"].as_str().unwrap();
    assert!(reason.contains("--install would run npm install"), "{reason}");
    place.assert_peer_ended();
}

#[test]
fn a_peer_that_does_not_start_is_left_out_with_its_last_words() {
    let place = Place::with_cosmium("echo the moon is wrong >&2; exit 7");
    let report = place.bench(&["--only", "cosmium"]);
    let reason = peer(&report, "cosmium")["absent"].as_str().unwrap();
    assert!(reason.contains("the moon is wrong"), "{reason}");
    assert!(report["rows"][0]["ours"].as_f64().is_some_and(|ours| ours > 0.0), "{report}");
}

/// PostgreSQL and Redis are used only if they are installed. If absent, the output must say so; if present,
/// they must work.
#[test]
fn what_this_machine_has_is_measured() {
    let place = Place::new();
    let report = place.bench(&["--only", "postgres,redis"]);
    for (name, questions) in
        [("postgres", &["÷ PostgreSQL", "÷ pgoutput"][..]), ("redis", &["÷ Redis"][..])]
    {
        let peer = peer(&report, name);
        if peer["version"].is_null() {
            assert!(peer["absent"].as_str().unwrap().contains("is not in"), "{peer}");
            continue;
        }
        assert!(peer["absent"].is_null(), "{peer}");
        let rows = report["rows"].as_array().unwrap().iter();
        for row in rows.filter(|row| {
            questions.iter().any(|text| row["question"].as_str().unwrap().contains(text))
        }) {
            assert!(row["limit"].as_f64().is_some_and(|limit| limit > 0.0), "{row}");
        }
    }
}

#[test]
fn a_signal_ends_everything_that_was_started() {
    let place = Place::with_our_server();
    let mut running = place
        .command(&["--only", "cosmium", "--items", "1000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = place.cache().join("go/server.pid");
    // It fills for much longer than this takes.
    while !started.exists() {
        assert!(running.try_wait().unwrap().is_none(), "it ended before it started the peer");
        assert!(Command::new("sleep").arg("0.05").status().unwrap().success());
    }
    let number = running.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &number]).status().unwrap().success());
    assert!(!running.wait().unwrap().success());
    place.assert_peer_ended();
    assert_empty(&place.data());
}
