//! Limits on the cost of a query: its memory, the time of a page, and the time after its client is gone.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_runtime::Runtime;
use headwater_store::query::{EvaluationError, Query, QueryFailure};
use headwater_store::{Account, Container, ContainerDefinition, Options, PageLimit, ScanScope};
use serde_json::{Value, json};
use std::time::Duration;

/// Far more than any query here takes on a busy machine, far less than it would take without a limit.
const SOON: Duration = Duration::from_secs(20);

async fn filled(options: Options, items: u64, numbers: u64) -> (Account, Container) {
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container(definition).await.unwrap();
    for number in 0..items {
        let list: Vec<u64> = (0..numbers).collect();
        let item = json!({"id": number.to_string(), "pk": format!("k{}", number % 3), "n": number,
            "a": list, "s": "x".repeat(1000)});
        container.create(item.to_string()).await.unwrap();
    }
    (account, container)
}

fn parse(text: &str) -> Query {
    Query::parse(text, &[]).unwrap()
}

fn evaluation(failure: QueryFailure) -> EvaluationError {
    match failure {
        QueryFailure::Evaluation(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_query_that_outgrows_its_memory_fails_and_harms_nothing_else() {
    let mut options = Options::default();
    options.queries.memory_bytes = 2 << 20;
    let (account, container) = filled(options, 3, 200).await;
    let ask = async |text: &str| {
        let limit = PageLimit::items(100).unwrap();
        container.query(&parse(text), &ScanScope::Container, None, limit).await
    };
    for text in [
        "SELECT VALUE CONCAT(c.s, ToString(x)) FROM c JOIN x IN c.a JOIN y IN c.a ORDER BY x",
        "SELECT COUNT(1) AS n FROM c JOIN x IN c.a JOIN y IN c.a GROUP BY CONCAT(c.s, ToString(x * 1000 + y))",
        "SELECT DISTINCT VALUE CONCAT(c.s, ToString(x), ToString(y)) FROM c JOIN x IN c.a JOIN y IN c.a",
    ] {
        let failed = evaluation(ask(text).await.unwrap_err());
        assert_eq!(failed, EvaluationError::TooMuchMemory { limit: 2 << 20 }, "{text}");
        assert_eq!(ask("SELECT VALUE c.n FROM c").await.unwrap().rows.len(), 3, "{text}");
    }
    account.close().await.unwrap();
}

/// A query whose page time is too short for all items, in creation order and in scan order.
#[tokio::test]
async fn a_page_ends_within_its_time_and_the_next_one_continues_behind_it() {
    for sorted in [0, 4_000] {
        let mut options = Options::default();
        options.queries.page_time = Duration::from_millis(50);
        options.sort_listings_up_to = sorted;
        let (account, container) = filled(options, 600, 70).await;
        // About a millisecond of work for each item: a page holds several on a busy machine, not all on a fast one.
        let text = "SELECT VALUE c.n FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM x IN c.a JOIN y IN c.a WHERE x + y = -1)";
        let (query, limit) = (parse(text), PageLimit::items(1_000).unwrap());
        let (mut found, mut pages, mut after) = (Vec::new(), 0, None::<String>);
        loop {
            let page = container.query(&query, &ScanScope::Container, after.as_deref(), limit);
            let page = page.await.unwrap();
            let rows = page.rows.iter().map(|row| serde_json::from_slice::<Value>(row).unwrap());
            found.extend(rows.map(|row| row.as_u64().unwrap()));
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
            assert!(!page.rows.is_empty(), "every page makes progress");
            assert!(pages < 1_000, "it does not end");
        }
        assert!(pages > 1, "one page had time for all items");
        found.sort_unstable();
        assert_eq!(found, (0..600).collect::<Vec<u64>>(), "after {pages} pages, sorted {sorted}");
        account.close().await.unwrap();
    }
}

#[tokio::test]
async fn an_item_that_takes_longer_than_a_page_may_fails_and_so_does_a_query_that_takes_too_long() {
    let mut options = Options::default();
    options.queries.page_time = Duration::from_millis(200);
    options.queries.time = Duration::from_millis(300);
    let (account, container) = filled(options, 2, 200).await;
    let runtime = Runtime::system();
    for text in [
        "SELECT VALUE 1 FROM c WHERE EXISTS(SELECT VALUE 1 FROM x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a WHERE x = -1)",
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a",
        "SELECT TOP 1 VALUE x FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a ORDER BY x",
    ] {
        let before = runtime.elapsed();
        let limit = PageLimit::items(10).unwrap();
        let failed = container.query(&parse(text), &ScanScope::Container, None, limit).await;
        assert_eq!(evaluation(failed.unwrap_err()), EvaluationError::OutOfTime, "{text}");
        assert!(runtime.elapsed() - before < SOON, "{text}");
    }
    account.close().await.unwrap();
}

/// Reads all pages of a query. Asserts that no page exceeds the limit.
async fn pages(container: &Container, text: &str, limit: PageLimit) -> Vec<Vec<Value>> {
    let (query, mut pages, mut after) = (parse(text), Vec::new(), None::<String>);
    loop {
        let page = container.query(&query, &ScanScope::Container, after.as_deref(), limit);
        let page = page.await.unwrap();
        assert!(page.rows.len() <= limit.items as usize, "{text}: {}", page.rows.len());
        let all_but_last = page.rows.iter().rev().skip(1).map(|row| row.len()).sum::<usize>();
        assert!(all_but_last < limit.bytes as usize, "{text}: {all_but_last} bytes");
        pages.push(page.rows.iter().map(|row| serde_json::from_slice(row).unwrap()).collect());
        after = page.next;
        if after.is_none() {
            return pages;
        }
        assert!(pages.len() < 10_000, "{text} does not end");
    }
}

#[tokio::test]
async fn an_item_with_many_rows_is_shown_over_several_pages() {
    for sorted in [0, 4_000] {
        let mut options = Options::default();
        options.sort_listings_up_to = sorted;
        let (account, container) = filled(options, 3, 30).await;
        for (text, rows) in [
            ("SELECT c.n, x, y FROM c JOIN x IN c.a JOIN y IN c.a", 2_700),
            (
                "SELECT VALUE [c.n, x, y] FROM c JOIN x IN c.a JOIN y IN c.a WHERE (x + y) % 2 = 0",
                1_350,
            ),
            ("SELECT c.n, x, y FROM c JOIN x IN c.a JOIN (SELECT VALUE z FROM z IN c.a) y", 2_700),
            ("SELECT TOP 1000 c.n, x, y FROM c JOIN x IN c.a JOIN y IN c.a", 1_000),
            ("SELECT c.n, x, y FROM c JOIN x IN c.a JOIN y IN c.a OFFSET 850 LIMIT 300", 300),
        ] {
            let whole = pages(&container, text, PageLimit::items(10_000).unwrap()).await.concat();
            assert_eq!(whole.len(), rows, "{text}");
            for limit in [PageLimit::items(7), PageLimit::items(100), PageLimit::new(5_000, 2_000)]
            {
                let found = pages(&container, text, limit.unwrap()).await;
                assert!(found.len() > 1, "{text}: {limit:?}");
                assert!(found.concat() == whole, "{text}: other rows with {limit:?}");
            }
        }
        account.close().await.unwrap();
    }
}

/// Few items match, so the items are read by a sweep of the log.
#[tokio::test]
async fn an_item_with_many_rows_that_a_sweep_finds_is_shown_over_several_pages() {
    let mut options = Options::default();
    options.sweep_after_items = 5;
    let (account, container) = filled(options, 60, 12).await;
    for (text, rows) in [
        ("SELECT c.n, x, y FROM c JOIN x IN c.a JOIN y IN c.a WHERE c.n % 20 = 15", 432),
        ("SELECT c.n, x FROM c JOIN x IN c.a WHERE c.n % 10 = 5", 72),
    ] {
        for limit in [7, 20, 100] {
            let found = pages(&container, text, PageLimit::items(limit).unwrap()).await;
            let mut found: Vec<String> = found.concat().iter().map(Value::to_string).collect();
            assert_eq!(found.len(), rows, "{text}, {limit} rows at a time");
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), rows, "{text}, {limit} rows at a time: some twice");
        }
    }
    account.close().await.unwrap();
}

/// Nearly all rows of the item fail the filter, and evaluating all of them takes many pages.
#[tokio::test]
async fn an_item_that_takes_longer_than_a_page_is_looked_at_over_several_pages() {
    let mut options = Options::default();
    options.queries.page_time = Duration::from_millis(150);
    let (account, container) = filled(options, 1, 120).await;
    let text = "SELECT x, y, z FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a WHERE x + y + z IN (0, 150, 357) AND x = y AND y = z";
    let found = pages(&container, text, PageLimit::items(100).unwrap()).await;
    assert!(found.len() > 1, "one page had time for all rows");
    let row = |n: u64| json!({"x": n, "y": n, "z": n});
    assert_eq!(found.concat(), [row(0), row(50), row(119)]);
    account.close().await.unwrap();
}

#[tokio::test]
async fn an_item_that_is_deleted_between_its_pages_takes_no_rows_of_the_next() {
    let (account, container) = filled(Options::default(), 2, 30).await;
    let query = parse("SELECT VALUE c.id FROM c JOIN x IN c.a JOIN y IN c.a");
    let limit = PageLimit::items(100).unwrap();
    let first = container.query(&query, &ScanScope::Container, None, limit).await.unwrap();
    let shown: String = serde_json::from_slice(&first.rows[0]).unwrap();
    let key = format!("k{shown}");
    container.delete(key.as_str(), &shown).await.unwrap();
    let (mut rows, mut after) = (0, first.next);
    while let Some(position) = after {
        let page = container.query(&query, &ScanScope::Container, Some(&position), limit);
        let page = page.await.unwrap();
        rows += page.rows.len();
        assert!(rows <= 900, "there is one item with 900 rows");
        after = page.next;
    }
    assert_eq!(rows, 900);
    account.close().await.unwrap();
}

/// The only thread of a runtime is free again soon after the caller of its query is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_ends_soon_after_its_caller_is_gone() {
    let (account, container) = filled(Options::default(), 2, 200).await;
    let thread = Runtime::threads("test-queries", 1).unwrap();
    for text in [
        "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a",
        "SELECT VALUE 1 FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a WHERE x = -1",
    ] {
        let asked = container.clone();
        let running = thread.run("query", async move {
            let limit = PageLimit::items(10).unwrap();
            let _ = asked.query(&parse(text), &ScanScope::Container, None, limit).await;
        });
        let waited = Runtime::system().timeout(Duration::from_millis(200), running).await;
        assert!(waited.is_none(), "{text} is too quick to show anything");
        let before = thread.elapsed();
        let freed = Runtime::system().timeout(SOON, thread.run("next", async {})).await;
        assert!(freed.is_some(), "{text} keeps its thread");
        let took = thread.elapsed() - before;
        assert!(took < Duration::from_secs(2), "{text} took {took:?}");
    }
    account.close().await.unwrap();
}

#[tokio::test]
async fn the_condition_of_a_patch_cannot_keep_the_writer() {
    let (account, container) = filled(Options::default(), 1, 200).await;
    let text = "FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a WHERE x = -1";
    let holds = headwater_store::query::condition(text).unwrap();
    let item = container.read("k0", "0").await.unwrap().unwrap();
    let failed = holds(&item.to_bytes()).unwrap_err();
    assert!(failed.contains("steps"), "{failed}");
    account.close().await.unwrap();
}
