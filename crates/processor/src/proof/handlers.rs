//! The contract of handlers: opened and closed once, partial and late acknowledgement, panics, batch sizes, both feed
//! modes.

use crate::handler::{
    Ack, Batch, BatchContext, CloseReason, Handler, HandlerFactory, LeaseContext,
};
use crate::lease_store::Stored;
use crate::proof::stage::{Log, Stage, ids};
use crate::source::FeedSource;
use crate::{
    Checkpoint, CheckpointError, Event, HandlerError, Options, Processor, RetryThenDeadLetter,
    Start,
};
use headwater_model::FeedMode;
use headwater_runtime::BoxFuture;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A handler factory that logs every call.
struct Diary(Log);

impl HandlerFactory for Diary {
    type Handler = Page;

    fn create(&self, lease: &LeaseContext) -> Page {
        self.0.lock().push(format!("create {}", lease.epoch));
        Page(self.0.clone())
    }
}

struct Page(Log);

impl Handler for Page {
    async fn open(&mut self, lease: &LeaseContext) -> Result<(), HandlerError> {
        self.0.lock().push(format!("open {}", lease.epoch));
        match lease.epoch {
            1 => Err(HandlerError::new("not yet")),
            2 => panic!("not now"),
            _ => Ok(()),
        }
    }

    async fn process(&mut self, batch: Batch) -> Result<Ack, HandlerError> {
        self.0.lock().push(format!("process {}", ids(&batch)));
        Ok(Ack::Done)
    }

    async fn idle(&mut self, _: &LeaseContext) {
        let mut log = self.0.lock();
        if log.last().is_none_or(|last| last != "idle") {
            log.push("idle".to_owned());
        }
    }

    async fn close(&mut self, _: &LeaseContext, reason: CloseReason) {
        self.0.lock().push(format!("close {reason:?}"));
        panic!("a handler may panic here too");
    }
}

#[test]
fn a_handler_is_opened_and_closed_once_and_not_at_all_if_it_cannot_be_opened() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..2);
            let running = stage.start(stage.options(), Diary(stage.log.clone())).await;
            stage.sleep(90).await;
            let report = running.stop().await;
            assert!(report.stopped.iter().all(|stopped| stopped.orderly), "{report:?}");
            let expected = [
                "create 1",
                "open 1",
                "create 2",
                "open 2",
                "create 3",
                "open 3",
                "process 0,1",
                "idle",
                "close Shutdown",
            ];
            assert_eq!(stage.log(), expected);
        })
    });
}

#[test]
fn unacknowledged_changes_are_delivered_again() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..5);
            let log = stage.log.clone();
            let running = stage
                .start(stage.options(), move |batch: Batch| {
                    log.lock().push(ids(&batch));
                    async move { Ok(Ack::Through(2)) }
                })
                .await;
            stage.sleep(30).await;
            assert_eq!(stage.log(), ["0,1,2,3,4", "2,3,4", "4"]);
            assert_eq!(stage.stored(), Some(5));
            running.stop().await;
        })
    });
}

#[test]
fn late_acknowledgements_count_from_the_first_that_is_missing() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            options.checkpoint = Checkpoint::Manual;
            options.batch_items_max = 1;
            let kept: Arc<Mutex<Vec<BatchContext>>> = Arc::default();
            let keep = kept.clone();
            stage.put(0..4);
            let running = stage
                .start(options, move |batch: Batch| {
                    keep.lock().push(batch.context.clone());
                    async move { Ok(Ack::Deferred) }
                })
                .await;
            stage.sleep(20).await;
            let contexts = kept.lock().clone();
            assert_eq!(contexts.len(), 4);
            contexts[2].checkpoint().await.unwrap();
            contexts[1].checkpoint().await.unwrap();
            assert_eq!(stage.stored(), None, "the first one is missing");
            contexts[0].checkpoint().await.unwrap();
            assert_eq!(stage.stored(), Some(3));
            contexts[0].checkpoint().await.unwrap();
            assert_eq!(stage.stored(), Some(3), "a repeated acknowledgement changes nothing");
            running.stop().await;
            assert_eq!(stage.stored(), Some(3), "stopping acknowledges nothing");
            assert_eq!(contexts[3].checkpoint().await, Err(CheckpointError::LeaseLost));
            assert_eq!(stage.stored(), Some(3));
        })
    });
}

