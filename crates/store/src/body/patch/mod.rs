//! Patches an item: changes parts of it and leaves every other byte as it is.
//!
//! A patch is up to ten operations, applied one after another to a copy of the item. Each operation
//! walks the bytes to its path, cuts a range out of them and inserts text:
//!
//! ```text
//! {"id":"1","price":1.50,"tags":["a","b"]}
//! remove /tags/0             ^^^^                     {"id":"1","price":1.50,"tags":["b"]}
//! set    /price 2                                     {"id":"1","price":2,"tags":["b"]}
//! incr   /count 1                                     {"id":"1","price":2,"tags":["b"],"count":1}
//! ```
//!
//! A patch is atomic: the first operation that fails ends it, and the copy is dropped. The `id`, the
//! partition key and the system properties cannot be patched. The condition is stored for the caller
//! and never evaluated here.
//!
//! A patch comes from a request (`Patch::parse`) or is built in Rust:
//!
//! ```text
//! let patch = Patch::new().set("/price", "2")?.increment("/count", 1)?.remove("/tags/0")?;
//! ```

mod apply;
mod error;
mod increment;
mod parse;
mod pointer;
mod slot;
#[cfg(test)]
mod tests;

pub use apply::patch;
pub use error::{OperationProblem, PatchError};
pub use pointer::Pointer;

use super::error::BodyError;
use super::scan::{Limits, validate_value};

/// Maximum number of operations in one patch.
pub const OPERATIONS_MAX: usize = 10;

/// A list of operations on one item, with an optional condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// The operations, in the order they are applied.
    pub operations: Vec<Operation>,
    /// A filter such as `from c where c.n = 1` that the item must match.
    pub condition: Option<String>,
}

/// One operation of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates or overwrites a property; inserts an array element before the one at the index.
    Add {
        /// Path to write; its parent must exist.
        path: Pointer,
        /// The value to add.
        value: Json,
    },
    /// Creates or overwrites a property; overwrites an array element.
    Set {
        /// Path to write; its parent must exist.
        path: Pointer,
        /// The value to set.
        value: Json,
    },
    /// Overwrites an existing value.
    Replace {
        /// Path to write; must exist.
        path: Pointer,
        /// The new value.
        value: Json,
    },
    /// Removes a property or an array element.
    Remove {
        /// Path to remove; must exist.
        path: Pointer,
    },
    /// Adds to a number; a missing property is created with the value `by`.
    Increment {
        /// Path of a number, or of a property that does not exist yet.
        path: Pointer,
        /// The number to add, as text.
        by: Json,
    },
    /// Removes a value and adds it at another path.
    Move {
        /// Path of the value; must exist.
        from: Pointer,
        /// Path to move to, by the rules of `Add`; must not be inside `from`.
        path: Pointer,
    },
}

impl Operation {
    /// The path the operation writes to.
    #[must_use]
    pub fn path(&self) -> &Pointer {
        match self {
            Operation::Add { path, .. }
            | Operation::Set { path, .. }
            | Operation::Replace { path, .. }
            | Operation::Remove { path }
            | Operation::Increment { path, .. }
            | Operation::Move { path, .. } => path,
        }
    }
}

/// One JSON value as validated text, without whitespace around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Vec<u8>);

impl Json {
    /// Validates a text as one JSON value of any kind within the limits of an item.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Json, BodyError> {
        let text = text.as_ref();
        let span = validate_value(text, Limits::default())?;
        Ok(Json(span.text(text).to_vec()))
    }

    /// The text, exactly as it was written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Patch {
    /// Creates a patch without operations.
    #[must_use]
    pub fn new() -> Patch {
        Patch::default()
    }

    /// Makes the patch depend on a filter, which must begin with `from`.
    #[must_use]
    pub fn when(self, condition: impl Into<String>) -> Patch {
        Patch { condition: Some(condition.into()), ..self }
    }

    /// Creates or overwrites a property, or inserts an array element. The value is JSON text: the
    /// string *hello* is `"\"hello\""`.
    pub fn add(self, path: &str, value: impl AsRef<[u8]>) -> Result<Patch, PatchError> {
        self.with_value(path, value, |path, value| Operation::Add { path, value })
    }

    /// Creates or overwrites a property, or overwrites an array element. The value is JSON text.
    pub fn set(self, path: &str, value: impl AsRef<[u8]>) -> Result<Patch, PatchError> {
        self.with_value(path, value, |path, value| Operation::Set { path, value })
    }

    /// Overwrites a value that must exist. The value is JSON text.
    pub fn replace(self, path: &str, value: impl AsRef<[u8]>) -> Result<Patch, PatchError> {
        self.with_value(path, value, |path, value| Operation::Replace { path, value })
    }

    /// Removes a value that must exist.
    pub fn remove(self, path: &str) -> Result<Patch, PatchError> {
        let path = self.pointer(path)?;
        self.with(Operation::Remove { path })
    }

    /// Adds a whole number to a number, or creates it.
    pub fn increment(self, path: &str, by: i64) -> Result<Patch, PatchError> {
        let path = self.pointer(path)?;
        self.with(Operation::Increment { path, by: Json(by.to_string().into_bytes()) })
    }

    /// Adds a fractional number to a number, or creates it.
    pub fn increment_by_float(self, path: &str, by: f64) -> Result<Patch, PatchError> {
        let path = self.pointer(path)?;
        if !by.is_finite() {
            return Err(self.refuse(path, OperationProblem::NotFinite));
        }
        self.with(Operation::Increment { path, by: Json(increment::double_text(by).into_bytes()) })
    }

    /// Removes a value that must exist and adds it somewhere else.
    pub fn move_value(self, from: &str, path: &str) -> Result<Patch, PatchError> {
        let from = self.pointer(from)?;
        let path = self.pointer(path)?;
        self.with(Operation::Move { from, path })
    }

    fn with_value(
        self,
        path: &str,
        value: impl AsRef<[u8]>,
        operation: impl FnOnce(Pointer, Json) -> Operation,
    ) -> Result<Patch, PatchError> {
        let path = self.pointer(path)?;
        match Json::parse(value) {
            Ok(value) => self.with(operation(path, value)),
            Err(error) => Err(self.refuse(path, OperationProblem::BadValue(error))),
        }
    }

    fn with(mut self, operation: Operation) -> Result<Patch, PatchError> {
        self.operations.push(operation);
        PatchError::check_count(self.operations.len())?;
        Ok(self)
    }

    /// Parses a path of the next operation.
    fn pointer(&self, path: &str) -> Result<Pointer, PatchError> {
        let operation = self.operations.len();
        Pointer::parse(path)
            .map_err(|problem| PatchError::MalformedOperation { operation, problem })
    }

    /// The error for rejecting the next operation.
    fn refuse(&self, path: Pointer, problem: OperationProblem) -> PatchError {
        PatchError::Operation { operation: self.operations.len(), path, problem }
    }
}
