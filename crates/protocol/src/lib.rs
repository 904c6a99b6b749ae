//! The gateway protocol of Azure Cosmos DB (NoSQL) as values: bytes and header texts in, named
//! things out, and back again.
//!
//! | to understand or write | use |
//! |---|---|
//! | who is asking | [`auth`] |
//! | which resource a path names | [`route`] |
//! | what a request asks of it, and what that asks of the caller | [`operation`] |
//! | what a header says | [`headers`], [`session`] |
//! | which changes are wanted, and how one looks | [`feed`] |
//! | several operations in one request | [`batch`] |
//! | databases, containers, offers and lists of them | [`resource`] |
//! | what went wrong | [`error`] |
//! | what it cost | [`charge`] |
//! | the compact form of JSON | [`binary`] |
//! | the rows of .NET's batches | [`hybridrow`] |
//!
//! Everything here is pure. It opens no socket, reads no clock, draws no random number and stores
//! nothing: the same code parses in a server and formats in a client. All input is taken to be
//! hostile: each parser is bounded, refuses with a typed error that says what to do, and never
//! panics. Items pass through as bytes; none is parsed into a tree.

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
