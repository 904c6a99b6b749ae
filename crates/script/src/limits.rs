//! Limits of one script call, and the clock type that measures its time.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Time since an arbitrary start; monotonic.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// The bounds of one call. The defaults are what the server uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most bytes of the engine's heap.
    pub memory_bytes: usize,
    /// The most bytes of the thread's stack.
    pub stack_bytes: usize,
    /// The time after which the script is ended.
    pub time: Duration,
    /// The time after which its collection calls are no longer accepted, so that it can return in good order.
    pub accepting: Duration,
    /// The most bytes of the response.
    pub response_bytes: usize,
    /// The most bytes of its log; the rest is dropped.
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
