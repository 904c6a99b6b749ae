//! A container's partition key definition: the properties that form an item's key, and the hash.
//!
//! Only this file decides whether a key fits a container. Constructors validate, so a definition that exists is
//! valid: one path for `Hash` and `Range`, one to three for `MultiHash`, which requires version 2. `Range` is
//! an old name; its keys are hashed like those of `Hash`.

use serde::{Deserialize, Serialize};

use super::hash::{boundary_v1, effective_partition_key};
use super::{BadPartitionKeyPath, PartitionKey, PartitionKeyPath, PartitionKeyValue};
use crate::{Epk, KeyRange};

/// The most levels a hierarchical key has.
const LEVELS_MAX: usize = 3;

/// The longest string value of a key.
const VALUE_BYTES_MAX: usize = 2048;

/// How the values of a key are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionKeyKind {
    /// One value, hashed.
    Hash,
    /// A hierarchy of values, each hashed on its own.
    MultiHash,
    /// An old kind that behaves like `Hash`.
    Range,
}

/// The hash function, chosen when the container is created and never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionKeyVersion {
    /// The 32-bit hash over the first hundred characters.
    V1,
    /// The 128-bit hash over the whole value.
    V2,
}

/// How a container's items are partitioned: paths, kind and version of the hash.
///
/// The fields are read-only; the constructors check that they fit together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
#[non_exhaustive]
pub struct PartitionKeyDefinition {
    /// The paths to the values in an item, from the top of the hierarchy downwards.
    pub paths: Vec<PartitionKeyPath>,
    /// How the values are combined.
    pub kind: PartitionKeyKind,
    /// The hash function.
    pub version: PartitionKeyVersion,
    /// Whether the container once had no partition key. Its old items have the key `[]`.
    pub system_key: bool,
}

/// Why a partition key definition is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPartitionKeyDefinition {
    /// Not the JSON of a definition.
    #[error(
        "partition key definition is not valid: {0}; send {{\"paths\":[\"/pk\"],\"kind\":\"Hash\",\"version\":2}}"
    )]
    NotJson(String),
    /// One of the paths cannot be read.
    #[error(
        "partition key is refused. The partition key component definition path '{path}' could not be \
         accepted: {problem}"
    )]
    Path {
        /// The path as sent.
        path: String,
        /// What is wrong with it. Part of the message and not the error's source, because only the message
        /// reaches a client.
        problem: BadPartitionKeyPath,
    },
    /// `Hash` and `Range` take one path.
    #[error(
        "{}partition key of kind {kind:?} has {paths} paths; give it exactly one, or use MultiHash",
        too_many(.paths, 1)
    )]
    NotOnePath {
        /// The requested kind.
        kind: PartitionKeyKind,
        /// The number of paths.
        paths: usize,
    },
    /// `MultiHash` takes one to three paths.
    #[error(
        "{}partition key of kind MultiHash has {paths} paths; give it 1 to {LEVELS_MAX}",
        too_many(.paths, LEVELS_MAX)
    )]
    LevelCount {
        /// The number of paths.
        paths: usize,
    },
    /// A path that occurs twice.
    #[error("partition key path {0} occurs twice; each level needs its own property")]
    DuplicatePath(PartitionKeyPath),
    /// A kind that does not exist.
    #[error("partition key kind {0:?} does not exist; use Hash, MultiHash or Range")]
    UnknownKind(String),
    /// A version that does not exist.
    #[error("partition key version {0} does not exist; use 2, or 1 for containers made long ago")]
    UnknownVersion(i64),
    /// `MultiHash` with version 1, which is also the default.
    #[error("partition key of kind MultiHash has version 1; set \"version\": 2")]
    MultiHashVersion,
}

/// Azure's message for too many paths, because clients match that text.
fn too_many(paths: &usize, max: usize) -> String {
    if *paths <= max {
        return String::new();
    }
    format!(
        "partition key is refused. Too many partition key paths ({paths}) specified. A maximum of {max} is \
         allowed. The "
    )
}

