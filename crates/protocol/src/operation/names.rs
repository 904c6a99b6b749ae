//! Names and numbers of operations, for metrics: `create_item`, `read_database`, `split_partition`.
//!
//! A number is an index into an array of [`Operation::COUNT`] counters, so counting a request needs no
//! lookup by name. Numbers may change between versions; names do not.

use super::{Action, Extension, ItemOperation, Operation, Resource};
use std::fmt;

const ITEMS: [ItemOperation; 15] = [
    ItemOperation::Create,
    ItemOperation::Upsert,
    ItemOperation::Read,
    ItemOperation::Replace,
    ItemOperation::Patch,
    ItemOperation::Delete,
    ItemOperation::List,
    ItemOperation::ReadFeed { waits: false },
    ItemOperation::ReadFeed { waits: true },
    ItemOperation::Query,
    ItemOperation::PlanQuery,
    ItemOperation::Transaction,
    ItemOperation::Bulk,
    ItemOperation::DeletePartitionKey,
    ItemOperation::ExecuteProcedure,
];
const RESOURCES: [Resource; 14] = [
    Resource::Account,
    Resource::Addresses,
    Resource::Database,
    Resource::Container,
    Resource::PartitionKeyRange,
    Resource::StoredProcedure,
    Resource::Trigger,
    Resource::UserDefinedFunction,
    Resource::Conflict,
    Resource::Schema,
    Resource::User,
    Resource::Permission,
    Resource::ClientEncryptionKey,
    Resource::Offer,
];
const ACTIONS: [Action; 7] = [
    Action::Create,
    Action::Upsert,
    Action::Read,
    Action::Replace,
    Action::Delete,
    Action::List,
    Action::Query,
];
const EXTENSIONS: [Extension; 8] = [
    Extension::StreamChanges,
    Extension::ListPartitions,
    Extension::SplitPartition,
    Extension::MergePartitions,
    Extension::BeginBackup,
    Extension::ReadBackupPartition,
    Extension::ReadBackupFile,
    Extension::EndBackup,
];
const DEFINITIONS_FROM: usize = ITEMS.len();
const EXTENSIONS_FROM: usize = DEFINITIONS_FROM + RESOURCES.len() * ACTIONS.len();

impl Operation {
    /// The number of operations.
    pub const COUNT: usize = EXTENSIONS_FROM + EXTENSIONS.len();

    /// Iterates over all operations in the order of their numbers. No request can be some of them, such as
    /// creating the account.
    pub fn all() -> impl Iterator<Item = Operation> {
        let definitions = RESOURCES.into_iter().flat_map(|resource| {
            ACTIONS.into_iter().map(move |action| Operation::Define(resource, action))
        });
        let items = ITEMS.into_iter().map(Operation::Items);
        items.chain(definitions).chain(EXTENSIONS.into_iter().map(Operation::Extension))
    }

    /// The operation's number, below [`Operation::COUNT`].
    #[must_use]
    pub fn number(self) -> usize {
        match self {
            Operation::Items(operation) => operation.number(),
            Operation::Define(resource, action) => {
                DEFINITIONS_FROM + resource as usize * ACTIONS.len() + action as usize
            }
            Operation::Extension(extension) => EXTENSIONS_FROM + extension as usize,
        }
    }
}

impl ItemOperation {
    fn number(self) -> usize {
        match self {
            ItemOperation::Create => 0,
            ItemOperation::Upsert => 1,
            ItemOperation::Read => 2,
            ItemOperation::Replace => 3,
            ItemOperation::Patch => 4,
            ItemOperation::Delete => 5,
            ItemOperation::List => 6,
            ItemOperation::ReadFeed { waits: false } => 7,
            ItemOperation::ReadFeed { waits: true } => 8,
            ItemOperation::Query => 9,
            ItemOperation::PlanQuery => 10,
            ItemOperation::Transaction => 11,
            ItemOperation::Bulk => 12,
            ItemOperation::DeletePartitionKey => 13,
            ItemOperation::ExecuteProcedure => 14,
        }
    }

    fn name(self) -> &'static str {
        match self {
            ItemOperation::Create => "create_item",
            ItemOperation::Upsert => "upsert_item",
            ItemOperation::Read => "read_item",
            ItemOperation::Replace => "replace_item",
            ItemOperation::Patch => "patch_item",
            ItemOperation::Delete => "delete_item",
            ItemOperation::List => "list_items",
            ItemOperation::ReadFeed { waits: false } => "read_changes",
            ItemOperation::ReadFeed { waits: true } => "wait_for_changes",
            ItemOperation::Query => "query_items",
            ItemOperation::PlanQuery => "plan_query",
            ItemOperation::Transaction => "transaction",
            ItemOperation::Bulk => "bulk",
            ItemOperation::DeletePartitionKey => "delete_partition_key",
            ItemOperation::ExecuteProcedure => "execute_procedure",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (resource, action) = match self {
            Operation::Items(operation) => return f.write_str(operation.name()),
            Operation::Extension(extension) => {
                return f.write_str(match extension {
                    Extension::StreamChanges => "stream_changes",
                    Extension::ListPartitions => "list_partitions",
                    Extension::SplitPartition => "split_partition",
                    Extension::MergePartitions => "merge_partitions",
                    Extension::BeginBackup => "begin_backup",
                    Extension::ReadBackupPartition => "read_backup_partition",
                    Extension::ReadBackupFile => "read_backup_file",
                    Extension::EndBackup => "end_backup",
                });
            }
            Operation::Define(resource, action) => (resource, action),
        };
        let action = match action {
            Action::Create => "create",
            Action::Upsert => "upsert",
            Action::Read => "read",
            Action::Replace => "replace",
            Action::Delete => "delete",
            Action::List => "list",
            Action::Query => "query",
        };
        let resource = match resource {
            Resource::Account => "account",
            Resource::Addresses => "addresses",
            Resource::Database => "database",
            Resource::Container => "container",
            Resource::PartitionKeyRange => "partition_key_range",
            Resource::StoredProcedure => "stored_procedure",
            Resource::Trigger => "trigger",
            Resource::UserDefinedFunction => "user_defined_function",
            Resource::Conflict => "conflict",
            Resource::Schema => "schema",
            Resource::User => "user",
            Resource::Permission => "permission",
            Resource::ClientEncryptionKey => "client_encryption_key",
            Resource::Offer => "offer",
        };
        write!(f, "{action}_{resource}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_operation_has_a_number_and_a_name_of_its_own() {
        let numbers: Vec<usize> = Operation::all().map(Operation::number).collect();
        assert_eq!(numbers, (0..Operation::COUNT).collect::<Vec<_>>());
        let names: HashSet<String> =
            Operation::all().map(|operation| operation.to_string()).collect();
        assert_eq!(names.len(), Operation::COUNT);
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        }
    }
}
