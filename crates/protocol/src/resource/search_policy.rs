//! Validates the vector and full-text policies of a container.
//!
//! Three parts of a definition must agree: the vectors (`vectorEmbeddingPolicy`), the texts and their
//! languages (`fullTextPolicy`), and the indexes over both (`indexingPolicy`). The service refuses
//! inconsistent ones when the container is created, with messages that clients search for. The checks and
//! messages here match it. Nothing here builds an index or reads an item.

use serde_json::{Map, Value};
use std::collections::HashSet;

const DATA_TYPES: [&str; 4] = ["float32", "float16", "int8", "uint8"];
const DISTANCES: [&str; 3] = ["euclidean", "cosine", "dotproduct"];
const INDEX_TYPES: [&str; 3] = ["flat", "quantizedFlat", "diskANN"];
const LANGUAGE: &str = "en-US";
const DIMENSIONS_MAX: i64 = 4096;
const QUANTIZATION_BYTES_MAX: i64 = 512;
const SEARCH_LIST: std::ops::RangeInclusive<i64> = 25..=500;
const SHARD_PATHS_MAX: usize = 1;

type Definition = Map<String, Value>;

/// Why the policies of a container are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPolicy(pub(super) String);

fn refuse(message: impl Into<String>) -> Result<(), BadPolicy> {
    Err(BadPolicy(message.into()))
}

/// Validates the vector and full-text policies of a definition; `before` is the definition it replaces.
///
/// # Errors
/// When a part is not allowed, contradicts another part, or must not change.
pub fn check_search_policies(
    definition: &Definition,
    before: Option<&Definition>,
) -> Result<(), BadPolicy> {
    let embeddings = list(definition, "vectorEmbeddingPolicy", "vectorEmbeddings")?;
    let vectors = list(definition, "indexingPolicy", "vectorIndexes")?;
    check_embeddings(embeddings)?;
    check_vector_indexes(vectors, embeddings)?;
    if let Some(before) = before {
        let known = list(before, "vectorEmbeddingPolicy", "vectorEmbeddings").unwrap_or_default();
        check_unchanged(embeddings, known, "embedding policy")?;
        let known = list(before, "indexingPolicy", "vectorIndexes").unwrap_or_default();
        check_unchanged(vectors, known, "vector indexing policy")?;
    }
    let texts = list(definition, "fullTextPolicy", "fullTextPaths")?;
    check_texts(definition, texts)?;
    check_text_indexes(list(definition, "indexingPolicy", "fullTextIndexes")?, texts)
}

/// Returns a list inside a policy, or an empty one if it is missing.
pub(super) fn list<'d>(
    definition: &'d Definition,
    policy: &str,
    name: &str,
) -> Result<&'d [Value], BadPolicy> {
    match definition.get(policy).and_then(|policy| policy.get(name)) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(BadPolicy(format!(
            "One of the specified inputs is invalid: {name} of the {policy} is not a list."
        ))),
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn check_embeddings(embeddings: &[Value]) -> Result<(), BadPolicy> {
    let mut paths = HashSet::new();
    for embedding in embeddings {
        let path = text(embedding, "path");
        if !path.starts_with('/') {
            return refuse(format!("The Vector Embedding Policy has an invalid Path:{path}."));
        }
        if !paths.insert(path) {
            return refuse(format!("Duplicate Path :{path} found in Vector Embedding Policy."));
        }
        let kind = text(embedding, "dataType");
        if !is_one_of(kind, &DATA_TYPES) {
            return refuse(format!("The Vector Embedding Policy has an invalid DataType:{kind}."));
        }
        let distance = text(embedding, "distanceFunction");
        if !is_one_of(distance, &DISTANCES) {
            return refuse(format!(
                "The Vector Embedding Policy has an invalid DistanceFunction:{distance}."
            ));
        }
        check_dimensions(embedding.get("dimensions").and_then(Value::as_i64).unwrap_or(0))?;
    }
    Ok(())
}

