//! Stored procedures, triggers and user-defined functions, as documents. Running them is not here yet.

use super::Outcome;
use super::documents::{Check, Kind};
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use headwater_model::ResourceId;
use headwater_protocol::resource::{self, System};
use headwater_store::{Resource, ResourceType};
use hyper::Method;
use serde_json::{Map, Value};

/// `…/sprocs`, `…/triggers`, `…/udfs`
pub(super) async fn collection(
    gateway: &Gateway,
    call: &Call,
    kind: ResourceType,
    db: &str,
    coll: &str,
) -> Outcome {
    let owner = ResourceId::Container(gateway.container(db, coll)?.rid());
    scripts(kind, owner).collection(gateway, call).await
}

/// `…/sprocs/{id}` and so on
pub(super) async fn one(
    gateway: &Gateway,
    call: &Call,
    kind: ResourceType,
    db: &str,
    coll: &str,
    id: &str,
) -> Outcome {
    let owner = ResourceId::Container(gateway.container(db, coll)?.rid());
    let scripts = scripts(kind, owner);
    if call.verb == Method::POST && kind == ResourceType::StoredProcedure {
        scripts.find(gateway, id)?;
        let message = "stored procedures can be kept but not yet run by this version";
        return Err(Failure::bad_request(message));
    }
    scripts.one(gateway, call, id).await
}

fn scripts(kind: ResourceType, owner: ResourceId) -> Kind<'static> {
    let (key, check): (_, &Check) = match kind {
        ResourceType::Trigger => ("Triggers", &check_trigger),
        ResourceType::UserDefinedFunction => ("UserDefinedFunctions", &check_body),
        _ => ("StoredProcedures", &check_body),
    };
    Kind { kind, owner, key, check, conflicts: &|_, _| false, show: &show }
}

fn check_body(json: &mut Map<String, Value>) -> Result<(), Failure> {
    match json.get("body") {
        Some(Value::String(_)) => Ok(()),
        _ => Err(Failure::bad_request("a script needs a body, the source of a function")),
    }
}

fn check_trigger(json: &mut Map<String, Value>) -> Result<(), Failure> {
    check_body(json)?;
    let is_one_of = |name: &str, allowed: &[&str]| {
        let given = json.get(name).and_then(Value::as_str);
        given.is_some_and(|given| allowed.iter().any(|one| one.eq_ignore_ascii_case(given)))
    };
    let operations = ["All", "Create", "Update", "Delete", "Replace", "Upsert"];
    if !is_one_of("triggerType", &["Pre", "Post"]) || !is_one_of("triggerOperation", &operations) {
        let message = "a trigger needs triggerType (Pre or Post) and triggerOperation (All, \
                       Create, Replace, Delete, Update)";
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

fn show(resource: &Resource) -> Result<Vec<u8>, Failure> {
    let ResourceId::Resource(rid) = resource.rid else {
        return Err(Failure::not_found("script", &resource.id));
    };
    let (etag, ts) = (resource.etag.to_string(), resource.timestamp.as_seconds());
    Ok(resource::script(&resource.json, &System::below_container(rid, &etag, ts))?)
}
