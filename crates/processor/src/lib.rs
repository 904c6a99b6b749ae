//! A change feed processor: several hosts share the changes of one container.
//!
//! Delivery is at least once and in order per key.
//!
//! ```text
//!              ┌──────────── Processor, one per host ────────────┐
//! FeedSource ─►│ fetch ─► lanes ─► your handler                  │
//!              │            │                                    │
//!              │      watermark ─► checkpoint ─► lease           │──► LeaseStore
//!              │ coordinator: look, balance, take, hand over     │
//!              └─────────────────────────────────────────────────┘
//! ```
//!
//! A container is divided into key ranges, and each range has a lease. A host works only on the leases it
//! holds. A lease stores an owner and a position; every write to it is conditional on its etag. A host that
//! cannot renew its leases stops before another host may take them over. Leases can be shared with the .NET
//! and Java processors ([`Options::interop`]) or use the cheaper native layout ([`Options::native`]).
//!
//! Decisions are pure functions in [`lease`], [`balance`], [`expiry`], [`coverage`], [`lag`], [`scale`] and
//! others; `host` carries them out. A [`source::FeedSource`] provides the changes and a
//! [`lease_store::LeaseStore`] stores the leases. Both exist for a client (also against Azure), for a store in
//! the same process, and in memory. Time, randomness and tasks come from a
//! [`Runtime`](headwater_runtime::Runtime).
//!
//! ```
//! use headwater_processor::{Ack, Batch, HandlerError, Options, Processor, Start};
//! use headwater_processor::lease_store::MemoryLeases;
//! use headwater_processor::source::MemoryFeed;
//! use headwater_runtime::Runtime;
//!
//! # let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//! # tokio.block_on(async {
//! let runtime = Runtime::system();
//! let feed = MemoryFeed::new(runtime.clone(), 2);
//! feed.put("ann", &[("1", "hello")]);
//!
//! let (handled, mut changes) = tokio::sync::mpsc::unbounded_channel();
//! let mut options = Options::native("greeter");
//! options.start = Start::Beginning;
//! let processor = Processor::builder()
//!     .source(feed)
//!     .leases(MemoryLeases::new(runtime))
//!     .handler(move |batch: Batch| {
//!         let handled = handled.clone();
//!         async move {
//!             for change in batch.changes.iter() {
//!                 handled.send(change.body().clone())?;
//!             }
//!             Ok::<_, HandlerError>(Ack::Done)
//!         }
//!     })
//!     .options(options)
//!     .build()
//!     .unwrap();
//! let running = processor.start().await.unwrap();
//! let change = changes.recv().await.unwrap();
//! assert!(change.starts_with(b"{"));
//! running.stop().await;
//! # });
//! ```

mod activity;
mod archive;
pub mod balance;
mod checkpoint;
pub mod coverage;
mod dead_letter;
mod event;
mod event_message;
pub mod expiry;
mod failure;
mod handler;
mod host;
mod kept;
pub mod lag;
pub mod lease;
pub mod lease_store;
pub mod member;
#[cfg(feature = "opentelemetry")]
mod metrics;
#[cfg(test)]
mod model_check;
mod namespace;
mod options;
mod position;
mod promised;
#[cfg(test)]
mod proof;
mod runner;
pub mod scale;
pub mod source;
pub mod trigger;
mod unit;
mod watermark;

pub use activity::Activity;
pub use archive::{Archive, ArchiveError, position_of};
pub use checkpoint::{Checkpoint, Pace};
pub use dead_letter::{DeadLetter, DeadLetterContainer, DeadLetterFile, DeadLetters};
pub use event::{Event, EventSink, StallCause};
pub use failure::{
    Action, Backoff, Failure, FailureKind, FailurePolicy, HandlerError, RetryForever,
    RetryThenDeadLetter, RetryThenHalt,
};
pub use handler::{
    Ack, Batch, BatchContext, CheckpointError, CloseReason, Diagnostics, FromClosure, Handler,
    HandlerFactory, LeaseContext,
};
pub use host::{
    BuildError, Fatal, Processor, ProcessorBuilder, Report, Running, StartError, Stopped,
};
pub use kept::Kept;
pub use lease::Start;
#[cfg(feature = "opentelemetry")]
pub use metrics::{Metrics, ScaleMetrics};
pub use namespace::{FeedIdentity, Kind, Names, Namespace};
pub use options::{Options, Profile};
pub use position::Position;
pub use runner::{LeaseRunner, LeaseSession, RunnerFactory};
pub use unit::{LeaseInfo, Snapshot, Unit, UnitError, lag_of};
pub use watermark::{Ticket, Watermark};
