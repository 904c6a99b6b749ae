//! Parses the bytes of a request into a `Patch`.
//!
//! Clients send two forms: `{"operations":[…],"condition":"from c where …"}`, and the bare array of
//! operations. Unknown members are ignored. The whole request is validated by the rules of an item
//! first, so no value in it contains a duplicate key or an invalid number.

use super::{Json, Operation, Patch, PatchError, Pointer};
use crate::body::cursor::{elements, member, root};
use crate::body::{Limits, ValueKind, ValueSpan, validate_value};

impl Patch {
    /// Parses a patch from the body of a request.
    pub fn parse(request: &[u8]) -> Result<Patch, PatchError> {
        let limits = Limits::default();
        if request.len() > limits.item_bytes_max {
            let (bytes, limit) = (request.len(), limits.item_bytes_max);
            return Err(PatchError::TooLarge { bytes, limit });
        }
        validate_value(request, limits).map_err(PatchError::NotJson)?;
        let malformed = |problem| PatchError::Malformed { problem };
        let whole = root(request).ok_or(malformed("expected a value"))?;
        let (list, condition) = match whole.kind {
            ValueKind::Array => (whole, None),
            ValueKind::Object => {
                let list = member(request, whole, "operations");
                (list.ok_or(malformed("expected \"operations\""))?, condition(request, whole)?)
            }
            _ => {
                return Err(malformed("expected an object with \"operations\", or an array"));
            }
        };
        if list.kind != ValueKind::Array {
            return Err(malformed("expected \"operations\" to be an array"));
        }
        // Counted first, so that a list that is too long is rejected without copying its values.
        let count = elements(request, list).count();
        PatchError::check_count(count)?;
        if count == 0 {
            return Err(malformed("expected at least one operation"));
        }
        let operations = elements(request, list).enumerate().map(|(index, operation)| {
            parse_operation(request, operation)
                .map_err(|problem| PatchError::MalformedOperation { operation: index, problem })
        });
        Ok(Patch { operations: operations.collect::<Result<_, _>>()?, condition })
    }
}

fn condition(request: &[u8], whole: ValueSpan) -> Result<Option<String>, PatchError> {
    match member(request, whole, "condition") {
        None => Ok(None),
        Some(span) if span.kind == ValueKind::Null => Ok(None),
        Some(span) => match span.as_str(request) {
            Some(text) => Ok(Some(text.into_owned())),
            None => Err(PatchError::Malformed { problem: "expected \"condition\" to be a string" }),
        },
    }
}

fn parse_operation(request: &[u8], operation: ValueSpan) -> Result<Operation, &'static str> {
    if operation.kind != ValueKind::Object {
        return Err("expected an object");
    }
    let text = |name| member(request, operation, name).and_then(|span| span.as_str(request));
    let value = || {
        let span = member(request, operation, "value").ok_or("expected \"value\"")?;
        Ok::<_, &'static str>(Json(span.text(request).to_vec()))
    };
    let name = text("op").ok_or("expected \"op\" to be a string")?;
    let path = Pointer::parse(&text("path").ok_or("expected \"path\" to be a string")?)?;
    Ok(match &*name {
        "add" => Operation::Add { path, value: value()? },
        "set" => Operation::Set { path, value: value()? },
        "replace" => Operation::Replace { path, value: value()? },
        "remove" => Operation::Remove { path },
        "incr" | "increment" => match member(request, operation, "value").map(|span| span.kind) {
            Some(ValueKind::Number) => Operation::Increment { path, by: value()? },
            _ => return Err("expected \"value\" to be a number"),
        },
        "move" => {
            let from = text("from").ok_or("expected \"from\" to be a string")?;
            Operation::Move { from: Pointer::parse(&from)?, path }
        }
        _ => return Err("expected \"op\" to be add, set, replace, remove, incr or move"),
    })
}
