//! Computes the cost of requests, in request units.
//!
//! It is a model, not a measurement of the service: close enough for budgets in tests and for
//! throttling, stable enough to compare two runs, and never zero for work on items.
//!
//! | operation | request units |
//! |---|---|
//! | read an item | 1 per KiB, size rounded up to a power of two |
//! | create, or upsert of a new item | 5.8 per KiB, rounded likewise |
//! | replace, patch, delete, upsert of an existing item | 1.5 times a create of that size |
//! | a page of a list or feed | 0.1 per KiB of its items, at least 1 |
//! | a page of a query | 2.3, plus 1 per KiB read, plus 0.05 per item read |
//! | databases, containers and other definitions | 2 to read, 5 to write |
//!
//! Charges are kept in hundredths, so that they add up exactly and print with at most two decimals.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

const HUNDREDTHS_PER_UNIT: u64 = 100;
const BYTES_PER_KIB: u64 = 1024;

/// An amount of request units, in hundredths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Charge(u64);

/// A buffer that holds the text of any charge.
pub type ChargeText = [u8; 24];

impl Charge {
    /// No cost.
    pub const ZERO: Charge = Charge(0);
    /// One request unit, the minimum for work on items.
    pub const ONE: Charge = Charge(HUNDREDTHS_PER_UNIT);
    /// Reading a definition.
    pub const METADATA_READ: Charge = Charge(2 * HUNDREDTHS_PER_UNIT);
    /// Writing a definition.
    pub const METADATA_WRITE: Charge = Charge(5 * HUNDREDTHS_PER_UNIT);

    /// Creates a charge from hundredths of a request unit.
    #[must_use]
    pub const fn from_hundredths(hundredths: u64) -> Charge {
        Charge(hundredths)
    }

    /// The charge in hundredths of a request unit.
    #[must_use]
    pub const fn hundredths(self) -> u64 {
        self.0
    }

    /// The cost of reading an item of `bytes` bytes.
    #[must_use]
    pub const fn read(bytes: usize) -> Charge {
        Charge(rounded_kib(bytes).saturating_mul(HUNDREDTHS_PER_UNIT))
    }

    /// The cost of creating an item of `bytes` bytes.
    #[must_use]
    pub const fn create(bytes: usize) -> Charge {
        Charge(rounded_kib(bytes).saturating_mul(580))
    }

    /// The cost of changing or deleting an item of `bytes` bytes.
    #[must_use]
    pub const fn replace(bytes: usize) -> Charge {
        Charge(Charge::create(bytes).0.saturating_mul(3) / 2)
    }

    /// The cost of a page of a list or a change feed with `bytes` of items: a tenth of reading them one by
    /// one, so that a hundred small items cost at most 10 units.
    #[must_use]
    pub const fn page(bytes: usize) -> Charge {
        let charge = kib(bytes).saturating_mul(HUNDREDTHS_PER_UNIT / 10);
        Charge(if charge < HUNDREDTHS_PER_UNIT { HUNDREDTHS_PER_UNIT } else { charge })
    }

    /// The cost of a query page that read `items` items of `bytes` bytes together.
    #[must_use]
    pub const fn query(items: usize, bytes: usize) -> Charge {
        let size = kib(bytes).saturating_mul(HUNDREDTHS_PER_UNIT);
        Charge(size.saturating_add((items as u64).saturating_mul(5)).saturating_add(230))
    }

    /// Writes the header's text into `buffer`, without allocating.
    #[must_use]
    pub fn write_into(self, buffer: &mut ChargeText) -> &str {
        let mut start = buffer.len();
        let mut put = |byte: u8| {
            start -= 1;
            buffer[start] = byte;
        };
        let (mut units, fraction) = (self.0 / HUNDREDTHS_PER_UNIT, self.0 % HUNDREDTHS_PER_UNIT);
        if fraction % 10 != 0 {
            put(digit(fraction % 10));
        }
        if fraction != 0 {
            put(digit(fraction / 10));
            put(b'.');
        }
        loop {
            put(digit(units % 10));
            units /= 10;
            if units == 0 {
                break;
            }
        }
        std::str::from_utf8(&buffer[start..]).unwrap_or("0")
    }
}

/// Bytes in KiB, rounded up, at least 1.
const fn kib(bytes: usize) -> u64 {
    let kib = (bytes as u64).div_ceil(BYTES_PER_KIB);
    if kib == 0 { 1 } else { kib }
}

const fn rounded_kib(bytes: usize) -> u64 {
    match kib(bytes).checked_next_power_of_two() {
        Some(rounded) => rounded,
        None => u64::MAX,
    }
}

/// The ASCII digit of a number below ten.
fn digit(number: u64) -> u8 {
    b'0' + u8::try_from(number).unwrap_or(0)
}

/// Formats with a decimal point and without an exponent, independent of the locale.
impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.write_into(&mut [0; 24]))
    }
}

impl Add for Charge {
    type Output = Charge;

    fn add(self, other: Charge) -> Charge {
        Charge(self.0.saturating_add(other.0))
    }
}

impl Sum for Charge {
    fn sum<I: Iterator<Item = Charge>>(charges: I) -> Charge {
        charges.fold(Charge::ZERO, Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_at_most_two_decimals() {
        for (hundredths, text) in [
            (0, "0"),
            (1, "0.01"),
            (10, "0.1"),
            (99, "0.99"),
            (100, "1"),
            (105, "1.05"),
            (667, "6.67"),
            (670, "6.7"),
            (123_456, "1234.56"),
            (u64::MAX, "184467440737095516.15"),
        ] {
            assert_eq!(Charge::from_hundredths(hundredths).to_string(), text);
        }
    }

    #[test]
    fn sizes_round_up() {
        for (bytes, units) in
            [(0, 1), (1, 1), (1024, 1), (1025, 2), (2049, 4), (4096, 4), (2_097_152, 2048)]
        {
            assert_eq!(Charge::read(bytes), Charge::from_hundredths(units * 100), "{bytes}");
        }
        assert_eq!(Charge::create(1000).to_string(), "5.8");
        assert_eq!(Charge::replace(1000).to_string(), "8.7");
        assert_eq!(Charge::page(0), Charge::ONE);
        assert_eq!(Charge::page(3000).to_string(), "1");
        assert_eq!(Charge::page(100 << 10).to_string(), "10");
        assert_eq!(Charge::query(0, 0).to_string(), "3.3");
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        for charge in [
            Charge::read(usize::MAX),
            Charge::create(usize::MAX),
            Charge::replace(usize::MAX),
            Charge::query(usize::MAX, usize::MAX),
        ] {
            assert!(charge > Charge::ONE);
            assert!(charge + charge >= charge);
        }
    }
}
