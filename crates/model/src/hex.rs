//! Hexadecimal digits: upper case for effective partition keys, lower case for etags.
//!
//! Works on bytes the caller owns, so formatting an etag or a key costs no allocation here.

pub(crate) const UPPER: &[u8; 16] = b"0123456789ABCDEF";
pub(crate) const LOWER: &[u8; 16] = b"0123456789abcdef";

/// The two digits of one byte.
pub(crate) fn digits(alphabet: &[u8; 16], byte: u8) -> [u8; 2] {
    [alphabet[usize::from(byte >> 4)], alphabet[usize::from(byte & 0x0F)]]
}

/// The value of one digit in either case.
pub(crate) fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_both_alphabets() {
        for byte in 0..=u8::MAX {
            for alphabet in [UPPER, LOWER] {
                let [high, low] = digits(alphabet, byte);
                assert_eq!(value(high).unwrap() << 4 | value(low).unwrap(), byte);
            }
        }
        assert_eq!(digits(UPPER, 0xAF), *b"AF");
        assert_eq!(digits(LOWER, 0xAF), *b"af");
    }

    #[test]
    fn only_digits_have_a_value() {
        let count = (0..=u8::MAX).filter(|&byte| value(byte).is_some()).count();
        assert_eq!(count, 22);
        for byte in [b'g', b'G', b'/', b':', b'@', b'`', b' ', 0x00, 0xFF] {
            assert_eq!(value(byte), None, "{byte:#04x}");
        }
    }
}
