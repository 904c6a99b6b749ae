//! Numbers: IEEE doubles that keep their original text.
//!
//! An item may contain `12345678901234567890` or `1.0`. As long as a query only passes the number on,
//! the result has the same text; the first operation on it makes it a double. Integers print as integers.

use std::borrow::Cow;

/// Integers up to here are exact in a double.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A number with its original text, if that matters.
#[derive(Clone, Debug)]
pub struct Number<'a> {
    value: f64,
    /// The original text. Owned copies drop that of a short integer, which prints the same.
    text: Option<Cow<'a, str>>,
}

impl<'a> Number<'a> {
    /// A number computed by an operation.
    pub(crate) fn new(value: f64) -> Number<'a> {
        Number { value, text: None }
    }

    /// Parses a number; `None` if the text is not one.
    pub(crate) fn parse(text: Cow<'a, str>) -> Option<Number<'a>> {
        let value = match short_integer(text.as_bytes()) {
            Some(integer) => integer,
            None => text.parse().ok()?,
        };
        Some(Number { value, text: Some(text) })
    }

    /// The value as a double.
    pub fn value(&self) -> f64 {
        self.value
    }

    pub(crate) fn borrowed(&self) -> Number<'_> {
        Number { value: self.value, text: self.text.as_deref().map(Cow::Borrowed) }
    }

    pub(crate) fn into_owned(self) -> Number<'static> {
        let text = self.text.filter(|text| short_integer(text.as_bytes()).is_none());
        Number { value: self.value, text: text.map(|text| Cow::Owned(text.into_owned())) }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match &self.text {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(print(self.value).as_bytes()),
        }
    }
}

/// The double as JSON text. Infinity and NaN print as `null`; no operation yields them.
pub(super) fn print(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if !value.is_finite() {
        "null".to_owned()
    } else if (1e-6..1e21).contains(&size) {
        format!("{value}")
    } else {
        format!("{value:e}")
    }
}

/// The integer value of a double, if it is exactly an integer.
#[expect(clippy::cast_possible_truncation, reason = "checked to be an integer a double holds")]
pub(super) fn to_integer(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= EXACT_MAX).then_some(value as i64)
}

/// Parses plain integers of few digits, the most common numbers, without the general parser.
fn short_integer(text: &[u8]) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 15 || (digits[0] == b'0' && text.len() > 1) {
        return None;
    }
    let mut value = 0_u64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u64::from(digit - b'0');
    }
    #[expect(clippy::cast_precision_loss, reason = "fifteen digits fit")]
    let value = value as f64;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_json() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-7.0, "-7"),
            (1.5, "1.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e20, "100000000000000000000"),
            (1e21, "1e21"),
            (1.5e-7, "1.5e-7"),
            (9_007_199_254_740_993.0, "9007199254740992"),
        ];
        for (value, expected) in cases {
            assert_eq!(print(value), expected);
        }
    }

    #[test]
    fn numbers_keep_their_text_until_they_are_used() {
        for text in ["1", "-12", "1.0", "1e2", "12345678901234567890", "-0", "0"] {
            let number = Number::parse(Cow::Borrowed(text)).unwrap();
            assert_eq!(number.value(), text.parse::<f64>().unwrap(), "{text}");
            let mut out = Vec::new();
            number.into_owned().write(&mut out);
            assert_eq!(out, text.as_bytes());
        }
    }
}
