//! An embedded document database with a change feed: databases, containers and items as a library, without HTTP.
//!
//! Open an [`Account`], create a database and a container, write items, and read the change feed:
//!
//! ```
//! use headwater_store::{Account, ContainerDefinition, FeedRequest, FeedStart};
//! use std::time::Duration;
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let account = Account::ephemeral().await?;
//! let shop = account.create_database("shop").await?;
//! let orders = shop.create_container(ContainerDefinition::new("orders", "/customer")?).await?;
//!
//! orders.create(r#"{"id":"1","customer":"ann","total":120}"#).await?;
//! orders.create(r#"{"id":"2","customer":"bob","total":80}"#).await?;
//!
//! let page = orders.read_feed(&FeedRequest::new(FeedStart::Beginning)).await?;
//! assert_eq!(page.changes.len(), 2);
//!
//! // Later: read only what is new, and wait for it if necessary.
//! orders.upsert(r#"{"id":"1","customer":"ann","total":150}"#).await?;
//! let next = FeedRequest::after(page.continuation).wait(Duration::from_secs(1));
//! let page = orders.read_feed(&next).await?;
//! assert_eq!(page.changes[0].id(), "1");
//! # account.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An acknowledged write is on disk and in the feed. Every failure is a typed error that says what to do next.
//!
//! This crate does not know HTTP, headers, or any engine that replicates the log.

mod account;
mod backup;
pub mod body;
mod catalog;
mod catalog_snapshot;
mod container;
mod container_file;
mod count;
mod definition;
mod directory;
mod error;
mod feed;
mod figures;
mod filter;
mod halves;
mod history;
mod index;
pub mod invariants;
mod item;
mod keys;
mod listing;
mod maintenance;
mod partition;
mod prepare;
mod quarantine;
pub mod query;
mod rebuild;
mod recent;
mod repair;
mod resource;
mod salvage;
mod scan;
mod script;
mod secondary;
mod split_by_size;
mod statistics;
mod stream;
mod topology;
mod transaction;

pub use account::{Account, Database, Environment, LogWrapper, Options};
pub use backup::{
    BackupCut, BackupError, BackupFile, BackupPartition, BackupPlan, BackupProgress, BackupSource,
    BackupSummary, CopyOptions, PART_BYTES, RestoredPartition, copy_backup, restore,
    restore_partition,
};
pub use body::{BodyError, Patch, PatchError};
pub use container::Container;
pub use definition::ContainerDefinition;
pub use error::{
    BatchError, CatalogError, DefinitionError, FeedError, ItemReadError, OpenError, Remedy,
    StorageError, TopologyError, WriteError,
};
pub use feed::{FeedPage, FeedRequest};
pub use figures::{AccountFigures, ContainerFigures, MemoryFigures};
pub use filter::{BadFilter, FeedFilter};
pub use halves::Halves;
pub use headwater_log::disk::{Disk, MemoryDisk};
pub use headwater_log::salvage::{Hole, Inspection};
pub use headwater_log::{Damage, Durability, Histogram, HistogramFigures, LogFigures, private};
pub use headwater_model::{
    ChangeKind, ContainerRid, Continuation, DatabaseRid, Epk, Etag, FeedMode, FeedStart, KeyRange,
    Lsn, PageLimit, PartitionId, PartitionKey, PartitionKeyDefinition, Timestamp,
};
pub use history::HistoryStatistics;
pub use index::MemoryIndex;
pub use item::{Condition, Item, ItemWrite, Precondition, Written};
pub use partition::feed::Change;
pub use quarantine::Quarantine;
pub use repair::{RepairedCatalog, repair_catalog};
pub use resource::{Resource, ResourceType};
pub use salvage::{PartitionReport, Salvaged};
pub use scan::{ScanPage, ScanPosition, ScanScope};
pub use script::{
    ExecuteError, Executed, ProcedureCall, Script, ScriptFailure, ScriptLimits, ScriptWorkers,
    Triggers, serve_script_worker,
};
pub use statistics::RangeStatistics;
pub use topology::RangeInfo;
