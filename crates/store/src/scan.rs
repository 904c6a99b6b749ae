//! Scans items in a stable order: by hashed key, then partition key, then id.
//!
//! The order does not depend on partitions, so a scan continues at its position after a split, a merge or a
//! restart. An item that exists during the whole scan is returned exactly once. One that is created or
//! deleted meanwhile may or may not be returned. For items in order of creation see `listing`.

use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::item::{Item, ItemKey};
use crate::keys::{self, Key};
use crate::partition::Look;
use crate::secondary::Proposed;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use headwater_model::{KeyRange, PageLimit, PartitionId, PartitionKey};
use std::fmt;

/// The first character of a position in order of creation. It does not occur in base 64.
const NUMBER: char = '~';

/// The position where a scan or a listing continues. Opaque; stays valid through restarts, splits and merges.
///
/// Its form tells the order: the next key in base 64 for a scan, or `~` and the next number for a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPosition(String);

impl ScanPosition {
    /// Creates a position from its text. The text is validated when the position is used.
    #[must_use]
    pub fn from_text(text: &str) -> ScanPosition {
        ScanPosition(text.to_owned())
    }

    /// The position before the item with this number, in order of creation.
    pub(crate) fn of_number(number: u64) -> ScanPosition {
        ScanPosition(format!("{NUMBER}{number}"))
    }

    /// The number of the next item, if this is a position in order of creation.
    pub(crate) fn number(&self) -> Result<Option<u64>, ItemReadError> {
        let number = self.0.strip_prefix(NUMBER).map(str::parse);
        number.transpose().map_err(|_| ItemReadError::BadPosition)
    }
}

impl fmt::Display for ScanPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The items that a scan reads.
#[derive(Clone, Debug, Default)]
pub enum ScanScope {
    /// All items.
    #[default]
    Container,
    /// The items of one range.
    Range(PartitionId),
    /// The items whose hashed key is within bounds.
    Hashes(KeyRange),
    /// The items of one partition key, or of all keys with this prefix.
    Key(PartitionKey),
}

/// A page of a scan.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScanPage {
    /// The items.
    pub items: Vec<Item>,
    /// The position to continue from; `None` at the end.
    pub next: Option<ScanPosition>,
}

