//! Builds the wire form of databases, containers and all resources other than items.
//!
//! A document has system properties next to the user's. The user's properties are returned byte by byte
//! and in their order, including policies that have no effect here, because clients compare them. Only
//! an indexing policy is completed, because the service does so and clients compare that too.
//!
//! Items are composed where they are written. Here [`FeedWriter`] copies them into lists unread.

mod account;
mod document;
mod indexing;
mod list;
mod offer;
mod search_policy;
mod spatial_policy;

pub use account::{Account, Location};
pub use document::{
    BadDocument, PkRange, System, container, database, permission, pk_range, script, user,
};
pub use indexing::complete_indexing_policy;
pub use list::FeedWriter;
pub use offer::{BadThroughput, Offer, Throughput};
pub use search_policy::{BadPolicy, check_search_policies};
pub use spatial_policy::check_spatial_indexes;
