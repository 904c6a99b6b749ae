//! Deterministic simulation of a whole system: one thread, one seed.
//!
//! A world is a machine with a failing disk and a jumping clock, a store on it, and tasks that write, read,
//! split and merge. A model follows all calls and answers, and reports answers that cannot be true. One seed
//! is one history: a seed and a commit are a complete bug report.
//!
//! ```text
//! seed ─► setup ─► world: machine, disk, index, clock, store
//!                    ▲                   ▲
//!                  faults             workload ─► witness: history, model ─► violation
//!                                        ▲
//!                                      audit     checks the whole store between two phases
//! ```
//!
//! * [`invariants`] lists everything that is checked.
//! * [`setup`] defines the kinds of world; each promise has its own [`Profile`](setup::Profile).
//! * [`model`] derives what must be true.
//! * [`sabotage`] breaks things on purpose, to test the checks.
//! * `tests/promises` has one file per promise.

mod audit;
mod faults;
pub mod history;
pub mod invariants;
pub mod model;
mod run;
pub mod sabotage;
pub mod seeds;
pub mod setup;
mod witness;
mod workload;
mod world;

pub use run::{Report, run};
pub use witness::Witness;
pub use world::World;
