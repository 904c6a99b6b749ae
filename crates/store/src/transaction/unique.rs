//! Early check of unique keys inside a transaction.
//!
//! Reports a violation while the script can still handle it. The check is advisory: the writer decides at commit.

use super::{Transaction, Trouble};
use crate::error::WriteError;
use crate::item::UNIQUE_BYTES;
use crate::keys;

impl Transaction {
    /// Fails if another item has one of these values.
    pub(super) fn check_unique(&mut self, id: &str, unique: &[u8]) -> Result<(), Trouble> {
        for one in unique.chunks_exact(UNIQUE_BYTES) {
            let owner = match self.unique.get(one) {
                Some(owner) => owner.clone(),
                None => self.stored_owner(one)?,
            };
            if let Some(other) = owner.filter(|owner| owner != id) {
                return Err(WriteError::UniqueKey { id: id.to_owned(), other }.into());
            }
        }
        Ok(())
    }

    /// Records the values that an item has from now on, and frees its previous ones.
    pub(super) fn take_unique(&mut self, id: &str, unique: &[u8]) -> Result<(), Trouble> {
        if !self.settings.has_unique_keys() {
            return Ok(());
        }
        for held in self.held(id)?.chunks_exact(UNIQUE_BYTES) {
            self.unique.insert(held.to_vec(), None);
        }
        for one in unique.chunks_exact(UNIQUE_BYTES) {
            self.unique.insert(one.to_vec(), Some(id.to_owned()));
        }
        Ok(())
    }

    /// The unique values that an item has before the current write.
    fn held(&mut self, id: &str) -> Result<Vec<u8>, Trouble> {
        if self.own.contains_key(id) {
            let mine = self.unique.iter().filter(|(_, owner)| owner.as_deref() == Some(id));
            return Ok(mine.flat_map(|(unique, _)| unique.clone()).collect());
        }
        let key = self.row_key(id);
        let Some(row) = self.partition.row(&key)? else {
            return Ok(Vec::new());
        };
        Ok(self.partition.unique_keys_of(&row, self.epk.as_bytes())?)
    }

    /// The id of the stored item that has a unique value.
    fn stored_owner(&mut self, unique: &[u8]) -> Result<Option<String>, Trouble> {
        let key = keys::unique(self.rid(), self.epk.as_bytes(), &self.encoded, unique);
        let index = self.container.state().shared.index.clone();
        let value = index.get(&key)?;
        let named = value.as_ref().and_then(|value| keys::decode_position(value));
        let Some((position, id)) = named else {
            return Ok(None);
        };
        let id = String::from_utf8_lossy(id).into_owned();
        // The row is valid only while the version that wrote it is the current version of the item.
        let holds = self.stored(&id)?.is_some_and(|item| item.position() == position);
        Ok(holds.then_some(id))
    }

    fn row_key(&self, id: &str) -> keys::Key {
        let mut tail = self.encoded.clone();
        tail.extend_from_slice(id.as_bytes());
        keys::item(self.rid(), self.epk.as_bytes(), &tail)
    }
}
