//! Switches that break the system on purpose, to test that the checks notice.
//!
//! A check that has never failed proves nothing. Each switch breaks one thing, in the simulated world
//! or in the reports of its readers. A test then expects a violation of the matching invariant.

use crate::invariants::Invariant;
use headwater_log::{AppendError, Entry, Group, PartitionLog, ReadError, Tail};
use headwater_model::{Continuation, FeedMode, Lsn};
use headwater_runtime::{BoxFuture, Random, Runtime};
use headwater_store::{Change, Durability, FeedPage};
use parking_lot::Mutex;
use std::sync::Arc;

/// Something broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// After a crash the end of a log is missing, and the index with it: a disk that lied about a sync.
    TheTailIsLost,
    /// After a crash the end of a log is missing, and writing continues before any read.
    TheTailIsWrittenAgain,
    /// With durability `os`, a power cut restores the index from before an earlier power cut.
    AnOldIndexComesBack,
    /// With durability `os`, positions above the newest LSN are answered with an empty page.
    PositionsAheadAreAnswered,
    /// Batches are carried out one operation at a time.
    BatchesAreNotAtomic,
    /// Some writes that were done are reported as refused.
    SuccessIsDenied,
    /// Some replaces are reported as creates.
    AnswersAreMixedUp,
    /// Some point reads show the result of an earlier read.
    ReadsAreStale,
    /// Two changes of a page swap places.
    PagesAreShuffled,
    /// A change stands on a page twice.
    PagesStutter,
    /// The last change of a transaction comes with the next page.
    TransactionsAreCut,
    /// A reader is sent back to an old position.
    PositionsGoBack,
    /// A reader is sent ahead of everything.
    PositionsGoAhead,
    /// A page does not move the position.
    PositionsStandStill,
    /// A change is missing on a page.
    ChangesAreSkipped,
    /// A change is missing for readers that start late.
    LateReadersSkip,
    /// A change is missing for readers of all versions.
    VersionsAreSkipped,
    /// Versions are compacted away although the container promises to keep them.
    VersionsAreNotKept,
    /// Scans leave an item out.
    ScansForget,
    /// Items live longer than the container promises.
    ItemsLiveLonger,
    /// The container does not have the unique key it should have.
    NoUniqueKeys,
    /// A writer continues after a failed sync.
    FailedSyncsAreIgnored,
    /// A range is missing in the list.
    ARangeIsMissing,
    /// After a crash a file is missing.
    AFileIsMissing,
    /// Some appends fail for no reason.
    AppendsFail,
    /// Some appends are never answered.
    AppendsHang,
}

impl Sabotage {
    /// Every switch, with the invariant that it must violate.
    pub const ALL: [(Sabotage, Invariant); 26] = [
        (Sabotage::TheTailIsLost, Invariant::NothingAcknowledgedIsLost),
        (Sabotage::TheTailIsWrittenAgain, Invariant::AnEtagNamesOneContent),
        (Sabotage::AnOldIndexComesBack, Invariant::APowerCutLeavesAPrefix),
        (Sabotage::PositionsAheadAreAnswered, Invariant::APositionAheadIsRefused),
        (Sabotage::BatchesAreNotAtomic, Invariant::NothingHappensHalf),
        (Sabotage::SuccessIsDenied, Invariant::NothingRefusedHappens),
        (Sabotage::AnswersAreMixedUp, Invariant::AnswersAreTrue),
        (Sabotage::ReadsAreStale, Invariant::ReadsShowTheNewestVersion),
        (Sabotage::PagesAreShuffled, Invariant::APageIsInOrder),
        (Sabotage::PagesStutter, Invariant::APageHasNoItemTwice),
        (Sabotage::TransactionsAreCut, Invariant::NoTransactionIsCut),
        (Sabotage::PositionsGoBack, Invariant::PositionsMoveForward),
        (Sabotage::PositionsGoAhead, Invariant::PositionsStayValid),
        (Sabotage::PositionsStandStill, Invariant::NothingIsSeenTwice),
        (Sabotage::ChangesAreSkipped, Invariant::ReadersMissNothing),
        (Sabotage::LateReadersSkip, Invariant::ALateReaderSeesTheLiveSet),
        (Sabotage::VersionsAreSkipped, Invariant::AllVersionsAreComplete),
        (Sabotage::VersionsAreNotKept, Invariant::AllVersionsAreKept),
        (Sabotage::ScansForget, Invariant::ViewsAgree),
        (Sabotage::ItemsLiveLonger, Invariant::TheExpiredIsInvisible),
        (Sabotage::NoUniqueKeys, Invariant::UniqueKeysHold),
        (Sabotage::FailedSyncsAreIgnored, Invariant::AFailedSyncRefusesWrites),
        (Sabotage::ARangeIsMissing, Invariant::RangesCoverEverything),
        (Sabotage::AFileIsMissing, Invariant::TheStoreOpens),
        (Sabotage::AppendsFail, Invariant::NothingFailsWithoutAFault),
        (Sabotage::AppendsHang, Invariant::EveryCallEnds),
    ];

