//! A condition in the first line, over an item in the rest, whatever bytes that has. As a filter it finds the
//! item exactly if its value is true, however the filter is shortened.

#![no_main]

use headwater_query::{Context, Query, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (condition, item) = (&bytes[..at], bytes.get(at + 1..).unwrap_or_default());
    let Ok(condition) = std::str::from_utf8(condition) else { return };
    let Ok(filter) = Query::condition(condition) else { return };
    let Ok(value) = Query::parse(&format!("SELECT VALUE ({condition}) FROM c"), &[]) else {
        return;
    };
    let (found, said) = (rows(&filter, item), rows(&value, item));
    if Value::from_json(item).is_err() {
        return;
    }
    let (Some(found), Some(said)) = (found, said) else { return };
    assert_eq!(!found.is_empty(), said == [b"true"], "{condition}");
    assert!(said.iter().all(|row| Value::from_json(row).is_ok()), "{condition}");
});

fn rows(query: &Query, item: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut run = query.start(Context::default());
    let mut rows = Vec::new();
    run.push(item, 0, &mut rows).ok()?;
    let mut rows: Vec<Vec<u8>> = rows.into_iter().map(|row| row.into_owned()).collect();
    rows.extend(run.finish().ok()?);
    Some(rows)
}
