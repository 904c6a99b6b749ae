//! A log that answers as a log behind a network does: late, wrongly, twice or not at all.
//!
//! It never loses or invents an entry; only its answers are bad. Whatever works on it works on a
//! replicated log.

use crate::PartitionLog;
use crate::entry::{Entry, Group, Tail};
use crate::error::{AppendError, ReadError};
use headwater_model::Lsn;
use headwater_runtime::{BoxFuture, Random};
use parking_lot::Mutex;
use std::sync::Arc;

/// How often each fault happens, in percent of all calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// An append is refused although its slot is free.
    pub false_conflict: u64,
    /// An append is carried out, but its answer is lost.
    pub lost_reply: u64,
    /// An append is lost on the way.
    pub lost_request: u64,
    /// An append is lost on the way, and arrives before some later one.
    pub late_request: u64,
    /// An append that was carried out is carried out again later.
    pub repeated_request: u64,
    /// A read answers with what was true earlier.
    pub stale_read: u64,
    /// A read is not answered.
    pub lost_read: u64,
}

impl Faults {
    /// A thoroughly bad network.
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

/// See the head of this file. Clones are the same log.
#[derive(Clone)]
pub struct FaultyLog {
    inner: Arc<dyn PartitionLog>,
    state: Arc<Mutex<State>>,
    faults: Faults,
}

struct State {
    random: Random,
    /// Requests still on their way.
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
    /// Puts a bad network in front of `inner`.
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
            // Its sender has long given up waiting; only compare-and-append protects the log.
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
                    // One that was refused is not repeated: its sender may count on that.
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
