//! Control records: why a partition takes no more writes.
//!
//! The last entry of a partition that was split or merged names its successors. If a crash comes between this
//! entry and the catalog's, the next open finishes the split or merge. Decides nothing itself.

use headwater_model::{Epk, PartitionId};
use serde::{Deserialize, Serialize};

/// The reason why a partition is sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Seal {
    /// Split in two at a hashed key.
    Split { at: Epk, low: u32, high: u32 },
    /// Merged with an adjacent partition.
    Merge { with: u32, into: u32 },
}

impl Seal {
    pub(crate) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Seal> {
        serde_json::from_slice(bytes).ok()
    }

    pub(crate) fn successors(&self) -> Vec<PartitionId> {
        match self {
            Seal::Split { low, high, .. } => vec![PartitionId::new(*low), PartitionId::new(*high)],
            Seal::Merge { into, .. } => vec![PartitionId::new(*into)],
        }
    }
}
