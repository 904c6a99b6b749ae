//! Errors of parsing and applying a patch.
//!
//! The sender must change the request in every case. Concurrent changes of the item are the concern
//! of etags and conditions, which are checked elsewhere. Operations are counted from zero, as in the
//! request.

use super::{OPERATIONS_MAX, Pointer};
use crate::body::{BodyError, ValueKind};

/// Why a patch was rejected. The item is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The request is longer than an item may be.
    #[error("patch is {bytes} bytes; the limit is {limit}, so replace the item instead")]
    TooLarge {
        /// Length of the request.
        bytes: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The request is not valid JSON, or breaks one of our stricter rules.
    #[error("patch is not acceptable json")]
    NotJson(#[source] BodyError),
    /// The request is JSON, but not a patch.
    #[error("patch is malformed: {problem}")]
    Malformed {
        /// What was expected.
        problem: &'static str,
    },
    /// One element of the list is not a valid operation.
    #[error("operations[{operation}] is malformed: {problem}")]
    MalformedOperation {
        /// Index of the operation.
        operation: usize,
        /// What was expected.
        problem: &'static str,
    },
    /// The patch has more operations than the limit.
    #[error("patch has {count} operations; the limit is {limit}, so send several patches")]
    TooManyOperations {
        /// Number of operations in the patch.
        count: usize,
        /// Maximum number of operations.
        limit: usize,
    },
    /// One operation cannot be applied to this item.
    #[error("operations[{operation}] on {path}: {problem}{}", beyond(.problem, .path))]
    Operation {
        /// Index of the operation.
        operation: usize,
        /// The path it failed on.
        path: Pointer,
        /// Why it failed.
        problem: OperationProblem,
    },
    /// All operations were applied, but the result is not a valid item.
    #[error("patched item would be invalid")]
    Outcome(#[source] BodyError),
}

impl PatchError {
    /// Fails if `count` exceeds `OPERATIONS_MAX`.
    pub(super) fn check_count(count: usize) -> Result<(), PatchError> {
        if count <= OPERATIONS_MAX {
            return Ok(());
        }
        Err(PatchError::TooManyOperations { count, limit: OPERATIONS_MAX })
    }
}

/// The words of Cosmos DB for a path whose parent is missing; clients search messages for them.
fn beyond(problem: &OperationProblem, path: &Pointer) -> String {
    match (problem, path.parents().last()) {
        (OperationProblem::PathNotFound, Some(parent)) => {
            format!("; no path found beyond: '{parent}'")
        }
        _ => String::new(),
    }
}

/// Why one operation cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationProblem {
    /// The path or one of its parents does not exist.
    #[error("path does not exist; create it with add or set, parents first")]
    PathNotFound,
    /// An array on the path has no such index.
    #[error("index is out of range; the array has {length} elements")]
    IndexOutOfRange {
        /// Number of elements in the array.
        length: usize,
    },
    /// A segment that addresses an array is not an index.
    #[error("segment {segment:?} addresses an array; use an index without leading zeros, or -")]
    NotAnIndex {
        /// The segment, unescaped.
        segment: String,
    },
    /// The value to increment is not a number.
    #[error("value is {found}; only a number can be incremented")]
    NotANumber {
        /// Kind of the value at the path.
        found: ValueKind,
    },
    /// The sum, or the number to add, is beyond the range of a double.
    #[error("number is beyond the range of a double; use a smaller one")]
    NotFinite,
    /// The path is, contains or is part of something that cannot be patched.
    #[error("path is protected: ids, partition keys and system properties cannot be patched")]
    Protected,
    /// A value cannot be moved into itself.
    #[error("path lies inside of the value that is moved from {from}; move to another place")]
    MoveIntoSelf {
        /// Path of the value.
        from: Pointer,
    },
    /// The value given is not JSON text. Only when a patch is built in Rust.
    // Part of the message, not a source, because the source of a problem is never shown.
    #[error("value is not acceptable: {0}")]
    BadValue(BodyError),
}
