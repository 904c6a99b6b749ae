//! Completes the indexing policy of a container with the service's defaults.
//!
//! Clients read the policy back and compare it with the service's form: the mode in lower case, lists of
//! included and of excluded paths, `_etag` among the latter, and no index kinds, which the service
//! removed years ago.

use serde_json::{Map, Value, json};

const ETAG_PATH: &str = "/\"_etag\"/?";

/// Fills in the missing parts of an indexing policy as the service does.
pub fn complete_indexing_policy(policy: &mut Map<String, Value>) {
    let mode = policy.get("indexingMode").and_then(Value::as_str).unwrap_or("consistent");
    let mode = mode.to_lowercase();
    let is_none = mode == "none";
    policy.insert("indexingMode".to_owned(), json!(mode));
    // The service ignores the value sent: every indexed container is indexed automatically.
    policy.insert("automatic".to_owned(), json!(!is_none));
    let (included, excluded) = if is_none {
        (json!([]), json!([]))
    } else {
        (json!([{ "path": "/*" }]), json!([{ "path": ETAG_PATH }]))
    };
    let excludes_all = has_path(policy.get("excludedPaths"), "/*");
    let included = if excludes_all { json!([]) } else { included };
    fill(policy, "includedPaths", included);
    fill(policy, "excludedPaths", excluded);
    if let Some(Value::Array(paths)) = policy.get_mut("includedPaths") {
        for path in paths.iter_mut().filter_map(Value::as_object_mut) {
            path.remove("indexes");
        }
    }
    if let (false, Some(Value::Array(paths))) = (is_none, policy.get_mut("excludedPaths"))
        && !paths.iter().any(|path| path["path"] == ETAG_PATH)
    {
        paths.push(json!({ "path": ETAG_PATH }));
    }
}

fn fill(policy: &mut Map<String, Value>, name: &str, default: Value) {
    let is_missing = match policy.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty() && name == "includedPaths",
        Some(_) => false,
    };
    if is_missing {
        policy.insert(name.to_owned(), default);
    }
}

fn has_path(list: Option<&Value>, path: &str) -> bool {
    let list = list.and_then(Value::as_array);
    list.is_some_and(|list| list.iter().any(|one| one["path"] == path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: Value, expected: Value) {
        let Value::Object(mut policy) = given else { panic!("a policy is an object") };
        complete_indexing_policy(&mut policy);
        assert_eq!(Value::Object(policy), expected);
    }

    #[test]
    fn a_policy_is_completed_as_the_service_does() {
        let etag = json!({ "path": ETAG_PATH });
        let default = json!({
            "indexingMode": "consistent", "automatic": true,
            "includedPaths": [{ "path": "/*" }], "excludedPaths": [etag],
        });
        check(json!({}), default.clone());
        check(json!({ "indexingMode": "Consistent", "automatic": true }), default.clone());
        check(json!({ "indexingMode": "consistent", "automatic": false }), default.clone());
        let hash = json!([{ "kind": "Hash", "dataType": "String" }]);
        check(json!({ "includedPaths": [{ "path": "/*", "indexes": hash }] }), default);
        check(
            json!({ "indexingMode": "none" }),
            json!({
                "indexingMode": "none", "automatic": false,
                "includedPaths": [], "excludedPaths": [],
            }),
        );
        check(
            json!({ "includedPaths": [{ "path": "/a/?" }], "excludedPaths": [{ "path": "/*" }] }),
            json!({
                "indexingMode": "consistent", "automatic": true,
                "includedPaths": [{ "path": "/a/?" }],
                "excludedPaths": [{ "path": "/*" }, etag],
            }),
        );
        check(
            json!({ "excludedPaths": [{ "path": "/*" }], "compositeIndexes": [[]] }),
            json!({
                "indexingMode": "consistent", "automatic": true, "compositeIndexes": [[]],
                "includedPaths": [], "excludedPaths": [{ "path": "/*" }, etag],
            }),
        );
    }
}
