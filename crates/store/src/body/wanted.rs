//! The set of paths that a scan looks for, compiled once per container.
//!
//! Partition key and unique key paths form a trie that the scan walks as it enters objects. The
//! names every item is searched for (`id`, `ttl`, the system properties) are children of its root,
//! so one lookup per top-level property is enough:
//!
//! ```text
//! paths /tenant, /address/city, /address     root ─ tenant        path 0
//!                                                 ├ address       path 2
//!                                                 │   └ city      path 1
//!                                                 ├ id            role: id
//!                                                 └ _rid, …       role: system
//! ```
//!
//! A path names object properties only and never goes through an array. Matching is exact and
//! case-sensitive, against names without escapes.

use super::Limits;
use super::text;
use super::words;

/// Top-level properties that the server owns: dropped from the bodies that users send and replaced.
pub(super) const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_attachments", "_lsn"];

/// A set of paths, and the limits of the container they belong to.
#[derive(Clone, Debug)]
pub struct Wanted {
    nodes: Vec<Node>,
    paths: usize,
    limits: Limits,
}

/// Index of a node; the root is the first.
pub(super) type NodeIndex = usize;
pub(super) const ROOT: NodeIndex = 0;

/// Meaning of a property to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    #[default]
    User,
    Id,
    Ttl,
    System,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// Bloom filter over the children's names: rejects most other names.
    filter: [u64; 4],
    /// The children's hashes in ascending order. Separate from the children so that a search stays in
    /// one or two cache lines.
    hashes: Vec<u32>,
    /// Sorted by hash.
    children: Vec<Child>,
    /// Indexes of the paths that end here. More than one if a path was given twice.
    pub(super) ends: Vec<usize>,
    pub(super) role: Role,
}

#[derive(Clone, Debug)]
struct Child {
    name: Box<str>,
    node: NodeIndex,
}

impl Default for Wanted {
    /// No paths: a scan finds only `id`, `ttl` and the system properties.
    fn default() -> Wanted {
        Wanted::new::<[&str; 0], _>(&[])
    }
}

impl Wanted {
    /// Compiles paths, each a list of property names from the top level down. A scan returns its
    /// values in the same order.
    pub fn new<P, S>(paths: &[P]) -> Wanted
    where
        P: AsRef<[S]>,
        S: AsRef<str>,
    {
        let mut wanted =
            Wanted { nodes: vec![Node::default()], paths: paths.len(), limits: Limits::default() };
        let roles = [("id", Role::Id), ("ttl", Role::Ttl)];
        for (name, role) in roles.into_iter().chain(SYSTEM.map(|name| (name, Role::System))) {
            let node = wanted.child(ROOT, name);
            wanted.nodes[node].role = role;
        }
        for (index, path) in paths.iter().enumerate() {
            let mut node = ROOT;
            for name in path.as_ref() {
                node = wanted.child(node, name.as_ref());
            }
            wanted.nodes[node].ends.push(index);
        }
        wanted
    }

    /// Returns these paths with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Wanted {
        Wanted { limits, ..self }
    }

    /// The limits that a scan with these paths applies.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Number of paths.
    #[must_use]
    pub fn paths(&self) -> usize {
        self.paths
    }

    pub(super) fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(index)
    }

    /// Finds or creates the child with this name.
    fn child(&mut self, parent: NodeIndex, name: &str) -> NodeIndex {
        let hash = words::hash(name.as_bytes());
        let new = self.nodes.len();
        let node = &mut self.nodes[parent];
        if let Some(child) = node.children.iter().find(|child| *child.name == *name) {
            return child.node;
        }
        let place = node.hashes.partition_point(|&other| other < hash);
        node.hashes.insert(place, hash);
        node.children.insert(place, Child { name: name.into(), node: new });
        let (word, bit) = filter_bit(hash);
        node.filter[word] |= bit;
        self.nodes.push(Node::default());
        new
    }
}

impl Node {
    /// Whether a path continues below this node.
    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// The child that a key of a body names. `raw` is the key's bytes between the quotes.
    #[inline]
    pub(super) fn step(&self, hash: u32, raw: &[u8]) -> Option<NodeIndex> {
        let (word, bit) = filter_bit(hash);
        if self.filter[word] & bit == 0 { None } else { self.search(hash, raw) }
    }