#[test]
fn with_manual_checkpoints_only_those_store_anything() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            options.checkpoint = Checkpoint::Manual;
            options.batch_items_max = 1;
            stage.put(0..5);
            let running = stage
                .start(options, |batch: Batch| async move {
                    if ids(&batch) == "2" {
                        batch.context.checkpoint().await?;
                    }
                    Ok(Ack::Done)
                })
                .await;
            stage.sleep(20).await;
            assert_eq!(
                stage.stored(),
                Some(3),
                "what came before counts, what came later does not"
            );
            running.stop().await;
            assert_eq!(stage.stored(), Some(3));
        })
    });
}

#[test]
fn the_tail_of_a_burst_is_stored_by_the_clock() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            let interval = Duration::from_secs(7);
            options.checkpoint = Checkpoint::Every { items: 100, bytes: 0, interval };
            let running = stage.start(options, |_: Batch| async { Ok(Ack::Done) }).await;
            stage.sleep(5).await;
            stage.put(0..3);
            stage.sleep(5).await;
            assert_eq!(stage.stored(), None);
            stage.sleep(5).await;
            assert_eq!(stage.stored(), Some(3));
            running.stop().await;
        })
    });
}

#[test]
fn small_changes_are_gathered_and_large_batches_cut() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            options.batch_items_max = 3;
            options.batch_wait = Duration::from_secs(4);
            let log = stage.log.clone();
            let running = stage
                .start(options, move |batch: Batch| {
                    log.lock().push(ids(&batch));
                    async { Ok(Ack::Done) }
                })
                .await;
            stage.sleep(5).await;
            for number in 0..2 {
                stage.put(number..number + 1);
                stage.runtime.sleep(Duration::from_millis(300)).await;
            }
            assert_eq!(stage.log(), Vec::<String>::new(), "a partial batch waits");
            stage.sleep(6).await;
            assert_eq!(stage.log(), ["0,1"], "but only for a limited time");
            stage.put(2..9);
            stage.sleep(6).await;
            assert_eq!(stage.log()[1..].concat().matches(',').count(), 4, "{:?}", stage.log());
            assert!(stage.log().iter().all(|batch| batch.split(',').count() <= 3));
            running.stop().await;
        })
    });
}

#[test]
fn f30_f31_changes_that_cannot_be_decoded_or_panic_are_isolated() {
    #[derive(serde::Deserialize)]
    struct Strict {
        id: String,
        key: String,
        text: Option<u32>,
    }
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            options.failure = Arc::new(RetryThenDeadLetter { attempts: 2, ..Default::default() });
            let dead = stage.log.clone();
            options.dead_letters = Some(Arc::new(move |letter: crate::DeadLetter| {
                let json: serde_json::Value = serde_json::from_slice(&letter.body()).unwrap();
                dead.lock().push(format!("dead {}: {}", json["id"], letter.error));
                Box::pin(async { Ok(()) }) as BoxFuture<Result<(), String>>
            }));
            stage.put(0..4);
            let log = stage.log.clone();
            let running = stage
                .start(options, move |batch: Batch| {
                    let log = log.clone();
                    async move {
                        if ids(&batch).contains('1') {
                            panic!("one is too much");
                        }
                        // The other items have a string where the type has a number.
                        let items = batch.parse::<Strict>()?;
                        log.lock().extend(
                            items
                                .into_iter()
                                .map(|item| format!("{}{}{:?}", item.id, item.key, item.text)),
                        );
                        Ok(Ack::Done)
                    }
                })
                .await;
            stage.sleep(60).await;
            let mut log = stage.log();
            log.sort();
            assert_eq!(log.len(), 4, "{log:?}");
            assert!(log.iter().all(|line| line.starts_with("dead")));
            assert!(log[1].contains("panicked: one is too much"), "{log:?}");
            assert!(log[0].contains("cannot be decoded"), "{log:?}");
            assert_eq!(stage.stored(), Some(4));
            running.stop().await;
        })
    });
}

