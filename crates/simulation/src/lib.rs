//! Whole systems in one thread under one seed.
//!
//! A world is a machine with a disk that fails and a clock that jumps, a store on it, and a crowd that
//! writes, reads, splits and merges. A model follows what everybody was told and objects to what cannot
//! be true. One seed is one history: a seed and a commit are a whole bug report.
//!
//! ```text
//! seed ─► setup ─► world: machine, disk, index, clock, store
//!                    ▲                   ▲
//!                  faults             workload ─► witness: history, model ─► violation
//!                                        ▲
//!                                      audit     everything at once, between two phases
//! ```
//!
//! * [`invariants`] is the list of everything that is checked.
//! * [`setup`] says what kinds of world there are; a promise has a [`Profile`](setup::Profile) of its own.
//! * [`model`] is what must be true.
//! * [`sabotage`] breaks things on purpose, to see that the checks notice.
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
