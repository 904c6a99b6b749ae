//! A bounds-checked cursor over untrusted bytes.

use super::HybridRowError;

/// The unread bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn take(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<&'a [u8], HybridRowError> {
        let (taken, rest) =
            self.bytes.split_at_checked(count).ok_or(HybridRowError::Short(what))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], HybridRowError> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(HybridRowError::Short(what))?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, HybridRowError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(super) fn int32(&mut self, what: &'static str) -> Result<i32, HybridRowError> {
        Ok(i32::from_le_bytes(self.array(what)?))
    }

    pub(super) fn uint32(&mut self, what: &'static str) -> Result<u32, HybridRowError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// Reads an integer of 7 bits per byte, lowest first. Longer forms than necessary are accepted.
    pub(super) fn varuint(&mut self, what: &'static str) -> Result<u32, HybridRowError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte(what)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| HybridRowError::Varuint(what));
            }
        }
        Err(HybridRowError::Varuint(what))
    }

    /// Skips a number as [`Input::varuint`] reads it, of up to 10 bytes.
    pub(super) fn skip_varint(&mut self, what: &'static str) -> Result<(), HybridRowError> {
        for _ in 0..10 {
            if self.byte(what)? & 0x80 == 0 {
                return Ok(());
            }
        }
        Err(HybridRowError::Varuint(what))
    }

    /// Reads a length and that many bytes.
    pub(super) fn sized(&mut self, what: &'static str) -> Result<&'a [u8], HybridRowError> {
        let length = self.varuint(what)?;
        let length = usize::try_from(length).map_err(|_| HybridRowError::Length(what))?;
        let (taken, rest) =
            self.bytes.split_at_checked(length).ok_or(HybridRowError::Length(what))?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Reads the five bytes at the start of every row and returns its schema.
    pub(super) fn row_header(&mut self, row: &'static str) -> Result<i32, HybridRowError> {
        match self.byte(row)? {
            super::VERSION => self.int32(row),
            found => Err(HybridRowError::Version { row, found }),
        }
    }
}

pub(super) fn text<'a>(bytes: &'a [u8], column: &'static str) -> Result<&'a str, HybridRowError> {
    std::str::from_utf8(bytes).map_err(|_| HybridRowError::Text(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_one_to_five_bytes() {
        for (bytes, value) in [
            (&[0x00][..], 0),
            (&[0x7f], 127),
            (&[0x80, 0x01], 128),
            (&[0xff, 0x7f], 16_383),
            (&[0x80, 0x80, 0x01], 16_384),
            (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
            (&[0xff, 0xff, 0xff, 0xff, 0x0f], u32::MAX),
            // A longer form than necessary.
            (&[0x82, 0x00], 2),
        ] {
            assert_eq!(Input::new(bytes).varuint("x"), Ok(value), "{bytes:x?}");
        }
        for bytes in [&[][..], &[0x80], &[0xff; 4], &[0xff; 9], &[0xff, 0xff, 0xff, 0xff, 0x10]] {
            assert!(Input::new(bytes).varuint("x").is_err(), "{bytes:x?}");
        }
    }
}
