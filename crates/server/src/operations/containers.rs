//! Serves containers: create, read, replace, delete, list, query.

use super::{Outcome, databases, list, offers, query, unknown_action};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use bytes::Bytes;
use headwater_model::ResourceId;
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use headwater_protocol::headers::{self, ApiVersion};
use headwater_protocol::operation::Action;
use headwater_protocol::resource::{self, System, Throughput};
use headwater_store::{
    Container, ContainerDefinition, Database, ItemReadError, RangeStatistics, ResourceType,
};
use hyper::StatusCode;
use serde_json::{Map, Value, json};

/// The request units of a container created without a throughput.
const THROUGHPUT: u32 = 400;
/// The size at which the service splits a partition. Headwater has no such limit.
const PARTITION_KILOBYTES: usize = 10 << 20;
/// Properties that the server sets. Clients that send back a container they read send them too.
const SYSTEM: [&str; 10] = [
    "_rid",
    "_self",
    "_etag",
    "_ts",
    "_docs",
    "_sprocs",
    "_triggers",
    "_udfs",
    "_conflicts",
    "statistics",
];

/// Handles `/dbs/{db}/colls`.
pub(super) async fn collection(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
) -> Outcome {
    let database = gateway.database(db)?;
    let rid = database.rid().to_string();
    match action {
        Action::Query => {
            query::documents(gateway, call, "DocumentCollections", &rid, &documents(&database)?)
        }
        Action::Create => create(gateway, call, &database).await,
        Action::List => list::documents(call, "DocumentCollections", &rid, &documents(&database)?),
        other => Err(unknown_action(other)),
    }
}

async fn create(gateway: &Gateway, call: &Call, database: &Database) -> Outcome {
    let definition = definition_of(call, None)?;
    let throughput = databases::throughput_of(call)?;
    let partitions = throughput.map_or(0, Throughput::partitions_of_new);
    let partitions = match definition.partition_key().system_key {
        // All items have the same key, so they share one partition anyway.
        true => 1,
        false => partitions.max(gateway.account.default_partitions()),
    };
    let container = database.create_container_with(definition, partitions).await?;
    let owner = ResourceId::Database(database.rid());
    let shared = !gateway.account.resources(ResourceType::Offer, Some(owner)).is_empty();
    // In a database with shared throughput, a container has its own only on request.
    let throughput = match throughput {
        None if !shared => Some(Throughput::manual(THROUGHPUT)?),
        given => given,
    };
    if let Some(throughput) = throughput {
        offers::create(gateway, ResourceId::Container(container.rid()), throughput).await?;
    }
    Ok(answer(gateway, call, &container, StatusCode::CREATED)?.charged(Charge::METADATA_WRITE))
}

/// Parses the definition in a body, and completes what determines how items are hashed.
fn definition_of(call: &Call, known: Option<&Container>) -> Result<ContainerDefinition, Failure> {
    let parsed = serde_json::from_slice::<Map<String, Value>>(&call.body);
    let mut json = parsed.map_err(|error| {
        Failure::bad_request(format!("the body is not a container definition: {error}"))
    })?;
    for name in SYSTEM {
        json.remove(name);
    }
    index_at_once(&mut json);
    let before = known.map(|container| container.definition().to_json());
    let before: Option<Map<String, Value>> =
        before.map(|text| serde_json::from_str(&text).unwrap_or_default());
    match &before {
        // A replace may omit what cannot change.
        Some(before) => {
            for name in ["id", "partitionKey", "uniqueKeyPolicy"] {
                if let (false, Some(value)) = (json.contains_key(name), before.get(name)) {
                    json.insert(name.to_owned(), value.clone());
                }
            }
            same_key(&mut json, before);
        }
        None => complete_key(&mut json, ApiVersion::of(call.header(headers::VERSION))),
    }
    if let Some(Value::Object(key)) = json.get_mut("partitionKey") {
        spell_version(key);
    }
    if let Some(Value::Object(policy)) = json.get_mut("indexingPolicy") {
        resource::complete_indexing_policy(policy);
    }
    resource::check_search_policies(&json, before.as_ref())?;
    resource::check_spatial_indexes(&json)?;
    let text = Value::Object(json).to_string();
    ContainerDefinition::from_json(&text).map_err(|error| Failure::bad_request(error.to_string()))
}

/// Replaces the indexing mode `lazy` by `consistent`, as the service does: queries cannot rely on an index
/// that is written later.
fn index_at_once(json: &mut Map<String, Value>) {
    let mode = json.get_mut("indexingPolicy").and_then(|policy| policy.get_mut("indexingMode"));
    if let Some(Value::String(mode)) = mode
        && mode.eq_ignore_ascii_case("lazy")
    {
        *mode = "consistent".to_owned();
    }
}

/// Completes the partition key of a new container. Clients hash keys by the definition in the response. A key
/// without a version has version 1 and stays without one, as in the service.
fn complete_key(json: &mut Map<String, Value>, version: ApiVersion) {
    let modern = version >= ApiVersion::V2018_12_31;
    if !json.contains_key("partitionKey") && !modern {
        // Versions from before partition keys: every item has the empty key.
        let key = json!({"paths": ["/_partitionKey"], "kind": "Hash", "systemKey": true});
        json.insert("partitionKey".to_owned(), key);
        return;
    }
    if let Some(Value::Object(key)) = json.get_mut("partitionKey") {
        key.entry("kind").or_insert_with(|| json!("Hash"));
        if key.get("kind") == Some(&json!("MultiHash")) {
            key.entry("version").or_insert_with(|| json!(2));
        }
    }
}

