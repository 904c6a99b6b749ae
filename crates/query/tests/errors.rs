//! Messages of invalid queries: text, position and suggestion.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod common;

use headwater_query::{Query, Value};

/// Checks the line, the column and the message.
#[track_caller]
fn check(text: &str, expected: &str) {
    let error = Query::parse(text, &[]).map(|_| "no error").unwrap_err();
    assert_eq!(error.to_string(), expected, "{text}");
}

#[test]
fn messages_say_where_what_was_expected_and_what_was_meant() {
    let cases = [
        ("", "1:1: Syntax error, unexpected end of the query. Expected 'SELECT'."),
        (
            "SELCT * FROM c",
            "1:1: Syntax error, incorrect syntax near 'SELCT'. Expected 'SELECT'. Did you mean 'SELECT'?",
        ),
        (
            "SELECT * FORM c",
            "1:10: Syntax error, incorrect syntax near 'FORM'. Expected the end of the query. Did you mean 'FROM'?",
        ),
        (
            "SELECT c.id FORM c",
            "1:13: Syntax error, incorrect syntax near 'FORM'. Expected a clause. Did you mean 'FROM'?",
        ),
        (
            "SELECT * FROM c WERE c.x = 1",
            "1:17: Syntax error, incorrect syntax near 'WERE'. Expected a clause. Did you mean 'WHERE'?",
        ),
        (
            "SELECT * FROM c WHERE c.x = 1 ORDR BY c.x",
            "1:31: Syntax error, incorrect syntax near 'ORDR'. Expected the end of the query. Did you mean 'ORDER'?",
        ),
        (
            "SELECT * FROM c ORDER c.x",
            "1:23: Syntax error, incorrect syntax near 'c'. Expected 'BY'.",
        ),
        (
            "SELECT *\nFROM c\nWHERE c.x = = 1",
            "3:13: Syntax error, incorrect syntax near '='. Expected an expression.",
        ),
        (
            "SELECT * FROM c WHERE",
            "1:22: Syntax error, unexpected end of the query. Expected an expression.",
        ),
        (
            "SELECT * FROM c WHERE (c.x = 1",
            "1:31: Syntax error, unexpected end of the query. Expected ')'.",
        ),
        (
            "SELECT * FROM c WHERE c.x = 'open",
            "1:29: Syntax error, incorrect syntax near '''. Expected ' to end the string.",
        ),
        (
            "SELECT * FROM c WHERE d.x = 1",
            "1:23: Identifier 'd' could not be resolved. Did you mean 'c.d'?",
        ),
        (
            "SELECT * FROM Items WHERE items.x = 1",
            "1:27: Identifier 'items' could not be resolved. Did you mean 'Items'?",
        ),
        (
            "SELECT * FROM c WHERE STARTWITH(c.x, 'a')",
            "1:23: 'STARTWITH' is not a recognized built-in function name. Did you mean 'STARTSWITH'?",
        ),
        (
            "SELECT * FROM c WHERE LENGTH(c.x, 1) = 1",
            "1:23: The LENGTH function cannot be called with 2 argument(s). Expected LENGTH(string).",
        ),
        (
            "SELECT * FROM c WHERE c.x = @x",
            "1:29: The query uses parameter '@x' which was not sent.",
        ),
        (
            "SELECT COUNT(*) FROM c",
            "1:14: Syntax error, incorrect syntax near '*'. Expected an expression. Did you mean 'COUNT(1)'?",
        ),
        ("SELECT *", "1:1: 'SELECT *' is not valid if FROM clause is omitted."),
        (
            "SELECT * FROM c JOIN t IN c.tags",
            "1:22: 'SELECT *' is only valid with a single input set; name what to select.",
        ),
        (
            "SELECT c.a, COUNT(1) FROM c",
            "1:8: Property reference 'c.a' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.",
        ),
        (
            "SELECT TOP -1 * FROM c",
            "1:12: Syntax error, incorrect syntax near '-'. Expected a number or a parameter.",
        ),
        ("SELECT TOP 1.5 * FROM c", "1:12: TOP needs an integer from 0 to 4294967295."),
        ("SELECT TOP 4294967296 * FROM c", "1:12: TOP needs an integer from 0 to 4294967295."),
        (
            "SELECT * FROM c OFFSET 4294967296 LIMIT 1",
            "1:24: OFFSET needs an integer from 0 to 4294967295.",
        ),
        (
            "SELECT * FROM c OFFSET 1 LIMIT 4294967296",
            "1:32: LIMIT needs an integer from 0 to 4294967295.",
        ),
        (
            "SELECT * FROM c OFFSET 0.5 LIMIT 1",
            "1:24: OFFSET needs an integer from 0 to 4294967295.",
        ),
        (
            "SELECT * FROM c OFFSET 1 LIMIT 0.5",
            "1:32: LIMIT needs an integer from 0 to 4294967295.",
        ),
        (
            "SELECT * FROM c WHERE c.x IN (SELECT VALUE 1)",
            "1:31: Syntax error, incorrect syntax near 'SELECT'. Expected a list of values. Did you mean 'EXISTS(SELECT …)' or 'ARRAY_CONTAINS(ARRAY(SELECT …), …)'?",
        ),
        (
            "SELECT * FROM c ORDER BY RANK FullTextScore(c.x, 'a')",
            "1:26: ORDER BY RANK (hybrid search) is not supported yet.",
        ),
        (
            "SELECT * FROM c ORDER BY VectorDistance(c.v, [1])",
            "1:26: VectorDistance is not supported yet.",
        ),
        (
            "SELECT * FROM c JOIN c IN c.x",
            "1:22: The input alias 'c' is specified more than once in the FROM clause.",
        ),
        (
            "SELECT VALUE 1e999",
            "1:14: Syntax error, incorrect syntax near '1e999'. Expected a number up to about 1.8e308.",
        ),
        (
            "SELECT VALEU c.id FROM c",
            "1:8: Syntax error, incorrect syntax near 'VALEU'. Expected an expression. Did you mean 'VALUE'?",
        ),
        (
            "SELECT * FROM c; DROP TABLE c",
            "1:16: Syntax error, incorrect syntax near ';'. Expected one query without a semicolon.",
        ),
    ];
    for (text, expected) in cases {
        check(text, expected);
    }
}

