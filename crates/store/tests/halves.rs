//! A large page of the change feed is read in two halves.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_runtime::Random;
use headwater_store::{
    Account, Change, Container, ContainerDefinition, Continuation, FeedPage, FeedRequest,
    FeedStart, ItemWrite, Lsn, Options, PageLimit,
};
use std::collections::BTreeMap;

async fn container(random: &mut Random) -> (Account, Container) {
    let mut options = Options::default();
    options.segment_bytes = 300 << 10;
    options.ring_bytes = 8 << 10;
    let account = Account::ephemeral_with(options).await.unwrap();
    let database = account.create_database("d").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container(definition).await.unwrap();
    for _ in 0..60 {
        write(&container, random).await;
    }
    (account, container)
}

/// Writes one transaction: one or several items of one key, some of them replaced.
async fn write(container: &Container, random: &mut Random) {
    let key = format!("k{}", random.below(5));
    let body = |random: &mut Random| {
        let padding = "x".repeat(2_000 + random.index(9_000));
        format!(r#"{{"id":"{}","pk":"{key}","p":"{padding}"}}"#, random.below(40))
    };
    let writes = (0..=random.index(9)).map(|_| ItemWrite::upsert(body(random))).collect();
    container.batch(key.as_str(), writes).await.unwrap();
}

/// The changes of a page, in order.
fn seen(page: &FeedPage) -> Vec<(Lsn, String, Vec<u8>)> {
    let of = |change: &Change| (change.lsn(), change.id().to_owned(), change.body().to_vec());
    page.changes.iter().map(of).collect()
}

fn request(after: Lsn, items: u32) -> FeedRequest {
    let limit = PageLimit::new(items, 4 << 20).unwrap();
    FeedRequest::new(FeedStart::After(Continuation::Single(after))).limit(limit)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_halves_are_what_one_reader_would_read() {
    for seed in 0..10 {
        let mut random = Random::seeded(seed);
        let (account, container) = container(&mut random).await;
        let mut found = 0;
        for after in (0..60).map(Lsn::new) {
            let items = 64 + u32::try_from(random.index(100)).unwrap();
            let Some(halves) = container.halves(&request(after, items)).unwrap() else { continue };
            found += 1;
            let (first, second) = (halves.first().unwrap(), halves.second().unwrap());
            let both = [seen(&first), seen(&second)].concat();
            let whole = seen(&container.read_feed(&request(after, items)).await.unwrap());
            // Dead records count when the middle is chosen, so both halves may be less than a page.
            assert_eq!(both, whole[..both.len()], "seed {seed} after {after}");
            assert!(both.len() > items as usize / 3, "seed {seed} after {after}: {}", both.len());
            let last = second.changes.last().or(first.changes.last()).unwrap().lsn();
            let rest = container.read_feed(&request(last, 1_000)).await.unwrap();
            assert!(rest.changes.iter().all(|change| change.lsn() > last), "a transaction was cut");
            let end = if second.changes.is_empty() { first } else { second };
            assert_eq!(end.continuation, Continuation::Single(last));
        }
        assert!(found > 0, "no page was large enough, seed {seed}");
        account.close().await.unwrap();
    }
}

/// Writes and a split between the two halves neither hide a change nor repeat one.
#[tokio::test(flavor = "multi_thread")]
async fn halves_miss_nothing_while_others_write() {
    for seed in 0..10 {
        let mut random = Random::seeded(seed);
        let (account, container) = container(&mut random).await;
        let mut newest: BTreeMap<String, Lsn> = BTreeMap::new();
        let mut note = |page: &FeedPage| {
            for change in &page.changes {
                let id = format!("{} {}", change.partition_key(), change.id());
                let before = newest.insert(id, change.lsn());
                assert!(before.is_none_or(|before| before < change.lsn()), "seed {seed}: again");
            }
        };
        let halves = container.halves(&request(Lsn::ZERO, 150)).unwrap().unwrap();
        let of_one_reader = container.read_feed(&request(Lsn::ZERO, 150)).await.unwrap();
        for _ in 0..5 {
            write(&container, &mut random).await;
        }
        let first = halves.first().unwrap();
        note(&first);
        for _ in 0..5 {
            write(&container, &mut random).await;
        }
        container.split(container.ranges()[0].id, None).await.unwrap();
        let second = halves.second().unwrap();
        note(&second);
        assert!(!of_one_reader.changes.is_empty());
        let end = if second.changes.is_empty() { first } else { second };
        let mut start = FeedStart::After(end.continuation);
        loop {
            let page = container.read_feed(&FeedRequest::new(start)).await.unwrap();
            if page.changes.is_empty() {
                break;
            }
            note(&page);
            start = FeedStart::After(page.continuation);
        }
        let limit = PageLimit::new(1_000, 64 << 20).unwrap();
        let all = FeedRequest::new(FeedStart::Beginning).limit(limit);
        let all = container.read_feed(&all).await.unwrap();
        let expected: BTreeMap<String, Lsn> = (all.changes.iter())
            .map(|change| (format!("{} {}", change.partition_key(), change.id()), change.lsn()))
            .collect();
        assert_eq!(newest, expected, "seed {seed}");
        account.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn small_and_picky_requests_are_not_worth_it() {
    let (account, container) = container(&mut Random::seeded(1)).await;
    let none = |request: FeedRequest| container.halves(&request).unwrap().is_none();
    assert!(!none(request(Lsn::ZERO, 100)), "this one is");
    assert!(none(request(Lsn::ZERO, 20)), "few items");
    assert!(none(request(Lsn::new(58), 100)), "near the end");
    assert!(none(request(Lsn::ZERO, 100).of_key("k1")), "one key");
    assert!(none(request(Lsn::ZERO, 100).all_versions()), "every version");
    assert!(container.halves(&request(Lsn::new(1_000), 100)).is_err(), "as for one reader");
    account.close().await.unwrap();
}
