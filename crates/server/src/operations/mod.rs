//! What a request asks for, by route and verb: one file per kind of resource.
//!
//! An operation takes a [`Call`], asks the store, and makes an [`Answer`]. Whether the caller may do it is
//! decided here, before any of them runs.

mod account;
mod batch;
mod brief;
mod by_rid;
mod changes;
mod containers;
mod databases;
mod documents;
mod encryption;
pub(crate) mod extension;
mod items;
mod list;
mod offers;
mod permissions;
mod query;
mod query_metrics;
mod ranges;
mod scripts;
pub(crate) mod service;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::names;
use crate::request::{Call, Caller, no_partition_key};
use headwater_model::{PartitionId, PartitionKey};
use headwater_protocol::auth::{Grant, GrantMode};
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use headwater_protocol::headers::ApiVersion;
use headwater_protocol::route::Route;
use headwater_store::ResourceType;
use hyper::Method;
use std::sync::Arc;

pub(crate) use brief::is_brief;
pub(crate) use list::content_path;

pub(crate) type Outcome = Result<Answer, Failure>;

/// Carries out a request.
pub(crate) async fn answer(gateway: &Arc<Gateway>, call: &Call) -> Outcome {
    permit(gateway, call).await?;
    call.check_consistency()?;
    let is_for_old_client = reads_old_sessions(call);
    let answer = carry_out(gateway, call)
        .await
        .map_err(|failure| Failure { is_for_old_client, ..failure })?
        .header_if(&names::ALT_CONTENT_PATH, owner_path(&call.route));
    Ok(if is_for_old_client { answer.with_old_session() } else { answer })
}

/// Whether the client is from before session tokens had versions.
fn reads_old_sessions(call: &Call) -> bool {
    let version = call.header(&names::VERSION);
    version.is_some() && ApiVersion::of(version) < ApiVersion::V2018_06_18
}

/// By what names the owner of a definition goes. The Java client makes the address of what it read of
/// it; items say it themselves.
fn owner_path(route: &Route) -> Option<String> {
    match route {
        Route::Containers { db } | Route::Container { db, .. } => Some(list::path_of(&["dbs", db])),
        Route::Users { db }
        | Route::User { db, .. }
        | Route::ClientEncryptionKeys { db }
        | Route::ClientEncryptionKey { db, .. } => Some(list::path_of(&["dbs", db])),
        Route::Permissions { db, user } | Route::Permission { db, user, .. } => {
            Some(list::path_of(&["dbs", db, "users", user]))
        }
        Route::StoredProcedures { db, coll }
        | Route::StoredProcedure { db, coll, .. }
        | Route::Triggers { db, coll }
        | Route::Trigger { db, coll, .. }
        | Route::Udfs { db, coll }
        | Route::Udf { db, coll, .. } => Some(list::content_path(db, coll)),
        _ => None,
    }
}

