//! Lag: how far behind a lease is, in transactions and in time.
//!
//! One change is read after the stored position. Its LSN and its time, together with the newest LSN of the partition,
//! determine the lag. Unknown values stay unknown; the .NET and Java libraries return 1 or -1 in that case.

use crate::position::Position;
use headwater_model::Lsn;
use std::time::Duration;

/// The result of one small read after the stored position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The newest LSN of the partition, if the answer contained it.
    pub newest: Option<Lsn>,
    /// The LSN of the first unhandled change; `None` if there is none.
    pub next: Option<Lsn>,
    /// When that change was made, in seconds by the service's clock.
    pub next_at: Option<u64>,
    /// Whether there is an unhandled change.
    pub waiting: bool,
    /// The service's clock, in seconds.
    pub now: Option<u64>,
}

/// The lag of one or several leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Unhandled transactions, including those of other keys; `None` if unknown.
    pub transactions: Option<u64>,
    /// The age of the oldest one; zero if there is none, `None` if unknown.
    pub time: Option<Duration>,
}

impl Lag {
    /// Computes the lag from a read.
    #[must_use]
    pub fn of(look: &Look) -> Lag {
        if !look.waiting {
            return Lag { transactions: Some(0), time: Some(Duration::ZERO) };
        }
        let transactions = look.newest.zip(look.next).map(|(newest, next)| {
            // Includes the first one.
            newest.get().saturating_add(1).saturating_sub(next.get())
        });
        let time = look.now.zip(look.next_at);
        let time = time.map(|(now, made)| Duration::from_secs(now.saturating_sub(made)));
        Lag { transactions, time }
    }

    /// Returns the number that the .NET and Java libraries report: 1 if unknown, so that scalers wake up.
    #[must_use]
    pub fn legacy(&self, position: Option<&Position>) -> u64 {
        match position {
            None => 1,
            Some(_) => self.transactions.unwrap_or(1),
        }
    }

    /// Combines the lags of several leases: the sum and the longest time. Unknown if one of them is.
    #[must_use]
    pub fn total(lags: impl IntoIterator<Item = Lag>) -> Lag {
        let none = Lag { transactions: Some(0), time: Some(Duration::ZERO) };
        lags.into_iter().fold(none, |all, one| Lag {
            transactions: all.transactions.zip(one.transactions).map(|(a, b)| a.saturating_add(b)),
            time: all.time.zip(one.time).map(|(a, b)| a.max(b)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(newest: Option<u64>, next: Option<u64>, at: Option<u64>) -> Look {
        let waiting = true;
        let (newest, next) = (newest.map(Lsn::new), next.map(Lsn::new));
        Look { newest, next, next_at: at, waiting, now: Some(1000) }
    }

    #[test]
    fn lag_counts_from_the_first_change_that_is_not_handled() {
        let lag = Lag::of(&look(Some(28_600), Some(28_536), Some(940)));
        assert_eq!(lag.transactions, Some(65));
        assert_eq!(lag.time, Some(Duration::from_secs(60)));
        let caught_up = Lag::of(&Look { newest: Some(Lsn::new(9)), ..Look::default() });
        assert_eq!(caught_up, Lag { transactions: Some(0), time: Some(Duration::ZERO) });
    }

    #[test]
    fn unknown_values_stay_unknown() {
        let lag = Lag::of(&look(None, Some(7), None));
        assert_eq!(lag, Lag { transactions: None, time: None });
        assert_eq!(lag.legacy(Position::new("\"6\"").as_ref()), 1);
        assert_eq!(lag.legacy(None), 1);
        let known = Lag::of(&look(Some(9), Some(7), Some(999)));
        assert_eq!(known.legacy(Position::new("\"6\"").as_ref()), 3);
        assert_eq!(Lag::total([known, lag]).transactions, None);
        assert_eq!(Lag::total([known, known]).transactions, Some(6));
    }
}
