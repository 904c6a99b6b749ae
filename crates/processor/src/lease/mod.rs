//! A lease: the owner of a key range and the position up to which it has been handled.
//!
//! ```text
//! document  the JSON object; keeps unknown properties
//! flavour   the document formats: .NET v2, .NET v3 (also ours), two of Java
//! java      the token that holds the position in one of Java's formats
//! ownership transitions from one version of a lease to the next
//! ```
//!
//! Pure: never uses a store, a clock or randomness.

mod document;
mod flavour;
mod java;
mod ownership;

pub use document::{BadDocument, Document};
pub use flavour::Flavour;
pub(crate) use flavour::token_of;
pub use ownership::{Claim, HostId, Standing};

use crate::position::Position;
use headwater_model::{Epk, FeedMode, KeyRange, Timestamp};
use std::fmt;
use std::str::FromStr;

/// The address of a document in the lease container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentKey {
    /// Its id.
    pub id: String,
    /// The value of its property `partitionKey`, if the container is partitioned by it.
    pub partition: Option<String>,
}

/// Where processing of a lease begins while it has no position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest change (`StartFromBeginning`).
    Beginning,
    /// With the next change from now on; the default of the .NET and Java libraries.
    Now,
    /// With the first change after this moment (`StartTime`).
    Time(Timestamp),
    /// After this position, in every range (`RequestContinuation`). Useful for a single range only.
    Position(Position),
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Start::Beginning => f.write_str("beginning"),
            Start::Now => f.write_str("now"),
            Start::Time(time) => write!(f, "time:{}", time.as_millis()),
            Start::Position(position) => write!(f, "cont:{position}"),
        }
    }
}

impl FromStr for Start {
    type Err = BadDocument;

    fn from_str(text: &str) -> Result<Start, BadDocument> {
        let bad = || BadDocument(format!("a start of {text:?}"));
        match text.split_once(':') {
            None if text == "beginning" => Ok(Start::Beginning),
            None if text == "now" => Ok(Start::Now),
            Some(("time", millis)) => {
                let millis = millis.parse().map_err(|_| bad())?;
                Ok(Start::Time(Timestamp::from_millis(millis)))
            }
            Some(("cont", token)) => Position::new(token).map(Start::Position).ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

/// Whether hosts may process a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Hosts may acquire and process it.
    #[default]
    Running,
    /// No host processes it until it is resumed.
    Paused,
    /// No host processes it until an operator has examined the failure and resumed it.
    Halted,
    /// Over: other leases cover its range. The document stays as a tombstone, so that a late host does not
    /// create the lease again.
    Retired,
}

impl LeaseState {
    /// The stored word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseState::Running => "running",
            LeaseState::Paused => "paused",
            LeaseState::Halted => "halted",
            LeaseState::Retired => "retired",
        }
    }

    fn parse(text: &str) -> LeaseState {
        match text {
            "paused" => LeaseState::Paused,
            "halted" => LeaseState::Halted,
            "retired" => LeaseState::Retired,
            _ => LeaseState::Running,
        }
    }
}

/// Properties that the .NET and Java libraries do not have. Any of them may be lost when one of those
/// rewrites the lease; the protocol stays safe without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// The session (run) of the owner.
    pub session: Option<String>,
    /// Grows by one with every acquisition.
    pub epoch: u64,
    /// Grows by one with every write of an owner; identifies the owner's own writes.
    pub sequence: u64,
    /// Where to begin while there is no position.
    pub start: Option<Start>,
    /// The lease it was split from.
    pub parent: Option<String>,
    /// The host that should acquire it next: `name/session`.
    pub reserved_for: Option<String>,
    /// How often it was acquired from a host that vanished at the same position.
    pub attempts: u32,
    /// The position of those attempts.
    pub attempts_at: Option<String>,
    /// Approximate bytes per second.
    pub rate: u64,
    /// Whether hosts may process it.
    pub state: LeaseState,
    /// Set when it is retired: the keys between its parts, until leases for all parts exist.
    pub cuts: Vec<Epk>,
    /// The generation of the unit's control document that its position belongs to.
    pub generation: u64,
}

/// One lease.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The address of its document.
    pub key: DocumentKey,
    /// Its name in the .NET and Java formats: a range id, or `min-max`.
    pub token: String,
    /// Its key range; older formats do not store it.
    pub range: Option<KeyRange>,
    /// The feed mode of its position; older formats do not store it.
    pub mode: Option<FeedMode>,
    /// The name of the host that processes it.
    pub owner: Option<String>,
    /// Everything up to this position has been handled.
    pub position: Option<Position>,
    /// Properties that the .NET and Java libraries do not have.
    pub extra: Extra,
    flavour: Flavour,
    document: Document,
}

impl Lease {
    /// Returns the document format.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Whether hosts of .NET and Java can work on it: its token is the id of a range. Native leases have the
    /// .NET form too, with the hashes of a range as the token.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flavour != Flavour::DotNetV3 || self.token.parse::<u64>().is_ok()
    }

    /// Whether hosts may acquire and process it.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        self.extra.state == LeaseState::Running
    }

    /// Whether it is over for good.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.extra.state == LeaseState::Retired
    }

    /// Copies the `properties` of the parent, as the .NET and Java libraries do on a split.
    pub(crate) fn copy_properties(&mut self, parent: &Lease) {
        if let Some(properties) = parent.document.get::<Document>("properties") {
            self.document.set("properties", &properties);
        }
    }

    /// When it was last written, by the writer's clock.
    #[must_use]
    pub fn timestamp(&self) -> Option<String> {
        self.document.get("timestamp")
    }
}

/// Compares meaning, not bytes.
impl PartialEq for Lease {
    fn eq(&self, other: &Lease) -> bool {
        self.key == other.key
            && self.token == other.token
            && self.range == other.range
            && self.mode == other.mode
            && self.owner == other.owner
            && self.position == other.position
            && self.extra == other.extra
            && self.flavour == other.flavour
    }
}
