//! Commit of a transaction: sends its checks and writes to the partition writer as one unit.

use super::provisional::{Provisional, Replacements};
use super::{Transaction, Trouble};
use crate::container::Container;
use crate::error::{StorageError, WriteError};
use crate::item::{ItemKey, Precondition, Written};
use crate::partition::{Answer, Refusal, Work};
use crate::prepare::{Action, Operation};
use headwater_model::{ChangeKind, ItemId, ItemRid};
use smallvec::SmallVec;

/// A committed transaction.
pub(crate) struct CommittedTransaction {
    /// The result of each write, in order.
    pub(crate) written: Vec<Written>,
    provisional: Provisional,
    container: Container,
}

impl Transaction {
    /// Writes everything in one log entry, if nothing that was read has changed.
    pub(crate) async fn commit(self) -> Result<CommittedTransaction, Trouble> {
        let checks = self.checks()?;
        let (checked, epk) = (checks.len(), self.epk.clone());
        let all: SmallVec<[Operation; 1]> = checks.into_iter().chain(self.operations).collect();
        if all.is_empty() {
            let (provisional, container) = (self.provisional, self.container);
            return Ok(CommittedTransaction { written: Vec::new(), provisional, container });
        }
        let state = self.container.state().clone();
        match state.submit(epk.as_bytes(), Work::Transaction(all)).await {
            Ok(Answer::Transaction(mut written)) => {
                written.drain(..checked);
                let (provisional, container) = (self.provisional, self.container);
                Ok(CommittedTransaction { written, provisional, container })
            }
            Ok(_) => Err(StorageError::Closed.into()),
            Err(Refusal::Storage(error)) => Err(error.into()),
            Err(Refusal::Gone(_)) => Err(Trouble::Refused(WriteError::ContainerGone)),
            Err(Refusal::Operation(_, WriteError::Storage(error))) => Err(error.into()),
            // The script's own checks passed, so a rejection by the writer means that an item changed since.
            Err(Refusal::Operation(..)) => Err(Trouble::Outdated),
        }
    }

    /// Checks that nothing that was read has changed; writes nothing.
    pub(crate) async fn validate(mut self) -> Result<(), Trouble> {
        self.operations.clear();
        self.commit().await.map(|_| ())
    }

    /// The conditions that the writer checks: the items that were read, or the whole key after a query.
    fn checks(&self) -> Result<Vec<Operation>, Trouble> {
        let check = |id: &str, action| -> Result<Operation, Trouble> {
            let id = ItemId::new(id).map_err(WriteError::from)?;
            let key = ItemKey::new(self.epk.clone(), &self.key, &id);
            Ok(Operation::new(key, action, Precondition::None))
        };
        if self.scanned {
            return Ok(vec![check("-", Action::Untouched(self.since))?]);
        }
        self.seen.iter().map(|(id, seen)| check(id, Action::Unchanged(*seen))).collect()
    }
}

impl CommittedTransaction {
    /// Replaces provisional etags and resource ids in a text of the script by those that the writer assigned.
    pub(crate) fn finalise(&self, text: &str) -> String {
        let container = self.container.rid();
        let mut replacements = Replacements::new(&self.provisional, container);
        for (operation, written) in self.written.iter().enumerate() {
            let Some(item) = &written.item else { continue };
            replacements.etag(self.provisional.etag(operation), item.etag());
            if written.change == Some(ChangeKind::Create) {
                let provisional = ItemRid::new(container, self.provisional.number(operation));
                replacements.rid(provisional, ItemRid::new(container, item.number()));
            }
        }
        replacements.apply(text)
    }
}
