//! Why a script did not run to its end.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Why a script did not run to its end. Nothing it did counts then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ScriptError {
    /// The source is not JavaScript.
    #[error("Failed to compile the script: {0}")]
    Compile(String),
    /// The source is JavaScript without a function in it.
    #[error("the body of the script must be a function, such as function name(a, b) {{ … }}")]
    NoFunction,
    /// The script threw, or something it called did.
    #[error(
        "Encountered exception while executing function. Exception = {text}\r\nStack trace: {stack}"
    )]
    Thrown {
        /// What it threw, as text.
        text: String,
        /// Where.
        stack: String,
        /// The error's `number`; 0 if it has none.
        number: u32,
    },
    /// It took too long.
    #[error(
        "the script did not end within {} ms and was stopped; do less in one call, and return when a \
         call is not accepted", .0.as_millis()
    )]
    Time(Duration),
    /// It took too much memory.
    #[error("the script needs more than {0} bytes of memory; work on fewer items at a time")]
    Memory(usize),
    /// Its response is too large.
    #[error("the response of the script is larger than {0} bytes; return less, and a continuation")]
    Response(usize),
    /// The collection told it to stop, and knows why.
    #[error("the script was stopped")]
    Stopped,
    /// There is no process to run it in.
    #[error(
        "cannot start a process for the script: {0}; check the limits on processes and memory of the server"
    )]
    NoWorker(String),
    /// The engine failed.
    #[error("the script engine failed: {0}")]
    Engine(String),
}

impl ScriptError {
    /// Whether a worker ends after this error instead of serving another script: the engine is not reliable
    /// about what it frees when its memory or its time is over.
    pub(crate) fn ends_worker(&self) -> bool {
        matches!(self, ScriptError::Time(_) | ScriptError::Memory(_) | ScriptError::Engine(_))
    }
}
