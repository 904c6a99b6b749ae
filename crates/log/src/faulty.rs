//! Fault injection: a log behind a simulated unreliable network.
//!
//! Requests and answers are lost, delayed, repeated or stale. The log never loses or invents an entry. Code that
//! works on it works on a replicated log.

use crate::PartitionLog;
use crate::entry::{Entry, Group, Tail};
use crate::error::{AppendError, ReadError};
use headwater_model::Lsn;
use headwater_runtime::{BoxFuture, Random};
use parking_lot::Mutex;
use std::sync::Arc;

/// The probability of each fault, in percent of all calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// An append returns a conflict although its slot is free.
    pub false_conflict: u64,
    /// An append is executed, but its answer is lost.
    pub lost_reply: u64,
    /// An append is never delivered.
    pub lost_request: u64,
    /// An append is delivered late, before some later one.
    pub late_request: u64,
    /// An executed append is delivered again later.
    pub repeated_request: u64,
    /// A read returns an earlier state.
    pub stale_read: u64,
    /// A read is not answered.
    pub lost_read: u64,
}

impl Faults {
    /// A very unreliable network with all faults.
    #[must_use]
    pub fn many() -> Faults {
        Faults {
            false_conflict: 10,
            lost_reply: 15,
            lost_request: 10,
            late_request: 10,
            repeated_request: 10,
            stale_read: 15,
            lost_read: 5,
        }
    }
}

/// A [`PartitionLog`] that injects faults in front of another one. Clones share their state.
#[derive(Clone)]
pub struct FaultyLog {
    inner: Arc<dyn PartitionLog>,
    state: Arc<Mutex<State>>,
    faults: Faults,
}

struct State {
    random: Random,
    /// Requests not delivered yet.
    late: Vec<Group>,
    stale_tail: Option<Tail>,
}

enum Fate {
    Arrives,
    FalseConflict,
    LostReply,
    LostRequest,
    LateRequest,
    Repeated,
}

impl FaultyLog {
    /// Puts a simulated unreliable network in front of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn PartitionLog>, faults: Faults, random: Random) -> FaultyLog {
        let state = State { random, late: Vec::new(), stale_tail: None };
        FaultyLog { inner, state: Arc::new(Mutex::new(state)), faults }
    }

    fn fate(&self) -> Fate {
        let mut state = self.state.lock();
        let dice = state.random.below(100);
        let chances = [
            (self.faults.false_conflict, Fate::FalseConflict),
            (self.faults.lost_reply, Fate::LostReply),
            (self.faults.lost_request, Fate::LostRequest),
            (self.faults.late_request, Fate::LateRequest),
            (self.faults.repeated_request, Fate::Repeated),
        ];
        let mut sum = 0;
        for (percent, fate) in chances {
            sum += percent;
            if dice < sum {
                return fate;
            }
        }
        Fate::Arrives
    }

    async fn deliver_late(&self) {
        let due = {
            let mut state = self.state.lock();
            let arrives = state.random.chance(50);
            if arrives { std::mem::take(&mut state.late) } else { Vec::new() }
        };
        for group in due {
            // The sender no longer waits for it; only compare-and-append protects the log.
            let _ = self.inner.append(group).await;
        }
    }
}

impl PartitionLog for FaultyLog {
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>> {
        let log = self.clone();
        Box::pin(async move {
            log.deliver_late().await;
            match log.fate() {
                Fate::Arrives => log.inner.append(group).await,
                Fate::FalseConflict => {
                    let expected = group.after().lsn;
                    Err(AppendError::Conflict { expected, tail: expected })
                }
                Fate::LostReply => {
                    let _ = log.inner.append(group).await;
                    Err(AppendError::Undecided)
                }
                Fate::LostRequest => Err(AppendError::Undecided),
                Fate::LateRequest => {
                    log.state.lock().late.push(group);
                    Err(AppendError::Undecided)
                }
                Fate::Repeated => {
                    let result = log.inner.append(group.clone()).await;
                    // A rejected append is not repeated: its sender may rely on the rejection.
                    if result.is_ok() {
                        log.state.lock().late.push(group);
                    }
                    result
                }
            }
        })
    }

    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>> {
        let log = self.clone();
        Box::pin(async move {
            let (stale, lost) = {
                let mut state = log.state.lock();
                (
                    state.random.chance(log.faults.stale_read),
                    state.random.chance(log.faults.lost_read),
                )
            };
            if lost {
                return Err(ReadError::Unavailable);
            }
            if stale {
                return Ok(None);
            }
            log.inner.entry(lsn).await
        })
    }

    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>> {
        let log = self.clone();
        Box::pin(async move {
            let fresh = log.inner.tail().await?;
            let mut state = log.state.lock();
            let stale = state.random.chance(log.faults.stale_read);
            let answer = state.stale_tail.filter(|_| stale).unwrap_or(fresh);
            state.stale_tail = Some(fresh);
            Ok(answer)
        })
    }
}
