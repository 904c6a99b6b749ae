//! Helpers for tests that use the real clock.

use headwater_runtime::Runtime;
use std::time::Duration;

/// Waits until the condition holds; gives up after a minute or more, so that a hanging host fails the test.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let runtime = Runtime::system();
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        runtime.sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition was not met in time");
}
