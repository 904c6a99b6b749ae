//! Compares the evaluator with a referee: a second, slow implementation of the language, over trees of values.
//!
//! A seed generates items of unusual shapes and a query as a tree. The evaluator runs the printed tree; the
//! referee evaluates the tree itself, without texts, plans or paths into bytes. Both must return the same
//! rows, also for the same items written differently (escapes, spaces). `HEADWATER_SEEDS`
//! sets the number of seeds, `HEADWATER_SEED` runs a single one.

#![allow(clippy::unwrap_used, clippy::panic)] // a failed test names the line

mod make;
mod rules;

use headwater_query::{Context, Next, Query};
use make::{Chance, Question};
use serde_json::Value;

/// Seeds in an ordinary run; takes a second or two.
const SEEDS: u64 = 3_000;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("HEADWATER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("HEADWATER_SEEDS").unwrap_or(SEEDS),
    }
}

/// The rows of the evaluator for items with this text.
fn answered(query: &Query, items: &[String]) -> Vec<Value> {
    let mut run = query.start(Context::default());
    let mut rows = Vec::new();
    for (ordinal, item) in items.iter().enumerate() {
        let next = run.push(item.as_bytes(), ordinal as u64, &mut rows).unwrap();
        if next == Next::Enough {
            break;
        }
    }
    let mut rows: Vec<Vec<u8>> = rows.into_iter().map(|row| row.into_owned()).collect();
    rows.extend(run.finish().unwrap());
    rows.iter().map(|row| rules::normal(&serde_json::from_slice(row).unwrap())).collect()
}

#[test]
fn the_engine_and_the_referee_have_the_same_rows() {
    let (mut with_rows, mut without) = (0, 0);
    for seed in seeds() {
        let mut chance = Chance::new(seed);
        let items = make::items(&mut chance);
        let question = Question::made(&mut chance);
        let text = question.to_string();
        let query =
            Query::parse(&text, &[]).unwrap_or_else(|error| panic!("seed {seed}: {text}\n{error}"));
        let expected = rules::rows(&question, &items);
        let plain: Vec<String> = items.iter().map(Value::to_string).collect();
        let odd: Vec<String> =
            items.iter().map(|item| make::written_oddly(item, &mut chance)).collect();
        for written in [&plain, &odd] {
            assert_eq!(
                answered(&query, written),
                expected,
                "seed {seed}: {text}\n{}",
                written.join("\n")
            );
        }
        if expected.is_empty() { without += 1 } else { with_rows += 1 }
    }
    // The generated queries must find rows often enough.
    assert!(with_rows + without < 100 || with_rows * 4 > without, "{with_rows} of {without}");
}
