//! Serves the account document: its id, and the endpoint that clients use from then on.

use super::Outcome;
use crate::answer::Answer;
use crate::gateway::Gateway;
use crate::request::Call;
use headwater_protocol::charge::Charge;
use headwater_protocol::headers;
use headwater_protocol::resource::Account;
use hyper::StatusCode;

/// The only region. Clients list regions by preference, so this is the name of a real one.
const REGION: &str = "South Central US";

/// Handles `GET /`.
pub(super) fn read(gateway: &Gateway, call: &Call) -> Outcome {
    let mut account = Account::single(&gateway.config.account, &call.origin, REGION);
    account.consistency = gateway.config.consistency;
    Ok(Answer::json(StatusCode::OK, account.to_json())
        .charged(Charge::METADATA_READ)
        .header(headers::MAX_MEDIA_STORAGE_MB, 0)
        .header(headers::MEDIA_STORAGE_MB, 0))
}
