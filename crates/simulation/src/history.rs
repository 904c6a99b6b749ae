//! The history of a run: a hash over all events, and the text of the last ones.
//!
//! One seed is one history, and the hash shows whether two runs were the same. The text is for
//! people: when a promise is broken, the tail shows the events before it.

use std::collections::VecDeque;
use std::time::Duration;

/// The events of a run: their hash, and the text of the newest ones.
#[derive(Debug)]
pub struct History {
    lines: VecDeque<String>,
    lines_kept: usize,
    hash: Fnv,
    count: u64,
}

impl History {
    /// Creates an empty history that keeps the text of the last `lines_kept` events.
    #[must_use]
    pub fn new(lines_kept: usize) -> History {
        History { lines: VecDeque::new(), lines_kept, hash: Fnv::default(), count: 0 }
    }

    /// Adds an event.
    pub fn note(&mut self, at: Duration, line: &str) {
        self.hash.add(&at.as_micros().to_le_bytes());
        self.hash.add(line.as_bytes());
        self.count += 1;
        if self.lines.len() >= self.lines_kept {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>12.3}ms  {line}", at.as_secs_f64() * 1000.0));
    }

    /// Returns the number of events so far, which is also the number of the next one.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the hash over all events. Equal hashes mean equal histories.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash.0
    }

    /// Returns the newest lines, oldest first.
    #[must_use]
    pub fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// A hash that is the same on every machine and in every version of Rust: 64-bit FNV-1a.
#[derive(Debug)]
pub(crate) struct Fnv(pub(crate) u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut hash = Fnv::default();
        hash.add(bytes);
        hash.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_events_give_the_same_hash_and_others_do_not() {
        let of = |lines: &[&str]| {
            let mut history = History::new(9);
            for line in lines {
                history.note(Duration::from_micros(7), line);
            }
            history.hash()
        };
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
        assert_eq!(Fnv::of(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn the_tail_is_bounded() {
        let mut history = History::new(9);
        for number in 0..1000 {
            history.note(Duration::ZERO, &number.to_string());
        }
        assert_eq!((history.count(), history.tail().len()), (1000, 9));
        assert!(history.tail().last().is_some_and(|line| line.ends_with("999")));
    }
}
