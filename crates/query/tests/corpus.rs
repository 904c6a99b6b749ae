//! The corpus: every operator, function and clause on unusual data, one line each: `expression  =>  result`.
//!
//! `clauses.txt` has whole queries over the items of `items.txt`. All other files have expressions over one
//! item with fields that applications rarely expect: missing, null, the empty string, numbers beyond
//! 2^53, characters beyond the first plane, empty arrays. The expected results come from another program that
//! follows the documented rules, not from this one. `docs/internals/query-referees.md` lists where another
//! emulator differs.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use std::path::Path;

/// The item `c` of the expressions. `gone` does not exist.
const ODD: &str = r#"{"id":"odd","nul":null,"yes":true,"no":false,"zero":0,"neg":-1.5,"big":9007199254740993,"huge":1e308,"blank":"","word":"abc","uni":"Ünï 😀","none":[],"list":[1,"x",null,[2]],"bare":{},"deep":{"k":{"l":[7]}}}"#;

const CASES_MIN: usize = 1_500;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cases of a file.
fn cases(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once("  =>  ").unwrap_or_else(|| panic!("no case: {line}")))
        .collect()
}

fn expression_files() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".txt") && name != "items.txt" && name != "clauses.txt");
    names.sort();
    names
}

#[track_caller]
fn complain(wrong: &[String]) {
    let shown = wrong.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} cases are wrong:\n{shown}", wrong.len());
}

#[test]
fn every_expression_of_the_corpus_answers_as_it_should() {
    let item = [ODD.to_owned()];
    let mut wrong = Vec::new();
    for file in expression_files() {
        for (expression, expected) in cases(&read(&file)) {
            let got = common::run(&item, &format!("SELECT VALUE [{expression}] FROM c"));
            let expected = match expected {
                "undefined" => "[[]]".to_owned(),
                expected => format!("[[{expected}]]"),
            };
            if got.as_deref() != Ok(&expected) {
                wrong.push(format!(
                    "{file}: {expression}\n   expected {expected}\n   got      {got:?}"
                ));
            }
        }
    }
    complain(&wrong);
}

#[test]
fn every_query_of_the_corpus_answers_as_it_should() {
    let items: Vec<String> = read("items.txt").lines().map(str::to_owned).collect();
    let mut wrong = Vec::new();
    for (query, expected) in cases(&read("clauses.txt")) {
        let got = common::run(&items, query);
        if got.as_deref() != Ok(expected) {
            wrong.push(format!("{query}\n   expected {expected}\n   got      {got:?}"));
        }
    }
    complain(&wrong);
}

#[test]
fn the_corpus_is_large_and_no_case_stands_twice() {
    let mut seen = std::collections::HashSet::new();
    for file in expression_files().iter().map(String::as_str).chain(["clauses.txt"]) {
        for (asked, _) in cases(&read(file)) {
            assert!(seen.insert(asked.to_owned()), "{file}: {asked} stands twice");
        }
    }
    assert!(seen.len() >= CASES_MIN, "only {} cases", seen.len());
}
