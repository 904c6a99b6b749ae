//! Retry policies of Azure Functions, and what happens after the last retry.
//!
//! ```text
//!                           no policy           limited retries     unlimited (-1)
//! Compat                    skip                skip                retry forever
//! Safe                      retry forever       retry forever       retry forever
//! Safe with dead letters    dead-letter         dead-letter         retry forever
//! ```
//!
//! Pure decisions, no clock. The Functions host counts retries in memory, so a host that takes over starts counting
//! from zero; [`Safe`](super::Mode::Safe) includes the attempts of hosts that vanished.

use super::settings::SettingsError;
use crate::failure::{Action, Backoff, Failure, FailurePolicy, RetryForever, RetryThenDeadLetter};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// How often a failed function is called again with the same changes, and after which pauses (`retry` of a
/// `function.json`; `FixedDelayRetry` and `ExponentialBackoffRetry` in code).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of retries after the first call; `None` means unlimited (`maxRetryCount`, −1 there).
    pub count_max: Option<u32>,
    /// The pauses before the retries.
    pub pauses: Backoff,
}

impl Retry {
    /// Creates a policy with constant pauses (`fixedDelay`).
    #[must_use]
    pub fn fixed_delay(count_max: Option<u32>, delay: Duration) -> Retry {
        Retry { count_max, pauses: Backoff { first: delay, longest: delay } }
    }

    /// Creates a policy whose pauses double, from the first to the longest (`exponentialBackoff`).
    #[must_use]
    pub fn exponential_backoff(
        count_max: Option<u32>,
        minimum: Duration,
        maximum: Duration,
    ) -> Retry {
        Retry { count_max, pauses: Backoff { first: minimum, longest: maximum } }
    }

    /// Parses `retry` of a `function.json`.
    pub(super) fn parse(json: &Value) -> Result<Retry, SettingsError> {
        let text = |name: &'static str| match json.get(name).and_then(Value::as_str) {
            Some(text) => Ok(text),
            None => Err(SettingsError::Missing(name)),
        };
        let span = |name: &'static str| {
            let given = text(name)?;
            time_span(given).ok_or_else(|| SettingsError::Bad {
                name,
                given: given.to_owned(),
                wanted: "hours:minutes:seconds such as 00:00:10",
            })
        };
        let count_max = match json.get("maxRetryCount").map(Value::as_i64) {
            None => return Err(SettingsError::Missing("maxRetryCount")),
            Some(Some(-1)) => None,
            Some(count) => {
                Some(count.and_then(|count| u32::try_from(count).ok()).ok_or_else(|| {
                    SettingsError::Bad {
                        name: "maxRetryCount",
                        given: json["maxRetryCount"].to_string(),
                        wanted: "a number of retries, or -1 for unlimited",
                    }
                })?)
            }
        };
        match text("strategy")? {
            name if name.eq_ignore_ascii_case("fixedDelay") => {
                Ok(Retry::fixed_delay(count_max, span("delayInterval")?))
            }
            name if name.eq_ignore_ascii_case("exponentialBackoff") => {
                let (minimum, maximum) = (span("minimumInterval")?, span("maximumInterval")?);
                match minimum <= maximum {
                    true => Ok(Retry::exponential_backoff(count_max, minimum, maximum)),
                    false => Err(SettingsError::Bad {
                        name: "minimumInterval",
                        given: text("minimumInterval")?.to_owned(),
                        wanted: "no longer than maximumInterval",
                    }),
                }
            }
            other => Err(SettingsError::Bad {
                name: "strategy",
                given: other.to_owned(),
                wanted: "fixedDelay or exponentialBackoff",
            }),
        }
    }
}

