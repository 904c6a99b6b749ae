//! Bounds on the time that partitions of the simulated machine may have read.
//!
//! A partition's clock never goes back, but it advances only when it reads the machine's clock, and a restart
//! discards what it read. An item may therefore be certainly expired, certainly not expired, or
//! either.

/// A moment in a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The number of the event.
    pub event: u64,
    millis: u64,
    times_set_back: usize,
}

/// Every clock reading between two moments lies between these seconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// No partition's clock was before this second.
    pub low: u64,
    /// No partition's clock was after this second.
    pub high: u64,
}

impl Window {
    /// Returns whether something that ends at one of these seconds is over on every partition's clock.
    #[must_use]
    pub fn is_over(&self, end: Option<(u64, u64)>) -> bool {
        end.is_some_and(|(_, latest)| latest <= self.low)
    }

    /// Returns whether something that ends at one of these seconds may be over on some partition's clock.
    #[must_use]
    pub fn may_be_over(&self, end: Option<(u64, u64)>) -> bool {
        end.is_some_and(|(earliest, _)| earliest <= self.high)
    }
}

/// The machine's wall clock as the model knows it.
#[derive(Debug, Default)]
pub(super) struct Clock {
    now: u64,
    highest: u64,
    /// The times to which the clock was set back, in order.
    set_back: Vec<u64>,
}

impl Clock {
    /// Records a reading of the clock.
    pub(super) fn read(&mut self, millis: u64) {
        if millis < self.now {
            self.set_back.push(millis);
        }
        self.now = millis;
        self.highest = self.highest.max(millis);
    }

    pub(super) fn moment(&self, event: u64) -> Moment {
        Moment { event, millis: self.now, times_set_back: self.set_back.len() }
    }

    /// Returns the window from a moment until now.
    pub(super) fn since(&self, moment: &Moment) -> Window {
        let set_back = self.set_back[moment.times_set_back..].iter().copied();
        let lowest = set_back.chain([moment.millis]).min().unwrap_or(0);
        Window { low: lowest / 1000, high: self.highest / 1000 }
    }

    /// Returns a lower bound of the milliseconds between a moment and the latest time read.
    pub(super) fn millis_since(&self, moment: &Moment) -> u64 {
        let set_back = self.set_back[moment.times_set_back..].iter().copied();
        let lowest = set_back.chain([moment.millis]).min().unwrap_or(0);
        self.highest.saturating_sub(lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_set_back_leaves_room_for_doubt() {
        let mut clock = Clock::default();
        clock.read(10_000);
        let moment = clock.moment(1);
        clock.read(20_000);
        assert!(clock.since(&moment).is_over(Some((9, 10))));
        assert!(!clock.since(&moment).is_over(Some((9, 11))));
        clock.read(5_000);
        let window = clock.since(&moment);
        assert!(!window.is_over(Some((6, 6))) && window.may_be_over(Some((20, 20))));
        assert!(!window.may_be_over(Some((21, 21))) && !window.may_be_over(None));
    }
}
