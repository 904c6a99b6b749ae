//! `headwater bench store` run as a process: its JSON has every question and the documented shape.
//!
//! The test checks no timings, because they depend on the machine.

use serde_json::Value;
use std::process::Command;

/// A part of each question that must be present.
const QUESTIONS: &[&str] = &[
    "durable commits, 1 writer",
    "durable items, 64 writers",
    "CPU per durable write, 64 writers",
    "feed, pages of 1000, fresh",
    "feed, pages of 1000, 1 update per item",
    "empty polls",
    "write → seen by a waiting reader, p50",
    "write → seen by a waiting reader, p99",
    "start to first answer, new directory",
    "start to first answer, empty",
    "start to first answer, 2 k items, closed",
    "start to first answer, 2 k items, kill -9",
    "with history: disk ÷ live bytes",
    "disk ÷ live bytes, 1 update per item, compacted",
    "resident memory, idle",
    "resident memory, 2 k items",
    "point reads",
    "scan in key order",
];

/// Rows in which peers are measured too.
const COMPARED: &[&str] = &["durable", "CPU per", "feed", "empty polls", "disk", "point", "scan"];

fn bench(arguments: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["bench", "store", "--json", "--items", "2000", "--dir"])
        .arg(dir.path())
        .args(arguments)
        .output()
        .expect("the command runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("it is there").collect();
    assert!(left.is_empty(), "the benchmark left {left:?} behind");
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[test]
fn every_question_is_asked_and_answered() {
    let report = bench(&["--quick", "--rounds", "1"]);
    assert_eq!(report["machine"]["items"], 2000);
    let rows = report["rows"].as_array().expect("rows");
    for question in QUESTIONS {
        let asked =
            |row: &&Value| row["question"].as_str().is_some_and(|text| text.contains(question));
        assert_eq!(rows.iter().filter(asked).count(), 1, "{question} in {rows:#?}");
    }
    for row in rows {
        let question = row["question"].as_str().expect("a question is text");
        assert!(row["ours"].as_f64().is_some_and(|ours| ours > 0.0), "{row}");
        for name in ["limit", "ratio"] {
            assert!(row[name].is_null() || row[name].is_number(), "{name} of {row}");
        }
        assert_eq!(row["limit"].is_null(), row["ratio"].is_null(), "{row}");
        assert_eq!(row["hold"].is_string(), row["holds"].is_boolean(), "{row}");
        if COMPARED.iter().any(|compared| question.starts_with(compared)) {
            assert!(row["fjall"].is_number() && row["sqlite"].is_number(), "{row}");
        }
    }
}

#[test]
fn one_question_can_be_asked_alone() {
    let report = bench(&["--quick", "--rounds", "1", "--only", "polls"]);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "{rows:#?}");
}

#[test]
fn a_large_store_is_compared_with_a_tenth_of_it() {
    let report = bench(&["--large"]);
    let rows = report["rows"].as_array().expect("rows");
    let holds: Vec<&Value> = rows.iter().map(|row| &row["hold"]).collect();
    assert_eq!(holds, ["≤ 1.5", "≤ 1.5", "≤ 1000 MB"]);
    assert!(rows.iter().all(|row| row["ours"].as_f64().is_some_and(|ours| ours > 0.0)));
}
