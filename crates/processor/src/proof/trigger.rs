//! How a trigger treats failing functions, and hosts that stop or crash, in both modes.

use super::stage::{Stage, ids};
use crate::handler::Batch;
use crate::trigger::{Mode, Retry, TriggerHost, TriggerSettings};
use crate::{DeadLetter, Event, HandlerError, Start};
use headwater_runtime::{BoxFuture, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const COMPAT: Mode = Mode::Compat { drain: false };
const DRAINING: Mode = Mode::Compat { drain: true };

/// A function that logs its calls and fails for a given change.
#[derive(Clone)]
struct Function {
    stage: Stage,
    runtime: Runtime,
    /// The change it fails for, until it is repaired.
    poison: &'static str,
    repaired: Arc<AtomicBool>,
    /// How long a call takes.
    seconds: u64,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Function {
    fn new(stage: &Stage, poison: &'static str) -> Function {
        let (repaired, told) = (Arc::default(), Arc::default());
        let runtime = stage.runtime.clone();
        Function { stage: stage.clone(), runtime, poison, repaired, seconds: 0, told }
    }

    async fn call(self, batch: Batch) -> Result<(), HandlerError> {
        self.stage.log.lock().push(ids(&batch));
        self.runtime.sleep(Duration::from_secs(self.seconds)).await;
        let is_poisoned = ids(&batch).split(',').any(|id| id == self.poison);
        match is_poisoned && !self.repaired.load(Ordering::SeqCst) {
            // The error blames one change. Compat mode must ignore that.
            true => Err(HandlerError::of_items("it throws", vec![0])),
            false => Ok(()),
        }
    }

    fn host(&self, name: &str, mode: Mode, settings: TriggerSettings) -> TriggerHost {
        let (function, told) = (self.clone(), self.told.clone());
        TriggerHost::builder(settings)
            .source(self.stage.feed.clone())
            .leases(self.stage.leases.clone())
            .function(name, move |batch| function.clone().call(batch))
            .mode(mode)
            .tune(move |options| {
                options.on_event(move |event: &Event| told.lock().push(event.clone()))
            })
            .runtime(self.runtime.clone())
            .build()
            .unwrap()
    }

    fn skipped(&self) -> usize {
        let skipped = |event: &Event| match event {
            Event::Skipped { changes, .. } => *changes,
            _ => 0,
        };
        self.told.lock().iter().map(skipped).sum()
    }

    fn strangers(&self) -> Vec<String> {
        let told = self.told.lock();
        let name = |event: &Event| match event {
            Event::UnknownMember { name, leases } => Some(format!("{name} with {leases}")),
            _ => None,
        };
        told.iter().filter_map(name).collect()
    }
}

/// Settings with one change per call, from the beginning.
fn settings() -> TriggerSettings {
    let mut settings = TriggerSettings::new("shop", "orders");
    settings.start = Start::Beginning;
    settings.items_max = Some(1);
    settings
}

fn retrying(retry: Retry) -> TriggerSettings {
    TriggerSettings { retry: Some(retry), ..settings() }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn in_compat_a_batch_whose_function_threw_counts_as_handled_and_is_lost() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..3);
            let function = Function::new(&stage, "1");
            let host = function.host("f", COMPAT, settings());
            let running = host.start().await.unwrap();
            stage.sleep(20).await;
            assert_eq!(stage.log(), ["0", "1", "2"], "once each, failed or not");
            assert_eq!((stage.stored(), function.skipped()), (Some(3), 1));
            running.stop().await;
            let running = host.start().await.unwrap();
            stage.sleep(120).await;
            assert_eq!(stage.log().len(), 3, "skipped changes are not delivered again");
            running.stop().await;
        })
    });
}

#[test]
fn in_safe_nothing_passes_a_batch_whose_function_throws() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..3);
            let function = Function::new(&stage, "1");
            let host = function.host("f", Mode::default(), settings());
            let running = host.start().await.unwrap();
            stage.sleep(3600).await;
            let log = stage.log();
            assert!(log.len() > 100 && log[0] == "0", "{log:?}");
            assert!(log[1..].iter().all(|ids| ids == "1"), "{log:?}");
            assert_eq!((stage.stored(), function.skipped()), (Some(1), 0));
            // The same holds after a restart.
            running.stop().await;
            let running = host.start().await.unwrap();
            stage.sleep(120).await;
            assert_eq!(stage.stored(), Some(1));
            function.repaired.store(true, Ordering::SeqCst);
            stage.sleep(60).await;
            assert_eq!(stage.log().last().map(String::as_str), Some("2"));
            assert_eq!((stage.stored(), function.skipped()), (Some(3), 0));
            running.stop().await;
        })
    });
}

