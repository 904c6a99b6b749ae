//! Failure policies: what happens when a handler fails. Pure decisions, no clock.
//!
//! A stored position never passes a change that was neither handled nor dead-lettered, unless a policy skips it.
//! By default a batch is retried forever on the same host with exponential backoff: nothing is lost and leases do not
//! move. [`RetryThenDeadLetter`] isolates the poison change and dead-letters it.

use std::fmt;
use std::time::Duration;

/// The error of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    message: String,
    blamed: Vec<usize>,
    kind: FailureKind,
}

/// How a handler failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The handler returned an error.
    Error,
    /// The handler panicked.
    Panic,
    /// The handler exceeded its timeout.
    Timeout,
    /// A change could not be deserialized into the handler's type.
    Decode,
}

impl HandlerError {
    /// Creates an error for the batch as a whole.
    #[must_use]
    pub fn new(message: impl fmt::Display) -> HandlerError {
        HandlerError::of_kind(FailureKind::Error, message)
    }

    /// Creates an error for the changes at these indexes of the batch; the others were handled.
    #[must_use]
    pub fn of_items(message: impl fmt::Display, blamed: Vec<usize>) -> HandlerError {
        HandlerError { blamed, ..HandlerError::new(message) }
    }

    pub(crate) fn of_kind(kind: FailureKind, message: impl fmt::Display) -> HandlerError {
        HandlerError { message: message.to_string(), blamed: Vec::new(), kind }
    }

    pub(crate) fn with_kind(self, kind: FailureKind) -> HandlerError {
        HandlerError { kind, ..self }
    }

    /// Returns the same error for the batch as a whole.
    pub(crate) fn without_blame(self) -> HandlerError {
        HandlerError { blamed: Vec::new(), ..self }
    }

    /// Returns the indexes of the changes to blame; empty if unknown.
    #[must_use]
    pub fn blamed(&self) -> &[usize] {
        &self.blamed
    }

    /// Returns how the handler failed.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Converts the errors that `?` meets in a handler: errors, boxed errors, `anyhow::Error`, strings.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> HandlerError {
        let error = error.into();
        let mut message = error.to_string();
        let mut cause = error.source();
        // Limited, because a chain of causes may be cyclic.
        for _ in 0..16 {
            let Some(next) = cause else { break };
            message.push_str(": ");
            message.push_str(&next.to_string());
            cause = next.source();
        }
        HandlerError::new(message)
    }
}

/// The input of a failure policy.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// The number of this attempt, including attempts of other hosts.
    pub attempt: u32,
    /// The number of this attempt since this host acquired the lease.
    pub attempt_here: u32,
    /// Whether this host is stopping. Then nothing is retried here, and unhandled changes are delivered again on
    /// another host.
    pub stopping: bool,
    /// Number of changes given to the handler.
    pub items: usize,
    /// The handler's error.
    pub error: &'a HandlerError,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Retries the same changes after a pause.
    Retry {
        /// How long to wait.
        after: Duration,
    },
    /// Retries each half separately, to isolate the change to blame.
    Bisect,
    /// Moves the changes to blame to the dead letters, then continues after them.
    DeadLetter,
    /// Continues as if the changes had been handled. Loses them.
    Skip,
    /// Stops work on this lease for all hosts, until an operator resumes it.
    HaltLease,
    /// Stops this host.
    StopProcessor,
}

/// Decides what to do after failures.
pub trait FailurePolicy: Send + Sync + 'static {
    /// Returns the action for one failure.
    fn decide(&self, failure: &Failure<'_>) -> Action;
}

/// Exponential backoff: pauses that double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// Returns the pause after the given number of attempts, at least one.
    #[must_use]
    pub fn after(&self, attempts: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << attempts.saturating_sub(1).min(30));
        doubled.min(self.longest)
    }

    /// Returns the pause with jitter: between half and all of it.
    #[must_use]
    pub fn jittered(&self, attempts: u32, random: u64) -> Duration {
        let half = self.after(attempts) / 2;
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half + Duration::from_micros(random % micros.max(1))
    }
}

/// Retries forever; the default policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryForever(
    /// The pauses between attempts.
    pub Backoff,
);

impl FailurePolicy for RetryForever {
    fn decide(&self, failure: &Failure<'_>) -> Action {
        Action::Retry { after: self.0.after(failure.attempt) }
    }
}

/// Retries a few times, then isolates the change to blame and dead-letters it.
#[derive(Clone, Copy, Debug)]
pub struct RetryThenDeadLetter {
    /// Attempts before a batch is bisected or dead-lettered.
    pub attempts: u32,
    /// Whether to isolate the change to blame; otherwise the whole batch is dead-lettered.
    pub bisect: bool,
    /// The pauses between attempts.
    pub backoff: Backoff,
}

