//! What a request asks for, decided once: method, route and headers in, one [`Operation`] out.
//!
//! ```text
//! POST /dbs/a/colls/b/docs                                         Items(Create)
//! POST /dbs/a/colls/b/docs     x-ms-cosmos-is-batch-request: True   Items(Transaction)
//! POST /dbs/a/colls/b/sprocs/p x-ms-documentdb-isquery: True        Items(ExecuteProcedure)
//! ```
//!
//! Admission, choice of thread, permission and dispatch match on this value. If each of them read the
//! headers itself, a request could be a query to the permission check and a batch to the dispatcher.
//!
//! An operation says *what* is asked; the [`Route`] says *of which resource*. Neither knows bodies,
//! sockets or callers, so another transport can produce the same values.

mod names;

use crate::headers::{self, Prefer};
use crate::route::Route;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Works on the items of one container.
    Items(ItemOperation),
    /// Works on the definition of a resource.
    Define(Resource, Action),
    /// Goes beyond the protocol of the service.
    Extension(Extension),
}

/// An operation on the items of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemOperation {
    /// Create an item.
    Create,
    /// Create or replace an item.
    Upsert,
    /// Read an item.
    Read,
    /// Replace an item.
    Replace,
    /// Change parts of an item.
    Patch,
    /// Delete an item.
    Delete,
    /// Read a page of all items.
    List,
    /// Read a page of the change feed.
    ReadFeed {
        /// Whether the reader waits for a change if there is none.
        waits: bool,
    },
    /// Run a query.
    Query,
    /// Plan a query that the client runs range by range.
    PlanQuery,
    /// Run several operations on one partition key, all or none.
    Transaction,
    /// Run several operations, each on its own.
    Bulk,
    /// Delete all items of a partition key.
    DeletePartitionKey,
    /// Run a stored procedure.
    ExecuteProcedure,
}

/// A kind of resource that has a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// The account.
    Account,
    /// The addresses of replicas, for clients in direct mode.
    Addresses,
    /// A database.
    Database,
    /// A container.
    Container,
    /// A range of hashed partition keys.
    PartitionKeyRange,
    /// A stored procedure.
    StoredProcedure,
    /// A trigger.
    Trigger,
    /// A user-defined function.
    UserDefinedFunction,
    /// A write conflict between regions.
    Conflict,
    /// A schema of analytical storage.
    Schema,
    /// A user.
    User,
    /// A permission, which holds a resource token.
    Permission,
    /// A client encryption key.
    ClientEncryptionKey,
    /// A throughput offer.
    Offer,
}

/// What is done to a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Create one.
    Create,
    /// Create or replace one.
    Upsert,
    /// Read one.
    Read,
    /// Replace one.
    Replace,
    /// Delete one.
    Delete,
    /// List them.
    List,
    /// Query them.
    Query,
}

/// An operation of Headwater's own, under `/_headwater/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extension {
    /// Stream the changes of a container as server-sent events.
    StreamChanges,
    /// List the partitions of a container.
    ListPartitions,
    /// Split a partition.
    SplitPartition,
    /// Merge two partitions.
    MergePartitions,
    /// Take a moment of the whole account and hold it for a backup.
    BeginBackup,
    /// Read what is in a partition of a backup.
    ReadBackupPartition,
    /// Read a stretch of a file of a backup.
    ReadBackupFile,
    /// Release what a backup holds.
    EndBackup,
}

/// What an operation asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "an operation runs only after its access was checked"]
pub enum Access {
    /// Reads items or definitions and changes nothing.
    Read,
    /// Changes items or definitions.
    Write,
    /// Reads or changes permissions. Reading one yields a token, so it is more than a read.
    ManagePermissions,
    /// Moves ranges of a container.
    ManagePartitions,
    /// Copies the whole account, permissions included.
    BackUp,
}

