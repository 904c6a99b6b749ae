//! The grammar of numbers, and the check that a number fits a double.
//!
//! Ordinary numbers are not parsed: a number with `i` digits before the point and exponent `e` is
//! below 10^(i+e), and every number below 10^308 is finite. Only longer numbers are parsed.

use super::error::{Fault, Problem};
use super::words::{Offset, byte, slice};

/// A number is certainly finite if its integer digits and its exponent add up to at most this.
const SURELY_FINITE_DIGITS: u32 = 308;

/// Reads the number that starts at `start`; returns the offset just past it.
#[inline]
pub(super) fn scan(body: &[u8], start: Offset) -> Result<Offset, Fault> {
    let first = if byte(body, start) == b'-' { start + 1 } else { start };
    let integer_end = match byte(body, first) {
        b'0' => first + 1,
        b'1'..=b'9' => digits(body, first + 1),
        _ => return Err(Problem::NoDigit.at(first)),
    };
    let mut at = integer_end;
    if byte(body, at) == b'.' {
        at = some_digits(body, at + 1)?;
    }
    if byte(body, at) | 0x20 == b'e' || integer_end - first > SURELY_FINITE_DIGITS {
        return scan_large(body, start, at, integer_end - first);
    }
    Ok(at)
}

/// Reads the rest of a number that has an exponent at `at` or more than 308 integer digits.
#[cold]
fn scan_large(body: &[u8], start: Offset, at: Offset, digits: Offset) -> Result<Offset, Fault> {
    let mut end = at;
    let mut exponent = 0_u32;
    if byte(body, at) | 0x20 == b'e' {
        let sign = byte(body, at + 1);
        let first = if matches!(sign, b'+' | b'-') { at + 2 } else { at + 1 };
        end = some_digits(body, first)?;
        if sign != b'-' {
            for digit in slice(body, first, end) {
                exponent = exponent.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            }
        }
    }
    let surely_finite = digits.saturating_add(exponent) <= SURELY_FINITE_DIGITS;
    if !surely_finite && !is_finite(slice(body, start, end)) {
        return Err(Problem::NotFinite.at(start));
    }
    Ok(end)
}

fn is_finite(text: &[u8]) -> bool {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    number.is_some_and(f64::is_finite)
}

#[inline]
fn digits(body: &[u8], mut at: Offset) -> Offset {
    while byte(body, at).is_ascii_digit() {
        at += 1;
    }
    at
}

#[inline]
fn some_digits(body: &[u8], at: Offset) -> Result<Offset, Fault> {
    let end = digits(body, at);
    if end == at { Err(Problem::NoDigit.at(at)) } else { Ok(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that was read to its end.
    fn all(number: &str) -> Result<Offset, Fault> {
        Ok(Offset::try_from(number.len()).unwrap())
    }

    #[test]
    fn grammar() {
        for number in ["0", "-0", "1", "-12", "0.5", "-0.50", "1e5", "1E+5", "0e-0", "10.01e-10"] {
            for after in ["", ",", "}", " ", "x"] {
                let text = format!("{number}{after}");
                assert_eq!(scan(text.as_bytes(), 0), all(number), "{text}");
            }
        }
        for (text, at) in
            [("-", 1), ("-a", 1), ("1.", 2), ("1.e1", 2), ("1e", 2), ("1e+", 3), ("0.5E-x", 5)]
        {
            assert_eq!(scan(text.as_bytes(), 0), Err(Problem::NoDigit.at(at)), "{text}");
        }
        // A leading zero ends the number; the caller rejects what follows.
        assert_eq!(scan(b"01", 0), Ok(1));
    }

    #[test]
    fn only_finite_doubles() {
        let finite = [
            "1e308".to_owned(),
            "1.7976931348623157e308".to_owned(),
            "-1.7976931348623158e308".to_owned(),
            "0e999".to_owned(),
            "0.0e99999999999999999999999".to_owned(),
            "1e-999".to_owned(),
            format!("0.{}1e309", "0".repeat(400)),
            "9".repeat(308),
            format!("1{}", "0".repeat(308)),
            format!("1{}e-400", "0".repeat(600)),
        ];
        for number in finite {
            assert_eq!(scan(number.as_bytes(), 0), all(&number), "{number}");
        }
        let infinite = [
            "1e309".to_owned(),
            "1.7976931348623159e308".to_owned(),
            "-1e999".to_owned(),
            "1E+18446744073709551616".to_owned(),
            format!("1{}", "0".repeat(309)),
            format!("-{}.5", "9".repeat(310)),
            format!("1{}e300", "0".repeat(10)),
        ];
        for number in infinite {
            assert_eq!(scan(number.as_bytes(), 0), Err(Problem::NotFinite.at(0)), "{number}");
        }
    }
}