/// Parses `[days.]hours:minutes:seconds[.fraction]`, the format of a .NET `TimeSpan`.
fn time_span(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('.') {
        Some((days, clock)) if clock.contains(':') => (days.parse::<u64>().ok()?, clock),
        _ => (0, text),
    };
    let mut parts = clock.split(':');
    let (hours, minutes) = (parts.next()?.parse::<u64>().ok()?, parts.next()?.parse::<u64>().ok()?);
    let seconds: f64 =
        parts.next()?.parse().ok().filter(|seconds| (0.0..60.0).contains(seconds))?;
    if parts.next().is_some() || minutes > 59 {
        return None;
    }
    let whole = days.checked_mul(86_400)?.checked_add(hours.checked_mul(3600)? + minutes * 60)?;
    Duration::from_secs(whole).checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// Behaves like the Functions host: retries if there is a policy, then skips the changes.
pub(super) struct CompatPolicy {
    pub(super) retry: Option<Retry>,
    /// Whether changes that are finished while the host stops count.
    pub(super) drains: bool,
}

impl FailurePolicy for CompatPolicy {
    fn decide(&self, failure: &Failure<'_>) -> Action {
        // A stopping host retries nothing, so this only leaves the changes unhandled.
        if failure.stopping && !self.drains {
            return Action::Retry { after: Duration::ZERO };
        }
        let again = self.retry.filter(|retry| {
            retry.count_max.is_none_or(|count_max| failure.attempt_here <= count_max)
        });
        match again {
            Some(retry) => Action::Retry { after: retry.pauses.after(failure.attempt_here) },
            None => Action::Skip,
        }
    }
}

/// Returns a policy that never skips a change: dead-letters after the last retry if there is a sink, and otherwise
/// retries forever.
pub(super) fn safe_policy(retry: Option<Retry>, puts_away: bool) -> Arc<dyn FailurePolicy> {
    let pauses = retry.map_or_else(Backoff::default, |retry| retry.pauses);
    let usual = RetryThenDeadLetter { backoff: pauses, ..RetryThenDeadLetter::default() };
    match retry {
        _ if !puts_away => Arc::new(RetryForever(pauses)),
        None => Arc::new(usual),
        Some(Retry { count_max: None, .. }) => Arc::new(RetryForever(pauses)),
        Some(Retry { count_max: Some(count), .. }) => {
            Arc::new(RetryThenDeadLetter { attempts: count.saturating_add(1), ..usual })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::HandlerError;

    fn decide(policy: &dyn FailurePolicy, attempt: u32, before: u32, stopping: bool) -> Action {
        let error = HandlerError::new("no");
        let attempt_here = attempt - before;
        policy.decide(&Failure { attempt, attempt_here, stopping, items: 1, error: &error })
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn compat_passes_over_behind_the_last_retry_and_counts_its_own_only() {
        let again = |seconds| Action::Retry { after: SECOND * seconds };
        let fixed = |count| Some(Retry::fixed_delay(count, SECOND));
        let growing = Some(Retry::exponential_backoff(Some(9), SECOND, SECOND * 5));
        for (retry, attempt, before, expected) in [
            (None, 1, 0, Action::Skip),
            (fixed(Some(0)), 1, 0, Action::Skip),
            (fixed(Some(2)), 1, 0, again(1)),
            (fixed(Some(2)), 2, 0, again(1)),
            (fixed(Some(2)), 3, 0, Action::Skip),
            (fixed(Some(2)), 7, 5, again(1)),
            (fixed(Some(2)), 8, 5, Action::Skip),
            (fixed(None), 1_000_000, 0, again(1)),
            (growing, 1, 0, again(1)),
            (growing, 3, 0, again(4)),
            (growing, 9, 0, again(5)),
            (growing, 10, 0, Action::Skip),
        ] {
            let policy = CompatPolicy { retry, drains: true };
            assert_eq!(decide(&policy, attempt, before, false), expected, "{retry:?} {attempt}");
        }
    }

    #[test]
    fn compat_counts_nothing_that_ends_while_the_host_stops_unless_it_drains() {
        let without = CompatPolicy { retry: None, drains: false };
        assert_eq!(decide(&without, 1, 0, true), Action::Retry { after: Duration::ZERO });
        assert_eq!(decide(&without, 1, 0, false), Action::Skip);
        assert_eq!(decide(&CompatPolicy { retry: None, drains: true }, 1, 0, true), Action::Skip);
    }

    #[test]
    fn safe_never_passes_over() {
        let fixed = |count| Some(Retry::fixed_delay(count, SECOND));
        for retry in [None, fixed(Some(0)), fixed(Some(3)), fixed(None)] {
            for puts_away in [false, true] {
                for attempt in [1, 4, 1_000_000] {
                    let action = decide(&*safe_policy(retry, puts_away), attempt, 0, false);
                    let ends = puts_away && retry.is_none_or(|retry| retry.count_max.is_some());
                    assert_ne!(action, Action::Skip);
                    assert!(ends || matches!(action, Action::Retry { .. }), "{retry:?} {attempt}");
                }
            }
        }
        assert_eq!(decide(&*safe_policy(fixed(Some(3)), true), 4, 0, false), Action::DeadLetter);
        assert_eq!(
            decide(&*safe_policy(fixed(Some(3)), true), 3, 0, false),
            Action::Retry { after: SECOND }
        );
    }

    #[test]
    fn retry_policies_are_read_as_function_json_has_them() {
        let parse = |text: &str| Retry::parse(&serde_json::from_str(text).unwrap());
        let fixed = r#"{"strategy":"fixedDelay","maxRetryCount":4,"delayInterval":"00:00:10"}"#;
        assert_eq!(parse(fixed), Ok(Retry::fixed_delay(Some(4), SECOND * 10)));
        let growing = r#"{"strategy":"exponentialBackoff","maxRetryCount":-1,
            "minimumInterval":"00:00:00.5","maximumInterval":"1.00:15:00"}"#;
        let (half, longest) = (SECOND / 2, SECOND * (86_400 + 900));
        assert_eq!(parse(growing), Ok(Retry::exponential_backoff(None, half, longest)));
        for (text, says) in [
            (r#"{"strategy":"fixedDelay","delayInterval":"00:00:10"}"#, "maxRetryCount"),
            (r#"{"strategy":"fixedDelay","maxRetryCount":1}"#, "delayInterval"),
            (r#"{"strategy":"never","maxRetryCount":1}"#, "fixedDelay or exponentialBackoff"),
            (r#"{"strategy":"fixedDelay","maxRetryCount":-2,"delayInterval":"00:00:10"}"#, "-1"),
            (r#"{"strategy":"fixedDelay","maxRetryCount":1,"delayInterval":"10 s"}"#, "00:00:10"),
            (
                r#"{"strategy":"exponentialBackoff","maxRetryCount":1,
                    "minimumInterval":"00:01:00","maximumInterval":"00:00:10"}"#,
                "no longer than maximumInterval",
            ),
        ] {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
