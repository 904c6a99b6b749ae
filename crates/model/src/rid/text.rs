//! The text form of resource ids, without an allocation in either direction.

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::PAD;

use super::BadRid;

/// The longest resource id, an attachment's.
pub(super) const BYTES_MAX: usize = 20;

const TEXT_MAX: usize = BYTES_MAX.div_ceil(3) * 4;

const ALPHABET: Alphabet =
    match Alphabet::new("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-") {
        Ok(alphabet) => alphabet,
        Err(_) => panic!("64 different characters"),
    };

const BASE64: GeneralPurpose = GeneralPurpose::new(&ALPHABET, PAD);

/// A resource id as text, in place.
pub(super) struct Text {
    buffer: [u8; TEXT_MAX],
    length: usize,
}

impl Text {
    pub(super) fn new(bytes: &[u8]) -> Text {
        let mut buffer = [0; TEXT_MAX];
        let length = BASE64.encode_slice(bytes, &mut buffer);
        Text { buffer, length: length.expect("no resource id is longer than an attachment's") }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("base64 is ASCII")
    }
}

/// Decodes a text into `buffer` and returns its bytes.
pub(super) fn decode<'a>(
    text: &str,
    buffer: &'a mut [u8; BYTES_MAX + 1],
) -> Result<&'a [u8], BadRid> {
    // Fast path: most checked names are not resource ids, and padded base64 has a length divisible by 4.
    if !text.len().is_multiple_of(4) {
        return Err(BadRid::NotBase64);
    }
    // A text too long for the buffer is rejected before any of it is decoded.
    let length = BASE64.decode_slice(text, buffer.as_mut_slice()).map_err(|_| BadRid::NotBase64)?;
    Ok(&buffer[..length])
}

/// Gives a type with `to_bytes` and `from_bytes` its text form.
macro_rules! text_form {
    ($($name:ident),+ $(,)?) => {$(
        impl $name {
            /// Reads the text form.
            pub fn parse(text: &str) -> Result<$name, $crate::BadRid> {
                let mut buffer = [0; $crate::rid::text::BYTES_MAX + 1];
                $name::from_bytes($crate::rid::text::decode(text, &mut buffer)?)
            }

            /// Appends the text form, without allocating for anything but `out` itself.
            pub fn write_base64(&self, out: &mut Vec<u8>) {
                let bytes = self.to_bytes();
                out.extend_from_slice($crate::rid::text::Text::new(bytes.as_ref()).as_bytes());
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let bytes = self.to_bytes();
                f.pad($crate::rid::text::Text::new(bytes.as_ref()).as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::BadRid;

            fn from_str(text: &str) -> Result<$name, $crate::BadRid> {
                $name::parse(text)
            }
        }

        $crate::text::serde_as_text!($name);
    )+};
}

pub(super) use text_form;