/// Why a partition key does not fit a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionKeyError {
    /// The number of values differs from the number of paths.
    #[error(
        "partition key has {actual} components; this container needs {expected}, one for each path"
    )]
    ComponentCount {
        /// How many paths the definition has.
        expected: usize,
        /// How many values the key has.
        actual: usize,
    },
    /// A prefix has at least one value and at most one for each path.
    #[error("partition key prefix has {actual} components; send 1 to {max} of them")]
    PrefixLength {
        /// How many paths the definition has.
        max: usize,
        /// How many values the key has.
        actual: usize,
    },
    /// A string beyond the limit.
    #[error("partition key component {index} is {bytes} bytes; use at most {VALUE_BYTES_MAX}")]
    ValueTooLong {
        /// Which component, counted from 0.
        index: usize,
        /// Its length in UTF-8.
        bytes: usize,
    },
    /// A number that JSON cannot express, so no item can hold it.
    #[error("partition key component {index} is not a finite number; use one JSON can express")]
    NotFinite {
        /// Which component, counted from 0.
        index: usize,
    },
}

impl PartitionKeyDefinition {
    /// A definition with these parts. Fails if they do not fit together.
    pub fn new(
        paths: Vec<PartitionKeyPath>,
        kind: PartitionKeyKind,
        version: PartitionKeyVersion,
    ) -> Result<PartitionKeyDefinition, BadPartitionKeyDefinition> {
        let count = paths.len();
        match kind {
            PartitionKeyKind::Hash | PartitionKeyKind::Range if count != 1 => {
                return Err(BadPartitionKeyDefinition::NotOnePath { kind, paths: count });
            }
            PartitionKeyKind::MultiHash if count == 0 || count > LEVELS_MAX => {
                return Err(BadPartitionKeyDefinition::LevelCount { paths: count });
            }
            PartitionKeyKind::MultiHash if version != PartitionKeyVersion::V2 => {
                return Err(BadPartitionKeyDefinition::MultiHashVersion);
            }
            _ => {}
        }
        for (index, path) in paths.iter().enumerate() {
            if paths[..index].iter().any(|earlier| earlier.segments() == path.segments()) {
                return Err(BadPartitionKeyDefinition::DuplicatePath(path.clone()));
            }
        }
        Ok(PartitionKeyDefinition { paths, kind, version, system_key: false })
    }

    /// The ordinary definition: one path, version 2.
    pub fn hash(path: &str) -> Result<PartitionKeyDefinition, BadPartitionKeyDefinition> {
        let paths = parse_paths([path])?;
        PartitionKeyDefinition::new(paths, PartitionKeyKind::Hash, PartitionKeyVersion::V2)
    }

    /// A hierarchical definition of one to three paths.
    pub fn multi_hash(paths: &[&str]) -> Result<PartitionKeyDefinition, BadPartitionKeyDefinition> {
        let paths = parse_paths(paths.iter().copied())?;
        PartitionKeyDefinition::new(paths, PartitionKeyKind::MultiHash, PartitionKeyVersion::V2)
    }

    /// This definition with `system_key` set: items without a key have the key `[]`.
    #[must_use]
    pub fn with_system_key(mut self) -> PartitionKeyDefinition {
        self.system_key = true;
        self
    }

    /// Parses the JSON form of Cosmos DB: `{"paths":["/pk"],"kind":"Hash","version":2}`.
    ///
    /// The default `kind` is `Hash`, the default `version` is 1.
    pub fn from_json(json: &str) -> Result<PartitionKeyDefinition, BadPartitionKeyDefinition> {
        let wire: Wire = serde_json::from_str(json)
            .map_err(|error| BadPartitionKeyDefinition::NotJson(error.to_string()))?;
        PartitionKeyDefinition::try_from(wire)
    }

    /// The effective partition key of a full key.
    pub fn epk(&self, key: &PartitionKey) -> Result<Epk, PartitionKeyError> {
        let values = key.components();
        if values.len() != self.paths.len() && !self.is_system_key(key) {
            let (expected, actual) = (self.paths.len(), values.len());
            return Err(PartitionKeyError::ComponentCount { expected, actual });
        }
        check_values(values)?;
        Ok(effective_partition_key(self.kind, self.version, values))
    }

    /// The range of all items whose key starts with these values. For a full key, a range of one key.
    pub fn prefix_range(&self, key: &PartitionKey) -> Result<KeyRange, PartitionKeyError> {
        let values = key.components();
        if values.len() == self.paths.len() || self.is_system_key(key) {
            return self.epk(key).map(|epk| KeyRange::point(&epk));
        }
        if values.is_empty() || values.len() > self.paths.len() {
            let (max, actual) = (self.paths.len(), values.len());
            return Err(PartitionKeyError::PrefixLength { max, actual });
        }
        check_values(values)?;
        let prefix = effective_partition_key(self.kind, self.version, values);
        Ok(KeyRange::starting_with(&prefix))
    }

