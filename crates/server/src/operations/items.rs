//! Items: create, upsert, read, replace, patch, delete, and delete of a partition key.

use super::{Outcome, batch, by_rid, changes, list, no_id, permit, query, scripts};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::names;
use crate::request::{Call, no_partition_key};
use bytes::Bytes;
use headwater_model::{ChangeKind, PartitionKey};
use headwater_protocol::binary;
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use headwater_protocol::headers;
use headwater_protocol::operation::ItemOperation;
use headwater_protocol::route::Route;
use headwater_protocol::session::SessionToken;
use headwater_store::{Container, Item, ItemWrite, Patch, WriteError, Written};
use hyper::StatusCode;
use std::sync::Arc;

/// Carries out an operation on the items of a container.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    call: &Call,
    target: &Target,
    operation: ItemOperation,
) -> Outcome {
    match operation {
        ItemOperation::Read
        | ItemOperation::Replace
        | ItemOperation::Patch
        | ItemOperation::Delete => one(gateway, call, target, operation).await,
        ItemOperation::Create => {
            let write = ItemWrite::create(call.body.clone());
            write_body(gateway, call, target, write, "Create").await
        }
        ItemOperation::Upsert => {
            let write = ItemWrite::upsert(call.body.clone());
            write_body(gateway, call, target, write, "Upsert").await
        }
        ItemOperation::ReadFeed { .. } => Box::pin(changes::read(gateway, call, target)).await,
        ItemOperation::List => Box::pin(list::items(call, target)).await,
        ItemOperation::Query => Box::pin(query::items(gateway, call, target)).await,
        ItemOperation::PlanQuery => query::plan(call, target),
        ItemOperation::Transaction => Box::pin(batch::transaction(gateway, call, target)).await,
        ItemOperation::Bulk => Box::pin(batch::bulk(gateway, call, target)).await,
        ItemOperation::DeletePartitionKey => Box::pin(delete_partition_key(call, target)).await,
        ItemOperation::ExecuteProcedure => Box::pin(scripts::execute(gateway, call, target)).await,
    }
}

/// `…/docs/{id}`
async fn one(gateway: &Gateway, call: &Call, target: &Target, operation: ItemOperation) -> Outcome {
    let Route::Item { id, .. } = &call.route else { return Err(no_id(call)) };
    let key = target.key_of(call)?;
    let by_rid = match by_rid::may_be(target, id) {
        true => Box::pin(by_rid::id_of(target, id, key.as_ref(), &call.body)).await?,
        false => None,
    };
    let id = by_rid.as_deref().unwrap_or(id);
    match operation {
        ItemOperation::Replace => {
            let write = ItemWrite::replace(id, call.body.clone());
            let write = if permit::may_rename(gateway, call)? { write } else { write.keep_id() };
            write_body(gateway, call, target, write, "Replace").await
        }
        ItemOperation::Patch => {
            let patch = Patch::parse(&call.body)?;
            let condition = query::condition_of(&patch)?;
            let mut write = ItemWrite::patch(key.ok_or_else(no_partition_key)?, id, patch);
            if let Some(condition) = condition {
                write = write.condition(condition);
            }
            // Triggers see it as the replace it comes to.
            carry_out(gateway, call, target, write, "Replace").await
        }
        ItemOperation::Delete => {
            let write = ItemWrite::delete(key.ok_or_else(no_partition_key)?, id);
            carry_out(gateway, call, target, write, "Delete").await
        }
        _ => read(call, target, key, id).await,
    }
}

/// A write whose body says which partition key it has; the header, if there is one, must agree.
async fn write_body(
    gateway: &Gateway,
    call: &Call,
    target: &Target,
    write: ItemWrite,
    operation: &'static str,
) -> Outcome {
    let write = match call.partition_key()? {
        Some(key) => write.partition_key(key),
        None => write,
    };
    carry_out(gateway, call, target, write, operation).await
}

/// A write, with the triggers it names.
async fn carry_out(
    gateway: &Gateway,
    call: &Call,
    target: &Target,
    write: ItemWrite,
    operation: &'static str,
) -> Outcome {
    let write = conditional(call, write);
    match scripts::triggers_of(gateway, call, &target.container, operation)? {
        Some(triggers) => Box::pin(scripts::triggered(call, target, write, &triggers)).await,
        None => answer_write(call, target, write).await,
    }
}

