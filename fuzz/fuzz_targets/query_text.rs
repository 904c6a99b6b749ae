//! Any text as a query, run over an item if it is one; whatever comes out is JSON.

#![no_main]

use headwater_query::{Context, Limits, Query};
use libfuzzer_sys::fuzz_target;

const ITEM: &[u8] = br#"{"id":"a","n":1.5,"on":true,"tags":["x",{"y":[1,null]}],"o":{"p":"q"},"_rid":"r"}"#;

fuzz_target!(|text: &str| {
    let mut limits = Limits::default();
    limits.steps = 50_000;
    limits.memory_bytes = 1 << 20;
    limits.value_bytes = 1 << 16;
    match Query::parse_within(text, &[], &limits) {
        Ok(query) => run(&query),
        Err(error) => {
            let _ = (error.service_message(), error.with_caret(text));
        }
    }
});

fn run(query: &Query) {
    let mut run = query.start(Context::default());
    let mut rows = Vec::new();
    let _ = run.push(ITEM, 0, &mut rows);
    let late = run.finish().unwrap_or_default();
    for row in rows.iter().map(|row| row.as_ref()).chain(late.iter().map(Vec::as_slice)) {
        assert!(headwater_query::Value::from_json(row).is_ok(), "{query:?}");
    }
}
