//! Compares our parser and planner with those of the published Rust driver, on the same texts.
//!
//! The driver was written independently, to plan queries without the service. The texts are
//! all of the corpus, texts that lack, repeat or swap one of their words, so that most of them
//! are wrong, and filters of the partition key. Differences are listed here by their
//! reason, and described in `docs/internals/query-referees.md`; an unlisted difference fails.

#![allow(clippy::unwrap_used, clippy::panic)] // a failed test names the line

use azure_data_cosmos_driver::query::__test_only_generate_query_plan_for_pk_paths as plan_of_driver;
use headwater_model::PartitionKeyDefinition;
use headwater_query::{Parsed, Query};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::Path;

/// Only every n-th expression of the corpus is made wrong; of its whole queries all are.
const EXPRESSIONS_STEP: usize = 7;

/// The queries of the corpus: its whole queries, and one for each expression in the other files.
fn corpus(is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut texts = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "items.txt" || !is_wanted(&name) {
            continue;
        }
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let Some((asked, _)) = line.split_once("  =>  ") else { continue };
            texts.push(match name.as_str() {
                "clauses.txt" => asked.to_owned(),
                _ => format!("SELECT VALUE [{asked}] FROM c"),
            });
        }
    }
    texts
}

/// The words of a text and the text between them; joined, they are the text.
fn words(text: &str) -> Vec<String> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<String> = Vec::new();
    let mut quote = None;
    for c in text.chars() {
        let last = words.last_mut().filter(|last| {
            quote.is_some() || (is_of_word(c) && last.chars().last().is_some_and(is_of_word))
        });
        match last {
            Some(last) => last.push(c),
            None => words.push(c.to_string()),
        }
        quote = match quote {
            Some(open) if open == c => None,
            None if c == '\'' || c == '"' => Some(c),
            other => other,
        };
    }
    words
}

/// Variants of a text: without one of its words, with one repeated, and with two swapped.
fn made_wrong(text: &str) -> Vec<String> {
    let words = words(text);
    let places: Vec<usize> = (0..words.len()).filter(|at| !words[*at].trim().is_empty()).collect();
    let mut made = Vec::new();
    for (number, &at) in places.iter().enumerate() {
        let mut lacking = words.clone();
        lacking.remove(at);
        made.push(lacking.concat());
        let mut twice = words.clone();
        twice.insert(at, format!("{} ", words[at]));
        made.push(twice.concat());
        if let Some(&next) = places.get(number + 1) {
            let mut swapped = words.clone();
            swapped.swap(at, next);
            made.push(swapped.concat());
        }
    }
    made
}

/// Whether the driver can parse a text. A text that it cannot plan for another reason was parsed.
fn driver_reads(text: &str) -> bool {
    match plan_of_driver(text, &["/pk"], &[]) {
        Ok(_) => true,
        Err(error) => !error.to_string().contains("failed to parse query"),
    }
}

fn we_read(text: &str) -> bool {
    Parsed::parse(text).is_ok()
}

/// Why the driver's parser and ours differ on a text; `None` if the difference is not listed.
fn decided(text: &str) -> Option<&'static str> {
    if text.contains("VALUE(SELECT")
        || text.contains("VALUEARRAY(S")
        || text.contains("VALUEEXISTS(S")
    {
        return Some("a query is an argument only in parentheses of its own");
    }
    if ["VALUE VALUE [", "[ VALUE", "VALUE ARRAY["].iter().any(|word| text.contains(word)) {
        return Some("VALUE and ARRAY are words of the language and no names");
    }
    if text.contains("BETWEEN NOT -") {
        return Some("NOT is an operator in front of a value, also of a bound");
    }
    None
}

