//! Properties: printing and parsing agree, nothing panics, and plans merge to the direct result.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use headwater_query::{Context, Limits, Query};
use proptest::prelude::*;

/// Queries that use every clause and operator; mutations start from these.
const SEEDS: &[&str] = &[
    "SELECT * FROM c",
    "SELECT DISTINCT TOP 5 c.id, c.n AS m, {a: c.x[0], \"b c\": [1, 2]} AS o FROM c",
    "SELECT VALUE c[\"a b\"].d[c.n] FROM root c WHERE c.x = @n AND NOT (c.y != 'a\\'b' OR c.z)",
    "SELECT VALUE x FROM c JOIN x IN c.children JOIN y IN x.pets WHERE x.grade BETWEEN 1 AND 9",
    "SELECT c.id FROM c WHERE c.id LIKE 'a%!_' ESCAPE '!' OR c.n NOT IN (1, -2.5e3, null, true)",
    "SELECT VALUE (c.n ?? 1) + -c.n * 2 % 3 / 4 - ~5 & 6 | 7 ^ 8 << 1 >> 2 >>> 3 FROM c",
    "SELECT VALUE c.s || 'x' = 'ax' ? [undefined] : {} FROM c ORDER BY c.a DESC, UPPER(c.b)",
    "SELECT c.n, COUNT(1) AS k, AVG(c.n) FROM c GROUP BY c.n, c.m OFFSET 1 LIMIT 2",
    "SELECT VALUE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t > 1) FROM c",
    "SELECT ARRAY(SELECT DISTINCT VALUE t FROM t IN c.tags) AS a, (SELECT VALUE 1) AS b FROM c",
    "SELECT VALUE udf.f(c.a, 1) FROM c WHERE STARTSWITH(c.id, 'a', true) -- comment",
    "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.n FROM c) AS d",
    "SELECT c._rid, [{\"item\": c.n}] AS orderByItems FROM c WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY c.n",
    "SELECT VALUE REPLICATE('ab', 10) || RegexMatch('a', 'b*') FROM c.children[0] /* x */ k",
    "SELECT VALUE ST_DISTANCE({type: 'Point', coordinates: [1, 2]}, c.where) FROM c",
    "SELECT VALUE (a.x ? b.x : 1) ? (a.y ? 2 : b.y) : a.z ? 3 : 4 FROM a JOIN b IN a.b",
    "SELECT VALUE (c.a ?? c.b) ?? c.c || (c.d || c.e) = (c.f = c.g) FROM c WHERE (c.h IN (1)) IN (2)",
    "SELECT VALUE NOT (c.a AND (c.b OR c.c)) = -(-c.d) - (c.e - c.f) BETWEEN (1 < 2) AND 3 FROM c",
    "SELECT VALUE (1 + 2).a[0] FROM c JOIN (SELECT VALUE [1]) AS z JOIN w IN (SELECT VALUE [c.n])",
];

const PIECES: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "c",
    ".a",
    "*",
    "'",
    "\"",
    "1",
    "-",
    "NOT ",
    "IN ",
    "AND ",
    "OR ",
    "GROUP BY ",
    "ORDER BY ",
    "COUNT(1)",
    "@n",
    ",",
    ":",
    "?",
    "??",
    "||",
    "JOIN ",
    "é",
    "\\",
    "\u{0}",
    "LIKE ",
    "BETWEEN ",
    "undefined",
    "OFFSET 1 LIMIT 1",
    "TOP 1 ",
    "EXISTS(",
    "1e999",
    "99999999999999999999",
];

#[derive(Clone, Debug)]
enum Edit {
    Delete(usize, usize),
    Insert(usize, usize),
    Splice(usize, usize),
}

fn edits() -> impl Strategy<Value = (usize, Vec<Edit>)> {
    let edit = prop_oneof![
        (any::<usize>(), 1..8_usize).prop_map(|(at, length)| Edit::Delete(at, length)),
        (any::<usize>(), 0..PIECES.len()).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (any::<usize>(), 0..SEEDS.len()).prop_map(|(at, seed)| Edit::Splice(at, seed)),
    ];
    (0..SEEDS.len(), prop::collection::vec(edit, 0..6))
}

fn mutate(seed: usize, edits: &[Edit]) -> String {
    let mut text: Vec<char> = SEEDS[seed].chars().collect();
    for edit in edits {
        match edit {
            Edit::Delete(at, length) => {
                let at = at % (text.len() + 1);
                text.drain(at..(at + length).min(text.len()));
            }
            Edit::Insert(at, piece) => {
                let at = at % (text.len() + 1);
                text.splice(at..at, PIECES[*piece].chars());
            }
            Edit::Splice(at, seed) => {
                let at = at % (text.len() + 1);
                text.truncate(at);
                let other: Vec<char> = SEEDS[*seed].chars().collect();
                text.extend(&other[at.min(other.len())..]);
            }
        }
    }
    text.into_iter().collect()
}

fn small() -> Limits {
    let mut limits = Limits::default();
    limits.steps = 20_000;
    limits.memory_bytes = 1 << 20;
    limits.value_bytes = 1 << 16;
    limits
}

fn parse(text: &str) -> Result<Query, headwater_query::QueryError> {
    Query::parse_within(text, &common::parameters(), &small())
}

#[test]
fn the_seeds_are_queries() {
    for text in SEEDS {
        if let Err(error) = parse(text) {
            panic!("{}", error.with_caret(text));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_tree_parses_to_the_same_tree((seed, edits) in edits()) {
        let text = mutate(seed, &edits);
        if let Ok(query) = parse(&text) {
            let printed = query.tree().to_string();
            let again = parse(&printed);
            prop_assert!(again.is_ok(), "{text}\n{printed}\n{:?}", again.err());
            if let Ok(again) = again {
                prop_assert_eq!(query.tree(), again.tree(), "{}\n{}", text, printed);
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic((seed, edits) in edits()) {
        let text = mutate(seed, &edits);
        match parse(&text) {
            Ok(query) => {
                let definition = headwater_model::PartitionKeyDefinition::hash("/id").unwrap();
                let _ = query.plan(&definition);
                let mut run = query.start(Context::at(common::NOW_TICKS));
                let items = common::families();
                let mut rows = Vec::new();
                for (ordinal, item) in items.iter().enumerate() {
                    if run.push(item.as_bytes(), ordinal as u64, &mut rows).is_err() {
                        break;
                    }
                }
                for row in rows.iter().map(|row| row.to_vec()).chain(run.finish().unwrap_or_default()) {
                    prop_assert!(
                        serde_json::from_slice::<serde_json::Value>(&row).is_ok(),
                        "{}\n{}", text, String::from_utf8_lossy(&row)
                    );
                }
            }
            Err(error) => {
                let _ = (error.service_message(), error.with_caret(&text));
            }
        }
    }

    #[test]
    fn no_item_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), (seed, _) in edits()) {
        if let Ok(query) = parse(SEEDS[seed]) {
            let mut run = query.start(Context::default());
            let mut rows = Vec::new();
            let _ = run.push(&bytes, 0, &mut rows);
            let _ = run.finish();
        }
    }
}