impl Operation {
    /// Decides what a request is; `None` if its method does not apply to what its path names.
    ///
    /// `header` returns the value of a header by its lower-case name. Each header is read only on the
    /// paths where it means something, so `x-ms-documentdb-isquery` turns no procedure into a query.
    #[must_use]
    pub fn classify<'a>(
        method: &str,
        route: &Route,
        header: impl Fn(&'static str) -> Option<&'a str>,
    ) -> Option<Operation> {
        match route {
            Route::Items { .. } => items(method, header).map(Operation::Items),
            Route::Item { .. } => item(method).map(Operation::Items),
            Route::PartitionKeyDelete { .. } => {
                (method == "POST").then_some(Operation::Items(ItemOperation::DeletePartitionKey))
            }
            Route::StoredProcedure { .. } if method == "POST" => {
                Some(Operation::Items(ItemOperation::ExecuteProcedure))
            }
            Route::ChangeStream { .. } => extension("GET", method, Extension::StreamChanges),
            Route::Partitions { .. } => extension("GET", method, Extension::ListPartitions),
            Route::PartitionSplit { .. } => extension("POST", method, Extension::SplitPartition),
            Route::PartitionMerge { .. } => extension("POST", method, Extension::MergePartitions),
            Route::Backups => extension("POST", method, Extension::BeginBackup),
            Route::Backup { .. } => extension("DELETE", method, Extension::EndBackup),
            Route::BackupFile { .. } => extension("GET", method, Extension::ReadBackupFile),
            Route::BackupPartition { .. } => {
                extension("GET", method, Extension::ReadBackupPartition)
            }
            _ => {
                let action = match route.is_feed() {
                    true => action_on_list(method, route, header),
                    false => action_on_one(method),
                };
                Some(Operation::Define(resource(route)?, action?))
            }
        }
    }

    /// What it asks of its caller. A batch is a write even if all of its operations read.
    pub fn access(self) -> Access {
        match self {
            Operation::Items(operation) => operation.access(),
            Operation::Define(Resource::Permission, _) => Access::ManagePermissions,
            Operation::Define(_, Action::Read | Action::List | Action::Query) => Access::Read,
            Operation::Define(
                _,
                Action::Create | Action::Upsert | Action::Replace | Action::Delete,
            ) => Access::Write,
            Operation::Extension(Extension::StreamChanges | Extension::ListPartitions) => {
                Access::Read
            }
            Operation::Extension(Extension::SplitPartition | Extension::MergePartitions) => {
                Access::ManagePartitions
            }
            Operation::Extension(
                Extension::BeginBackup
                | Extension::ReadBackupPartition
                | Extension::ReadBackupFile
                | Extension::EndBackup,
            ) => Access::BackUp,
        }
    }

    /// Whether it changes nothing. A batch may change something even if all of its operations read.
    #[must_use]
    pub fn only_reads(self) -> bool {
        match self {
            Operation::Items(operation) => operation.access() == Access::Read,
            Operation::Define(_, action) => {
                matches!(action, Action::Read | Action::List | Action::Query)
            }
            Operation::Extension(extension) => matches!(
                extension,
                Extension::StreamChanges
                    | Extension::ListPartitions
                    | Extension::ReadBackupPartition
                    | Extension::ReadBackupFile
            ),
        }
    }

    /// Whether it may wait for a change, and so counts as a waiting reader instead of a request.
    #[must_use]
    pub fn waits_for_changes(self) -> bool {
        self == Operation::Items(ItemOperation::ReadFeed { waits: true })
    }
}

impl ItemOperation {
    fn access(self) -> Access {
        match self {
            ItemOperation::Read
            | ItemOperation::List
            | ItemOperation::ReadFeed { .. }
            | ItemOperation::Query
            | ItemOperation::PlanQuery => Access::Read,
            ItemOperation::Create
            | ItemOperation::Upsert
            | ItemOperation::Replace
            | ItemOperation::Patch
            | ItemOperation::Delete
            | ItemOperation::Transaction
            | ItemOperation::Bulk
            | ItemOperation::DeletePartitionKey
            | ItemOperation::ExecuteProcedure => Access::Write,
        }
    }
}

