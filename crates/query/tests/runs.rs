//! Runs from the caller's side: streaming, resuming, budgets, user-defined functions.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use std::borrow::Cow;
use std::sync::Arc;

use headwater_query::{Context, EvaluationError, Limits, Next, Query, UserFunctions, Value};

fn query(text: &str) -> Query {
    Query::parse(text, &common::parameters()).unwrap()
}

#[test]
fn a_whole_item_comes_back_as_the_bytes_that_went_in() {
    let item = br#" { "b" : 1.0 , "a":12345678901234567890 } "#;
    for text in ["SELECT * FROM c", "SELECT * FROM c WHERE c.b = 1", "SELECT VALUE c FROM c"] {
        let mut rows = Vec::new();
        query(text).start(Context::default()).push(item, 0, &mut rows).unwrap();
        assert!(
            matches!(rows[0], Cow::Borrowed(row) if std::ptr::eq(row, item.as_slice())),
            "{text}"
        );
    }
}

#[test]
fn numbers_keep_their_text_when_they_are_passed_on() {
    let items = [r#"{"a":12345678901234567890,"b":1.0,"c":[1.50]}"#.to_owned()];
    common::check(&items, "SELECT VALUE x.a FROM x", "[12345678901234567890]");
    common::check(&items, "SELECT x.b, x.c FROM x", r#"[{"b":1.0,"c":[1.50]}]"#);
    common::check(&items, "SELECT VALUE MAX(x.a) FROM x", "[12345678901234567890]");
    common::check(&items, "SELECT VALUE x.a FROM x ORDER BY x.b", "[12345678901234567890]");
    common::check(&items, "SELECT VALUE x.b + 1 FROM x", "[2]");
    common::check(&items, "SELECT VALUE x.a FROM x GROUP BY x.a", "[12345678901234567890]");
}

#[test]
fn a_run_says_when_it_has_enough() {
    let items = common::families();
    let mut run = query("SELECT TOP 2 VALUE c.n FROM c").start(Context::default());
    let mut rows = Vec::new();
    assert_eq!(run.push(items[0].as_bytes(), 0, &mut rows), Ok(Next::More));
    assert_eq!(run.push(items[1].as_bytes(), 1, &mut rows), Ok(Next::Enough));
    assert_eq!(run.push(items[2].as_bytes(), 2, &mut rows), Ok(Next::Enough));
    assert_eq!(rows.len(), 2);
    let mut none = query("SELECT TOP 0 * FROM c").start(Context::default());
    assert_eq!(none.push(items[0].as_bytes(), 0, &mut rows), Ok(Next::Enough));
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_streaming_run_resumes_where_it_stopped() {
    let items = common::families();
    let query = query("SELECT VALUE c.n FROM c OFFSET 1 LIMIT 2");
    let mut rows = Vec::new();
    let mut progress = headwater_query::Progress::default();
    for (ordinal, item) in items.iter().enumerate() {
        let mut run = query.resume(Context::default(), progress);
        run.push(item.as_bytes(), ordinal as u64, &mut rows).unwrap();
        progress = run.progress();
    }
    assert_eq!(rows, [b"2".as_slice(), b"3"]);
}

#[test]
fn queries_say_how_they_run() {
    let cases = [
        ("SELECT * FROM c", true, true),
        ("SELECT VALUE x FROM x IN c.a WHERE x > 1", true, true),
        ("SELECT TOP 3 * FROM c", true, true),
        ("SELECT * FROM c ORDER BY c.a", false, true),
        ("SELECT DISTINCT c.a FROM c", false, true),
        ("SELECT COUNT(1) FROM c", false, true),
        ("SELECT VALUE 1", false, false),
        ("SELECT VALUE COUNT(1)", false, false),
    ];
    for (text, streaming, reads) in cases {
        assert_eq!(query(text).is_streaming(), streaming, "{text}");
        assert_eq!(query(text).reads_items(), reads, "{text}");
    }
}

#[test]
fn equal_sort_keys_follow_the_ordinal() {
    let query = query("SELECT VALUE c.id FROM c ORDER BY c.n DESC");
    let mut run = query.start(Context::default());
    for (id, ordinal) in [("b", 9_u64), ("a", 3), ("c", 1 << 40)] {
        run.push(format!(r#"{{"id":"{id}","n":1}}"#).as_bytes(), ordinal, &mut Vec::new()).unwrap();
    }
    let rows = run.finish().unwrap();
    assert_eq!(rows, [b"\"a\"", b"\"b\"", b"\"c\""]);
}

#[test]
fn the_first_rows_of_many_need_little_memory() {
    let mut limits = Limits::default();
    limits.memory_bytes = 1 << 20;
    let query =
        Query::parse_within("SELECT TOP 3 VALUE c.n FROM c ORDER BY c.n DESC", &[], &limits)
            .unwrap();
    let mut run = query.start(Context::default());
    for n in 0..50_000_u64 {
        run.push(format!(r#"{{"n":{n}}}"#).as_bytes(), n, &mut Vec::new()).unwrap();
    }
    assert_eq!(run.finish().unwrap(), [b"49999", b"49998", b"49997"]);
}

#[test]
fn work_and_memory_are_bounded() {
    let mut limits = Limits::default();
    limits.steps = 10_000;
    limits.memory_bytes = 64 * 1024;
    limits.value_bytes = 64 * 1024;
    let item = format!(r#"{{"a":[{}0],"s":"{}"}}"#, "1,".repeat(999), "x".repeat(60_000));
    let fails = |text: &str| {
        let query = Query::parse_within(text, &[], &limits).unwrap();
        let mut run = query.start(Context::default());
        let mut rows = Vec::new();
        for ordinal in 0..50 {
            if let Err(error) = run.push(item.as_bytes(), ordinal, &mut rows) {
                return error;
            }
        }
        run.finish().expect_err(text)
    };
    let steps = EvaluationError::TooManySteps { limit: 10_000 };
    let memory = EvaluationError::TooMuchMemory { limit: 64 * 1024 };
    assert_eq!(
        fails("SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a"),
        steps
    );
    assert_eq!(fails("SELECT * FROM c ORDER BY c.n"), memory);
    assert_eq!(fails("SELECT VALUE MAKELIST(c.s) FROM c"), memory);
    assert!(matches!(
        fails("SELECT VALUE c.s || c.s FROM c"),
        EvaluationError::ValueTooLarge { .. }
    ));
    assert!(matches!(
        fails("SELECT VALUE CONCAT(c.s, c.s) FROM c"),
        EvaluationError::ValueTooLarge { .. }
    ));
    assert!(matches!(
        fails("SELECT VALUE REPLACE(c.s, 'x', 'yyyy') FROM c"),
        EvaluationError::TooManySteps { .. }
    ));
    assert!(matches!(
        fails("SELECT VALUE RegexMatch(c.s, '(') FROM c"),
        EvaluationError::BadPattern(_)
    ));
    assert!(matches!(
        fails("SELECT VALUE RegexMatch(c.s, '((x{100}){100}){100}') FROM c"),
        EvaluationError::BadPattern(_)
    ));
}

struct Doubler;

impl UserFunctions for Doubler {
    fn call(&self, name: &str, arguments: &[Value<'_>]) -> Result<Value<'static>, String> {
        match (name, arguments) {
            ("double", [number]) => number
                .as_number()
                .map(|number| Value::number(number * 2.0))
                .ok_or_else(|| "not a number".to_owned()),
            _ => Err("no such function".to_owned()),
        }
    }
}

#[test]
fn user_defined_functions_are_called_through_the_context() {
    let query = query("SELECT VALUE udf.double(c.n) FROM c");
    assert_eq!(query.user_functions(), ["double"]);
    let context = Context::default().with_functions(Arc::new(Doubler));
    let mut rows = Vec::new();
    let mut run = query.start(context);
    run.push(br#"{"n":4}"#, 0, &mut rows).unwrap();
    assert_eq!(rows, [b"8".as_slice()]);
    let error = run.push(br#"{"n":"x"}"#, 1, &mut rows).unwrap_err();
    assert_eq!(error.to_string(), "user-defined function double failed: not a number");
    let missing = query.start(Context::default()).push(br#"{"n":4}"#, 0, &mut rows).unwrap_err();
    assert!(missing.to_string().contains("create it first"), "{missing}");
}

#[test]
fn a_short_query_cannot_ask_for_a_huge_row() {
    let joins: String = (1..=10)
        .map(|n| {
            format!(" JOIN (SELECT VALUE [{}]) AS x{n}", format!("x{},", n - 1).repeat(50) + "1")
        })
        .collect();
    let text = format!("SELECT VALUE x10 FROM c x0{joins}");
    let query = query(&text);
    let error = query.start(Context::default()).push(b"{}", 0, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, EvaluationError::ValueTooLarge { .. }), "{error}");
    let wide = format!("SELECT VALUE [{}c] FROM c", "c,".repeat(10_000));
    let item = format!(r#"{{"a":"{}"}}"#, "x".repeat(100_000));
    let error = self::query(&wide)
        .start(Context::default())
        .push(item.as_bytes(), 0, &mut Vec::new())
        .unwrap_err();
    assert!(matches!(error, EvaluationError::ValueTooLarge { .. }), "{error}");
}

#[test]
fn a_query_as_deep_as_allowed_runs() {
    let shapes = [
        ("[", "1", "]"),
        ("{a: ", "1", "}"),
        ("ABS(", "1", ")"),
        ("NOT ", "true", ""),
        ("1 + (", "1", ")"),
        ("(", "true", " OR true)"),
        ("true ? (", "1", ") : 0"),
        ("IIF(true, [", "1", "], 0)"),
        ("(SELECT VALUE [ABS(", "1", ")][0])"),
        ("ARRAY(SELECT VALUE x FROM (SELECT VALUE ", "1", ") AS x)"),
        ("EXISTS(SELECT VALUE 1 WHERE ", "true", ")"),
    ];
    for (open, core, close) in shapes {
        let parse = |times: usize| {
            let text = format!("SELECT VALUE {}{core}{}", open.repeat(times), close.repeat(times));
            Query::parse(&text, &[])
        };
        let deepest = (1..).take_while(|times| parse(*times).is_ok()).last().unwrap();
        assert!((15..200).contains(&deepest), "{open}: {deepest}");
        let query = parse(deepest).unwrap();
        let rows = query.start(Context::default()).finish().unwrap();
        assert_eq!(rows.len(), 1, "{open}");
        let printed = query.tree().to_string();
        assert_eq!(Query::parse(&printed, &[]).unwrap().tree(), query.tree(), "{open}");
    }
}

#[test]
fn looking_into_large_values_costs_steps() {
    let item = format!(r#"{{"a":[1],"o":{{"s":"{}"}}}}"#, "x".repeat(64 * 1024));
    for text in [
        "SELECT VALUE c.o.t FROM c",
        "SELECT VALUE c.o['t' || 'u'] FROM c",
        "SELECT VALUE c.o = c.o FROM c",
        "SELECT VALUE c.o IN ({a: 1}, 2) FROM c",
        "SELECT VALUE IS_OBJECT(c.o) FROM c",
        "SELECT VALUE x FROM c JOIN x IN c.o",
    ] {
        let mut run = query(text).start(Context::default());
        run.push(item.as_bytes(), 0, &mut Vec::new()).unwrap();
        assert!(run.steps() > 200, "{text}: {} steps", run.steps());
    }
}

#[test]
fn queries_and_runs_travel_between_threads() {
    fn travels<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Query>();
    travels::<headwater_query::Run>();
    travels::<Context>();
}

#[test]
fn the_answer_does_not_depend_on_the_order_in_which_items_are_pushed() {
    let items: Vec<String> =
        // Two texts for the same number; the result shows that of the first item.
        (0..40).map(|n| format!(r#"{{"id":"{n}","g":{}{},"n":{n}}}"#, n % 7, ["", ".0"][n % 2])).collect();
    let queries = [
        "SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g",
        "SELECT DISTINCT VALUE c.g FROM c",
        "SELECT VALUE x.n FROM (SELECT * FROM c WHERE c.n > 3) x",
        "SELECT VALUE c.n FROM c ORDER BY c.g",
        "SELECT c.g FROM c GROUP BY c.g OFFSET 2 LIMIT 3",
        "SELECT VALUE SUM(c.n) FROM c",
    ];
    for text in queries {
        let query = Query::parse(text, &[]).unwrap();
        let answer = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut run = query.start(Context::default());
            for number in numbers {
                run.push(items[number].as_bytes(), number as u64, &mut Vec::new()).unwrap();
            }
            run.finish().unwrap()
        };
        let forwards = answer(&mut (0..items.len()));
        assert_eq!(forwards, answer(&mut (0..items.len()).rev()), "{text}");
        assert_eq!(forwards, answer(&mut (0..items.len()).map(|n| n * 17 % 40)), "{text}");
    }
}

#[test]
fn a_query_that_only_counts_needs_no_items() {
    let items = common::families();
    let many = items.len() as u64;
    for text in [
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE COUNT(c) FROM c",
        "SELECT COUNT(1) AS a, COUNT(undefined) AS b, COUNTIF(true) AS d FROM c",
        "SELECT VALUE COUNTIF(c) FROM c",
        "SELECT VALUE [{\"item\": COUNT(1)}] FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE true",
        "SELECT TOP 0 VALUE COUNT(1) FROM c",
        "SELECT VALUE COUNT(1) FROM c OFFSET 1 LIMIT 5",
        "SELECT DISTINCT VALUE COUNT(1) FROM c ORDER BY c.n",
        "SELECT VALUE x.n + 1 FROM (SELECT COUNT(1) AS n FROM c) x",
    ] {
        let query = query(text);
        assert!(query.only_counts(), "{text}");
        let mut counted = query.start(Context::default());
        counted.count(many - 1).unwrap();
        counted.count(1).unwrap();
        let mut pushed = query.start(Context::default());
        for (ordinal, item) in items.iter().enumerate() {
            pushed.push(item.as_bytes(), ordinal as u64, &mut Vec::new()).unwrap();
        }
        assert_eq!(counted.finish(), pushed.finish(), "{text}");
        let (mut none, mut zero) =
            (query.start(Context::default()), query.start(Context::default()));
        zero.count(0).unwrap();
        assert_eq!(zero.finish(), none.finish(), "{text}");
    }
    for text in [
        "SELECT VALUE COUNT(c.n) FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n = 1",
        "SELECT VALUE COUNT(1) FROM c WHERE false",
        "SELECT VALUE COUNT(1) FROM c.children",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.children",
        "SELECT c.n, COUNT(1) FROM c GROUP BY c.n",
        "SELECT VALUE SUM(1) FROM c",
        "SELECT COUNT(1), MAX(c.n) FROM c",
        "SELECT VALUE COUNT(RAND()) FROM c",
        "SELECT VALUE COUNT(1)",
        "SELECT VALUE 1 FROM c",
        "SELECT * FROM c",
    ] {
        assert!(!query(text).only_counts(), "{text}");
    }
}
