//! Mathematics on doubles. A result that is not finite is undefined.

use super::{Body, Function, number};
use crate::value::Value;

/// Defines a function of one number.
macro_rules! of_number {
    ($name:literal, $meaning:literal, $function:expr, $examples:expr) => {
        Function {
            name: $name,
            arguments: "(number)",
            meaning: $meaning,
            count: (1, 1),
            body: Body::Pure(|arguments| {
                let function: fn(f64) -> f64 = $function;
                Some(Value::number(function(number(arguments, 0)?)))
            }),
            examples: $examples,
        }
    };
}

pub(super) const TABLE: &[Function] = &[
    of_number!(
        "ABS",
        "The absolute value",
        f64::abs,
        &[("ABS(-1.5)", "1.5"), ("ABS(\"1\")", "undefined")]
    ),
    of_number!(
        "ACOS",
        "The arc cosine, in radians",
        f64::acos,
        &[("ACOS(-1)", "3.141592653589793"), ("ACOS(2)", "undefined")]
    ),
    of_number!(
        "ASIN",
        "The arc sine, in radians",
        f64::asin,
        &[("ASIN(1)", "1.5707963267948966"), ("ASIN(2)", "undefined")]
    ),
    of_number!(
        "ATAN",
        "The arc tangent, in radians",
        f64::atan,
        &[("ATAN(1)", "0.7853981633974483")]
    ),
    Function {
        name: "ATN2",
        arguments: "(y, x)",
        meaning: "The angle of the point (x, y), in radians",
        count: (2, 2),
        body: Body::Pure(|arguments| {
            Some(Value::number(number(arguments, 0)?.atan2(number(arguments, 1)?)))
        }),
        examples: &[("ATN2(1, 1)", "0.7853981633974483"), ("ATN2(1, \"1\")", "undefined")],
    },
    of_number!(
        "CEILING",
        "The least integer not below the number",
        f64::ceil,
        &[("CEILING(1.2)", "2"), ("CEILING(-1.2)", "-1")]
    ),
    of_number!("COS", "The cosine of an angle in radians", f64::cos, &[("COS(0)", "1")]),
    of_number!(
        "COT",
        "The cotangent of an angle in radians",
        |angle| 1.0 / angle.tan(),
        &[("COT(PI() / 4)", "1.0000000000000002"), ("COT(0)", "undefined")]
    ),
    of_number!("DEGREES", "Radians as degrees", f64::to_degrees, &[("DEGREES(PI())", "180")]),
    of_number!(
        "EXP",
        "e to that power",
        f64::exp,
        &[("EXP(0)", "1"), ("EXP(1)", "2.718281828459045"), ("EXP(1000)", "undefined")]
    ),
    of_number!(
        "FLOOR",
        "The greatest integer not above the number",
        f64::floor,
        &[("FLOOR(1.8)", "1"), ("FLOOR(-1.2)", "-2")]
    ),
    Function {
        name: "LOG",
        arguments: "(number [, base])",
        meaning: "The logarithm, natural if no base is given",
        count: (1, 2),
        body: Body::Pure(|arguments| {
            let value = number(arguments, 0)?;
            Some(Value::number(match arguments.get(1) {
                Some(base) => value.ln() / base.as_number()?.ln(),
                None => value.ln(),
            }))
        }),
        examples: &[("LOG(1)", "0"), ("LOG(8, 2)", "3"), ("LOG(0)", "undefined")],
    },
    of_number!("LOG10", "The logarithm with base 10", f64::log10, &[("LOG10(1000)", "3")]),
    Function {
        name: "NumberBin",
        arguments: "(number [, size])",
        meaning: "The multiple of the size at or below the number",
        count: (1, 2),
        body: Body::Pure(|arguments| {
            let size = if arguments.len() > 1 { number(arguments, 1)? } else { 1.0 };
            if size <= 0.0 {
                return None;
            }
            Some(Value::number((number(arguments, 0)? / size).floor() * size))
        }),
        examples: &[
            ("NumberBin(37.752, 10)", "30"),
            ("NumberBin(37.752)", "37"),
            ("NumberBin(-1, 10)", "-10"),
            ("NumberBin(1, 0)", "undefined"),
        ],
    },
    Function {
        name: "PI",
        arguments: "()",
        meaning: "The ratio of a circle's circumference to its diameter",
        count: (0, 0),
        body: Body::Pure(|_| Some(Value::number(std::f64::consts::PI))),
        examples: &[("PI()", "3.141592653589793")],
    },
    Function {
        name: "POWER",
        arguments: "(base, exponent)",
        meaning: "The base to the power of the exponent",
        count: (2, 2),
        body: Body::Pure(|arguments| {
            Some(Value::number(number(arguments, 0)?.powf(number(arguments, 1)?)))
        }),
        examples: &[("POWER(2, 10)", "1024"), ("POWER(-1, 0.5)", "undefined")],
    },
    of_number!(
        "RADIANS",
        "Degrees as radians",
        f64::to_radians,
        &[("RADIANS(180)", "3.141592653589793")]
    ),
    Function {
        name: "RAND",
        arguments: "()",
        meaning: "A random number from 0 up to but not including 1, another one for each call",
        count: (0, 0),
        body: Body::Careful(|_, environment| Ok(Some(Value::number(environment.random())))),
        examples: &[("RAND() >= 0 AND RAND() < 1", "true"), ("RAND() = RAND()", "false")],
    },
    Function {
        name: "ROUND",
        arguments: "(number [, digits])",
        meaning: "The number rounded to a number of decimals, halves away from zero",
        count: (1, 2),
        body: Body::Pure(|arguments| {
            let digits = if arguments.len() > 1 { number(arguments, 1)? } else { 0.0 };
            let scale = 10_f64.powf(digits.trunc().clamp(-300.0, 300.0));
            let scaled = number(arguments, 0)? * scale;
            let rounded =
                if scaled.is_finite() { scaled.round() / scale } else { number(arguments, 0)? };
            Some(Value::number(rounded))
        }),
        examples: &[
            ("ROUND(2.4)", "2"),
            ("ROUND(2.5)", "3"),
            ("ROUND(-2.5)", "-3"),
            ("ROUND(1.2345, 2)", "1.23"),
            ("ROUND(1234, -2)", "1200"),
        ],
    },
    of_number!(
        "SIGN",
        "-1, 0 or 1",
        |number| if number == 0.0 { 0.0 } else { number.signum() },
        &[("SIGN(-7)", "-1"), ("SIGN(0)", "0"), ("SIGN(0.5)", "1")]
    ),
    of_number!("SIN", "The sine of an angle in radians", f64::sin, &[("SIN(0)", "0")]),
    of_number!(
        "SQRT",
        "The square root",
        f64::sqrt,
        &[("SQRT(9)", "3"), ("SQRT(-1)", "undefined")]
    ),
    of_number!("SQUARE", "The number times itself", |n| n * n, &[("SQUARE(-3)", "9")]),
    of_number!("TAN", "The tangent of an angle in radians", f64::tan, &[("TAN(0)", "0")]),
    of_number!(
        "TRUNC",
        "The number without its fraction",
        f64::trunc,
        &[("TRUNC(2.7)", "2"), ("TRUNC(-2.7)", "-2")]
    ),
];
