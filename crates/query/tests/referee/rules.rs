//! The referee: evaluates a question the slow way. `None` is undefined.

use crate::make::{Question, Shape, Term};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;

/// The bindings of one row.
struct Row<'i> {
    ordinal: usize,
    item: &'i Value,
    element: Option<&'i Value>,
}

/// The rows of a question, in order.
pub(crate) fn rows(question: &Question, items: &[Value]) -> Vec<Value> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (ordinal, item) in items.iter().enumerate() {
        match &question.join {
            None => rows.push(Row { ordinal, item, element: None }),
            Some(names) => {
                let elements = follow(item, names).and_then(Value::as_array);
                let of = |element| Row { ordinal, item, element: Some(element) };
                rows.extend(elements.into_iter().flatten().map(of));
            }
        }
    }
    if let Some(filter) = &question.filter {
        rows.retain(|row| value(filter, row) == Some(Value::Bool(true)));
    }
    let made = match &question.shape {
        Shape::Values { distinct, of } => {
            let mut made: Vec<Value> = Vec::new();
            for one in rows.iter().filter_map(|row| value(of, row)) {
                if !distinct || !made.iter().any(|known| order(known, &one).is_eq()) {
                    made.push(one);
                }
            }
            made
        }
        Shape::Sorted { of, descending, window } => {
            // Rows of one item have equal sort keys and keep their order.
            rows.sort_by(|one, two| {
                let by_key = order(&one.item["s"], &two.item["s"]);
                let by_key = if *descending { by_key.reverse() } else { by_key };
                by_key.then(one.ordinal.cmp(&two.ordinal))
            });
            let made = rows.iter().filter_map(|row| value(of, row));
            match window {
                Some((skip, take)) => made
                    .skip(usize::try_from(*skip).unwrap())
                    .take(usize::try_from(*take).unwrap())
                    .collect(),
                None => made.collect(),
            }
        }
        Shape::Grouped { by, of } => groups(by.as_ref(), of, &rows),
    };
    made.iter().map(normal).collect()
}

