//! Random JSON values and texts for the other tests.

use headwater_protocol::binary::{BinaryError, Limits, decode};
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

/// Limits that are large enough for every test that is not about limits.
pub(crate) const ROOM: Limits = Limits { nesting_max: 256, text_bytes_max: 1 << 20 };

/// Decodes and checks that the result is one JSON value.
pub(crate) fn decoded(body: &[u8]) -> Result<Value, BinaryError> {
    let text = decode(body, ROOM)?;
    Ok(serde_json::from_slice(&text).expect("decoded text is json"))
}

/// Parses hexadecimal digits; spaces are ignored.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("digits are ascii");
        u8::from_str_radix(pair, 16).expect("digits are hexadecimal")
    };
    digits.chunks(2).map(byte).collect()
}

/// Any JSON value: numbers of every width, strings around the limits of each length form, system strings.
pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    any_leaf().prop_recursive(6, 200, 12, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::Array),
            prop::collection::vec((any_string(), inner), 0..12)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-70_000_i64..70_000).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any_double().prop_map(|double| Value::Number(Number::from_f64(double).expect("finite"))),
        any_string().prop_map(Value::String),
    ]
}

/// Finite doubles of every magnitude, many of them integral.
pub(crate) fn any_double() -> impl Strategy<Value = f64> {
    use prop::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
    prop_oneof![
        POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO,
        (-1e22..1e22_f64).prop_map(f64::trunc),
        (-100..100_i32).prop_map(f64::from),
    ]
}

fn any_string() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,10}",
        "[a-z\"\\\\\u{0}-\u{1f}]{0,10}",
        prop::sample::select(vec!["id", "_rid", "_etag", "type", "value", "_id", "$s", "Name"])
            .prop_map(str::to_owned),
        prop::sample::select(vec![62, 63, 64, 254, 255, 256, 257, 65_535, 65_536])
            .prop_map(|length| "x".repeat(length)),
    ]
}

/// Converts every number to a double, for comparisons that ignore kinds of numbers.
pub(crate) fn as_doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64().expect("a double")),
        Value::Array(elements) => elements.into_iter().map(as_doubles).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, v)| (name, as_doubles(v))).collect())
        }
        other => other,
    }
}