/// What is asked for rarely is boxed: the size of all this is moved about with every request, and items
/// alone are small.
async fn carry_out(gateway: &Arc<Gateway>, call: &Call) -> Outcome {
    match &call.route {
        Route::Account => account::answer(gateway, call),
        Route::Addresses => Err(Failure::not_found("path", "/addresses")),
        Route::Databases => Box::pin(databases::collection(gateway, call)).await,
        Route::Database { db } => Box::pin(databases::one(gateway, call, db)).await,
        Route::Containers { db } => Box::pin(containers::collection(gateway, call, db)).await,
        Route::Container { db, coll } => Box::pin(containers::one(gateway, call, db, coll)).await,
        Route::Items { db, coll } => {
            let target = target_of(gateway, call, db, coll)?;
            let outcome = items::collection(gateway, call, &target).await;
            let answer = target.spend(gateway, call, outcome)?;
            Ok(batch::nameless_if_refused(call, answer))
        }
        Route::Item { db, coll, id } => {
            let target = target_of(gateway, call, db, coll)?;
            target.spend(gateway, call, items::one(gateway, call, &target, id).await)
        }
        Route::PartitionKeyDelete { db, coll } => {
            let target = target_of(gateway, call, db, coll)?;
            let outcome = Box::pin(items::delete_partition_key(call, &target)).await;
            target.spend(gateway, call, outcome)
        }
        Route::PkRanges { db, coll } => ranges::collection(gateway, call, db, coll),
        Route::PkRange { db, coll, id } => ranges::one(gateway, call, db, coll, id),
        Route::StoredProcedures { db, coll } => {
            Box::pin(scripts::collection(gateway, call, ResourceType::StoredProcedure, db, coll))
                .await
        }
        Route::StoredProcedure { db, coll, id } => {
            Box::pin(scripts::one(gateway, call, ResourceType::StoredProcedure, db, coll, id)).await
        }
        Route::Triggers { db, coll } => {
            Box::pin(scripts::collection(gateway, call, ResourceType::Trigger, db, coll)).await
        }
        Route::Trigger { db, coll, id } => {
            Box::pin(scripts::one(gateway, call, ResourceType::Trigger, db, coll, id)).await
        }
        Route::Udfs { db, coll } => {
            Box::pin(scripts::collection(
                gateway,
                call,
                ResourceType::UserDefinedFunction,
                db,
                coll,
            ))
            .await
        }
        Route::Udf { db, coll, id } => {
            Box::pin(scripts::one(gateway, call, ResourceType::UserDefinedFunction, db, coll, id))
                .await
        }
        Route::Conflicts { db, coll } => {
            let container = gateway.container(db, coll)?;
            if call.is_query() {
                query::check_crossing(call, &container, &call.scope()?, None)?;
            }
            list::nothing(call, "Conflicts", &container.rid().to_string())
        }
        Route::Schemas { db, coll } => {
            let container = gateway.container(db, coll)?;
            list::nothing(call, "Schemas", &container.rid().to_string())
        }
        Route::Conflict { id, .. } => Err(Failure::not_found("conflict", id)),
        Route::Schema { id, .. } => Err(Failure::not_found("schema", id)),
        Route::Users { db } => Box::pin(permissions::users(gateway, call, db)).await,
        Route::User { db, user } => Box::pin(permissions::user(gateway, call, db, user)).await,
        Route::Permissions { db, user } => {
            Box::pin(permissions::collection(gateway, call, db, user)).await
        }
        Route::Permission { db, user, id } => {
            Box::pin(permissions::one(gateway, call, db, user, id)).await
        }
        Route::ClientEncryptionKeys { db } => {
            Box::pin(encryption::collection(gateway, call, db)).await
        }
        Route::ClientEncryptionKey { db, id } => {
            Box::pin(encryption::one(gateway, call, db, id)).await
        }
        Route::Offers => offers::collection(gateway, call),
        Route::Offer { rid } => Box::pin(offers::one(gateway, call, rid)).await,
        other => Err(Failure::not_found("path", other.resource_type())),
    }
}

/// The container a request is about, checked against what the client believes it to be.
fn target_of(gateway: &Gateway, call: &Call, db: &str, coll: &str) -> Result<Arc<Target>, Failure> {
    let target = gateway.target(db, coll)?;
    let intended = call.head.get(&names::INTENDED_COLLECTION_RID);
    // Only a name can have come to mean another container; a resource id is what it is.
    let is_named = coll.as_bytes() != target.rid();
    if is_named && intended.is_some_and(|intended| intended.as_bytes() != target.rid()) {
        let message = format!("the container {coll} was made anew; look it up again");
        return Err(Failure::new(Code::CollectionRidMismatch, message));
    }
    target.admit(gateway, call)?;
    Ok(target)
}

impl Target {
    /// The partition key of a request; the empty one if it names none and the container has none.
    fn key_of(&self, call: &Call) -> Result<Option<PartitionKey>, Failure> {
        let empty = || self.has_system_key.then(PartitionKey::empty);
        Ok(call.partition_key()?.or_else(empty))
    }

    fn required_key(&self, call: &Call) -> Result<PartitionKey, Failure> {
        self.key_of(call)?.ok_or_else(no_partition_key)
    }

    /// Refuses what is beyond the provisioned throughput.
    fn admit(&self, gateway: &Gateway, call: &Call) -> Result<(), Failure> {
        if !gateway.throughput.is_enforced() {
            return Ok(());
        }
        let partitions = self.partitions_of(call)?;
        let Some(units) = offers::units_per_partition(gateway, &self.container) else {
            return Ok(());
        };
        let now = gateway.runtime.elapsed();
        let admitted = gateway.throughput.admit(self.container.rid(), &partitions, units, now);
        if admitted.is_err() {
            gateway.metrics.throttled.inc();
        }
        admitted
    }

