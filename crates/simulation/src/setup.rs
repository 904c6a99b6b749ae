//! Draws the properties of a world from a seed.
//!
//! A [`Profile`] holds probabilities; each promise has one that makes the faults it covers likely.
//! A [`Setup`] is the result for one seed: sizes, policies, tasks.

use crate::model::{Key, Rules};
use crate::sabotage::Sabotage;
use headwater_model::{Epk, KeyRange, PartitionKey, PartitionKeyDefinition};
use headwater_runtime::Random;
use headwater_store::{ContainerDefinition, Durability, Options};
use std::time::Duration;

/// Chances, in percent unless said otherwise.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The promise, which is also the name of its test.
    pub promise: &'static str,
    /// Write calls that are batches.
    pub batches: u64,
    /// Worlds with a time to live.
    pub expiring: u64,
    /// Worlds with a unique key.
    pub unique: u64,
    /// Worlds that keep all versions for a while.
    pub all_versions: u64,
    /// Of those, worlds in which a policy of the container sets the retention, not the store's options.
    pub policies: u64,
    /// Worlds in which ranges are split and merged all the time.
    pub reshaping: u64,
    /// Worlds with a bad network between writers and logs.
    pub bad_network: u64,
    /// Phases in which syncs fail for a while.
    pub failing_syncs: u64,
    /// Phases in which the disk is full for a while.
    pub full_disks: u64,
    /// Phases in which the clock is changed.
    pub clock_changes: u64,
    /// Worlds with durability `os`, in which a power cut takes acknowledged writes.
    pub os: u64,
    /// Pages of one, two or three changes.
    pub tiny_pages: u64,
    /// Relative weights of the ways in which a phase ends, not in percent.
    pub endings: Endings,
    /// What is broken on purpose, if anything.
    pub sabotage: Option<Sabotage>,
}

/// Weights of the ways in which a phase ends.
#[derive(Clone, Copy, Debug)]
pub struct Endings {
    /// All tasks finish.
    pub quiet: u64,
    /// The store is closed and reopened.
    pub close: u64,
    /// The process is killed.
    pub kill: u64,
    /// The power is cut, possibly in the middle of a disk operation.
    pub power_cut: u64,
}

impl Profile {
    /// Creates a profile with some of everything that does not make calls fail.
    #[must_use]
    pub fn new(promise: &'static str) -> Profile {
        Profile {
            promise,
            batches: 25,
            expiring: 40,
            unique: 30,
            all_versions: 50,
            policies: 50,
            reshaping: 50,
            bad_network: 15,
            failing_syncs: 0,
            full_disks: 0,
            clock_changes: 30,
            os: 20,
            tiny_pages: 50,
            endings: Endings { quiet: 2, close: 2, kill: 3, power_cut: 3 },
            sabotage: None,
        }
    }

    /// Returns the profile with a sabotage.
    #[must_use]
    pub fn sabotaged(mut self, sabotage: Sabotage) -> Profile {
        self.sabotage = Some(sabotage);
        self
    }
}

/// A partition key of the world.
#[derive(Clone, Debug)]
pub struct KeyInfo {
    /// The value in the body.
    pub text: String,
    /// The value for the store.
    pub key: PartitionKey,
    /// Its hash.
    pub epk: Epk,
}

/// The properties of one world.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The profile it was drawn from.
    pub profile: Profile,
    /// Partitions at the beginning.
    pub partitions: u32,
    /// The options of the store.
    pub options: Options,
    /// The policies of the container.
    pub rules: Rules,
    /// How long all versions are kept; zero for not at all.
    pub retention: Duration,
    /// Whether the container's policy sets the retention, or the store's options.
    pub has_policy: bool,
    /// Whether the size limit of history may drop versions before their retention ends.
    pub is_history_bounded: bool,
    /// Partition keys.
    pub keys: Vec<KeyInfo>,
    /// Number of ids per partition key.
    pub ids: usize,
    /// Number of tasks that write.
    pub writers: usize,
    /// Number of calls per writer and phase.
    pub calls: u64,
    /// Number of phases.
    pub phases: u64,
    /// Whether ranges are split and merged.
    pub is_reshaping: bool,
    /// Whether logs lose, repeat and delay requests and answers.
    pub has_bad_network: bool,
    /// The longest a log takes to answer.
    pub log_pause: Duration,
}

/// Two steps at most, so that most keys of a world are in different partitions.
const KEYS_MAX: u64 = 8;

impl Setup {
    /// Draws a world.
    #[must_use]
    pub fn draw(profile: &Profile, random: &mut Random) -> Setup {
        let keys = 2 + random.below(KEYS_MAX - 1);
        let default_ttl = random.chance(profile.expiring).then(|| match random.below(3) {
            0 => -1,
            _ => 2 + i32::try_from(random.below(40)).unwrap_or(0),
        });
        let retention = if random.chance(profile.all_versions) {
            Duration::from_secs(60 * (1 + random.below(10)))
        } else {
            Duration::ZERO
        };
        let mut setup = Setup {
            profile: profile.clone(),
            partitions: 1 + u32::try_from(random.below(4)).unwrap_or(0),
            options: draw_options(profile, random),
            has_policy: true,
            is_history_bounded: false,
            rules: Rules { default_ttl, has_unique_keys: random.chance(profile.unique) },
            retention,
            keys: (0..keys).map(key_info).collect(),
            ids: 1 + random.index(5),
            writers: 1 + random.index(5),
            calls: 10 + random.below(40),
            phases: 2 + random.below(4),
            is_reshaping: random.chance(profile.reshaping),
            has_bad_network: random.chance(profile.bad_network),
            log_pause: Duration::from_micros(*random.pick(&[0, 100, 2_000, 20_000])),
        };
        // Drawn from a copy, so that the other properties of a seed stay as they were.
        setup.draw_history(&mut random.clone());
        setup.draw_split(&mut random.clone());
        setup
    }

