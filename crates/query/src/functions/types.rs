//! Functions from `IS_ARRAY` to `IS_STRING`: each tests the type of one value.

use super::{Body, Function};
use crate::value::{Kind, Value};

/// Defines a function that is true for some types and false for all others, undefined included.
macro_rules! check {
    ($name:literal, $meaning:literal, $check:expr, $examples:expr) => {
        Function {
            name: $name,
            arguments: "(value)",
            meaning: $meaning,
            count: (1, 1),
            body: Body::Pure(|arguments| {
                let check: fn(&Value<'_>) -> bool = $check;
                Some(Value::Bool(check(arguments.first()?)))
            }),
            examples: $examples,
        }
    };
}

pub(super) const TABLE: &[Function] = &[
    check!(
        "IS_ARRAY",
        "Whether it is an array",
        |value| value.kind() == Kind::Array,
        &[("IS_ARRAY([])", "true"), ("IS_ARRAY({})", "false"), ("IS_ARRAY(undefined)", "false")]
    ),
    check!(
        "IS_BOOL",
        "Whether it is true or false",
        |value| value.kind() == Kind::Bool,
        &[("IS_BOOL(false)", "true"), ("IS_BOOL(0)", "false")]
    ),
    check!(
        "IS_BOOLEAN",
        "The same as IS_BOOL; SDKs use this name in the filter that resumes a sorted query",
        |value| value.kind() == Kind::Bool,
        &[("IS_BOOLEAN(true)", "true"), ("IS_BOOLEAN(undefined)", "false")]
    ),
    check!(
        "IS_DEFINED",
        "Whether the value is defined",
        |value| !value.is_undefined(),
        &[
            ("IS_DEFINED(null)", "true"),
            ("IS_DEFINED(undefined)", "false"),
            ("IS_DEFINED({}.a)", "false")
        ]
    ),
    check!(
        "IS_FINITE_NUMBER",
        "Whether it is a number that is not infinite",
        |value| value.as_number().is_some_and(f64::is_finite),
        &[("IS_FINITE_NUMBER(1.5)", "true"), ("IS_FINITE_NUMBER(\"1\")", "false")]
    ),
    check!(
        "IS_INTEGER",
        "Whether it is a number without a fraction that fits into 64 bits",
        |value| value.as_number().is_some_and(|n| n.fract() == 0.0 && n.abs() < 9.3e18),
        &[("IS_INTEGER(4)", "true"), ("IS_INTEGER(4.5)", "false"), ("IS_INTEGER(\"4\")", "false")]
    ),
    check!(
        "IS_NULL",
        "Whether it is null",
        |value| value.kind() == Kind::Null,
        &[("IS_NULL(null)", "true"), ("IS_NULL(undefined)", "false"), ("IS_NULL(0)", "false")]
    ),
    check!(
        "IS_NUMBER",
        "Whether it is a number",
        |value| value.kind() == Kind::Number,
        &[("IS_NUMBER(1)", "true"), ("IS_NUMBER(\"1\")", "false")]
    ),
    check!(
        "IS_OBJECT",
        "Whether it is an object",
        |value| value.kind() == Kind::Object,
        &[("IS_OBJECT({})", "true"), ("IS_OBJECT([])", "false"), ("IS_OBJECT(null)", "false")]
    ),
    check!(
        "IS_PRIMITIVE",
        "Whether it is null, a boolean, a number or a string",
        |value| (Kind::Null..=Kind::String).contains(&value.kind()),
        &[
            ("IS_PRIMITIVE(null)", "true"),
            ("IS_PRIMITIVE(\"a\")", "true"),
            ("IS_PRIMITIVE([])", "false"),
            ("IS_PRIMITIVE(undefined)", "false"),
        ]
    ),
    check!(
        "IS_STRING",
        "Whether it is a string",
        |value| value.kind() == Kind::String,
        &[("IS_STRING(\"\")", "true"), ("IS_STRING(1)", "false")]
    ),
];
