//! The shape of plans: which fields each query has in its plan, as the service plans it. `plans.rs` runs the
//! rewritten queries.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use headwater_model::{PartitionKey, PartitionKeyDefinition};
use headwater_query::{PlanDocument, Query, Value};

fn definition() -> PartitionKeyDefinition {
    PartitionKeyDefinition::hash("/town").unwrap()
}

fn plan(text: &str) -> PlanDocument {
    Query::parse(text, &common::parameters()).unwrap().plan(&definition()).unwrap()
}

fn rewritten(text: &str) -> String {
    plan(text).query_info.rewritten_query
}

/// Checks the points of a plan, as partition keys in JSON; `*` for all keys.
#[track_caller]
fn check_keys(filter: &str, keys: &[&str]) {
    let plan = plan(&format!("SELECT * FROM p WHERE {filter}"));
    let found: Vec<String> = plan.query_ranges.iter().map(|range| range.min.clone()).collect();
    let is_point = plan.query_ranges.iter().all(|range| range.min == range.max);
    if keys == ["*"] {
        assert!(!is_point, "{filter}: {found:?}");
        return;
    }
    let hash = |key: &&str| match *key {
        "first range" => String::new(),
        key => definition().epk(&PartitionKey::parse(key).unwrap()).unwrap().to_hex(),
    };
    let mut expected: Vec<String> = keys.iter().map(hash).collect();
    expected.sort();
    assert!(is_point && found == expected, "{filter}: {found:?}, not {expected:?}");
}