fn check_dimensions(dimensions: i64) -> Result<(), BadPolicy> {
    let has = format!("The Vector Embedding Policy has Dimensions:{dimensions} which is");
    match dimensions {
        ..1 => refuse(format!("{has} less than the minimum supported value 1.")),
        1..=DIMENSIONS_MAX => Ok(()),
        _ => refuse(format!("{has} more than the maximum supported value {DIMENSIONS_MAX}.")),
    }
}

fn check_vector_indexes(indexes: &[Value], embeddings: &[Value]) -> Result<(), BadPolicy> {
    let mut paths = HashSet::new();
    for index in indexes {
        let (path, kind) = (text(index, "path"), text(index, "type"));
        if !paths.insert(path) {
            return refuse(format!("Duplicate Path :{path} found in Vector Indexing Policy."));
        }
        if !is_one_of(kind, &INDEX_TYPES) {
            return refuse(format!("The Vector Indexing Policy's Index Type::{kind} is invalid."));
        }
        let Some(embedding) = embeddings.iter().find(|one| text(one, "path") == path) else {
            return refuse(format!(
                "The Vector Indexing Policy's path::{path} not matching in Embedding's path."
            ));
        };
        let dimensions = embedding.get("dimensions").and_then(Value::as_i64).unwrap_or(0);
        let bytes_max = dimensions.min(QUANTIZATION_BYTES_MAX);
        check_between(index, "quantizationByteSize", "QuantizationByteSize", 1, bytes_max)?;
        let (least, most) = (*SEARCH_LIST.start(), *SEARCH_LIST.end());
        check_between(index, "indexingSearchListSize", "IndexingSearchListSize", least, most)?;
        check_shards(index.get("vectorIndexShardKey").unwrap_or(&Value::Null))?;
    }
    Ok(())
}

fn check_between(
    index: &Value,
    name: &str,
    shown: &str,
    least: i64,
    most: i64,
) -> Result<(), BadPolicy> {
    match index.get(name) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_i64().is_some_and(|number| (least..=most).contains(&number)) => {
            Ok(())
        }
        Some(value) => refuse(format!(
            "The Vector Indexing Policy parameter {shown} value :: {value} is out of range. The \
             allowed range is between {least} and {most}."
        )),
    }
}

fn check_shards(shards: &Value) -> Result<(), BadPolicy> {
    let paths = match shards {
        Value::Null => return Ok(()),
        Value::Array(paths) => paths,
        _ => return refuse("One of the specified inputs is invalid: vectorIndexShardKey."),
    };
    if paths.len() > SHARD_PATHS_MAX {
        let count = paths.len();
        return refuse(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {count} exceeds the \
             maximum: {SHARD_PATHS_MAX}."
        ));
    }
    match paths.iter().map(|path| path.as_str().unwrap_or_default()).find(|path| !is_path(path)) {
        Some(path) => {
            refuse(format!("The Vector Indexing Policy has an invalid Shard Path: {path}."))
        }
        None => Ok(()),
    }
}

/// Checks that known paths are unchanged. Stored vectors keep their form, so paths can only be added or removed.
fn check_unchanged(now: &[Value], before: &[Value], what: &str) -> Result<(), BadPolicy> {
    let was = |one: &Value| before.iter().find(|known| text(known, "path") == text(one, "path"));
    match now.iter().any(|one| was(one).is_some_and(|known| known != one)) {
        true => refuse(format!(
            "Paths in existing {what} cannot be modified in Collection Replace. They can only be \
             added or removed."
        )),
        false => Ok(()),
    }
}

