//! A small client for Headwater and Azure Cosmos DB (NoSQL), made for change feeds.
//!
//! ```text
//! client      the account, its databases and containers; the address and credential for requests
//! container   items, with etags as preconditions; queries, lists, batches
//! ranges      lists the ranges of a container; splits and merges them (Headwater only)
//! feed        one page of changes after a raw etag, in both modes; can wait for new changes
//! stream      the change feed as a stream of pages
//! backup      the files of a whole account at one point in time (Headwater only)
//! retry       what to retry, after what delay, how often: a pure decision
//! connection  HTTP and TLS; nothing above it uses either
//! ```
//!
//! Items and changes are bytes, exactly as the server sent them: numbers keep their text and properties
//! their order. Positions are the server's own etags, as .NET and Java keep them in leases.
//!
//! ```no_run
//! use futures_util::TryStreamExt;
//! use headwater_client::{Client, Credential, FeedFrom, FeedRead, FeedScope, Options};
//! use headwater_runtime::Runtime;
//!
//! # async fn listen() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = "http://127.0.0.1:8080".parse()?;
//! let credential = Credential::emulator()?;
//! let client = Client::new(endpoint, credential, Options::default(), Runtime::system())?;
//! let orders = client.container("shop", "orders");
//! let read = FeedRead::new(FeedScope::Container, FeedFrom::Beginning);
//! let mut pages = std::pin::pin!(orders.changes(read));
//! while let Some(page) = pages.try_next().await? {
//!     for change in &page.changes {
//!         println!("{}", String::from_utf8_lossy(change));
//!     }
//!     println!("resume from here: {}", page.etag);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Time, randomness and tasks come from a [`Runtime`](headwater_runtime::Runtime). This crate keeps nothing
//! on disk, reads no environment variable, and never prints a key.

mod backup;
mod batch;
mod client;
mod connection;
mod container;
mod credential;
mod endpoint;
#[cfg(feature = "entra")]
mod entra;
mod error;
mod feed;
mod list;
mod ranges;
mod regions;
mod request;
mod retry;
mod stream;
mod token;

pub use backup::Backup;
pub use batch::{Batch, BatchOutcome, OperationOutcome};
pub use client::{Client, Health, Options};
pub use container::{Container, Precondition, Stored};
pub use credential::Credential;
pub use endpoint::{BadEndpoint, Endpoint};
#[cfg(feature = "entra")]
pub use entra::Entra;
pub use error::{ClientError, Reason, Refusal, Remedy};
pub use feed::{FeedFilter, FeedFrom, FeedPage, FeedRead, FeedScope};
pub use list::{Page, PageRequest, Query};
pub use ranges::{Partition, Range};
pub use regions::{AccountInfo, Region};
pub use retry::RetryPolicy;
pub use token::{Token, TokenError, TokenSource, Tokens};