#[test]
fn a_handler_that_takes_too_long_is_tried_again() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            options.handler_timeout = Some(Duration::from_secs(2));
            stage.put(0..1);
            let (log, runtime) = (stage.log.clone(), stage.runtime.clone());
            let running = stage
                .start(options, move |batch: Batch| {
                    let (log, runtime) = (log.clone(), runtime.clone());
                    async move {
                        log.lock().push(batch.context.delivery_attempt().to_string());
                        let seconds = if batch.context.is_redelivery() { 1 } else { 60 };
                        runtime.sleep(Duration::from_secs(seconds)).await;
                        Ok(Ack::Done)
                    }
                })
                .await;
            stage.sleep(20).await;
            assert_eq!(stage.log(), ["1", "2"]);
            running.stop().await;
        })
    });
}

#[test]
fn all_versions_and_deletes_are_delivered_and_the_mode_cannot_be_mixed() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            (options.mode, options.start) = (FeedMode::AllVersionsAndDeletes, Start::Now);
            let log = stage.log.clone();
            let running = stage
                .start(options, move |batch: Batch| {
                    for change in batch.changes.iter() {
                        let json: serde_json::Value = change.parse().unwrap();
                        let kind = json["metadata"]["operationType"].as_str().unwrap().to_owned();
                        log.lock().push(kind);
                    }
                    async { Ok(Ack::Done) }
                })
                .await;
            stage.sleep(5).await;
            stage.put(0..1);
            stage.put(0..1);
            stage.feed.delete("k", "0");
            stage.sleep(10).await;
            assert_eq!(stage.log(), ["create", "replace", "delete"]);
            running.stop().await;
            let other = Processor::builder()
                .source(stage.feed.clone())
                .leases(stage.leases.clone())
                .handler(|_: Batch| async { Ok(Ack::Done) })
                .options(stage.options())
                .runtime(stage.runtime.clone())
                .build()
                .unwrap();
            let refused = other.start().await.unwrap_err();
            assert!(matches!(refused, crate::StartError::ForeignLeases(_)), "{refused}");
        })
    });
}

#[test]
fn starting_now_misses_nothing_between_the_start_and_the_first_batch() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..3);
            let options = Options { start: Start::Now, ..Options::native("p") };
            let failing = |_: Batch| async { Err(HandlerError::new("no")) };
            let running = stage.start(options.clone(), failing).await;
            stage.sleep(5).await;
            assert_eq!(stage.stored(), Some(3), "the position of Now was fixed at the start");
            stage.put(3..5);
            stage.sleep(5).await;
            running.stop().await;
            stage.put(5..6);
            let log = stage.log.clone();
            let running = stage
                .start(options, move |batch: Batch| {
                    log.lock().push(ids(&batch));
                    async { Ok(Ack::Done) }
                })
                .await;
            stage.sleep(20).await;
            assert_eq!(stage.log().join(","), "3,4,5");
            running.stop().await;
        })
    });
}

