//! `BatchResult`: the result of one operation of a batch, as a row.

use super::HybridRowError;
use super::row::{FLOAT64, RowReader, RowWriter, Schema, UINT32};

const SCHEMA: Schema = Schema {
    name: "a result",
    id: 2_145_473_649,
    columns: &[
        "statusCode",
        "subStatusCode",
        "eTag",
        "resourceBody",
        "retryAfterMilliseconds",
        "requestCharge",
    ],
};

/// The result of one operation as a row. All columns are optional in the format.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResultRow<'a> {
    /// The status; without it the SDK drops the whole response.
    pub status: Option<i32>,
    /// The sub-status.
    pub substatus: Option<i32>,
    /// The etag of the item, with its quotes.
    pub etag: Option<&'a str>,
    /// The item, or the error.
    pub resource_body: Option<&'a [u8]>,
    /// How long to wait before a retry, in milliseconds.
    pub retry_after_ms: Option<u32>,
    /// The request charge.
    pub request_charge: Option<f64>,
}

impl<'a> ResultRow<'a> {
    /// Decodes a row.
    ///
    /// # Errors
    /// When the bytes are not a row of this schema.
    pub fn decode(row: &'a [u8]) -> Result<ResultRow<'a>, HybridRowError> {
        let mut reader = RowReader::open(row, &SCHEMA)?;
        let mut result = ResultRow {
            status: reader.fixed()?,
            substatus: reader.fixed()?,
            etag: reader.variable_text()?,
            resource_body: reader.variable()?,
            ..ResultRow::default()
        };
        while let Some(field) = reader.sparse()? {
            match field.token {
                5 => result.retry_after_ms = Some(field.uint32()?),
                6 => result.request_charge = Some(field.float64()?),
                _ => return Err(field.wrong_type()),
            }
        }
        Ok(result)
    }

    /// Appends the row in the form that the SDK reads.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let mut writer = RowWriter::new(&SCHEMA, out);
        writer.fixed(self.status);
        writer.fixed(self.substatus);
        writer.variable(self.etag.map(str::as_bytes));
        writer.variable(self.resource_body);
        if let Some(wait) = self.retry_after_ms {
            writer.sparse(UINT32, 5, &wait.to_le_bytes());
        }
        if let Some(charge) = self.request_charge {
            writer.sparse(FLOAT64, 6, &charge.to_le_bytes());
        }
    }
}
