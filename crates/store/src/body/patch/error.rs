//! Why a patch was not applied.
//!
//! Every case is the sender's to mend: an item that changed in the meantime is a matter of etags
//! and conditions, which are not looked at here. Operations are counted from zero, as in the
//! request.

use super::{OPERATIONS_MAX, Pointer};
use crate::body::{BodyError, ValueKind};

/// Why nothing was changed.
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
    /// The request is not JSON by our rules.
    #[error("patch is not acceptable json")]
    NotJson(#[source] BodyError),
    /// The request is JSON, but not a patch.
    #[error("patch is malformed: {problem}")]
    Malformed {
        /// What should have been there.
        problem: &'static str,
    },
    /// One operation is not an operation.
    #[error("operations[{operation}] is malformed: {problem}")]
    MalformedOperation {
        /// Its index.
        operation: usize,
        /// What should have been there.
        problem: &'static str,
    },
    /// There are more operations than one patch may have.
    #[error("patch has {count} operations; the limit is {limit}, so send several patches")]
    TooManyOperations {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// One operation cannot be done to this item.
    #[error("operations[{operation}] on {path}: {problem}{}", beyond(.problem, .path))]
    Operation {
        /// Its index.
        operation: usize,
        /// The path it failed on.
        path: Pointer,
        /// Why.
        problem: OperationProblem,
    },
    /// Each operation could be done, but what came out is not an item.
    #[error("patched item would be invalid")]
    Outcome(#[source] BodyError),
}

impl PatchError {
    /// Fails if there are too many operations.
    pub(super) fn check_count(count: usize) -> Result<(), PatchError> {
        if count <= OPERATIONS_MAX {
            return Ok(());
        }
        Err(PatchError::TooManyOperations { count, limit: OPERATIONS_MAX })
    }
}

/// The service's own words for a path whose parent is missing, which clients look for.
fn beyond(problem: &OperationProblem, path: &Pointer) -> String {
    match (problem, path.parents().last()) {
        (OperationProblem::PathNotFound, Some(parent)) => {
            format!("; no path found beyond: '{parent}'")
        }
        _ => String::new(),
    }
}

/// Why one operation cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationProblem {
    /// There is nothing at the path, or nothing on the way to it.
    #[error("path does not exist; create it with add or set, parents first")]
    PathNotFound,
    /// An array on the path has no such index.
    #[error("index is out of range; the array has {length} elements")]
    IndexOutOfRange {
        /// How many elements the array has.
        length: usize,
    },
    /// An array on the path is addressed by something that is no index.
    #[error("segment {segment:?} addresses an array; use an index without leading zeros, or -")]
    NotAnIndex {
        /// What was used.
        segment: String,
    },
    /// The value to increment is not a number.
    #[error("value is {found}; only a number can be incremented")]
    NotANumber {
        /// What it is instead.
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
        /// Where the value is.
        from: Pointer,
    },
    /// The value given is not JSON text. Only when a patch is built in Rust.
    // In the message and not its source, because nothing shows the source of a problem.
    #[error("value is not acceptable: {0}")]
    BadValue(BodyError),
}
