//! The activity of a lease as operators see it: stored state, owner and the unit's pause in one word.

use crate::lease::LeaseState;
use crate::unit::{LeaseInfo, Snapshot};
use std::time::Duration;

/// The default lease expiration of the .NET and Java processors. Their leases do not name the one in use.
const EXPIRATION_OF_SHARED_LEASES: Duration = Duration::from_secs(60);

/// Whether a host works on a lease, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// A host owns it.
    Running,
    /// No host owns it, or its owner no longer takes part. The next host that looks takes it.
    Ownerless,
    /// Paused, alone or with its whole processor, until it is resumed.
    Paused,
    /// Stopped for all hosts after a failure, until it is resumed.
    Halted,
}

impl Activity {
    /// One word for tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Running => "running",
            Activity::Ownerless => "ownerless",
            Activity::Paused => "paused",
            Activity::Halted => "halted",
        }
    }
}

impl Snapshot {
    /// The activity of one of its leases.
    #[must_use]
    pub fn activity(&self, info: &LeaseInfo) -> Activity {
        // Hosts of .NET and Java keep no member documents: they renew each lease instead.
        let takes_part = |owner: &str| match info.lease.is_shared() {
            true => info.age.is_none_or(|age| age <= EXPIRATION_OF_SHARED_LEASES),
            false => self.is_beating(owner),
        };
        match info.lease.extra.state {
            LeaseState::Halted => Activity::Halted,
            LeaseState::Paused => Activity::Paused,
            _ if self.control.paused => Activity::Paused,
            _ if info.lease.owner.as_deref().is_some_and(takes_part) => Activity::Running,
            _ => Activity::Ownerless,
        }
    }
}