    /// Returns the durability that it needs. Most need synced writes.
    pub(crate) fn durability(self) -> Durability {
        match self {
            Sabotage::AnOldIndexComesBack | Sabotage::PositionsAheadAreAnswered => Durability::Os,
            _ => Durability::Fsync,
        }
    }

    /// Modifies a page on its way to a reader. `kept` holds state from earlier pages.
    pub(crate) fn mangle(
        self,
        page: &mut FeedPage,
        mode: FeedMode,
        is_late: bool,
        kept: &mut Kept,
        random: &mut Random,
    ) {
        let before = kept.positions.last().cloned();
        kept.positions.push(page.continuation.clone());
        let count = page.changes.len();
        match self {
            Sabotage::PagesAreShuffled if count > 1 && random.chance(50) => {
                let last = page.changes.len() - 1;
                page.changes.swap(0, last);
            }
            Sabotage::PagesStutter if count > 0 && mode == FeedMode::LatestVersion => {
                page.changes.push(page.changes[count - 1].clone());
            }
            Sabotage::TransactionsAreCut => {
                let cut = page.changes.len() > 1
                    && page.changes[count - 1].lsn() == page.changes[count - 2].lsn();
                let held_back = if cut { page.changes.pop() } else { None };
                page.changes.splice(0..0, std::mem::replace(&mut kept.change, held_back));
            }
            Sabotage::PositionsGoBack if kept.positions.len() > 3 => {
                page.continuation = kept.positions[0].clone();
            }
            Sabotage::PositionsStandStill if count > 0 => {
                if let Some(before) = before {
                    page.continuation = before;
                }
            }
            Sabotage::PositionsGoAhead => {
                if let Continuation::Single(lsn) = page.continuation {
                    page.continuation = Continuation::Single(Lsn::new(lsn.get() + 1_000));
                }
            }
            Sabotage::ChangesAreSkipped if !is_late && count > 0 && random.chance(20) => {
                page.changes.remove(random.index(count));
            }
            Sabotage::LateReadersSkip if is_late && count > 0 => {
                page.changes.remove(random.index(count));
            }
            Sabotage::VersionsAreSkipped
                if mode == FeedMode::AllVersionsAndDeletes && count > 0 && random.chance(20) =>
            {
                page.changes.remove(random.index(count));
            }
            _ => {}
        }
    }

    /// Wraps a writer's log in a broken one, if this sabotage concerns logs.
    pub(crate) fn wrap(
        self,
        inner: Arc<dyn PartitionLog>,
        runtime: &Runtime,
    ) -> Arc<dyn PartitionLog> {
        match self {
            Sabotage::FailedSyncsAreIgnored | Sabotage::AppendsFail | Sabotage::AppendsHang => {
                let random = Arc::new(Mutex::new(Random::seeded(runtime.random())));
                Arc::new(BrokenLog { inner, sabotage: self, random })
            }
            _ => inner,
        }
    }
}

/// State of a broken reader between pages.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    change: Option<Change>,
    positions: Vec<Continuation>,
}

/// A log that answers wrongly, or not at all.
struct BrokenLog {
    inner: Arc<dyn PartitionLog>,
    sabotage: Sabotage,
    random: Arc<Mutex<Random>>,
}

impl PartitionLog for BrokenLog {
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>> {
        let (inner, sabotage) = (self.inner.clone(), self.sabotage);
        let unlucky = self.random.lock().chance(3);
        Box::pin(async move {
            match sabotage {
                Sabotage::AppendsFail if unlucky => {
                    Err(AppendError::Io(std::io::Error::other("sabotage")))
                }
                Sabotage::AppendsHang if unlucky => std::future::pending().await,
                Sabotage::FailedSyncsAreIgnored => match inner.append(group).await {
                    Err(AppendError::Poisoned) => Ok(()),
                    other => other,
                },
                _ => inner.append(group).await,
            }
        })
    }

    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>> {
        self.inner.entry(lsn)
    }

    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>> {
        self.inner.tail()
    }
}
