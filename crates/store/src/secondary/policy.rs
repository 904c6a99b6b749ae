//! The indexing policy of a container: decides which paths may be indexed.
//!
//! `includedPaths` and `excludedPaths` list patterns: `/*`, `/address/*`, `/tags/[]/?`. Of the patterns that match a
//! path, the most precise one decides. A container without a policy includes all paths. An order by several paths
//! may be indexed if each of them may be, or if `compositeIndexes` lists them together.

use super::Indexed;
use headwater_query::{IndexPath, PathStep};
use serde_json::Value;

/// A parsed indexing policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexingPolicy {
    /// Whether indexing is switched off (`indexingMode: none`).
    none: bool,
    patterns: Vec<Pattern>,
    /// Lists of paths that may be indexed together, even if a single path is excluded.
    composites: Vec<Vec<IndexPath>>,
}

#[derive(Clone, Debug)]
struct Pattern {
    steps: Vec<PathStep>,
    /// Whether the pattern ends with `/?`: it matches the value at the path, not the values below it.
    exact: bool,
    included: bool,
}

impl IndexingPolicy {
    pub(crate) fn of(policy: Option<&Value>) -> IndexingPolicy {
        let Some(policy) = policy else { return IndexingPolicy::default() };
        let mode = policy.get("indexingMode").and_then(Value::as_str).unwrap_or("consistent");
        let mut patterns = Vec::new();
        for (list, included) in [("includedPaths", true), ("excludedPaths", false)] {
            let listed = policy.get(list).and_then(Value::as_array).into_iter().flatten();
            let texts = listed.filter_map(|entry| entry.get("path").and_then(Value::as_str));
            patterns.extend(texts.filter_map(|text| Pattern::parse(text, included)));
        }
        let none = mode.eq_ignore_ascii_case("none");
        IndexingPolicy { none, patterns, composites: composites_of(policy) }
    }

    /// Whether the policy allows an index.
    pub(crate) fn allows(&self, indexed: &Indexed) -> bool {
        match indexed {
            Indexed::Values(path) => self.includes(path),
            // The index of creation order stores no values, so no path applies to it.
            Indexed::Order(order) if order.is_empty() => !self.none,
            Indexed::Order(order) => {
                let is_listed = |paths: &Vec<IndexPath>| {
                    order.len() == paths.len() && order.iter().all(|one| paths.contains(&one.path))
                };
                let is_composite = !self.none && self.composites.iter().any(is_listed);
                is_composite || order.iter().all(|one| self.includes(&one.path))
            }
        }
    }

    /// Whether values at a path may be indexed.
    pub(crate) fn includes(&self, path: &IndexPath) -> bool {
        if self.none {
            return false;
        }
        // Cosmos DB always indexes these two, except in mode `none`.
        if let [PathStep::Name(name)] = &path.0[..]
            && (name == "id" || name == "_ts")
        {
            return true;
        }
        let fitting = self.patterns.iter().filter(|pattern| pattern.fits(path));
        // Of two equally precise patterns, the one that excludes decides.
        let decisive = fitting.max_by_key(|one| (one.steps.len(), one.exact, !one.included));
        decisive.map_or(self.patterns.is_empty(), |pattern| pattern.included)
    }
}

/// The lists of paths in `compositeIndexes`. Directions are ignored, since the query decides them.
fn composites_of(policy: &Value) -> Vec<Vec<IndexPath>> {
    let lists = policy.get("compositeIndexes").and_then(Value::as_array).into_iter().flatten();
    let paths = |list: &Value| -> Option<Vec<IndexPath>> {
        let entries = list.as_array()?.iter();
        let texts = entries.map(|entry| entry.get("path").and_then(Value::as_str));
        texts.map(|text| Some(IndexPath(Pattern::parse(text?, true)?.steps))).collect()
    };
    lists.filter_map(paths).collect()
}

impl Pattern {
    fn parse(text: &str, included: bool) -> Option<Pattern> {
        let (path, exact) = match (text.strip_suffix("/?"), text.strip_suffix("/*")) {
            (Some(path), _) => (path, true),
            (None, Some(path)) => (path, false),
            (None, None) => (text, true),
        };
        let steps = path.split('/').skip(1).map(|segment| match segment {
            "[]" => PathStep::Element,
            name => {
                let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
                PathStep::Name(quoted.unwrap_or(name).to_owned())
            }
        });
        (path.is_empty() || path.starts_with('/')).then(|| Pattern {
            steps: steps.collect(),
            exact,
            included,
        })
    }

    fn fits(&self, path: &IndexPath) -> bool {
        if self.exact { path.0 == self.steps } else { path.0.starts_with(&self.steps) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_query::OrderPath;
    use serde_json::json;

    fn path(text: &str) -> IndexPath {
        let step = |segment: &str| match segment {
            "[]" => PathStep::Element,
            name => PathStep::Name(name.to_owned()),
        };
        IndexPath(text.split('/').skip(1).map(step).collect())
    }

    #[test]
    fn the_most_precise_pattern_decides() {
        let policy = json!({
            "indexingMode": "consistent",
            "includedPaths": [{"path": "/*"}, {"path": "/secret/open/?"}, {"path": "/t/[]/?"}],
            "excludedPaths": [{"path": "/secret/*"}, {"path": "/\"_etag\"/?"}, {"path": "/t/*"}],
        });
        let policy = IndexingPolicy::of(Some(&policy));
        for (text, expected) in [
            ("/a", true),
            ("/a/b/c", true),
            ("/secret", false),
            ("/secret/x", false),
            ("/secret/open", true),
            ("/secret/open/x", false),
            ("/_etag", false),
            ("/t/[]", true),
            ("/t/[]/x", false),
            ("/id", true),
        ] {
            assert_eq!(policy.includes(&path(text)), expected, "{text}");
        }
        let only = json!({"includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/*"}]});
        let only = IndexingPolicy::of(Some(&only));
        assert!(only.includes(&path("/a")) && !only.includes(&path("/b")));
        let none = IndexingPolicy::of(Some(&json!({"indexingMode": "none"})));
        assert!(!none.includes(&path("/a")) && !none.includes(&path("/id")));
        let creation = Indexed::Order(Vec::new());
        assert!(only.allows(&creation) && !none.allows(&creation));
        assert!(IndexingPolicy::of(None).includes(&path("/a")));
    }
    #[test]
    fn an_order_may_be_indexed_if_its_paths_may_be_or_are_listed_together() {
        let policy = json!({
            "includedPaths": [{"path": "/a/?"}, {"path": "/b/?"}],
            "excludedPaths": [{"path": "/*"}],
            "compositeIndexes": [[{"path": "/x", "order": "ascending"}, {"path": "/y"}]],
        });
        let policy = IndexingPolicy::of(Some(&policy));
        for (paths, expected) in [
            (&["/a"][..], true),
            (&["/a", "/b"], true),
            (&["/x", "/y"], true),
            (&["/y", "/x"], true),
            (&["/x"], false),
            (&["/a", "/x"], false),
        ] {
            let order = paths.iter().map(|text| OrderPath { path: path(text), descending: true });
            assert_eq!(policy.allows(&Indexed::Order(order.collect())), expected, "{paths:?}");
        }
    }
}