fn check_texts(definition: &Definition, texts: &[Value]) -> Result<(), BadPolicy> {
    let Some(Value::Object(policy)) = definition.get("fullTextPolicy") else { return Ok(()) };
    let default = policy.get("defaultLanguage").filter(|language| !language.is_null());
    let of_paths = texts.iter().filter_map(|path| path.get("language"));
    for language in default.into_iter().chain(of_paths).map(|one| one.as_str().unwrap_or_default())
    {
        if language != LANGUAGE {
            return refuse(format!(
                "The Full Text Policy contains an unsupported language {language}. Supported \
                 languages are: \"{LANGUAGE}\"."
            ));
        }
    }
    match texts.iter().map(|one| text(one, "path")).find(|path| !is_path(path)) {
        Some(path) => refuse(format!("The Full Text Policy contains an invalid path: {path}.")),
        None => Ok(()),
    }
}

fn check_text_indexes(indexes: &[Value], texts: &[Value]) -> Result<(), BadPolicy> {
    for path in indexes.iter().map(|index| text(index, "path")) {
        if !is_path(path) {
            return refuse(format!("The Full Text Index contains an invalid path: {path}."));
        }
        if !texts.iter().any(|one| text(one, "path") == path) {
            return refuse(format!(
                "The path of the Full Text Index {path} does not match the path specified in the \
                 Full Text Policy."
            ));
        }
    }
    Ok(())
}

fn is_one_of(name: &str, known: &[&str]) -> bool {
    known.iter().any(|one| one.eq_ignore_ascii_case(name))
}

