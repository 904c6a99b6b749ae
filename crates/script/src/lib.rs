//! Stored procedures, triggers and user-defined functions in a sandboxed JavaScript engine.
//!
//! | to | use |
//! |---|---|
//! | run a stored procedure or trigger | [`run`], with a [`Collection`] it works on |
//! | call user-defined functions | [`Functions`] |
//! | do both in processes that can be killed | [`Workers`] |
//! | bound the resources of a script | [`Limits`] |
//!
//! Every call gets a fresh sandbox with caps on memory, stack and time; there are no timers, files,
//! network or modules in it. A script reads and writes items through the [`Collection`] it is given, one
//! call at a time, and the caller decides whether to commit. This crate never writes anything, keeps
//! nothing between calls, starts no thread and reads no clock but the one it is given.
//!
//! A script blocks its thread until it ends or is ended, so run it where blocking is allowed. In this process a
//! single step of the engine can exceed the deadline, and a bug in the engine is a bug in the process. A server
//! that accepts scripts from its clients should use [`Workers`].

mod collection;
mod engine;
mod error;
mod limits;
mod memory;
mod run;
mod udf;
mod worker;

pub use collection::{Collection, OperationError, Page, PageRequest, Reason, Stored, Target};
pub use error::ScriptError;
pub use limits::{Clock, Limits};
pub use run::{Call, Kind, Outcome, Script, run};
pub use udf::Functions;
pub use worker::{Workers, serve_worker};
