//! Maps batches to the HybridRow form of the .NET SDK: a row per operation, a row per result. The byte
//! layout of rows belongs to [`crate::hybridrow`].

use super::{BatchError, Encoding, OPERATIONS_MAX, Operation, OperationKind, OperationResult};
use crate::binary::{self, BinaryError};
use crate::hybridrow::{self, OperationRow, Records, ResultRow};
use headwater_model::PartitionKey;
use std::borrow::Cow;

/// The resource type of items.
const DOCUMENT: i32 = 2;
/// The bytes of a result without its etag and body.
const RESULT_BYTES: usize = 48;

pub(super) fn decode(body: &[u8]) -> Result<Vec<Operation<'_>>, BatchError> {
    let mut operations = Vec::new();
    let mut texts = Texts { bytes_left: Encoding::HybridRow.body_bytes_max() };
    for (index, row) in Records::new(body).enumerate() {
        if index == OPERATIONS_MAX {
            return Err(BatchError::TooManyOperations);
        }
        let row = row.and_then(OperationRow::decode);
        let row = row.map_err(|problem| BatchError::HybridRow { index, problem })?;
        operations.push(operation(index, &row, &mut texts)?);
    }
    Ok(operations)
}

fn operation<'a>(
    index: usize,
    row: &OperationRow<'a>,
    texts: &mut Texts,
) -> Result<Operation<'a>, BatchError> {
    if let Some(found) = row.resource_type.filter(|found| *found != DOCUMENT) {
        return Err(BatchError::ResourceType { index, found });
    }
    let missing = |property| BatchError::Missing { index, property };
    row.resource_type.ok_or(missing("resourceType"))?;
    let number = row.operation_type.ok_or(missing("operationType"))?;
    let kind =
        parse_kind(number).ok_or_else(|| BatchError::Kind { index, kind: number.to_string() })?;
    let partition_key = row.partition_key.map(PartitionKey::parse).transpose();
    let partition_key =
        partition_key.map_err(|problem| BatchError::PartitionKey { index, problem })?;
    let (body, mut problem) = match row.resource_body {
        Some(body) => texts.text_of(body)?,
        None => (None, None),
    };
    if row.time_to_live_seconds.is_some() {
        // Ignoring it would keep the item forever.
        problem = Some(
            "timeToLiveInSeconds of an operation is not supported; set the ttl property of the \
             item"
                .to_owned(),
        );
    }
    let operation = Operation {
        kind,
        id: row.id.map(str::to_owned),
        partition_key,
        if_match: row.if_match.map(str::to_owned),
        if_none_match: row.if_none_match.map(str::to_owned),
        body,
        wants_minimal: row.wants_minimal.unwrap_or(false),
        problem,
    };
    operation.checked(index)
}

fn parse_kind(number: i32) -> Option<OperationKind> {
    Some(match number {
        0 => OperationKind::Create,
        1 => OperationKind::Patch,
        2 => OperationKind::Read,
        4 => OperationKind::Delete,
        5 => OperationKind::Replace,
        20 => OperationKind::Upsert,
        _ => return None,
    })
}

/// Decodes bodies in binary JSON, within one size limit for the whole request.
struct Texts {
    bytes_left: usize,
}

type Text<'a> = (Option<Cow<'a, [u8]>>, Option<String>);

impl Texts {
    /// Returns the body as text, or the problem of its operation if it cannot be decoded.
    fn text_of<'a>(&mut self, body: &'a [u8]) -> Result<Text<'a>, BatchError> {
        if !binary::is_binary(body) {
            return Ok((Some(Cow::Borrowed(body)), None));
        }
        match binary::decode(body, binary::Limits::of_text_bytes(self.bytes_left)) {
            Ok(text) => {
                self.bytes_left -= text.len().min(self.bytes_left);
                Ok((Some(Cow::Owned(text)), None))
            }
            Err(BinaryError::TooLarge { .. }) => {
                Err(BatchError::TextTooLarge { bytes_max: Encoding::HybridRow.body_bytes_max() })
            }
            Err(error) => {
                let problem = format!("the item is not valid binary JSON: {error}");
                Ok((Some(Cow::Borrowed(body)), Some(problem)))
            }
        }
    }
}

pub(super) fn encode(results: &[OperationResult<'_>], out: &mut Vec<u8>) {
    let size = |result: &OperationResult<'_>| {
        RESULT_BYTES + result.etag.map_or(0, str::len) + result.body.map_or(0, <[u8]>::len)
    };
    out.reserve_exact(RESULT_BYTES + results.iter().map(size).sum::<usize>());
    hybridrow::start(out);
    for result in results {
        let row = ResultRow {
            status: Some(i32::from(result.status)),
            // .NET compares sub-statuses as signed numbers; all defined ones are small.
            substatus: Some(i32::try_from(result.substatus).unwrap_or(i32::MAX)),
            etag: result.etag,
            resource_body: result.body,
            retry_after_ms: result.retry_after_ms,
            request_charge: Some(result.charge.hundredths() as f64 / 100.0),
        };
        hybridrow::append_record(out, |out| row.encode_into(out));
    }
}
