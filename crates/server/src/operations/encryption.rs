//! Serves client encryption keys. Clients wrap them; the server stores them and never unwraps them.
//!
//! As in the service, a key cannot be deleted, because data encrypted with it would become unreadable. It is
//! deleted with its database.

use super::documents::Kind;
use super::{Outcome, unknown_action};
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use headwater_model::ResourceId;
use headwater_protocol::operation::Action;
use headwater_protocol::resource::{self, System};
use headwater_store::{Resource, ResourceType};
use serde_json::{Map, Value};

/// Handles `/dbs/{db}/clientencryptionkeys`.
pub(super) async fn collection(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
) -> Outcome {
    keys(gateway, db)?.collection(gateway, call, action).await
}

/// Handles `/dbs/{db}/clientencryptionkeys/{id}`.
pub(super) async fn one(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
    id: &str,
) -> Outcome {
    let keys = keys(gateway, db)?;
    match action {
        Action::Delete => Err(unknown_action(action)),
        _ => keys.one(gateway, call, action, id).await,
    }
}

fn keys(gateway: &Gateway, db: &str) -> Result<Kind<'static>, Failure> {
    let owner = ResourceId::Database(gateway.database(db)?.rid());
    let (kind, key) = (ResourceType::ClientEncryptionKey, "ClientEncryptionKeys");
    Ok(Kind { kind, owner, key, check: &check, conflicts: &|_, _| false, show: &show })
}

/// Checks the fields that every client reads. The algorithm is not validated.
fn check(json: &mut Map<String, Value>) -> Result<(), Failure> {
    for name in ["encryptionAlgorithm", "wrappedDataEncryptionKey"] {
        if json.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
            let message = format!("a client encryption key needs {name}, a text");
            return Err(Failure::bad_request(message));
        }
    }
    match json.get("keyWrapMetadata") {
        Some(Value::Object(_)) => Ok(()),
        _ => Err(Failure::bad_request(
            "a client encryption key needs keyWrapMetadata, an object that says how it is wrapped",
        )),
    }
}

fn show(resource: &Resource) -> Result<Vec<u8>, Failure> {
    let ResourceId::ClientEncryptionKey(rid) = resource.rid else {
        return Err(Failure::not_found("client encryption key", &resource.id));
    };
    let (etag, ts) = (resource.etag.to_string(), resource.timestamp.as_seconds());
    Ok(resource::script(&resource.json, &System::client_encryption_key(rid, &etag, ts))?)
}
