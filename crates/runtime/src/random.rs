//! Seeded random numbers. No other file names a random number generator.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// A stream of random numbers; the same seed gives the same stream on every machine.
#[derive(Clone, Debug)]
pub struct Random(SmallRng);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Random {
        Random(SmallRng::seed_from_u64(seed))
    }

    /// A stream seeded with the operating system's entropy.
    #[must_use]
    pub fn from_entropy() -> Random {
        Random(SmallRng::from_os_rng())
    }

    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Multiply-shift keeps the bias below 2^-64 × bound, far under what a test could notice.
        u64::try_from((u128::from(self.number()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// A number in `0..bound`, as an index.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// When there is nothing to choose from.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_stream() {
        let mut one = Random::seeded(42);
        let mut two = Random::seeded(42);
        let mut other = Random::seeded(43);
        let first: Vec<u64> = (0..8).map(|_| one.number()).collect();
        assert_eq!(first, (0..8).map(|_| two.number()).collect::<Vec<_>>());
        assert_ne!(first, (0..8).map(|_| other.number()).collect::<Vec<_>>());
    }

    #[test]
    fn below_stays_below() {
        let mut random = Random::seeded(1);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.index(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