fn groups(by: Option<&Term>, of: &Term, rows: &[Row<'_>]) -> Vec<Value> {
    let mut groups: Vec<(Option<Value>, Vec<Value>)> = Vec::new();
    if by.is_none() {
        groups.push((None, Vec::new()));
    }
    for row in rows {
        let key = by.and_then(|by| value(by, row));
        let is_same = |known: &Option<Value>| match (known, &key) {
            (Some(one), Some(two)) => order(one, two).is_eq(),
            (one, two) => one.is_none() && two.is_none(),
        };
        let place = groups.iter().position(|(known, _)| is_same(known)).unwrap_or_else(|| {
            groups.push((key.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[place].1.extend(value(of, row));
    }
    groups.into_iter().map(|(key, values)| Value::Object(aggregated(key, &values))).collect()
}

fn aggregated(key: Option<Value>, values: &[Value]) -> Map<String, Value> {
    let mut row = Map::new();
    row.extend(key.map(|key| ("k".to_owned(), key)));
    row.insert("n".to_owned(), json!(values.len()));
    let numbers: Option<Vec<f64>> = values.iter().map(Value::as_f64).collect();
    row.extend(numbers.map(|numbers| ("t".to_owned(), json!(numbers.iter().sum::<f64>() + 0.0))));
    if !values.iter().any(|one| one.is_array() || one.is_object()) {
        let least = values.iter().min_by(|one, two| order(one, two));
        let most = values.iter().max_by(|one, two| order(one, two));
        row.extend(least.map(|least| ("l".to_owned(), least.clone())));
        row.extend(most.map(|most| ("m".to_owned(), most.clone())));
    }
    row
}

fn follow<'v>(mut value: &'v Value, names: &[&str]) -> Option<&'v Value> {
    for name in names {
        value = value.as_object()?.get(*name)?;
    }
    Some(value)
}

fn value(term: &Term, row: &Row<'_>) -> Option<Value> {
    let of = |term: &Term| value(term, row);
    match term {
        Term::Literal(value) => Some(value.clone()),
        Term::Path("c", names) => follow(row.item, names).cloned(),
        Term::Path(_, names) => follow(row.element?, names).cloned(),
        Term::Compare(operator, two) => {
            compared(operator, of(&two[0])?, of(&two[1])?).map(Value::Bool)
        }
        Term::Arithmetic(operator, two) => {
            let (one, two) = (of(&two[0])?.as_f64()?, of(&two[1])?.as_f64()?);
            Some(json!(match operator {
                '+' => one + two,
                '-' => one - two,
                _ => one * two,
            }))
        }
        Term::Concatenate(two) => {
            let (one, two) = (of(&two[0])?, of(&two[1])?);
            Some(json!(format!("{}{}", one.as_str()?, two.as_str()?)))
        }
        Term::Coalesce(two) => of(&two[0]).or_else(|| of(&two[1])),
        Term::And(all) => truth(all.iter().map(of), false),
        Term::Or(all) => truth(all.iter().map(of), true),
        Term::Not(one) => of(one)?.as_bool().map(|one| Value::Bool(!one)),
        Term::Choice(three) => {
            let is_so = of(&three[0]) == Some(Value::Bool(true));
            of(if is_so { &three[1] } else { &three[2] })
        }
        Term::In(one, all) => {
            let one = of(one)?;
            Some(Value::Bool(all.iter().filter_map(of).any(|other| order(&one, &other).is_eq())))
        }
        Term::Between(three) => {
            let [one, low, high] = [of(&three[0]), of(&three[1]), of(&three[2])];
            let above = one.clone().zip(low).and_then(|(one, low)| compared(">=", one, low));
            let below = one.zip(high).and_then(|(one, high)| compared("<=", one, high));
            truth([above, below].map(|one| one.map(Value::Bool)).into_iter(), false)
        }
        Term::IsDefined(one) => Some(Value::Bool(of(one).is_some())),
        Term::Array(all) => Some(all.iter().filter_map(of).collect()),
        Term::Exists(names, condition) => {
            let elements = follow(row.item, names).and_then(Value::as_array);
            let is_met = |element| {
                let row = Row { ordinal: row.ordinal, item: row.item, element: Some(element) };
                value(condition, &row) == Some(Value::Bool(true))
            };
            Some(Value::Bool(elements.into_iter().flatten().any(is_met)))
        }
    }
}

/// `AND` or `OR`: a `decisive` value decides; otherwise a value that is not a boolean makes it undefined.
fn truth(all: impl Iterator<Item = Option<Value>>, decisive: bool) -> Option<Value> {
    let all: Vec<Option<bool>> = all.map(|one| one.as_ref().and_then(Value::as_bool)).collect();
    if all.contains(&Some(decisive)) {
        return Some(Value::Bool(decisive));
    }
    (!all.contains(&None)).then_some(Value::Bool(!decisive))
}

fn compared(operator: &str, one: Value, two: Value) -> Option<bool> {
    match operator {
        "=" => return Some(order(&one, &two).is_eq()),
        "!=" => return Some(order(&one, &two).is_ne()),
        _ => {}
    }
    if rank(&one) != rank(&two) || one.is_array() || one.is_object() {
        return None;
    }
    let order = order(&one, &two);
    Some(match operator {
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

/// The order of all values.
fn order(one: &Value, two: &Value) -> Ordering {
    match (one, two) {
        (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
        (Value::Number(one), Value::Number(two)) => {
            one.as_f64().partial_cmp(&two.as_f64()).unwrap()
        }
        (Value::String(one), Value::String(two)) => one.cmp(two),
        (Value::Array(one), Value::Array(two)) => {
            let first =
                one.iter().zip(two).map(|(one, two)| order(one, two)).find(|order| order.is_ne());
            first.unwrap_or(one.len().cmp(&two.len()))
        }
        (Value::Object(one), Value::Object(two)) => {
            let sorted = |of: &Map<String, Value>| {
                let mut members: Vec<_> =
                    of.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                members.sort_by(|one, two| one.0.cmp(&two.0));
                members
            };
            let (one, two) = (sorted(one), sorted(two));
            let pairs = one.iter().zip(&two);
            let mut orders =
                pairs.map(|(one, two)| one.0.cmp(&two.0).then_with(|| order(&one.1, &two.1)));
            orders.find(|order| order.is_ne()).unwrap_or(one.len().cmp(&two.len()))
        }
        _ => rank(one).cmp(&rank(two)),
    }
}

/// A value with its numbers in one notation.
pub(crate) fn normal(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap() + 0.0),
        Value::Array(elements) => elements.iter().map(normal).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(name, value)| (name.clone(), normal(value))).collect(),
        ),
        other => other.clone(),
    }
}
