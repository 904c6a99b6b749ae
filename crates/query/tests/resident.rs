//! The process's resident memory while queries run: the meter must not miss any large allocation.
//!
//! A test program of its own, since other tests in the process would count too.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_query::{Budget, Context, Query};

const MEMORY: usize = 16 << 20;
/// The item, what one step allocates before it is counted, and what the allocator keeps.
const SLACK: usize = 48 << 20;
/// A run that has grown this far has failed and is ended.
const FAR: usize = 512 << 20;

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// The most memory that the process holds during a query.
fn peak_of(text: &str, item: &[u8]) -> usize {
    let context = Context::default().with_budget({
        let mut budget = Budget::default();
        budget.memory_bytes = Some(MEMORY);
        budget.watched(std::sync::Arc::new(Sampling::default()))
    });
    PEAK.store(0, std::sync::atomic::Ordering::Relaxed);
    let mut run = Query::parse(text, &[]).unwrap().start(context);
    let mut rows = Vec::new();
    let _ = run.push(item, 0, &mut rows).map(|_| ()).and_then(|()| run.finish().map(|_| ()));
    PEAK.load(std::sync::atomic::Ordering::Relaxed).max(resident_bytes())
}

static PEAK: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Samples the process's memory instead of a clock.
#[derive(Default)]
struct Sampling(std::sync::atomic::AtomicU64);

impl headwater_query::Watch for Sampling {
    fn interruption(&self) -> Option<headwater_query::Interruption> {
        use std::sync::atomic::Ordering;
        let resident = resident_bytes();
        PEAK.fetch_max(resident, Ordering::Relaxed);
        let asked = self.0.fetch_add(1, Ordering::Relaxed);
        (asked > 100 || resident > FAR).then_some(headwater_query::Interruption::OutOfTime)
    }
}

#[test]
fn the_process_grows_by_no_more_than_a_query_may_hold() {
    // 40 000 numbers and a text of 200 000 characters.
    let numbers: Vec<String> = (0..40_000).map(|number| (number % 7).to_string()).collect();
    let item = format!(r#"{{"a":[{}],"s":"{}"}}"#, numbers.join(","), "x".repeat(200_000));
    drop(numbers);
    let before = resident_bytes();
    for text in [
        "SELECT c.s, x FROM c JOIN x IN c.a",
        "SELECT VALUE CONCAT(c.s, c.s) FROM c JOIN x IN c.a ORDER BY x",
        "SELECT VALUE ARRAY_CONCAT(c.a, c.a, c.a) FROM c JOIN x IN c.a",
        "SELECT VALUE SetUnion(c.a, c.a) FROM c JOIN x IN c.a",
        "SELECT VALUE SetIntersect(c.a, c.a) FROM c JOIN x IN c.a",
        "SELECT DISTINCT VALUE [c.s, x] FROM c JOIN x IN c.a JOIN y IN c.a",
        "SELECT VALUE ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a) FROM c",
        "SELECT MAX(CONCAT(c.s, ToString(x))) AS m FROM c JOIN x IN c.a JOIN y IN c.a GROUP BY x * 1000 + y",
    ] {
        let grown = peak_of(text, item.as_bytes()).saturating_sub(before);
        assert!(grown < MEMORY + SLACK, "{text}: {} MiB", grown >> 20);
    }
}
