//! `headwater bench query` run as a process: its JSON has every question and the documented shape.
//!
//! The test checks no timings. SQLite is compiled in, so it is always measured. PostgreSQL is measured if it is
//! installed, and must then return the same results.

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// The beginning of each question, in their order, and where its ratio should be.
const QUESTIONS: &[(&str, &str)] = &[
    ("time of a query by id and key ÷ our own point read", "≤ 1.5"),
    ("queries by id and key ÷ best peer", "≥ 1"),
    ("queries by equality, indexed, 10 rows ÷ best peer", "≥ 1"),
    ("queries by range in order, indexed, 100 rows ÷ best peer", "≥ 1"),
    ("filter on an unindexed field, items per CPU-second ÷ best peer", "≥ 1"),
    ("count, sum and maximum of all, items per CPU-second ÷ best peer", "≥ 1"),
    ("count and average by group, items per CPU-second ÷ best peer", "≥ 1"),
    ("count over a nested array, items per CPU-second ÷ best peer", "≥ 1"),
    ("CPU per write, default policy ÷ no index", "≤ 2.5"),
];

fn bench(arguments: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // PostgreSQL runs as another user when the test is run by root.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("it is ours");
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["bench", "query", "--quick", "--rounds", "1", "--items", "2000", "--json", "--dir"])
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
fn every_question_is_asked_of_everybody_and_all_find_the_same() {
    let report = bench(&[]);
    assert_eq!(report["machine"]["items"], 2000);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), QUESTIONS.len(), "{rows:#?}");
    for (row, (question, hold)) in rows.iter().zip(QUESTIONS) {
        assert_eq!(row["question"], *question);
        assert_eq!(row["hold"], *hold);
        assert!(row["holds"].is_boolean(), "{row}");
        for name in ["ours", "limit", "ratio"] {
            assert!(row[name].as_f64().is_some_and(|value| value > 0.0), "{name} of {row}");
        }
        let compared = question.ends_with("best peer");
        assert_eq!(row["sqlite"].as_f64().is_some_and(|value| value > 0.0), compared, "{row}");
    }
}

#[test]
fn some_rows_alone_need_no_peer() {
    let report = bench(&["--only", "group,scan", "--alone"]);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(row["ours"].as_f64().is_some_and(|ours| ours > 0.0), "{row}");
        assert!(row["limit"].is_null() && row["holds"].is_null(), "{row}");
    }
}
