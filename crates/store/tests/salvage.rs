//! Salvage: damage is counted, readable data is exported, and a partition is restored from a backup.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::{
    Account, Container, ContainerDefinition, FeedStart, ItemReadError, Lsn, Options, Remedy,
    repair_catalog, restore_partition,
};
use object_store::local::LocalFileSystem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{Reader, Scope, container_of, scratch};

const ITEMS: u64 = 40;

fn options() -> Options {
    let mut options = Options::default();
    options.segment_bytes = 4 << 10;
    options.maintenance_interval = Duration::ZERO;
    options
}

/// Creates two partitions with several segments each; every item is written twice.
async fn build(dir: &Path) -> Account {
    let account = Account::open(dir, options()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 2).await.unwrap();
    for version in 1..=2 {
        write(&container, version).await;
    }
    account
}

async fn write(container: &Container, version: u64) {
    for number in 0..ITEMS {
        let padding = "x".repeat(100);
        let body = format!(
            "{{\"id\":\"{number}\",\n\"pk\":\"k{}\",\"v\":{version},\"p\":\"{padding}\"}}",
            number % 8
        );
        container.upsert(body).await.unwrap();
    }
}

/// The newest version of each item in an export.
fn exported(path: &Path) -> BTreeMap<String, u64> {
    let mut items = BTreeMap::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let item: serde_json::Value = serde_json::from_str(line).unwrap();
        let id = item["id"].as_str().unwrap().to_owned();
        let earlier = items.insert(id, item["v"].as_u64().unwrap());
        assert_eq!(earlier, None, "an item is exported once");
    }
    items
}

