//! Memory for large reads, used again.
//!
//! A page of the feed is read in pieces of a quarter of a megabyte, which live as long as somebody keeps a
//! record of them. Freed memory of that size goes back to the system now and then, and every new page
//! of it costs a fault; depending on the allocator's mood that was more than half of reading the feed.
//! So a few buffers stay. Small reads never take one: whoever keeps a single item keeps no more than it.

use bytes::Bytes;
use parking_lot::Mutex;
use std::io;

/// Bytes of a buffer.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Reads below this get memory of their own size.
const SMALLEST_READ: usize = BUFFER_BYTES / 4;
/// Buffers that wait for their next use: 4 MiB.
const WAITING_MAX: usize = 16;

static WAITING: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// What was read into a buffer, which waits for its next use when nobody needs it any more.
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

/// Whether to read so many bytes with [`filled`].
pub(crate) fn suits(length: usize) -> bool {
    (SMALLEST_READ..=BUFFER_BYTES).contains(&length)
}

/// So many bytes, as `fill` leaves them. It must write all of them: there may be others' bytes in them.
///
/// # Errors
/// What `fill` says.
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
