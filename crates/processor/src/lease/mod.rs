//! A lease: who works on a range, and how far it has been handled.
//!
//! ```text
//! document  the JSON object, property by property, unknown ones kept
//! flavour   which library's form it has: .NET v2, .NET v3, two of Java, ours
//! java      the token one of Java's forms hides its position in
//! ownership what may be done to a lease, as functions from one lease to the next
//! ```
//!
//! Nothing here reads or writes a store, a clock or a random number.

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

/// Where a document of the lease container is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DocumentKey {
    /// Its id.
    pub id: String,
    /// The value of its property `partitionKey`, where the container is partitioned by that.
    pub partition: Option<String>,
}

/// Where a lease begins when it has no position yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the oldest change there is (`StartFromBeginning`).
    Beginning,
    /// With the next change from now on; the default of the originals.
    Now,
    /// With the first change after this moment (`StartTime`).
    Time(Timestamp),
    /// Behind this position, in every range (`RequestContinuation`). Of use for one range only.
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

/// Whether anybody may work on a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// Yes.
    #[default]
    Running,
    /// Not until it is resumed.
    Paused,
    /// Not until somebody has looked at why it failed.
    Halted,
    /// Never again: others cover its range. It stays, so that nobody who is late makes it anew.
    Retired,
}

impl LeaseState {
    /// The word that is stored.
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

/// What we know beyond the originals. Any of it may vanish when one of them rewrites the lease, and
/// the protocol stays safe without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// Which run of the owner.
    pub session: Option<String>,
    /// Grows by one with every acquisition.
    pub epoch: u64,
    /// Grows by one with every write of an owner; tells one's own write from another.
    pub sequence: u64,
    /// Where to begin while there is no position.
    pub start: Option<Start>,
    /// The lease it was split from.
    pub parent: Option<String>,
    /// Who should take it next: `name/session`.
    pub reserved_for: Option<String>,
    /// How often it was taken from a host that vanished, at one and the same position.
    pub attempts: u32,
    /// The position those attempts are about.
    pub attempts_at: Option<String>,
    /// Bytes per second, roughly.
    pub rate: u64,
    /// Whether anybody may work on it.
    pub state: LeaseState,
    /// The keys at which it was cut when it was retired, until leases of all its parts are certain to be there.
    pub cuts: Vec<Epk>,
    /// The generation of the unit's control document its position belongs to.
    pub generation: u64,
}

/// One lease.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Where its document is.
    pub key: DocumentKey,
    /// What the originals call it: the id of a range, or `min-max`.
    pub token: String,
    /// The keys it is about; older leases do not say.
    pub range: Option<KeyRange>,
    /// Which feed its position belongs to; older leases do not say.
    pub mode: Option<FeedMode>,
    /// Who works on it.
    pub owner: Option<String>,
    /// Everything up to here has been handled.
    pub position: Option<Position>,
    /// What we know beyond the originals.
    pub extra: Extra,
    flavour: Flavour,
    document: Document,
}

impl Lease {
    /// Which library's form it has.
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

    /// Whether somebody may work on it.
    #[must_use]
    pub fn is_runnable(&self) -> bool {
        self.extra.state == LeaseState::Running
    }

    /// Whether nobody will ever work on it again.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.extra.state == LeaseState::Retired
    }

    /// Takes over what users keep in a lease's properties, as the originals do when they split one.
    pub(crate) fn copy_properties(&mut self, parent: &Lease) {
        if let Some(properties) = parent.document.get::<Document>("properties") {
            self.document.set("properties", &properties);
        }
    }

    /// When it was last written, by the clock of who wrote it.
    #[must_use]
    pub fn timestamp(&self) -> Option<String> {
        self.document.get("timestamp")
    }
}

/// Two leases say the same, whatever their bytes.
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