    /// Divides the space of this definition's hashes evenly; returns at least one range.
    ///
    /// Hashes fill only a part of the key space: below `40` in version 2, between `0580` and `05C1F0` in
    /// version 1. Dividing the key space itself would leave most ranges empty.
    pub fn default_ranges(&self, partitions: u32) -> Vec<KeyRange> {
        let partitions = partitions.max(1);
        let mut ranges = Vec::with_capacity(partitions as usize);
        let mut rest = KeyRange::full();
        for index in 1..partitions {
            let boundary = self.boundary(index, partitions);
            // Boundaries strictly increase: each step is at least one hash wide.
            let Ok((range, above)) = rest.split_at(&boundary) else {
                continue;
            };
            ranges.push(range);
            rest = above;
        }
        ranges.push(rest);
        ranges
    }

    /// The key that has `index / partitions` of all hashes below it.
    ///
    /// Divides the highest hash and leaves the remainder to the last range, as Azure does. So two ranges meet
    /// at `1F…F`, not at `20…0`.
    fn boundary(&self, index: u32, partitions: u32) -> Epk {
        match (self.kind, self.version) {
            (PartitionKeyKind::MultiHash, _) | (_, PartitionKeyVersion::V2) => {
                let highest = u128::MAX >> 2;
                let each = highest / u128::from(partitions);
                Epk::from((u128::from(index) * each).to_be_bytes())
            }
            (_, PartitionKeyVersion::V1) => {
                let hash = u64::from(index) * u64::from(u32::MAX / partitions);
                boundary_v1(u32::try_from(hash).unwrap_or(u32::MAX))
            }
        }
    }

    fn is_system_key(&self, key: &PartitionKey) -> bool {
        self.system_key && key.components().is_empty()
    }
}

fn check_values(values: &[PartitionKeyValue]) -> Result<(), PartitionKeyError> {
    for (index, value) in values.iter().enumerate() {
        match value {
            PartitionKeyValue::String(text) if text.len() > VALUE_BYTES_MAX => {
                return Err(PartitionKeyError::ValueTooLong { index, bytes: text.len() });
            }
            PartitionKeyValue::Number(number) if !number.is_finite() => {
                return Err(PartitionKeyError::NotFinite { index });
            }
            _ => {}
        }
    }
    Ok(())
}

fn parse_paths<'a>(
    paths: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<PartitionKeyPath>, BadPartitionKeyDefinition> {
    let parse = |path: &str| {
        PartitionKeyPath::parse(path)
            .map_err(|problem| BadPartitionKeyDefinition::Path { path: path.to_owned(), problem })
    };
    paths.into_iter().map(parse).collect()
}

/// The JSON form, before validation.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    paths: Vec<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system_key: Option<bool>,
}

impl TryFrom<Wire> for PartitionKeyDefinition {
    type Error = BadPartitionKeyDefinition;

    fn try_from(wire: Wire) -> Result<PartitionKeyDefinition, BadPartitionKeyDefinition> {
        let kind = match wire.kind.as_deref() {
            None | Some("Hash") => PartitionKeyKind::Hash,
            Some("MultiHash") => PartitionKeyKind::MultiHash,
            Some("Range") => PartitionKeyKind::Range,
            Some(other) => return Err(BadPartitionKeyDefinition::UnknownKind(other.to_owned())),
        };
        let version = match wire.version {
            None | Some(1) => PartitionKeyVersion::V1,
            Some(2) => PartitionKeyVersion::V2,
            Some(other) => return Err(BadPartitionKeyDefinition::UnknownVersion(other)),
        };
        let paths = parse_paths(wire.paths.iter().map(String::as_str))?;
        let mut definition = PartitionKeyDefinition::new(paths, kind, version)?;
        definition.system_key = wire.system_key == Some(true);
        Ok(definition)
    }
}

impl From<PartitionKeyDefinition> for Wire {
    fn from(definition: PartitionKeyDefinition) -> Wire {
        let kind = match definition.kind {
            PartitionKeyKind::Hash => "Hash",
            PartitionKeyKind::MultiHash => "MultiHash",
            PartitionKeyKind::Range => "Range",
        };
        let version = match definition.version {
            PartitionKeyVersion::V1 => 1,
            PartitionKeyVersion::V2 => 2,
        };
        Wire {
            paths: definition.paths.iter().map(|path| path.as_str().to_owned()).collect(),
            kind: Some(kind.to_owned()),
            // Always written: a client that reads no version hashes with version 1.
            version: Some(version),
            system_key: definition.system_key.then_some(true),
        }
    }
}
