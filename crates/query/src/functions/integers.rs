//! Arithmetic on 64-bit integers. A number with a fraction is not an integer. Overflow
//! wraps around, except in division.

use super::{Body, Function, whole};
use crate::value::Value;

/// Defines a function of two integers.
macro_rules! of_two {
    ($name:literal, $meaning:literal, $function:expr, $examples:expr) => {
        Function {
            name: $name,
            arguments: "(integer, integer)",
            meaning: $meaning,
            count: (2, 2),
            body: Body::Pure(|arguments| {
                let function: fn(i64, i64) -> Option<i64> = $function;
                Some(made(function(integer(&arguments[0])?, integer(&arguments[1])?)?))
            }),
            examples: $examples,
        }
    };
}

pub(super) const TABLE: &[Function] = &[
    of_two!(
        "IntAdd",
        "The sum",
        |one, two| Some(one.wrapping_add(two)),
        &[
            ("IntAdd(20, 10)", "30"),
            ("IntAdd(1.5, 1)", "undefined"),
            ("IntAdd(1, \"1\")", "undefined")
        ]
    ),
    of_two!(
        "IntBitAnd",
        "The bits set in both",
        |one, two| Some(one & two),
        &[("IntBitAnd(15, 25)", "9")]
    ),
    of_two!(
        "IntBitLeftShift",
        "The bits shifted to the left",
        |one, two| Some(one.wrapping_shl(u32::try_from(two).ok()?)),
        &[("IntBitLeftShift(16, 4)", "256"), ("IntBitLeftShift(1, -1)", "undefined")]
    ),
    Function {
        name: "IntBitNot",
        arguments: "(integer)",
        meaning: "Every bit inverted",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(made(!integer(&arguments[0])?))),
        examples: &[("IntBitNot(65)", "-66"), ("IntBitNot(0.1)", "undefined")],
    },
    of_two!(
        "IntBitOr",
        "The bits set in one of them",
        |one, two| Some(one | two),
        &[("IntBitOr(56, 100)", "124")]
    ),
    of_two!(
        "IntBitRightShift",
        "The bits shifted to the right, the sign kept",
        |one, two| Some(one.wrapping_shr(u32::try_from(two).ok()?)),
        &[("IntBitRightShift(16, 4)", "1"), ("IntBitRightShift(-16, 2)", "-4")]
    ),
    of_two!(
        "IntBitXor",
        "The bits set in exactly one",
        |one, two| Some(one ^ two),
        &[("IntBitXor(56, 100)", "92")]
    ),
    of_two!(
        "IntDiv",
        "The quotient without its fraction",
        i64::checked_div,
        &[("IntDiv(10, 4)", "2"), ("IntDiv(-7, 2)", "-3"), ("IntDiv(1, 0)", "undefined")]
    ),
    of_two!(
        "IntMod",
        "The remainder of a division",
        i64::checked_rem,
        &[("IntMod(12, 5)", "2"), ("IntMod(-7, 2)", "-1"), ("IntMod(1, 0)", "undefined")]
    ),
    of_two!(
        "IntMul",
        "The product",
        |one, two| Some(one.wrapping_mul(two)),
        &[("IntMul(5, 3)", "15"), ("IntMul(3037000500, 3037000500) < 0", "true")]
    ),
    of_two!(
        "IntSub",
        "The difference",
        |one, two| Some(one.wrapping_sub(two)),
        &[("IntSub(25, 10)", "15")]
    ),
];

/// The integer value of a number.
fn integer(value: &Value<'_>) -> Option<i64> {
    if value.as_number()?.fract() != 0.0 {
        return None;
    }
    whole(std::slice::from_ref(value), 0)
}

/// An integer with all its digits, including those that a double cannot represent.
fn made<'a>(integer: i64) -> Value<'a> {
    crate::value::Number::parse(integer.to_string().into()).map_or(Value::Undefined, Value::Number)
}
