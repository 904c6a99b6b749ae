//! Several operations in one request: a transaction on one partition key, or bulk, each on its own. The answer
//! has the encoding of the request, JSON or HybridRow.
//!
//! What is wrong with the request as a whole is refused before its first operation, and then nothing was
//! done: a range that is gone, a session that is ahead, a partition key that the caller's token is not for.
//! A range that is split after that refuses nothing. Operations go by their keys, so those that are left run
//! in the new ranges, and the answer names the range of the last one.

use super::{Outcome, items, permit, query};
use crate::answer::Answer;
use crate::budget::{Held, UNCOUNTED_BYTES};
use crate::failure::{Failure, write_code};
use crate::gateway::{Gateway, Target};
use crate::names;
use crate::request::{Call, Caller};
use bytes::Bytes;
use headwater_model::PartitionKey;
use headwater_protocol::auth::Grant;
use headwater_protocol::batch::{self, Encoding, Operation, OperationKind, OperationResult};
use headwater_protocol::charge::Charge;
use headwater_protocol::error::{self, Code};
use headwater_protocol::headers;
use headwater_protocol::operation::ItemOperation;
use headwater_store::{Item, ItemReadError, ItemWrite, Patch, Written};
use hyper::StatusCode;
use std::borrow::Cow;
use std::collections::HashMap;

/// How much the items in one answer may come to, as in the service.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What the result of an operation takes in the answer, besides the item that was sent.
const RESULT_BYTES: usize = 512;

/// What became of an operation, until it is written down.
struct Done {
    status: u16,
    substatus: u32,
    charge: Charge,
    etag: Option<String>,
    body: Option<Bytes>,
    retry_after_ms: Option<u32>,
}

impl Done {
    /// An operation that failed. .NET shows the body of its result as the error, others take none.
    fn failed(call: &Call, failure: &Failure) -> Done {
        let encoding = Encoding::of(&call.body);
        let body = (encoding == Encoding::HybridRow)
            .then(|| Bytes::from(error::operation_body(failure.code, &failure.message)));
        let wait = failure.retry_after.map(|wait| wait.as_millis().max(1));
        Done {
            status: failure.code.status(),
            substatus: failure.substatus.unwrap_or(failure.code.substatus()),
            charge: Charge::ONE,
            etag: None,
            body,
            retry_after_ms: wait.map(|wait| u32::try_from(wait).unwrap_or(u32::MAX)),
        }
    }

    /// An operation that was not tried. It costs nothing: clients add up what the operations say.
    fn not_tried() -> Done {
        let (status, substatus) =
            (Code::FailedDependency.status(), Code::FailedDependency.substatus());
        let charge = Charge::ZERO;
        Done { status, substatus, charge, etag: None, body: None, retry_after_ms: None }
    }

    fn written(written: &Written, call: &Call, operation: &Operation<'_>) -> Done {
        let item = written.item.as_ref();
        if let Some(item) = item.filter(|item| is_known(operation, item)) {
            let etag = Some(item.etag().to_string());
            let charge = items::charge_of(written);
            let (body, retry_after_ms) = (None, None);
            return Done { status: 304, substatus: 0, charge, etag, body, retry_after_ms };
        }
        let shown = item.filter(|_| !is_silent(call, operation) || written.change.is_none());
        Done {
            status: items::status_of(written).as_u16(),
            substatus: 0,
            charge: items::charge_of(written),
            etag: item.map(|item| item.etag().to_string()),
            body: shown.map(Item::to_bytes),
            retry_after_ms: None,
        }
    }

    fn as_result(&self) -> OperationResult<'_> {
        OperationResult {
            status: self.status,
            substatus: self.substatus,
            charge: self.charge,
            etag: self.etag.as_deref(),
            body: self.body.as_deref(),
            retry_after_ms: self.retry_after_ms,
        }
    }
}

/// Whether the client has what it asks to read. As in the service it says so with either condition.
fn is_known(operation: &Operation<'_>, item: &Item) -> bool {
    let known = operation.if_none_match.as_ref().or(operation.if_match.as_ref());
    operation.kind == OperationKind::Read && known.is_some_and(|etag| item.etag().matches(etag))
}

