//! Every version that was ever attempted or seen, and what is known of it.
//!
//! The store names a version by its etag, the workload by the token in the body. The first sighting of a version
//! links the two; afterwards neither may name anything else.

use super::clock::Moment;
use super::step::{Key, Shape, Token};
use crate::history::Fnv;
use crate::invariants::{Checked, Invariant, require};
use headwater_model::{Etag, Lsn, PartitionId};
use headwater_store::{Change, Item, body};
use std::collections::BTreeMap;

/// A version as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// From the body.
    pub token: Token,
    /// From the body.
    pub ttl: i32,
    /// From the body.
    pub unique: u64,
    /// As the store says.
    pub etag: Etag,
    /// As the store says.
    pub lsn: Lsn,
    /// As the store says.
    pub partition: PartitionId,
    /// Second in which it was written.
    pub written: u64,
    /// Hash of all its bytes.
    content: u64,
    /// Whether the system properties in the body are those the store says.
    is_stamped: bool,
}

impl Seen {
    /// Reads the version from an item.
    #[must_use]
    pub fn of(item: &Item) -> Seen {
        let bytes = item.feed_bytes();
        let number = |name: &str| {
            let span = body::get(bytes, &[name])?;
            std::str::from_utf8(span.text(bytes)).ok()?.parse::<i64>().ok()
        };
        let text = |name: &str| Some(body::get(bytes, &[name])?.as_str(bytes)?.into_owned());
        let unsigned = |name: &str| number(name).and_then(|number| u64::try_from(number).ok());
        let etag = item.etag();
        Seen {
            token: unsigned("w").unwrap_or(0),
            ttl: number("ttl").and_then(|ttl| i32::try_from(ttl).ok()).unwrap_or(0),
            unique: unsigned("u").unwrap_or(0),
            etag,
            lsn: item.lsn(),
            partition: item.partition(),
            written: item.timestamp().as_seconds(),
            content: Fnv::of(bytes),
            is_stamped: text("_etag") == Some(etag.to_string())
                && unsigned("_lsn") == Some(item.lsn().get())
                && unsigned("_ts") == Some(item.timestamp().as_seconds()),
        }
    }

    /// Returns the properties that the model needs.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { token: self.token, ttl: self.ttl, unique: self.unique }
    }

    /// Reads the version from a change; `None` for a delete.
    #[must_use]
    pub fn of_change(change: &Change) -> Option<Seen> {
        change.item().as_ref().map(Seen::of)
    }
}

/// What is known of a version.
#[derive(Clone, Debug)]
pub struct Version {
    /// The item it is of.
    pub key: Key,
    /// The call that makes it.
    pub call: usize,
    /// When that call was made.
    pub invoked: Moment,
    /// The first sighting.
    pub seen: Option<Seen>,
    /// The event at which it was first seen or acknowledged.
    pub known_at: Option<u64>,
    /// Whether a power cut took it. Its etag may name another version then.
    pub is_lost: bool,
}

/// All versions, by token and by etag.
#[derive(Debug, Default)]
pub(super) struct Versions {
    by_token: BTreeMap<Token, Version>,
    by_etag: BTreeMap<Etag, Token>,
}

impl Versions {
    pub(super) fn expect(&mut self, token: Token, key: Key, call: usize, invoked: Moment) {
        let version = Version { key, call, invoked, seen: None, known_at: None, is_lost: false };
        self.by_token.insert(token, version);
    }

    pub(super) fn get(&self, token: Token) -> Option<&Version> {
        self.by_token.get(&token)
    }

    pub(super) fn token_of(&self, etag: Etag) -> Option<Token> {
        self.by_etag.get(&etag).copied()
    }

    /// Returns every version that was seen and not lost in a power cut.
    pub(super) fn seen(&self) -> impl Iterator<Item = (&Version, &Seen)> {
        let left = self.by_token.values().filter(|version| !version.is_lost);
        left.filter_map(|version| Some((version, version.seen.as_ref()?)))
    }

    /// Records that a power cut took a version: it must not be seen again, and its etag is free.
    pub(super) fn lose(&mut self, token: Token) {
        if let Some(version) = self.by_token.get_mut(&token) {
            version.is_lost = true;
        }
        self.by_etag.retain(|_, known| *known != token);
    }

    /// Links token and etag, and checks that both mean the same as before.
    pub(super) fn meet(&mut self, key: Key, seen: &Seen, event: u64) -> Checked {
        let one = Invariant::AnEtagNamesOneContent;
        require(seen.is_stamped, one, || format!("{key}: the body does not carry {seen:?}"))?;
        let known = self.by_etag.insert(seen.etag, seen.token);
        require(known.is_none_or(|token| token == seen.token), one, || {
            format!("{key}: {} was version {known:?} and is now {}", seen.etag, seen.token)
        })?;
        let Some(version) = self.by_token.get_mut(&seen.token) else {
            let what = format!("{key}: version {} was written by nobody", seen.token);
            return require(false, one, || what);
        };
        require(version.key == key, one, || {
            format!("version {} is of {}, not of {key}", seen.token, version.key)
        })?;
        require(!version.is_lost, Invariant::APowerCutLeavesAPrefix, || {
            format!("{key}: version {} was lost by a power cut and is there again", seen.token)
        })?;
        version.known_at.get_or_insert(event);
        let before = *version.seen.get_or_insert(*seen);
        require(before == *seen, one, || {
            format!("{key}: version {} was {before:?} and is now {seen:?}", seen.token)
        })
    }
}
