//! Only the owner can read a data directory.

#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_store::{Account, ContainerDefinition, Options};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn everything_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything_in(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Opens a store, writes an item if there is none, and closes it.
async fn use_store(dir: &Path) {
    let account = Account::open(dir, Options::default()).await.unwrap();
    if let Ok(shop) = account.create_database("shop").await {
        let orders = ContainerDefinition::new("orders", "/customer").unwrap();
        let orders = shop.create_container(orders).await.unwrap();
        orders.create(r#"{"id":"1","customer":"ann"}"#).await.unwrap();
    }
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_directory_is_made_for_its_owner_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("deep/data");
    use_store(&dir).await;
    // The index engine creates its own files, in a directory that only the owner can enter.
    let ours = |path: &PathBuf| !path.starts_with(dir.join("index"));
    let found: Vec<PathBuf> = everything_in(&dir).into_iter().filter(ours).collect();
    assert!(found.len() > 6, "{found:?}");
    for path in found {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
    assert_eq!(std::fs::read_to_string(dir.join(".gitignore")).unwrap(), "*\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_data_directory_is_closed_to_others_when_it_is_opened() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("data");
    use_store(&dir).await;
    let open_up = || {
        for path in everything_in(&dir) {
            set_mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
        }
    };
    open_up();
    use_store(&dir).await;
    for name in ["", "catalog", "containers", "index"] {
        assert_eq!(mode(&dir.join(name)), 0o700, "{name}");
    }
    // A directory with foreign files keeps its mode; the store's own directories in it are closed to others.
    open_up();
    std::fs::write(dir.join("notes.txt"), "").unwrap();
    use_store(&dir).await;
    assert_eq!(mode(&dir), 0o755);
    for name in ["catalog", "containers", "index"] {
        assert_eq!(mode(&dir.join(name)), 0o700, "{name}");
    }
}