#[test]
fn conditions_on_the_partition_key_name_the_ranges() {
    check_keys("p.town", &["[true]"]);
    check_keys("NOT p.town", &["[false]"]);
    check_keys("NOT (p.town > 3)", &["*"]);
    check_keys("IS_BOOL(p.town)", &["[true]", "[false]"]);
    check_keys("IS_NULL(p.town)", &["[null]"]);
    check_keys("NOT IS_NULL(p.town)", &["*"]);
    check_keys("ABS(p.town) = 7", &["[7]", "[-7]"]);
    check_keys("7 = ABS(p.town)", &["[7]", "[-7]"]);
    check_keys("ABS(p.town) > 7", &["*"]);
    check_keys("ARRAY_CONTAINS(['Bern', 'Ulm'], p.town)", &[r#"["Bern"]"#, r#"["Ulm"]"#]);
    check_keys("ARRAY_CONTAINS(@list, p.town)", &["[1]", "[2]"]);
    check_keys("ARRAY_CONTAINS(p.towns, p.town)", &["*"]);
    check_keys("ARRAY_CONTAINS(['Bern'], p.town, true)", &["*"]);
    check_keys("ARRAY_CONTAINS([1], p.town) AND p.town = 2", &["first range"]);
    check_keys("p.town LIKE 'Bern'", &[r#"["Bern"]"#]);
    check_keys("p.town LIKE '100!%' ESCAPE '!'", &[r#"["100%"]"#]);
    check_keys("p.town LIKE 'Ber_'", &["*"]);
    check_keys("p.town NOT LIKE 'Bern'", &["*"]);
    check_keys("p.town LIKE '[AB]ern'", &["*"]);
}

#[test]
fn objects_and_arrays_are_the_key_of_items_without_one() {
    check_keys("p.town = {}", &["[{}]"]);
    check_keys("p.town = {name: 'Bern', zip: [3000]}", &["[{}]"]);
    check_keys("p.town IN ([], ['Bern'], 5)", &["[{}]", "[5]"]);
    check_keys("p.town = @list", &["[{}]"]);
    check_keys("p.town = [p.other]", &["*"]);
}

#[test]
fn a_query_without_items_runs_on_the_first_range_alone() {
    for text in ["SELECT VALUE 40 + 2", "SELECT TOP 3 1", "SELECT VALUE 1 OFFSET 0 LIMIT 1"] {
        let plan = plan(text);
        assert_eq!((plan.query_ranges.len(), plan.query_ranges[0].max.as_str()), (1, ""), "{text}");
        assert!(plan.features().is_empty(), "{text}: {:?}", plan.features());
    }
    check_keys("false", &["first range"]);
    check_keys("p.town = 'Bern' AND p.town = 'Ulm'", &["first range"]);
    let query = Query::parse("SELECT VALUE @n", &common::parameters()).unwrap();
    assert_eq!(query.plan_over_all_keys().unwrap().query_ranges[0].max, "");
}

#[test]
fn one_partition_key_answers_offset_and_limit_itself() {
    let text = "SELECT p.name FROM p WHERE p.town = 'Bern' OFFSET 20 LIMIT 10";
    let info = plan(text).query_info;
    assert_eq!((info.offset, info.limit, info.rewritten_query.as_str()), (None, None, ""));
    // Without the parameter's value, the plan cannot tell that there is one key.
    let open = Query::parse(text, &[]).unwrap().plan_over_all_keys().unwrap();
    assert_eq!((open.query_info.offset, open.query_info.limit), (Some(20), Some(10)));
    // The client merges, so it also applies the window.
    for text in [
        "SELECT DISTINCT p.name FROM p WHERE p.town = 'Bern' OFFSET 20 LIMIT 10",
        "SELECT VALUE COUNT(1) FROM p WHERE p.town = 'Bern' OFFSET 20 LIMIT 10",
        "SELECT p.name FROM p WHERE p.town = 'Bern' ORDER BY p.name OFFSET 20 LIMIT 10",
        "SELECT p.name FROM p WHERE p.town IN ('Bern', 'Ulm') OFFSET 20 LIMIT 10",
    ] {
        assert_eq!(plan(text).query_info.offset, Some(20), "{text}");
    }
    let top = plan("SELECT TOP 4 p.name FROM p WHERE p.town = 'Bern'").query_info;
    assert_eq!((top.top, top.rewritten_query.as_str()), (Some(4), ""));
}

#[test]
fn the_largest_windows_are_rewritten_to_queries_that_parse() {
    const MOST: u32 = u32::MAX;
    for (offset, limit, rows) in [
        (1, MOST, MOST),
        (MOST, MOST, MOST),
        (MOST, 0, MOST),
        (0, MOST, MOST),
        (MOST - 1, 1, MOST),
        (2, 3, 5),
    ] {
        let parameters = [("@o", offset), ("@l", limit)]
            .map(|(name, n)| (name.to_owned(), Value::number(n.into())));
        let windows = [format!("OFFSET {offset} LIMIT {limit}"), "OFFSET @o LIMIT @l".to_owned()];
        for (window, order) in windows.iter().flat_map(|w| [(w, ""), (w, "ORDER BY p.name ")]) {
            let text = format!("SELECT p.name FROM p {order}{window}");
            let info = Query::parse(&text, &parameters).unwrap();
            let info = info.plan(&definition()).unwrap().query_info;
            let expected = (Some(u64::from(offset)), Some(u64::from(limit)));
            assert_eq!((info.offset, info.limit), expected, "{text}");
            let rewritten = info.rewritten_query;
            assert!(rewritten.ends_with(&format!(" OFFSET 0 LIMIT {rows}")), "{text}: {rewritten}");
            let parsed = Query::parse(&rewritten, &parameters);
            assert!(parsed.is_ok(), "{text}: {rewritten}: {}", parsed.unwrap_err());
        }
        for top in [limit.to_string(), "@l".to_owned()] {
            let text = format!("SELECT TOP {top} p.name FROM p ORDER BY p.name");
            let info = Query::parse(&text, &parameters).unwrap();
            let info = info.plan(&definition()).unwrap().query_info;
            assert_eq!(info.top, Some(u64::from(limit)), "{text}");
            let rewritten = info.rewritten_query;
            assert!(rewritten.starts_with(&format!("SELECT TOP {limit} ")), "{text}: {rewritten}");
            let parsed = Query::parse(&rewritten, &parameters);
            assert!(parsed.is_ok(), "{text}: {rewritten}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn distinct_rows_of_a_range_are_not_limited() {
    let expected = "SELECT DISTINCT VALUE p.name FROM p";
    assert_eq!(rewritten("SELECT DISTINCT TOP 4 VALUE p.name FROM p"), expected);
    assert_eq!(rewritten("SELECT DISTINCT VALUE p.name FROM p OFFSET 1 LIMIT 4"), expected);
    assert_eq!(rewritten("SELECT DISTINCT VALUE p.name FROM p"), "");
}

#[test]
fn rewritten_queries_keep_their_order_clause() {
    for (order, expected) in [
        ("p.a ASC, p.b DESC", "p.a ASC, p.b DESC"),
        ("p.a, p.b asc", "p.a, p.b ASC"),
        ("p.a desc", "p.a DESC"),
    ] {
        let text = rewritten(&format!("SELECT * FROM p ORDER BY {order}"));
        assert!(text.ends_with(&format!(" ORDER BY {expected}")), "{text}");
    }
    let text = "SELECT VALUE SUM(k.age) FROM p JOIN k IN p.kids ORDER BY k.name";
    assert!(rewritten(text).ends_with(" JOIN k IN p.kids ORDER BY k.name"), "{}", rewritten(text));
    assert!(plan(text).query_info.order_by.is_empty());
    let items = [r#"{"kids":[{"age":3,"name":"b"},{"age":4,"name":"a"}]}"#.to_owned()];
    common::check(&items, &rewritten(text), r#"[[{"item":7}]]"#);
}

#[test]
fn parts_of_a_group_key_may_be_selected() {
    let items = [
        r#"{"home":{"town":"Bern","zip":[3000]}}"#,
        r#"{"home":{"town":"Bern","zip":[3000]}}"#,
        r#"{"home":{"town":"Ulm","zip":[89073]}}"#,
    ]
    .map(str::to_owned);
    common::check(
        &items,
        "SELECT p.home.town, p.home.zip[0] AS zip, COUNT(1) AS n FROM p GROUP BY p.home",
        r#"[{"town":"Bern","zip":3000,"n":2},{"town":"Ulm","zip":89073,"n":1}]"#,
    );
    common::check_error(&items, "SELECT p.home.town FROM p GROUP BY p.home.zip");
    common::check_error(&items, "SELECT p.home FROM p GROUP BY p.home.town");
}