impl Container {
    /// Reads a page of items in a stable order.
    ///
    /// # Errors
    /// When the scope or position does not belong to this container, or the store fails.
    pub async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanPosition>,
        limit: PageLimit,
    ) -> Result<ScanPage, ItemReadError> {
        let (mut from, to) = self.bounds(scope)?;
        if let Some(position) = after {
            from = self.behind(position)?.max(from);
        }
        let (items, is_more) = self.scan_keys(&mut from, &to, limit, &mut Vec::new()).await?;
        self.check_served(scope)?;
        Ok(ScanPage { items, next: is_more.then(|| position_text(&from)) })
    }

    /// Reads items between two keys and moves `from` past them. Adds the key of each to `keys`. True if there
    /// are more.
    pub(crate) async fn scan_keys(
        &self,
        from: &mut Key,
        to: &Key,
        limit: PageLimit,
        keys: &mut Vec<Key>,
    ) -> Result<(Vec<Item>, bool), ItemReadError> {
        let mut items = Vec::new();
        let mut bytes = 0;
        loop {
            let wanted = (limit.items as usize).saturating_sub(items.len());
            if wanted == 0 || bytes >= limit.bytes as usize {
                return Ok((items, self.is_more(from, to)?));
            }
            // Read a few rows at a time: items may be large, and rows must not become stale meanwhile.
            let rows = self.rows(from, to, wanted.min(256))?;
            if rows.is_empty() {
                return Ok((items, false));
            }
            for key in rows {
                if let Some(item) = self.read_row(&key).await? {
                    bytes += item.feed_bytes().len();
                    items.push(item);
                    keys.push(key.clone());
                }
                *from = successor(key);
                if bytes >= limit.bytes as usize {
                    break;
                }
            }
        }
    }

    /// The bounds of a scope's rows. Refuses a scope that overlaps a quarantined partition: its missing items
    /// must not look deleted.
    pub(crate) fn bounds(&self, scope: &ScanScope) -> Result<(Key, Key), ItemReadError> {
        let range = match scope {
            ScanScope::Container => KeyRange::full(),
            ScanScope::Hashes(range) => range.clone(),
            ScanScope::Range(id) => {
                let topology = self.state().topology();
                topology.partition(*id).ok_or(ItemReadError::RangeGone(*id))?.range.clone()
            }
            ScanScope::Key(key) => {
                let definition = self.settings().definition.partition_key().clone();
                if key.components().len() == definition.paths.len() {
                    let epk = definition.epk(key)?;
                    let mut encoded = Vec::new();
                    key.encode_into(&mut encoded);
                    let topology = self.state().topology();
                    topology
                        .partition_of(epk.as_bytes())
                        .map_or(Ok(()), |one| one.check_served())?;
                    return Ok(keys::items_of(self.rid(), epk.as_bytes(), &encoded));
                }
                definition.prefix_range(key)?
            }
        };
        self.state().topology().check_served(&range)?;
        Ok(keys::items_in(self.rid(), &range))
    }

    /// Refuses a result whose scope overlaps a partition quarantined since [`Container::bounds`]: the rebuilt
    /// index lacks its rows.
    pub(crate) fn check_served(&self, scope: &ScanScope) -> Result<(), ItemReadError> {
        match self.bounds(scope) {
            Err(error @ ItemReadError::Storage(StorageError::Quarantined(_))) => Err(error),
            // A range that was split meanwhile was still read to its end.
            _ => Ok(()),
        }
    }

    pub(crate) fn behind(&self, position: &ScanPosition) -> Result<Key, ItemReadError> {
        let bytes = URL_SAFE_NO_PAD.decode(&position.0).map_err(|_| ItemReadError::BadPosition)?;
        let (all_from, all_to) = keys::all(self.rid());
        let ours = bytes.len() < 8_192 && bytes[..] >= all_from[..] && bytes[..] < all_to[..];
        if ours { Ok(Key::from_slice(&bytes)) } else { Err(ItemReadError::BadPosition) }
    }

    fn rows(&self, from: &Key, to: &Key, most: usize) -> Result<Vec<Key>, StorageError> {
        let mut rows = Vec::with_capacity(most);
        self.state().shared.index.scan(from, to, &mut |key, _| {
            rows.push(Key::from_slice(key));
            rows.len() < most
        })?;
        Ok(rows)
    }

    fn is_more(&self, from: &Key, to: &Key) -> Result<bool, StorageError> {
        Ok(!self.rows(from, to, 1)?.is_empty())
    }

    pub(crate) async fn read_row(&self, key: &Key) -> Result<Option<Item>, ItemReadError> {
        let malformed = || self.state().shared.index.doubt("a row is malformed");
        let (epk, tail) = keys::parse_item(key).ok_or_else(malformed)?;
        self.read_key(&ItemKey { epk, tail: tail.to_vec(), key_bytes: 0 }).await
    }

    /// Reads the current version of a candidate item.
    pub(crate) async fn read_proposed(
        &self,
        proposed: &Proposed,
    ) -> Result<Option<Item>, ItemReadError> {
        match self.look_at(proposed)? {
            Look::Found(item) => Ok(item),
            Look::Moved => self.read_row(&proposed.key).await,
        }
    }

    /// Reads a candidate item at the position that its index entry names, without reading its row.
    pub(crate) fn look_at(&self, proposed: &Proposed) -> Result<Look, ItemReadError> {
        let Some(position) = proposed.position else { return Ok(Look::Moved) };
        let malformed = || self.state().shared.index.doubt("an entry is malformed");
        let (epk, tail) = keys::parse_item(&proposed.key).ok_or_else(malformed)?;
        let topology = self.state().topology();
        let partition = topology.partition_of(epk.as_bytes());
        let partition = partition.ok_or(ItemReadError::ContainerGone)?;
        Ok(partition.look_at(position, epk.as_bytes(), tail)?)
    }
}

/// The first key after this one.
pub(crate) fn successor(mut key: Key) -> Key {
    key.push(0);
    key
}

pub(crate) fn position_text(from: &Key) -> ScanPosition {
    ScanPosition(URL_SAFE_NO_PAD.encode(from))
}
