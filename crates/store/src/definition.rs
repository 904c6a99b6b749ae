//! Container definitions: id, partition key and policies.
//!
//! A definition keeps the JSON it was created from, so every policy is returned unchanged, also those the
//! store ignores. The policies the store applies are parsed once. Never changes stored definitions.

use crate::body::Wanted;
use crate::error::DefinitionError;
use crate::query::ComputedProperty;
use crate::secondary::policy::IndexingPolicy;
use headwater_model::{
    BadPartitionKeyDefinition, ContainerId, PartitionKeyDefinition, PartitionKeyPath, Timestamp,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;

const UNIQUE_KEYS_MAX: usize = 10;
const UNIQUE_PATHS_MAX: usize = 16;
const COMPUTED_PROPERTIES_MAX: usize = 20;
/// Property names that the server sets.
const SYSTEM_NAMES: [&str; 7] = ["id", "_rid", "_ts", "_etag", "_self", "_attachments", "_lsn"];
/// The most partitions a container can be created with.
pub(crate) const PARTITIONS_MAX: u32 = 1000;

/// The definition of a container.
///
/// ```
/// use headwater_store::ContainerDefinition;
///
/// let orders = ContainerDefinition::new("orders", "/customer")?
///     .with_default_ttl(-1)
///     .with_unique_key(&["/number"])
///     .with_all_versions(std::time::Duration::from_secs(3600));
/// assert_eq!(orders.id().as_str(), "orders");
/// # Ok::<(), headwater_store::DefinitionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ContainerDefinition {
    json: Map<String, Value>,
    id: ContainerId,
    partition_key: PartitionKeyDefinition,
    default_ttl: Option<i32>,
    unique_keys: Vec<Vec<PartitionKeyPath>>,
    computed: Arc<[ComputedProperty]>,
    retention: Option<Duration>,
}

impl ContainerDefinition {
    /// A definition with a partition key of one path.
    ///
    /// # Errors
    /// When the id or the path is not valid.
    pub fn new(id: &str, partition_key_path: &str) -> Result<ContainerDefinition, DefinitionError> {
        let key = PartitionKeyDefinition::hash(partition_key_path)?;
        ContainerDefinition::with_partition_key(id, &key)
    }

    /// A definition with any partition key.
    ///
    /// # Errors
    /// When the id is not valid.
    pub fn with_partition_key(
        id: &str,
        key: &PartitionKeyDefinition,
    ) -> Result<ContainerDefinition, DefinitionError> {
        let key = serde_json::to_value(key).map_err(malformed)?;
        ContainerDefinition::from_value(json!({ "id": id, "partitionKey": key }))
    }

    /// Parses a definition from the JSON of the protocol.
    ///
    /// # Errors
    /// When the JSON is malformed or holds a value that is not valid.
    pub fn from_json(json: &str) -> Result<ContainerDefinition, DefinitionError> {
        ContainerDefinition::from_value(serde_json::from_str(json).map_err(malformed)?)
    }

    fn from_value(value: Value) -> Result<ContainerDefinition, DefinitionError> {
        let Value::Object(json) = value else {
            return Err(DefinitionError::Malformed("it is not a JSON object".to_owned()));
        };
        let id = json.get("id").and_then(Value::as_str).ok_or_else(|| missing("id"))?;
        let id = ContainerId::new(id)?;
        let key = json.get("partitionKey").ok_or_else(|| missing("partitionKey"))?;
        let partition_key = PartitionKeyDefinition::from_json(&key.to_string())?;
        let default_ttl = parse_default_ttl(&json)?;
        let unique_keys = parse_unique_keys(&json)?;
        // A stored definition must not prevent the store from opening, so errors here are ignored.
        let computed = parse_computed(&json).unwrap_or_default();
        let retention = parse_retention(&json)?;
        Ok(ContainerDefinition {
            json,
            id,
            partition_key,
            default_ttl,
            unique_keys,
            computed,
            retention,
        })
    }

    fn with(mut self, field: &str, value: Value) -> ContainerDefinition {
        self.json.insert(field.to_owned(), value);
        self
    }

