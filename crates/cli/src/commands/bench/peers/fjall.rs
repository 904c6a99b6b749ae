//! fjall, a log-structured merge tree: key → sequence and sequence → body, in one batch.
//!
//! It has no group commit of its own (a commit holds the journal until it is synced), so groups are made
//! before it. `SyncData` is as durable as `SyncAll` here and never slower.

use super::{Item, Peer, Sync};
use crate::commands::bench::workload::Key;
use anyhow::{Context, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

/// As much as SQLite is given.
const CACHE_BYTES: u64 = 64 << 20;

pub(super) struct Fjall {
    database: Database,
    items: Keyspace,
    feed: Keyspace,
    sequence: u64,
}

impl Fjall {
    pub(super) fn open(dir: &Path) -> Result<Fjall> {
        let database = Database::builder(dir).cache_size(CACHE_BYTES).open()?;
        let items = database.keyspace("items", KeyspaceCreateOptions::default)?;
        let feed = database.keyspace("feed", KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, items, feed, sequence: 0 })
    }
}

fn row(key: &Key) -> Vec<u8> {
    [key.customer.as_bytes(), b"\0", key.id.as_bytes()].concat()
}

impl Peer for Fjall {
    fn name(&self) -> &'static str {
        "fjall"
    }

    fn write(&mut self, items: &[Item], sync: Sync) -> Result<()> {
        let mode = match sync {
            Sync::Yes => Some(PersistMode::SyncData),
            Sync::No => None,
        };
        let mut batch = self.database.batch().durability(mode);
        for item in items {
            let row = row(&item.key);
            if let Some(older) = self.items.get(&row)? {
                batch.remove(&self.feed, &older[..]);
            }
            self.sequence += 1;
            let sequence = self.sequence.to_be_bytes();
            batch.insert(&self.items, row, &sequence[..]);
            batch.insert(&self.feed, &sequence[..], &item.body[..]);
        }
        Ok(batch.commit()?)
    }

    fn read_feed(&mut self, after: u64, limit: usize) -> Result<(usize, u64)> {
        let (mut count, mut last) = (0, after);
        for row in self.feed.range((after + 1).to_be_bytes()..).take(limit) {
            let (sequence, body) = row.into_inner()?;
            last = u64::from_be_bytes(sequence[..].try_into()?);
            count += usize::from(!body.is_empty());
        }
        Ok((count, last))
    }

    fn read(&mut self, key: &Key) -> Result<Option<usize>> {
        let Some(sequence) = self.items.get(row(key))? else {
            return Ok(None);
        };
        let body = self.feed.get(sequence)?;
        Ok(body.map(|body| body.len()))
    }

    fn scan(&mut self) -> Result<u64> {
        let mut count = 0;
        for row in self.items.iter() {
            let body = self.feed.get(row.value()?)?;
            body.context("a row points to nothing")?;
            count += 1;
        }
        Ok(count)
    }

    fn settle(&mut self) -> Result<()> {
        for keyspace in [&self.items, &self.feed] {
            keyspace.rotate_memtable_and_wait()?;
            keyspace.major_compact()?;
        }
        Ok(())
    }
}
