//! The gateway protocol of Azure Cosmos DB (NoSQL) as pure functions between bytes or headers and types.
//!
//! | to parse or write | use |
//! |---|---|
//! | tokens and signatures | [`auth`] |
//! | the resource in a path | [`route`] |
//! | the operation of a request and the access it needs | [`operation`] |
//! | header values | [`headers`], [`session`] |
//! | change feed requests and changes | [`feed`] |
//! | several operations in one request | [`batch`] |
//! | databases, containers, offers and lists of them | [`resource`] |
//! | error codes and bodies | [`error`] |
//! | request charges | [`charge`] |
//! | binary JSON | [`binary`] |
//! | the rows of .NET's batches | [`hybridrow`] |
//!
//! Everything here is pure. It opens no socket, reads no clock, draws no random number and stores
//! nothing, so server and client share the same code. All input is untrusted: each parser is bounded,
//! refuses with a typed error that says what to do, and never panics. Items pass through as bytes; none
//! is parsed into a tree.

pub mod auth;
pub mod batch;
pub mod binary;
pub mod charge;
pub mod error;
pub mod feed;
#[doc(hidden)]
pub mod fuzzing;
pub mod headers;
pub mod hybridrow;
pub mod operation;
pub mod resource;
pub mod route;
pub mod session;