    /// Sets the default time to live. Items expire this many seconds after their last write unless they have
    /// a `ttl` of their own; with -1 only items with a `ttl` expire.
    #[must_use]
    pub fn with_default_ttl(mut self, seconds: i32) -> ContainerDefinition {
        self.default_ttl = Some(seconds);
        self.with("defaultTtl", json!(seconds))
    }

    /// Adds a unique key: no two items of a partition key have the same values at all of these paths. A path
    /// that is not valid is refused when the container is created.
    #[must_use]
    pub fn with_unique_key(mut self, paths: &[&str]) -> ContainerDefinition {
        let policy = self.json.entry("uniqueKeyPolicy").or_insert_with(|| json!({}));
        let keys = &mut policy["uniqueKeys"];
        if keys.is_null() {
            *keys = json!([]);
        }
        if let Some(keys) = keys.as_array_mut() {
            keys.push(json!({ "paths": paths }));
        }
        self
    }

    /// Keeps every version and every delete for this long, in whole minutes, at least one.
    #[must_use]
    pub fn with_all_versions(mut self, retention: Duration) -> ContainerDefinition {
        self.retention = Some(retention);
        let minutes = retention.as_secs().div_ceil(60).max(1);
        self.with("changeFeedPolicy", json!({ "retentionDuration": minutes }))
    }

    /// Parses the definition again, so that values set by builders pass the same checks as values sent by
    /// clients.
    pub(crate) fn checked(&self) -> Result<ContainerDefinition, DefinitionError> {
        let ttl = self.default_ttl.map(i64::from);
        if let Some(ttl) = ttl.filter(|ttl| *ttl == 0 || *ttl < -1) {
            return Err(DefinitionError::DefaultTtl(ttl));
        }
        parse_computed(&self.json)?;
        ContainerDefinition::from_value(Value::Object(self.json.clone()))
    }

    /// Sets the indexing policy in the form of the protocol: `{"excludedPaths":[{"path":"/*"}]}`.
    #[must_use]
    pub fn with_indexing_policy(self, policy: Value) -> ContainerDefinition {
        self.with("indexingPolicy", policy)
    }

    /// Checks what is refused in new containers only: existing ones may have it.
    pub(crate) fn check_new(&self) -> Result<(), DefinitionError> {
        for path in &self.partition_key.paths {
            path.check_new().map_err(|problem| BadPartitionKeyDefinition::Path {
                path: path.as_str().to_owned(),
                problem,
            })?;
        }
        Ok(())
    }

    /// The id of the container.
    #[must_use]
    pub fn id(&self) -> &ContainerId {
        &self.id
    }

    /// The partition key, which decides the partition of each item.
    #[must_use]
    pub fn partition_key(&self) -> &PartitionKeyDefinition {
        &self.partition_key
    }

    /// Seconds until items expire. With `None` no item expires, whatever its `ttl`; with -1 only items with a
    /// `ttl` expire.
    #[must_use]
    pub fn default_ttl(&self) -> Option<i32> {
        self.default_ttl
    }

    /// Sets of paths whose values are unique within a partition key.
    #[must_use]
    pub fn unique_keys(&self) -> &[Vec<PartitionKeyPath>] {
        &self.unique_keys
    }

    /// Computed properties: names that queries can use for expressions.
    #[must_use]
    pub fn computed_properties(&self) -> &Arc<[ComputedProperty]> {
        &self.computed
    }

    /// The minimum time that superseded versions and deletes are kept. With `None`,
    /// [`Options::history`](crate::Options::history) applies.
    #[must_use]
    pub fn all_versions_retention(&self) -> Option<Duration> {
        self.retention
    }

    /// The definition as JSON, with all policies as they were given.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.json.clone()).to_string()
    }
}

fn missing(field: &str) -> DefinitionError {
    DefinitionError::Malformed(format!("{field} is missing"))
}

fn malformed(error: serde_json::Error) -> DefinitionError {
    DefinitionError::Malformed(error.to_string())
}

fn parse_default_ttl(json: &Map<String, Value>) -> Result<Option<i32>, DefinitionError> {
    let Some(value) = json.get("defaultTtl").filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let seconds = value
        .as_i64()
        .ok_or_else(|| DefinitionError::Malformed("defaultTtl is not a whole number".to_owned()))?;
    match i32::try_from(seconds) {
        Ok(seconds) if seconds == -1 || seconds > 0 => Ok(Some(seconds)),
        _ => Err(DefinitionError::DefaultTtl(seconds)),
    }
}