#[test]
fn parameters_that_are_no_row_counts_are_refused() {
    let values = [Value::number(4_294_967_296.0), Value::number(-1.0), Value::number(0.5)];
    for value in values.into_iter().chain([Value::from("1"), Value::Undefined]) {
        let parameters = [("@n".to_owned(), value.clone())];
        for (text, place, clause) in [
            ("SELECT TOP @n * FROM c", "1:12", "TOP"),
            ("SELECT * FROM c OFFSET @n LIMIT 1", "1:24", "OFFSET"),
            ("SELECT * FROM c OFFSET 1 LIMIT @n", "1:32", "LIMIT"),
        ] {
            let error = Query::parse(text, &parameters).map(|_| "no error").unwrap_err();
            let expected = format!("{place}: {clause} needs an integer from 0 to 4294967295.");
            assert_eq!(error.to_string(), expected, "{text} with {value:?}");
        }
    }
    for text in ["SELECT TOP @n * FROM c", "SELECT * FROM c OFFSET @n LIMIT @n"] {
        let most = [("@n".to_owned(), Value::number(4_294_967_295.0))];
        assert!(Query::parse(text, &most).is_ok(), "{text}");
    }
}

#[test]
fn clients_get_the_words_of_the_service() {
    let error = Query::parse("SELCT * FROM c", &[]).unwrap_err();
    let json: serde_json::Value = serde_json::from_str(&error.service_message()).unwrap();
    let error = &json["errors"][0];
    assert_eq!(error["severity"], "Error");
    assert_eq!(error["code"], "SC1001");
    assert_eq!(error["location"], serde_json::json!({"start": 0, "end": 5}));
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("Syntax error, incorrect syntax near 'SELCT'."), "{message}");
}

#[test]
fn people_get_a_caret() {
    let text = "SELECT *\nFROM c\nWHERE größe.x = LENGHT(c.x)";
    let error = Query::parse(text, &[]).unwrap_err();
    let expected = "\
error: 3:7: Identifier 'größe' could not be resolved. Did you mean 'c.größe'?
  |
3 | WHERE größe.x = LENGHT(c.x)
  |       ^^^^^";
    assert_eq!(error.with_caret(text), expected);
}

#[test]
fn limits_are_kept() {
    let nested = |depth: usize| format!("SELECT VALUE {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Query::parse(&nested(50), &[]).is_ok());
    let cases = [
        nested(200),
        nested(100_000),
        format!("SELECT VALUE {}1", "- ".repeat(10_000)),
        format!("SELECT VALUE {}1", "NOT ".repeat(10_000)),
        format!("SELECT VALUE 1{}", " + 1".repeat(10_000)),
        format!("SELECT VALUE c{} FROM c", ".a".repeat(10_000)),
        format!("SELECT VALUE {}1{}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("SELECT VALUE {}1{}", "(SELECT VALUE ".repeat(60), ")".repeat(60)),
        format!("SELECT VALUE 1 FROM c{}", " JOIN x IN c.x".repeat(20)),
        format!("SELECT VALUE {}1{}", "true ? ".repeat(10_000), " : 2".repeat(10_000)),
        format!("SELECT VALUE 1 IN ({}1)", "1,".repeat(30_000)),
        format!("SELECT VALUE '{}'", "x".repeat(600_000)),
        format!("SELECT VALUE {}1", "1 ?? ".repeat(10_000)),
    ];
    for text in &cases {
        let error = Query::parse(text, &[]).map(|_| "no error").unwrap_err();
        let message = error.to_string();
        assert!(message.len() < 500, "{message}");
    }
}

#[test]
fn long_chains_of_conditions_are_fine() {
    let items = common::families();
    let or: Vec<_> = (0..5_000).map(|n| format!("(c.id = 'x{n}' AND c.n = {n})")).collect();
    let text = format!("SELECT VALUE c.id FROM c WHERE {} OR c.n = 1", or.join(" OR "));
    common::check(&items, &text, r#"["andersen"]"#);
    let list: Vec<_> = (0..5_000).map(|n| format!("'x{n}'")).collect();
    let text = format!("SELECT VALUE c.id FROM c WHERE c.id IN ({}, 'miller')", list.join(","));
    common::check(&items, &text, r#"["miller"]"#);
}
