//! Carries out operations: one file per kind of resource, and the dispatch on [`Operation`].
//!
//! An operation takes a [`Call`], asks the store, and makes an [`Answer`]. `permit` checks the caller
//! before any of them runs. Nothing here reads a header to find out what a request is.

mod account;
mod backups;
mod batch;
mod by_rid;
mod changes;
mod charging;
mod containers;
mod databases;
mod documents;
mod encryption;
mod event_id;
pub(crate) mod extension;
mod items;
mod list;
mod offers;
mod permissions;
mod permit;
mod place;
mod query;
mod query_metrics;
mod ranges;
mod scripts;
pub(crate) mod service;

use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::names;
use crate::request::{Call, no_partition_key};
use headwater_model::PartitionKey;
use headwater_protocol::error::Code;
use headwater_protocol::headers::ApiVersion;
use headwater_protocol::operation::{Action, Operation, Resource};
use headwater_protocol::route::Route;
use headwater_store::ResourceType;
use std::sync::Arc;

pub(crate) use list::content_path;
pub(crate) use permissions::check_living;
pub(crate) use place::{Place, place_of};

pub(crate) type Outcome = Result<Answer, Failure>;

/// Carries out a request.
pub(crate) async fn answer(gateway: &Arc<Gateway>, call: &Call) -> Outcome {
    permit::check(gateway, call).await?;
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

/// Dispatches on the operation alone. Rare operations are boxed: the size of this future is moved with every
/// request, and that of items is small.
async fn carry_out(gateway: &Arc<Gateway>, call: &Call) -> Outcome {
    match call.operation {
        Operation::Items(operation) => {
            let target = target_of(gateway, call)?;
            target.admit_call(gateway, call)?;
            let outcome = items::answer(gateway, call, &target, operation).await;
            let answer = target.spend_call(gateway, call, operation, outcome)?;
            Ok(batch::nameless_if_refused(operation, answer))
        }
        Operation::Define(Resource::Account, Action::Read) => account::read(gateway, call),
        Operation::Define(_, action) => Box::pin(define(gateway, call, action)).await,
        Operation::Extension(extension) => {
            Box::pin(extension::answer(gateway, call, extension)).await
        }
    }
}

/// An action on the definition that the route names.
async fn define(gateway: &Arc<Gateway>, call: &Call, action: Action) -> Outcome {
    let kind = ResourceType::StoredProcedure;
    match &call.route {
        Route::Databases => databases::collection(gateway, call, action).await,
        Route::Database { db } => databases::one(gateway, action, db).await,
        Route::Containers { db } => containers::collection(gateway, call, action, db).await,
        Route::Container { db, coll } => containers::one(gateway, call, action, db, coll).await,
        Route::PkRanges { db, coll } if action == Action::List => {
            ranges::collection(gateway, call, db, coll)
        }
        Route::PkRange { db, coll, id } if action == Action::Read => {
            ranges::one(gateway, db, coll, id)
        }
        Route::StoredProcedures { db, coll } => {
            scripts::collection(gateway, call, action, kind, db, coll).await
        }
        Route::StoredProcedure { db, coll, id } => {
            scripts::one(gateway, call, action, kind, (db, coll), id).await
        }
        Route::Triggers { db, coll } => {
            scripts::collection(gateway, call, action, ResourceType::Trigger, db, coll).await
        }
        Route::Trigger { db, coll, id } => {
            scripts::one(gateway, call, action, ResourceType::Trigger, (db, coll), id).await
        }
        Route::Udfs { db, coll } => {
            let kind = ResourceType::UserDefinedFunction;
            scripts::collection(gateway, call, action, kind, db, coll).await
        }
        Route::Udf { db, coll, id } => {
            let kind = ResourceType::UserDefinedFunction;
            scripts::one(gateway, call, action, kind, (db, coll), id).await
        }
        Route::Conflicts { db, coll } if matches!(action, Action::List | Action::Query) => {
            let container = gateway.container(db, coll)?;
            if action == Action::Query {
                query::check_crossing(call, &container, &call.scope()?, None)?;
            }
            list::nothing(call, "Conflicts", &container.rid().to_string())
        }
        Route::Schemas { db, coll } if matches!(action, Action::List | Action::Query) => {
            let container = gateway.container(db, coll)?;
            list::nothing(call, "Schemas", &container.rid().to_string())
        }
        Route::Conflict { id, .. } => Err(Failure::not_found("conflict", id)),
        Route::Schema { id, .. } => Err(Failure::not_found("schema", id)),
        Route::Addresses => Err(Failure::not_found("path", "/addresses")),
        Route::Users { db } => permissions::users(gateway, call, action, db).await,
        Route::User { db, user } => permissions::user(gateway, call, action, db, user).await,
        Route::Permissions { db, user } => {
            permissions::collection(gateway, call, action, db, user).await
        }
        Route::Permission { db, user, id } => {
            permissions::one(gateway, call, action, db, user, id).await
        }
        Route::ClientEncryptionKeys { db } => {
            encryption::collection(gateway, call, action, db).await
        }
        Route::ClientEncryptionKey { db, id } => {
            encryption::one(gateway, call, action, db, id).await
        }
        Route::Offers => offers::collection(gateway, call, action),
        Route::Offer { rid } => offers::one(gateway, call, action, rid).await,
        _ => Err(unknown_action(action)),
    }
}

/// The container a request is about, checked against what the client believes it to be.
fn target_of(gateway: &Gateway, call: &Call) -> Result<Arc<Target>, Failure> {
    let (db, coll) = call.route.container().ok_or_else(|| no_id(call))?;
    let target = gateway.target(db, coll)?;
    let intended = call.head.get(&names::INTENDED_COLLECTION_RID);
    // Only a name can have come to mean another container; a resource id is what it is.
    let is_named = coll.as_bytes() != target.rid();
    if is_named && intended.is_some_and(|intended| intended.as_bytes() != target.rid()) {
        let message = format!("the container {coll} was made anew; look it up again");
        return Err(Failure::new(Code::CollectionRidMismatch, message));
    }
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
}

/// The resource has no such operation.
pub(crate) fn not_supported(what: &str) -> Failure {
    Failure::new(Code::MethodNotAllowed, format!("this resource does not support {what}"))
}

fn unknown_action(action: Action) -> Failure {
    not_supported(match action {
        Action::Create => "create",
        Action::Upsert => "upsert",
        Action::Read => "read",
        Action::Replace => "replace",
        Action::Delete => "delete",
        Action::List => "list",
        Action::Query => "query",
    })
}

/// An operation on a path that lacks the name it needs, which classification rules out.
fn no_id(call: &Call) -> Failure {
    let what = call.route.resource_type();
    Failure::bad_request(format!("the path names no single resource of type {what:?}"))
}