    /// The partitions a request is about: one of a range or key, otherwise all of the container.
    fn partitions_of(&self, call: &Call) -> Result<Vec<PartitionId>, Failure> {
        let scope = call.scope()?;
        let by_key = scope.key.and_then(|key| self.container.locate(&key).ok());
        Ok(match scope.range.or(by_key.map(|(partition, _)| partition)) {
            Some(partition) => vec![partition],
            None => self.container.ranges().into_iter().map(|range| range.id).collect(),
        })
    }

    /// Counts what a request cost, and takes it out of the budget.
    fn spend(&self, gateway: &Gateway, call: &Call, outcome: Outcome) -> Outcome {
        let charge = outcome.as_ref().map_or(Charge::ONE, |answer| answer.charge);
        self.units.count(call, charge);
        let answer = outcome?;
        if gateway.throughput.is_enforced() {
            let partitions = match answer.partition {
                Some(partition) => vec![partition],
                None => self.partitions_of(call)?,
            };
            gateway.throughput.spend(self.container.rid(), &partitions, charge);
        }
        Ok(self.name(answer))
    }
}

async fn permit(gateway: &Gateway, call: &Call) -> Result<(), Failure> {
    let reads = call.verb == Method::GET || (call.verb == Method::POST && call.is_query());
    match &call.caller {
        Caller::Owner => Ok(()),
        Caller::Reader if reads => Ok(()),
        Caller::Reader => Err(Failure::new(Code::Forbidden, "a read-only key cannot write")),
        Caller::Guest(_) if call.route == Route::Account => Ok(()),
        Caller::Guest(grant) => Box::pin(permit_guest(gateway, call, grant, reads)).await,
    }
}

async fn permit_guest(
    gateway: &Gateway,
    call: &Call,
    grant: &Grant,
    reads: bool,
) -> Result<(), Failure> {
    let link = link_of(gateway, &call.route)?;
    // A client that may read items must also learn which ranges there are.
    let covered = grant.covers(&link)
        || (reads
            && matches!(call.route, Route::PkRanges { .. } | Route::Container { .. })
            && grant.resource.starts_with(link.trim_end_matches("/pkranges")));
    if !covered && !is_granted_item(gateway, call, grant).await? {
        let message = "the resource token does not cover this resource";
        return Err(Failure::new(Code::Forbidden, message));
    }
    if grant.mode == GrantMode::Read && !reads {
        return Err(Failure::new(Code::Forbidden, "the resource token only reads"));
    }
    match &grant.partition_key {
        Some(key) => permit_key(call, key, reads),
        None => Ok(()),
    }
}

/// A grant for one partition key is for its items, and for nothing that others have a part in.
fn permit_key(call: &Call, granted: &PartitionKey, reads: bool) -> Result<(), Failure> {
    // A stored procedure that runs works on items too.
    let is_of_items = match call.route {
        Route::Items { .. } | Route::Item { .. } | Route::PartitionKeyDelete { .. } => true,
        Route::StoredProcedure { .. } => call.verb == Method::POST,
        _ => false,
    };
    if is_of_items && call.partition_key()?.as_ref() != Some(granted) {
        let message = "the resource token is for another partition key";
        return Err(Failure::new(Code::Forbidden, message));
    }
    if !is_of_items && !reads {
        let message = "the resource token is for the items of one partition key";
        return Err(Failure::new(Code::Forbidden, message));
    }
    Ok(())
}

/// Whether a grant for one item is for the one a call is about, where one of them names it by its
/// resource id and the other by its id. Links alone cannot tell: only the item knows both.
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

/// The link of what a route names, by resource ids as far as there are any.
fn link_of(gateway: &Gateway, route: &Route) -> Result<String, Failure> {
    let of_container = |db: &str, coll: &str, rest: &str| {
        let container = gateway.container(db, coll)?;
        let rid = container.rid();
        Ok(format!("dbs/{}/colls/{rid}{rest}", rid.database()))
    };
    match route {
        Route::Container { db, coll } => of_container(db, coll, ""),
        Route::Items { db, coll } => of_container(db, coll, "/docs"),
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
        _ => Err(Failure::new(Code::Forbidden, "resource tokens do not cover this resource")),
    }
}

/// The verb is not one this resource knows.
fn no_such_verb(call: &Call) -> Failure {
    let message = format!("{} cannot be done to this resource", call.verb);
    Failure::new(Code::MethodNotAllowed, message)
}
