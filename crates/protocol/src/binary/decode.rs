//! Decodes binary JSON to text, in one pass and without recursion.
//!
//! Open containers are kept on an explicit stack, as deep as [`Limits`] allow. Each knows where it must
//! end, and no container may end after its parent. A value that runs past the end of its container is
//! detected before the next one is read.

use super::error::BinaryError;
use super::input::{Input, Width};
use super::text::Text;
use super::{NESTING_MAX, is_binary, marker, number, string};

/// Limits for decoding an untrusted body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of arrays and objects that are open at once.
    pub nesting_max: usize,
    /// The maximum length of the text in bytes.
    pub text_bytes_max: usize,
}

impl Limits {
    /// Limits text to `text_bytes_max` bytes and nesting to [`NESTING_MAX`].
    #[must_use]
    pub fn of_text_bytes(text_bytes_max: usize) -> Limits {
        Limits { nesting_max: NESTING_MAX, text_bytes_max }
    }
}

/// Decodes a binary body into JSON text with the same members in the same order.
///
/// # Errors
///
/// When the body is not exactly one value of the format, or exceeds the limits.
pub fn decode(body: &[u8], limits: Limits) -> Result<Vec<u8>, BinaryError> {
    if !is_binary(body) {
        return Err(BinaryError::NotBinary);
    }
    let mut decoder = Decoder {
        input: Input::new(body, 1),
        // Text is somewhat longer than binary; reserving twice the size avoids repeated reallocation.
        text: Text::new(body.len().saturating_mul(2), limits.text_bytes_max),
        open: Vec::new(),
        nesting_max: limits.nesting_max,
    };
    decoder.run()?;
    Ok(decoder.text.finish())
}

struct Decoder<'b> {
    input: Input<'b>,
    text: Text,
    open: Vec<Container>,
    nesting_max: usize,
}

/// An array or object whose end has not been reached.
struct Container {
    shape: Shape,
    /// Offset of the container's marker.
    at: usize,
    /// Offset just past its last byte, or the parent's end if the container has no length.
    end: usize,
    extent: Extent,
    /// Number of elements or members read.
    read: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Array,
    Object,
}

/// How a container encodes where it ends.
#[derive(Clone, Copy)]
enum Extent {
    /// After its only element.
    Single,
    /// At a byte offset.
    Bytes,
    /// At a byte offset, after this number of elements.
    BytesAndCount(usize),
}

impl Container {
    /// Whether the container has been read completely, given the offset of the next byte.
    fn is_complete(&self, next: usize) -> Result<bool, BinaryError> {
        let malformed = |problem| Err(BinaryError::Malformed { at: self.at, problem });
        if next > self.end {
            return malformed("an element runs past the end of its container");
        }
        match self.extent {
            Extent::Single => Ok(self.read == 1),
            Extent::Bytes => Ok(next == self.end),
            Extent::BytesAndCount(count) if next == self.end && self.read != count => {
                malformed("the count differs from the number of elements")
            }
            Extent::BytesAndCount(_) => Ok(next == self.end),
        }
    }
}

impl Shape {
    fn opening(self) -> &'static [u8] {
        if self == Shape::Array { b"[" } else { b"{" }
    }

    fn closing(self) -> &'static [u8] {
        if self == Shape::Array { b"]" } else { b"}" }
    }
}

