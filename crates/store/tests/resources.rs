//! Offers, users, permissions, encryption keys and scripts: durable like containers, dropped with their owners.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_model::ResourceId;
use headwater_store::{Account, CatalogError, ContainerDefinition, Options, ResourceType};

#[tokio::test(flavor = "multi_thread")]
async fn resources_survive_a_restart_and_go_with_their_owner() {
    let dir = tempfile::tempdir().unwrap();
    let account = Account::open(dir.path(), Options::default()).await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let owner = ResourceId::Database(database.rid());
    let definition = ContainerDefinition::new("c", "/pk").unwrap();
    let container = database.create_container(definition).await.unwrap();
    let of_container = ResourceId::Container(container.rid());
    let none = |_: &headwater_store::Resource| false;
    let user = account.create_resource(ResourceType::User, owner, "ann", "{}", none).await.unwrap();
    let permission = account
        .create_resource(ResourceType::Permission, user.rid, "read", "{}", none)
        .await
        .unwrap();
    let encryption_key = ResourceType::ClientEncryptionKey;
    let key = account.create_resource(encryption_key, owner, "k", "{}", none).await.unwrap();
    let (sproc, offer) = (ResourceType::StoredProcedure, ResourceType::Offer);
    account.create_resource(sproc, of_container, "s", "{}", none).await.unwrap();
    let first = account.create_resource(offer, of_container, "x", "{}", none).await.unwrap();
    assert_eq!(first.id, first.rid.to_string(), "an offer's id is its resource id");

    let taken = account.create_resource(ResourceType::User, owner, "ann", "{}", none).await;
    assert!(matches!(taken, Err(CatalogError::AlreadyExists { .. })));
    let second = account.create_resource(offer, of_container, "x", "{}", |_| true).await;
    assert!(matches!(second, Err(CatalogError::AlreadyExists { .. })), "one offer is enough");
    let wrong = account.create_resource(sproc, owner, "s", "{}", none).await;
    assert!(matches!(wrong, Err(CatalogError::BadResource(_))));
    let nobody = ResourceId::User(headwater_model::UserRid::new(9, 9));
    let orphan = account.create_resource(ResourceType::Permission, nobody, "p", "{}", none).await;
    assert!(matches!(orphan, Err(CatalogError::NotFound { .. })));

    let stale = account.replace_resource(user.rid, "ann", "{\"a\":1}", Some("\"x\"")).await;
    assert!(matches!(stale, Err(CatalogError::EtagMismatch { .. })));
    let etag = user.etag.to_string();
    let changed =
        account.replace_resource(user.rid, "bob", "{\"a\":1}", Some(&etag)).await.unwrap();
    assert_ne!(changed.etag, user.etag);
    account.close().await.unwrap();
    drop((account, database, container));

    let account = Account::open(dir.path(), Options::default()).await.unwrap();
    let bob = account.resource(ResourceType::User, owner, "bob").unwrap();
    assert_eq!((bob.rid, bob.json.as_str(), bob.etag), (user.rid, "{\"a\":1}", changed.etag));
    assert!(account.resource_by_rid(permission.rid).is_some());
    assert_eq!(account.resource(encryption_key, owner, "k").unwrap().rid, key.rid);
    account.drop_resource(user.rid, None).await.unwrap();
    assert!(account.resource_by_rid(permission.rid).is_none(), "a permission goes with its user");
    let next = account.create_resource(ResourceType::User, owner, "cy", "{}", none).await.unwrap();
    assert_ne!(next.rid, user.rid, "a resource id is not used twice");
    let database = account.database("db").await.unwrap();
    database.drop_container("c").await.unwrap();
    assert!(account.resources(offer, None).is_empty(), "an offer goes with its container");
    account.drop_database("db").await.unwrap();
    assert!(account.resource_by_rid(key.rid).is_none(), "a key goes with its database");
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_of_all_resources_are_64_mib_together() {
    let account = Account::ephemeral().await.unwrap();
    let database = account.create_database("db").await.unwrap();
    let owner = ResourceId::Database(database.rid());
    let none = |_: &headwater_store::Resource| false;
    let document = format!(r#"{{"a":"{}"}}"#, "x".repeat((2 << 20) - 8));
    assert_eq!(document.len(), 2 << 20);
    let mut users = Vec::new();
    for number in 0..32 {
        let id = number.to_string();
        let made = account.create_resource(ResourceType::User, owner, &id, &document, none).await;
        users.push(made.unwrap().rid);
    }
    let full = account.create_resource(ResourceType::User, owner, "x", "{}", none).await;
    let message = full.unwrap_err().to_string();
    assert!(message.contains("at most 64 MiB") && message.contains("delete"), "{message}");
    // A shorter document makes room, and no longer one takes more than there is.
    account.replace_resource(users[0], "0", "{}", None).await.unwrap();
    account.create_resource(ResourceType::User, owner, "x", "{}", none).await.unwrap();
    let refused = account.replace_resource(users[0], "0", &document, None).await;
    assert!(matches!(refused, Err(CatalogError::ResourcesFull { .. })));
    let sizes = account.resource_sizes(ResourceType::User, owner);
    assert_eq!((sizes.len(), sizes[0], sizes[1].1), (33, (users[0], 2), 2 << 20));
}
