//! Stored procedures, triggers and user-defined functions: keeping them, and finding them when they are to
//! run. What running them means is the store's business.

use super::documents::{Check, Kind};
use super::{Outcome, items, no_id};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::request::Call;
use headwater_model::ResourceId;
use headwater_protocol::charge::Charge;
use headwater_protocol::headers;
use headwater_protocol::operation::Action;
use headwater_protocol::resource::{self, System};
use headwater_protocol::route::Route;
use headwater_store::query::Query;
use headwater_store::{
    Container, Executed, ItemWrite, ProcedureCall, Resource, ResourceType, Script, Triggers,
};
use hyper::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};

/// What is escaped in the log: clients compare it with what they escape themselves.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes of the log in a header: clients refuse heads beyond 16 KiB.
const LOG_HEADER_BYTES: usize = 8 << 10;

/// `…/sprocs`, `…/triggers`, `…/udfs`
pub(super) async fn collection(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    kind: ResourceType,
    db: &str,
    coll: &str,
) -> Outcome {
    let owner = ResourceId::Container(gateway.container(db, coll)?.rid());
    scripts(kind, owner).collection(gateway, call, action).await
}

/// `…/sprocs/{id}` and so on
pub(super) async fn one(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    kind: ResourceType,
    (db, coll): (&str, &str),
    id: &str,
) -> Outcome {
    let owner = ResourceId::Container(gateway.container(db, coll)?.rid());
    scripts(kind, owner).one(gateway, call, action, id).await
}

/// `POST …/sprocs/{id}`
pub(super) async fn execute(gateway: &Gateway, call: &Call, target: &Target) -> Outcome {
    let Route::StoredProcedure { id, .. } = &call.route else {
        return Err(no_id(call));
    };
    let owner = ResourceId::Container(target.container.rid());
    let procedure = scripts(ResourceType::StoredProcedure, owner).find(gateway, id)?;
    let key = target.required_key(call)?;
    items::check_session(call, &target.container)?;
    let procedure = ProcedureCall {
        script: script_of(&procedure),
        arguments: arguments_of(call)?,
        functions: all_functions(gateway, &target.container),
    };
    let executed = target.container.execute(key, &procedure).await?;
    // Without a response the body is an empty text, which every client can read.
    let body = executed.response.clone().unwrap_or_else(|| "\"\"".to_owned());
    Ok(told(call, Answer::json(StatusCode::OK, body), &executed))
}

/// The arguments of a call: a JSON array, or nothing.
fn arguments_of(call: &Call) -> Result<String, Failure> {
    let text = call.text()?.trim();
    if text.is_empty() {
        return Ok("[]".to_owned());
    }
    match serde_json::from_str::<Vec<serde::de::IgnoredAny>>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let message = format!("the body is not a JSON array of arguments, [\"a\", 1]: {error}");
            Err(Failure::bad_request(message))
        }
    }
}

/// What an answer says about the scripts behind it.
fn told(call: &Call, answer: Answer, executed: &Executed) -> Answer {
    let written: Charge = executed.written.iter().map(items::charge_of).sum();
    let read = match executed.items_read {
        0 => Charge::ONE,
        count => Charge::query(count, executed.bytes_read),
    };
    let log = call.flag(headers::SCRIPT_ENABLE_LOGGING).then(|| log_header(&executed.log));
    answer
        .charged(written + read)
        .served_by(executed.partition, executed.lsn)
        .header_if(headers::SCRIPT_LOG_RESULTS, log)
}

fn log_header(log: &str) -> String {
    let mut encoded = utf8_percent_encode(log, ESCAPED).to_string();
    if encoded.len() > LOG_HEADER_BYTES {
        // Not in the middle of an escape.
        let cut = encoded[..LOG_HEADER_BYTES].rfind('%').unwrap_or(LOG_HEADER_BYTES);
        let cut = if cut + 3 > LOG_HEADER_BYTES { cut } else { LOG_HEADER_BYTES };
        encoded.truncate(cut);
    }
    encoded
}

