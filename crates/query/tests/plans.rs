//! Plans: the vectors and the ranges; rewritten queries run and merge to the direct result.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use headwater_model::PartitionKeyDefinition;
use headwater_query::{Query, ResumePoint, Value};
use serde_json::Value as Json;

fn plan(text: &str, definition: &PartitionKeyDefinition) -> Json {
    let query = Query::parse(text, &common::parameters()).unwrap();
    serde_json::to_value(query.plan(definition).unwrap()).unwrap()
}

/// Ignores white space.
fn squeeze(plan: &mut Json) {
    let text = plan["queryInfo"]["rewrittenQuery"].as_str().unwrap_or_default();
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    plan["queryInfo"]["rewrittenQuery"] = Json::String(squeezed);
}

#[test]
fn plans_are_those_of_the_service() {
    let vectors: Json = serde_json::from_str(include_str!("vectors/query_plan.json")).unwrap();
    let vectors = vectors.as_array().unwrap();
    assert!(vectors.len() >= 16);
    for vector in vectors {
        let input = &vector["input"];
        let text = input["query"].as_str().unwrap();
        let definition =
            PartitionKeyDefinition::from_json(&input["partitionKey"].to_string()).unwrap();
        let (mut got, mut expected) = (plan(text, &definition), vector["expected"].clone());
        squeeze(&mut got);
        squeeze(&mut expected);
        assert_eq!(got, expected, "{text}");
    }
}

#[test]
fn ranges_follow_from_the_filter() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let a = "3A5381E1114EB8D3FCC90795045B49B7";
    let count = |filter: &str| {
        let plan = plan(&format!("SELECT * FROM c WHERE {filter}"), &definition);
        let ranges = plan["queryRanges"].as_array().unwrap().clone();
        if ranges.first().is_some_and(|range| range["max"] == "FF") { None } else { Some(ranges) }
    };
    assert_eq!(count("c.pk = 'a'").unwrap()[0]["min"], a);
    assert_eq!(count("'a' = c[\"pk\"] AND c.x > 1").unwrap().len(), 1);
    assert_eq!(count("c.pk IN ('a', 'b', 'a')").unwrap().len(), 2);
    assert_eq!(count("c.pk = 'a' OR c.pk = 'b'").unwrap().len(), 2);
    assert_eq!(count("c.pk = 'a' AND c.pk = 'b'").unwrap()[0]["max"], "");
    assert_eq!(
        count("(c.id = '1' AND c.pk = 'a') OR (c.id = '2' AND c.pk = 'b')").unwrap().len(),
        2
    );
    assert_eq!(count("c.pk = @id").unwrap().len(), 1);
    assert_eq!(count("c.pk = 'a' OR c.x = 1"), None);
    assert_eq!(count("c.pk > 'a'"), None);
    assert_eq!(count("NOT c.pk = 'a'"), None);
    assert_eq!(count("c.pk NOT IN ('a')"), None);
    assert_eq!(count("c.pk != 'a'"), None);
    assert_eq!(count("c.pk = c.pk"), None);
    assert_eq!(count("(c.pk = 'a') = false"), None);
    assert_eq!(count("c.pk = 'a' ? true : true"), None);
    assert_eq!(count("c.pk.x = 'a'"), None);
    assert_eq!(count("UPPER(c.pk) = 'A'"), None);
}

#[test]
fn the_prefix_of_a_hierarchical_key_is_a_range() {
    let definition = PartitionKeyDefinition::multi_hash(&["/tenant", "/user"]).unwrap();
    let ranges = |filter: &str| {
        plan(&format!("SELECT * FROM c WHERE {filter}"), &definition)["queryRanges"].clone()
    };
    let full = ranges("c.tenant = 't' AND c.user = 'u'");
    assert_eq!(full[0]["min"], full[0]["max"]);
    assert_eq!(full[0]["isMaxInclusive"], true);
    let prefix = ranges("c.tenant = 't'");
    let min = prefix[0]["min"].as_str().unwrap();
    assert_eq!(prefix[0]["max"], format!("{min}FF"));
    assert_eq!(prefix[0]["isMaxInclusive"], false);
    assert!(full[0]["min"].as_str().unwrap().starts_with(min));
    assert_eq!(ranges("c.user = 'u'")[0]["max"], "FF");
    assert_eq!(ranges("c.tenant = 't' OR (c.tenant = 't' AND c.user = 'u')"), prefix);
}

