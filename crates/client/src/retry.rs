//! Retry policy: what to retry, after what delay, and how often. Reads no clock.
//!
//! | response | retried | after |
//! |---|---|---|
//! | 429 throttled | always | what the server says, up to 30 s in total |
//! | 449 conflict with a concurrent write | always | 10 ms, doubling |
//! | 503 unavailable, no connection | always: nothing was executed | 100 ms, doubling, with jitter; in the next region if there is one |
//! | the connection broke, 408, timeout | reads only: a write may have happened | the same |
//! | 404/1002 behind this session | reads | 5 ms, doubling |
//! | 403/3 wrong region | always | at once, after looking up the regions |
//! | 410 range gone | never: only the caller knows where its ranges continue | |

use crate::error::{ClientError, Reason};
use std::time::Duration;

/// How often and how long a client retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Retries of a throttled request.
    pub throttled_max: u32,
    /// Retries for any other reason.
    pub others_max: u32,
    /// The most time that all waits of one request may take.
    pub wait_max: Duration,
    /// The first wait when a server cannot be reached; each further one doubles it.
    pub first_wait: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            throttled_max: 9,
            others_max: 5,
            wait_max: Duration::from_secs(30),
            first_wait: Duration::from_millis(100),
        }
    }
}

impl RetryPolicy {
    /// A policy without retries.
    #[must_use]
    pub fn never() -> RetryPolicy {
        RetryPolicy { throttled_max: 0, others_max: 0, ..RetryPolicy::default() }
    }
}

/// The wait and the route of the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) wait: Duration,
    pub(crate) route: Route,
}

/// The endpoint of the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Same,
    /// The next region, if there is one.
    Next,
    /// The endpoint that the account document names after reading it again.
    LookUp,
}

/// The attempts of one request so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    throttled: u32,
    others: u32,
    waited: Duration,
}

impl Attempts {
    /// Decides whether and how to retry. `random` spreads the waits of many clients.
    pub(crate) fn next(
        &mut self,
        policy: &RetryPolicy,
        error: &ClientError,
        reads: bool,
        random: u64,
    ) -> Option<Again> {
        let again = self.judge(policy, error, reads, random)?;
        self.waited += again.wait;
        (self.waited <= policy.wait_max).then_some(again)
    }

    fn judge(
        &mut self,
        policy: &RetryPolicy,
        error: &ClientError,
        reads: bool,
        random: u64,
    ) -> Option<Again> {
        if error.reason() == Some(Reason::Throttled) {
            self.throttled += 1;
            let asked = match error {
                ClientError::Refused(refusal) => refusal.retry_after,
                _ => None,
            };
            let wait = asked.unwrap_or(policy.first_wait);
            let again = Again { wait, route: Route::Same };
            return (self.throttled <= policy.throttled_max).then_some(again);
        }
        let (first, route) = match (error, error.reason()) {
            (_, Some(Reason::Clashed)) => (Duration::from_millis(10), Route::Same),
            (_, Some(Reason::WrongRegion)) => (Duration::ZERO, Route::LookUp),
            (_, Some(Reason::SessionBehind)) if reads => (Duration::from_millis(5), Route::Same),
            (_, Some(Reason::Unavailable)) | (ClientError::Unreachable { .. }, _) => {
                (policy.first_wait, Route::Next)
            }
            (_, Some(Reason::ServerTimeout))
            | (ClientError::Broken { .. } | ClientError::TimedOut { .. }, _)
                if reads =>
            {
                (policy.first_wait, Route::Next)
            }
            _ => return None,
        };
        self.others += 1;
        let doubled = first.saturating_mul(1 << self.others.saturating_sub(1).min(16));
        let again = Again { wait: jittered(doubled, random), route };
        (self.others <= policy.others_max).then_some(again)
    }
}

/// A random wait between half of `wait` and all of it.
fn jittered(wait: Duration, random: u64) -> Duration {
    let half = wait / 2;
    let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
    half + Duration::from_micros(if micros == 0 { 0 } else { random % (micros + 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    fn refused(reason: Reason, retry_after_ms: Option<u64>) -> ClientError {
        let retry_after = retry_after_ms.map(Duration::from_millis);
        Refusal { retry_after, ..Refusal::new(reason, b"") }.into()
    }

    fn broken() -> ClientError {
        ClientError::Broken { endpoint: String::new(), source: "reset".into() }
    }

    fn unreachable() -> ClientError {
        ClientError::Unreachable { endpoint: String::new(), source: "refused".into() }
    }

    /// How often a repeated error is retried.
    fn retries(error: &ClientError, reads: bool) -> usize {
        let mut attempts = Attempts::default();
        let policy = RetryPolicy::default();
        (0..).take_while(|n| attempts.next(&policy, error, reads, *n).is_some()).count()
    }

    #[test]
    fn what_is_tried_again_and_how_often() {
        for (error, for_reads, for_writes) in [
            (refused(Reason::Throttled, Some(1)), 9, 9),
            (refused(Reason::Clashed, None), 5, 5),
            (refused(Reason::Unavailable, None), 5, 5),
            (unreachable(), 5, 5),
            (refused(Reason::ServerTimeout, None), 5, 0),
            (broken(), 5, 0),
            (refused(Reason::SessionBehind, None), 5, 0),
            (refused(Reason::WrongRegion, None), 5, 5),
            (refused(Reason::RangeGone, None), 0, 0),
            (refused(Reason::PreconditionFailed, None), 0, 0),
            (refused(Reason::AlreadyExists, None), 0, 0),
            (refused(Reason::Unauthorized, None), 0, 0),
            (refused(Reason::ServerFault, None), 0, 0),
        ] {
            assert_eq!(retries(&error, true), for_reads, "read: {error:?}");
            assert_eq!(retries(&error, false), for_writes, "write: {error:?}");
        }
    }

    #[test]
    fn the_servers_delay_is_kept_and_all_waiting_is_bounded() {
        let policy = RetryPolicy::default();
        let mut attempts = Attempts::default();
        let again = attempts.next(&policy, &refused(Reason::Throttled, Some(1234)), true, 7);
        assert_eq!(again.map(|again| again.wait), Some(Duration::from_millis(1234)));
        let mut attempts = Attempts::default();
        let slow = refused(Reason::Throttled, Some(12_000));
        assert!(attempts.next(&policy, &slow, true, 0).is_some());
        assert!(attempts.next(&policy, &slow, true, 0).is_some());
        assert_eq!(attempts.next(&policy, &slow, true, 0), None, "beyond 30 s in all");
        assert_eq!(Attempts::default().next(&RetryPolicy::never(), &slow, true, 0), None);
    }

    #[test]
    fn waits_double_and_differ() {
        let policy = RetryPolicy::default();
        let mut attempts = Attempts::default();
        let waits: Vec<_> = [0, u64::MAX / 3, 0, 0]
            .iter()
            .filter_map(|random| attempts.next(&policy, &unreachable(), true, *random))
            .map(|again| again.wait.as_millis())
            .collect();
        assert_eq!(waits[0], 50);
        assert!((100..=200).contains(&waits[1]), "{waits:?}");
        assert_eq!(waits[2..], [200, 400]);
    }
}
