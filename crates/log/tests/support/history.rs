//! The model of a partition: the list of its written records.
//!
//! A key identifies an item. Two neighbouring keys share a hashed key, as items of one logical partition do. The
//! key is in the meta bytes of a record, so that a replay can use it as the owner of a log does.

use headwater_log::{Group, GroupBuilder, NewRecord, Position, Record, RecordKind, Tail};
use headwater_model::{KeyRange, Lsn, PartitionId, Timestamp};
use headwater_runtime::Random;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) type Key = u16;

/// One record that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) position: Position,
    pub(crate) kind: RecordKind,
    /// Zero for control records.
    pub(crate) key: Key,
    pub(crate) supersedes: Option<Position>,
    pub(crate) body: Vec<u8>,
    pub(crate) timestamp: Timestamp,
}

impl Fact {
    pub(crate) fn epk(&self) -> Vec<u8> {
        match self.kind {
            RecordKind::Control => Vec::new(),
            _ => epk(self.key).to_vec(),
        }
    }

    pub(crate) fn is_in(&self, range: Option<&KeyRange>) -> bool {
        range.is_none_or(|range| range.contains(&self.epk()))
    }

    #[track_caller]
    pub(crate) fn assert_is(&self, record: &Record) {
        let read = Fact {
            position: record.position,
            kind: record.kind,
            key: key_of(record),
            supersedes: record.supersedes,
            body: record.body().to_vec(),
            timestamp: record.timestamp,
        };
        assert_eq!(&read, self);
        assert_eq!(record.epk(), self.epk());
    }
}

/// The hash of a key.
pub(crate) fn epk(key: Key) -> [u8; 3] {
    let logical = (key / 2).to_be_bytes();
    [(logical[1].wrapping_mul(37)) % 0xF0, logical[0], logical[1]]
}

/// The key a record is about.
pub(crate) fn key_of(record: &Record) -> Key {
    Key::from_le_bytes(record.meta().try_into().unwrap())
}

/// An entry that was sent: its records, and the end of the log after it.
#[derive(Clone, Debug)]
pub(crate) struct SentEntry {
    pub(crate) facts: Vec<Fact>,
    pub(crate) lsn: Lsn,
}

/// A group that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) group: Group,
    pub(crate) entries: Vec<SentEntry>,
}

/// All acknowledged records of a partition.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) partition: PartitionId,
    pub(crate) range: KeyRange,
    /// In LSN order; inherited records first.
    pub(crate) facts: Vec<Fact>,
    pub(crate) tail: Tail,
    /// The newest record of each key, tombstones included.
    newest: BTreeMap<Key, (Position, RecordKind)>,
    control: Option<Position>,
}

/// Limits of the sizes in a random group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) keys: u64,
    pub(crate) entries: u64,
    pub(crate) records: u64,
    pub(crate) body: u64,
}

impl History {
    pub(crate) fn new(partition: PartitionId, range: KeyRange, tail: Tail) -> History {
        History {
            partition,
            range,
            facts: Vec::new(),
            tail,
            newest: BTreeMap::new(),
            control: None,
        }
    }

    /// The history of a partition that inherits the records in its range from others.
    pub(crate) fn inherited(
        partition: PartitionId,
        range: KeyRange,
        tail: Tail,
        ancestors: &[&History],
    ) -> History {
        let mut child = History::new(partition, range, tail);
        let mut seen = BTreeSet::new();
        for ancestor in ancestors {
            for fact in &ancestor.facts {
                let belongs = fact.kind == RecordKind::Control || fact.is_in(Some(&child.range));
                if belongs && seen.insert(fact.position) {
                    child.facts.push(fact.clone());
                }
            }
        }
        child.facts.sort_by_key(|fact| fact.position.lsn);
        child.find_newest();
        child
    }

    fn find_newest(&mut self) {
        self.newest.clear();
        self.control = None;
        for fact in self.facts.clone() {
            self.note(&fact);
        }
    }

    fn note(&mut self, fact: &Fact) {
        if fact.kind == RecordKind::Control {
            // Only a log's own control records are ever superseded.
            self.control = Some(fact.position).filter(|own| own.origin == self.partition);
        } else {
            self.newest.insert(fact.key, (fact.position, fact.kind));
        }
    }

    /// Adds the entries of a sent group, up to an LSN.
    pub(crate) fn acknowledge(&mut self, sent: &Sent, upto: Tail) {
        for entry in sent.entries.iter().filter(|entry| entry.lsn <= upto.lsn) {
            for fact in &entry.facts {
                self.note(fact);
                self.facts.push(fact.clone());
            }
        }
        self.tail = upto;
    }

    /// Removes the entries after `tail`, which a power cut lost.
    pub(crate) fn cut_back(&mut self, tail: Tail) {
        let own = self.partition;
        self.facts.retain(|fact| fact.position.origin != own || fact.position.lsn <= tail.lsn);
        self.tail = tail;
        self.find_newest();
    }

    /// The positions of all live items.
    pub(crate) fn live(&self) -> BTreeSet<Position> {
        let puts = self.newest.values();
        puts.filter(|(_, kind)| *kind == RecordKind::Put).map(|(position, _)| *position).collect()
    }

