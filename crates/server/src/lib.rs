//! HTTP around the store: a gateway that official Cosmos DB SDKs connect to unmodified.
//!
//! ```text
//! connection   listen      accepts, speaks HTTP/1.1 and HTTP/2, in the clear or over TLS
//!              connection  whether it receives a head, works or is idle; budget: what its address may use
//!              frames      heads and frames over HTTP/2 before there is a request
//! page         web         which web pages may use the server
//! request      gateway     finds out who asks and for what; body: receives the body
//! operation    operations  one file per kind of resource: protocol in, store calls, protocol out
//! answer       answer      status, headers, bytes; failures become the service's error shape
//! ```
//!
//! This crate decides nothing about data. What a path, header or body means is in `protocol`; what
//! happens to items is in `store`.

mod answer;
mod authority;
mod backups;
mod body;
mod budget;
mod certificate;
mod config;
mod connection;
mod failure;
mod frames;
mod gateway;
mod head;
#[cfg(test)]
mod large_pages;
mod listen;
mod metrics;
mod names;
mod operations;
mod pace;
mod request;
#[cfg(test)]
mod scenarios;
mod socket;
mod throughput;
mod units;
mod web;

pub use authority::Authority;
pub use certificate::{CertificateError, Certificates};
pub use config::{Config, ConfigError, Limits, StartTimes};
pub use listen::{Server, StartError};
