//! Applies a patch to the bytes of an item, one function per kind of operation.

use super::increment;
use super::slot::Slot;
use super::{Operation, OperationProblem, Patch, PatchError, Pointer};
use crate::body::scan::{Limits, validate_object};
use crate::body::wanted::SYSTEM;
use crate::body::{ValueKind, ValueSpan};

/// Applies a patch to an item and returns the changed copy.
///
/// `protected` are the paths of the partition key, which must not change. An operation on a parent or
/// a child of a protected path is rejected too, since it could change the key. `id` and the system
/// properties are always protected.
///
/// The item may have its system properties or not. The result is checked as an item except for its
/// size, which is checked by the scan before the write.
pub fn patch<P, S>(item: &[u8], patch: &Patch, protected: &[P]) -> Result<Vec<u8>, PatchError>
where
    P: AsRef<[S]>,
    S: AsRef<str>,
{
    PatchError::check_count(patch.operations.len())?;
    let is_protected = |pointer: &Pointer| {
        pointer.overlaps(&["id"])
            || SYSTEM.iter().any(|name| pointer.overlaps(&[name]))
            || protected.iter().any(|path| pointer.overlaps(path.as_ref()))
    };
    let mut patched = item.to_vec();
    for (index, operation) in patch.operations.iter().enumerate() {
        apply(&mut patched, operation, is_protected).map_err(|(path, problem)| {
            PatchError::Operation { operation: index, path: path.clone(), problem }
        })?;
    }
    let limits = Limits { item_bytes_max: usize::MAX, ..Limits::default() };
    validate_object(&patched, limits).map_err(PatchError::Outcome)?;
    Ok(patched)
}

/// Applies one operation. On failure the item may be half changed; the caller drops it.
fn apply<'p>(
    item: &mut Vec<u8>,
    operation: &'p Operation,
    is_protected: impl Fn(&Pointer) -> bool,
) -> Result<(), (&'p Pointer, OperationProblem)> {
    let path = operation.path();
    if is_protected(path) {
        return Err((path, OperationProblem::Protected));
    }
    let done = match operation {
        Operation::Add { value, .. } => add(item, path, value.as_bytes()),
        Operation::Set { value, .. } => set(item, path, value.as_bytes()),
        Operation::Replace { value, .. } => replace(item, path, value.as_bytes()),
        Operation::Remove { .. } => remove(item, path).map(drop),
        Operation::Increment { by, .. } => increment(item, path, by.as_bytes()),
        Operation::Move { from, .. } => {
            if is_protected(from) {
                return Err((from, OperationProblem::Protected));
            }
            if from.contains(path) {
                let problem = OperationProblem::MoveIntoSelf { from: from.clone() };
                return Err((path, problem));
            }
            if from == path {
                exists(item, path)
            } else {
                let value = remove(item, from).map_err(|problem| (from, problem))?;
                add(item, path, &value)
            }
        }
    };
    done.map_err(|problem| (path, problem))
}

fn add(item: &mut Vec<u8>, path: &Pointer, value: &[u8]) -> Result<(), OperationProblem> {
    let slot = Slot::find(item, path)?;
    match slot.current {
        Some(part) if slot.is_element() => slot.insert(item, part, value),
        Some(part) => slot.overwrite(item, part, value),
        None if slot.is_element() && !slot.is_end => return Err(missing(&slot)),
        None => slot.append(item, value),
    }
    Ok(())
}

fn set(item: &mut Vec<u8>, path: &Pointer, value: &[u8]) -> Result<(), OperationProblem> {
    let slot = Slot::find(item, path)?;
    match slot.current {
        Some(part) => slot.overwrite(item, part, value),
        None if slot.is_element() && !slot.is_end => return Err(missing(&slot)),
        None => slot.append(item, value),
    }
    Ok(())
}

fn replace(item: &mut Vec<u8>, path: &Pointer, value: &[u8]) -> Result<(), OperationProblem> {
    let slot = Slot::find(item, path)?;
    let part = slot.current.ok_or_else(|| missing(&slot))?;
    slot.overwrite(item, part, value);
    Ok(())
}

/// Removes a value and returns it.
fn remove(item: &mut Vec<u8>, path: &Pointer) -> Result<Vec<u8>, OperationProblem> {
    let slot = Slot::find(item, path)?;
    let part = slot.current.ok_or_else(|| missing(&slot))?;
    let value = part.value.text(item).to_vec();
    slot.remove(item, part);
    Ok(value)
}

fn increment(item: &mut Vec<u8>, path: &Pointer, by: &[u8]) -> Result<(), OperationProblem> {
    let slot = Slot::find(item, path)?;
    match slot.current {
        Some(part) => {
            let sum = sum(item, part.value, by)?;
            slot.overwrite(item, part, sum.as_bytes());
        }
        None if slot.is_element() => return Err(missing(&slot)),
        None => slot.append(item, by),
    }
    Ok(())
}

fn sum(item: &[u8], value: ValueSpan, by: &[u8]) -> Result<String, OperationProblem> {
    if value.kind != ValueKind::Number {
        return Err(OperationProblem::NotANumber { found: value.kind });
    }
    let texts = std::str::from_utf8(value.text(item)).ok().zip(std::str::from_utf8(by).ok());
    texts.and_then(|(value, by)| increment::sum(value, by)).ok_or(OperationProblem::NotFinite)
}

fn exists(item: &[u8], path: &Pointer) -> Result<(), OperationProblem> {
    let slot = Slot::find(item, path)?;
    if slot.current.is_some() { Ok(()) } else { Err(missing(&slot)) }
}

/// The problem to report for an empty slot.
fn missing(slot: &Slot<'_>) -> OperationProblem {
    if slot.is_element() {
        OperationProblem::IndexOutOfRange { length: slot.length }
    } else {
        OperationProblem::PathNotFound
    }
}
