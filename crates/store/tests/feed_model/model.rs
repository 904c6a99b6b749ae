//! The model: a list of all changes, which determines the expected result of every reader.

use bytes::Bytes;
use headwater_store::{ChangeKind, Continuation, Lsn, PartitionId, PartitionKey};
use serde_json::Value;
use std::collections::BTreeMap;

/// Names an item: partition key as JSON, and id.
pub(super) type Name = (String, String);

/// One change of one item.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) key: PartitionKey,
    pub(super) id: String,
    pub(super) epk: Vec<u8>,
    /// Position in the log. A delete that was compacted away before it was read gets the position from which
    /// the log is complete.
    pub(super) at: (PartitionId, Lsn, u16),
    pub(super) second: u64,
    pub(super) expires: Option<u64>,
    /// The item as sent, and the stored bytes; `None` for a delete.
    pub(super) item: Option<(Value, Bytes)>,
    pub(super) previous: Option<usize>,
    pub(super) expiry: bool,
}

impl Version {
    pub(super) fn name(&self) -> Name {
        (self.key.to_json(), self.id.clone())
    }

    pub(super) fn lsn(&self) -> Lsn {
        self.at.1
    }

    pub(super) fn kind(&self) -> ChangeKind {
        match (&self.item, self.previous) {
            (None, _) => ChangeKind::Delete,
            (Some(_), None) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Replace,
        }
    }

    pub(super) fn is_expired(&self, now: u64) -> bool {
        self.expires.is_some_and(|second| second <= now)
    }
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) versions: Vec<Version>,
    pub(super) live: BTreeMap<Name, usize>,
}

impl Model {
    pub(super) fn push(&mut self, version: Version) {
        let name = version.name();
        match version.item {
            Some(_) => self.live.insert(name, self.versions.len()),
            None => self.live.remove(&name),
        };
        self.versions.push(version);
    }

    pub(super) fn live_versions(&self) -> impl Iterator<Item = &Version> {
        self.live.values().map(|index| &self.versions[*index])
    }

    pub(super) fn live_value(&self, name: &Name) -> Option<&Value> {
        self.live.get(name).and_then(|index| Some(&self.versions[*index].item.as_ref()?.0))
    }
}

/// The position of a continuation in the range that contains a hashed key.
pub(super) fn position_of(continuation: &Continuation, epk: &[u8]) -> Option<Lsn> {
    match continuation {
        Continuation::Single(lsn) => Some(*lsn),
        Continuation::Composite { positions, .. } => {
            positions.iter().find(|part| part.range.contains(epk)).map(|part| part.after)
        }
    }
}
