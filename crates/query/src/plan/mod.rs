//! Plans: what an SDK needs to know to run a query on every range and put the answers together.
//!
//! ```text
//! candidates.rs  which values of some paths a filter allows  → point look-ups, ranges
//! restrictions.rs  what a filter says about single paths       → indexes
//! ranges.rs      candidates of the partition key             → ranges of hashed keys
//! rewrite.rs     the query                                   → the query for one range
//! document.rs    all of it in the shape SDKs read
//! resume.rs      where the query for one range starts, if not at its beginning
//! ```
//!
//! The rewritten text is a query like any other: `Query::parse` takes it, and a run over one range
//! answers in the envelopes the SDKs unpack (`orderByItems`, `groupByItems`, `payload`, `item`).

mod candidates;
mod document;
mod ranges;
mod restrictions;
mod resume;
mod rewrite;

pub use candidates::Candidate;
pub(crate) use candidates::{candidates, constant};
pub use document::{DistinctCount, PlanDocument, QueryInfo, QueryRange};
pub(crate) use document::{plan, plan_of_one_key, plan_over_all_keys};
pub use restrictions::Restriction;
pub(crate) use restrictions::{order_paths, restrictions};
pub use resume::ResumePoint;
