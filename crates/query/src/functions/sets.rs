//! Arrays as sets: results keep the order of the first array, and equal elements appear once.

use std::collections::HashSet;

use super::{Body, Function};
use crate::error::EvaluationError;
use crate::evaluate::Environment;
use crate::value::{Key, Value};

/// The approximate size of a key in a set without its text: its bytes, their place, and table overhead.
const KEY_BYTES: usize = 96;

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "SetDifference",
        arguments: "(array, array)",
        meaning: "The elements of the first that are not in the second",
        count: (2, 2),
        body: Body::Careful(|arguments, environment| filtered(arguments, environment, false)),
        examples: &[
            ("SetDifference([1, 2, 3, 3], [2])", "[1,3]"),
            ("SetDifference([1], 1)", "undefined"),
        ],
    },
    Function {
        name: "SetEqual",
        arguments: "(array, array)",
        meaning: "Whether both have the same elements, in any order and number",
        count: (2, 2),
        body: Body::Careful(equal),
        examples: &[("SetEqual([1, 2, 2], [2, 1])", "true"), ("SetEqual([1, 2], [1])", "false")],
    },
    Function {
        name: "SetIntersect",
        arguments: "(array, array)",
        meaning: "The elements that are in both",
        count: (2, 2),
        body: Body::Careful(|arguments, environment| filtered(arguments, environment, true)),
        examples: &[
            ("SetIntersect([1, 2, 3, 4], [3, 4, 5, 6])", "[3,4]"),
            ("SetIntersect([1, 1], [1, 1])", "[1]"),
            ("SetIntersect([1, 2], [])", "[]"),
        ],
    },
    Function {
        name: "SetUnion",
        arguments: "(array, array)",
        meaning: "The elements that are in one of them",
        count: (2, 2),
        body: Body::Careful(union),
        examples: &[
            ("SetUnion([1, 2, 3, 4], [3, 4, 5, 6])", "[1,2,3,4,5,6]"),
            ("SetUnion([1, 2, \"A\", \"B\"], [\"A\", 1])", "[1,2,\"A\",\"B\"]"),
        ],
    },
];

/// Charges for a set of the elements: each has its own key.
pub(super) fn charge_keys(
    arguments: &[Value<'_>],
    elements: usize,
    environment: &mut Environment,
) -> Result<(), EvaluationError> {
    environment.spend(elements)?;
    let texts = arguments.iter().map(Value::weight).fold(0, usize::saturating_add);
    let keys = elements.saturating_mul(KEY_BYTES);
    environment.meter.charge(texts.saturating_add(keys))
}

/// The keys of the elements, each charged by its size.
pub(super) fn keys_of(
    elements: &[Value<'_>],
    environment: &mut Environment,
) -> Result<HashSet<Key>, EvaluationError> {
    elements.iter().map(|element| Key::charged(element, &mut environment.meter)).collect()
}

/// The elements of the first array, each once, that are or are not in the second.
fn filtered<'a>(
    arguments: &[Value<'a>],
    environment: &mut Environment,
    is_shared: bool,
) -> Result<Option<Value<'a>>, EvaluationError> {
    let (Some(one), Some(two)) = (arguments[0].elements(), arguments[1].elements()) else {
        return Ok(None);
    };
    charge_keys(arguments, one.len() + two.len(), environment)?;
    let two = keys_of(&two, environment)?;
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for element in one.iter() {
        let key = Key::charged(element, &mut environment.meter)?;
        if two.contains(&key) == is_shared && seen.insert(key) {
            kept.push(element.clone());
        }
    }
    Ok(Some(Value::array(kept)))
}

fn equal<'a>(
    arguments: &[Value<'a>],
    environment: &mut Environment,
) -> Result<Option<Value<'a>>, EvaluationError> {
    let (Some(one), Some(two)) = (arguments[0].elements(), arguments[1].elements()) else {
        return Ok(None);
    };
    charge_keys(arguments, one.len() + two.len(), environment)?;
    let (one, two) = (keys_of(&one, environment)?, keys_of(&two, environment)?);
    Ok(Some(Value::Bool(one == two)))
}

fn union<'a>(
    arguments: &[Value<'a>],
    environment: &mut Environment,
) -> Result<Option<Value<'a>>, EvaluationError> {
    let (Some(one), Some(two)) = (arguments[0].elements(), arguments[1].elements()) else {
        return Ok(None);
    };
    charge_keys(arguments, one.len() + two.len(), environment)?;
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for element in one.iter().chain(two.iter()) {
        if seen.insert(Key::charged(element, &mut environment.meter)?) {
            kept.push(element.clone());
        }
    }
    Ok(Some(Value::array(kept)))
}
