//! Integrity checks of the index files that the engine does not make itself.
//!
//! The engine verifies rows, in blocks of tables and in batches of the journal. Three things it does not
//! verify, and each can make an old row look like the newest one without any error:
//!
//! * the existence of a journal: a missing one counts as empty, and new rows then get lower numbers than those in
//!   the tables, which hide them;
//! * the number of a batch in the journal, by which it is sorted or skipped;
//! * the list of tables, whose checksum is stored next to it and never compared.
//!
//! If one of these checks fails, the index is rebuilt from the log. They read the journal once and no table.
//! They know the file format of the one version that the workspace pins.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;

/// The reason why the index in this directory cannot be used, if there is one. `None` also if it does not exist.
pub(super) fn reason(dir: &Path) -> io::Result<Option<&'static str>> {
    let keyspaces = dir.join("keyspaces");
    if !keyspaces.exists() {
        return Ok(None);
    }
    let journals = journals(dir)?;
    if journals.is_empty() {
        return Ok(Some("its journal is missing"));
    }
    let mut last = None;
    for journal in &journals {
        if !is_in_order(&mut BufReader::new(File::open(journal)?), &mut last)? {
            return Ok(Some("its journal is out of order"));
        }
    }
    for keyspace in std::fs::read_dir(keyspaces)? {
        let keyspace = keyspace?.path();
        if !lists_its_tables(&keyspace)? {
            return Ok(Some("its list of tables is damaged"));
        }
        if has_directory(&keyspace.join("tables"))? {
            return Ok(Some("a directory is in the place of a table"));
        }
    }
    Ok(None)
}

/// The journals of the index, the oldest first.
pub(super) fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number
            && path.extension().is_some_and(|extension| extension == "jnl")
        {
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Whether the batches of a journal have increasing numbers, continuing from `last`. The engine judges bytes
/// after the last whole entry: a crash may have torn them.
fn is_in_order(journal: &mut impl BufRead, last: &mut Option<u64>) -> io::Result<bool> {
    loop {
        match next_batch(journal) {
            Ok(Some(number)) if last.is_some_and(|last| number <= last) => return Ok(false),
            Ok(Some(number)) => *last = Some(number),
            Ok(None) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
    }
}

/// The number of the next batch; `None` at the first byte that starts no entry.
fn next_batch(journal: &mut impl BufRead) -> io::Result<Option<u64>> {
    loop {
        let [tag] = array(journal)?;
        match tag {
            START => {
                let _items: [u8; 4] = array(journal)?;
                return Ok(Some(u64::from_le_bytes(array(journal)?)));
            }
            ITEM => {
                let _kinds_and_keyspace: [u8; 10] = array(journal)?;
                let key = u64::from(u16::from_le_bytes(array(journal)?));
                let _value: [u8; 4] = array(journal)?;
                let stored = u64::from(u32::from_le_bytes(array(journal)?));
                skip(journal, key + stored)?;
            }
            END => skip(journal, 12)?,
            CLEAR => skip(journal, 8)?,
            _ => return Ok(None),
        }
    }
}

fn array<const N: usize>(journal: &mut impl BufRead) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    journal.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn skip(journal: &mut impl BufRead, bytes: u64) -> io::Result<()> {
    if io::copy(&mut journal.take(bytes), &mut io::sink())? < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Whether a directory is in the place of a table. It would make the engine panic with a lock held, then
/// panic again on the poisoned lock, which ends the process.
fn has_directory(tables: &Path) -> io::Result<bool> {
    if !tables.is_dir() {
        return Ok(false);
    }
    for table in std::fs::read_dir(tables)? {
        if table?.path().is_dir() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the list of a keyspace's tables matches its checksum.
fn lists_its_tables(keyspace: &Path) -> io::Result<bool> {
    let Ok(current) = std::fs::read(keyspace.join("current")) else {
        return Ok(true); // The engine removes such a keyspace; recovery finds its rows missing.
    };
    let Some((number, rest)) = current.split_first_chunk() else {
        return Ok(false);
    };
    let Some((checksum, [0])) = rest.split_first_chunk() else {
        return Ok(false);
    };
    let list = keyspace.join(format!("v{}", u64::from_le_bytes(*number)));
    match std::fs::read(list) {
        Ok(bytes) => Ok(xxhash_rust::xxh3::xxh3_128(&bytes) == u128::from_le_bytes(*checksum)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64) -> Vec<u8> {
        let mut bytes = vec![START, 1, 0, 0, 0];
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes
            .extend_from_slice(&[ITEM, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 0, 0, 2, 0, 0, 0]);
        bytes.extend_from_slice(b"keyva");
        bytes.push(END);
        bytes.extend_from_slice(&[9; 12]);
        bytes
    }

    fn check(bytes: &[u8]) -> (bool, Option<u64>) {
        let mut last = None;
        let ordered = is_in_order(&mut BufReader::new(bytes), &mut last).unwrap();
        (ordered, last)
    }

    #[test]
    fn a_batch_with_a_changed_number_is_noticed() {
        let journal: Vec<u8> = (7..20).flat_map(batch).collect();
        assert_eq!(check(&journal), (true, Some(19)));
        let mut padded = journal.clone();
        padded.extend_from_slice(&[0; 100]);
        assert_eq!(check(&padded), (true, Some(19)), "room made ahead of time");
        assert_eq!(check(&journal[..journal.len() - 20]), (true, Some(19)), "a torn end");
        let length = batch(0).len();
        for number in 1..12 {
            for bit in 0..64 {
                let mut flipped = journal.clone();
                flipped[number * length + 5 + bit / 8] ^= 1 << (bit % 8);
                assert!(!check(&flipped).0, "batch {number}, bit {bit}");
            }
        }
    }
}
