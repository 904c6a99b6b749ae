//! Array functions. Equality is that of `=`, so `1` equals `1.0`; order is
//! that of `ORDER BY`. Arrays as sets are in `sets.rs`.

use super::sets::{charge_keys, keys_of};
use super::{ANY, Body, Function, count, flag, whole};
use crate::error::EvaluationError;
use crate::evaluate::Environment;
use crate::meter::Meter;
use crate::value::{Key, Kind, Value};

type Careful<'a> = Result<Option<Value<'a>>, EvaluationError>;

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "ARRAY_CONCAT",
        arguments: "(array, array [, …])",
        meaning: "All elements in one array",
        count: (1, ANY),
        body: Body::Careful(concat),
        examples: &[
            ("ARRAY_CONCAT([1], [2, 3], [])", "[1,2,3]"),
            ("ARRAY_CONCAT([1], 2)", "undefined"),
        ],
    },
    Function {
        name: "ARRAY_CONTAINS",
        arguments: "(array, value [, partial])",
        meaning: "Whether an element is equal to the value; with partial, whether an element has all \
                  properties of the value",
        count: (2, 3),
        body: Body::Careful(contains),
        examples: &[
            ("ARRAY_CONTAINS([\"a\", \"b\"], \"b\")", "true"),
            ("ARRAY_CONTAINS([\"a\", \"b\"], \"c\")", "false"),
            ("ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1})", "false"),
            ("ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1}, true)", "true"),
            ("ARRAY_CONTAINS([1], \"1\")", "false"),
            ("ARRAY_CONTAINS(1, 1)", "undefined"),
            ("ARRAY_CONTAINS([1], undefined)", "undefined"),
        ],
    },
    Function {
        name: "ARRAY_CONTAINS_ALL",
        arguments: "(array, value [, …])",
        meaning: "Whether every value is an element",
        count: (2, ANY),
        body: Body::Careful(|arguments, environment| several(arguments, environment, true)),
        examples: &[
            ("ARRAY_CONTAINS_ALL([1, 2, \"a\"], 1, \"a\")", "true"),
            ("ARRAY_CONTAINS_ALL([1, 2], 1, 3)", "false"),
        ],
    },
    Function {
        name: "ARRAY_CONTAINS_ANY",
        arguments: "(array, value [, …])",
        meaning: "Whether one of the values is an element",
        count: (2, ANY),
        body: Body::Careful(|arguments, environment| several(arguments, environment, false)),
        examples: &[
            ("ARRAY_CONTAINS_ANY([1, 2], 3, 2)", "true"),
            ("ARRAY_CONTAINS_ANY([1, 2], 3, 4)", "false"),
        ],
    },
    Function {
        name: "ARRAY_LENGTH",
        arguments: "(array)",
        meaning: "The number of elements",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(count(arguments[0].elements()?.len()))),
        examples: &[
            ("ARRAY_LENGTH([1, [2, 3]])", "2"),
            ("ARRAY_LENGTH([])", "0"),
            ("ARRAY_LENGTH(\"abc\")", "undefined"),
        ],
    },
    Function {
        name: "ARRAY_SLICE",
        arguments: "(array, start [, length])",
        meaning: "The given number of elements from a position on; a negative start counts from the end",
        count: (2, 3),
        body: Body::Pure(slice),
        examples: &[
            ("ARRAY_SLICE([1, 2, 3, 4], 1, 2)", "[2,3]"),
            ("ARRAY_SLICE([1, 2, 3, 4], 2)", "[3,4]"),
            ("ARRAY_SLICE([1, 2, 3, 4], -2, 1)", "[3]"),
            ("ARRAY_SLICE([1, 2], 5)", "[]"),
            ("ARRAY_SLICE([1, 2], 0, -1)", "[]"),
        ],
    },
    Function {
        name: "ARRAY_AVG",
        arguments: "(array)",
        meaning: "The mean of an array of numbers",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            let numbers = numbers(arguments)?;
            mean(&numbers)
        }),
        examples: &[
            ("ARRAY_AVG([1, 2, 6])", "3"),
            ("ARRAY_AVG([])", "undefined"),
            ("ARRAY_AVG([1, \"2\"])", "undefined"),
        ],
    },
    Function {
        name: "ARRAY_MAX",
        arguments: "(array)",
        meaning: "The greatest element in the order of ORDER BY",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            arguments[0].elements()?.iter().max_by(|one, two| one.order(two)).cloned()
        }),
        examples: &[("ARRAY_MAX([1, 6, 2])", "6"), ("ARRAY_MAX([])", "undefined")],
    },
    Function {
        name: "ARRAY_MEDIAN",
        arguments: "(array)",
        meaning: "The median of an array of numbers, the mean of the two middle ones if their number is even",
        count: (1, 1),
        body: Body::Pure(median),
        examples: &[
            ("ARRAY_MEDIAN([9, 1, 2])", "2"),
            ("ARRAY_MEDIAN([4, 1, 2, 3])", "2.5"),
            ("ARRAY_MEDIAN([])", "undefined"),
        ],
    },
    Function {
        name: "ARRAY_MIN",
        arguments: "(array)",
        meaning: "The least element in the order of ORDER BY",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            arguments[0].elements()?.iter().min_by(|one, two| one.order(two)).cloned()
        }),
        examples: &[("ARRAY_MIN([3, 1, 2])", "1"), ("ARRAY_MIN({})", "undefined")],
    },
    Function {
        name: "ARRAY_SUM",
        arguments: "(array)",
        meaning: "The sum of an array of numbers",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(Value::number(numbers(arguments)?.iter().sum()))),
        examples: &[("ARRAY_SUM([1, 2, 6])", "9"), ("ARRAY_SUM([1, null])", "undefined")],
    },
    Function {
        name: "CHOOSE",
        arguments: "(position, value, value [, …])",
        meaning: "The value at the position, counted from 1",
        count: (2, ANY),
        body: Body::Pure(|arguments| {
            let position = usize::try_from(whole(arguments, 0)?).ok().filter(|at| *at > 0)?;
            arguments.get(position).cloned()
        }),
        examples: &[
            ("CHOOSE(2, \"a\", \"b\", \"c\")", "\"b\""),
            ("CHOOSE(0, \"a\", \"b\")", "undefined"),
            ("CHOOSE(4, \"a\", \"b\")", "undefined"),
        ],
    },
    Function {
        name: "ObjectToArray",
        arguments: "(object [, name_key, value_key])",
        meaning: "The properties as an array of objects with a name and a value",
        count: (1, 3),
        body: Body::Careful(object_to_array),
        examples: &[
            (
                "ObjectToArray({a: 1, b: \"x\"})",
                "[{\"k\":\"a\",\"v\":1},{\"k\":\"b\",\"v\":\"x\"}]",
            ),
            ("ObjectToArray({a: 1}, \"name\", \"value\")", "[{\"name\":\"a\",\"value\":1}]"),
            ("ObjectToArray([1])", "undefined"),
        ],
    },
];

