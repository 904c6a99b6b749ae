//! The engine's memory, which ends with its time.
//!
//! The engine looks at the clock once in ten thousand steps of a script. Most steps take nanoseconds, but one
//! may be a product of two numbers of a hundred thousand digits, and ten thousand of those take an hour. Every
//! such step asks for memory for its result. So past the deadline there is no more memory for large values:
//! these steps fail at once, the rest of the ten thousand is over in a moment, and the script is ended.
//!
//! Small values are still made, for the engine needs some to say what went wrong. How much memory there is in
//! all is not decided here; the engine counts that itself.
//!
//! Other steps ask for nothing: two strings of thirty million characters that are the same up to the last are
//! compared for milliseconds, and ten thousand times for minutes. So no single value is huge, before the deadline
//! or after it, and such a step is a fraction of a millisecond.

// The trait is unsafe to implement, as the engine relies on what it is given. All of it is done by the
// allocator that comes with the engine; this one only says no at times, which the engine must bear anyway.
#![allow(unsafe_code)]

use crate::engine::Watch;
use rquickjs::allocator::{Allocator, RustAllocator};

/// From this many bytes on a value is large. Arithmetic on numbers below it takes a few microseconds.
const LARGE: usize = 512;

/// The most bytes of one value: room to write down the largest item of two bytes a character, which takes half
/// as much again while it grows.
const HUGE: usize = 8 << 20;

/// See the head of this file.
pub(crate) struct Memory {
    pub(crate) watch: Watch,
}

impl Memory {
    fn refuses(&self, bytes: usize) -> bool {
        bytes > HUGE || (bytes >= LARGE && self.watch.must_end())
    }
}

// SAFETY: every pointer comes from `RustAllocator`, which keeps the promises of the trait, or is null, which
// the trait allows for `alloc`, `calloc` and `realloc`. A `realloc` that is refused has touched nothing.
unsafe impl Allocator for Memory {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.refuses(size) { std::ptr::null_mut() } else { RustAllocator.alloc(size) }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match count.checked_mul(size) {
            Some(bytes) if !self.refuses(bytes) => RustAllocator.calloc(count, size),
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller's promise is the same.
        unsafe { RustAllocator.dealloc(ptr) }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        if self.refuses(new_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise is the same.
        unsafe { RustAllocator.realloc(ptr, new_size) }
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller's promise is the same.
        unsafe { RustAllocator::usable_size(ptr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Clock, Limits};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    #[test]
    fn past_the_deadline_there_is_memory_for_small_values_only() {
        let seconds = Arc::new(AtomicU64::new(0));
        let read = seconds.clone();
        let clock: Clock = Arc::new(move || Duration::from_secs(read.load(Ordering::Relaxed)));
        let limits = Limits { time: Duration::from_secs(5), ..Limits::default() };
        let mut memory = Memory { watch: Watch::new(&limits, &clock) };
        let mut given = |size: usize| {
            let (one, other) = (memory.alloc(size), memory.calloc(1, size));
            let both = (!one.is_null(), !other.is_null());
            for pointer in [one, other].into_iter().filter(|pointer| !pointer.is_null()) {
                // SAFETY: it was given a moment ago.
                unsafe { memory.dealloc(pointer) };
            }
            both
        };
        assert_eq!(given(LARGE), (true, true));
        assert_eq!(given(HUGE), (true, true));
        assert_eq!(given(HUGE + 1), (false, false), "nothing is huge");
        seconds.store(6, Ordering::Relaxed);
        assert_eq!(given(LARGE), (false, false));
        assert_eq!(given(LARGE - 1), (true, true));
    }
}
