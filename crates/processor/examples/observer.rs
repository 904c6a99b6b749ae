//! The observer of the classic change feed processor articles, in Rust: a factory creates an observer for every
//! lease, which is opened, receives changes, and is closed with a reason.
//!
//! | in the articles | here |
//! |---|---|
//! | `IChangeFeedObserverFactory`, `DocumentFeedObserverFactory` | [`HandlerFactory`], `Observers` |
//! | `IChangeFeedObserver`, `DocumentFeedObserver` | [`Handler`], `Observer` |
//! | `OpenAsync`, `ProcessChangesAsync`, `CloseAsync(reason)` | `open`, `process`, `close(reason)` |
//! | `ChangeFeedProcessorBuilder`, `WithHostName`, `WithFeedCollection`, `WithLeaseCollection` | [`Processor::builder`] |
//! | `StartFromBeginning`, `LeaseRenewInterval`, `MaxItemCount` | [`Options`] |
//!
//! ```sh
//! cargo run -p headwater-processor --example observer
//! ```

use headwater_processor::lease_store::MemoryLeases;
use headwater_processor::source::MemoryFeed;
use headwater_processor::{
    Ack, Batch, CloseReason, Handler, HandlerError, HandlerFactory, LeaseContext, Options,
    Processor, Start,
};
use headwater_runtime::Runtime;
use std::error::Error;
use std::time::Duration;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for line in run().await? {
        println!("{line}");
    }
    Ok(())
}

/// Creates an observer for every acquired lease.
struct Observers {
    said: mpsc::UnboundedSender<String>,
}

impl HandlerFactory for Observers {
    type Handler = Observer;

    fn create(&self, _: &LeaseContext) -> Observer {
        Observer { said: self.said.clone() }
    }
}

/// Reports what happens to one lease.
struct Observer {
    said: mpsc::UnboundedSender<String>,
}

impl Handler for Observer {
    async fn open(&mut self, lease: &LeaseContext) -> Result<(), HandlerError> {
        self.said.send(format!("observer opened for {}", lease.range))?;
        Ok(())
    }

    async fn process(&mut self, batch: Batch) -> Result<Ack, HandlerError> {
        for change in batch.changes.iter() {
            let item: serde_json::Value = change.parse()?;
            self.said.send(format!("changed: {}", item["id"]))?;
        }
        Ok(Ack::Done)
    }

    async fn close(&mut self, _: &LeaseContext, reason: CloseReason) {
        let _ = self.said.send(format!("observer closed: {reason:?}"));
    }
}

/// Returns the messages of the observers.
pub(crate) async fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let runtime = Runtime::system();
    let feed = MemoryFeed::new(runtime.clone(), 1);
    for number in 0..3 {
        feed.put("ann", &[(&number.to_string(), "hello")]);
    }
    let (said, mut lines) = mpsc::unbounded_channel();
    let mut options = Options::native("articles");
    options.host_name = Some("host-1".to_owned());
    options.start = Start::Beginning;
    options.items_max = Some(100);
    options.renew_interval = Duration::from_secs(3);
    let processor = Processor::builder()
        .source(feed)
        .leases(MemoryLeases::new(runtime))
        .handler(Observers { said })
        .options(options)
        .build()?;
    let running = processor.start().await?;
    let mut all = Vec::new();
    while all.len() < 4 {
        all.push(lines.recv().await.ok_or("it ended")?);
    }
    running.stop().await;
    all.push(lines.recv().await.ok_or("it ended")?);
    Ok(all)
}
