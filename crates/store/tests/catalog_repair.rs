//! Repair of a damaged catalog: everything is restored from its copy, from the readable log entries, and from the
//! files of the containers.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_model::ResourceId;
use headwater_store::{
    Account, ContainerDefinition, Options, Resource, ResourceType, repair_catalog,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use support::scratch;

const KINDS: [ResourceType; 7] = [
    ResourceType::Offer,
    ResourceType::User,
    ResourceType::Permission,
    ResourceType::ClientEncryptionKey,
    ResourceType::StoredProcedure,
    ResourceType::Trigger,
    ResourceType::UserDefinedFunction,
];

fn options() -> Options {
    let mut options = Options::default();
    // Several segments, so that some are damaged and others are not.
    options.segment_bytes = 2 << 10;
    options.maintenance_interval = Duration::ZERO;
    options
}

/// Creates two resources of every kind, one of them changed, and drops others.
async fn build(account: &Account) {
    let database = account.create_database("db").await.unwrap();
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container_with(definition, 2).await.unwrap();
    container.create(r#"{"id":"1","pk":"a"}"#).await.unwrap();
    database.create_container(ContainerDefinition::new("gone", "/pk").unwrap()).await.unwrap();
    let of_database = ResourceId::Database(database.rid());
    let of_container = ResourceId::Container(container.rid());
    let user = create(account, ResourceType::User, of_database, "ann").await;
    for kind in KINDS {
        let owner = match kind {
            ResourceType::User | ResourceType::ClientEncryptionKey => of_database,
            ResourceType::Permission => user.rid,
            _ => of_container,
        };
        let dropped = create(account, kind, owner, "dropped").await;
        create(account, kind, owner, "kept").await;
        let changed = create(account, kind, owner, "changed").await;
        account.drop_resource(dropped.rid, None).await.unwrap();
        let (id, json) = (changed.id.as_str(), r#"{"version":2}"#);
        account.replace_resource(changed.rid, id, json, None).await.unwrap();
    }
    database.drop_container("gone").await.unwrap();
}

async fn create(account: &Account, kind: ResourceType, owner: ResourceId, id: &str) -> Resource {
    let json = format!(r#"{{"id":"{id}","body":"{}"}}"#, "x".repeat(100));
    account.create_resource(kind, owner, id, &json, |_| false).await.unwrap()
}

/// The contents of the catalog, without etags and times.
fn everything(account: &Account) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for database in account.databases() {
        all.insert(format!("database {}", database.id()), database.rid().to_string());
        for container in database.containers() {
            let (rid, definition) = (container.rid(), container.definition().to_json());
            let ranges = container.ranges();
            all.insert(
                format!("container {}", container.id()),
                format!("{rid} {definition} {ranges:?}"),
            );
        }
    }
    for kind in KINDS {
        for one in account.resources(kind, None) {
            let name = format!("{} {} {}", kind.as_str(), one.owner, one.id);
            all.insert(name, format!("{} {}", one.rid, one.json));
        }
    }
    all
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_dir(&path, &target),
            false => drop(std::fs::copy(&path, &target).unwrap()),
        }
    }
}

/// Damages a file in one of several ways, or not (`whole`).
fn damage(path: &Path, how: &str) {
    let mut bytes = std::fs::read(path).unwrap_or_default();
    let length = bytes.len();
    match how {
        "whole" => return,
        "missing" if path.is_dir() => return std::fs::remove_dir_all(path).unwrap(),
        "missing" => return std::fs::remove_file(path).unwrap(),
        "flipped first" => bytes[0] ^= 1,
        "flipped" => bytes[length / 2] ^= 1,
        "torn" => bytes.truncate(length / 2),
        "empty" => bytes.clear(),
        "zeros" => bytes.fill(0),
        other => panic!("{other}"),
    }
    std::fs::write(path, bytes).unwrap();
}

const DAMAGE: [&str; 6] = ["missing", "flipped first", "flipped", "torn", "empty", "zeros"];

#[tokio::test]
async fn a_damaged_catalog_is_restored_with_users_scripts_and_offers() {
    let original = scratch();
    let account = Account::open(original.path(), options()).await.unwrap();
    build(&account).await;
    let expected = everything(&account);
    assert_eq!(expected.len(), 2 + 1 + 2 * KINDS.len(), "{expected:#?}");
    account.close().await.unwrap();
    drop(account);
    let mut segments: Vec<_> = std::fs::read_dir(original.path().join("catalog"))
        .unwrap()
        .map(|entry| format!("catalog/{}", entry.unwrap().file_name().to_str().unwrap()))
        .filter(|name| name.ends_with(".seg"))
        .collect();
    segments.sort();
    assert!(segments.len() > 3, "{segments:?}");
    let files = [
        segments[0].as_str(),
        segments[segments.len() / 2].as_str(),
        "catalog/MANIFEST",
        "catalog",
    ];
    for file in files {
        for how in DAMAGE.iter().filter(|how| file != "catalog" || **how == "missing") {
            let copy = scratch();
            copy_dir(original.path(), copy.path());
            damage(&copy.path().join(file), how);
            check(copy.path(), &expected, &format!("{file} {how}")).await;
        }
    }
    // The copy is damaged too: the containers and the contents of readable entries are restored.
    for how in DAMAGE {
        for file in [segments[0].as_str(), "catalog"] {
            let copy = scratch();
            copy_dir(original.path(), copy.path());
            damage(&copy.path().join("CATALOG.json"), how);
            damage(&copy.path().join(file), "missing");
            let repaired = repair_catalog(copy.path()).await.unwrap();
            assert_eq!(repaired.copy_lsn, None, "{how}");
            let account = Account::open(copy.path(), options()).await.unwrap();
            let found = everything(&account);
            for (name, value) in expected.iter().filter(|(name, _)| name.starts_with(['d', 'c'])) {
                if !name.starts_with("client") {
                    assert_eq!(found.get(name), Some(value), "{file}, copy {how}");
                }
            }
            assert!(!found.contains_key("container gone"), "{file}, copy {how}");
            account.close().await.unwrap();
        }
    }
}

async fn check(dir: &Path, expected: &BTreeMap<String, String>, what: &str) {
    let repaired = repair_catalog(dir).await.unwrap();
    let account = Account::open(dir, options()).await.unwrap();
    assert_eq!(&everything(&account), expected, "{what}");
    assert!(repaired.copy_lsn.is_some(), "{what}");
    // A new resource gets no id that is in use, nor that of a dropped resource.
    let owner = ResourceId::Database(account.database("db").await.unwrap().rid());
    let before = everything(&account);
    let new = create(&account, ResourceType::User, owner, "new").await;
    let mut after = everything(&account);
    after.retain(|name, _| before.contains_key(name));
    assert_eq!(after, before, "{what}: {new:?}");
    let container = account.database("db").await.unwrap().container("c").await.unwrap();
    assert!(container.read("a", "1").await.unwrap().is_some(), "{what}");
    account.close().await.unwrap();
}

/// Entries after the copy bring a copy that is older than the log up to date.
#[tokio::test]
async fn an_old_copy_of_the_catalog_is_completed_by_the_readable_entries() {
    let dir = scratch();
    let account = Account::open(dir.path(), options()).await.unwrap();
    build(&account).await;
    let copy = std::fs::read(dir.path().join("CATALOG.json")).unwrap();
    let database = account.database("db").await.unwrap();
    let owner = ResourceId::Database(database.rid());
    create(&account, ResourceType::User, owner, "later").await;
    let kept = account.resource(ResourceType::User, owner, "kept").unwrap();
    account.drop_resource(kept.rid, None).await.unwrap();
    database.create_container(ContainerDefinition::new("later", "/pk").unwrap()).await.unwrap();
    let expected = everything(&account);
    account.close().await.unwrap();
    drop((account, database));
    std::fs::write(dir.path().join("CATALOG.json"), copy).unwrap();
    damage(&dir.path().join("catalog/00000001.seg"), "torn");
    check(dir.path(), &expected, "an old copy").await;
}

/// A missing or damaged copy is rewritten when the store opens, readable by its owner only.
#[cfg(unix)]
#[tokio::test]
async fn the_copy_of_the_catalog_is_made_again_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let dir = scratch();
    let account = Account::open(dir.path(), options()).await.unwrap();
    build(&account).await;
    let path = dir.path().join("CATALOG.json");
    account.close().await.unwrap();
    drop(account);
    let expected = std::fs::read(&path).unwrap();
    for how in DAMAGE {
        damage(&path, how);
        let account = Account::open(dir.path(), options()).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected, "{how}");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        account.close().await.unwrap();
    }
}
