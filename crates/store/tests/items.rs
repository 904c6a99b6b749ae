//! Items through the public API: every operation and its errors, on the ephemeral and the durable store.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_store::{
    Account, ChangeKind, Container, ContainerDefinition, FeedRequest, FeedStart, ItemWrite,
    Options, PageLimit, Patch, ScanScope, WriteError,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

async fn container(definition: ContainerDefinition) -> (Account, Container) {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let container = database.create_container_with(definition, 3).await.unwrap();
    (account, container)
}

fn plain() -> ContainerDefinition {
    ContainerDefinition::new("c", "/pk").unwrap()
}

fn text(item: &headwater_store::Item) -> String {
    String::from_utf8(item.to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn an_item_is_created_read_replaced_and_deleted() {
    let (_account, items) = container(plain()).await;
    let created = items.create(r#"{"id":"1","pk":"a","n":1.50}"#).await.unwrap();
    assert_eq!(created.change, Some(ChangeKind::Create));
    let first = created.into_item();
    assert!(text(&first).starts_with(r#"{"id":"1","pk":"a","n":1.50,"_rid":""#), "{first:?}");

    let read = items.read("a", "1").await.unwrap().unwrap();
    assert_eq!(text(&read), text(&first));
    assert!(!text(&read).contains("_lsn"));
    assert!(items.read("b", "1").await.unwrap().is_none());

    let again = items.create(r#"{"id":"1","pk":"a"}"#).await.unwrap_err();
    assert!(matches!(again, WriteError::AlreadyExists { .. }), "{again}");

    let replaced = items.replace("1", r#"{"id":"1","pk":"a","n":2}"#).await.unwrap().into_item();
    assert_ne!(replaced.etag(), first.etag());
    let rid = |item: &headwater_store::Item| {
        item.parse::<serde_json::Value>().unwrap()["_rid"].as_str().unwrap().to_owned()
    };
    assert_eq!(rid(&replaced), rid(&first), "a replaced item keeps its resource id");

    let stale = ItemWrite::delete("a", "1").if_match(&first.etag().to_string());
    assert!(matches!(items.write(stale).await, Err(WriteError::EtagMismatch { .. })));
    let fresh = ItemWrite::delete("a", "1").if_match(&replaced.etag().to_string());
    assert_eq!(items.write(fresh).await.unwrap().change, Some(ChangeKind::Delete));
    assert!(items.read("a", "1").await.unwrap().is_none());
    assert!(matches!(items.delete("a", "1").await, Err(WriteError::NotFound { .. })));
    let missing = items.replace("1", r#"{"id":"1","pk":"a"}"#).await;
    assert!(matches!(missing, Err(WriteError::NotFound { .. })));

    let reborn = items.upsert(r#"{"id":"1","pk":"a"}"#).await.unwrap();
    assert_eq!(reborn.change, Some(ChangeKind::Create));
    assert_ne!(rid(&reborn.into_item()), rid(&first), "created again, it is another item");
}

#[tokio::test]
async fn a_patch_changes_parts_and_keeps_the_rest_as_it_was() {
    let (_account, items) = container(plain()).await;
    items.create(r#"{"id":"1","pk":"a","n":1.50,"list":[1,2]}"#).await.unwrap();
    let patch = Patch::new().increment("/hits", 1).unwrap().add("/list/-", "3").unwrap();
    let patched = items.patch("a", "1", patch).await.unwrap().into_item();
    assert!(
        text(&patched).starts_with(r#"{"id":"1","pk":"a","n":1.50,"list":[1,2,3],"hits":1,"#),
        "{patched:?}"
    );
    let forbidden = Patch::new().set("/pk", "\"b\"").unwrap();
    assert!(matches!(items.patch("a", "1", forbidden).await, Err(WriteError::Patch(_))));
    let never = ItemWrite::patch("a", "1", Patch::new().set("/n", "2").unwrap())
        .condition(std::sync::Arc::new(|_| Ok(false)));
    assert!(matches!(items.write(never).await, Err(WriteError::ConditionFalse { .. })));
}

#[tokio::test]
async fn a_batch_is_one_transaction() {
    let (_account, items) = container(plain()).await;
    items.create(r#"{"id":"0","pk":"a","v":0}"#).await.unwrap();
    let written = items
        .batch(
            "a",
            vec![
                ItemWrite::create(r#"{"id":"1","pk":"a"}"#),
                ItemWrite::replace("0", r#"{"id":"0","pk":"a","v":1}"#),
                ItemWrite::read("1"),
                ItemWrite::patch("a", "1", Patch::new().set("/x", "7").unwrap()),
                ItemWrite::delete("a", "0"),
            ],
        )
        .await
        .unwrap();
    let lsns: Vec<_> = written.iter().filter_map(|one| Some(one.item.as_ref()?.lsn())).collect();
    assert!(lsns.windows(2).all(|pair| pair[0] == pair[1]), "{lsns:?}");
    assert!(text(&items.read("a", "1").await.unwrap().unwrap()).contains(r#""x":7"#));
    assert!(items.read("a", "0").await.unwrap().is_none());

    let failed = items
        .batch(
            "a",
            vec![
                ItemWrite::create(r#"{"id":"2","pk":"a"}"#),
                ItemWrite::create(r#"{"id":"1","pk":"a"}"#),
            ],
        )
        .await
        .unwrap_err();
    assert_eq!(failed.index, 1);
    assert!(items.read("a", "2").await.unwrap().is_none(), "nothing of a failed batch is applied");
    let foreign = items.batch("a", vec![ItemWrite::create(r#"{"id":"3","pk":"b"}"#)]).await;
    assert!(matches!(foreign.unwrap_err().error, WriteError::PartitionKeyMismatch { .. }));
    assert!(matches!(items.batch("a", vec![]).await.unwrap_err().error, WriteError::EmptyBatch));
    let many = (0..101).map(|id| ItemWrite::read(&id.to_string())).collect();
    let error = items.batch("a", many).await.unwrap_err().error;
    assert!(matches!(error, WriteError::TooManyOperations { count: 101, .. }));
}

#[tokio::test]
async fn a_replacement_under_another_id_moves_the_item() {
    let (_account, items) = container(plain().with_unique_key(&["/mail"])).await;
    items.create(r#"{"id":"1","pk":"a","mail":"x"}"#).await.unwrap();
    items.create(r#"{"id":"3","pk":"a","mail":"z"}"#).await.unwrap();
    let taken = items.replace("1", r#"{"id":"3","pk":"a"}"#).await.unwrap_err();
    assert!(matches!(taken, WriteError::AlreadyExists { .. }), "{taken}");
    let missing = items.replace("2", r#"{"id":"4","pk":"a"}"#).await.unwrap_err();
    assert!(matches!(&missing, WriteError::NotFound { id } if id == "2"), "{missing}");
    let stale = ItemWrite::replace("1", r#"{"id":"2","pk":"a"}"#).if_match("\"stale\"");
    let stale = items.write(stale).await.unwrap_err();
    assert!(matches!(stale, WriteError::EtagMismatch { .. }), "{stale}");
    assert!(items.read("a", "1").await.unwrap().is_some(), "rejected writes change nothing");

    let moved = items.replace("1", r#"{"id":"2","pk":"a","mail":"x"}"#).await.unwrap();
    assert_eq!(moved.change, Some(ChangeKind::Replace));
    assert!(text(&moved.into_item()).starts_with(r#"{"id":"2","pk":"a","mail":"x""#));
    assert!(items.read("a", "1").await.unwrap().is_none());

    let writes = || {
        vec![
            ItemWrite::create(r#"{"id":"5","pk":"a","mail":"5"}"#),
            ItemWrite::replace("5", r#"{"id":"6","pk":"a","mail":"6"}"#),
            ItemWrite::read("6"),
        ]
    };
    let written = items.batch("a", writes()).await.unwrap();
    let ids: Vec<_> = written.iter().map(|one| text(one.item.as_ref().unwrap())).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids[1].starts_with(r#"{"id":"6""#) && ids[2] == ids[1], "{ids:?}");
    let failed = items.batch("a", writes()).await.unwrap_err();
    assert_eq!(failed.index, 1, "the id it moves to is taken: {failed}");
    let mut behind = writes();
    behind.truncate(1);
    behind.push(ItemWrite::replace("5", r#"{"id":"7","pk":"a","mail":"7"}"#));
    behind.push(ItemWrite::read("5"));
    let failed = items.batch("a", behind).await.unwrap_err();
    assert_eq!(failed.index, 2, "steps are counted with the write they belong to: {failed}");
}

#[tokio::test]
async fn unique_keys_are_unique_within_a_partition_key() {
    let (_account, items) = container(plain().with_unique_key(&["/mail"])).await;
    items.create(r#"{"id":"1","pk":"a","mail":"x"}"#).await.unwrap();
    let taken = items.create(r#"{"id":"2","pk":"a","mail":"x"}"#).await.unwrap_err();
    assert!(matches!(&taken, WriteError::UniqueKey { other, .. } if other == "1"), "{taken}");
    items.create(r#"{"id":"2","pk":"b","mail":"x"}"#).await.unwrap();
    items.replace("1", r#"{"id":"1","pk":"a","mail":"y"}"#).await.unwrap();
    items.create(r#"{"id":"3","pk":"a","mail":"x"}"#).await.unwrap();
    items.delete("a", "3").await.unwrap();
    items
        .batch(
            "a",
            vec![
                ItemWrite::create(r#"{"id":"4","pk":"a","mail":"x"}"#),
                ItemWrite::delete("a", "4"),
                ItemWrite::create(r#"{"id":"5","pk":"a","mail":"x"}"#),
            ],
        )
        .await
        .unwrap();
    let taken = items.upsert(r#"{"id":"6","pk":"a","mail":"x"}"#).await.unwrap_err();
    assert!(matches!(&taken, WriteError::UniqueKey { other, .. } if other == "5"), "{taken}");
}

#[tokio::test]
async fn all_items_of_a_partition_key_are_deleted_and_no_others() {
    let (_account, items) = container(plain()).await;
    for id in 0..2500 {
        items.create(format!(r#"{{"id":"{id}","pk":"a"}}"#)).await.unwrap();
    }
    items.create(r#"{"id":"1","pk":"b"}"#).await.unwrap();
    assert_eq!(items.delete_partition_key("a").await.unwrap(), 2500);
    assert!(items.read("b", "1").await.unwrap().is_some());
    let page = items.scan(&ScanScope::Container, None, PageLimit::DEFAULT).await.unwrap();
    assert_eq!(page.items.len(), 1);
}

#[tokio::test]
async fn a_scan_sees_every_item_once_in_a_stable_order() {
    let (_account, items) = container(plain()).await;
    for id in 0..300 {
        items.create(format!(r#"{{"id":"{id}","pk":"k{}"}}"#, id % 7)).await.unwrap();
    }
    let mut orders = Vec::new();
    for limit in [1, 7, 100, 1000] {
        let limit = PageLimit::items(limit).unwrap();
        let mut seen = Vec::new();
        let mut position = None;
        loop {
            let page = items.scan(&ScanScope::Container, position.as_ref(), limit).await.unwrap();
            seen.extend(page.items.iter().map(text));
            match page.next {
                Some(next) => position = Some(next),
                None => break,
            }
        }
        orders.push(seen);
    }
    assert_eq!(orders[0].len(), 300);
    assert!(orders.windows(2).all(|pair| pair[0] == pair[1]));
    let scope = ScanScope::Key("k3".into());
    let of_key = items.scan(&scope, None, PageLimit::items(1000).unwrap()).await.unwrap();
    assert_eq!(of_key.items.len(), 43);
}

/// Opens a store that was dropped without being closed. It stays locked until its writers have ended.
async fn open_when_free(dir: &std::path::Path) -> Account {
    let runtime = headwater_runtime::Runtime::system();
    for _ in 0..1000 {
        match Account::open(dir, Options::default()).await {
            Err(headwater_store::OpenError::Locked { .. }) => {
                runtime.sleep(std::time::Duration::from_millis(1)).await;
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("a dropped store stays locked");
}

#[tokio::test]
async fn a_durable_store_is_what_it_was_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..4 {
        let account = open_when_free(dir.path()).await;
        if round == 0 {
            let database = account.create_database("db").await.unwrap();
            database.create_container_with(plain(), 2).await.unwrap();
        }
        let items = account.database("db").await.unwrap().container("c").await.unwrap();
        for id in 0..50 {
            let body = format!(r#"{{"id":"{id}","pk":"{}","round":{round}}}"#, id % 5);
            items.upsert(body).await.unwrap();
        }
        items.create(format!(r#"{{"id":"extra{round}","pk":"x"}}"#)).await.unwrap();
        let mut seen = Vec::new();
        let mut request = FeedRequest::new(FeedStart::Beginning);
        loop {
            let page = items.read_feed(&request).await.unwrap();
            if page.changes.is_empty() {
                break;
            }
            seen.extend(page.changes.iter().map(|change| change.id().to_owned()));
            request = FeedRequest::after(page.continuation);
        }
        assert_eq!(seen.len(), 51 + round, "every live item once");
        expected.push(account.state_hash().unwrap());
        if round % 2 == 0 {
            account.close().await.unwrap();
        }
        drop(items);
        drop(account);
    }
    let account = open_when_free(dir.path()).await;
    assert_eq!(Some(&account.state_hash().unwrap()), expected.last());
    let second = Account::open(dir.path(), Options::default()).await.unwrap_err();
    let is_locked = matches!(second, headwater_store::OpenError::Locked { pid: None, .. });
    assert!(is_locked, "{second}");
}

#[tokio::test]
async fn statistics_count_items_and_name_the_largest_partition_keys() {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container(definition).await.unwrap();
    assert_eq!(container.statistics().unwrap()[0].items, 0);
    for (key, count) in [("big", 30), ("small", 3), ("a\u{0}b", 1)] {
        for id in 0..count {
            let item = serde_json::json!({"id": id.to_string(), "pk": key, "x": "x".repeat(500)});
            container.create(item.to_string()).await.unwrap();
        }
    }
    container.delete("small", "0").await.unwrap();
    let [range] = &container.statistics().unwrap()[..] else { panic!("one range") };
    assert_eq!((range.items, range.distinct_keys), (33, 3));
    let keys: Vec<_> = range.largest_keys.iter().map(|(key, _)| key.to_json()).collect();
    assert_eq!(keys, [r#"["big"]"#, r#"["small"]"#, r#"["a\u0000b"]"#]);
    assert!(range.bytes > 33 * 500 && range.largest_keys[0].1 > 30 * 500, "{range:?}");
    container.split(range.id, None).await.unwrap();
    let halves = container.statistics().unwrap();
    assert_eq!(halves.len(), 2);
    assert_eq!(halves.iter().map(|half| half.items).sum::<u64>(), 33);
    // Both halves inherit the files of the old range; their bytes are counted once.
    let bytes: u64 = halves.iter().map(|half| half.bytes).sum();
    assert!(bytes > 33 * 500 && bytes <= range.bytes, "{halves:?} of {range:?}");
    container.merge(halves[0].id, halves[1].id).await.unwrap();
    let [merged] = &container.statistics().unwrap()[..] else { panic!("one range") };
    assert!(merged.bytes > 33 * 500 && merged.bytes <= range.bytes, "{merged:?} of {range:?}");
    account.close().await.unwrap();
}

/// Items that are read often come from memory. They must be as new as those from the log, also while ranges are
/// split.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_shows_every_write_that_was_answered_before_it() {
    const KEYS: usize = 8;
    const WRITES: u64 = 600;
    let (account, items) = container(plain()).await;
    let answered: Arc<[AtomicU64; KEYS]> = Arc::default();
    let mut tasks = JoinSet::new();
    for key in 0..KEYS {
        let (items, answered) = (items.clone(), answered.clone());
        tasks.spawn(async move {
            for number in 1..=WRITES {
                match number % 7 {
                    0 => drop(items.delete(format!("k{key}"), "1").await.unwrap()),
                    _ => {
                        let body = format!(r#"{{"id":"1","pk":"k{key}","n":{number}}}"#);
                        items.upsert(body).await.unwrap();
                    }
                }
                answered[key].store(number, Ordering::SeqCst);
            }
        });
    }
    for reader in 0..4 {
        let (items, answered) = (items.clone(), answered.clone());
        tasks.spawn(async move {
            for round in 0..200_000_usize {
                let key = (round * 3 + reader) % KEYS;
                let before = answered[key].load(Ordering::SeqCst);
                let found = items.read(format!("k{key}"), "1").await.unwrap();
                let Some(item) = found else {
                    let after = answered[key].load(Ordering::SeqCst);
                    // A delete may be in flight, or may be the last write that was answered.
                    let gone = (before..=after + 1).any(|number| number % 7 == 0);
                    assert!(gone, "k{key} is missing after write {before} of it was answered");
                    continue;
                };
                let n = item.parse::<serde_json::Value>().unwrap()["n"].as_u64().unwrap();
                assert!(n >= before, "k{key} is at {n} after {before} was answered");
                if answered.iter().all(|done| done.load(Ordering::SeqCst) == WRITES) {
                    break;
                }
            }
        });
    }
    for split in 1..=3 {
        while answered[0].load(Ordering::SeqCst) < split * WRITES / 5 {
            tokio::task::yield_now().await;
        }
        let first = items.ranges().first().unwrap().id;
        items.split(first, None).await.unwrap();
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    account.close().await.unwrap();
}
