//! Returns freed memory to the operating system while a server is idle.
//!
//! The allocator (mimalloc) purges memory a second after it was freed, but only when a thread later frees a whole
//! page. An idle server frees no pages and would keep its peak memory. A task therefore frees a page at an
//! interval. It does nothing while requests are in progress.

use headwater_runtime::Runtime;
use headwater_server::Server;
use std::hint::black_box;
use std::sync::Weak;
use std::time::Duration;

/// Interval of the check. It exceeds the allocator's delay, so one idle interval is enough.
const INTERVAL: Duration = Duration::from_secs(3);
/// Large enough that the block has a page of its own, which is freed with it.
const BLOCK_BYTES: usize = 8 << 20;

/// Runs until the server is dropped.
pub(crate) async fn give_back_while_resting(server: Weak<Server>, runtime: Runtime) {
    loop {
        runtime.sleep(INTERVAL).await;
        match server.upgrade() {
            Some(server) if server.is_resting() => runtime.blocking(give_back),
            Some(_) => {}
            None => return,
        }
    }
}

/// Makes the allocator purge what was freed more than a second ago. Touches no memory.
fn give_back() {
    drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
}
