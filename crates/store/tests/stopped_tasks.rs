//! A background task that panics is reported: requests that need it fail with its name and the panic message, and
//! everything else continues.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_log::{AppendError, Entry, Group, LocalLog, PartitionLog, ReadError, Tail};
use headwater_runtime::{BoxFuture, Runtime};
use headwater_store::{
    Account, Container, ContainerDefinition, Environment, LogWrapper, Lsn, MemoryDisk, MemoryIndex,
    Options, PartitionKey, Remedy, WriteError,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A log whose next append panics if the trap is set.
struct Trap {
    log: Arc<LocalLog>,
    is_set: Arc<AtomicBool>,
}

impl PartitionLog for Trap {
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>> {
        assert!(!self.is_set.swap(false, Ordering::SeqCst), "the trap was set");
        self.log.append(group)
    }

    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>> {
        self.log.entry(lsn)
    }

    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>> {
        self.log.tail()
    }
}

/// A store whose writers panic when the returned trap is set.
async fn store_with_trap() -> (Account, Arc<AtomicBool>) {
    let is_set = Arc::new(AtomicBool::new(false));
    let trap = is_set.clone();
    let wrap_log: LogWrapper =
        Arc::new(move |log| Arc::new(Trap { log, is_set: trap.clone() }) as Arc<dyn PartitionLog>);
    let environment = Environment {
        runtime: Runtime::system(),
        disk: Arc::new(MemoryDisk::new()),
        index: Some(MemoryIndex::default()),
        wrap_log: Some(wrap_log),
    };
    let mut options = Options::default();
    options.partitions = 2;
    let account = Account::open_in(environment, Path::new("/store"), options).await.unwrap();
    (account, is_set)
}

async fn orders_of(account: &Account) -> Container {
    let shop = account.create_database("shop").await.unwrap();
    shop.create_container(ContainerDefinition::new("orders", "/pk").unwrap()).await.unwrap()
}

async fn create(orders: &Container, id: u32) -> Result<(), WriteError> {
    let body = format!(r#"{{"id":"{id}","pk":"{id}"}}"#);
    orders.create(body.into_bytes()).await.map(|_| ())
}

/// Another id in the partition of `id`, or an id in another partition.
fn id_in(orders: &Container, id: u32, is_same: bool) -> u32 {
    let partition_of =
        |id: u32| orders.locate(&PartitionKey::from(id.to_string().as_str())).unwrap().0;
    (id + 1..id + 100).find(|other| (partition_of(*other) == partition_of(id)) == is_same).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_panics_says_so_and_the_other_partitions_continue() {
    let (account, trap) = store_with_trap().await;
    let orders = orders_of(&account).await;
    create(&orders, 1).await.unwrap();
    trap.store(true, Ordering::SeqCst);
    let same = id_in(&orders, 1, true);
    // Both a request that waits for the writer and a later one get the error.
    for id in [same, same] {
        let error = create(&orders, id).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the writer of partition "), "{text}");
        assert!(text.contains(" of container orders stopped: "), "{text}");
        assert!(text.contains("the trap was set"), "{text}");
        assert!(text.contains("restart"), "{text}");
        let WriteError::Storage(error) = error else { panic!("{text}") };
        assert_eq!(error.remedy(), Remedy::Reopen);
    }
    create(&orders, id_in(&orders, 1, false)).await.unwrap();
    // Earlier writes can be read.
    assert!(orders.read("1", "1").await.unwrap().is_some());
    let stopped = account.stopped_tasks();
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(stopped[0].contains("the writer of partition "), "{stopped:?}");
    account.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_split_that_panics_halfway_is_answered_and_leaves_nothing_waiting() {
    let (account, trap) = store_with_trap().await;
    let orders = orders_of(&account).await;
    create(&orders, 1).await.unwrap();
    let range = orders.locate(&PartitionKey::from("1")).unwrap().0;
    trap.store(true, Ordering::SeqCst);
    let error = orders.split(range, None).await.unwrap_err().to_string();
    assert!(error.contains("the trap was set"), "{error}");
    let error = create(&orders, id_in(&orders, 1, true)).await.unwrap_err().to_string();
    assert!(error.contains("reopen"), "{error}");
    account.close().await.unwrap();
}
