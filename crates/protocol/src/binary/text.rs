//! A buffer for JSON text with a hard size limit.

use super::error::BinaryError;
use std::io;

/// Text that grows up to a limit.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Text {
    /// Creates an empty text with capacity for `expected` bytes, within the limit.
    pub(super) fn new(expected: usize, bytes_max: usize) -> Text {
        Text { bytes: Vec::with_capacity(expected.min(bytes_max)), bytes_max }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends bytes unchanged.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), BinaryError> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(self.too_large());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends a string with quotes, escaping what JSON requires and nothing else.
    pub(super) fn string(&mut self, string: &str) -> Result<(), BinaryError> {
        self.raw(b"\"")?;
        let mut rest = string.as_bytes();
        while let Some(place) = rest.iter().position(|byte| needs_escape(*byte)) {
            let (plain, after) = rest.split_at(place);
            self.raw(plain)?;
            let Some((special, after)) = after.split_first() else { break };
            self.escaped(*special)?;
            rest = after;
        }
        self.raw(rest)?;
        self.raw(b"\"")
    }

    /// Appends the output of `write`.
    pub(super) fn formatted(
        &mut self,
        write: impl FnOnce(&mut Text) -> io::Result<()>,
    ) -> Result<(), BinaryError> {
        // Writing to memory fails only at the limit.
        write(self).map_err(|_| self.too_large())
    }

    fn escaped(&mut self, byte: u8) -> Result<(), BinaryError> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        match byte {
            b'"' => self.raw(b"\\\""),
            b'\\' => self.raw(b"\\\\"),
            b'\n' => self.raw(b"\\n"),
            b'\r' => self.raw(b"\\r"),
            b'\t' => self.raw(b"\\t"),
            0x08 => self.raw(b"\\b"),
            0x0C => self.raw(b"\\f"),
            other => {
                let [high, low] = [other >> 4, other & 0x0F].map(|n| DIGITS[usize::from(n)]);
                self.raw(&[b'\\', b'u', b'0', b'0', high, low])
            }
        }
    }

    fn too_large(&self) -> BinaryError {
        BinaryError::TooLarge { limit: self.bytes_max }
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.raw(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}
