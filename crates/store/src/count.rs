//! Counts the items of a scope without reading them: from counters of partitions, or from index rows.
//!
//! ```text
//! whole partitions         each keeps a count of its rows (see `partition/population.rs`)
//! parts of a partition     its rows are counted
//! items that may expire    their rows are counted; a row holds the time of the last write and the time to
//! live, so
//!                          expired items are left out although their rows still exist
//! ```
//!
//! Listings use the same knowledge to skip reading rows when there are too many to sort. For a scope that is part
//! of a partition, or of partitions that were never counted, `LongScopes` remembers a lower bound: the rows that a
//! listing found, less the items that the scope's partitions have lost since.

use crate::container::Container;
use crate::error::{ItemReadError, StorageError};
use crate::keys::{self, ItemRow, Key};
use crate::partition::Partition;
use crate::scan::ScanScope;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Scopes in the cache. When it is full, it is cleared.
const SCOPES_MAX: usize = 1_024;

/// Cache of scopes that have many rows.
#[derive(Debug, Default)]
pub(crate) struct LongScopes(Mutex<HashMap<u128, KnownSize>>);

/// A lower bound on the rows of a scope, and when it was found.
#[derive(Clone, Copy, Debug)]
struct KnownSize {
    /// The scope had at least this many rows
    rows: u64,
    /// when its partitions had removed this many items in total.
    gone: u64,
}

/// A scope divided by partitions.
pub(crate) struct Extent {
    parts: Vec<Part>,
    /// Hash of the scope's bounds and its partitions.
    identity: u128,
}

/// The part of a scope in one partition.
struct Part {
    partition: Arc<Partition>,
    from: Key,
    to: Key,
    is_whole: bool,
}

impl Container {
    /// The number of items in a scope.
    pub(crate) fn count_items(&self, scope: &ScanScope) -> Result<u64, ItemReadError> {
        let (from, to) = self.bounds(scope)?;
        let may_expire = self.settings().definition.default_ttl().is_some();
        let runtime = &self.state().shared.runtime;
        let mut counted = 0;
        for part in &self.extent(&from, &to).parts {
            let is_counted = part.is_whole && !may_expire;
            let known = part.partition.population.known().filter(|_| is_counted);
            counted += match known {
                Some(known) => known,
                None if is_counted => runtime.blocking(|| part.partition.item_count())?,
                None => runtime.blocking(|| self.count_rows(part))?,
            };
        }
        self.check_served(scope)?;
        Ok(counted)
    }

    fn count_rows(&self, part: &Part) -> Result<u64, StorageError> {
        let (settings, now) = (part.partition.current_settings(), part.partition.now());
        let may_expire = settings.definition.default_ttl().is_some();
        let index = &self.state().shared.index;
        let (mut counted, mut is_malformed) = (0, false);
        index.scan(&part.from, &part.to, &mut |_, row| {
            if !may_expire {
                counted += 1;
                return true;
            }
            let row = ItemRow::decode(row);
            is_malformed = row.is_none();
            let is_there = row.is_some_and(|row| !settings.is_expired(row.written, row.ttl, now));
            counted += u64::from(is_there);
            !is_malformed
        })?;
        if is_malformed {
            return Err(index.doubt("a row is malformed"));
        }
        Ok(counted)
    }

    /// Divides the keys between two bounds by partitions.
    pub(crate) fn extent(&self, from: &Key, to: &Key) -> Extent {
        let mut parts = Vec::new();
        let mut identity = Xxh3::new();
        identity.update(&(from.len() as u64).to_le_bytes());
        identity.update(from);
        identity.update(to);
        for partition in &self.state().topology().partitions {
            let (first, behind) = keys::items_in(self.rid(), &partition.range);
            if first >= *to || *from >= behind {
                continue;
            }
            identity.update(&partition.id.get().to_le_bytes());
            let is_whole = *from <= first && behind <= *to;
            let (from, to) = (first.max(from.clone()), behind.min(to.clone()));
            parts.push(Part { partition: partition.clone(), from, to, is_whole });
        }
        Extent { parts, identity: identity.digest128() }
    }

