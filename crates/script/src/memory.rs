//! The engine's allocator, which enforces the memory limit and helps to enforce the deadline.
//!
//! The engine checks the clock once in ten thousand steps of a script. Most steps take nanoseconds, but one
//! may multiply two numbers of a hundred thousand digits, and ten thousand of those take an hour. Every such
//! step allocates its result. So past the deadline, large allocations fail: these steps fail at once, the rest
//! of the ten thousand takes a moment, and the script is ended.
//!
//! Small allocations still succeed, and a reserve remains for the error that ends the script, even when all memory
//! is in use. That is why the limit is here and not in the engine, whose own limit has no exceptions.
//!
//! Other steps allocate nothing: comparing two strings of thirty million characters that differ only at the end
//! takes milliseconds, and ten thousand comparisons take minutes. So no single value may be huge, before the
//! deadline or after it, and such a step takes a fraction of a millisecond.

// Implementing the trait is unsafe because the engine relies on the memory it gets. The allocator that comes with
// the engine does all the work; this one only refuses at times, which the engine must handle anyway.
#![allow(unsafe_code)]

use crate::engine::Watch;
use rquickjs::allocator::{Allocator, RustAllocator};

/// The size from which a value is large. Arithmetic on smaller numbers takes a few microseconds.
const LARGE: usize = 512;

/// The most bytes of one value. The largest item, written with two bytes a character, takes half as much again
/// while it grows, and fits.
const HUGE: usize = 8 << 20;

/// The engine's allocator, with the limits of one sandbox.
pub(crate) struct Memory {
    watch: Watch,
    limit_bytes: usize,
    used_bytes: usize,
}

impl Memory {
    pub(crate) fn new(watch: Watch, limit_bytes: usize) -> Memory {
        Memory { watch, limit_bytes, used_bytes: 0 }
    }

    /// Whether to refuse a value of `bytes` that replaces one of `freed` bytes.
    fn refuses(&self, bytes: usize, freed: usize) -> bool {
        if bytes > HUGE {
            return true;
        }
        let used = self.used_bytes.saturating_sub(freed).saturating_add(bytes);
        let is_refused = used > self.limit_bytes || (bytes >= LARGE && self.watch.must_end());
        is_refused && !self.watch.takes_reserve(bytes)
    }

    /// Counts a value that was allocated.
    fn counted(&mut self, pointer: *mut u8) -> *mut u8 {
        if !pointer.is_null() {
            // SAFETY: `RustAllocator` has just returned it.
            self.used_bytes += unsafe { RustAllocator::usable_size(pointer) };
        }
        pointer
    }
}

// SAFETY: every pointer comes from `RustAllocator`, which keeps the promises of the trait, or is null, which
// the trait allows for `alloc`, `calloc` and `realloc`. A refused `realloc` leaves the block unchanged.
unsafe impl Allocator for Memory {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.refuses(size, 0) {
            return std::ptr::null_mut();
        }
        self.counted(RustAllocator.alloc(size))
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        match count.checked_mul(size) {
            Some(bytes) if !self.refuses(bytes, 0) => {
                self.counted(RustAllocator.calloc(count, size))
            }
            _ => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&mut self, ptr: *mut u8) {
        // SAFETY: the caller makes the same promise.
        unsafe {
            self.used_bytes = self.used_bytes.saturating_sub(RustAllocator::usable_size(ptr));
            RustAllocator.dealloc(ptr);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: the caller makes the same promise.
        let old_size = unsafe { RustAllocator::usable_size(ptr) };
        if self.refuses(new_size, old_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        let moved = unsafe { RustAllocator.realloc(ptr, new_size) };
        if !moved.is_null() {
            self.used_bytes = self.used_bytes.saturating_sub(old_size);
        }
        self.counted(moved)
    }

    unsafe fn usable_size(ptr: *mut u8) -> usize {
        // SAFETY: the caller makes the same promise.
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
        let mut memory = Memory::new(Watch::new(&limits, &clock), 2 * HUGE);
        let mut given = |size: usize| {
            let (one, other) = (memory.alloc(size), memory.calloc(1, size));
            let both = (!one.is_null(), !other.is_null());
            for pointer in [one, other].into_iter().filter(|pointer| !pointer.is_null()) {
                // SAFETY: `pointer` was just allocated.
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
