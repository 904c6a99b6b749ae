//! Decodes little-endian numbers from untrusted bytes: every read is checked and never panics.

/// Reads numbers and slices from the front of a byte slice.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The bytes ended before the value did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Short;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let end = self.at.checked_add(count).ok_or(Short)?;
        let taken = self.bytes.get(self.at..end).ok_or(Short)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }
}

/// Appends the CRC32C of everything in `bytes` so far.
pub(crate) fn seal_with_crc(bytes: &mut Vec<u8>) {
    let crc = crc32c::crc32c(bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

/// The content before a trailing CRC32C; `None` if the checksum does not match.
pub(crate) fn checked_content(bytes: &[u8]) -> Option<&[u8]> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*crc)).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_end() {
        let mut reader = Reader::new(&[1, 2, 0, 3]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(2));
        assert_eq!(reader.u16(), Err(Short));
        assert_eq!(reader.take(usize::MAX), Err(Short));
        assert_eq!(reader.position(), 3);
        assert_eq!(reader.u8(), Ok(3));
        assert!(reader.is_empty());
    }

    #[test]
    fn any_flipped_bit_breaks_the_seal() {
        let mut bytes = b"some content".to_vec();
        seal_with_crc(&mut bytes);
        assert_eq!(checked_content(&bytes), Some(&b"some content"[..]));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(checked_content(&flipped), None, "bit {bit}");
        }
        assert_eq!(checked_content(&[1, 2, 3]), None);
    }
}
