//! Single options: where to start, how often to poll, which leases, which balancer.

use super::stage::{Stage, ids};
use crate::balance::{Balancer, ClusterView, Plan};
use crate::coverage::PhysicalRange;
use crate::handler::{Ack, Batch};
use crate::lease::HostId;
use crate::namespace::FeedIdentity;
use crate::position::Position;
use crate::source::{Capabilities, FeedSource, MemoryFeed, Page, ReadRequest, SourceError};
use crate::{HandlerError, Options, Processor, Start};
use headwater_model::{Lsn, Timestamp};
use headwater_runtime::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

type Handled = BoxFuture<Result<Ack, HandlerError>>;

impl Stage {
    /// Returns a handler that logs the ids it receives, prefixed by a name.
    fn writes_down(&self, name: &'static str) -> impl Fn(Batch) -> Handled + Clone + use<> {
        let log = self.log.clone();
        move |batch: Batch| {
            log.lock().push(format!("{name}{}", ids(&batch)));
            Box::pin(async { Ok(Ack::Done) })
        }
    }

    /// Runs a host for a minute. Returns what it handled.
    async fn run(&self, options: Options) -> Vec<String> {
        let before = self.log().len();
        let running = self.start(options, self.writes_down("")).await;
        self.sleep(60).await;
        running.stop().await;
        self.log().split_off(before)
    }
}

#[test]
fn start_by_position_begins_behind_it() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..5);
            let start = Start::Position(Position::after(Lsn::new(2)));
            let handled = stage.run(Options { start, ..stage.options() }).await;
            assert_eq!(handled, ["2,3,4"]);
        })
    });
}

#[test]
fn start_by_time_begins_with_the_first_change_of_that_time() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..2);
            stage.sleep(10).await;
            let time = Timestamp::from_millis(stage.runtime.unix_millis());
            stage.put(2..4);
            let handled = stage.run(Options { start: Start::Time(time), ..stage.options() }).await;
            assert_eq!(handled, ["2,3"]);
        })
    });
}

#[test]
fn a_start_counts_for_the_first_run_only_and_then_the_lease_does() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..2);
            assert_eq!(stage.run(stage.options()).await, ["0,1"]);
            for (start, next) in [(Start::Beginning, 2), (Start::Now, 3)] {
                stage.put(next..next + 1);
                let handled = stage.run(Options { start, ..stage.options() }).await;
                assert_eq!(handled, [next.to_string()]);
            }
        })
    });
}

#[test]
fn discarding_existing_leases_starts_again_where_the_options_say() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..3);
            assert_eq!(stage.run(stage.options()).await, ["0,1,2"]);
            assert_eq!(stage.run(stage.options()).await, Vec::<String>::new());
            let discarding = Options { discard_existing: true, ..stage.options() };
            assert_eq!(stage.run(discarding).await, ["0,1,2"]);
            assert_eq!(stage.run(stage.options()).await, Vec::<String>::new());
        })
    });
}

#[test]
fn existing_leases_are_not_discarded_while_another_host_works() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..3);
            let working = stage.start(stage.options(), stage.writes_down("")).await;
            stage.sleep(30).await;
            let processor = Processor::builder()
                .source(stage.feed.clone())
                .leases(stage.leases.clone())
                .handler(stage.writes_down("other "))
                .options(Options { discard_existing: true, ..stage.options() })
                .runtime(stage.runtime.clone())
                .build()
                .unwrap();
            assert!(processor.start().await.is_err());
            stage.put(3..4);
            stage.sleep(30).await;
            assert_eq!(stage.log(), ["0,1,2", "3"]);
            working.stop().await;
        })
    });
}

/// A balancer that acquires every second lease and none of the others.
struct EverySecond;

impl Balancer for EverySecond {
    fn plan(&self, view: &ClusterView, _: &HostId) -> Plan {
        let free = view.leases.iter().step_by(2).filter(|lease| lease.owner.is_none());
        Plan { take: free.map(|lease| lease.token.clone()).collect(), ..Plan::default() }
    }
}

