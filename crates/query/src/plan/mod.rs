//! Query plans: how an SDK runs a query on every range and merges the results.
//!
//! ```text
//! candidates.rs  which values of some paths a filter allows  → point look-ups, ranges
//! restrictions.rs  how a filter restricts single paths         → indexes
//! ranges.rs      candidates of the partition key             → ranges of hashed keys
//! rewrite.rs     the query                                   → the query for one range
//! document.rs    all of it in the format that SDKs read
//! resume.rs      where the query for one range starts, if not at its beginning
//! ```
//!
//! The rewritten text is a query like any other: `Query::parse` takes it, and a run over one range
//! returns rows in the envelopes that SDKs unpack (`orderByItems`, `groupByItems`, `payload`, `item`).

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