    fn search(&self, hash: u32, raw: &[u8]) -> Option<NodeIndex> {
        let mut index = self.hashes.partition_point(|&other| other < hash);
        while self.hashes.get(index) == Some(&hash) {
            let child = self.children.get(index)?;
            if names(raw, &child.name) {
                return Some(child.node);
            }
            index += 1;
        }
        None
    }
}

/// The word of a filter and the bit in it that represent a hash.
#[inline]
fn filter_bit(hash: u32) -> (usize, u64) {
    ((hash >> 6 & 3) as usize, 1 << (hash & 63))
}

/// Whether a key, as written with its escapes, equals this name.
pub(super) fn names(raw: &[u8], name: &str) -> bool {
    raw == name.as_bytes() || (raw.contains(&b'\\') && text::unescape(raw) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(wanted: &Wanted, keys: &[&str]) -> Option<NodeIndex> {
        keys.iter().try_fold(ROOT, |node, key| {
            let hash = words::hash(text::unescape(key.as_bytes()).as_bytes());
            wanted.node(node)?.step(hash, key.as_bytes())
        })
    }

    #[test]
    fn keys_lead_to_the_paths_that_end_there() {
        let paths: &[&[&str]] =
            &[&["tenant"], &["address", "city"], &["address"], &["tenant"], &["a\"b", ""], &["id"]];
        let wanted = Wanted::new(paths);
        assert_eq!(wanted.paths(), paths.len());
        let cases: &[(&[&str], &[usize])] = &[
            (&["tenant"], &[0, 3]),
            (&["address"], &[2]),
            (&["address", "city"], &[1]),
            (&["address", r"c\u0069ty"], &[1]),
            (&[r#"a\"b"#, ""], &[4]),
            (&["id"], &[5]),
        ];
        for (keys, ends) in cases {
            let node = walk(&wanted, keys).unwrap_or_else(|| panic!("{keys:?} leads nowhere"));
            assert_eq!(wanted.nodes[node].ends, *ends, "{keys:?}");
        }
        for keys in [&["Tenant"][..], &["city"], &["tenant", "city"], &[""], &["addres"]] {
            assert_eq!(walk(&wanted, keys), None, "{keys:?}");
        }
    }

    #[test]
    fn roles_belong_to_the_top_level() {
        let wanted = Wanted::new(&[["nested", "_ts"], ["nested", "id"]]);
        let role = |keys: &[&str]| wanted.nodes[walk(&wanted, keys).unwrap()].role;
        assert_eq!((role(&["id"]), role(&["ttl"])), (Role::Id, Role::Ttl));
        for name in SYSTEM {
            assert_eq!(role(&[name]), Role::System, "{name}");
        }
        assert_eq!((role(&["nested", "_ts"]), role(&["nested", "id"])), (Role::User, Role::User));
    }

    #[test]
    fn many_paths_are_all_found() {
        let paths: Vec<[String; 1]> = (0..163).map(|number| [format!("p{number}")]).collect();
        let wanted = Wanted::new(&paths);
        for (index, [name]) in paths.iter().enumerate() {
            let node = walk(&wanted, &[name]).unwrap();
            assert_eq!(wanted.nodes[node].ends, [index], "{name}");
        }
    }

    #[test]
    fn names_of_equal_hash_are_told_apart() {
        let mut seen = std::collections::HashMap::new();
        let (one, other) = (0..500_000)
            .map(|number| format!("name{number}"))
            .find_map(|name| {
                let twin: Option<String> = seen.insert(words::hash(name.as_bytes()), name.clone());
                twin.map(|twin| (twin, name))
            })
            .expect("of half a million names two have the same 32 bits");
        let wanted = Wanted::new(&[[&one], [&other]]);
        for (index, name) in [one, other].iter().enumerate() {
            let node = walk(&wanted, &[name]).unwrap();
            assert_eq!(wanted.nodes[node].ends, [index], "{name}");
        }
    }
}