#[test]
fn plans_name_the_features_they_need() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let cases: &[(&str, &[&str])] = &[
        ("SELECT * FROM c", &[]),
        ("SELECT TOP 1 * FROM c", &["Top"]),
        ("SELECT VALUE COUNT(1) FROM c", &["Aggregate"]),
        ("SELECT COUNT(1) FROM c", &["NonValueAggregate"]),
        ("SELECT COUNT(1), SUM(c.a) FROM c", &["NonValueAggregate", "MultipleAggregates"]),
        ("SELECT c.a FROM c GROUP BY c.a", &["GroupBy"]),
        ("SELECT DISTINCT c.a FROM c", &["Distinct"]),
        ("SELECT * FROM c ORDER BY c.a", &["OrderBy"]),
        (
            "SELECT * FROM c ORDER BY c.a, c.b OFFSET 1 LIMIT 2",
            &["MultipleOrderBy", "OffsetAndLimit"],
        ),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.a FROM c)", &["DCount", "Distinct"]),
    ];
    for (text, expected) in cases {
        let query = Query::parse(text, &[]).unwrap();
        assert_eq!(query.plan(&definition).unwrap().features(), *expected, "{text}");
        assert_eq!(query.needs_plan(), !expected.is_empty(), "{text}");
    }
}

