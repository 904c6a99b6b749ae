//! The engine's memory, which ends with its time.
//!
//! The engine looks at the clock once in ten thousand steps of a script. Most steps take nanoseconds, but one
//! may be a product of two numbers of a hundred thousand digits, and ten thousand of those take an hour. Every
//! such step asks for memory for its result. So past the deadline there is no more memory for large values:
//! these steps fail at once, the rest of the ten thousand is over in a moment, and the script is ended.
//!
//! Small values are still made, and there is a reserve for the error that ends the script, also when all memory
//! is taken. That is why the limit is here and not in the engine: the engine's own knows no exception.
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
    watch: Watch,
    limit_bytes: usize,
    used_bytes: usize,
}

impl Memory {
    pub(crate) fn new(watch: Watch, limit_bytes: usize) -> Memory {
        Memory { watch, limit_bytes, used_bytes: 0 }
    }

    /// Whether there is no memory for a value in the place of one of `freed` bytes.
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
// the trait allows for `alloc`, `calloc` and `realloc`. A `realloc` that is refused has touched nothing.
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
        // SAFETY: the caller's promise is the same.
        unsafe {
            self.used_bytes = self.used_bytes.saturating_sub(RustAllocator::usable_size(ptr));
            RustAllocator.dealloc(ptr);
        }
    }

    unsafe fn realloc(&mut self, ptr: *mut u8, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is the same.
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
        let mut memory = Memory::new(Watch::new(&limits, &clock), 2 * HUGE);
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
