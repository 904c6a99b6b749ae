//! Reads and writes the layout of a row: presence bits, fixed and variable columns, then sparse fields by
//! path. The schemas are in the files of their rows.

use super::HybridRowError;
use super::input::{Input, text};
use super::record::header;

/// Type codes of sparse fields that batches use.
pub(super) const FALSE: u8 = 2;
pub(super) const TRUE: u8 = 3;
pub(super) const INT32: u8 = 7;
pub(super) const UINT32: u8 = 11;
pub(super) const FLOAT64: u8 = 16;
pub(super) const UTF8: u8 = 20;

/// The schema of a kind of row.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) name: &'static str,
    pub(super) id: i32,
    /// Column names in the order of their path tokens, which count from 1. The first ones have presence bits.
    pub(super) columns: &'static [&'static str],
}

/// Reads a row column by column.
#[derive(Debug)]
pub(super) struct RowReader<'a> {
    schema: &'static Schema,
    presence: u8,
    /// Index of the next column.
    column: usize,
    input: Input<'a>,
}

impl<'a> RowReader<'a> {
    pub(super) fn open(
        bytes: &'a [u8],
        schema: &'static Schema,
    ) -> Result<RowReader<'a>, HybridRowError> {
        let mut input = Input::new(bytes);
        let found = input.row_header(schema.name)?;
        if found != schema.id {
            return Err(HybridRowError::Schema { row: schema.name, found });
        }
        let presence = input.byte(schema.name)?;
        Ok(RowReader { schema, presence, column: 0, input })
    }

    fn next_column(&mut self) -> (&'static str, bool) {
        let column = self.column;
        self.column += 1;
        (self.schema.columns[column], self.presence >> column & 1 == 1)
    }

    /// Reads a fixed column. Its bytes exist even if the value is absent.
    pub(super) fn fixed(&mut self) -> Result<Option<i32>, HybridRowError> {
        let (name, is_present) = self.next_column();
        Ok(Some(self.input.int32(name)?).filter(|_| is_present))
    }

    pub(super) fn variable(&mut self) -> Result<Option<&'a [u8]>, HybridRowError> {
        let (name, is_present) = self.next_column();
        is_present.then(|| self.input.sized(name)).transpose()
    }

    pub(super) fn variable_text(&mut self) -> Result<Option<&'a str>, HybridRowError> {
        let name = self.schema.columns[self.column];
        self.variable()?.map(|bytes| text(bytes, name)).transpose()
    }

    /// Returns the next sparse field with a known path, skipping others.
    pub(super) fn sparse(&mut self) -> Result<Option<Field<'a>>, HybridRowError> {
        while !self.input.is_empty() {
            let code = self.input.byte("a sparse field")?;
            let column = self.path()?;
            let value = value(&mut self.input, code)?;
            if let Some(column) = column {
                let name = self.schema.columns[column];
                return Ok(Some(Field { token: column + 1, name, code, value }));
            }
        }
        Ok(None)
    }

    /// Returns the column of a path, which is a token or the column's name.
    fn path(&mut self) -> Result<Option<usize>, HybridRowError> {
        let columns = self.schema.columns;
        let token = self.input.varuint("a path")?;
        let token = usize::try_from(token).map_err(|_| HybridRowError::Length("a path"))?;
        match token.checked_sub(columns.len() + 1) {
            None => Ok(token.checked_sub(1)),
            Some(length) => {
                let path = text(self.input.take(length, "a path")?, "a path")?;
                Ok(columns.iter().position(|column| *column == path))
            }
        }
    }
}

/// Returns the bytes of a value.
fn value<'a>(input: &mut Input<'a>, code: u8) -> Result<&'a [u8], HybridRowError> {
    const WHAT: &str = "a sparse field";
    let count = match code {
        1..=3 => 0,
        5 | 9 => 1,
        6 | 10 => 2,
        7 | 11 | 15 => 4,
        8 | 12 | 16 | 18 | 23 => 8,
        24 => 12,
        17 | 19 | 22 => 16,
        20 | 21 => return input.sized(WHAT),
        13 | 14 => {
            input.skip_varint(WHAT)?;
            0
        }
        // Nested scopes, and undefined codes.
        _ => return Err(HybridRowError::Type(code)),
    };
    input.take(count, WHAT)
}

/// A sparse field with a known path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    pub(super) token: usize,
    name: &'static str,
    code: u8,
    value: &'a [u8],
}

impl<'a> Field<'a> {
    /// The error for a field whose type differs from its column's, or whose column is not sparse.
    pub(super) fn wrong_type(&self) -> HybridRowError {
        HybridRowError::ColumnType { column: self.name, code: self.code }
    }

    fn fixed<const N: usize>(&self, code: u8) -> Result<[u8; N], HybridRowError> {
        let value = self.value.try_into().ok().filter(|_| self.code == code);
        value.ok_or_else(|| self.wrong_type())
    }

    pub(super) fn int32(&self) -> Result<i32, HybridRowError> {
        self.fixed(INT32).map(i32::from_le_bytes)
    }

    pub(super) fn uint32(&self) -> Result<u32, HybridRowError> {
        self.fixed(UINT32).map(u32::from_le_bytes)
    }

    pub(super) fn float64(&self) -> Result<f64, HybridRowError> {
        self.fixed(FLOAT64).map(f64::from_le_bytes)
    }

    pub(super) fn bool(&self) -> Result<bool, HybridRowError> {
        match self.code {
            TRUE => Ok(true),
            FALSE => Ok(false),
            _ => Err(self.wrong_type()),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, HybridRowError> {
        if self.code == UTF8 { text(self.value, self.name) } else { Err(self.wrong_type()) }
    }
}

/// Writes a row column by column.
#[derive(Debug)]
pub(super) struct RowWriter<'o> {
    out: &'o mut Vec<u8>,
    presence_at: usize,
    /// Index of the next column.
    column: u8,
}

impl<'o> RowWriter<'o> {
    pub(super) fn new(schema: &'static Schema, out: &'o mut Vec<u8>) -> RowWriter<'o> {
        header(schema.id, out);
        let presence_at = out.len();
        out.push(0);
        RowWriter { out, presence_at, column: 0 }
    }

    fn next_column(&mut self, is_present: bool) {
        self.out[self.presence_at] |= u8::from(is_present) << self.column;
        self.column += 1;
    }

    pub(super) fn fixed(&mut self, value: Option<i32>) {
        self.next_column(value.is_some());
        self.out.extend_from_slice(&value.unwrap_or(0).to_le_bytes());
    }

    pub(super) fn variable(&mut self, value: Option<&[u8]>) {
        self.next_column(value.is_some());
        if let Some(value) = value {
            self.sized(value);
        }
    }

    pub(super) fn sparse_text(&mut self, token: u8, value: Option<&str>) {
        if let Some(value) = value {
            self.out.extend_from_slice(&[UTF8, token]);
            self.sized(value.as_bytes());
        }
    }

    /// Appends a sparse field of fixed size.
    pub(super) fn sparse(&mut self, code: u8, token: u8, value: &[u8]) {
        self.out.extend_from_slice(&[code, token]);
        self.out.extend_from_slice(value);
    }

    fn sized(&mut self, value: &[u8]) {
        let mut length = value.len();
        while length > 0x7f {
            self.out.push(0x80 | low_bits(length));
            length >>= 7;
        }
        self.out.push(low_bits(length));
        self.out.extend_from_slice(value);
    }
}

fn low_bits(number: usize) -> u8 {
    u8::try_from(number & 0x7f).unwrap_or(0)
}
