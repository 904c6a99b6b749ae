//! Network faults of one host: requests and answers are delayed, lost or refused. A lost answer follows a request
//! that was carried out.

use super::oracle::Oracle;
use crate::coverage::PhysicalRange;
use crate::lease::DocumentKey;
use crate::lease_store::{
    Layout, LeaseStore, Listing, MemoryLeases, NewDocument, StoreError, StoreWrite, Stored,
};
use crate::namespace::FeedIdentity;
use crate::source::{Capabilities, FeedSource, MemoryFeed, Page, ReadRequest, SourceError};
use headwater_runtime::{BoxFuture, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Fault rates in percent, and the latency in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) latency_ms: u64,
    pub(crate) lost_requests: u64,
    pub(crate) lost_answers: u64,
    pub(crate) throttled: u64,
    pub(crate) feed_throttled: u64,
    pub(crate) feed_unavailable: u64,
    /// Listings show an earlier state.
    pub(crate) stale_lists: u64,
    /// Requests to the lease store are lost.
    pub(crate) store_cut: bool,
    /// Writes to the lease store are lost; reads succeed.
    pub(crate) writes_cut: bool,
    /// Requests to the feed are lost.
    pub(crate) feed_cut: bool,
    /// Deleting leases is forbidden, as a role may define it.
    pub(crate) deletes_forbidden: bool,
    /// The lease store rejects the key.
    pub(crate) store_refuses: bool,
    /// The feed rejects the key.
    pub(crate) feed_refuses: bool,
}

/// Counters of requests.
#[derive(Default)]
pub(crate) struct Counts {
    /// Writes of leases that were sent and have not arrived.
    pub(crate) lease_writes: usize,
    /// Writes of leases that failed their etag condition.
    pub(crate) refused: usize,
    /// How often the ranges were read.
    pub(crate) range_looks: usize,
    /// Bytes of changes that were read.
    pub(crate) bytes_read: usize,
}

/// The network of one host. Clones share its state.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) weather: Arc<Mutex<Weather>>,
    pub(crate) counts: Arc<Mutex<Counts>>,
    /// A stale range list that the service returns while set.
    pub(crate) old_ranges: Arc<Mutex<Option<Vec<PhysicalRange>>>>,
    runtime: Runtime,
}

enum Fate {
    Fine,
    Throttled,
    Lost,
    AnswerLost,
    Refused,
}

impl Network {
    pub(crate) fn new(runtime: Runtime, weather: Weather) -> Network {
        let weather = Arc::new(Mutex::new(weather));
        Network { weather, counts: Arc::default(), old_ranges: Arc::default(), runtime }
    }

    fn roll(&self, percent: u64) -> bool {
        percent > 0 && self.runtime.random() % 100 < percent
    }

    async fn delay(&self) {
        let most = self.weather.lock().latency_ms;
        if most > 0 {
            self.runtime.sleep(Duration::from_millis(self.runtime.random() % most)).await;
        }
    }

    async fn store_fate(&self, writes: bool) -> Fate {
        self.delay().await;
        let weather = *self.weather.lock();
        if weather.store_cut || (writes && weather.writes_cut) || self.roll(weather.lost_requests) {
            return Fate::Lost;
        }
        if weather.store_refuses {
            return Fate::Refused;
        }
        if self.roll(weather.throttled) {
            return Fate::Throttled;
        }
        if self.roll(weather.lost_answers) { Fate::AnswerLost } else { Fate::Fine }
    }

    async fn silence<T>(&self) -> Result<T, StoreError> {
        self.runtime.sleep(Duration::from_secs(30)).await;
        Err(StoreError::Unavailable("no answer".to_owned()))
    }
}

/// The lease store as one host reaches it.
#[derive(Clone)]
pub(crate) struct FarLeases {
    pub(crate) inner: MemoryLeases,
    pub(crate) network: Network,
    pub(crate) oracle: Oracle,
    pub(crate) lists: Arc<Mutex<Vec<Listing>>>,
}

impl FarLeases {
    /// Carries out a request, unless it or its answer is lost.
    fn carry<T: Send + 'static>(
        &self,
        writes: bool,
        work: impl FnOnce(&FarLeases) -> BoxFuture<Result<T, StoreError>> + Send + 'static,
    ) -> BoxFuture<Result<T, StoreError>> {
        let store = self.clone();
        Box::pin(async move {
            match store.network.store_fate(writes).await {
                Fate::Lost => return store.network.silence().await,
                Fate::Refused => return Err(StoreError::Refused("the key".to_owned())),
                Fate::Throttled => {
                    return Err(StoreError::Throttled { after: Some(Duration::from_millis(200)) });
                }
                Fate::AnswerLost => {
                    let _ = work(&store).await;
                    return store.network.silence().await;
                }
                Fate::Fine => {}
            }
            let answer = work(&store).await;
            store.network.delay().await;
            answer
        })
    }
}