fn parse_unique_keys(
    json: &Map<String, Value>,
) -> Result<Vec<Vec<PartitionKeyPath>>, DefinitionError> {
    let keys = json.get("uniqueKeyPolicy").and_then(|policy| policy.get("uniqueKeys"));
    let Some(keys) = keys.filter(|keys| !keys.is_null()) else {
        return Ok(Vec::new());
    };
    let wrong = || DefinitionError::Malformed("uniqueKeys is not a list of path lists".to_owned());
    let keys = keys.as_array().ok_or_else(wrong)?;
    let mut parsed = Vec::with_capacity(keys.len().min(UNIQUE_KEYS_MAX));
    for key in keys {
        let paths = key.get("paths").and_then(Value::as_array).ok_or_else(wrong)?;
        if paths.len() > UNIQUE_PATHS_MAX || paths.is_empty() || parsed.len() >= UNIQUE_KEYS_MAX {
            return Err(DefinitionError::TooManyUniqueKeys);
        }
        let paths =
            paths.iter().map(|path| Ok(PartitionKeyPath::parse(path.as_str().ok_or_else(wrong)?)?));
        parsed.push(paths.collect::<Result<Vec<_>, DefinitionError>>()?);
    }
    Ok(parsed)
}

fn parse_computed(json: &Map<String, Value>) -> Result<Arc<[ComputedProperty]>, DefinitionError> {
    let refuse = |what: String| Err(DefinitionError::ComputedProperty(what));
    let list = match json.get("computedProperties") {
        None | Some(Value::Null) => return Ok(Arc::default()),
        Some(Value::Array(list)) => list,
        Some(_) => return refuse("computedProperties is not a list".to_owned()),
    };
    if list.len() > COMPUTED_PROPERTIES_MAX {
        return refuse(format!("there are more than {COMPUTED_PROPERTIES_MAX}"));
    }
    let mut parsed: Vec<ComputedProperty> = Vec::with_capacity(list.len());
    for one in list {
        let text = |field: &str| one.get(field).and_then(Value::as_str);
        let (Some(name), Some(query)) = (text("name"), text("query")) else {
            return refuse("one has no name or no query".to_owned());
        };
        if name.is_empty() || SYSTEM_NAMES.contains(&name) {
            return refuse(format!("the name {name:?} is not free"));
        }
        if parsed.iter().any(|known| known.name() == name) {
            return refuse(format!("the name {name:?} is there twice"));
        }
        match ComputedProperty::parse(name, query) {
            Ok(property) => parsed.push(property),
            Err(error) => return refuse(format!("{name}: {error}")),
        }
    }
    Ok(parsed.into())
}

fn parse_retention(json: &Map<String, Value>) -> Result<Option<Duration>, DefinitionError> {
    let minutes = json.get("changeFeedPolicy").and_then(|policy| policy.get("retentionDuration"));
    match minutes {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let minutes =
                value.as_u64().filter(|minutes| *minutes <= 525_600).ok_or_else(|| {
                    let what = "retentionDuration is not a number of minutes up to 525600";
                    DefinitionError::Malformed(what.to_owned())
                })?;
            Ok(Some(Duration::from_secs(minutes * 60)))
        }
    }
}

/// The definition of a container with everything derived from it that reads and writes need.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) definition: ContainerDefinition,
    /// Paths whose values are extracted from bodies: those of the partition key, then those of the unique
    /// keys.
    pub(crate) wanted: Wanted,
    /// Paths that a patch must not change.
    pub(crate) protected: Vec<Vec<String>>,
    pub(crate) indexing: IndexingPolicy,
}

impl Settings {
    pub(crate) fn new(definition: ContainerDefinition) -> Settings {
        let key_paths = definition.partition_key.paths.iter();
        let unique_paths = definition.unique_keys.iter().flatten();
        let paths: Vec<Vec<String>> =
            key_paths.clone().chain(unique_paths).map(|path| path.segments().to_vec()).collect();
        let protected = key_paths.map(|path| path.segments().to_vec()).collect();
        let wanted = Wanted::new(&paths);
        let indexing = IndexingPolicy::of(definition.json.get("indexingPolicy"));
        Settings { wanted, protected, indexing, definition }
    }

