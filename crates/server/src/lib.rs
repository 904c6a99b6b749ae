//! The HTTP gateway in front of the store, to which official Cosmos DB SDKs connect unmodified.
//!
//! ```text
//! connection   listen      accepts connections; HTTP/1.1 and HTTP/2, plain or over TLS
//!              connection  state and time limits of a connection; budget: limits per address
//!              frames      heads and frames over HTTP/2 outside of requests
//! page         web         which web pages may use the server
//! request      gateway     authenticates and classifies; body: receives the body
//! operation    operations  one file per kind of resource: protocol in, store calls, protocol out
//! answer       answer      status, headers, bytes; failures become the service's error format
//! ```
//!
//! This crate decides nothing about data. `protocol` defines the meaning of paths, headers and bodies; `store`
//! decides what happens to items.

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
