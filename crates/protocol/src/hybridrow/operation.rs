//! `BatchOperation`: one operation of a batch, as a row.

use super::HybridRowError;
use super::row::{FALSE, INT32, RowReader, RowWriter, Schema, TRUE};

const SCHEMA: Schema = Schema {
    name: "an operation",
    id: 2_145_473_648,
    columns: &[
        "operationType",
        "resourceType",
        "partitionKey",
        "effectivePartitionKey",
        "id",
        "binaryId",
        "resourceBody",
        "indexingDirective",
        "ifMatch",
        "ifNoneMatch",
        "timeToLiveInSeconds",
        "minimalReturnPreference",
    ],
};

/// One operation as a row. All columns are optional in the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationRow<'a> {
    /// The operation type as a number.
    pub operation_type: Option<i32>,
    /// The resource type; 2 is an item.
    pub resource_type: Option<i32>,
    /// The partition key as JSON, in bulk requests.
    pub partition_key: Option<&'a str>,
    /// The hash of the key, in requests inside the service.
    pub effective_partition_key: Option<&'a [u8]>,
    /// The item's id, if the body does not contain it.
    pub id: Option<&'a str>,
    /// The id as the service stores it.
    pub binary_id: Option<&'a [u8]>,
    /// The item or the patch, as sent.
    pub resource_body: Option<&'a [u8]>,
    /// Whether to index the item.
    pub indexing_directive: Option<&'a str>,
    /// Runs only if the item has this etag.
    pub if_match: Option<&'a str>,
    /// Runs only if the item does not have this etag.
    pub if_none_match: Option<&'a str>,
    /// The time to live of the item, separate from its own `ttl`.
    pub time_to_live_seconds: Option<i32>,
    /// Whether the response should omit the written item.
    pub wants_minimal: Option<bool>,
}

impl<'a> OperationRow<'a> {
    /// Decodes a row.
    ///
    /// # Errors
    /// When the bytes are not a row of this schema.
    pub fn decode(row: &'a [u8]) -> Result<OperationRow<'a>, HybridRowError> {
        let mut reader = RowReader::open(row, &SCHEMA)?;
        let mut operation = OperationRow {
            operation_type: reader.fixed()?,
            resource_type: reader.fixed()?,
            partition_key: reader.variable_text()?,
            effective_partition_key: reader.variable()?,
            id: reader.variable_text()?,
            binary_id: reader.variable()?,
            resource_body: reader.variable()?,
            ..OperationRow::default()
        };
        while let Some(field) = reader.sparse()? {
            match field.token {
                8 => operation.indexing_directive = Some(field.text()?),
                9 => operation.if_match = Some(field.text()?),
                10 => operation.if_none_match = Some(field.text()?),
                11 => operation.time_to_live_seconds = Some(field.int32()?),
                12 => operation.wants_minimal = Some(field.bool()?),
                _ => return Err(field.wrong_type()),
            }
        }
        Ok(operation)
    }

    /// Appends the row in the form that the SDK writes.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let mut writer = RowWriter::new(&SCHEMA, out);
        writer.fixed(self.operation_type);
        writer.fixed(self.resource_type);
        writer.variable(self.partition_key.map(str::as_bytes));
        writer.variable(self.effective_partition_key);
        writer.variable(self.id.map(str::as_bytes));
        writer.variable(self.binary_id);
        writer.variable(self.resource_body);
        writer.sparse_text(8, self.indexing_directive);
        writer.sparse_text(9, self.if_match);
        writer.sparse_text(10, self.if_none_match);
        if let Some(seconds) = self.time_to_live_seconds {
            writer.sparse(INT32, 11, &seconds.to_le_bytes());
        }
        if let Some(wants_minimal) = self.wants_minimal {
            writer.sparse(if wants_minimal { TRUE } else { FALSE }, 12, &[]);
        }
    }
}
