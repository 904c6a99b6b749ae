//! Conversions between strings and other values, functions of several strings, and patterns.

use super::{ANY, Body, Function, text};
use crate::error::EvaluationError;
use crate::evaluate::Environment;
use crate::limits::Limits;
use crate::value::{BadValue, Kind, ParameterReader, Value};

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "CONTAINS_ALL_CI",
        arguments: "(string, part, part [, …])",
        meaning: "Whether every part occurs in the string, ignoring case",
        count: (2, ANY),
        body: Body::Careful(|arguments, environment| contains(arguments, environment, true, true)),
        examples: &[("CONTAINS_ALL_CI(\"Road Bike\", \"road\", \"BIKE\")", "true")],
    },
    Function {
        name: "CONTAINS_ALL_CS",
        arguments: "(string, part, part [, …])",
        meaning: "Whether every part occurs in the string",
        count: (2, ANY),
        body: Body::Careful(|arguments, environment| contains(arguments, environment, true, false)),
        examples: &[
            ("CONTAINS_ALL_CS(\"Road Bike\", \"Road\", \"Bike\")", "true"),
            ("CONTAINS_ALL_CS(\"Road Bike\", \"Road\", \"bike\")", "false"),
        ],
    },
    Function {
        name: "CONTAINS_ANY_CI",
        arguments: "(string, part, part [, …])",
        meaning: "Whether one of the parts occurs in the string, ignoring case",
        count: (2, ANY),
        body: Body::Careful(|arguments, environment| contains(arguments, environment, false, true)),
        examples: &[("CONTAINS_ANY_CI(\"Road Bike\", \"car\", \"BIKE\")", "true")],
    },
    Function {
        name: "CONTAINS_ANY_CS",
        arguments: "(string, part, part [, …])",
        meaning: "Whether one of the parts occurs in the string",
        count: (2, ANY),
        body: Body::Careful(|arguments, environment| {
            contains(arguments, environment, false, false)
        }),
        examples: &[
            ("CONTAINS_ANY_CS(\"Road Bike\", \"car\", \"Bike\")", "true"),
            ("CONTAINS_ANY_CS(\"Road Bike\", \"car\", \"bike\")", "false"),
        ],
    },
    Function {
        name: "RegexMatch",
        arguments: "(string, pattern [, modifiers])",
        meaning: "Whether the pattern matches anywhere; modifiers are m, s, i and x",
        count: (2, 3),
        body: Body::Careful(regex_match),
        examples: &[
            ("RegexMatch(\"abcd\", \"ABC\", \"i\")", "true"),
            ("RegexMatch(\"abcd\", \"^b\")", "false"),
            ("RegexMatch(\"shop 12\", \"[0-9]{2}$\")", "true"),
            ("RegexMatch(\"abcd\", \"ab c\", \"x\")", "true"),
            ("RegexMatch(\"abcd\", \"a\", \"q\")", "undefined"),
            ("RegexMatch(1, \"a\")", "undefined"),
        ],
    },
    Function {
        name: "StringJoin",
        arguments: "(array, separator)",
        meaning: "The strings of an array with the separator between them",
        count: (2, 2),
        body: Body::Careful(join),
        examples: &[
            ("StringJoin([\"a\", \"b\", \"c\"], \", \")", "\"a, b, c\""),
            ("StringJoin([\"a\", 1], \",\")", "undefined"),
        ],
    },
    Function {
        name: "StringSplit",
        arguments: "(string, separator)",
        meaning: "The parts between the separators, as an array",
        count: (2, 2),
        body: Body::Careful(split),
        examples: &[
            ("StringSplit(\"Handlebar\", \"e\")", "[\"Handl\",\"bar\"]"),
            ("StringSplit(\"Helmet\", \"\")", "[\"Helmet\"]"),
            ("StringSplit(\"\", \"\")", "[\"\"]"),
            ("StringSplit(\"a\", undefined)", "undefined"),
        ],
    },
    Function {
        name: "StringToArray",
        arguments: "(string)",
        meaning: "The array in a JSON text; undefined if it is something else",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| read(arguments, environment, Kind::Array)),
        examples: &[
            ("StringToArray(\"[1, \\\"a\\\", {\\\"b\\\": [2]}]\")", "[1,\"a\",{\"b\":[2]}]"),
            ("StringToArray(\"{}\")", "undefined"),
            ("StringToArray(\"[1\")", "undefined"),
        ],
    },
    Function {
        name: "StringToBoolean",
        arguments: "(string)",
        meaning: "The boolean in a JSON text; undefined if it is something else",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| read(arguments, environment, Kind::Bool)),
        examples: &[
            ("StringToBoolean(\" true \")", "true"),
            ("StringToBoolean(\"TRUE\")", "undefined"),
        ],
    },
    Function {
        name: "StringToNull",
        arguments: "(string)",
        meaning: "Null if the JSON text is null, otherwise undefined",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| read(arguments, environment, Kind::Null)),
        examples: &[("StringToNull(\"null\")", "null"), ("StringToNull(\"Null\")", "undefined")],
    },
    Function {
        name: "StringToNumber",
        arguments: "(string)",
        meaning: "The number in a JSON text; undefined if it is something else",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| read(arguments, environment, Kind::Number)),
        examples: &[
            ("StringToNumber(\"60\")", "60"),
            ("StringToNumber(\"-1.79769e+308\") < 0", "true"),
            ("StringToNumber(\"0xF\")", "undefined"),
            ("StringToNumber(\"\")", "undefined"),
        ],
    },
    Function {
        name: "StringToObject",
        arguments: "(string)",
        meaning: "The object in a JSON text; undefined if it is something else",
        count: (1, 1),
        body: Body::Careful(|arguments, environment| read(arguments, environment, Kind::Object)),
        examples: &[
            ("StringToObject(\"{\\\"a\\\": 1}\")", "{\"a\":1}"),
            ("StringToObject(\"{a: 1}\")", "undefined"),
        ],
    },
    Function {
        name: "ToString",
        arguments: "(value)",
        meaning: "A string as it is, everything else as JSON text",
        count: (1, 1),
        body: Body::Careful(to_string),
        examples: &[
            ("ToString(1.5)", "\"1.5\""),
            ("ToString(\"a\")", "\"a\""),
            ("ToString([1, null])", "\"[1,null]\""),
            ("ToString(undefined)", "undefined"),
        ],
    },
];