impl LeaseStore for FarLeases {
    fn list(&self, prefix: &str) -> BoxFuture<Result<Listing, StoreError>> {
        let prefix = prefix.to_owned();
        self.carry(false, move |store| {
            let (store, listed) = (store.clone(), store.inner.list(&prefix));
            Box::pin(async move {
                let listing = listed.await?;
                let mut lists = store.lists.lock();
                lists.push(listing.clone());
                if lists.len() > 5 {
                    lists.remove(0);
                }
                let percent = store.network.weather.lock().stale_lists;
                if store.network.roll(percent) && lists.len() > 4 {
                    return Ok(lists[lists.len() - 4].clone());
                }
                Ok(listing)
            })
        })
    }

    fn read(&self, key: &DocumentKey) -> BoxFuture<Result<Option<Stored>, StoreError>> {
        let key = key.clone();
        self.carry(false, move |store| store.inner.read(&key))
    }

    fn create(&self, document: NewDocument) -> BoxFuture<Result<Stored, StoreError>> {
        self.carry(true, move |store| {
            let (oracle, made) = (store.oracle.clone(), store.inner.create(document));
            Box::pin(async move {
                let stored = made.await?;
                oracle.committed(&stored.body);
                Ok(stored)
            })
        })
    }

    fn replace(
        &self,
        document: NewDocument,
        if_match: &str,
    ) -> BoxFuture<Result<Stored, StoreError>> {
        let if_match = if_match.to_owned();
        // The ids of leases contain two dots in a row; those of members and markers do not.
        let is_lease = document.key.id.contains("..");
        let counts = self.network.counts.clone();
        let under_way = is_lease.then(|| UnderWay::new(counts.clone()));
        self.carry(true, move |store| {
            drop(under_way);
            let (oracle, written) =
                (store.oracle.clone(), store.inner.replace(document, &if_match));
            Box::pin(async move {
                let written = written.await;
                if is_lease && matches!(written, Err(StoreError::PreconditionFailed)) {
                    counts.lock().refused += 1;
                }
                let stored = written?;
                oracle.committed(&stored.body);
                Ok(stored)
            })
        })
    }

    fn delete(&self, key: &DocumentKey, if_match: &str) -> BoxFuture<Result<(), StoreError>> {
        let (key, if_match) = (key.clone(), if_match.to_owned());
        if self.network.weather.lock().deletes_forbidden {
            return Box::pin(async { Err(StoreError::Refused("deleting".to_owned())) });
        }
        self.carry(true, move |store| store.inner.delete(&key, &if_match))
    }

    fn atomic(&self, writes: Vec<StoreWrite>) -> BoxFuture<Result<Option<()>, StoreError>> {
        let deletes = writes.iter().any(|write| matches!(write, StoreWrite::Delete(..)));
        if deletes && self.network.weather.lock().deletes_forbidden {
            return Box::pin(async { Err(StoreError::Refused("deleting".to_owned())) });
        }
        self.carry(true, move |store| {
            let made: Vec<_> = writes
                .iter()
                .filter_map(|write| match write {
                    StoreWrite::Create(document) | StoreWrite::Replace(document, _) => {
                        Some(document.body.clone())
                    }
                    StoreWrite::Delete(..) => None,
                })
                .collect();
            let (oracle, written) = (store.oracle.clone(), store.inner.atomic(writes));
            Box::pin(async move {
                let done = written.await?;
                if done.is_some() {
                    made.iter().for_each(|body| oracle.committed(body));
                }
                Ok(done)
            })
        })
    }

    fn layout(&self) -> Layout {
        self.inner.layout()
    }
}

/// Counts a write until it arrives or is dropped.
struct UnderWay(Arc<Mutex<Counts>>);

impl UnderWay {
    fn new(counts: Arc<Mutex<Counts>>) -> UnderWay {
        counts.lock().lease_writes += 1;
        UnderWay(counts)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().lease_writes -= 1;
    }
}

/// The feed as one host reaches it.
#[derive(Clone)]
pub(crate) struct FarFeed {
    pub(crate) inner: MemoryFeed,
    pub(crate) network: Network,
}

impl FarFeed {
    async fn way(&self) -> Result<(), SourceError> {
        self.network.delay().await;
        let weather = *self.network.weather.lock();
        if weather.feed_cut {
            self.network.runtime.sleep(Duration::from_secs(10)).await;
            return Err(SourceError::Unavailable("no answer".to_owned()));
        }
        if weather.feed_refuses {
            return Err(SourceError::Refused("the key".to_owned()));
        }
        if self.network.roll(weather.feed_throttled) {
            return Err(SourceError::Throttled { after: Some(Duration::from_millis(300)) });
        }
        if self.network.roll(weather.feed_unavailable) {
            return Err(SourceError::Unavailable("503".to_owned()));
        }
        Ok(())
    }
}

impl FeedSource for FarFeed {
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>> {
        self.inner.identity()
    }

    fn ranges(&self, refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>> {
        let feed = self.clone();
        Box::pin(async move {
            feed.way().await?;
            feed.network.counts.lock().range_looks += 1;
            let old = feed.network.old_ranges.lock().clone();
            match old {
                Some(old) => Ok(old),
                None => feed.inner.ranges(refresh).await,
            }
        })
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>> {
        let feed = self.clone();
        Box::pin(async move {
            feed.way().await?;
            let page = feed.inner.read(request).await?;
            let bytes: usize = page.changes.iter().map(|change| change.body().len()).sum();
            feed.network.counts.lock().bytes_read += bytes;
            feed.network.delay().await;
            Ok(page)
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
}
