//! Queries over a small set of items, as a table: each query and the expected rows.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use common::{check, check_error, families};

#[test]
fn projections() {
    let items = families();
    check(&items, "SELECT VALUE c.id FROM c", r#"["andersen","wakefield","miller"]"#);
    check(
        &items,
        "SELECT c.id, c.address.city AS town FROM c WHERE c.n = 1",
        r#"[{"id":"andersen","town":"Seattle"}]"#,
    );
    check(&items, "SELECT c.missing FROM c WHERE c.n = 1", "[{}]");
    check(&items, "SELECT VALUE c.missing FROM c", "[]");
    check(
        &items,
        "SELECT c.n + 1, 2 AS two, c.n * 2 FROM c WHERE c.n = 1",
        r#"[{"$1":2,"two":2,"$2":2}]"#,
    );
    check(&items, r#"SELECT c["address"]["city"] FROM c WHERE c.n = 1"#, r#"[{"city":"Seattle"}]"#);
    check(
        &items,
        "SELECT VALUE {a: c.n, \"b\": [c.id, c.missing]} FROM c WHERE c.n = 1",
        r#"[{"a":1,"b":["andersen"]}]"#,
    );
    check(&items, "SELECT VALUE 1", "[1]");
    check(&items, "SELECT 1", r#"[{"$1":1}]"#);
    check(&items, "SELECT TOP 2 VALUE c.n FROM c", "[1,2]");
    check(&items, "SELECT TOP @n VALUE c.n FROM c", "[1]");
    check(&items, "SELECT VALUE c.n FROM c OFFSET 1 LIMIT 1", "[2]");
    check(&items, "SELECT DISTINCT VALUE c.isRegistered FROM c", "[true,false]");
    check(&items, "SELECT DISTINCT c.nothing FROM c", "[{}]");
    check(&items, "SELECT c FROM c WHERE false", "[]");
}

/// A join over the text of an item gives the same rows as a join over values made from it, including names with
/// escapes and properties of elements that are not objects.
#[test]
fn joins_over_text_and_over_values_agree() {
    let item = r#"{"id":"1","tags":[ {"k":1,"list":[{"x":2},{"x":[3]},4]},{"list":[],"k":"}"}, 5,
        [{"k":9}],null,{"\u006b":7,"list":[{"x":1}] , "k":8}]}"#;
    let items = vec![item.to_owned()];
    for join in ["JOIN t IN c.tags", "JOIN (SELECT VALUE x FROM x IN c.tags) t"] {
        let query = format!(
            "SELECT VALUE [t.k, u.x, t.list[0], EXISTS(SELECT VALUE v FROM v IN t.list WHERE v.x = u.x)] \
             FROM c {join} JOIN u IN t.list"
        );
        let rows =
            r#"[[1,2,{"x":2},true],[1,[3],{"x":2},true],[1,{"x":2},false],[7,1,{"x":1},true]]"#;
        check(&items, &query, rows);
    }
}

#[test]
fn sources_and_joins() {
    let items = families();
    check(&items, "SELECT VALUE x.name FROM x IN c.children", r#"["Jesse","Lisa"]"#);
    check(&items, "SELECT * FROM c.address", r#"[{"city":"Seattle"},{"city":"NY"}]"#);
    check(&items, "SELECT VALUE a.city FROM root.address a", r#"["Seattle","NY"]"#);
    check(&items, "SELECT VALUE k.name FROM Families.children[0] AS k", r#"["Jesse"]"#);
    check(
        &items,
        "SELECT f.id, k.grade FROM Families f JOIN k IN f.children WHERE k.grade > 1",
        r#"[{"id":"wakefield","grade":8}]"#,
    );
    check(
        &items,
        "SELECT VALUE p.name FROM f JOIN k IN f.children JOIN p IN k.pets",
        r#"["Goofy","Shadow"]"#,
    );
    check(&items, "SELECT VALUE m FROM c JOIN m IN (SELECT VALUE [1, 2]) WHERE c.n = 1", "[1,2]");
    check(
        &items,
        "SELECT VALUE k FROM c JOIN (SELECT VALUE k.name FROM k IN c.children WHERE k.grade = 1) AS k",
        r#"["Lisa"]"#,
    );
    check_error(&items, "SELECT * FROM c JOIN x IN c.children");
    check_error(&items, "SELECT *");
}

#[test]
fn filters() {
    let items = families();
    let ids = |filter: &str, expected: &str| {
        check(&items, &format!("SELECT VALUE c.n FROM c WHERE {filter}"), expected);
    };
    ids("c.id = 'andersen'", "[1]");
    ids("c.id = @id", "[2]");
    ids("c.n > 1 AND c.n <= 3", "[2,3]");
    ids("c.n < 2 OR c.n > 2", "[1,3]");
    ids("NOT c.n = 1", "[2,3]");
    ids("c.n != 1", "[2,3]");
    ids("c.n <> 1", "[2,3]");
    ids("c.n IN (1, 3, 'x')", "[1,3]");
    ids("c.n NOT IN (1, 3)", "[2]");
    ids("c.n BETWEEN 2 AND 3", "[2,3]");
    ids("c.n NOT BETWEEN 2 AND 3", "[1]");
    ids("c.id LIKE '%e%r%'", "[1,3]");
    ids("c.id NOT LIKE 'a%'", "[2,3]");
    ids("c.address.city = 'NY'", "[2]");
    ids("c.missing = 1", "[]");
    ids("NOT c.missing = 1", "[]");
    ids("c.missing = 1 OR c.n = 1", "[1]");
    ids("c.isRegistered", "[1]");
    ids("c.n", "[]");
    ids("(c.missing ?? 5) = 5", "[1,2,3]");
    ids("(c.n = 1 ? true : c.n = 2)", "[1,2]");
    ids("c.n & 1 = 1", "[1,3]");
    ids("c.id || '!' = 'miller!'", "[3]");
    ids("EXISTS(SELECT VALUE k FROM k IN c.children WHERE k.grade = 8)", "[2]");
    ids("ARRAY(SELECT VALUE k.name FROM k IN c.children) = ['Jesse', 'Lisa']", "[2]");
    ids("(SELECT VALUE COUNT(1) FROM k IN c.children) = 2", "[2]");
    ids("ARRAY_CONTAINS(@list, c.n)", "[1,2]");
    ids("ARRAY_CONTAINS(@list, c.missing)", "[]");
    ids("NOT ARRAY_CONTAINS(@list, c.missing)", "[]");
    ids("NOT ARRAY_CONTAINS([1, {}], c.n)", "[2,3]");
    ids("ARRAY_CONTAINS(c.children, {grade: 1}, true)", "[2]");
    ids("c.tags = null", "[3]");
    ids("c.address != null", "[1,2]");
    ids("c.n > 'a'", "[]");
}

#[test]
fn orders() {
    let items = families();
    check(&items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", "[3,2,1]");
    check(&items, "SELECT VALUE c.n FROM c ORDER BY c.id", "[1,3,2]");
    check(&items, "SELECT VALUE c.n FROM c ORDER BY c.isRegistered, c.n DESC", "[3,2,1]");
    check(&items, "SELECT VALUE c.n FROM c ORDER BY c.isRegistered DESC, c.n", "[1,2,3]");
    check(&items, "SELECT TOP 1 VALUE c.n FROM c ORDER BY c.n DESC", "[3]");
    check(&items, "SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 5", "[2,1]");
    check(&items, "SELECT VALUE c.n FROM c ORDER BY -c.n", "[3,2,1]");
    check(
        &items,
        "SELECT * FROM c WHERE c.n = 3 ORDER BY c.n",
        r#"[{"id":"miller","n":3,"tags":null}]"#,
    );
}

#[test]
fn aggregates_and_groups() {
    let items = families();
    check(&items, "SELECT VALUE COUNT(1) FROM c", "[3]");
    check(&items, "SELECT VALUE COUNT(c.address) FROM c", "[2]");
    check(
        &items,
        "SELECT COUNT(1) AS n, SUM(c.n) AS s, AVG(c.n) AS a, MIN(c.id) AS i, MAX(c.n) AS x FROM c",
        r#"[{"n":3,"s":6,"a":2,"i":"andersen","x":3}]"#,
    );
    check(&items, "SELECT COUNT(1) FROM c WHERE false", r#"[{"$1":0}]"#);
    check(&items, "SELECT VALUE AVG(c.n) FROM c WHERE false", "[]");
    check(&items, "SELECT VALUE SUM(c.n) FROM c WHERE false", "[0]");
    check(&items, "SELECT VALUE SUM(c.id) FROM c", "[]");
    check(&items, "SELECT VALUE SUM(c.n) + 1 FROM c", "[7]");
    check(&items, "SELECT VALUE SUM(c.n) FROM c ORDER BY c.id", "[6]");
    check_error(&items, "SELECT VALUE SUM(c.n) FROM c ORDER BY d.id");
    check_error(&items, "SELECT c.n, SUM(c.n) FROM c GROUP BY c.n ORDER BY c.id");
    check(
        &items,
        "SELECT c.address.city, COUNT(1) AS n FROM c GROUP BY c.address.city",
        r#"[{"city":"Seattle","n":1},{"city":"NY","n":1},{"n":1}]"#,
    );
    check(
        &items,
        "SELECT c.n % 2 AS odd, SUM(c.n) AS s FROM c GROUP BY c.n % 2 ORDER BY SUM(c.n) DESC",
        r#"[{"odd":1,"s":4},{"odd":0,"s":2}]"#,
    );
    check(&items, "SELECT VALUE COUNT(1) FROM c GROUP BY c.nothing", "[3]");
    check(
        &items,
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.isRegistered FROM c)",
        "[2]",
    );
    check(&items, "SELECT VALUE COUNT(1) FROM (SELECT TOP 2 c.id FROM c) AS x", "[2]");
    check(
        &items,
        "SELECT VALUE x.id FROM (SELECT c.id FROM c WHERE c.n > 1) x",
        r#"["wakefield","miller"]"#,
    );
    check_error(&items, "SELECT c.id, COUNT(1) FROM c");
    check_error(&items, "SELECT * FROM c WHERE COUNT(1) > 1");
    check_error(&items, "SELECT VALUE SUM(COUNT(1)) FROM c");
}

#[test]
fn queries_as_sdks_send_them() {
    let offers: Vec<String> = [
        r#"{"id":"QH8O","resource":"dbs/a==/colls/b==/","offerResourceId":"b==","content":{"offerThroughput":400}}"#,
        r#"{"id":"wakefield","resource":"dbs/a==/colls/c==/","offerResourceId":"c==","content":{"offerThroughput":500}}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    let ids = |text: &str, expected: &str| check(&offers, text, expected);
    let both = r#"["QH8O","wakefield"]"#;
    ids(
        r#"SELECT value root.id from root where root.resource = "dbs/a==/colls/b==/""#,
        r#"["QH8O"]"#,
    );
    ids("select value r.id from root r where r.id= @id", r#"["wakefield"]"#);
    ids("SELECT VALUE r.id FROM Root AS r", both);
    ids("SELECT VALUE r.id FROM root AS r WHERE (r[\"offerResourceId\"] = \"b==\")", r#"["QH8O"]"#);
    ids(
        "SELECT VALUE c.id FROM c WHERE ( (c.id = @id AND c.offerResourceId = 'c==') OR (c.id = 'x') )",
        r#"["wakefield"]"#,
    );
    ids("SELECT VALUE c.id FROM c WHERE c.id IN (@id,@n)", r#"["wakefield"]"#);
    ids(
        "SELECT VALUE root[\"id\"] FROM root ORDER BY root[\"content\"][\"offerThroughput\"] DESC",
        r#"["wakefield","QH8O"]"#,
    );
    ids("SELECT VALUE [{\"item\": COUNT(1)}] FROM root", r#"[[{"item":2}]]"#);
    ids(
        "SELECT VALUE {\"a\": r.id, \"b\": {\"c\": [r.content.offerThroughput]}} FROM r WHERE r.id != 'QH8O'",
        r#"[{"a":"wakefield","b":{"c":[500]}}]"#,
    );
    ids("SELECT VALUE r.id FROM r WHERE IS_DEFINED(r.content) AND ARRAY_CONTAINS(@list, 2)", both);
    ids("SELECT VALUE COUNT(r) FROM r", "[2]");
    ids("SELECT VALUE r.id FROM r WHERE TRUE", both);
    ids(
        "SELECT VALUE r.id FROM r WHERE ((true) AND (({documentdb-formattableorderbyquery-filter})))",
        both,
    );
}

#[test]
fn odd_items() {
    let items: Vec<String> = [
        r#"{"a b":1,"value":2,"order":{"by":3},"été":"ü","":9,"a\"b":"q"}"#,
        r#"{"value":"2","order":[{"by":3}],"big":12345678901234567890,"esc":"\u0041\n","n":-0}"#,
        r#"{"value":[[1,[2]],[]],"order":null,"big":1e2,"deep":{"a":{"a":{"a":{"a":1}}}}}"#,
        "{}",
    ]
    .map(str::to_owned)
    .to_vec();
    let check = |text: &str, expected: &str| check(&items, text, expected);
    check(r#"SELECT VALUE c["a b"] FROM c"#, "[1]");
    check("SELECT VALUE c.value FROM c", r#"[2,"2",[[1,[2]],[]]]"#);
    check("SELECT VALUE c.order.by FROM c", "[3]");
    check("SELECT VALUE c.order[0].by FROM c", "[3]");
    check("SELECT VALUE c.été FROM c", r#"["ü"]"#);
    check(r#"SELECT VALUE c[""] FROM c"#, "[9]");
    check(r#"SELECT VALUE c["a\"b"] FROM c"#, r#"["q"]"#);
    check("SELECT VALUE c.esc FROM c WHERE c.esc = 'A\\n'", r#"["A\n"]"#);
    check("SELECT VALUE c.big FROM c ORDER BY c.big", "[1e2,12345678901234567890]");
    check("SELECT VALUE c.value[0][1][0] FROM c", "[2]");
    check("SELECT VALUE x FROM c JOIN v IN c.value JOIN x IN v", "[1,[2]]");
    check("SELECT VALUE c.deep.a.a.a FROM c", r#"[{"a":1}]"#);
    check("SELECT VALUE COUNT(1) FROM c WHERE c.value = 2 OR c.value = '2'", "[2]");
    check("SELECT VALUE c.n = 0 FROM c", "[true]");
    check("SELECT VALUE MAX(c.value) FROM c", "[]");
    check("SELECT VALUE MIN(c.order) FROM c WHERE IS_PRIMITIVE(c.order)", "[null]");
    check("SELECT c.value AS value, c.order AS order FROM c WHERE c.value = 2 AND false", "[]");
}

/// SDKs resume a sorted query with a filter for the remaining values: values of the same type, and all later
/// types. They name types as the service does, even where the documentation has another name.
#[test]
fn the_filters_that_sdks_go_on_with_are_understood() {
    let values =
        ["", r#""v":null"#, r#""v":false"#, r#""v":1"#, r#""v":"a""#, r#""v":[]"#, r#""v":{}"#];
    let items: Vec<String> = values.iter().map(|value| format!("{{{value}}}")).collect();
    let rewritten = |filter: &str, order: &str| {
        format!(
            "SELECT c._rid, [{{\"item\": c.v}}] AS orderByItems, c AS payload FROM c \
             WHERE (true) AND ({filter}) ORDER BY c.v {order}"
        )
    };
    let behind_number = "((c.v > 1) OR IS_STRING(c.v) OR IS_ARRAY(c.v) OR IS_OBJECT(c.v))";
    let before_number = "((c.v < 1) OR NOT IS_DEFINED(c.v) OR IS_NULL(c.v) OR IS_BOOLEAN(c.v))";
    for (filter, order, expected) in [
        (behind_number, "ASC", ["\"a\"", "[]", "{}"]),
        (before_number, "DESC", ["false", "null", "undefined"]),
    ] {
        let found = common::run(&items, &rewritten(filter, order)).unwrap();
        let found: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap();
        let of = |row: &serde_json::Value| {
            row["payload"].get("v").map_or("undefined".to_owned(), ToString::to_string)
        };
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), expected, "{filter}");
    }
}