/// A transaction that was refused names its container as little as any other refusal does: Java keeps the
/// session of what an answer names, and looks after that of a refusal itself.
pub(super) fn nameless_if_refused(operation: ItemOperation, mut answer: Answer) -> Answer {
    if answer.status == StatusCode::MULTI_STATUS && operation == ItemOperation::Transaction {
        answer.headers.remove(&names::CONTENT_PATH);
        answer.headers.remove(&names::ALT_CONTENT_PATH);
    }
    answer
}

/// Refuses a request that cannot be carried out as it was meant, before any of it is.
fn check_whole(call: &Call, target: &Target, operations: &[Operation<'_>]) -> Result<(), Failure> {
    // A client that names a range that is gone has an old map, and must look up where its keys are now.
    // A key in another range than the client thought is no error: some clients hash keys of old containers
    // differently.
    if let Some(range) = call.scope()?.range
        && target.container.newest(range).is_none()
    {
        return Err(ItemReadError::RangeGone(range).into());
    }
    if let Caller::Guest(Grant { partition_key: Some(granted), .. }) = &call.caller {
        let mut named = operations.iter().filter_map(|operation| operation.partition_key.as_ref());
        if named.any(|key| key != granted) {
            return Err(permit::other_key());
        }
    }
    if operations.iter().any(|operation| operation.kind == OperationKind::Read) {
        items::check_session(call, &target.container)?;
    }
    Ok(())
}

/// All operations on one partition key, or none.
pub(super) async fn transaction(gateway: &Gateway, call: &Call, target: &Target) -> Outcome {
    let operations = &batch::decode(&call.body)?;
    check_whole(call, target, operations)?;
    let memory = hold_answer(gateway, call, operations).await?;
    let key = target.required_key(call)?;
    // A key that no item can have is the fault of the request and not of its first operation.
    target.container.locate(&key)?;
    let mut writes = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        match write_of(operation, &call.body, &key) {
            Ok(write) => writes.push(write),
            Err(failure) => {
                let answer = undone(call, operations.len(), index, &failure);
                return Ok(seen_by(target, &key, answer));
            }
        }
    }
    // After the commit it would be too late to refuse.
    if let Some(index) = beyond_answer(call, target, operations, &key).await? {
        let answer = undone(call, operations.len(), index, &answer_too_large());
        return Ok(seen_by(target, &key, answer));
    }
    match target.container.batch(key.clone(), writes).await {
        Ok(written) => {
            written.iter().for_each(|one| target.units.note_written(one));
            let done: Vec<Done> = written
                .iter()
                .zip(operations)
                .map(|(one, operation)| Done::written(one, call, operation))
                .collect();
            let answer = Answer { memory, ..answer_all(call, &done) };
            Ok(match written.first() {
                Some(first) => answer.served_by(first.partition, first.lsn),
                None => answer,
            })
        }
        // An operation that was refused is told apart from a batch that was.
        Err(error) => match write_code(&error.error) {
            Code::RequestEntityTooLarge => Err(Failure::too_large(&error.to_string())),
            code @ Code::OwnerResourceNotFound => Err(Failure::new(code, error.to_string())),
            code if code.status() >= 500 => Err(error.error.into()),
            _ => {
                let (count, index) = (operations.len(), error.index);
                let answer = undone(call, count, index, &Failure::from(error.error));
                Ok(seen_by(target, &key, answer))
            }
        },
    }
}

/// Whether the answer to an operation holds an item that the request does not.
fn shows_more(call: &Call, operation: &Operation<'_>) -> bool {
    match operation.kind {
        OperationKind::Read => true,
        OperationKind::Patch => !is_silent(call, operation),
        _ => false,
    }
}

/// Whether the client wants no item back from a write.
fn is_silent(call: &Call, operation: &Operation<'_>) -> bool {
    call.wants_minimal() || operation.wants_minimal
}

