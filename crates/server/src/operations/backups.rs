//! Online backups of the whole account, for the holder of a read-write key.
//!
//! ```text
//! POST   /_headwater/backups                          starts a backup: its id and the files to copy
//! GET    /_headwater/backups/{id}/partitions/{n}      LSN, items and state of a partition
//! GET    /_headwater/backups/{id}/files/{n}           ?offset=0&bytes=4194304, at most 4 MiB
//! DELETE /_headwater/backups/{id}                     releases the files
//! ```
//!
//! The etag of a chunk is its checksum: `If-None-Match` compares it without sending the chunk. Clients can
//! repeat a request for a chunk, so a broken connection costs one chunk.

use super::{Outcome, no_id};
use crate::answer::{Answer, Payload};
use crate::backups::{self, BACKUPS_MAX};
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use headwater_protocol::error::Code;
use headwater_protocol::route::Route;
use headwater_store::{BackupCut, BackupError, CatalogError, PART_BYTES};
use hyper::StatusCode;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn begin(gateway: &Arc<Gateway>) -> Outcome {
    let place = gateway.backups.reserve(&gateway.runtime).ok_or_else(|| {
        let message =
            format!("{BACKUPS_MAX} backups are being copied already; wait for one of them");
        Failure::new(Code::TooManyRequests, message)
    })?;
    let (id, cut) = place.fill(gateway.account.begin_backup().await.map_err(failure)?);
    let (runtime, idle_max) = (&gateway.runtime, gateway.config.limits.backup_idle_time);
    let owner = Arc::downgrade(gateway);
    backups::watch(runtime, owner, |gateway: &Gateway| &gateway.backups, id.clone(), idle_max);
    let body = json!({ "id": id, "plan": cut.plan() }).to_string();
    Ok(Answer::json(StatusCode::CREATED, body))
}

pub(super) fn partition(gateway: &Gateway, call: &Call) -> Outcome {
    let Route::BackupPartition { id, number } = &call.route else { return Err(no_id(call)) };
    let found = find(gateway, id)?.partition(*number).map_err(failure)?;
    let found = found.ok_or_else(|| Failure::not_found("partition", &number.to_string()))?;
    Ok(Answer::json(StatusCode::OK, json!(found).to_string()))
}

pub(super) fn file(gateway: &Gateway, call: &Call) -> Outcome {
    let Route::BackupFile { id, number } = &call.route else { return Err(no_id(call)) };
    let (offset, bytes) = stretch(call).ok_or_else(|| {
        let message = format!("send ?offset=0&bytes=4096, with at most {PART_BYTES} bytes");
        Failure::bad_request(message)
    })?;
    let found = find(gateway, id)?.read(*number, offset, bytes).map_err(failure)?;
    let (bytes, checksum) = found.ok_or_else(|| {
        Failure::not_found("chunk of a file", &format!("{number} at {offset}, {bytes} bytes"))
    })?;
    let etag = format!("\"{checksum}\"");
    if call.if_none_match() == Some(etag.as_str()) {
        return Ok(Answer::empty(StatusCode::NOT_MODIFIED).etag(etag));
    }
    let mut answer = Answer::text(StatusCode::OK, "application/octet-stream", "").etag(etag);
    answer.payload = Payload::Whole(bytes);
    Ok(answer)
}

pub(super) fn end(gateway: &Gateway, call: &Call) -> Outcome {
    let Route::Backup { id } = &call.route else { return Err(no_id(call)) };
    match gateway.backups.release(id) {
        true => Ok(Answer::empty(StatusCode::NO_CONTENT)),
        false => Err(gone(id)),
    }
}

fn find(gateway: &Gateway, id: &str) -> Result<Arc<BackupCut>, Failure> {
    gateway.backups.get(id, gateway.runtime.elapsed()).ok_or_else(|| gone(id))
}

fn gone(id: &str) -> Failure {
    let message = format!(
        "there is no backup {id}: it has ended, or had no request for too long. Start the backup again; what \
         was copied is not copied twice."
    );
    Failure::new(Code::NotFound, message)
}

/// The offset and the length in the query string.
fn stretch(call: &Call) -> Option<(u64, usize)> {
    let (mut offset, mut bytes) = (None, None);
    for (name, value) in call.query.as_deref()?.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "offset" => offset = value.parse().ok(),
            "bytes" => bytes = value.parse().ok(),
            _ => {}
        }
    }
    Some((offset?, bytes.filter(|bytes| *bytes <= PART_BYTES)?))
}

fn failure(error: BackupError) -> Failure {
    match error {
        BackupError::Storage(error) => CatalogError::Storage(error).into(),
        other => Failure::new(Code::InternalServerError, format!("cannot make a backup: {other}")),
    }
}