#[test]
fn a_balancer_of_the_users_own_decides_which_leases_a_host_takes() {
    Stage::play(|mut stage| {
        Box::pin(async move {
            stage.feed = MemoryFeed::new(stage.runtime.clone(), 4);
            let options = Options { balancer: Arc::new(EverySecond), ..stage.options() };
            let running = stage.start(options, stage.writes_down("")).await;
            stage.sleep(60).await;
            assert_eq!(running.report().owned.len(), 2);
            running.stop().await;
        })
    });
}

#[test]
fn a_processor_of_one_range_handles_the_changes_of_that_range_alone() {
    Stage::play(|mut stage| {
        Box::pin(async move {
            stage.feed = MemoryFeed::new(stage.runtime.clone(), 2);
            let ranges = stage.feed.ranges(true).await.unwrap();
            let mut expected = Vec::new();
            for number in 0..20 {
                let id = number.to_string();
                let put = stage.feed.put(&format!("k{number}"), &[(&id, "x")]).unwrap();
                if put.partition == ranges[1].id {
                    expected.push(id);
                }
            }
            assert!(!expected.is_empty() && expected.len() < 20, "{expected:?}");
            let scope = ranges[1].keys.clone();
            let handled = stage.run(Options { scope, ..stage.options() }).await;
            assert_eq!(handled, [expected.join(",")]);
        })
    });
}

#[test]
fn two_processors_with_different_names_share_a_lease_container_and_see_every_change() {
    Stage::play(|stage| {
        Box::pin(async move {
            let named = |name: &str| Options { start: Start::Beginning, ..Options::native(name) };
            stage.put(0..3);
            let one = stage.start(named("mail"), stage.writes_down("mail ")).await;
            let two = stage.start(named("cache"), stage.writes_down("cache ")).await;
            stage.sleep(30).await;
            stage.put(3..4);
            stage.sleep(30).await;
            let mut handled = stage.log();
            handled.sort_unstable();
            assert_eq!(handled, ["cache 0,1,2", "cache 3", "mail 0,1,2", "mail 3"]);
            one.stop().await;
            two.stop().await;
        })
    });
}

/// A feed that counts its reads.
struct CountedFeed {
    inner: MemoryFeed,
    reads: Arc<AtomicU64>,
}

impl FeedSource for CountedFeed {
    fn identity(&self) -> BoxFuture<Result<FeedIdentity, SourceError>> {
        self.inner.identity()
    }

    fn ranges(&self, refresh: bool) -> BoxFuture<Result<Vec<PhysicalRange>, SourceError>> {
        self.inner.ranges(refresh)
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<Result<Page, SourceError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.read(request)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { waits: false, ..self.inner.capabilities() }
    }
}

#[test]
fn a_feed_with_nothing_new_is_read_once_in_every_poll_delay() {
    Stage::play(|stage| {
        Box::pin(async move {
            let reads = Arc::new(AtomicU64::new(0));
            let feed = CountedFeed { inner: stage.feed.clone(), reads: reads.clone() };
            let poll_delay = Duration::from_secs(7);
            let processor = Processor::builder()
                .source(feed)
                .leases(stage.leases.clone())
                .handler(stage.writes_down(""))
                .options(Options { poll_delay, ..stage.options() })
                .runtime(stage.runtime.clone())
                .build()
                .unwrap();
            let running = processor.start().await.unwrap();
            stage.sleep(60).await;
            let before = reads.load(Ordering::SeqCst);
            stage.sleep(700).await;
            let read = reads.load(Ordering::SeqCst) - before;
            assert!((90..=110).contains(&read), "{read} reads in a hundred delays");
            stage.put(0..1);
            stage.sleep(8).await;
            assert_eq!(stage.log(), ["0"]);
            running.stop().await;
        })
    });
}