    /// The positions of all live items when the log ended at `upto`.
    pub(crate) fn live_at(&self, upto: Lsn) -> BTreeSet<Position> {
        let mut then = self.without_facts();
        then.newest.clear();
        for fact in self.between(Lsn::ZERO, upto) {
            then.note(fact);
        }
        then.live()
    }

    /// The records after `after`, up to `upto`.
    pub(crate) fn between(&self, after: Lsn, upto: Lsn) -> impl Iterator<Item = &Fact> {
        self.facts.iter().filter(move |fact| fact.position.lsn > after && fact.position.lsn <= upto)
    }

    /// A group after the end with one entry for each kind, key and body length.
    pub(crate) fn group(&self, now: Timestamp, records: &[(RecordKind, Key, usize)]) -> Sent {
        let mut draft = self.without_facts();
        let mut builder = GroupBuilder::new(self.partition, 0, self.tail);
        let mut entries = Vec::new();
        for (kind, key, length) in records {
            let lsn = builder.next_lsn();
            let timestamp = builder.begin(now, 1);
            let supersedes = draft.newest.get(key).map(|(position, _)| *position);
            let body = vec![b'x'; *length];
            let fact = draft.write(&mut builder, *kind, *key, supersedes, body, timestamp);
            builder.finish();
            entries.push(SentEntry { facts: vec![fact], lsn });
        }
        Sent { group: builder.build(), entries }
    }

    /// A random group after the end: new items, updates, deletes, control records.
    pub(crate) fn random_group(&self, random: &mut Random, now: Timestamp, sizes: Sizes) -> Sent {
        let mut draft = self.without_facts();
        let mut builder = GroupBuilder::new(self.partition, 0, self.tail);
        let mut entries = Vec::new();
        for _ in 0..1 + random.below(sizes.entries) {
            let lsn = builder.next_lsn();
            let timestamp = builder.begin(now, u128::from(random.number()));
            if random.chance(5) {
                // A request that failed its precondition leaves no entry.
                draft.random_record(random, &mut builder, timestamp, sizes);
                builder.abandon();
                draft = self.without_facts();
                let sent = entries.iter().flat_map(|entry: &SentEntry| &entry.facts);
                sent.for_each(|fact| draft.note(fact));
                continue;
            }
            let facts: Vec<Fact> = (0..1 + random.below(sizes.records))
                .map(|_| draft.random_record(random, &mut builder, timestamp, sizes))
                .collect();
            builder.finish();
            entries.push(SentEntry { facts, lsn });
        }
        Sent { group: builder.build(), entries }
    }

    fn without_facts(&self) -> History {
        History {
            newest: self.newest.clone(),
            control: self.control,
            ..History::new(self.partition, self.range.clone(), self.tail)
        }
    }

    fn random_record(
        &mut self,
        random: &mut Random,
        builder: &mut GroupBuilder,
        timestamp: Timestamp,
        sizes: Sizes,
    ) -> Fact {
        let (kind, key) = self.random_kind(random, sizes.keys);
        let before = self.newest.get(&key).copied();
        let supersedes = match kind {
            RecordKind::Control => self.control.filter(|_| random.chance(50)),
            // A writer may or may not supersede a tombstone.
            RecordKind::Put => before
                .filter(|(_, kind)| *kind == RecordKind::Put || random.chance(50))
                .map(|(position, _)| position),
            RecordKind::Tombstone => before.map(|(position, _)| position),
        };
        let length = match random.below(40) {
            0 => sizes.body * 20,
            _ => random.below(sizes.body),
        };
        let body: Vec<u8> = match kind {
            RecordKind::Tombstone => Vec::new(),
            _ => (0..length).map(|_| (random.number() & 0xFF) as u8).collect(),
        };
        self.write(builder, kind, key, supersedes, body, timestamp)
    }

    fn write(
        &mut self,
        builder: &mut GroupBuilder,
        kind: RecordKind,
        key: Key,
        supersedes: Option<Position>,
        body: Vec<u8>,
        timestamp: Timestamp,
    ) -> Fact {
        let mut fact = Fact {
            position: Position { origin: self.partition, lsn: Lsn::ZERO, ordinal: 0 },
            kind,
            key,
            supersedes,
            body,
            timestamp,
        };
        fact.position = builder.record(&NewRecord {
            kind,
            supersedes,
            epk: &fact.epk(),
            meta: &key.to_le_bytes(),
            body: &fact.body,
        });
        self.note(&fact);
        fact
    }

    fn random_kind(&self, random: &mut Random, keys: u64) -> (RecordKind, Key) {
        if random.chance(4) {
            return (RecordKind::Control, 0);
        }
        let mine = |key: &Key| self.range.contains(&epk(*key));
        let key = (0..).map(|_| Key::try_from(1 + random.below(keys)).unwrap()).find(mine).unwrap();
        let alive = self.newest.get(&key).is_some_and(|(_, kind)| *kind == RecordKind::Put);
        match alive && random.chance(30) {
            true => (RecordKind::Tombstone, key),
            false => (RecordKind::Put, key),
        }
    }
}
