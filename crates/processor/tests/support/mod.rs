//! What tests on the real clock share.

use headwater_runtime::Runtime;
use std::time::Duration;

/// Looks until it is so; what never comes, and a host that hangs, is found by giving up.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    let runtime = Runtime::system();
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        runtime.sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came so far");
}