#[test]
fn the_driver_reads_every_query_of_the_corpus() {
    let texts = corpus(|_| true);
    assert!(texts.len() >= 1_500);
    let refused: Vec<&String> = texts.iter().filter(|text| !driver_reads(text)).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[test]
fn the_driver_and_we_refuse_the_same_texts() {
    let mut texts = corpus(|name| name == "clauses.txt");
    texts.extend(corpus(|name| name != "clauses.txt").into_iter().step_by(EXPRESSIONS_STEP));
    let (mut read, mut refused, mut undecided) = (0, 0, Vec::new());
    for text in texts.iter().flat_map(|text| made_wrong(text)) {
        match (we_read(&text), driver_reads(&text)) {
            (true, true) => read += 1,
            (false, false) => refused += 1,
            (ours, _) if decided(&text).is_none() => {
                undecided.push(format!("{} reads {text}", if ours { "we" } else { "driver" }));
            }
            _ => {}
        }
    }
    assert!(
        undecided.is_empty(),
        "{} of {}:\n{}",
        undecided.len(),
        read + refused,
        undecided.iter().take(60).cloned().collect::<Vec<_>>().join("\n")
    );
    // The test needs many valid and many invalid texts.
    assert!(read >= 1_000 && refused >= 10_000, "{read} read, {refused} refused");
}

/// Every aggregate of a plan. The driver has one list of them; the service, and we, put those with an alias
/// elsewhere.
fn aggregates(info: &Json) -> BTreeSet<String> {
    let listed = info["aggregates"].as_array().into_iter().flatten();
    let named = info["groupByAliasToAggregateType"].as_object();
    let named = named.into_iter().flat_map(|named| named.values());
    listed.chain(named).filter_map(Json::as_str).map(str::to_owned).collect()
}

#[test]
fn the_driver_and_we_plan_the_corpus_alike() {
    for text in corpus(|_| true) {
        // The driver's plan does not depend on the keys that the filter allows.
        let ours = Query::parse(&text, &[]).unwrap().plan_over_all_keys().unwrap();
        let ours = serde_json::to_value(ours).unwrap()["queryInfo"].take();
        let theirs = plan_of_driver(&text, &["/pk"], &[]).unwrap()["queryInfo"].take();
        for field in [
            "distinctType",
            "top",
            "offset",
            "limit",
            "orderBy",
            "orderByExpressions",
            "groupByExpressions",
            "hasSelectValue",
        ] {
            assert_eq!(ours[field], theirs[field], "{field} of {text}");
        }
        assert_eq!(aggregates(&ours), aggregates(&theirs), "aggregates of {text}");
    }
}

/// The keys that a filter of `/pk` allows: none, some, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    None,
    Some,
    All,
}

fn keys_by_us(text: &str) -> Keys {
    let key = PartitionKeyDefinition::hash("/pk").unwrap();
    let ranges = Query::parse(text, &[]).unwrap().plan(&key).unwrap().query_ranges;
    match ranges.first() {
        // A query that can match nothing runs on the first range.
        Some(range) if range.max.is_empty() => Keys::None,
        Some(range) if range.max == "FF" => Keys::All,
        Some(_) => Keys::Some,
        None => panic!("{text}: a plan without ranges"),
    }
}

fn keys_by_driver(text: &str) -> Keys {
    match &plan_of_driver(text, &["/pk"], &[]).unwrap()["pkFilters"] {
        Json::String(word) if word == "unconstrained" => Keys::All,
        Json::String(word) if word == "contradictory" => Keys::None,
        _ => Keys::Some,
    }
}

/// The keys a filter of `/pk` allows by our plan, and by the driver's if that differs. The driver may allow
/// more, which costs its user a round trip; fewer would be a wrong answer of one of us.
const FILTERS: [(&str, Keys, Option<Keys>); 14] = [
    ("c.pk = 'a'", Keys::Some, None),
    ("'a' = c[\"pk\"] AND c.x > 1", Keys::Some, Some(Keys::All)),
    ("c.pk IN ('a', 'b', 'a')", Keys::Some, None),
    ("c.pk = 'a' OR c.pk = 'b'", Keys::Some, None),
    ("(c.id = '1' AND c.pk = 'a') OR (c.id = '2' AND c.pk = 'b')", Keys::Some, None),
    ("c.pk = 'a' AND c.pk = 'b'", Keys::None, None),
    ("c.pk = 'a' OR c.x = 1", Keys::All, None),
    ("c.pk > 'a'", Keys::All, None),
    ("NOT c.pk = 'a'", Keys::All, None),
    ("c.pk NOT IN ('a')", Keys::All, None),
    ("c.pk != 'a'", Keys::All, None),
    ("c.pk = c.pk", Keys::All, None),
    ("c.pk.x = 'a'", Keys::All, None),
    ("UPPER(c.pk) = 'A'", Keys::All, None),
];

#[test]
fn the_driver_and_we_narrow_a_filter_to_the_same_keys() {
    let mut wrong = Vec::new();
    for (filter, ours, theirs) in FILTERS {
        let text = format!("SELECT * FROM c WHERE {filter}");
        let got = (keys_by_us(&text), keys_by_driver(&text));
        if got != (ours, theirs.unwrap_or(ours)) {
            wrong.push(format!("{filter}: {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