type Careful<'a> = Result<Option<Value<'a>>, EvaluationError>;

fn contains<'a>(
    arguments: &[Value<'a>],
    environment: &mut Environment,
    all: bool,
    ignore_case: bool,
) -> Careful<'a> {
    let fold = |text: &str| if ignore_case { text.to_lowercase() } else { text.to_owned() };
    let Some(string) = text(arguments, 0).map(fold) else { return Ok(None) };
    // Each part is searched for from the start of the string.
    let each = 1 + arguments[0].scan_cost();
    let mut found = 0;
    for part in &arguments[1..] {
        environment.spend(each)?;
        let Some(part) = part.as_text() else { return Ok(None) };
        found += usize::from(string.contains(&fold(part)));
    }
    Ok(Some(Value::Bool(if all { found == arguments.len() - 1 } else { found > 0 })))
}

fn regex_match<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let (Some(string), Some(pattern)) = (text(arguments, 0), text(arguments, 1)) else {
        return Ok(None);
    };
    let modifiers = match arguments.get(2).map(Value::as_text) {
        None => "",
        Some(Some(modifiers)) if modifiers.chars().all(|c| "msix".contains(c)) => modifiers,
        Some(_) => return Ok(None),
    };
    let Environment { patterns, meter, .. } = environment;
    patterns.is_match(pattern, modifiers, string, meter).map(|matches| Some(Value::Bool(matches)))
}

fn join<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let (Some(elements), Some(separator)) = (arguments[0].elements(), text(arguments, 1)) else {
        return Ok(None);
    };
    environment.spend(elements.len())?;
    environment.meter.charge(elements.len().saturating_mul(2 * size_of::<&str>()))?;
    let Some(parts) = elements.iter().map(Value::as_text).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    environment
        .allow("StringJoin", bytes.saturating_add(separator.len().saturating_mul(parts.len())))?;
    Ok(Some(Value::from(parts.join(separator))))
}

fn split<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let (Some(string), Some(separator)) = (text(arguments, 0), text(arguments, 1)) else {
        return Ok(None);
    };
    if separator.is_empty() {
        return Ok(Some(Value::array([arguments[0].clone()])));
    }
    let parts = string.matches(separator).count() + 1;
    environment.spend(parts)?;
    environment
        .allow("StringSplit", string.len() + parts.saturating_mul(size_of::<Value<'_>>()))?;
    Ok(Some(Value::array(string.split(separator).map(|part| Value::from(part.to_owned())))))
}

/// The value in a JSON text, if it has the wanted type.
fn read<'a>(arguments: &[Value<'a>], environment: &mut Environment, kind: Kind) -> Careful<'a> {
    let Some(string) = text(arguments, 0) else { return Ok(None) };
    environment.spend(string.len() / 8)?;
    // Every comma may start a value.
    let parts = 1 + string.bytes().filter(|byte| *byte == b',').count();
    let each = 2 * size_of::<(String, Value<'_>)>();
    environment.meter.charge(string.len().saturating_add(parts.saturating_mul(each)))?;
    // Building cannot be interrupted, and a value with more parts would be too large in any case.
    let limit = environment.limits.value_bytes;
    let limits =
        Limits { parameter_values: limit / size_of::<Value<'_>>(), ..environment.limits.clone() };
    match ParameterReader::new(&limits).read(string.as_bytes()) {
        Err(BadValue::TooManyValues { .. }) => {
            let function = if kind == Kind::Array { "StringToArray" } else { "StringToObject" };
            Err(EvaluationError::ValueTooLarge { function, limit })
        }
        read => Ok(read.ok().filter(|value| value.kind() == kind)),
    }
}

fn to_string<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let value = &arguments[0];
    if value.is_undefined() || value.kind() == Kind::String {
        return Ok(Some(value.clone()));
    }
    let weight = value.weight();
    environment.spend(weight / 1024)?;
    environment.allow("ToString", weight)?;
    Ok(String::from_utf8(value.to_json()).ok().map(Value::from))
}