/// Replaces the hash version that the Java client writes as a name by its number.
fn spell_version(key: &mut Map<String, Value>) {
    let number = match key.get("version").and_then(Value::as_str) {
        Some("V1") => 1,
        Some("V2") => 2,
        _ => return,
    };
    key.insert("version".to_owned(), json!(number));
}

/// Keeps the existing key definition if the body names only its paths, and they are the same.
fn same_key(json: &mut Map<String, Value>, before: &Map<String, Value>) {
    let paths = |map: &Map<String, Value>| map.get("partitionKey")?.get("paths").cloned();
    let version = |map: &Map<String, Value>| map.get("partitionKey")?.get("version").cloned();
    if paths(json) == paths(before)
        && version(json).is_none()
        && let Some(key) = before.get("partitionKey")
    {
        json.insert("partitionKey".to_owned(), key.clone());
    }
}

/// Handles `/dbs/{db}/colls/{coll}`.
pub(super) async fn one(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
    coll: &str,
) -> Outcome {
    let database = gateway.database(db)?;
    let found = database.find_container(coll);
    let container = found.ok_or_else(|| Failure::not_found("container", coll))?;
    match action {
        Action::Read => {
            let seen = container.etag().zip(call.if_none_match());
            if let Some((etag, _)) = seen.filter(|(etag, wanted)| etag.matches(wanted)) {
                return Ok(Answer::empty(StatusCode::NOT_MODIFIED).etag(etag));
            }
            answer(gateway, call, &container, StatusCode::OK)
        }
        Action::Replace => {
            check_etag(call, &container)?;
            let definition = definition_of(call, Some(&container))?;
            if definition.id() != &container.id() {
                return Err(Failure::bad_request("the id of a container cannot be changed"));
            }
            let container = database.replace_container(definition).await?;
            let answer = answer(gateway, call, &container, StatusCode::OK)?;
            Ok(answer.charged(Charge::METADATA_WRITE))
        }
        Action::Delete => {
            check_etag(call, &container)?;
            database.drop_container(container.id().as_str()).await?;
            gateway.forget_dropped();
            Ok(Answer::empty(StatusCode::NO_CONTENT).charged(Charge::METADATA_WRITE))
        }
        other => Err(unknown_action(other)),
    }
}

fn check_etag(call: &Call, container: &Container) -> Result<(), Failure> {
    let current = container.etag();
    let matches =
        |wanted: &str| wanted == "*" || current.as_ref().is_some_and(|etag| etag.matches(wanted));
    match call.if_match() {
        Some(wanted) if !matches(wanted) => {
            let message = "One of the specified pre-condition is not met: the container has \
                           changed since it was read; read it again.";
            Err(Failure::new(Code::PreconditionFailed, message))
        }
        _ => Ok(()),
    }
}

fn answer(gateway: &Gateway, call: &Call, container: &Container, status: StatusCode) -> Outcome {
    let wants_statistics = call.flag(headers::POPULATE_PARTITION_STATISTICS);
    let wants_quota = call.flag(headers::POPULATE_QUOTA_INFO);
    let statistics = match wants_statistics || wants_quota {
        // This counts all rows of the container, which may take a moment.
        true => gateway.runtime.blocking(|| container.statistics()).map_err(ItemReadError::from)?,
        false => Vec::new(),
    };
    let mut body = document(container)?;
    if wants_statistics {
        add_statistics(&mut body, &statistics);
    }
    let mut answer = Answer::json(status, body)
        .charged(Charge::METADATA_READ)
        .header(headers::INDEX_TRANSFORMATION_PROGRESS, container.index_percent())
        .header(headers::CONTENT_PATH, container.rid().database());
    if let Some(etag) = container.etag() {
        answer = answer.etag(etag);
    }
    if wants_quota {
        let size = statistics.iter().map(|range| range.bytes).sum::<u64>() / 1024;
        let count: u64 = statistics.iter().map(|range| range.items).sum();
        let usage = format!(
            "documentSize=0;documentsSize={size};documentsCount={count};collectionSize={size};"
        );
        let most = statistics.len() * PARTITION_KILOBYTES;
        let quota = format!(
            "documentSize=10240;documentsSize={most};documentsCount=-1;collectionSize={most};"
        );
        answer =
            answer.header(headers::RESOURCE_USAGE, usage).header(headers::RESOURCE_QUOTA, quota);
    }
    Ok(answer)
}

/// Appends the statistics of each range to a container's properties.
fn add_statistics(body: &mut Vec<u8>, statistics: &[RangeStatistics]) {
    let ranges = statistics.iter().map(|range| {
        let keys = range.largest_keys.iter().map(|(key, bytes)| {
            let key: Value = serde_json::from_str(&key.to_json()).unwrap_or_default();
            json!({ "partitionKey": key, "sizeInKB": bytes / 1024 })
        });
        json!({
            "id": range.id.to_string(),
            "sizeInKB": range.bytes / 1024,
            "documentCount": range.items,
            "sampledDistinctPartitionKeyCount": range.distinct_keys,
            "partitionKeys": keys.collect::<Vec<_>>(),
        })
    });
    let ranges = Value::Array(ranges.collect()).to_string();
    body.pop();
    body.extend_from_slice(b",\"statistics\":");
    body.extend_from_slice(ranges.as_bytes());
    body.push(b'}');
}

fn documents(database: &Database) -> Result<Vec<Bytes>, Failure> {
    let containers = database.containers();
    containers.iter().map(|container| document(container).map(Bytes::from)).collect()
}

fn document(container: &Container) -> Result<Vec<u8>, Failure> {
    let etag = container.etag().map(|etag| etag.to_string()).unwrap_or_default();
    let ts = container.timestamp().map_or(0, |time| time.as_seconds());
    let system = System::container(container.rid(), &etag, ts);
    Ok(resource::container(&container.definition().to_json(), &system)?)
}