/// The triggers a write names, if it names any.
pub(super) fn triggers_of(
    gateway: &Gateway,
    call: &Call,
    container: &Container,
    operation: &'static str,
) -> Result<Option<Triggers>, Failure> {
    let find = |header: &'static str, when: &'static str| -> Result<Vec<Script>, Failure> {
        headers::names_in(call.header(header).unwrap_or_default())
            .map(|name| trigger(gateway, container, name, when, operation))
            .collect()
    };
    let before = find(headers::PRE_TRIGGER_INCLUDE, "Pre")?;
    let after = find(headers::POST_TRIGGER_INCLUDE, "Post")?;
    if before.is_empty() && after.is_empty() {
        return Ok(None);
    }
    let functions = all_functions(gateway, container);
    Ok(Some(Triggers { before, after, functions }))
}

/// A trigger, if it may run there.
fn trigger(
    gateway: &Gateway,
    container: &Container,
    name: &str,
    when: &str,
    operation: &str,
) -> Result<Script, Failure> {
    let owner = ResourceId::Container(container.rid());
    let found = gateway.account.resource(ResourceType::Trigger, owner, name);
    let Some(resource) = found else {
        let message =
            format!("the trigger {name} does not exist in this container; create it first");
        return Err(Failure::bad_request(message));
    };
    let json: Value = serde_json::from_str(&resource.json).unwrap_or_default();
    let kind = json["triggerType"].as_str().unwrap_or_default();
    let of = json["triggerOperation"].as_str().unwrap_or_default();
    if !kind.eq_ignore_ascii_case(when) {
        let message = format!("the trigger {name} is a {kind}-trigger and cannot run as {when}");
        return Err(Failure::bad_request(message));
    }
    // An upsert creates or replaces, so triggers of either may run; an update is both.
    let runs = match operation {
        "Upsert" => ["All", "Upsert", "Update", "Create", "Replace"].as_slice(),
        "Replace" => ["All", "Replace", "Update"].as_slice(),
        "Create" => ["All", "Create"].as_slice(),
        _ => ["All", "Delete"].as_slice(),
    };
    if !runs.iter().any(|one| one.eq_ignore_ascii_case(of)) {
        let message = format!("the trigger {name} is for the operation {of}, not for {operation}");
        return Err(Failure::bad_request(message));
    }
    Ok(script_of(&resource))
}

/// Writes an item with triggers around it.
pub(super) async fn triggered(
    call: &Call,
    target: &Target,
    write: ItemWrite,
    triggers: &Triggers,
) -> Outcome {
    let executed = target.container.write_with_triggers(write, triggers).await?;
    let main = executed.main.and_then(|main| executed.written.get(main));
    let Some(written) = main else {
        return Err(Failure::bad_request("the write was not carried out; send it again"));
    };
    let answer = items::answer_written(call, target, written);
    let answer = match &executed.response {
        Some(body) if !call.wants_minimal() => {
            let mut changed = Answer::json(answer.status, body.clone());
            changed.headers.extend(answer.headers);
            changed
        }
        _ => answer,
    };
    Ok(told(call, answer, &executed))
}

/// The user-defined functions a query calls. Those that are missing it will miss itself.
pub(super) fn functions_of(gateway: &Gateway, container: &Container, query: &Query) -> Vec<Script> {
    let owner = ResourceId::Container(container.rid());
    let find =
        |name: &String| gateway.account.resource(ResourceType::UserDefinedFunction, owner, name);
    query.user_functions().iter().filter_map(find).map(|found| script_of(&found)).collect()
}

fn all_functions(gateway: &Gateway, container: &Container) -> Vec<Script> {
    let owner = ResourceId::Container(container.rid());
    let all = gateway.account.resources(ResourceType::UserDefinedFunction, Some(owner));
    all.iter().map(script_of).collect()
}

fn script_of(resource: &Resource) -> Script {
    let json: Value = serde_json::from_str(&resource.json).unwrap_or_default();
    let source = json["body"].as_str().unwrap_or_default().to_owned();
    Script { name: resource.id.clone(), source }
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
