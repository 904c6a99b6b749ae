//! Adds two numbers that are given as text.
//!
//! Whole numbers stay whole as long as they fit 64 bits. All others are added as doubles and written
//! as JavaScript writes them, like Cosmos DB and its clients do: the fewest digits that read back as
//! the same double, `2` instead of `2.0`, and an exponent only from 10^21 upwards and below 10^-6.

/// The sum of two JSON numbers as JSON text; `None` if it is beyond the range of a double.
pub(super) fn sum(one: &str, other: &str) -> Option<String> {
    if let (Ok(one), Ok(other)) = (one.parse::<i64>(), other.parse::<i64>())
        && let Some(sum) = one.checked_add(other)
    {
        return Some(sum.to_string());
    }
    let sum = one.parse::<f64>().ok()? + other.parse::<f64>().ok()?;
    sum.is_finite().then(|| double_text(sum))
}

/// A finite double as JSON text.
pub(super) fn double_text(number: f64) -> String {
    if number == 0.0 {
        // Also for negative zero, which JavaScript writes as 0.
        return "0".to_owned();
    }
    if (1e-6..1e21).contains(&number.abs()) { format!("{number}") } else { format!("{number:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let cases = [
            ("1", "2", Some("3")),
            ("1", "-2", Some("-1")),
            ("-0", "0", Some("0")),
            ("9007199254740993", "1", Some("9007199254740994")),
            ("9223372036854775806", "1", Some("9223372036854775807")),
            ("9223372036854775807", "1", Some("9223372036854776000")),
            ("-9223372036854775808", "-1", Some("-9223372036854776000")),
            ("18446744073709551615", "0", Some("18446744073709552000")),
            ("1.5", "1", Some("2.5")),
            ("1.5", "0.5", Some("2")),
            ("1.50", "0", Some("1.5")),
            ("1.5", "-1.5", Some("0")),
            ("-0.0", "-0", Some("0")),
            ("0.1", "0.2", Some("0.30000000000000004")),
            ("5", "1.0", Some("6")),
            ("1e2", "1", Some("101")),
            ("1e21", "0", Some("1e21")),
            ("1e-7", "0", Some("1e-7")),
            ("0.000001", "0", Some("0.000001")),
            ("1e308", "1e308", None),
            ("-1.7976931348623157e308", "-1e300", None),
        ];
        for (one, other, expected) in cases {
            assert_eq!(sum(one, other).as_deref(), expected, "{one} + {other}");
        }
    }

    #[test]
    fn doubles_read_back() {
        for number in [1.0, -1.5, 1e20, 1e21, 5e-324, f64::MAX, f64::MIN, 1e-6, 1e-7, 123456.789] {
            let text = double_text(number);
            assert_eq!(text.parse::<f64>(), Ok(number), "{text}");
            assert!(crate::body::patch::Json::parse(&text).is_ok(), "{text}");
        }
    }
}
