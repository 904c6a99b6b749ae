//! Queries over a container: pages of any size return the same rows, also across splits.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_store::query::{Query, QueryFailure, condition};
use headwater_store::{
    Account, Container, ContainerDefinition, PageLimit, PartitionKey, ScanScope,
};
use serde_json::{Value, json};

async fn filled(partitions: u32, count: u32) -> (Account, Container) {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, partitions).await.unwrap();
    for number in 0..count {
        let item = json!({"id": number.to_string(), "pk": format!("k{}", number % 7), "n": number});
        container.create(item.to_string()).await.unwrap();
    }
    (account, container)
}

fn parse(text: &str) -> Query {
    Query::parse(text, &[]).unwrap()
}

/// Reads all rows in pages of `items`; returns them and the number of items read.
async fn all(
    container: &Container,
    text: &str,
    scope: &ScanScope,
    items: u32,
) -> (Vec<Value>, usize) {
    let query = parse(text);
    let limit = PageLimit::items(items).unwrap();
    let (mut rows, mut read, mut after) = (Vec::new(), 0, None::<String>);
    for _ in 0..10_000 {
        let page = container.query(&query, scope, after.as_deref(), limit).await.unwrap();
        assert!(page.rows.len() <= items as usize, "{text}");
        rows.extend(page.rows.iter().map(|row| serde_json::from_slice::<Value>(row).unwrap()));
        read += page.items_read;
        after = page.next;
        if after.is_none() {
            return (rows, read);
        }
    }
    panic!("{text} never ended");
}

#[tokio::test]
async fn pages_of_any_size_add_up_to_the_same_rows() {
    let (account, container) = filled(3, 100).await;
    for text in [
        "SELECT VALUE c.n FROM c WHERE c.n % 3 = 0",
        "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
        "SELECT VALUE c.n FROM c WHERE c.n > 40 ORDER BY c.pk, c.n OFFSET 3 LIMIT 20",
        "SELECT TOP 13 VALUE c.n FROM c",
        "SELECT DISTINCT VALUE c.pk FROM c",
        "SELECT c.pk, COUNT(1) AS many FROM c GROUP BY c.pk",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE x FROM c JOIN x IN c.nothing",
        "SELECT VALUE 1",
    ] {
        let (whole, _) = all(&container, text, &ScanScope::Container, 1000).await;
        for items in [1, 2, 7, 50] {
            let (rows, _) = all(&container, text, &ScanScope::Container, items).await;
            assert_eq!(rows, whole, "{text} in pages of {items}");
        }
    }
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_continuation_survives_a_split_between_two_pages() {
    let (account, container) = filled(1, 60).await;
    let query = parse("SELECT VALUE c.n FROM c");
    let limit = PageLimit::items(10).unwrap();
    let (mut seen, mut after) = (Vec::new(), None::<String>);
    for round in 0..100 {
        let page =
            container.query(&query, &ScanScope::Container, after.as_deref(), limit).await.unwrap();
        seen.extend(page.rows.iter().map(|row| serde_json::from_slice::<u64>(row).unwrap()));
        after = page.next;
        if round == 1 {
            container.split(container.ranges()[0].id, None).await.unwrap();
        }
        if after.is_none() {
            break;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..60).collect::<Vec<u64>>());
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_filter_on_the_partition_key_reads_only_that_key() {
    let (account, container) = filled(4, 70).await;
    let text = "SELECT VALUE c.n FROM c WHERE c.pk = 'k3' AND c.n > 10";
    let (mut rows, read) = all(&container, text, &ScanScope::Container, 100).await;
    rows.sort_by_key(|row| row.as_u64());
    assert_eq!(
        rows,
        vec![
            json!(17),
            json!(24),
            json!(31),
            json!(38),
            json!(45),
            json!(52),
            json!(59),
            json!(66)
        ]
    );
    assert_eq!(read, 10, "the key has ten items");
    let elsewhere = container.ranges().into_iter().filter(|range| {
        let key = PartitionKey::from("k3");
        container.locate(&key).unwrap().0 != range.id
    });
    for range in elsewhere {
        let (rows, read) = all(&container, text, &ScanScope::Range(range.id), 100).await;
        assert_eq!((rows.len(), read), (0, 0));
        let count = "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'k3'";
        let (rows, _) = all(&container, count, &ScanScope::Range(range.id), 100).await;
        assert_eq!(rows, vec![json!(0)], "a count of nothing is a row");
    }
    account.close().await.unwrap();
}

#[tokio::test]
async fn positions_of_another_query_are_refused() {
    let (account, container) = filled(1, 5).await;
    let limit = PageLimit::items(2).unwrap();
    for text in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.n"] {
        for after in ["", "x", "o.", "s.1", "o.-1", "s.x.y", "o.99999999999999999999999"] {
            let page =
                container.query(&parse(text), &ScanScope::Container, Some(after), limit).await;
            let refused =
                matches!(page, Err(QueryFailure::BadContinuation | QueryFailure::Read(_)));
            assert!(refused, "{text} after {after:?}");
        }
    }
    account.close().await.unwrap();
}

#[test]
fn a_condition_holds_for_an_item_or_not() {
    let holds = condition("from c where c.n = 1").unwrap();
    assert_eq!(holds(br#"{"n":1}"#), Ok(true));
    assert_eq!(holds(br#"{"n":2}"#), Ok(false));
    assert_eq!(holds(br#"{}"#), Ok(false));
    assert!(condition("where c.n = ").is_err());
}