fn conditional(call: &Call, write: ItemWrite) -> ItemWrite {
    match (call.if_match(), call.if_none_match()) {
        (Some(etag), _) => write.if_match(etag),
        (None, Some(etag)) => write.if_none_match(etag),
        (None, None) => write,
    }
}

async fn answer_write(call: &Call, target: &Target, write: ItemWrite) -> Outcome {
    let written = target.container.write(write).await.map_err(|error| match error {
        // Without triggers only a write that must keep the id is refused for it.
        WriteError::Rename { .. } => permit::other_id(),
        error => error.into(),
    })?;
    Ok(answer_written(call, target, &written))
}

pub(super) fn answer_written(call: &Call, target: &Target, written: &Written) -> Answer {
    target.units.note_written(written);
    let status = status_of(written);
    let answer = match &written.item {
        None => Answer::empty(status),
        Some(item) if call.wants_minimal() => Answer::empty(status).etag(item.etag()),
        Some(item) => Answer::json(status, shown(call, item)).etag(item.etag()),
    };
    answer
        .charged(charge_of(written))
        .served_by(written.partition, written.lsn)
        .number(&names::ITEM_LSN, written.lsn.get())
}

/// The status of an operation that was carried out.
pub(super) fn status_of(written: &Written) -> StatusCode {
    match written.change {
        Some(ChangeKind::Create) => StatusCode::CREATED,
        Some(ChangeKind::Delete) => StatusCode::NO_CONTENT,
        Some(ChangeKind::Replace) | None => StatusCode::OK,
    }
}

pub(super) fn charge_of(written: &Written) -> Charge {
    let bytes = written.item.as_ref().map_or(0, |item| item.feed_bytes().len());
    match written.change {
        Some(ChangeKind::Create) => Charge::create(bytes),
        Some(_) => Charge::replace(bytes),
        None => Charge::read(bytes),
    }
}

async fn read(call: &Call, target: &Target, key: Option<PartitionKey>, id: &str) -> Outcome {
    let Some(key) = key else { return Err(no_partition_key()) };
    check_session(call, &target.container)?;
    let (partition, lsn, item) = target.container.find(&key, id).await?;
    let Some(item) = item else {
        // That there is nothing is an answer too: a client reads on from here.
        let served = Some((partition, lsn));
        return Err(Failure { served, ..Failure::not_found("item", id) });
    };
    let answer = answer_item(call, &item);
    Ok(answer.served_by(partition, lsn).number(&names::ITEM_LSN, item.lsn().get()))
}

fn answer_item(call: &Call, item: &Item) -> Answer {
    let etag = item.etag();
    if call.if_none_match().is_some_and(|wanted| wanted == "*" || etag.matches(wanted)) {
        return Answer::empty(StatusCode::NOT_MODIFIED).etag(etag);
    }
    let charge = Charge::read(item.feed_bytes().len());
    Answer::json(StatusCode::OK, shown(call, item)).etag(etag).charged(charge)
}

/// The item in the form the client reads best. It tells the forms apart by the first byte.
fn shown(call: &Call, item: &Item) -> Bytes {
    let text = item.to_bytes();
    if !call.prefers_binary() {
        return text;
    }
    // What cannot be said in binary is said in text.
    binary::encode(&text).map_or(text, Bytes::from)
}

/// A client that has seen more than we have must not be told about the past.
pub(super) fn check_session(call: &Call, container: &Container) -> Result<(), Failure> {
    let Some(text) = call.header(&names::SESSION_TOKEN).filter(|text| !text.is_empty()) else {
        return Ok(());
    };
    for (range, progress) in text.parse::<SessionToken>()?.parts() {
        let newest = container.newest(range);
        // Ranges that are gone are satisfied by those that replaced them.
        if newest.is_some_and(|newest| newest.get() < progress.global_lsn) {
            let message = "The read session is not available for the input session token.";
            return Err(Failure::new(Code::ReadSessionNotAvailable, message));
        }
    }
    Ok(())
}

/// `…/operations/partitionkeydelete`
async fn delete_partition_key(call: &Call, target: &Target) -> Outcome {
    let key = target.required_key(call)?;
    target.container.delete_partition_key(key.clone()).await?;
    let (partition, lsn) = target.container.locate(&key)?;
    Ok(Answer::empty(StatusCode::OK)
        .served_by(partition, lsn)
        .header(headers::PARTITION_KEY_DELETE_PENDING, "false"))
}