/// Takes the memory of the answer before anything is done: the results are in its body. An answer that holds
/// only what the client sent is about as large as the request.
async fn hold_answer(
    gateway: &Gateway,
    call: &Call,
    operations: &[Operation<'_>],
) -> Result<Option<Held>, Failure> {
    if operations.iter().any(|operation| shows_more(call, operation)) {
        return Ok(Some(gateway.hold_page(&call.peer).await?));
    }
    let is_silent = operations.iter().all(|operation| is_silent(call, operation));
    let shown = if is_silent { 0 } else { call.body.len() };
    match shown + operations.len() * RESULT_BYTES {
        bytes if bytes <= UNCOUNTED_BYTES => Ok(None),
        bytes => Ok(Some(gateway.hold_answer(&call.peer, bytes).await?)),
    }
}

/// The operation whose item would make the answer too large, judged by the items as they are now. One that
/// grows until the commit is answered nevertheless.
async fn beyond_answer(
    call: &Call,
    target: &Target,
    operations: &[Operation<'_>],
    key: &PartitionKey,
) -> Result<Option<usize>, Failure> {
    // The request and one item are never that large together.
    if operations.iter().filter(|operation| shows_more(call, operation)).count() < 2 {
        return Ok(None);
    }
    let mut written: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let mut total = 0;
    for (index, operation) in operations.iter().enumerate() {
        let Some(id) = id_of(operation) else { continue };
        let sent = operation.body.as_ref().map_or(0, |body| body.len());
        let size = match (operation.kind, written.get(&id)) {
            (OperationKind::Read, Some(size)) => *size,
            (OperationKind::Read, None) => match find(target, key, &id).await? {
                Some(item) if !is_known(operation, &item) => item.feed_bytes().len(),
                _ => 0,
            },
            (OperationKind::Patch, Some(size)) => size + sent,
            (OperationKind::Patch, None) => {
                sent + find(target, key, &id).await?.map_or(0, |item| item.feed_bytes().len())
            }
            _ => sent,
        };
        if operation.kind == OperationKind::Read || !is_silent(call, operation) {
            total += size;
        }
        if operation.kind != OperationKind::Read {
            written.insert(id, size);
        }
        if total > ANSWER_BYTES_MAX {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Which item an operation is about; what is wrong with it is for the batch to find.
fn id_of<'o>(operation: &'o Operation<'_>) -> Option<Cow<'o, str>> {
    #[derive(serde::Deserialize)]
    struct Named<'b> {
        #[serde(borrow)]
        id: Cow<'b, str>,
    }
    match (&operation.id, operation.body.as_deref()) {
        (Some(id), _) => Some(Cow::Borrowed(id.as_str())),
        (None, Some(body)) => serde_json::from_slice(body).ok().map(|named: Named<'_>| named.id),
        (None, None) => None,
    }
}

/// An item as it is now; a name that is none is for the batch to refuse.
async fn find(target: &Target, key: &PartitionKey, id: &str) -> Result<Option<Item>, Failure> {
    match target.container.find(key, id).await {
        Ok((.., item)) => Ok(item),
        Err(ItemReadError::Id(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A refusal is an answer of the partition too, and says how far that is.
fn seen_by(target: &Target, key: &PartitionKey, answer: Answer) -> Answer {
    match target.container.locate(key) {
        Ok((partition, lsn)) => answer.served_by(partition, lsn),
        Err(_) => answer,
    }
}

/// Nothing was done because of one operation.
fn undone(call: &Call, count: usize, failed: usize, failure: &Failure) -> Answer {
    let done_at = |index| match index == failed {
        true => Done::failed(call, failure),
        false => Done::not_tried(),
    };
    let done: Vec<Done> = (0..count).map(done_at).collect();
    answer_all(call, &done)
}

fn answer_too_large() -> Failure {
    let message = format!(
        "the items of the answer are more than {ANSWER_BYTES_MAX} bytes; send fewer operations at once"
    );
    Failure::new(Code::BatchAnswerTooLarge, message)
}

/// Each operation on its own.
pub(super) async fn bulk(gateway: &Gateway, call: &Call, target: &Target) -> Outcome {
    let operations = &batch::decode(&call.body)?;
    check_whole(call, target, operations)?;
    let memory = hold_answer(gateway, call, operations).await?;
    let default = target.key_of(call)?;
    let goes_on = call.header(headers::BATCH_CONTINUE_ON_ERROR).is_none_or(headers::bool_of);
    let mut done = Vec::with_capacity(operations.len());
    let (mut served, mut shown) = (None, 0);
    for operation in operations {
        let stopped = !goes_on && done.iter().any(|one: &Done| one.status >= 400);
        if stopped {
            done.push(Done::not_tried());
            continue;
        }
        // A patch is small and its item is not: it is refused before it is done. Alone it fits.
        let is_patch = operation.kind == OperationKind::Patch;
        if is_patch && shows_more(call, operation) && shown > ANSWER_BYTES_MAX {
            done.push(Done::failed(call, &answer_too_large()));
            continue;
        }
        match one(call, target, operation, default.as_ref()).await {
            Ok(written) => {
                target.units.note_written(&written);
                served = Some((written.partition, written.lsn));
                let one = Done::written(&written, call, operation);
                shown += one.body.as_ref().map_or(0, Bytes::len);
                // What was written stays so and is said; what was only read can be asked for again.
                let is_too_much = operation.kind == OperationKind::Read && shown > ANSWER_BYTES_MAX;
                done.push(match is_too_much {
                    true => Done::failed(call, &answer_too_large()),
                    false => one,
                });
            }
            Err(failure) => done.push(Done::failed(call, &failure)),
        }
    }
    let answer = Answer { memory, ..answer_all(call, &done) };
    Ok(match served {
        Some((partition, lsn)) => answer.served_by(partition, lsn),
        None => answer,
    })
}

async fn one(
    call: &Call,
    target: &Target,
    operation: &Operation<'_>,
    default: Option<&PartitionKey>,
) -> Result<Written, Failure> {
    let key = operation.partition_key.as_ref().or(default);
    let key = key.ok_or_else(|| Failure::bad_request("an operation has no partition key"))?;
    let write = write_of(operation, &call.body, key)?;
    let mut written = target
        .container
        .batch(key.clone(), vec![write])
        .await
        .map_err(|error| Failure::from(error.error))?;
    written.pop().ok_or_else(|| Failure::new(Code::InternalServerError, "nothing was done"))
}

fn write_of(
    operation: &Operation<'_>,
    request: &Bytes,
    key: &PartitionKey,
) -> Result<ItemWrite, Failure> {
    if let Some(problem) = &operation.problem {
        return Err(Failure::bad_request(problem));
    }
    let id = || operation.id.as_deref().ok_or_else(|| Failure::bad_request("an id is missing"));
    let body = || match &operation.body {
        Some(Cow::Borrowed(body)) => Ok(request.slice_ref(body)),
        Some(Cow::Owned(body)) => Ok(Bytes::copy_from_slice(body)),
        None => Err(Failure::bad_request("a resourceBody is missing")),
    };
    let write = match operation.kind {
        OperationKind::Create => ItemWrite::create(body()?),
        OperationKind::Upsert => ItemWrite::upsert(body()?),
        OperationKind::Replace => ItemWrite::replace(id()?, body()?),
        OperationKind::Delete => ItemWrite::delete(key.clone(), id()?),
        OperationKind::Read => ItemWrite::read(id()?),
        OperationKind::Patch => {
            let patch = Patch::parse(&body()?)?;
            let condition = query::condition_of(&patch)?;
            let write = ItemWrite::patch(key.clone(), id()?, patch);
            match condition {
                Some(condition) => write.condition(condition),
                None => write,
            }
        }
    };
    let write = match &operation.partition_key {
        Some(own) => write.partition_key(own.clone()),
        None => write,
    };
    Ok(match (&operation.if_match, &operation.if_none_match) {
        // The condition of a read is about what is sent back.
        _ if operation.kind == OperationKind::Read => write,
        (Some(etag), _) => write.if_match(etag),
        (None, Some(etag)) => write.if_none_match(etag),
        (None, None) => write,
    })
}

fn answer_all(call: &Call, done: &[Done]) -> Answer {
    let encoding = Encoding::of(&call.body);
    let results: Vec<OperationResult<'_>> = done.iter().map(Done::as_result).collect();
    let mut body = Vec::with_capacity(128 * done.len());
    let status = batch::encode(encoding, &results, &mut body);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::MULTI_STATUS);
    let charge: Charge = done.iter().map(|one| one.charge).sum();
    let answer = match encoding {
        Encoding::Json => Answer::json(status, body),
        Encoding::HybridRow => Answer::text(status, "application/octet-stream", body),
    };
    answer.charged(charge.max(Charge::ONE))
}

#[cfg(test)]
mod tests;
