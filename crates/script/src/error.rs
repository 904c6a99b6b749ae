//! Errors of a script that did not complete.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why a script did not complete. The caller must discard its changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ScriptError {
    /// The source is not JavaScript.
    #[error("Failed to compile the script: {0}")]
    Compile(String),
    /// The source is JavaScript but contains no function.
    #[error("the body of the script must be a function, such as function name(a, b) {{ … }}")]
    NoFunction,
    /// The script, or something it called, threw an exception.
    #[error(
        "Encountered exception while executing function. Exception = {text}\r\nStack trace: {stack}"
    )]
    Thrown {
        /// The thrown value, as text.
        text: String,
        /// The stack trace.
        stack: String,
        /// The error's `number` property; 0 if it has none.
        number: u32,
    },
    /// The script exceeded its time limit.
    #[error(
        "the script did not end within {} ms and was stopped; do less in one call, and return when a \
         call is not accepted", .0.as_millis()
    )]
    Time(Duration),
    /// The script exceeded its memory limit.
    #[error("the script needs more than {0} bytes of memory; work on fewer items at a time")]
    Memory(usize),
    /// The response is too large.
    #[error("the response of the script is larger than {0} bytes; return less, and a continuation")]
    Response(usize),
    /// The collection stopped the script; it knows the cause.
    #[error("the script was stopped")]
    Stopped,
    /// No worker process could be started.
    #[error(
        "cannot start a process for the script: {0}; check the limits on processes and memory of the server"
    )]
    NoWorker(String),
    /// The engine failed.
    #[error("the script engine failed: {0}")]
    Engine(String),
}

impl ScriptError {
    /// Whether the worker must end after this error instead of serving another script. After running out of memory
    /// or time the engine may not free everything.
    pub(crate) fn ends_worker(&self) -> bool {
        matches!(self, ScriptError::Time(_) | ScriptError::Memory(_) | ScriptError::Engine(_))
    }
}
