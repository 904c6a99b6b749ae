//! What must be true, each with a name. A promise to users is one or more of these.
//!
//! The predicates on feed pages live in [`headwater_store::invariants`], where the store asserts them
//! itself; here is the list of everything the simulation checks. Each one has been seen to fail: a
//! sabotage in [`crate::sabotage`] turns it red, and a test says so.

use std::fmt;

/// Something that must be true of every history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// What was acknowledged is there after a crash, a close, a split, a compaction.
    NothingAcknowledgedIsLost,
    /// With durability `os` a power cut leaves a prefix of each log: everything up to an LSN, which is not
    /// below the end at which the log was last opened, and nothing behind it.
    APowerCutLeavesAPrefix,
    /// A batch whose answer never came happened wholly or not at all.
    NothingHappensHalf,
    /// A write that was refused leaves no trace.
    NothingRefusedHappens,
    /// What a write answers (created, replaced, not found, mismatch) was true at some moment while it
    /// ran.
    AnswersAreTrue,
    /// A read shows the newest acknowledged version, or a newer one that is on its way.
    ReadsShowTheNewestVersion,
    /// An etag names one content, for ever. So no LSN is given out twice.
    AnEtagNamesOneContent,
    /// Changes on a page come in the order of their LSNs and after the reader's position.
    APageIsInOrder,
    /// A latest-version page has no item twice.
    APageHasNoItemTwice,
    /// No transaction is on two pages.
    NoTransactionIsCut,
    /// A position moves forward, and not beyond what it has delivered.
    PositionsMoveForward,
    /// A position a reader was given stays good, whatever is split, merged, compacted or restarted.
    PositionsStayValid,
    /// A position above the newest LSN is refused.
    APositionAheadIsRefused,
    /// No reader is given the same version twice.
    NothingIsSeenTwice,
    /// A reader that has come to the end was given every live item's newest version.
    ReadersMissNothing,
    /// A reader that starts late is given exactly what is alive, each item once.
    ALateReaderSeesTheLiveSet,
    /// All versions come without a gap, every one linked to the one before.
    AllVersionsAreComplete,
    /// All versions are refused only to a reader who stayed away longer than they are kept.
    AllVersionsAreKept,
    /// Point read, scan and feed show the same when nothing is under way.
    ViewsAgree,
    /// From the second of its expiry on nobody sees an item, and it does not come back.
    TheExpiredIsInvisible,
    /// No two items of a partition key have the same unique key.
    UniqueKeysHold,
    /// After a failed sync a partition takes no write until it is opened again.
    AFailedSyncRefusesWrites,
    /// Ranges cover all keys without a gap, and an id means one range for ever.
    RangesCoverEverything,
    /// The store opens after every crash.
    TheStoreOpens,
    /// Nothing fails without a reason.
    NothingFailsWithoutAFault,
    /// Every call comes to an end.
    EveryCallEnds,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Invariant; 26] = [
        Invariant::NothingAcknowledgedIsLost,
        Invariant::APowerCutLeavesAPrefix,
        Invariant::NothingHappensHalf,
        Invariant::NothingRefusedHappens,
        Invariant::AnswersAreTrue,
        Invariant::ReadsShowTheNewestVersion,
        Invariant::AnEtagNamesOneContent,
        Invariant::APageIsInOrder,
        Invariant::APageHasNoItemTwice,
        Invariant::NoTransactionIsCut,
        Invariant::PositionsMoveForward,
        Invariant::PositionsStayValid,
        Invariant::APositionAheadIsRefused,
        Invariant::NothingIsSeenTwice,
        Invariant::ReadersMissNothing,
        Invariant::ALateReaderSeesTheLiveSet,
        Invariant::AllVersionsAreComplete,
        Invariant::AllVersionsAreKept,
        Invariant::ViewsAgree,
        Invariant::TheExpiredIsInvisible,
        Invariant::UniqueKeysHold,
        Invariant::AFailedSyncRefusesWrites,
        Invariant::RangesCoverEverything,
        Invariant::TheStoreOpens,
        Invariant::NothingFailsWithoutAFault,
        Invariant::EveryCallEnds,
    ];
}

/// An invariant that did not hold, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub invariant: Invariant,
    /// How it showed.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// The result of a check.
pub type Checked = Result<(), Violation>;

/// `Ok` when the invariant holds, otherwise what `how` says.
pub fn require(holds: bool, invariant: Invariant, how: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { invariant, what: how() }) }
}

/// The invariant does not hold.
pub fn broken<T>(invariant: Invariant, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { invariant, what: what.into() })
}