#[test]
fn in_safe_what_fails_behind_the_last_retry_is_put_away_and_the_rest_goes_on() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..3);
            let function = Function::new(&stage, "1");
            let letters: Arc<Mutex<Vec<u64>>> = Arc::default();
            let put = letters.clone();
            let settings = retrying(Retry::fixed_delay(Some(2), seconds(1)));
            let inner = function.clone();
            let host = TriggerHost::builder(settings)
                .source(stage.feed.clone())
                .leases(stage.leases.clone())
                .function("f", move |batch| inner.clone().call(batch))
                .dead_letters(move |letter: DeadLetter| {
                    put.lock().extend(letter.lsn);
                    Box::pin(async { Ok(()) }) as BoxFuture<Result<(), String>>
                })
                .runtime(stage.runtime.clone())
                .build()
                .unwrap();
            let running = host.start().await.unwrap();
            stage.sleep(30).await;
            assert_eq!(stage.log(), ["0", "1", "1", "1", "2"]);
            assert_eq!((letters.lock().clone(), stage.stored()), (vec![2], Some(3)));
            running.stop().await;
        })
    });
}

#[test]
fn in_compat_retries_run_the_whole_batch_in_place_and_the_last_one_drops_it() {
    Stage::play(|stage| {
        Box::pin(async move {
            let mut settings = retrying(Retry::fixed_delay(Some(2), seconds(10)));
            settings.items_max = None;
            let function = Function::new(&stage, "1");
            let running = function.host("f", COMPAT, settings).start().await.unwrap();
            stage.sleep(5).await;
            stage.feed.put("k", &[("0", "x"), ("1", "x"), ("2", "x")]);
            stage.sleep(15).await;
            assert_eq!(stage.log(), ["0,1,2"; 2]);
            assert_eq!(
                (stage.stored(), function.skipped()),
                (None, 0),
                "no progress during retries"
            );
            stage.put(3..4);
            stage.sleep(20).await;
            assert_eq!(stage.log(), ["0,1,2", "0,1,2", "0,1,2", "3"]);
            assert_eq!((stage.stored(), function.skipped()), (Some(2), 3));
            let taken = |event: &&Event| matches!(event, Event::Acquired { .. });
            assert_eq!(function.told.lock().iter().filter(taken).count(), 1, "on one host");
            running.stop().await;
        })
    });
}

#[test]
fn in_compat_pauses_of_an_exponential_backoff_double_up_to_the_longest() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..1);
            let retry = Retry::exponential_backoff(Some(4), seconds(1), seconds(4));
            let function = Function::new(&stage, "0");
            let running = function.host("f", COMPAT, retrying(retry)).start().await.unwrap();
            // After pauses of 1, 2, 4 and 4 seconds.
            for (sleep, expected) in [(0, 1), (1, 2), (2, 3), (4, 4), (3, 4), (1, 5), (60, 5)] {
                stage.runtime.sleep(seconds(sleep) + Duration::from_millis(1)).await;
                assert_eq!(stage.log().len(), expected, "{sleep} s later");
            }
            assert_eq!(stage.stored(), Some(1));
            running.stop().await;
        })
    });
}

#[test]
fn in_compat_unlimited_retries_never_drop() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..2);
            let function = Function::new(&stage, "0");
            let settings = retrying(Retry::fixed_delay(None, seconds(10)));
            let running = function.host("f", COMPAT, settings).start().await.unwrap();
            stage.sleep(3600).await;
            assert!(stage.log().len() >= 300, "{}", stage.log().len());
            assert_eq!((stage.stored(), function.skipped()), (None, 0));
            function.repaired.store(true, Ordering::SeqCst);
            stage.sleep(30).await;
            assert_eq!((stage.stored(), function.skipped()), (Some(2), 0));
            running.stop().await;
        })
    });
}