impl Decoder<'_> {
    fn run(&mut self) -> Result<(), BinaryError> {
        self.value()?;
        while let Some(container) = self.open.last_mut() {
            if container.is_complete(self.input.next())? {
                self.text.raw(container.shape.closing())?;
                self.open.pop();
                continue;
            }
            if container.read > 0 {
                self.text.raw(b",")?;
            }
            container.read += 1;
            if container.shape == Shape::Object {
                self.name()?;
            }
            self.value()?;
        }
        match self.input.len() - self.input.next() {
            0 => Ok(()),
            bytes => Err(BinaryError::Trailing { at: self.input.next(), bytes }),
        }
    }

    fn name(&mut self) -> Result<(), BinaryError> {
        let marker = self.input.start()?;
        if !marker::STRINGS.contains(&marker) {
            return Err(self.input.bad_marker(marker));
        }
        self.text.string(&string::read(&mut self.input, marker)?)?;
        self.text.raw(b":")
    }

    /// Writes a whole scalar, or opens a container and makes it the innermost one.
    fn value(&mut self) -> Result<(), BinaryError> {
        let marker = self.input.start()?;
        match marker {
            marker::NULL => self.text.raw(b"null"),
            marker::FALSE => self.text.raw(b"false"),
            marker::TRUE => self.text.raw(b"true"),
            marker if marker::STRINGS.contains(&marker) => {
                self.text.string(&string::read(&mut self.input, marker)?)
            }
            marker::ARRAY_0..=marker::OBJECT_LC4 => self.container(marker),
            marker::NUMBERS_C1 => self.uniform_array(Width::One),
            marker::NUMBERS_C2 => self.uniform_array(Width::Two),
            marker::NUMBER_ARRAYS_C1 => self.uniform_arrays(Width::One, marker::NUMBERS_C1),
            marker::NUMBER_ARRAYS_C2 => self.uniform_arrays(Width::Two, marker::NUMBERS_C2),
            marker::GUID => self.text.string(&string::read_guid(&mut self.input)?),
            marker::BINARY_L1 => self.bytes(Width::One),
            marker::BINARY_L2 => self.bytes(Width::Two),
            marker::BINARY_L4 => self.bytes(Width::Four),
            number => {
                let number = number::read(&mut self.input, number)?;
                number::write(&mut self.text, number)
            }
        }
    }

    fn bytes(&mut self, width: Width) -> Result<(), BinaryError> {
        self.text.string(&string::read_bytes(&mut self.input, width)?)
    }

    fn container(&mut self, marker: u8) -> Result<(), BinaryError> {
        let shape = if marker < marker::OBJECT_0 { Shape::Array } else { Shape::Object };
        self.deeper_by(1)?;
        self.text.raw(shape.opening())?;
        match marker {
            marker::ARRAY_0 | marker::OBJECT_0 => self.text.raw(shape.closing()),
            marker::ARRAY_1 | marker::OBJECT_1 => {
                let end = self.innermost_end();
                self.push(shape, end, Extent::Single)
            }
            marker::ARRAY_L1 | marker::OBJECT_L1 => self.sized(shape, Width::One),
            marker::ARRAY_L2 | marker::OBJECT_L2 => self.sized(shape, Width::Two),
            marker::ARRAY_L4 | marker::OBJECT_L4 => self.sized(shape, Width::Four),
            marker::ARRAY_LC1 | marker::OBJECT_LC1 => self.counted(shape, Width::One),
            marker::ARRAY_LC2 | marker::OBJECT_LC2 => self.counted(shape, Width::Two),
            marker::ARRAY_LC4 | marker::OBJECT_LC4 => self.counted(shape, Width::Four),
            other => Err(self.input.bad_marker(other)),
        }
    }

    fn sized(&mut self, shape: Shape, width: Width) -> Result<(), BinaryError> {
        let length = self.input.size(width)?;
        let end = self.end_after(length)?;
        self.push(shape, end, Extent::Bytes)
    }

    fn counted(&mut self, shape: Shape, width: Width) -> Result<(), BinaryError> {
        let length = self.input.size(width)?;
        let count = self.input.size(width)?;
        let end = self.end_after(length)?;
        self.push(shape, end, Extent::BytesAndCount(count))
    }

    fn push(&mut self, shape: Shape, end: usize, extent: Extent) -> Result<(), BinaryError> {
        let at = self.input.value_at();
        self.open.push(Container { shape, at, end, extent, read: 0 });
        Ok(())
    }

    /// Offset of the end of a container with `length` bytes that starts at the next byte.
    fn end_after(&self, length: usize) -> Result<usize, BinaryError> {
        let end = self.input.next().saturating_add(length);
        if end > self.input.len() {
            return Err(BinaryError::Truncated { at: self.input.value_at() });
        }
        if end > self.innermost_end() {
            return Err(self.input.malformed("a container runs past the end of the one around it"));
        }
        Ok(end)
    }

    fn innermost_end(&self) -> usize {
        self.open.last().map_or(self.input.len(), |container| container.end)
    }

    fn deeper_by(&self, levels: usize) -> Result<(), BinaryError> {
        if self.open.len() + levels > self.nesting_max {
            return Err(BinaryError::TooDeep { limit: self.nesting_max });
        }
        Ok(())
    }

    /// Writes an array of numbers of one type. Its bytes are the type, the count, and the numbers.
    fn uniform_array(&mut self, width: Width) -> Result<(), BinaryError> {
        self.deeper_by(1)?;
        let element = self.uniform_type()?;
        let count = self.input.size(width)?;
        self.numbers(element, count)
    }

    /// Writes an array of equally long arrays of numbers. Its bytes are the inner marker, the type, the
    /// numbers per array, the number of arrays, and the numbers. Empty arrays take no bytes, so only the
    /// text limit ends a long run of them.
    fn uniform_arrays(&mut self, width: Width, inner: u8) -> Result<(), BinaryError> {
        self.deeper_by(2)?;
        let found = self.input.byte()?;
        if found != inner {
            return Err(self.input.bad_marker(found));
        }
        let element = self.uniform_type()?;
        let numbers = self.input.size(width)?;
        let arrays = self.input.size(width)?;
        self.text.raw(b"[")?;
        for place in 0..arrays {
            if place > 0 {
                self.text.raw(b",")?;
            }
            self.numbers(element, numbers)?;
        }
        self.text.raw(b"]")
    }

    fn uniform_type(&mut self) -> Result<u8, BinaryError> {
        let element = self.input.byte()?;
        if number::is_uniform_type(element) {
            Ok(element)
        } else {
            Err(self.input.bad_marker(element))
        }
    }

    fn numbers(&mut self, element: u8, count: usize) -> Result<(), BinaryError> {
        self.text.raw(b"[")?;
        for place in 0..count {
            if place > 0 {
                self.text.raw(b",")?;
            }
            let number = number::read(&mut self.input, element)?;
            number::write(&mut self.text, number)?;
        }
        self.text.raw(b"]")
    }
}
