//! A bounds-checked cursor over a body.
//!
//! Every read checks that its bytes exist before it advances. A failed read reports the offset of the
//! value it was part of, whose start the caller marks with [`Input::start`].

use super::error::BinaryError;

/// The width in bytes of a length, a count or an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One,
    Two,
    Three,
    Four,
}

/// A body and the read position in it.
#[derive(Clone, Debug)]
pub(super) struct Input<'b> {
    bytes: &'b [u8],
    next: usize,
    /// Offset of the value being read, for errors.
    value_at: usize,
}

impl<'b> Input<'b> {
    pub(super) fn new(bytes: &'b [u8], next: usize) -> Input<'b> {
        Input { bytes, next, value_at: next }
    }

    /// Creates a second cursor over the same bytes.
    pub(super) fn elsewhere(&self, next: usize) -> Input<'b> {
        Input::new(self.bytes, next)
    }

    /// Offset of the next byte.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Offset of the value being read.
    pub(super) fn value_at(&self) -> usize {
        self.value_at
    }

    /// Length of the whole body.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Starts a value and reads its marker.
    pub(super) fn start(&mut self) -> Result<u8, BinaryError> {
        self.value_at = self.next;
        self.byte()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'b [u8], BinaryError> {
        let rest = self.bytes.get(self.next..).unwrap_or_default();
        let taken = rest.get(..count).ok_or(BinaryError::Truncated { at: self.value_at })?;
        self.next += count;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], BinaryError> {
        let rest = self.bytes.get(self.next..).unwrap_or_default();
        let taken = rest.first_chunk().ok_or(BinaryError::Truncated { at: self.value_at })?;
        self.next += N;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, BinaryError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// Reads a length, a count or an offset.
    pub(super) fn size(&mut self, width: Width) -> Result<usize, BinaryError> {
        let size = match width {
            Width::One => u32::from(self.byte()?),
            Width::Two => u32::from(u16::from_le_bytes(self.array()?)),
            Width::Three => {
                let [low, middle, high] = self.array()?;
                u32::from_le_bytes([low, middle, high, 0])
            }
            Width::Four => u32::from_le_bytes(self.array()?),
        };
        usize::try_from(size).map_err(|_| BinaryError::Truncated { at: self.value_at })
    }

    /// The error for a marker that is not allowed at this place.
    pub(super) fn bad_marker(&self, marker: u8) -> BinaryError {
        BinaryError::BadMarker { marker, at: self.value_at }
    }

    /// The error for a value that contradicts itself.
    pub(super) fn malformed(&self, problem: &'static str) -> BinaryError {
        BinaryError::Malformed { at: self.value_at, problem }
    }
}
