//! SQLite with a write-ahead log and `synchronous=FULL`: an items table and a feed table.

use super::{Item, Peer, Sync};
use crate::commands::bench::workload::Key;
use anyhow::Result;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::path::Path;

pub(super) struct Sqlite {
    connection: Connection,
    /// What `synchronous` is set to.
    sync: Sync,
    sequence: u64,
}

impl Sqlite {
    pub(super) fn open(dir: &Path) -> Result<Sqlite> {
        std::fs::create_dir_all(dir)?;
        let connection = Connection::open(dir.join("items.db"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -(64 << 10))?;
        connection.pragma_update(None, "mmap_size", 16_i64 << 30)?;
        connection.execute_batch(
            "CREATE TABLE items (customer TEXT, id TEXT, sequence INTEGER,
                 PRIMARY KEY (customer, id)) WITHOUT ROWID;
             CREATE TABLE feed (sequence INTEGER PRIMARY KEY, body BLOB);",
        )?;
        Ok(Sqlite { connection, sync: Sync::Yes, sequence: 0 })
    }
}

impl Peer for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn write(&mut self, items: &[Item], sync: Sync) -> Result<()> {
        if sync != self.sync {
            let level = match sync {
                Sync::Yes => "FULL",
                Sync::No => "OFF",
            };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.sync = sync;
        }
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut find = transaction
                .prepare_cached("SELECT sequence FROM items WHERE customer = ? AND id = ?")?;
            let mut forget = transaction.prepare_cached("DELETE FROM feed WHERE sequence = ?")?;
            let mut place = transaction.prepare_cached(
                "INSERT INTO items VALUES (?, ?, ?)
                 ON CONFLICT DO UPDATE SET sequence = excluded.sequence",
            )?;
            let mut show = transaction.prepare_cached("INSERT INTO feed VALUES (?, ?)")?;
            for Item { key, body } in items {
                let older: Option<i64> =
                    find.query_row(params![key.customer, key.id], |row| row.get(0)).optional()?;
                if let Some(older) = older {
                    forget.execute([older])?;
                }
                self.sequence += 1;
                let sequence = i64::try_from(self.sequence)?;
                place.execute(params![key.customer, key.id, sequence])?;
                show.execute(params![sequence, body])?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn read_feed(&mut self, after: u64, limit: usize) -> Result<(usize, u64)> {
        let mut page = self.connection.prepare_cached(
            "SELECT sequence, body FROM feed WHERE sequence > ? ORDER BY sequence LIMIT ?",
        )?;
        let mut rows = page.query(params![i64::try_from(after)?, i64::try_from(limit)?])?;
        let (mut count, mut last) = (0, after);
        while let Some(row) = rows.next()? {
            last = u64::try_from(row.get::<_, i64>(0)?)?;
            count += usize::from(!row.get_ref(1)?.as_blob()?.is_empty());
        }
        Ok((count, last))
    }

    fn read(&mut self, key: &Key) -> Result<Option<usize>> {
        let mut find = self.connection.prepare_cached(
            "SELECT body FROM items JOIN feed USING (sequence) WHERE customer = ? AND id = ?",
        )?;
        let size = |row: &rusqlite::Row<'_>| Ok(row.get_ref(0)?.as_blob()?.len());
        Ok(find.query_row(params![key.customer, key.id], size).optional()?)
    }

    fn scan(&mut self) -> Result<u64> {
        let mut all = self.connection.prepare_cached(
            "SELECT body FROM items CROSS JOIN feed USING (sequence) ORDER BY customer, id",
        )?;
        let mut rows = all.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += u64::from(!row.get_ref(0)?.as_blob()?.is_empty());
        }
        Ok(count)
    }

    fn settle(&mut self) -> Result<()> {
        // Says in a row whether somebody was in the way; nobody is.
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}