/// The first segment of the partition with the number 1.
fn first_segment(dir: &Path) -> PathBuf {
    let containers = std::fs::read_dir(dir.join("containers")).unwrap();
    let container = containers.map(|entry| entry.unwrap().path()).next().unwrap();
    container.join("00000001/00000001.seg")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn an_undamaged_store_is_exported_as_it_is() {
    let (dir, out) = (scratch(), scratch());
    let account = build(dir.path()).await;
    let mut read = 0;
    let reports = account.inspect(&mut |bytes| read += bytes).unwrap();
    assert_eq!(read, account.bytes_to_inspect(), "progress reaches its end");
    assert!(reports.iter().all(|report| !report.is_damaged()), "{reports:?}");
    let salvaged = account.salvage(&out.path().join("new"), &mut |_| ()).unwrap();
    assert_eq!((salvaged[0].items, salvaged[0].changes), (ITEMS, 2 * ITEMS));
    let items = exported(&salvaged[0].items_file);
    assert!(items.len() as u64 == ITEMS && items.values().all(|version| *version == 2));
    let changes = std::fs::read_to_string(&salvaged[0].changes_file).unwrap();
    assert_eq!(changes.lines().count() as u64, 2 * ITEMS);
    assert!(account.salvage(out.path(), &mut |_| ()).is_err(), "no file is overwritten");
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_damaged_entry_is_counted_and_everything_else_is_exported() {
    let (dir, out) = (scratch(), scratch());
    let account = build(dir.path()).await;
    account.close().await.unwrap();
    drop(account);
    // In the second half of a sealed segment of first versions.
    flip(&first_segment(dir.path()), 2_500);
    let account = Account::open(dir.path(), options()).await.unwrap();
    assert!(account.quarantined().is_empty(), "nothing needed the entry to open");
    let reports = account.inspect(&mut |_| ()).unwrap();
    let damaged: Vec<_> = reports.iter().filter(|report| report.is_damaged()).collect();
    let [report] = damaged[..] else { panic!("{damaged:?}") };
    let [hole] = &report.found.holes[..] else { panic!("{report:?}") };
    assert_eq!((report.partition.get(), hole.changes), (1, Some(1)), "{hole:?}");
    assert!(hole.damage.offset <= 2_500 && 2_500 < hole.end, "{hole:?}");
    assert_eq!(hole.damage.lsn, hole.last_lsn, "one entry, one LSN");
    let salvaged = account.salvage(&out.path().join("new"), &mut |_| ()).unwrap();
    assert_eq!(salvaged[0].changes, 2 * ITEMS - 1);
    let lost = report.items_lost.unwrap();
    let old = exported(&salvaged[0].items_file);
    let behind = ITEMS - old.values().filter(|version| **version == 2).count() as u64;
    assert_eq!(lost, behind, "an item whose newest version is lost is not exported as it was");
    // A read of the damaged entry fails with the remedy.
    let container = container_of(&account).await;
    let reader = Reader::all_versions(Scope::Range(report.partition), 5);
    let start = FeedStart::After(headwater_store::Continuation::Single(Lsn::ZERO));
    let error = reader.drain(&container, start).await.unwrap_err();
    assert_eq!(error.remedy(), Remedy::Restore, "{error}");
    assert!(error.to_string().contains("headwater doctor"), "{error}");
    account.close().await.unwrap();
}

#[tokio::test]
async fn a_partition_is_taken_from_a_backup_and_says_what_is_newer() {
    let (dir, copy) = (scratch(), scratch());
    let account = build(dir.path()).await;
    let place = LocalFileSystem::new_with_prefix(copy.path()).unwrap();
    account.backup(&place, "backup").await.unwrap();
    let container = container_of(&account).await;
    let rid = container.rid();
    let ranges = container.ranges();
    write(&container, 3).await;
    let newer = container.ranges()[1].lsn.get() - ranges[1].lsn.get();
    account.close().await.unwrap();
    drop((account, container));
    let segment = first_segment(dir.path());
    std::fs::remove_file(segment.with_file_name("MANIFEST")).unwrap();

    let account = Account::open(dir.path(), options()).await.unwrap();
    let quarantined = account.quarantined();
    assert_eq!(quarantined.len(), 1);
    let container = container_of(&account).await;
    let (mut served, mut refused) = (0, 0);
    for number in 0..8 {
        match container.read(format!("k{number}"), &number.to_string()).await {
            Ok(item) => served += u64::from(item.is_some()),
            Err(ItemReadError::Storage(error)) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains("MANIFEST") && text.contains("headwater doctor"), "{text}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(served > 0 && refused > 0 && served + refused == 8);
    let open = restore_partition(&place, "backup", dir.path(), rid, quarantined[0].partition).await;
    assert!(open.is_err(), "a restore needs a closed store");
    account.close().await.unwrap();
    drop((account, container));

    let partition = quarantined[0].partition;
    let restored = restore_partition(&place, "backup", dir.path(), rid, partition).await.unwrap();
    assert_eq!((restored.lsn, restored.newer_changes), (ranges[1].lsn, newer));
    assert!(restored.damaged_files.join("00000001.seg").exists(), "the damaged files are kept");
    let account = Account::open(dir.path(), options()).await.unwrap();
    assert!(account.quarantined().is_empty());
    let container = container_of(&account).await;
    let mut versions = BTreeMap::<u64, u64>::new();
    for number in 0..ITEMS {
        let item = container.read(format!("k{}", number % 8), &number.to_string()).await.unwrap();
        let item: serde_json::Value = item.unwrap().parse().unwrap();
        *versions.entry(item["v"].as_u64().unwrap()).or_default() += 1;
    }
    assert_eq!(
        versions,
        BTreeMap::from([(2, newer), (3, ITEMS - newer)]),
        "one partition is older"
    );
    write(&container, 4).await;
    account.close().await.unwrap();
}

/// Describes the databases and containers of a store.
fn resources(account: &Account) -> Vec<String> {
    let mut all = Vec::new();
    for database in account.databases() {
        all.push(format!("{} {:?}", database.id(), database.rid()));
        for container in database.containers() {
            let (definition, ranges) = (container.definition().to_json(), container.ranges());
            all.push(format!("{} {:?} {definition} {ranges:?}", container.id(), container.rid()));
        }
    }
    all
}

#[tokio::test]
async fn a_damaged_catalog_is_made_again_with_every_container() {
    let dir = scratch();
    let account = build(dir.path()).await;
    let database = account.database("db").await.unwrap();
    let other = ContainerDefinition::new("other", "/pk").unwrap();
    let other = database.create_container_with(other, 1).await.unwrap();
    other.split(other.ranges()[0].id, None).await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap().with_default_ttl(-1);
    database.replace_container(definition).await.unwrap();
    database.create_container(ContainerDefinition::new("gone", "/pk").unwrap()).await.unwrap();
    database.drop_container("gone").await.unwrap();
    let expected = resources(&account);
    let state = account.state_hash().unwrap();
    account.close().await.unwrap();
    drop((account, database, other));
    let catalog = dir.path().join("catalog");
    for kind in ["flip", "lost segment", "lost directory"] {
        match kind {
            "flip" => flip(&catalog.join("00000001.seg"), 200),
            "lost segment" => std::fs::remove_file(catalog.join("00000001.seg")).unwrap(),
            _ => std::fs::remove_dir_all(&catalog).unwrap(),
        }
        assert!(Account::open(dir.path(), options()).await.is_err(), "{kind}: it is damaged");
        let repaired = repair_catalog(dir.path()).await.unwrap();
        assert_eq!((repaired.databases, repaired.containers), (1, 2), "{kind}: {repaired:?}");
        let account = Account::open(dir.path(), options()).await.unwrap();
        assert_eq!(resources(&account), expected, "{kind}");
        assert_eq!(account.state_hash().unwrap(), state, "{kind}: no item is lost");
        account.close().await.unwrap();
    }
}
