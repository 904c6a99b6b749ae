//! How databases, containers and everything but items look on the wire.
//!
//! Each has system properties beside what its user wrote. What the user wrote comes back as it was,
//! byte by byte and in its order, also policies nothing here acts on: clients compare. Only an indexing
//! policy is completed, because the service does it and clients compare that too.
//!
//! Items are not here. They are composed where they are written and only copied into lists, which
//! [`FeedWriter`] does without looking at them.

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
