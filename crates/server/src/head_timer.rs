//! The time a connection may take to send a head, measured almost for nothing.
//!
//! Every request ends one wait for a head and begins another, and nearly none of them runs out. So a
//! connection has one clock that goes on ringing at an old deadline, where it is set to the newest; a
//! wait only remembers its own. Nobody is cut off early, and nobody's wait is longer than asked for.

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The waits of one connection, which are one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadTimer(Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>);

/// One wait for a head.
struct Wait {
    timer: HeadTimer,
    until: tokio::time::Instant,
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Wait { timer: self.clone(), until: deadline.into() })
    }
}

impl Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut clock = self.timer.0.lock();
        let clock = clock.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.until)));
        // A wait may also end before the one the clock was set for.
        if self.until < clock.deadline() {
            clock.as_mut().reset(self.until);
        }
        while clock.as_mut().poll(context).is_ready() {
            if clock.deadline() >= self.until {
                return Poll::Ready(());
            }
            clock.as_mut().reset(self.until);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_runtime::Runtime;

    /// Deadlines are given in milliseconds from the beginning; a wait is polled once, as hyper does when
    /// the next head has not come yet.
    #[tokio::test]
    async fn a_wait_ends_when_it_should_whatever_the_clock_was_set_for() {
        let (timer, runtime) = (HeadTimer::default(), Runtime::system());
        let started = timer.now();
        let at = |millis| started + Duration::from_millis(millis);
        for far in [3_600_000, 7_200_000] {
            let mut wait = timer.sleep_until(at(far));
            assert!(runtime.timeout(Duration::ZERO, &mut wait).await.is_none(), "it ended at once");
        }
        // Sooner than the clock was set for, later than that, and one that is over already.
        for end in [20, 60, 30] {
            let wait = timer.sleep_until(at(end));
            let ended = runtime.timeout(Duration::from_secs(60), wait).await;
            assert!(ended.is_some(), "a wait until {end} did not end");
            assert!(timer.now() >= at(end), "a wait until {end} ended early");
        }
        // The clock rings at its old deadline first.
        let mut early = timer.sleep_until(timer.now() + Duration::from_millis(20));
        assert!(runtime.timeout(Duration::ZERO, &mut early).await.is_none());
        drop(early);
        let end = timer.now() + Duration::from_millis(80);
        timer.sleep_until(end).await;
        assert!(timer.now() >= end, "it ended with a wait that was given up");
    }
}