#[test]
fn in_compat_a_crash_in_the_middle_of_retries_brings_the_batch_again_with_all_of_them() {
    Stage::play(|stage| {
        Box::pin(async move {
            stage.put(0..1);
            let mut function = Function::new(&stage, "0");
            let settings = || retrying(Retry::fixed_delay(Some(2), seconds(10)));
            let machine = stage.machine();
            function.runtime = machine.runtime();
            let running = function.host("f", COMPAT, settings()).start().await.unwrap();
            stage.sleep(12).await;
            machine.kill();
            drop(running);
            assert_eq!((stage.log().len(), stage.stored()), (2, None), "one retry is left");
            function.runtime = stage.runtime.clone();
            let running = function.host("f", COMPAT, settings()).start().await.unwrap();
            stage.sleep(50).await;
            assert_eq!(stage.log().len(), 2, "its lease has not expired yet");
            stage.sleep(120).await;
            assert_eq!(stage.log().len(), 5, "the new host counts from zero");
            assert_eq!((stage.stored(), function.skipped()), (Some(1), 1));
            running.stop().await;
        })
    });
}

/// Stops a host while its function runs. Checks what is stored and skipped, and the total number of calls.
fn stop_in_the_middle(
    mode: Mode,
    poison: &'static str,
    stored: Option<u64>,
    skipped: usize,
    calls: usize,
) {
    Stage::play(move |stage| {
        Box::pin(async move {
            stage.put(0..1);
            let function = Function { seconds: 5, ..Function::new(&stage, poison) };
            let host = function.host("f", mode, settings());
            let running = host.start().await.unwrap();
            stage.sleep(2).await;
            assert_eq!(stage.log(), ["0"], "it works");
            let report = running.stop().await;
            assert!(report.stopped.iter().all(|stopped| stopped.orderly), "{report:?}");
            let outcome = (stage.stored(), function.skipped());
            assert_eq!(outcome, (stored, skipped), "{mode:?} {poison}");
            function.repaired.store(true, Ordering::SeqCst);
            let running = host.start().await.unwrap();
            stage.sleep(90).await;
            assert_eq!((stage.log().len(), stage.stored()), (calls, Some(1)), "{mode:?} {poison}");
            running.stop().await;
        })
    });
}

#[test]
fn in_compat_what_ends_while_its_host_stops_counts_only_in_drain_mode() {
    stop_in_the_middle(COMPAT, "none", None, 0, 2);
    stop_in_the_middle(COMPAT, "0", None, 0, 2);
    stop_in_the_middle(DRAINING, "none", Some(1), 0, 1);
    stop_in_the_middle(DRAINING, "0", Some(1), 1, 1);
}

#[test]
fn in_safe_what_succeeds_while_its_host_stops_counts_and_what_throws_comes_again() {
    stop_in_the_middle(Mode::Safe, "none", Some(1), 0, 1);
    stop_in_the_middle(Mode::Safe, "0", None, 0, 2);
}

#[test]
fn every_start_is_an_instance_of_its_own() {
    Stage::play(|stage| {
        Box::pin(async move {
            let host = Function::new(&stage, "none").host("mailer", COMPAT, settings());
            let one = host.start().await.unwrap();
            let first = one.host().name.clone();
            one.stop().await;
            let other = host.start().await.unwrap();
            assert_ne!(other.host().name, first);
            assert!(first.starts_with("mailer.") && first.len() == "mailer.".len() + 36, "{first}");
            other.stop().await;
        })
    });
}

#[test]
fn another_function_on_the_same_leases_is_told_of_at_the_start_and_a_copy_is_not() {
    Stage::play(|stage| {
        Box::pin(async move {
            let first = Function::new(&stage, "none");
            let running = first.host("mailer", Mode::Safe, settings()).start().await.unwrap();
            running.ready().await;
            let owner = running.host().name.clone();
            let copy = Function::new(&stage, "none");
            let second = copy.host("mailer", Mode::Safe, settings()).start().await.unwrap();
            second.stop().await;
            let other = Function::new(&stage, "none");
            let third = other.host("biller", COMPAT, settings()).start().await.unwrap();
            third.stop().await;
            assert_eq!(first.strangers(), Vec::<String>::new());
            assert_eq!(copy.strangers(), Vec::<String>::new());
            assert_eq!(other.strangers(), [format!("{owner} with 1")]);
            // A function with its own prefix shares nothing, and a stopped host is not reported.
            let apart = Function::new(&stage, "none");
            let own = TriggerSettings { prefix: "own".to_owned(), ..settings() };
            apart.host("biller", COMPAT, own).start().await.unwrap().stop().await;
            assert_eq!(apart.strangers(), Vec::<String>::new());
            running.stop().await;
            let late = Function::new(&stage, "none");
            late.host("biller", COMPAT, settings()).start().await.unwrap().stop().await;
            assert_eq!(late.strangers(), Vec::<String>::new());
        })
    });
}
