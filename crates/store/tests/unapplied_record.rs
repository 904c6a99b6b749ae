//! A record with intact bytes that cannot be applied takes its partition out of service; it is never skipped.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_log::disk::OsDisk;
use headwater_log::{GroupBuilder, LocalLog, LogOptions, NewRecord, PartitionLog, RecordKind};
use headwater_model::{PartitionId, Timestamp};
use headwater_runtime::Runtime;
use headwater_store::{Account, ContainerDefinition, Options, WriteError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{container_of, scratch};

fn options() -> Options {
    let mut options = Options::default();
    options.maintenance_interval = Duration::ZERO;
    options
}

/// Appends a record to a closed log, with metadata that no version of the store writes.
async fn append_nonsense(dir: &Path, partition: PartitionId) {
    let runtime = Runtime::system();
    let opened =
        LocalLog::open(Arc::new(OsDisk), dir, partition, LogOptions::default(), runtime).unwrap();
    let mut group = GroupBuilder::new(partition, 0, opened.log.local_tail());
    group.begin(Timestamp::from_millis(1), 7);
    group.record(&NewRecord {
        kind: RecordKind::Put,
        supersedes: None,
        epk: &[1; 16],
        meta: b"nonsense",
        body: b"{}",
    });
    group.finish();
    opened.log.append(group.build()).await.unwrap();
}

#[tokio::test]
async fn a_record_that_cannot_be_applied_breaks_its_partition() {
    for loses_index in [false, true] {
        let dir = scratch();
        let account = Account::open(dir.path(), options()).await.unwrap();
        let database = account.create_database("db").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container_with(definition, 2).await.unwrap();
        for number in 0..20 {
            let body = format!(r#"{{"id":"{number}","pk":"{number}"}}"#);
            container.create(body).await.unwrap();
        }
        let rid = container.rid();
        let lsn = container.ranges()[1].lsn;
        account.close().await.unwrap();
        drop((account, database, container));
        let partition = PartitionId::new(1);
        let log = dir.path().join(format!("containers/{:016x}/00000001", rid.as_u64()));
        append_nonsense(&log, partition).await;
        if loses_index {
            std::fs::remove_dir_all(dir.path().join("index")).unwrap();
        }

        let account = Account::open(dir.path(), options()).await.unwrap();
        let quarantined = account.quarantined();
        let [quarantine] = &quarantined[..] else { panic!("{quarantined:?}") };
        assert_eq!(quarantine.partition, partition);
        let damage = &quarantine.damage;
        assert!(damage.file.ends_with("00000001/00000001.seg"), "{damage}");
        assert!(damage.offset > 0, "{damage}");
        assert_eq!(damage.lsn, Some(lsn.next()), "{damage}");
        let text = quarantine.to_string();
        assert!(text.contains("cannot be applied") && text.contains("headwater doctor"), "{text}");
        let container = container_of(&account).await;
        let (mut served, mut refused) = (0, 0);
        for number in 0..20 {
            let body = format!(r#"{{"id":"{number}","pk":"{number}","v":2}}"#);
            match container.upsert(body).await {
                Ok(_) => served += 1,
                Err(WriteError::Storage(error)) => {
                    assert!(error.damage().is_some(), "{error}");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(served > 0 && refused > 0, "{served} {refused}");
        account.close().await.unwrap();
    }
}