/// `…/docs`
fn items<'a>(
    method: &str,
    header: impl Fn(&'static str) -> Option<&'a str>,
) -> Option<ItemOperation> {
    match method {
        "GET" if header(headers::A_IM).is_some_and(|feed| !feed.trim().is_empty()) => {
            let prefer = header(headers::PREFER).map(Prefer::parse).unwrap_or_default();
            let waits = prefer.wait_seconds.is_some_and(|seconds| seconds > 0);
            Some(ItemOperation::ReadFeed { waits })
        }
        "GET" => Some(ItemOperation::List),
        // The order matters: some clients mark a plan request as a query too, and some do not.
        "POST" if headers::flag(header(headers::IS_QUERY_PLAN)) => Some(ItemOperation::PlanQuery),
        "POST" if headers::flag(header(headers::IS_BATCH)) => {
            let is_atomic = header(headers::BATCH_ATOMIC).is_none_or(headers::bool_of);
            Some(if is_atomic { ItemOperation::Transaction } else { ItemOperation::Bulk })
        }
        "POST" if is_query(&header) => Some(ItemOperation::Query),
        "POST" if headers::flag(header(headers::IS_UPSERT)) => Some(ItemOperation::Upsert),
        "POST" => Some(ItemOperation::Create),
        _ => None,
    }
}

/// `…/docs/{id}`
fn item(method: &str) -> Option<ItemOperation> {
    match method {
        "GET" => Some(ItemOperation::Read),
        "PUT" => Some(ItemOperation::Replace),
        "PATCH" => Some(ItemOperation::Patch),
        "DELETE" => Some(ItemOperation::Delete),
        _ => None,
    }
}

fn extension(expected: &str, method: &str, extension: Extension) -> Option<Operation> {
    (method == expected).then_some(Operation::Extension(extension))
}

fn action_on_list<'a>(
    method: &str,
    route: &Route,
    header: impl Fn(&'static str) -> Option<&'a str>,
) -> Option<Action> {
    match method {
        "GET" => Some(Action::List),
        "POST" if is_query(&header) => Some(Action::Query),
        // Databases and containers have no upsert; there the header means nothing.
        "POST" if matches!(route, Route::Databases | Route::Containers { .. }) => {
            Some(Action::Create)
        }
        "POST" if headers::flag(header(headers::IS_UPSERT)) => Some(Action::Upsert),
        "POST" => Some(Action::Create),
        _ => None,
    }
}

fn action_on_one(method: &str) -> Option<Action> {
    match method {
        "GET" => Some(Action::Read),
        "PUT" => Some(Action::Replace),
        "DELETE" => Some(Action::Delete),
        _ => None,
    }
}

fn is_query<'a>(header: &impl Fn(&'static str) -> Option<&'a str>) -> bool {
    headers::is_query(header(headers::IS_QUERY), header(headers::CONTENT_TYPE))
}

/// The kind of resource a route names, if it has a definition.
fn resource(route: &Route) -> Option<Resource> {
    Some(match route {
        Route::Account => Resource::Account,
        Route::Addresses => Resource::Addresses,
        Route::Databases | Route::Database { .. } => Resource::Database,
        Route::Containers { .. } | Route::Container { .. } => Resource::Container,
        Route::PkRanges { .. } | Route::PkRange { .. } => Resource::PartitionKeyRange,
        Route::StoredProcedures { .. } | Route::StoredProcedure { .. } => Resource::StoredProcedure,
        Route::Triggers { .. } | Route::Trigger { .. } => Resource::Trigger,
        Route::Udfs { .. } | Route::Udf { .. } => Resource::UserDefinedFunction,
        Route::Conflicts { .. } | Route::Conflict { .. } => Resource::Conflict,
        Route::Schemas { .. } | Route::Schema { .. } => Resource::Schema,
        Route::Users { .. } | Route::User { .. } => Resource::User,
        Route::Permissions { .. } | Route::Permission { .. } => Resource::Permission,
        Route::ClientEncryptionKeys { .. } | Route::ClientEncryptionKey { .. } => {
            Resource::ClientEncryptionKey
        }
        Route::Offers | Route::Offer { .. } => Resource::Offer,
        Route::Items { .. }
        | Route::Item { .. }
        | Route::PartitionKeyDelete { .. }
        | Route::ChangeStream { .. }
        | Route::Partitions { .. }
        | Route::PartitionSplit { .. }
        | Route::PartitionMerge { .. }
        | Route::Backups
        | Route::Backup { .. }
        | Route::BackupFile { .. }
        | Route::BackupPartition { .. } => return None,
    })
}

#[cfg(test)]
mod tests;