fn is_path(path: &str) -> bool {
    path.len() > 1 && path.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn embedding(path: &str, dimensions: i64) -> Value {
        json!({ "path": path, "dataType": "float32", "dimensions": dimensions,
            "distanceFunction": "cosine" })
    }

    fn vectors(embeddings: Value, indexes: Value) -> Value {
        json!({ "vectorEmbeddingPolicy": { "vectorEmbeddings": embeddings },
            "indexingPolicy": { "vectorIndexes": indexes } })
    }

    fn texts(policy: Value, indexes: Value) -> Value {
        json!({ "fullTextPolicy": policy, "indexingPolicy": { "fullTextIndexes": indexes } })
    }

    #[track_caller]
    fn check(definition: &Value, before: Option<&Value>, expected: &str) {
        let before = before.and_then(Value::as_object);
        let checked = check_search_policies(definition.as_object().unwrap(), before);
        match checked {
            Ok(()) => assert_eq!(expected, "", "{definition}"),
            Err(error) => assert!(
                !expected.is_empty() && error.to_string().contains(expected),
                "{error} instead of {expected}: {definition}"
            ),
        }
    }

    #[test]
    fn vectors_are_of_a_kind_and_length_the_service_has() {
        check(&json!({}), None, "");
        check(&vectors(json!(null), json!(null)), None, "");
        check(&vectors(json!("x"), json!([])), None, "inputs is invalid");
        for (name, value, expected) in [
            ("dataType", json!("float33"), "an invalid DataType"),
            ("dataType", json!(null), "an invalid DataType"),
            ("distanceFunction", json!("handMeasured"), "an invalid DistanceFunction:handMeasured"),
            ("dimensions", json!(4096), ""),
            ("dimensions", json!(8000), "Dimensions:8000 which is more than the maximum supported"),
            ("dimensions", json!(-1), "The Vector Embedding Policy has Dimensions:-1"),
            ("dimensions", json!(0), "less than the minimum"),
            ("dimensions", json!(1.5), "less than the minimum"),
            ("path", json!("v"), "an invalid Path:v"),
        ] {
            let mut one = embedding("/v", 256);
            one[name] = value;
            check(&vectors(json!([one]), json!([])), None, expected);
        }
        let twice = json!([embedding("/v", 1), embedding("/v", 2)]);
        check(&vectors(twice, json!([])), None, "Duplicate Path :/v found in Vector Embedding");
    }

    #[test]
    fn an_index_of_vectors_fits_the_vectors() {
        let known = || json!([embedding("/v", 256), embedding("/w", 1000)]);
        for (index, expected) in [
            (json!({ "path": "/v", "type": "flat" }), ""),
            (json!({ "path": "/v", "type": "notFlat" }), "Index Type::notFlat is invalid"),
            (json!({ "path": "/x", "type": "flat" }), "/x not matching in Embedding's path"),
            (json!({ "path": "/v", "type": "diskANN", "quantizationByteSize": 256 }), ""),
            (
                json!({ "path": "/v", "type": "quantizedFlat", "quantizationByteSize": 0 }),
                "QuantizationByteSize value :: 0 is out of range. The allowed range is between 1",
            ),
            (
                json!({ "path": "/w", "type": "quantizedFlat", "quantizationByteSize": 513 }),
                "QuantizationByteSize value :: 513 is out of range.",
            ),
            (
                json!({ "path": "/v", "type": "diskANN", "indexingSearchListSize": 5 }),
                "IndexingSearchListSize value :: 5 is out of range. The allowed range is between \
                 25 and 500.",
            ),
            (json!({ "path": "/v", "type": "diskANN", "vectorIndexShardKey": ["/a"] }), ""),
            (
                json!({ "path": "/v", "type": "diskANN", "vectorIndexShardKey": ["a"] }),
                "an invalid Shard Path: a.",
            ),
            (
                json!({ "path": "/v", "type": "diskANN", "vectorIndexShardKey": ["/a", "/b"] }),
                "Policy: 2 exceeds the maximum: 1.",
            ),
            (
                json!({ "path": "/v", "type": "diskANN", "vectorIndexShardKey": "/a" }),
                "One of the specified inputs is invalid",
            ),
        ] {
            check(&vectors(known(), json!([index])), None, expected);
        }
        let twice = json!([{ "path": "/v", "type": "flat" }, { "path": "/v", "type": "flat" }]);
        check(&vectors(known(), twice), None, "Duplicate Path :/v found in Vector Indexing Policy");
    }

    #[test]
    fn what_a_vector_is_cannot_be_changed() {
        let flat = || json!([{ "path": "/v", "type": "flat" }]);
        let before = vectors(json!([embedding("/v", 256)]), flat());
        check(&before, Some(&before), "");
        let other = vectors(json!([embedding("/v", 300)]), flat());
        check(&other, Some(&before), "Paths in existing embedding policy cannot be modified");
        let other = vectors(
            json!([embedding("/v", 256)]),
            json!([{ "path": "/v", "type": "quantizedFlat" }]),
        );
        check(&other, Some(&before), "Paths in existing vector indexing policy cannot be modified");
        let more = vectors(json!([embedding("/v", 256), embedding("/w", 3)]), flat());
        check(&more, Some(&before), "");
        check(&more, None, "");
    }

    #[test]
    fn full_text_is_in_a_language_we_know_at_a_path() {
        let path = |path: &str, language: &str| json!([{ "path": path, "language": language }]);
        let policy = |default: &str, paths: Value| json!({ "defaultLanguage": default, "fullTextPaths": paths });
        let good = || policy("en-US", path("/a", "en-US"));
        check(&texts(good(), json!([{ "path": "/a" }])), None, "");
        check(&texts(json!(null), json!(null)), None, "");
        for (policy, indexes, expected) in [
            (policy("en-US", path("a", "en-US")), json!([]), "Policy contains an invalid path: a"),
            (policy("spa-SPA", path("/a", "en-US")), json!([]), "unsupported language spa-SPA."),
            (policy("en-US", path("/a", "")), json!([]), "an unsupported language . Supported"),
            (good(), json!([{ "path": "a" }]), "Index contains an invalid path: a"),
            (good(), json!([{ "not_path": "/a" }]), "Index contains an invalid path"),
            (good(), json!([{ "path": "/b" }]), "Full Text Index /b does not match"),
            (json!(null), json!([{ "path": "/a" }]), "Full Text Index /a does not match"),
        ] {
            check(&texts(policy, indexes), None, expected);
        }
    }
}
