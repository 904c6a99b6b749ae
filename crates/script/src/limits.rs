//! How much a script may take, and the clock that says when it has taken too long.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Time since some moment; never goes back.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The bounds of one call. The defaults are what the server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of the engine's heap.
    pub memory_bytes: usize,
    /// Bytes of the thread's stack the engine may use.
    pub stack_bytes: usize,
    /// After this the script is ended.
    pub time: Duration,
    /// After this its calls are no longer accepted, so that it can finish in good order.
    pub accepting: Duration,
    /// Bytes of the response.
    pub response_bytes: usize,
    /// Bytes of what it logs; the rest is left out.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            memory_bytes: 64 << 20,
            stack_bytes: 256 << 10,
            time: Duration::from_secs(5),
            accepting: Duration::from_secs(4),
            response_bytes: 2 << 20,
            log_bytes: 8 << 10,
        }
    }
}
