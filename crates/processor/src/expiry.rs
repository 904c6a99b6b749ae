//! Failure detection: whether an owner has expired, without comparing clocks of different machines.
//!
//! ```text
//! owner      sends ──► committed             stops on its own: sent + expiration − margin
//!              │            │                          ▼
//!              ├────────────┼──────────────────────────┤
//! observer                  sees it first ─────────────────────── expired: seen + expiration
//! ```
//!
//! An observer counts on its own clock from when it first saw a version. The owner counts on its own clock from
//! before it sent that version. So the owner stops first, provided both clocks run at about the same speed; their
//! absolute values do not matter. A second rule compares two times of the same service, so that a restart of all
//! hosts is fast.

use std::collections::BTreeMap;
use std::time::Duration;

/// Tolerance between two times of the same service: rounding, and the clocks of its machines.
pub const SERVER_CLOCK_ERROR: Duration = Duration::from_secs(5);

/// How long before its expiration an owner stops on its own.
#[must_use]
pub fn margin(expiration: Duration) -> Duration {
    (expiration / 5).max(Duration::from_secs(2)).min(expiration / 2)
}

/// Returns the time at which an owner must stop, given when it sent its last confirmed write.
#[must_use]
pub fn deadline(sent: Duration, expiration: Duration) -> Duration {
    sent + expiration.saturating_sub(margin(expiration))
}

/// A version of a document, as a listing showed it.
#[derive(Clone, Copy, Debug)]
pub struct Sign<'a> {
    /// The id of the lease or member.
    pub of: &'a str,
    /// Its etag, which changes with every write.
    pub version: &'a str,
    /// When it was written, in seconds, according to the service.
    pub written: Option<u64>,
}

/// When each current version was first seen, on this host's clock.
#[derive(Debug, Default)]
pub struct Observations {
    seen: BTreeMap<String, (String, Duration)>,
}

impl Observations {
    /// Records a version. `now` is when the answer arrived, on a monotonic clock.
    pub fn note(&mut self, sign: Sign<'_>, now: Duration) {
        match self.seen.get_mut(sign.of) {
            Some((version, _)) if version == sign.version => {}
            Some(known) => *known = (sign.version.to_owned(), now),
            None => {
                self.seen.insert(sign.of.to_owned(), (sign.version.to_owned(), now));
            }
        }
    }

    /// Forgets documents that are no longer listed.
    pub fn keep(&mut self, listed: impl Fn(&str) -> bool) {
        self.seen.retain(|of, _| listed(of));
    }

    /// Returns how long the current version has been observed.
    #[must_use]
    pub fn unchanged_for(&self, of: &str, now: Duration) -> Option<Duration> {
        self.seen.get(of).map(|(_, since)| now.saturating_sub(*since))
    }

    /// Whether the document has not been renewed for the expiration. `server_now` is the `Date` of the listing,
    /// in seconds.
    #[must_use]
    pub fn is_expired(
        &self,
        sign: Sign<'_>,
        now: Duration,
        server_now: Option<u64>,
        expiration: Duration,
    ) -> bool {
        let watched = self.seen.get(sign.of).filter(|(version, _)| version == sign.version);
        let by_watching =
            watched.is_some_and(|(_, since)| now.saturating_sub(*since) >= expiration);
        let age = server_now.zip(sign.written).map(|(now, written)| now.saturating_sub(written));
        let by_age = age.is_some_and(|age| {
            Duration::from_secs(age) >= expiration.saturating_add(SERVER_CLOCK_ERROR)
        });
        by_watching || by_age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPIRATION: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn sign<'a>(version: &'a str, written: Option<u64>) -> Sign<'a> {
        Sign { of: "lease", version, written }
    }

    #[test]
    fn who_writes_stays_alive_and_who_does_not_expires_on_our_clock() {
        let mut seen = Observations::default();
        seen.note(sign("1", None), at(100));
        assert!(!seen.is_expired(sign("1", None), at(114), None, EXPIRATION));
        assert!(seen.is_expired(sign("1", None), at(115), None, EXPIRATION));
        seen.note(sign("2", None), at(116));
        assert!(!seen.is_expired(sign("2", None), at(130), None, EXPIRATION));
        assert!(!seen.is_expired(sign("3", None), at(999), None, EXPIRATION), "never seen before");
        assert_eq!(seen.unchanged_for("lease", at(120)), Some(at(4)));
        seen.keep(|_| false);
        assert_eq!(seen.unchanged_for("lease", at(120)), None);
    }

    #[test]
    fn what_the_service_calls_old_enough_is_expired_at_once() {
        let mut seen = Observations::default();
        seen.note(sign("1", Some(1000)), at(0));
        assert!(!seen.is_expired(sign("1", Some(1000)), at(0), Some(1019), EXPIRATION));
        assert!(seen.is_expired(sign("1", Some(1000)), at(0), Some(1020), EXPIRATION));
        assert!(
            !seen.is_expired(sign("1", Some(2000)), at(0), Some(1020), EXPIRATION),
            "the future"
        );
    }

    #[test]
    fn an_owner_stops_before_others_may_act_if_clocks_run_alike() {
        assert_eq!(deadline(at(0), EXPIRATION), at(12));
        assert_eq!(deadline(at(0), at(60)), at(48));
        assert_eq!(deadline(at(0), at(2)), at(1), "short ones keep half");
        let owner_slow = deadline(at(0), EXPIRATION).as_secs_f64() * 1.2;
        assert!(owner_slow < EXPIRATION.as_secs_f64());
    }
}
