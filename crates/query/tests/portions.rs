//! The portions of an item's rows add up to all rows, for every kind of source.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_query::{
    Context, EvaluationError, Limits, Next, Portion, Portioned, Query, RowPosition,
};

const ITEM: &str =
    r#"{"a":[1,2,3,4],"b":[[5,6],[],[7]],"e":[],"o":{"c":[{"k":[8,9]},{"k":[]},{"k":[10]}]}}"#;

/// Queries and how many rows they have.
const QUERIES: &[(&str, usize)] = &[
    ("SELECT * FROM c", 1),
    ("SELECT VALUE x FROM x IN c.a", 4),
    ("SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.a", 16),
    ("SELECT x, y FROM c JOIN x IN c.b JOIN y IN x", 3),
    ("SELECT x, k FROM c JOIN x IN c.o.c JOIN k IN x.k JOIN y IN c.a", 12),
    ("SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.e", 0),
    ("SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.a WHERE x > y", 6),
    ("SELECT VALUE c.missing FROM c JOIN x IN c.a", 0),
    ("SELECT VALUE [x, y][x - 1] FROM c JOIN x IN c.a JOIN y IN c.a", 8),
    ("SELECT x, s FROM c JOIN x IN c.a JOIN (SELECT VALUE y FROM y IN c.a WHERE y < x) s", 6),
    ("SELECT x, s FROM c JOIN x IN (SELECT VALUE b FROM b IN c.b) JOIN s IN c.a", 12),
    ("SELECT x, s FROM c JOIN x IN ARRAY_CONCAT(c.a, c.a) JOIN s IN c.a", 32),
    ("SELECT x FROM c JOIN x IN c.a WHERE EXISTS(SELECT VALUE y FROM y IN c.a WHERE y > x)", 3),
    ("SELECT TOP 5 x, y FROM c JOIN x IN c.a JOIN y IN c.a", 5),
    ("SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.a OFFSET 3 LIMIT 9", 9),
];

#[test]
fn portions_add_up_to_all_rows_of_an_item() {
    for (text, count) in QUERIES {
        let query = Query::parse(text, &[]).unwrap();
        assert!(query.is_streaming(), "{text}");
        let mut whole = Vec::new();
        query.start(Context::default()).push(ITEM.as_bytes(), 0, &mut whole).unwrap();
        assert_eq!(whole.len(), *count, "{text}");
        for (rows, bytes) in
            [(1, usize::MAX), (2, usize::MAX), (5, usize::MAX), (100, 1), (100, 20)]
        {
            let mut run = query.start(Context::default());
            let (mut found, mut from) = (Vec::new(), RowPosition::default());
            for _ in 0..=whole.len() {
                let mut some = Vec::new();
                let portion = Portion { from: from.clone(), rows, bytes };
                let next = run.push_portion(ITEM.as_bytes(), 0, &portion, &mut some).unwrap();
                assert!(some.len() <= rows, "{text}");
                found.append(&mut some);
                let Portioned::Part(position) = next else { break };
                assert!(position > from, "{text}: {position:?} is not behind {from:?}");
                // A continuation carries the position as text, and the next page is another run.
                from = RowPosition::parse(&position.to_string()).unwrap();
                run = query.resume(Context::default(), run.progress());
            }
            assert_eq!(found, whole, "{text}, {rows} rows and {bytes} bytes at a time");
        }
    }
}

#[test]
fn a_position_beyond_the_elements_of_an_item_has_no_rows() {
    let query = Query::parse("SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.a", &[]).unwrap();
    for (from, rows) in [("4", 0), ("3-4", 0), ("3-3", 1), ("3", 4), ("2-9", 4), ("9-9-9", 0)] {
        let from = RowPosition::parse(from).unwrap();
        let portion = Portion { from, rows: 100, bytes: usize::MAX };
        let mut found = Vec::new();
        let mut run = query.start(Context::default());
        let next = run.push_portion(ITEM.as_bytes(), 0, &portion, &mut found);
        assert_eq!(next, Ok(Portioned::Whole(Next::More)), "{portion:?}");
        assert_eq!(found.len(), rows, "{portion:?}");
    }
}

#[test]
fn a_portion_that_runs_out_of_steps_ends_where_it_is() {
    let mut limits = Limits::default();
    limits.steps = 40;
    let text = "SELECT VALUE x * 10 + y FROM c JOIN x IN c.a JOIN y IN c.a WHERE x != y";
    let query = Query::parse_within(text, &[], &limits).unwrap();
    let (mut found, mut from, mut pages) = (Vec::new(), RowPosition::default(), 0);
    loop {
        let portion = Portion { from: from.clone(), rows: 100, bytes: usize::MAX };
        let mut run = query.start(Context::default());
        let next = run.push_portion(ITEM.as_bytes(), 0, &portion, &mut found).unwrap();
        pages += 1;
        let Portioned::Part(position) = next else { break };
        assert!(position > from, "{position:?} is not behind {from:?}");
        from = position;
    }
    let found: Vec<_> = found.iter().map(|row| String::from_utf8_lossy(row)).collect();
    assert_eq!(found.join(" "), "12 13 14 21 23 24 31 32 34 41 42 43");
    assert!(pages > 2, "{pages} pages");
    // Without enough steps for a single row there is no position to resume at.
    limits.steps = 2;
    let mut run = Query::parse_within(text, &[], &limits).unwrap().start(Context::default());
    let portion = Portion { from: RowPosition::default(), rows: 100, bytes: usize::MAX };
    let failed = run.push_portion(ITEM.as_bytes(), 0, &portion, &mut Vec::new());
    assert_eq!(failed, Err(EvaluationError::TooManySteps { limit: 2 }));
}