    /// The second at which an item expires, given the second it was written and its own `ttl`.
    pub(crate) fn expires_at(&self, written: u64, ttl: i32) -> Option<u64> {
        let default = self.definition.default_ttl?;
        let seconds = if ttl == 0 { default } else { ttl };
        u64::try_from(seconds).ok().map(|seconds| written + seconds)
    }

    pub(crate) fn is_expired(&self, written: u64, ttl: i32, now: Timestamp) -> bool {
        self.expires_at(written, ttl).is_some_and(|second| second <= now.as_seconds())
    }

    pub(crate) fn has_unique_keys(&self) -> bool {
        !self.definition.unique_keys.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_come_back_unchanged() {
        let json = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"anything":{"new":[1,2]},"defaultTtl":-1,"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b"]}]},"changeFeedPolicy":{"retentionDuration":5}}"#;
        let definition = ContainerDefinition::from_json(json).unwrap();
        let given: Value = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&definition.to_json()).unwrap(), given);
        assert_eq!(definition.default_ttl(), Some(-1));
        assert_eq!(definition.unique_keys()[0].len(), 2);
        assert_eq!(definition.all_versions_retention(), Some(Duration::from_secs(300)));
    }

    #[test]
    fn bad_definitions_are_refused_with_their_own_error() {
        let cases = [
            ("[]", "not a JSON object"),
            ("{", "not valid"),
            (r#"{"partitionKey":{"paths":["/p"]}}"#, "id is missing"),
            (r#"{"id":"c"}"#, "partitionKey is missing"),
            (r#"{"id":"a/b","partitionKey":{"paths":["/p"]}}"#, "remove every"),
            (r#"{"id":"c","partitionKey":{"paths":["/p"]},"defaultTtl":0}"#, "defaultTtl is 0"),
            (r#"{"id":"c","partitionKey":{"paths":["/p"]},"defaultTtl":-2}"#, "defaultTtl is -2"),
            (
                r#"{"id":"c","partitionKey":{"paths":["/p"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":[]}]}}"#,
                "at most 10 unique keys",
            ),
        ];
        for (json, expected) in cases {
            let error = ContainerDefinition::from_json(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
        for (computed, expected) in [
            (r#"{"name":"a","query":"SELECT VALUE 1 FROM c"}"#, "is not a list"),
            (r#"[{"name":"a"}]"#, "no query"),
            (r#"[{"name":"_ts","query":"SELECT VALUE 1 FROM c"}]"#, "not free"),
            (r#"[{"name":"a","query":"SELECT c.a FROM c"}]"#, "SELECT VALUE"),
            (r#"[{"name":"a","query":"SELECT VALUE COUNT(1) FROM c"}]"#, "SELECT VALUE"),
        ] {
            let json = format!(
                r#"{{"id":"c","partitionKey":{{"paths":["/p"]}},"computedProperties":{computed}}}"#
            );
            let stored = ContainerDefinition::from_json(&json);
            let error = stored.expect("what is stored stays readable").checked().unwrap_err();
            let error = error.to_string();
            assert!(error.contains(expected), "{json}: {error}");
        }
        let zero = ContainerDefinition::new("c", "/p").unwrap().with_default_ttl(0);
        assert!(zero.checked().is_err());
    }

    #[test]
    fn time_to_live() {
        let check = |default: Option<i32>, own: i32, expected: Option<u64>| {
            let mut definition = ContainerDefinition::new("c", "/p").unwrap();
            if let Some(default) = default {
                definition = definition.with_default_ttl(default);
            }
            assert_eq!(
                Settings::new(definition).expires_at(100, own),
                expected,
                "{default:?} {own}"
            );
        };
        check(None, 0, None);
        check(None, 5, None);
        check(Some(-1), 0, None);
        check(Some(-1), 5, Some(105));
        check(Some(7), 0, Some(107));
        check(Some(7), 5, Some(105));
        check(Some(7), -1, None);
    }
}