    /// Draws the size above which the store splits ranges.
    fn draw_split(&mut self, random: &mut Random) {
        let sizes: &[u64] = if self.is_reshaping { &[0, 1 << 10, 4 << 10] } else { &[0] };
        self.options.split_at_bytes = *random.pick(sizes);
    }

    /// Draws where the retention of versions is set, and their size limit.
    fn draw_history(&mut self, random: &mut Random) {
        let is_kept = self.profile.sabotage != Some(Sabotage::VersionsAreNotKept);
        self.has_policy = random.chance(self.profile.policies);
        let by_options = !self.has_policy && !self.retention.is_zero();
        self.options.history = if by_options && is_kept { self.retention } else { Duration::ZERO };
        self.is_history_bounded = by_options && random.chance(15);
        if self.is_history_bounded {
            self.options.history_bytes_min = *random.pick(&[1 << 10, 8 << 10]);
        }
    }

    /// Returns whether a power cut may take acknowledged writes; see `model/loss.rs`.
    #[must_use]
    pub fn may_lose_writes(&self) -> bool {
        matches!(self.options.durability, Durability::Os)
    }

    /// Returns the keys of all possible items.
    #[must_use]
    pub fn item_keys(&self) -> Vec<Key> {
        let of_key = |pk| (0..self.ids).map(move |id| Key { pk, id });
        (0..self.keys.len()).flat_map(of_key).collect()
    }

    /// Returns the item with this partition key and id, if it is part of this world.
    #[must_use]
    pub fn key_of(&self, partition_key: &PartitionKey, id: &str) -> Option<Key> {
        let pk = self.keys.iter().position(|info| info.key == *partition_key)?;
        let id = id.strip_prefix('i')?.parse().ok()?;
        Some(Key { pk, id })
    }

    /// Returns the hash of an item's partition key.
    #[must_use]
    pub fn epk(&self, key: Key) -> &[u8] {
        self.keys[key.pk].epk.as_bytes()
    }

    /// Draws the hashes between two partition keys of the world, or all hashes.
    #[must_use]
    pub fn some_hashes(&self, random: &mut Random) -> KeyRange {
        let one = random.pick(&self.keys).epk.clone();
        let two = random.pick(&self.keys).epk.clone();
        KeyRange::new(one.clone().min(two.clone()), one.max(two))
            .unwrap_or_else(|_| KeyRange::full())
    }

    /// Returns the definition of the container.
    ///
    /// # Panics
    /// Never: the definition is a constant.
    #[must_use]
    pub fn definition(&self) -> ContainerDefinition {
        let mut definition =
            ContainerDefinition::new("c", "/pk").expect("a valid id and a valid path");
        let sabotage = self.profile.sabotage;
        if let Some(ttl) = self.rules.default_ttl {
            let longer = i32::from(sabotage == Some(Sabotage::ItemsLiveLonger)) * 1_000;
            definition = definition.with_default_ttl(if ttl > 0 { ttl + longer } else { ttl });
        }
        if self.rules.has_unique_keys && sabotage != Some(Sabotage::NoUniqueKeys) {
            definition = definition.with_unique_key(&["/u"]);
        }
        let kept = sabotage != Some(Sabotage::VersionsAreNotKept);
        if !self.retention.is_zero() && self.has_policy && kept {
            definition = definition.with_all_versions(self.retention);
        }
        definition
    }
}

fn key_info(number: u64) -> KeyInfo {
    let text = format!("k{number}");
    let key = PartitionKey::from(text.as_str());
    let definition = PartitionKeyDefinition::hash("/pk").expect("a valid path");
    let epk = definition.epk(&key).expect("one value for one path");
    KeyInfo { text, key, epk }
}

fn draw_options(profile: &Profile, random: &mut Random) -> Options {
    let mut options = Options::default();
    // Failing syncs need a durability that syncs.
    match profile.sabotage {
        Some(sabotage) => options.durability = sabotage.durability(),
        None if profile.failing_syncs == 0 && random.chance(profile.os) => {
            options.durability = Durability::Os;
        }
        None => {}
    }
    options.segment_bytes = *random.pick(&[2 << 10, 3 << 10, 5 << 10, 16 << 10]);
    options.ring_bytes = *random.pick(&[0, 600, 4 << 10, 1 << 20]);
    options.maintenance_interval = Duration::from_millis(*random.pick(&[0, 0, 7, 60, 1_000]));
    options.compaction_dead_percent = *random.pick(&[1, 25, 60]);
    options
}
