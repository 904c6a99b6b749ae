//! Concurrent creation of the same container.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_runtime::Runtime;
use headwater_store::{Account, CatalogError, ContainerDefinition, Database, Options};

/// Several programs create the same container at once. One succeeds; the others get a conflict and find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_container_that_already_exists_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let account = Account::open(dir.path(), Options::default()).await.unwrap();
    let shop = account.create_database("shop").await.unwrap();
    let runtime = Runtime::system();
    for round in 0..40 {
        let id = format!("c{round}");
        let ask = |shop: Database, id: String| async move {
            let definition = ContainerDefinition::new(&id, "/pk").unwrap();
            match shop.create_container(definition).await {
                Ok(_) => 1,
                Err(CatalogError::AlreadyExists { .. }) => {
                    assert!(shop.find_container(&id).is_some(), "{id} exists but is not found");
                    0
                }
                Err(error) => panic!("{error}"),
            }
        };
        let start = || runtime.run("create", ask(shop.clone(), id.clone()));
        let asked: [Result<i32, _>; 4] = tokio::join!(start(), start(), start(), start()).into();
        let made: i32 = asked.into_iter().map(|made| made.expect("it was found")).sum();
        assert_eq!(made, 1, "{id}");
    }
    account.close().await.unwrap();
}