#[test]
fn rewritten_queries_answer_in_envelopes() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let items: Vec<String> = [
        r#"{"_rid":"r2","n":2,"s":"b"}"#,
        r#"{"_rid":"r3","n":1,"s":"a"}"#,
        r#"{"_rid":"r1","s":"c"}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    let cases = [
        (
            "SELECT c.s FROM c ORDER BY c.n",
            r#"[{"_rid":"r1","orderByItems":[{}],"payload":{"s":"c"}},{"_rid":"r3","orderByItems":[{"item":1}],"payload":{"s":"a"}},{"_rid":"r2","orderByItems":[{"item":2}],"payload":{"s":"b"}}]"#,
        ),
        (
            "SELECT TOP 1 VALUE c.s FROM c WHERE c.n > 0 ORDER BY c.n DESC, c.s",
            r#"[{"_rid":"r2","orderByItems":[{"item":2},{"item":"b"}],"payload":"b"}]"#,
        ),
        ("SELECT VALUE AVG(c.n) FROM c", r#"[[{"item":{"sum":3,"count":2}}]]"#),
        ("SELECT VALUE MAX(c.n) FROM c", r#"[[{"item":2,"item2":{"max":2,"count":2}}]]"#),
        ("SELECT VALUE MIN(c.zzz) FROM c", r#"[[{"item2":{"count":0}}]]"#),
        ("SELECT COUNT(1) AS k FROM c", r#"[{"payload":{"k":{"item":3}}}]"#),
        (
            "SELECT c.n, COUNT(1) AS k FROM c WHERE c.n = 1 GROUP BY c.n",
            r#"[{"groupByItems":[{"item":1}],"payload":{"n":1,"k":{"item":1}}}]"#,
        ),
        (
            "SELECT VALUE COUNT(1) FROM c WHERE c.n = 1 GROUP BY c.n",
            r#"[{"groupByItems":[{"item":1}],"payload":[{"item":1}]}]"#,
        ),
        (
            "SELECT VALUE c.n FROM c WHERE c.n = 1 GROUP BY c.n",
            r#"[{"groupByItems":[{"item":1}],"payload":1}]"#,
        ),
        ("SELECT VALUE c.s FROM c OFFSET 1 LIMIT 1", r#"["b","a"]"#),
    ];
    for (text, expected) in cases {
        let rewritten = plan(text, &definition)["queryInfo"]["rewrittenQuery"].clone();
        let rewritten = rewritten.as_str().unwrap();
        common::check(&items, rewritten, expected);
        let resumed = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
        common::check(&items, &resumed, expected);
    }
}

#[test]
fn resume_filters_of_the_sdks_are_understood() {
    let items: Vec<String> = [
        r#"{"_rid":"r1","n":1}"#,
        r#"{"_rid":"r2","n":"a"}"#,
        r#"{"_rid":"r3","n":null}"#,
        r#"{"_rid":"r4"}"#,
        r#"{"_rid":"r5","n":[1]}"#,
        r#"{"_rid":"r6","n":2}"#,
        r#"{"_rid":"r7","n":true}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    let resume = |filter: &str, expected: &str| {
        let text = format!(
            "SELECT c._rid, [{{\"item\": c.n}}] AS orderByItems, c AS payload FROM c WHERE ({filter}) ORDER BY c.n"
        );
        let text = format!("SELECT VALUE x._rid FROM ({text}) AS x");
        common::check(&items, &text, expected);
    };
    resume("true", r#"["r4","r3","r7","r1","r6","r2","r5"]"#);
    resume("c.n > 1 OR IS_STRING(c.n) OR IS_ARRAY(c.n) OR IS_OBJECT(c.n)", r#"["r6","r2","r5"]"#);
    resume("( c.n >= 2 OR IS_STRING(c.n) )", r#"["r6","r2"]"#);
    resume("NOT IS_DEFINED(c.n) OR IS_NULL(c.n)", r#"["r4","r3"]"#);
    resume("IS_DEFINED(c.n) AND c.n != null", r#"["r7","r1","r6","r2","r5"]"#);
}

#[test]
fn a_resume_filter_beside_the_text_starts_where_the_last_row_was() {
    let items: Vec<String> = [
        r#"{"_rid":"r1","n":1,"m":1}"#,
        r#"{"_rid":"r2","n":"a"}"#,
        r#"{"_rid":"r3","n":null}"#,
        r#"{"_rid":"r4"}"#,
        r#"{"_rid":"r5","n":[1]}"#,
        r#"{"_rid":"r6","n":2,"m":5}"#,
        r#"{"_rid":"r7","n":true}"#,
        r#"{"_rid":"r8","n":false}"#,
        r#"{"_rid":"r9","n":1,"m":2}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    let resumed = |order: &str, values: &[&str], is_exclusive: bool| {
        let text = format!("SELECT VALUE c._rid FROM c WHERE (true) ORDER BY {order}");
        let values = values.iter().map(|text| Value::from_json(text.as_bytes()).unwrap()).collect();
        ResumePoint { values, is_exclusive }.resumed(&text)
    };
    // Equal rows come in the order of the items.
    for (order, values, is_exclusive, expected) in [
        ("c.n", &["[]"][..], false, r#"["r4","r3","r8","r7","r1","r9","r6","r2","r5"]"#),
        ("c.n", &["[]"], true, r#"["r3","r8","r7","r1","r9","r6","r2","r5"]"#),
        ("c.n", &["null"], true, r#"["r8","r7","r1","r9","r6","r2","r5"]"#),
        ("c.n", &["false"], true, r#"["r7","r1","r9","r6","r2","r5"]"#),
        ("c.n", &["true"], false, r#"["r7","r1","r9","r6","r2","r5"]"#),
        ("c.n", &["1"], true, r#"["r6","r2","r5"]"#),
        ("c.n", &["1"], false, r#"["r1","r9","r6","r2","r5"]"#),
        ("c.n", &["\"a\""], true, r#"["r5"]"#),
        ("c.n DESC", &["2"], true, r#"["r1","r9","r7","r8","r3","r4"]"#),
        ("c.n DESC", &["[]"], true, "[]"),
        ("c.n, c.m", &["1", "1"], true, r#"["r9","r6","r2","r5"]"#),
        ("c.n, c.m", &["1", "1"], false, r#"["r1","r9","r6","r2","r5"]"#),
        ("c.n DESC, c.m", &["1", "1"], true, r#"["r9","r7","r8","r3","r4"]"#),
    ] {
        let text = resumed(order, values, is_exclusive).unwrap();
        common::check(&items, &text, expected);
    }
    for (order, values) in [("c.n", &["1", "2"][..]), ("c.n", &[]), ("c.n", &["{}"])] {
        let error = resumed(order, values, true).unwrap_err();
        assert!(error.service_message().contains("resume filter"), "{error}");
    }
}

#[test]
fn a_sorted_plan_leaves_out_values_that_are_not_there() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    let rewritten = |text: &str| {
        plan(text, &definition)["queryInfo"]["rewrittenQuery"].as_str().unwrap().to_owned()
    };
    let filter = "{documentdb-formattableorderbyquery-filter}";
    for (text, expected) in [
        ("SELECT VALUE c.s FROM c ORDER BY c.n", format!("(({filter}) AND IS_DEFINED(c.s))")),
        (
            "SELECT VALUE c.s FROM c WHERE c.n = 1 ORDER BY c.n",
            format!("(((c.n = 1) AND ({filter})) AND IS_DEFINED(c.s))"),
        ),
        ("SELECT c.s FROM c ORDER BY c.n", format!("({filter})")),
    ] {
        let rewritten = rewritten(text);
        assert!(rewritten.contains(&format!("WHERE {expected} ORDER BY")), "{rewritten}");
    }
    let items = [r#"{"_rid":"r1","n":1}"#, r#"{"_rid":"r2","n":2,"s":"x"}"#].map(str::to_owned);
    let expected = r#"[{"_rid":"r2","orderByItems":[{"item":2}],"payload":"x"}]"#;
    common::check(&items, &rewritten("SELECT VALUE c.s FROM c ORDER BY c.n"), expected);
}

#[test]
fn only_sorted_values_are_distinct_in_order() {
    let definition = PartitionKeyDefinition::hash("/pk").unwrap();
    for (text, expected) in [
        ("SELECT DISTINCT VALUE c.x FROM c ORDER BY c.x", "Ordered"),
        ("SELECT DISTINCT c.x FROM c ORDER BY c.x", "Unordered"),
        ("SELECT DISTINCT VALUE c.x FROM c ORDER BY c.y", "Unordered"),
        ("SELECT DISTINCT VALUE c.x FROM c", "Unordered"),
    ] {
        assert_eq!(plan(text, &definition)["queryInfo"]["distinctType"], expected, "{text}");
    }
}

#[test]
fn candidates_name_the_items_a_query_can_match() {
    let query = Query::parse(
        "SELECT * FROM c WHERE c.pk = @id AND c.id IN ('1', '2') AND c.x > 3",
        &common::parameters(),
    )
    .unwrap();
    let found = query.candidates(&[vec!["id"], vec!["pk"]]).unwrap();
    let shown: Vec<String> = found
        .iter()
        .map(|one| {
            one.iter()
                .map(|value| value.as_ref().map_or("*".to_owned(), Value::to_string))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(shown, [r#""1" "wakefield""#, r#""2" "wakefield""#]);
    assert!(query.candidates(&[vec!["other"]]).is_none());
    let joined =
        Query::parse("SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.id = '1'", &[]).unwrap();
    assert_eq!(joined.candidates(&[vec!["id"]]).unwrap().len(), 1);
    let shadowed = Query::parse("SELECT VALUE t FROM t IN c.tags WHERE t.id = '1'", &[]).unwrap();
    assert!(shadowed.candidates(&[vec!["id"]]).is_none());
}