    /// Whether a scope is known to have more than `rows` rows. Reads no row.
    pub(crate) fn is_long(&self, extent: &Extent, rows: usize) -> bool {
        let whole = extent.parts.iter().filter(|part| part.is_whole);
        let known: u64 = whole.filter_map(|part| part.partition.population.known()).sum();
        let remembered = || {
            let known_size = *self.state().long.0.lock().get(&extent.identity)?;
            let gone = extent.gone().checked_sub(known_size.gone)?;
            Some(known_size.rows.saturating_sub(gone))
        };
        known > rows as u64 || remembered().is_some_and(|least| least > rows as u64)
    }

    /// Records that a scope has at least `rows` rows. `gone` was read before they were counted.
    pub(crate) fn note_long(&self, extent: &Extent, rows: usize, gone: u64) {
        let mut scopes = self.state().long.0.lock();
        if scopes.len() >= SCOPES_MAX {
            scopes.clear();
        }
        scopes.insert(extent.identity, KnownSize { rows: rows as u64, gone });
    }
}

impl Extent {
    /// The number of items that were removed from its partitions.
    pub(crate) fn gone(&self) -> u64 {
        self.parts.iter().map(|part| part.partition.population.gone()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Account, ContainerDefinition, Options, PageLimit};
    use std::time::Duration;

    async fn filled(account: &Account, items: u32) -> Container {
        let database = account.create_database("db").await.unwrap();
        let definition = ContainerDefinition::new("c", "/pk").unwrap();
        let container = database.create_container(definition).await.unwrap();
        for number in 0..items {
            let key = if number % 2 == 0 { "a" } else { "b" };
            let item = format!(r#"{{"id":"{number}","pk":"{key}"}}"#);
            container.create(item).await.unwrap();
        }
        container
    }

    fn options() -> Options {
        let maintenance_interval = Duration::ZERO;
        Options { sort_listings_up_to: 10, maintenance_interval, ..Options::default() }
    }

    fn is_long(container: &Container, scope: &ScanScope) -> bool {
        let (from, to) = container.bounds(scope).unwrap();
        container.is_long(&container.extent(&from, &to), 10)
    }

    async fn list(container: &Container, scope: &ScanScope) {
        let limit = PageLimit::items(1).unwrap();
        container.list(scope, None, limit).await.unwrap();
    }

    #[tokio::test]
    async fn a_partition_that_was_always_there_knows_how_many_items_it_has() {
        let account = Account::ephemeral_with(options()).await.unwrap();
        let container = filled(&account, 10).await;
        assert!(!is_long(&container, &ScanScope::Container));
        container.create(r#"{"id":"x","pk":"a"}"#).await.unwrap();
        assert!(is_long(&container, &ScanScope::Container));
        container.delete("a", "x").await.unwrap();
        assert!(!is_long(&container, &ScanScope::Container));
        account.close().await.unwrap();
    }

    #[tokio::test]
    async fn what_one_listing_finds_spares_the_next_one_until_items_go() {
        let account = Account::ephemeral_with(options()).await.unwrap();
        let container = filled(&account, 50).await;
        // The halves of a split were never counted.
        container.split(container.ranges()[0].id, None).await.unwrap();
        let scopes = [ScanScope::Container, ScanScope::Key("a".into())];
        for scope in &scopes {
            assert!(!is_long(&container, scope));
            list(&container, scope).await;
            assert!(is_long(&container, scope), "{scope:?}");
        }
        // 21 rows were found: at least 11 are left after ten deletes, perhaps not after eleven.
        for number in 0..11 {
            assert!(is_long(&container, &scopes[0]) && is_long(&container, &scopes[1]));
            let key = if number % 2 == 0 { "a" } else { "b" };
            container.delete(key, &number.to_string()).await.unwrap();
        }
        // Only items removed from the scope's own partitions count against it.
        let long = scopes.iter().filter(|scope| is_long(&container, scope)).count();
        assert!(long <= 1, "{long}");
        for scope in &scopes {
            list(&container, scope).await;
            assert!(is_long(&container, scope), "{scope:?}");
        }
        // A count knows more than a listing that stopped early.
        assert_eq!(container.count_items(&ScanScope::Container).unwrap(), 39);
        for number in 11..39 {
            let key = if number % 2 == 0 { "a" } else { "b" };
            container.delete(key, &number.to_string()).await.unwrap();
        }
        assert!(is_long(&container, &ScanScope::Container));
        container.delete("b", "39").await.unwrap();
        assert!(!is_long(&container, &ScanScope::Container));
        assert_eq!(container.count_items(&ScanScope::Container).unwrap(), 10);
        account.close().await.unwrap();
    }
}
