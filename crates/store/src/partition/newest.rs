//! A list of changes with look-up of the newest value of each key.
//!
//! Used for the changes of one transaction. Nearly all transactions are a single operation, for which a
//! linear search is cheapest. A script may make thousands; then the list gets an index. Never removes an
//! entry.

use crate::keys::Key;
use std::collections::HashMap;

/// Entries that are searched without an index.
const LINEAR_MAX: usize = 16;

pub(super) struct Newest<T> {
    list: Vec<(Key, T)>,
    /// Position of the newest value of each key; empty while the list is short.
    index: HashMap<Key, usize>,
}

impl<T> Default for Newest<T> {
    fn default() -> Newest<T> {
        Newest { list: Vec::new(), index: HashMap::new() }
    }
}

impl<T> Newest<T> {
    pub(super) fn push(&mut self, key: Key, value: T) {
        if self.list.len() == LINEAR_MAX {
            let known = self.list.iter().enumerate();
            self.index = known.map(|(place, (key, _))| (key.clone(), place)).collect();
        }
        if self.list.len() >= LINEAR_MAX {
            self.index.insert(key.clone(), self.list.len());
        }
        self.list.push((key, value));
    }

    pub(super) fn get(&self, key: &Key) -> Option<&T> {
        if self.index.is_empty() {
            return self.list.iter().rev().find(|(known, _)| known == key).map(|(_, value)| value);
        }
        self.index.get(key).and_then(|place| self.list.get(*place)).map(|(_, value)| value)
    }

    /// All entries, the oldest first.
    pub(super) fn into_changes(self) -> impl Iterator<Item = (Key, T)> {
        self.list.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_value_is_found_in_short_lists_and_in_long_ones() {
        for count in [1, LINEAR_MAX - 1, LINEAR_MAX, LINEAR_MAX + 1, 5 * LINEAR_MAX] {
            let mut newest = Newest::default();
            for number in 0..count {
                // In the longer lists every key is written at least twice.
                let name = u8::try_from(number % 10).unwrap();
                newest.push(Key::from_slice(&[name]), number);
            }
            for name in 0..10_u8 {
                let last = (0..count).rev().find(|number| number % 10 == usize::from(name));
                assert_eq!(newest.get(&Key::from_slice(&[name])).copied(), last, "of {count}");
            }
            assert_eq!(newest.into_changes().count(), count);
        }
    }
}
