//! The end of a transaction: checks and writes go to the writer as one piece.

use super::provisional::{Provisional, Replacements};
use super::{Transaction, Trouble};
use crate::container::Container;
use crate::error::{StorageError, WriteError};
use crate::item::{ItemKey, Precondition, Written};
use crate::partition::{Answer, Refusal, Work};
use crate::prepare::{Action, Operation};
use headwater_model::{ChangeKind, ItemId, ItemRid};
use smallvec::SmallVec;

/// A transaction that was written.
pub(crate) struct Committed {
    /// What came of each write, in order.
    pub(crate) written: Vec<Written>,
    provisional: Provisional,
    container: Container,
}

impl Transaction {
    /// Writes everything in one entry, if what was read is still so.
    pub(crate) async fn commit(self) -> Result<Committed, Trouble> {
        let checks = self.checks()?;
        let (checked, epk) = (checks.len(), self.epk.clone());
        let all: SmallVec<[Operation; 1]> = checks.into_iter().chain(self.operations).collect();
        if all.is_empty() {
            let (provisional, container) = (self.provisional, self.container);
            return Ok(Committed { written: Vec::new(), provisional, container });
        }
        let state = self.container.state().clone();
        match state.submit(epk.as_bytes(), Work::Transaction(all)).await {
            Ok(Answer::Transaction(mut written)) => {
                written.drain(..checked);
                let (provisional, container) = (self.provisional, self.container);
                Ok(Committed { written, provisional, container })
            }
            Ok(_) => Err(StorageError::Closed.into()),
            Err(Refusal::Storage(error)) => Err(error.into()),
            Err(Refusal::Gone(_)) => Err(Trouble::Refused(WriteError::ContainerGone)),
            Err(Refusal::Operation(_, WriteError::Storage(error))) => Err(error.into()),
            // Whatever the writer refuses now was in order when the script looked.
            Err(Refusal::Operation(..)) => Err(Trouble::Outdated),
        }
    }

    /// Whether what was read is still so; nothing is written.
    pub(crate) async fn validate(mut self) -> Result<(), Trouble> {
        self.operations.clear();
        self.commit().await.map(|_| ())
    }

    /// What must still be true.
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

impl Committed {
    /// A text of the script with the etags and resource ids that its writes have got.
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