impl Default for RetryThenDeadLetter {
    fn default() -> RetryThenDeadLetter {
        RetryThenDeadLetter { attempts: 5, bisect: true, backoff: Backoff::default() }
    }
}

impl FailurePolicy for RetryThenDeadLetter {
    fn decide(&self, failure: &Failure<'_>) -> Action {
        let is_known = !failure.error.blamed().is_empty();
        // A change that cannot be decoded stays so; a retry is pointless.
        let is_hopeless = failure.error.kind() == FailureKind::Decode && is_known;
        if failure.attempt < self.attempts && !is_hopeless {
            Action::Retry { after: self.backoff.after(failure.attempt) }
        } else if self.bisect && failure.items > 1 && !is_known {
            Action::Bisect
        } else {
            Action::DeadLetter
        }
    }
}

/// Retries a few times, then halts the lease for all hosts.
#[derive(Clone, Copy, Debug)]
pub struct RetryThenHalt {
    /// The number of attempts.
    pub attempts: u32,
    /// The pauses between attempts.
    pub backoff: Backoff,
}

impl FailurePolicy for RetryThenHalt {
    fn decide(&self, failure: &Failure<'_>) -> Action {
        if failure.attempt < self.attempts {
            Action::Retry { after: self.backoff.after(failure.attempt) }
        } else {
            Action::HaltLease
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(
        policy: &impl FailurePolicy,
        attempt: u32,
        items: usize,
        error: &HandlerError,
    ) -> Action {
        let stopping = false;
        policy.decide(&Failure { attempt, attempt_here: attempt, stopping, items, error })
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let backoff = Backoff::default();
        let millis = |attempts| backoff.after(attempts).as_millis();
        assert_eq!([millis(1), millis(2), millis(3), millis(99)], [200, 400, 800, 30_000]);
        for random in [0, 1, u64::MAX / 2, u64::MAX] {
            let spread = backoff.jittered(3, random).as_millis();
            assert!((400..=800).contains(&spread), "{spread}");
        }
    }

    #[test]
    fn the_default_never_gives_up() {
        let error = HandlerError::new("no");
        for attempt in [1, 10, 1_000_000] {
            let action = decide(&RetryForever::default(), attempt, 5, &error);
            assert!(matches!(action, Action::Retry { .. }));
        }
    }

    #[test]
    fn a_poison_change_is_isolated_and_then_dead_lettered() {
        let policy = RetryThenDeadLetter::default();
        let whole = HandlerError::new("no");
        assert!(matches!(decide(&policy, 4, 8, &whole), Action::Retry { .. }));
        assert_eq!(decide(&policy, 5, 8, &whole), Action::Bisect);
        assert_eq!(decide(&policy, 5, 1, &whole), Action::DeadLetter);
        let known = HandlerError::of_items("no", vec![3]);
        assert!(matches!(decide(&policy, 1, 8, &known), Action::Retry { .. }));
        assert_eq!(decide(&policy, 5, 8, &known), Action::DeadLetter);
        let garbled = known.with_kind(FailureKind::Decode);
        assert_eq!(decide(&policy, 1, 8, &garbled), Action::DeadLetter);
        let halt = RetryThenHalt { attempts: 2, backoff: Backoff::default() };
        assert_eq!(decide(&halt, 2, 8, &whole), Action::HaltLease);
    }

    #[test]
    fn an_error_brings_its_causes_along() {
        #[derive(Debug, thiserror::Error)]
        #[error("the sink refused")]
        struct Outer(#[source] std::io::Error);
        let error = HandlerError::from(Outer(std::io::Error::other("disk full")));
        assert_eq!(error.to_string(), "the sink refused: disk full");
        let boxed: Box<dyn std::error::Error + Send + Sync> =
            Box::new(Outer(std::io::Error::other("disk full")));
        assert_eq!(HandlerError::from(boxed).to_string(), "the sink refused: disk full");
    }

    #[test]
    fn a_handler_may_fail_with_an_error_of_any_type() {
        fn boxed() -> Result<(), HandlerError> {
            let failed: Result<(), Box<dyn std::error::Error + Send + Sync>> = Err("boxed".into());
            Ok(failed?)
        }
        fn text() -> Result<(), HandlerError> {
            Err("text")?
        }
        fn own() -> Result<(), HandlerError> {
            Err(HandlerError::of_items("own", vec![1]))?
        }
        fn any() -> Result<(), HandlerError> {
            Err(anyhow::anyhow!("disk full").context("the sink refused"))?
        }
        assert_eq!(any().unwrap_err().to_string(), "the sink refused: disk full");
        assert_eq!(boxed().unwrap_err().to_string(), "boxed");
        assert_eq!(text().unwrap_err().to_string(), "text");
        assert_eq!(own().unwrap_err().blamed(), [1]);
    }
}
