//! Shared by the query tests: items, parameters, and functions to run a query.

#![allow(dead_code, unreachable_pub, reason = "each test file uses the part it needs")]

use headwater_query::{ComputedProperty, Context, Next, Query, Value};

/// 2026-08-01T12:30:45.1234567Z.
pub const NOW_TICKS: i64 = 17_855_874_451_234_567;

pub fn families() -> Vec<String> {
    [
        r#"{"id":"andersen","n":1,"isRegistered":true,"address":{"city":"Seattle"}}"#,
        r#"{"id":"wakefield","n":2,"isRegistered":false,"address":{"city":"NY"},"children":[{"name":"Jesse","grade":8,"pets":[{"name":"Goofy"},{"name":"Shadow"}]},{"name":"Lisa","grade":1}]}"#,
        r#"{"id":"miller","n":3,"tags":null}"#,
    ]
    .map(str::to_owned)
    .to_vec()
}

pub fn parameters() -> Vec<(String, Value<'static>)> {
    vec![
        ("@n".to_owned(), Value::number(1.0)),
        ("@id".to_owned(), Value::from("wakefield")),
        ("@list".to_owned(), Value::from_json(br#"[1,2]"#).unwrap()),
    ]
}

/// The rows of a query over items as one JSON array, or its error.
pub fn run(items: &[String], query: &str) -> Result<String, String> {
    run_with(items, query, &[])
}

/// Runs a query over a container with computed properties.
pub fn run_with(
    items: &[String],
    query: &str,
    computed: &[ComputedProperty],
) -> Result<String, String> {
    let parsed = Query::parse_over(query, &parameters(), computed);
    let parsed = parsed.map_err(|error| error.to_string())?;
    let mut run = parsed.start(Context::at(NOW_TICKS));
    let mut rows = Vec::new();
    for (ordinal, item) in items.iter().enumerate() {
        let next = run
            .push(item.as_bytes(), ordinal as u64, &mut rows)
            .map_err(|error| error.to_string())?;
        if next == Next::Enough {
            break;
        }
    }
    assert!(rows.is_empty() || parsed.is_streaming(), "{query}: rows came early");
    let mut rows: Vec<Vec<u8>> = rows.into_iter().map(|row| row.into_owned()).collect();
    rows.extend(run.finish().map_err(|error| error.to_string())?);
    let rows: Vec<_> = rows.iter().map(|row| String::from_utf8_lossy(row)).collect();
    Ok(format!("[{}]", rows.join(",")))
}

#[track_caller]
pub fn check(items: &[String], query: &str, expected: &str) {
    assert_eq!(run(items, query).as_deref(), Ok(expected), "{query}");
}

#[track_caller]
pub fn check_error(items: &[String], query: &str) {
    let result = run(items, query);
    assert!(result.is_err(), "{query}: {result:?}");
}
