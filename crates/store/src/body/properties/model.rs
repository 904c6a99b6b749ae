//! A reference model of patching: a plain implementation over a tree of values.

use serde_json::{Number, Value};

use crate::body::{Operation, OperationProblem, Pointer};

/// Why the model rejects an operation: the kinds of `OperationProblem`, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    PathNotFound,
    IndexOutOfRange,
    NotAnIndex,
    NotANumber,
    NotFinite,
    Protected,
    MoveIntoSelf,
}

impl Refusal {
    pub(super) fn of(problem: &OperationProblem) -> Refusal {
        match problem {
            OperationProblem::PathNotFound => Refusal::PathNotFound,
            OperationProblem::IndexOutOfRange { .. } => Refusal::IndexOutOfRange,
            OperationProblem::NotAnIndex { .. } => Refusal::NotAnIndex,
            OperationProblem::NotANumber { .. } => Refusal::NotANumber,
            OperationProblem::NotFinite => Refusal::NotFinite,
            OperationProblem::Protected => Refusal::Protected,
            OperationProblem::MoveIntoSelf { .. } => Refusal::MoveIntoSelf,
            other => panic!("{other} is not a refusal of an item"),
        }
    }
}

type Outcome<T> = Result<T, Refusal>;

pub(super) fn apply(item: &mut Value, operation: &Operation) -> Outcome<()> {
    let path: Vec<&str> = operation.path().segments().collect();
    if path[0] == "id" || path[0] == "_ts" {
        return Err(Refusal::Protected);
    }
    let value = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
    match operation {
        Operation::Add { value: text, .. } => put(item, &path, value(text.as_bytes()), true),
        Operation::Set { value: text, .. } => put(item, &path, value(text.as_bytes()), false),
        Operation::Replace { value: text, .. } => {
            *find(item, &path)? = value(text.as_bytes());
            Ok(())
        }
        Operation::Remove { .. } => take(item, &path).map(drop),
        Operation::Increment { by, .. } => increment(item, &path, value(by.as_bytes())),
        Operation::Move { from, .. } => move_value(item, from, &path),
    }
}

fn move_value(item: &mut Value, from: &Pointer, path: &[&str]) -> Outcome<()> {
    let from: Vec<&str> = from.segments().collect();
    if from[0] == "id" || from[0] == "_ts" {
        return Err(Refusal::Protected);
    }
    if path.len() > from.len() && path.starts_with(&from) {
        return Err(Refusal::MoveIntoSelf);
    }
    if path == from {
        return find(item, path).map(drop);
    }
    let value = take(item, &from)?;
    put(item, path, value, true)
}

/// The value at a path that must exist.
fn find<'v>(item: &'v mut Value, path: &[&str]) -> Outcome<&'v mut Value> {
    let mut value = item;
    for segment in path {
        value = match value {
            Value::Object(map) => map.get_mut(*segment).ok_or(Refusal::PathNotFound)?,
            Value::Array(list) => {
                let index = index(segment, list.len())?;
                list.get_mut(index).ok_or(Refusal::IndexOutOfRange)?
            }
            _ => return Err(Refusal::PathNotFound),
        };
    }
    Ok(value)
}

fn put(item: &mut Value, path: &[&str], value: Value, inserts: bool) -> Outcome<()> {
    let (last, parents) = path.split_last().unwrap();
    match find(item, parents)? {
        Value::Object(map) => drop(map.insert((*last).to_owned(), value)),
        Value::Array(list) => match index(last, list.len())? {
            index if index > list.len() => return Err(Refusal::IndexOutOfRange),
            index if inserts || index == list.len() => list.insert(index, value),
            index => list[index] = value,
        },
        _ => return Err(Refusal::PathNotFound),
    }
    Ok(())
}

fn take(item: &mut Value, path: &[&str]) -> Outcome<Value> {
    let (last, parents) = path.split_last().unwrap();
    match find(item, parents)? {
        Value::Object(map) => map.remove(*last).ok_or(Refusal::PathNotFound),
        Value::Array(list) => match index(last, list.len())? {
            index if index >= list.len() => Err(Refusal::IndexOutOfRange),
            index => Ok(list.remove(index)),
        },
        _ => Err(Refusal::PathNotFound),
    }
}

fn increment(item: &mut Value, path: &[&str], by: Value) -> Outcome<()> {
    let (last, parents) = path.split_last().unwrap();
    if let Value::Object(map) = find(item, parents)?
        && !map.contains_key(*last)
    {
        map.insert((*last).to_owned(), by);
        return Ok(());
    }
    let value = find(item, path)?;
    if !value.is_number() {
        return Err(Refusal::NotANumber);
    }
    let whole = value.as_i64().zip(by.as_i64()).and_then(|(one, other)| one.checked_add(other));
    *value = match whole {
        Some(sum) => sum.into(),
        None => {
            let sum = value.as_f64().unwrap() + by.as_f64().unwrap();
            Value::Number(Number::from_f64(sum).ok_or(Refusal::NotFinite)?)
        }
    };
    Ok(())
}

fn index(segment: &str, length: usize) -> Outcome<usize> {
    if segment == "-" {
        return Ok(length);
    }
    match segment.parse::<usize>() {
        Ok(index) if index.to_string() == segment => Ok(index),
        _ => Err(Refusal::NotAnIndex),
    }
}
