//! A buffer pool for large reads.
//!
//! A page of the feed is read in chunks of 256 KiB, which live as long as any record that points into them. The
//! allocator may return freed memory of that size to the system, and each new memory page then costs a page
//! fault. That was at times more than half of the time to read the feed. So a few buffers are pooled. Small
//! reads never use one, so that a single kept item does not keep a whole buffer.

use bytes::Bytes;
use parking_lot::Mutex;
use std::io;

/// Bytes of a buffer.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Reads below this get memory of their own size.
const SMALLEST_READ: usize = BUFFER_BYTES / 4;
/// The most idle buffers in the pool: 4 MiB.
const WAITING_MAX: usize = 16;

static WAITING: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// Bytes read into a pooled buffer, which returns to the pool on drop.
struct Lent {
    buffer: Box<[u8]>,
    length: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut waiting = WAITING.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push(buffer);
        }
    }
}

/// Whether a read of this length should use [`filled`].
pub(crate) fn suits(length: usize) -> bool {
    (SMALLEST_READ..=BUFFER_BYTES).contains(&length)
}

/// Returns `length` bytes written by `fill` into a pooled buffer.
///
/// `fill` must write all of them: the buffer may still hold bytes of an earlier read.
///
/// # Errors
/// The error of `fill`.
pub(crate) fn filled(
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
) -> io::Result<Bytes> {
    debug_assert!(suits(length));
    let waiting = WAITING.lock().pop();
    let mut buffer = waiting.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice());
    let filled = fill(&mut buffer[..length]);
    let lent = Lent { buffer, length };
    filled.map(|()| Bytes::from_owner(lent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_keeps_is_never_written_again() {
        let read = |byte: u8| {
            let fill = |place: &mut [u8]| {
                place.fill(byte);
                Ok(())
            };
            filled(SMALLEST_READ + usize::from(byte), fill).unwrap()
        };
        let kept: Vec<Bytes> = (0..40).map(|byte| read(byte).slice(7..)).collect();
        for round in 40..80 {
            drop(read(round));
        }
        for (byte, bytes) in (0..40).zip(&kept) {
            assert_eq!(bytes.len(), SMALLEST_READ + usize::from(byte) - 7);
            assert!(bytes.iter().all(|found| *found == byte), "buffer {byte}");
        }
        drop(kept);
        assert!(WAITING.lock().len() <= WAITING_MAX);
    }

    #[test]
    fn a_failed_read_gives_nothing() {
        let failed = filled(BUFFER_BYTES, |_| Err(io::ErrorKind::UnexpectedEof.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(!suits(SMALLEST_READ - 1) && suits(BUFFER_BYTES) && !suits(BUFFER_BYTES + 1));
    }
}
