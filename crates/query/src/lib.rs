//! The query language: parser, compiler and evaluator.
//!
//! | to | use |
//! |---|---|
//! | parse a query | [`Query::parse`], and [`QueryError`] if that fails |
//! | run it over items | [`Query::start`] → [`Run::push`] for each item → [`Run::finish`] |
//! | look up instead of scan | [`Query::candidates`], [`Query::restrictions`] with [`index_keys`] |
//! | tell an SDK how to fan out | [`Query::plan`] |
//! | list the functions | [`functions`] |
//!
//! ```
//! use headwater_query::{Context, Query};
//!
//! let query = Query::parse("SELECT VALUE c.n + 1 FROM c WHERE c.n > 1", &[])?;
//! let mut run = query.start(Context::default());
//! let mut rows = Vec::new();
//! for (ordinal, item) in [br#"{"n":1}"#, br#"{"n":2}"#].into_iter().enumerate() {
//!     run.push(item, ordinal as u64, &mut rows)?;
//! }
//! assert_eq!(rows, [b"3".as_slice()]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate does no I/O, reads no clock and draws no random numbers: the [`Context`] provides time and
//! seed. It knows neither indexes nor partitions; the caller decides which items to push and
//! may push fewer if [`Query::candidates`] allows. [`Limits`] bound everything a client sends; the [`Budget`] in
//! the context bounds the memory and time that a run may take from the server.

mod ast;
mod compile;
mod computed;
mod error;
mod evaluate;
mod functions;
mod index_key;
mod lexer;
mod limits;
mod meter;
mod order_key;
mod parser;
mod plan;
mod print;
mod query;
mod value;

pub use ast::{
    BinaryOperator, Collection, Column, Expression, From, Node, OrderItem, Projection, Select,
    Source, UnaryOperator,
};
pub use computed::ComputedProperty;
pub use error::{EvaluationError, Problem, QueryError, Span};
pub use evaluate::{
    Context, Next, OrderMark, Portion, Portioned, Progress, RowPosition, Run, SortedRow,
    UserFunctions,
};
pub use functions::{Function, all as functions};
pub use index_key::{IndexPath, KeyInterval, PathStep, index_keys, key_length};
pub use limits::Limits;
pub use meter::{Budget, Interruption, MemoryLease, MemoryPool, Watch};
pub use order_key::{OrderKey, OrderPath, Ordering, order_key};
pub use plan::{
    Candidate, DistinctCount, PlanDocument, QueryInfo, QueryRange, Restriction, ResumePoint,
};
pub use query::{Parsed, Query};
pub use value::{BadValue, Kind, Member, Number, ParameterReader, Value};
