//! The cost of one query: memory counts every row and intermediate value, and a run can end within an item.
//!
//! The limits are small so that each case is fast. Every query here would otherwise grow far
//! beyond them.

#![allow(clippy::unwrap_used)] // a failed test names the line

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headwater_query::{
    Budget, Context, EvaluationError, Interruption, MemoryPool, Problem, Query, Run, Value, Watch,
};

const MEMORY: usize = 4 << 20;

/// One item with an array of 200 numbers, one of 200 arrays, and a text of 1 000 characters.
fn item() -> String {
    let numbers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let numbers = format!("[{}]", numbers.join(","));
    let lists = vec![numbers.clone(); 200].join(",");
    format!(r#"{{"id":"a","a":{numbers},"b":[{lists}],"s":"{}"}}"#, "x".repeat(1000))
}

fn start(text: &str, budget: Budget) -> Run {
    Query::parse(text, &[]).unwrap().start(Context::default().with_budget(budget))
}

/// Queries with large results for one small item.
const LARGE: &[&str] = &[
    "SELECT c.s, x, y FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT VALUE c FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a",
    "SELECT VALUE CONCAT(c.s, c.s, ToString(x)) FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT VALUE c.s || c.s FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT VALUE ARRAY_CONCAT(c.a, c.a) FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT c.s, x FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY x",
    "SELECT x FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY CONCAT(c.s, ToString(y))",
    "SELECT DISTINCT VALUE CONCAT(c.s, ToString(x), ToString(y)) FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT COUNT(1) AS n FROM c JOIN x IN c.a JOIN y IN c.a GROUP BY CONCAT(c.s, ToString(x * 1000 + y))",
    "SELECT MAX(CONCAT(c.s, ToString(x))) AS m FROM c JOIN x IN c.a JOIN y IN c.a GROUP BY x * 1000 + y",
    "SELECT VALUE MAKELIST(c.s) FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT VALUE MAKESET(CONCAT(c.s, ToString(x), ToString(y))) FROM c JOIN x IN c.a JOIN y IN c.a",
    "SELECT VALUE ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a JOIN y IN c.a) FROM c",
    "SELECT VALUE ARRAY(SELECT VALUE REPLICATE(c.s, 9) FROM x IN c.a JOIN y IN c.a) FROM c",
    "SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE REVERSE(c.s) FROM x IN c.a JOIN y IN c.a)) FROM c",
    "SELECT VALUE LENGTH(StringJoin(ARRAY(SELECT VALUE UPPER(c.s) FROM x IN c.a JOIN y IN c.a), ',')) FROM c",
    "SELECT VALUE SetUnion(ARRAY(SELECT VALUE x * 1000 + y FROM x IN c.a JOIN y IN c.a), c.a) FROM c",
    "SELECT VALUE SetIntersect(ARRAY(SELECT VALUE x * 1000 + y FROM x IN c.a JOIN y IN c.a), c.a) FROM c",
    "SELECT VALUE COUNT(1) FROM c JOIN (SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a JOIN y IN c.a) z",
    "SELECT VALUE 1 FROM c WHERE EXISTS(SELECT VALUE y FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY CONCAT(c.s, ToString(x)))",
];

#[test]
fn rows_and_values_in_flight_count_and_a_query_beyond_its_memory_ends() {
    let item = item();
    for text in LARGE {
        let pool = Arc::new(MemoryPool::new(usize::MAX));
        let mut run = start(text, Budget::within(pool.clone(), MEMORY));
        let mut rows = Vec::new();
        let ended = run.push(item.as_bytes(), 0, &mut rows).map(|_| ()).and_then(|()| {
            run.finish()?;
            Ok(())
        });
        assert_eq!(ended, Err(EvaluationError::TooMuchMemory { limit: MEMORY }), "{text}");
        assert!(rows.is_empty(), "{text}: all rows of an item or none");
        assert!(run.peak_bytes() <= MEMORY && pool.used() <= MEMORY, "{text}");
        drop(run);
        assert_eq!(pool.used(), 0, "{text}");
    }
}

#[test]
fn values_of_a_row_are_released_with_it() {
    // Makes 40 MB of values, one after the other, and keeps one number.
    let item = item();
    for text in [
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a WHERE LENGTH(CONCAT(c.s, ToString(x))) > 1",
        "SELECT VALUE SUM(ARRAY_LENGTH(ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM y IN c.a))) FROM c JOIN x IN c.a",
        "SELECT TOP 3 c.s, x FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY x",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE EXISTS(SELECT VALUE 1 FROM y IN c.b WHERE SetUnion(y, c.a) = c.a)",
    ] {
        let pool = Arc::new(MemoryPool::new(usize::MAX));
        let mut run = start(text, Budget::within(pool, MEMORY));
        run.push(item.as_bytes(), 0, &mut Vec::new()).unwrap();
        assert!(!run.finish().unwrap().is_empty(), "{text}");
    }
}

#[test]
fn many_queries_together_stay_within_the_pool() {
    let item = item();
    let pool = Arc::new(MemoryPool::new(MEMORY));
    let text = "SELECT c.s, x FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY x OFFSET 0 LIMIT 1000";
    let mut runs = Vec::new();
    let mut refused = 0;
    for _ in 0..10 {
        let mut run = start(text, Budget::within(pool.clone(), MEMORY));
        match run.push(item.as_bytes(), 0, &mut Vec::new()) {
            Ok(_) => runs.push(run),
            Err(error) => {
                assert_eq!(error, EvaluationError::PoolExhausted { limit: MEMORY });
                refused += 1;
            }
        }
        assert!(pool.used() <= MEMORY);
    }
    assert!(refused > 0 && !runs.is_empty(), "{refused} of 10 were refused");
    drop(runs);
    assert!(
        start(text, Budget::within(pool, MEMORY)).push(item.as_bytes(), 0, &mut Vec::new()).is_ok()
    );
}

/// Ends a run at the n-th check.
struct After(AtomicU64, Interruption);

impl Watch for After {
    fn interruption(&self) -> Option<Interruption> {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        (left == 0).then_some(self.1)
    }
}

#[test]
fn a_run_ends_within_an_item_when_its_time_is_up_or_its_client_is_gone() {
    let item = item();
    let nested = "SELECT VALUE 1 FROM c WHERE EXISTS(SELECT VALUE 1 FROM x IN c.a JOIN y IN c.a JOIN z IN c.a \
                  WHERE EXISTS(SELECT VALUE 1 FROM v IN c.a WHERE v = -1))";
    for text in [
        nested,
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN v IN c.a",
        "SELECT VALUE 1 FROM c JOIN x IN c.b JOIN y IN c.b WHERE x = y AND x[0] = -1",
        "SELECT VALUE 1 FROM c JOIN x IN c.b WHERE x IN (c.b, c.b, [x]) AND false",
        "SELECT VALUE 1 FROM c JOIN x IN c.b JOIN y IN c.a WHERE ARRAY_CONTAINS(c.b, c.b)",
        "SELECT VALUE x[0] FROM c JOIN x IN c.b JOIN y IN c.b ORDER BY x",
    ] {
        for (reason, expected) in [
            (Interruption::OutOfTime, EvaluationError::OutOfTime),
            (Interruption::Abandoned, EvaluationError::Abandoned),
        ] {
            let watch = Arc::new(After(AtomicU64::new(20), reason));
            let mut run = start(text, Budget::default().watched(watch));
            let ended = run.push(item.as_bytes(), 0, &mut Vec::new()).map(|_| ());
            let ended = ended.and_then(|()| run.finish().map(|_| ()));
            assert_eq!(ended, Err(expected), "{text}");
            // Twenty quanta, the one in progress, and the most that one step may cost beyond it.
            assert!(run.steps() < 22 * 1024 + 10_000, "{text}: {} steps", run.steps());
        }
    }
}

#[test]
fn a_run_that_sorts_large_keys_ends_when_its_time_is_up() {
    let list: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    let watch = Arc::new(After(AtomicU64::new(u64::MAX), Interruption::OutOfTime));
    let budget = Budget::default().watched(watch.clone());
    let mut run = start("SELECT VALUE c.n FROM c ORDER BY c.a", budget);
    for number in 0..500 {
        let item = format!(r#"{{"n":{number},"a":[{},{}]}}"#, list.join(","), 500 - number);
        run.push(item.as_bytes(), number, &mut Vec::new()).unwrap();
    }
    let before = run.steps();
    watch.0.store(2, Ordering::Relaxed);
    assert_eq!(run.finish(), Err(EvaluationError::OutOfTime));
    assert!(run.steps() - before < 1 << 20, "it sorted {} steps more", run.steps() - before);
}

#[test]
fn rows_come_in_order_however_many_are_sorted() {
    let mut run = start("SELECT VALUE c.n FROM c ORDER BY c.k, c.n", Budget::default());
    let count = 100_000_u64;
    for number in 0..count {
        let n = number * 7_919 % count;
        let item = format!(r#"{{"n":{n},"k":{}}}"#, n % 3);
        run.push(item.as_bytes(), number, &mut Vec::new()).unwrap();
    }
    let found: Vec<u64> = run
        .finish()
        .unwrap()
        .iter()
        .map(|row| std::str::from_utf8(row).unwrap().parse().unwrap())
        .collect();
    let mut expected: Vec<u64> = (0..count).collect();
    expected.sort_by_key(|n| (n % 3, *n));
    assert_eq!(found, expected);
}

/// The result and the steps of a query over one item whose client disconnects after the twentieth check.
fn abandoned(text: &str, item: &str) -> (Result<(), EvaluationError>, u64) {
    let watch = Arc::new(After(AtomicU64::new(20), Interruption::Abandoned));
    let mut run = start(text, Budget::default().watched(watch));
    let ended = run.push(item.as_bytes(), 0, &mut Vec::new()).map(|_| ());
    let ended = ended.and_then(|()| run.finish().map(|_| ()));
    (ended, run.steps())
}

#[test]
fn a_search_ends_when_its_client_is_gone_whatever_its_pattern() {
    let mut seed = 7_u32;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        if seed & 1 == 0 { 'a' } else { 'b' }
    };
    let random: String = (0..50_000).map(|_| random()).collect();
    let item = format!(r#"{{"s":"{}","r":"{random}"}}"#, "a".repeat(50_000));
    for filter in [
        "RegexMatch(c.s, '(a{1,50}){1,50}b')",
        "RegexMatch(c.s, '((a{0,50}){0,50}){0,3}b')",
        "RegexMatch(c.r, '[ab]*a[ab]{200}c')",
        "RegexMatch(c.r, '[ab]*a[ab]{20}c')",
        "c.s LIKE '%aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'",
        "c.s LIKE CONCAT('%', LEFT(c.s, 1000), 'b')",
    ] {
        let (ended, steps) = abandoned(&format!("SELECT VALUE 1 FROM c WHERE {filter}"), &item);
        assert_eq!(ended, Err(EvaluationError::Abandoned), "{filter}");
        // A block of sixteen bytes costs as many steps as the pattern has states.
        assert!(steps < 22 * 1024 + 500_000, "{filter}: {steps} steps");
    }
}

#[test]
fn ordinary_patterns_search_long_texts() {
    let words = "lorem ipsum dolor ".repeat(115_000);
    let item = format!(
        r#"{{"s":"{words}","u":"{}","a":"{}"}}"#,
        "größe ".repeat(20_000),
        "a".repeat(2_000_000)
    );
    assert!(item.len() > 4_000_000);
    for (filter, expected) in [
        ("RegexMatch(c.s, 'dolor $')", true),
        ("RegexMatch(c.s, '^lorem')", true),
        ("RegexMatch(c.s, '^ipsum')", false),
        ("RegexMatch(c.s, 'IPSUM.*dolor', 'i')", true),
        ("RegexMatch(c.s, 'ipsum$')", false),
        ("RegexMatch(c.s, '(?i)\\w{12}')", false),
        ("RegexMatch(c.s, '.*.*.*x')", false),
        ("RegexMatch(c.s, '\\bdol\\b')", false),
        ("RegexMatch(c.a, '(a|aa|aaa)*b')", false),
        ("RegexMatch(c.u, '\\bgröße\\b')", true),
        ("RegexMatch(c.u, '\\bgrö\\b')", false),
        ("RegexMatch(c.u, 'gr[^o]{2}e $')", true),
        ("RegexMatch(c.u, '')", true),
    ] {
        let text = format!("SELECT VALUE {}FROM c", filter.replace('\\', "\\\\"));
        let mut rows = Vec::new();
        start(&text, Budget::default()).push(item.as_bytes(), 0, &mut rows).unwrap();
        assert_eq!(rows, [expected.to_string().as_bytes()], "{filter}");
    }
}

#[test]
fn patterns_and_searches_beyond_a_bound_are_refused() {
    let item = format!(r#"{{"s":"{}","p":"{}"}}"#, "größe ".repeat(200_000), "a|".repeat(3_000));
    let ended = |call: &str| {
        let text = format!("SELECT VALUE {call} FROM c");
        start(&text, Budget::default()).push(item.as_bytes(), 0, &mut Vec::new()).map(|_| ())
    };
    let refused = ended(r"RegexMatch(c.s, '\\bx\\w{9}\\b')");
    assert!(matches!(refused, Err(EvaluationError::SearchTooLong { .. })), "{refused:?}");
    for call in ["RegexMatch(c.s, c.p)", r"RegexMatch(c.s, '\\w{500}')", "RegexMatch(c.s, '(')"] {
        let refused = ended(call);
        assert!(matches!(refused, Err(EvaluationError::BadPattern(_))), "{call}: {refused:?}");
    }
}

/// A regular polygon with this number of corners, as the text of a ring.
fn ring(corners: u32, radius: f64) -> String {
    let corner = |place: u32| {
        let angle = f64::from(place % corners) / f64::from(corners) * std::f64::consts::TAU;
        format!("[{},{}]", radius * angle.cos(), radius * angle.sin())
    };
    format!("[{}]", (0..=corners).map(corner).collect::<Vec<_>>().join(","))
}

#[test]
fn shapes_are_charged_for_what_they_cost_and_refused_beyond_a_bound() {
    let polygon =
        |corners| format!(r#"{{"type":"Polygon","coordinates":[{}]}}"#, ring(corners, 10.0));
    let line =
        |corners| format!(r#"{{"type":"LineString","coordinates":{}}}"#, ring(corners, 20.0));
    let item = format!(
        r#"{{"fit":{},"large":{},"huge":{},"line":{},"track":{},"at":{{"type":"Point","coordinates":[1,2]}}}}"#,
        polygon(1_000),
        polygon(3_000),
        line(50_000),
        line(1_000),
        line(20_000),
    );
    let run = |call: &str| {
        let mut run = start(&format!("SELECT VALUE {call} FROM c"), Budget::default());
        let ended = run.push(item.as_bytes(), 0, &mut Vec::new()).map(|_| ());
        (ended, run.steps())
    };
    for (call, least) in [
        ("ST_ISVALID(c.fit)", 120_000),
        ("ST_ISVALIDDETAILED(c.fit)", 120_000),
        ("ST_AREA(c.fit)", 120_000),
        ("ST_WITHIN(c.at, c.fit)", 120_000),
        ("ST_INTERSECTS(c.line, c.fit)", 280_000),
        ("ST_DISTANCE(c.line, c.fit)", 1_000_000),
        ("ST_DISTANCE(c.at, c.track)", 180_000),
    ] {
        let (ended, steps) = run(call);
        assert_eq!(ended, Ok(()), "{call}");
        assert!(steps >= least, "{call}: {steps} steps");
    }
    for call in [
        "ST_ISVALID(c.large)",
        "ST_AREA(c.large)",
        "ST_WITHIN(c.at, c.large)",
        "ST_ISVALID(c.huge)",
    ] {
        let (ended, _) = run(call);
        assert!(matches!(ended, Err(EvaluationError::ShapeTooLarge { .. })), "{call}: {ended:?}");
    }
    let (ended, _) = run("ST_INTERSECTS(c.track, c.fit)");
    assert!(matches!(ended, Err(EvaluationError::ShapesTooLarge { .. })), "{ended:?}");
}

#[test]
fn walks_over_large_values_are_charged_by_their_size() {
    let numbers: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let deep = format!("{}{}{}", "[".repeat(60), "1,".repeat(20_000) + "1", "]".repeat(60));
    let item = format!(
        r#"{{"id":"a","a":[{}],"b":[[{}]],"deep":{deep},"s":"{}\n","o":{{"k":[{}]}}}}"#,
        numbers.join(","),
        numbers.join(","),
        "x".repeat(200_000),
        numbers.join(","),
    );
    for text in [
        "SELECT DISTINCT VALUE c FROM c JOIN x IN c.a",
        "SELECT DISTINCT VALUE c.s FROM c JOIN x IN c.a",
        "SELECT COUNT(1) AS n FROM c JOIN x IN c.a GROUP BY c",
        "SELECT VALUE MAKESET(c) FROM c JOIN x IN c.a",
        "SELECT VALUE MAX(c.s) FROM c JOIN x IN c.a",
        "SELECT TOP 1 x FROM c JOIN x IN c.a ORDER BY c",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE c = c",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE c.deep = c.deep",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE c IN (c, 1)",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE c.s BETWEEN 'a' AND c.s",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE ARRAY_CONTAINS([c, c], c)",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE ARRAY_CONTAINS([c], {o: c.o, id: 'b'}, true)",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE SetEqual(c.b, c.b)",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE CONTAINS_ANY_CS(c.s, 'a', 'b', 'c', 'd', 'e', 'f')",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE IS_DEFINED(c.s)",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE LENGTH(ToString(c)) > 1",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a WHERE IS_DEFINED(ObjectToArray(c))",
    ] {
        let (ended, steps) = abandoned(text, &item);
        assert_eq!(ended, Err(EvaluationError::Abandoned), "{text}");
        assert!(steps < 22 * 1024 + 20_000, "{text}: {steps} steps");
    }
}

#[test]
fn a_long_parameter_is_not_copied_for_each_of_many_mentions() {
    let long = [("@p".to_owned(), Value::from("x".repeat(1 << 20)))];
    let mentions = |count: usize| format!("SELECT VALUE [{}]", vec!["@p"; count].join(","));
    assert!(Query::parse(&mentions(10), &long).is_ok());
    let refused = Query::parse(&mentions(10_000), &long).map(|_| ()).unwrap_err();
    assert!(matches!(refused.problem(), Problem::TooLarge(_)), "{refused}");
}

#[test]
fn a_filter_on_many_properties_is_charged_for_each_search() {
    let property = |place: u32| format!(r#""p{place}":{place}"#);
    let item = format!("{{{}}}", (0..20_000).map(property).collect::<Vec<_>>().join(","));
    let condition = |place: u32| format!("c.p{place} BETWEEN -2 AND -1");
    let filter = (0..3_000).map(condition).collect::<Vec<_>>().join(" OR ");
    let (ended, _) = abandoned(&format!("SELECT VALUE 1 FROM c WHERE {filter}"), &item);
    assert_eq!(ended, Err(EvaluationError::Abandoned));
    let list = (0..600).map(|place| format!("x.p{place}")).collect::<Vec<_>>().join(",");
    let numbers = (0..600).map(|place| place.to_string()).collect::<Vec<_>>().join(",");
    for from in ["x IN c.a", "c JOIN x IN c.a"] {
        let mut rows = Vec::new();
        let item = format!(r#"{{"a":[{item}]}}"#);
        let mut run = start(&format!("SELECT VALUE [{list}] FROM {from}"), Budget::default());
        run.push(item.as_bytes(), 0, &mut rows).unwrap();
        assert_eq!(rows, [format!("[{numbers}]").as_bytes()], "{from}");
    }
}
