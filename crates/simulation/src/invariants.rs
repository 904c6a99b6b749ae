//! The named invariants that the simulation checks. A promise to users is one or more of these.
//!
//! The predicates on feed pages are in [`headwater_store::invariants`], where the store asserts them
//! itself. Each invariant is known to be able to fail: a sabotage in [`crate::sabotage`] breaks it, and a
//! test checks that.

use std::fmt;

/// Something that must be true of every history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Acknowledged writes survive a crash, a close, a split and a compaction.
    NothingAcknowledgedIsLost,
    /// With durability `os` a power cut leaves a prefix of each log: everything up to an LSN, which is not
    /// below the end at which the log was last opened, and nothing after it.
    APowerCutLeavesAPrefix,
    /// A batch without an answer was applied wholly or not at all.
    NothingHappensHalf,
    /// A write that was refused leaves no trace.
    NothingRefusedHappens,
    /// The answer of a write (created, replaced, not found, mismatch) was true at some moment while it
    /// ran.
    AnswersAreTrue,
    /// A read shows the newest acknowledged version, or a newer one whose write is in progress.
    ReadsShowTheNewestVersion,
    /// An etag always names the same content, so no LSN is assigned twice.
    AnEtagNamesOneContent,
    /// Changes on a page come in the order of their LSNs and after the reader's position.
    APageIsInOrder,
    /// A latest-version page has no item twice.
    APageHasNoItemTwice,
    /// No transaction is on two pages.
    NoTransactionIsCut,
    /// A position moves forward, and not beyond what it has delivered.
    PositionsMoveForward,
    /// A position stays valid across splits, merges, compactions and restarts.
    PositionsStayValid,
    /// A position above the newest LSN is refused.
    APositionAheadIsRefused,
    /// No reader receives the same version twice.
    NothingIsSeenTwice,
    /// A reader at the end has received every live item's newest version.
    ReadersMissNothing,
    /// A reader that starts late receives exactly the live items, each once.
    ALateReaderSeesTheLiveSet,
    /// A feed of all versions has no gap, and every version is linked to the previous one.
    AllVersionsAreComplete,
    /// A feed of all versions is refused only to a reader whose position is older than the retention.
    AllVersionsAreKept,
    /// Point reads, scans and the feed agree when no call is in progress.
    ViewsAgree,
    /// An item is invisible from the second of its expiry on, and does not reappear.
    TheExpiredIsInvisible,
    /// No two items of a partition key have the same unique key.
    UniqueKeysHold,
    /// After a failed sync a partition accepts no write until it is reopened.
    AFailedSyncRefusesWrites,
    /// Ranges cover all keys without a gap, and an id always means the same range.
    RangesCoverEverything,
    /// The store opens after every crash.
    TheStoreOpens,
    /// No call fails without an injected fault.
    NothingFailsWithoutAFault,
    /// Every call completes.
    EveryCallEnds,
}

impl Invariant {
    /// Every invariant.
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

/// A violated invariant, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// The evidence, as text.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// The result of a check.
pub type Checked = Result<(), Violation>;

/// Returns `Ok` if `holds`, otherwise a violation with the text of `how`.
pub fn require(holds: bool, invariant: Invariant, how: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation { invariant, what: how() }) }
}

/// Returns a violation of the invariant.
pub fn broken<T>(invariant: Invariant, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { invariant, what: what.into() })
}