fn concat<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let mut all = Vec::new();
    for argument in arguments {
        let Some(elements) = argument.elements() else { return Ok(None) };
        environment.spend(elements.len())?;
        all.extend(elements.iter().cloned());
        environment.allow("ARRAY_CONCAT", all.len().saturating_mul(size_of::<Value<'_>>()))?;
    }
    Ok(Some(Value::array(all)))
}

fn contains<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let wanted = &arguments[1];
    let (Some(elements), Some(partial), false) =
        (arguments[0].elements(), flag(arguments, 2), wanted.is_undefined())
    else {
        return Ok(None);
    };
    let meter = &mut environment.meter;
    for element in elements.iter() {
        meter.step(1)?;
        if element.equals_charged(wanted, meter)? == Some(true)
            || (partial && has_part(element, wanted, 0, meter)?)
        {
            return Ok(Some(Value::Bool(true)));
        }
    }
    Ok(Some(Value::Bool(false)))
}

/// Whether `element` has every property of `wanted`, at every depth.
fn has_part(
    element: &Value<'_>,
    wanted: &Value<'_>,
    depth: u32,
    meter: &mut Meter,
) -> Result<bool, EvaluationError> {
    meter.step(wanted.visit_cost())?;
    let Some(members) = wanted.members().filter(|_| element.kind() == Kind::Object && depth < 64)
    else {
        return Ok(element.equals_charged(wanted, meter)? == Some(true));
    };
    for (name, value) in members.iter() {
        // Each property is searched for from the start of the element.
        meter.step(1 + element.visit_cost())?;
        if !has_part(&element.member(name), value, depth + 1, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn several<'a>(arguments: &[Value<'a>], environment: &mut Environment, all: bool) -> Careful<'a> {
    let Some(elements) = arguments[0].elements() else { return Ok(None) };
    charge_keys(arguments, elements.len() + arguments.len(), environment)?;
    let elements = keys_of(&elements, environment)?;
    let mut found = 0;
    for wanted in &arguments[1..] {
        if wanted.is_undefined() {
            return Ok(None);
        }
        let key = Key::charged(wanted, &mut environment.meter)?;
        found += usize::from(elements.contains(&key));
    }
    Ok(Some(Value::Bool(if all { found == arguments.len() - 1 } else { found > 0 })))
}

fn slice<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let elements = arguments[0].elements()?;
    let start = whole(arguments, 1)?;
    let distance = usize::try_from(start.unsigned_abs()).unwrap_or(usize::MAX);
    let start = if start < 0 { elements.len().saturating_sub(distance) } else { distance };
    let length = if arguments.len() > 2 {
        usize::try_from(whole(arguments, 2)?).unwrap_or(0)
    } else {
        usize::MAX
    };
    Some(Value::array(elements.iter().skip(start).take(length).cloned()))
}

fn numbers(arguments: &[Value<'_>]) -> Option<Vec<f64>> {
    arguments[0].elements()?.iter().map(Value::as_number).collect()
}

#[expect(clippy::cast_precision_loss, reason = "arrays are far shorter than 2^53")]
fn mean<'a>(numbers: &[f64]) -> Option<Value<'a>> {
    if numbers.is_empty() {
        return None;
    }
    Some(Value::number(numbers.iter().sum::<f64>() / numbers.len() as f64))
}

fn median<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let mut numbers = numbers(arguments)?;
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let from = if numbers.len() % 2 == 0 { middle.checked_sub(1)? } else { middle };
    mean(numbers.get(from..=middle)?)
}

fn object_to_array<'a>(arguments: &[Value<'a>], environment: &mut Environment) -> Careful<'a> {
    let named = |place: usize, default: &'static str| match arguments.get(place) {
        None => Some(default.to_owned()),
        Some(name) => name.as_text().map(str::to_owned),
    };
    let (Some(members), Some(name_key), Some(value_key)) =
        (arguments[0].members(), named(1, "k"), named(2, "v"))
    else {
        return Ok(None);
    };
    environment.spend(members.len())?;
    environment.allow("ObjectToArray", members.len().saturating_mul(256))?;
    Ok(Some(Value::array(members.iter().map(|(name, value)| {
        Value::object([
            (name_key.clone().into(), Value::String(name.clone())),
            (value_key.clone().into(), value.clone()),
        ])
    }))))
}
