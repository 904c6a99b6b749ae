//! Decides whether a caller may run an operation, based on the operation, the route and the caller.
//!
//! | caller | may |
//! |---|---|
//! | a read-write key | everything |
//! | a read-only key | read, except permissions: reading one yields a token, which may write |
//! | a resource token | what its permission grants; never users, permissions, offers, splits or merges |
//!
//! A backup contains everything, permissions included, so it requires a read-write key.
//!
//! No header takes part, except the partition key that a token is compared with.

use super::by_rid;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::{Call, Caller};
use headwater_model::PartitionKey;
use headwater_protocol::auth::{Grant, GrantMode};
use headwater_protocol::error::Code;
use headwater_protocol::operation::{Access, Action, Operation, Resource};
use headwater_protocol::route::Route;

/// Refuses operations that the caller may not run.
pub(super) async fn check(gateway: &Gateway, call: &Call) -> Result<(), Failure> {
    match (&call.caller, call.operation.access()) {
        (Caller::Owner, _) | (Caller::Reader, Access::Read) => Ok(()),
        (Caller::Reader, Access::Write) => Err(forbidden("a read-only key cannot write")),
        (Caller::Reader, Access::ManagePermissions) => {
            Err(forbidden("a read-only key cannot read or change permissions"))
        }
        (_, Access::ManagePartitions) => {
            Err(forbidden("only a read-write key of the account splits and merges partitions"))
        }
        (_, Access::BackUp) => Err(forbidden("only a read-write key of the account makes backups")),
        (Caller::Guest(_), Access::ManagePermissions) => {
            Err(forbidden("a resource token cannot read or change permissions"))
        }
        (Caller::Guest(_), Access::Read) if is_account(call) => Ok(()),
        (Caller::Guest(grant), access) => Box::pin(check_grant(gateway, call, grant, access)).await,
    }
}

fn is_account(call: &Call) -> bool {
    call.operation == Operation::Define(Resource::Account, Action::Read)
}

async fn check_grant(
    gateway: &Gateway,
    call: &Call,
    grant: &Grant,
    access: Access,
) -> Result<(), Failure> {
    let reads = access == Access::Read;
    let link = link_of(gateway, &call.route)?;
    // A client that may read items must be able to read the list of ranges too.
    let is_map = matches!(
        call.route,
        Route::PkRanges { .. } | Route::Container { .. } | Route::Partitions { .. }
    );
    let covered = grant.covers(&link)
        || (reads && is_map && grant.resource.starts_with(link.trim_end_matches("/pkranges")));
    if !covered && !is_granted_item(gateway, call, grant).await? {
        return Err(forbidden("the resource token does not cover this resource"));
    }
    if grant.mode == GrantMode::Read && !reads {
        return Err(forbidden("the resource token permits only reads"));
    }
    match &grant.partition_key {
        Some(key) => check_key(call, key, reads),
        None => Ok(()),
    }
}

/// Limits a grant for one partition key to its items, and to reads of the resources around them.
fn check_key(call: &Call, granted: &PartitionKey, reads: bool) -> Result<(), Failure> {
    let is_of_items = matches!(call.operation, Operation::Items(_));
    if is_of_items && call.partition_key()?.as_ref() != Some(granted) {
        return Err(other_key());
    }
    if !is_of_items && !reads {
        return Err(forbidden("the resource token is for the items of one partition key"));
    }
    Ok(())
}

/// Whether a grant for one item covers the item of a call, if one names it by resource id and the other by id.
/// The links do not show that; only the item has both ids.
async fn is_granted_item(gateway: &Gateway, call: &Call, grant: &Grant) -> Result<bool, Failure> {
    let Route::Item { db, coll, id } = &call.route else {
        return Ok(false);
    };
    let items = link_of(gateway, &Route::Items { db: db.clone(), coll: coll.clone() })?;
    let granted = grant.resource.trim_matches('/').strip_prefix(&items);
    let Some(granted) = granted.and_then(|rest| rest.strip_prefix('/')) else {
        return Ok(false);
    };
    let Some(key) = call.partition_key()? else {
        return Ok(false);
    };
    let target = gateway.target(db, coll)?;
    by_rid::is_same(&target, &key, id, granted).await
}

/// Whether the caller may change an item's id. A token for that item alone does not permit it.
pub(super) fn may_rename(gateway: &Gateway, call: &Call) -> Result<bool, Failure> {
    let (Caller::Guest(grant), Some((db, coll))) = (&call.caller, call.route.container()) else {
        return Ok(true);
    };
    let items = Route::Items { db: db.to_owned(), coll: coll.to_owned() };
    Ok(grant.covers(&link_of(gateway, &items)?))
}

/// The link of a route, by resource ids as far as its resources have any.
pub(super) fn link_of(gateway: &Gateway, route: &Route) -> Result<String, Failure> {
    let of_container = |db: &str, coll: &str, rest: &str| {
        let container = gateway.container(db, coll)?;
        let rid = container.rid();
        Ok(format!("dbs/{}/colls/{rid}{rest}", rid.database()))
    };
    match route {
        Route::Container { db, coll } | Route::Partitions { db, coll } => {
            of_container(db, coll, "")
        }
        // Listening to a container means reading its items.
        Route::Items { db, coll } | Route::ChangeStream { db, coll } => {
            of_container(db, coll, "/docs")
        }
        Route::Item { db, coll, id } => of_container(db, coll, &format!("/docs/{id}")),
        Route::PkRanges { db, coll } => of_container(db, coll, "/pkranges"),
        Route::StoredProcedures { db, coll } => of_container(db, coll, "/sprocs"),
        Route::Triggers { db, coll } => of_container(db, coll, "/triggers"),
        Route::Udfs { db, coll } => of_container(db, coll, "/udfs"),
        Route::StoredProcedure { db, coll, id } => of_container(db, coll, &format!("/sprocs/{id}")),
        Route::Trigger { db, coll, id } => of_container(db, coll, &format!("/triggers/{id}")),
        Route::Udf { db, coll, id } => of_container(db, coll, &format!("/udfs/{id}")),
        Route::Conflicts { db, coll } => of_container(db, coll, "/conflicts"),
        Route::PartitionKeyDelete { db, coll } => of_container(db, coll, "/operations"),
        Route::Database { db } | Route::Containers { db } => {
            Ok(format!("dbs/{}", gateway.database(db)?.rid()))
        }
        _ => Err(forbidden("resource tokens do not cover this resource")),
    }
}

/// The error for a token of one partition key that is used with another.
pub(super) fn other_key() -> Failure {
    forbidden("the resource token is for another partition key")
}

/// The error for a token of one item that is used with a body of another id.
pub(super) fn other_id() -> Failure {
    forbidden("the resource token is for one item, and the body has another id")
}

fn forbidden(message: &str) -> Failure {
    Failure::new(Code::Forbidden, message)
}