#[test]
fn a_batch_says_how_the_feed_was_read_for_it() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            (options.items_max, options.batch_items_max) = (Some(3), 4);
            options.batch_wait = Duration::from_secs(3);
            stage.put(0..7);
            let log = stage.log.clone();
            let running = stage
                .start(options, move |batch: Batch| {
                    for read in batch.context.diagnostics() {
                        let (changes, charge) = (read.changes, read.charge);
                        let to = read.position.lsn().map(headwater_model::Lsn::get);
                        log.lock()
                            .push(format!("{} of {changes} to {to:?}, {charge}", ids(&batch)));
                    }
                    async { Ok(Ack::Done) }
                })
                .await;
            stage.sleep(20).await;
            let expected = [
                "0,1,2,3 of 3 to Some(3), 1",
                "0,1,2,3 of 3 to Some(6), 1",
                "4,5 of 3 to Some(6), 1",
                "6 of 1 to Some(7), 1",
            ];
            assert_eq!(stage.log(), expected, "each batch lists exactly its own pages");
            running.stop().await;
        })
    });
}

#[test]
fn f14_a_host_spends_no_more_on_reading_than_it_may() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            // Every page of this feed has a charge of 1.
            (options.items_max, options.charge_per_second_max) = (Some(1), Some(2.0));
            stage.put(0..40);
            let log = stage.log.clone();
            let running = stage
                .start(options, move |batch: Batch| {
                    log.lock().push(ids(&batch));
                    async { Ok(Ack::Done) }
                })
                .await;
            stage.sleep(10).await;
            let handled = stage.log().len();
            assert!((10..=22).contains(&handled), "{handled} pages in ten seconds");
            stage.sleep(20).await;
            assert_eq!(stage.log().len(), 40, "all of them eventually");
            running.stop().await;
        })
    });
}

#[test]
fn a_lease_that_does_not_get_on_says_why() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut options = stage.options();
            options.stall_after = Duration::from_secs(10);
            options.batch_items_max = 1;
            let told = stage.log.clone();
            let options = options.on_event(move |event: &Event| {
                if let Event::Stalled { cause, .. } = event {
                    told.lock().push(format!("{cause:?}"));
                }
            });
            let (runtime, failed) = (stage.runtime.clone(), Arc::new(Mutex::new(0)));
            stage.put(0..2);
            let running = stage
                .start(options, move |batch: Batch| {
                    let (runtime, failed) = (runtime.clone(), failed.clone());
                    async move {
                        if ids(&batch) == "0" {
                            runtime.sleep(Duration::from_secs(15)).await;
                            return Ok(Ack::Done);
                        }
                        *failed.lock() += 1;
                        match *failed.lock() {
                            ..9 => Err(HandlerError::new("no")),
                            _ => Ok(Ack::Done),
                        }
                    }
                })
                .await;
            stage.sleep(120).await;
            assert_eq!(stage.log(), ["Unanswered", "Failing(\"no\")"]);
            running.stop().await;
        })
    });
}

#[test]
fn leases_made_through_another_endpoint_are_noticed() {
    Stage::play(|stage| {
        Box::pin(async move {
            let make = |found: &Arc<Mutex<Vec<String>>>| {
                let (options, told) = (stage.options(), found.clone());
                options.on_event(move |event: &Event| {
                    if let Event::SuspiciousNamespace { found } = event {
                        told.lock().push(found.clone());
                    }
                })
            };
            let found = Arc::default();
            let handler = |_: Batch| async { Ok(Ack::Done) };
            stage.start(make(&found), handler).await.stop().await;
            assert_eq!(*found.lock(), Vec::<String>::new(), "a first start reports nothing");
            // Simulate a first run under another name of the same endpoint.
            let marker = |stored: &Stored| stored.key.id.ends_with(".info");
            let mut documents = stage.leases.export();
            documents.retain(marker);
            let old = documents[0].key.id.clone();
            let host = stage.feed.identity().await.unwrap().host;
            documents[0].key.id = old.replacen(&host, "elsewhere", 1);
            assert_ne!(documents[0].key.id, old);
            let expected = documents[0].key.id.trim_end_matches(".info").to_owned();
            stage.leases.set_gone(true);
            stage.leases.set_gone(false);
            stage.leases.import(documents);
            stage.start(make(&found), handler).await.stop().await;
            assert_eq!(*found.lock(), [expected]);
        })
    });
}
