//! What kind of world a seed makes: chances first, then the dice.
//!
//! A [`Profile`] says how often things happen; each promise has one that makes its own danger likely.
//! A [`Setup`] is what one seed drew from it: sizes, policies, who takes part.

use crate::model::{Key, Rules};
use crate::sabotage::Sabotage;
use headwater_model::{Epk, KeyRange, PartitionKey, PartitionKeyDefinition};
use headwater_runtime::Random;
use headwater_store::{ContainerDefinition, Durability, Options};
use std::time::Duration;

/// Chances, in percent unless said otherwise.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The promise this is about; also the name of its test.
    pub promise: &'static str,
    /// Of all write calls, those that are batches.
    pub batches: u64,
    /// Worlds with a time to live.
    pub expiring: u64,
    /// Worlds with a unique key.
    pub unique: u64,
    /// Worlds that keep all versions for a while.
    pub all_versions: u64,
    /// Of those, worlds in which a policy of the container says so and not the store's options.
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
    /// How often a phase ends in one way rather than in another, not in percent.
    pub endings: Endings,
    /// Something is broken on purpose.
    pub sabotage: Option<Sabotage>,
}

/// Weights of the ways in which a phase ends.
#[derive(Clone, Copy, Debug)]
pub struct Endings {
    /// Everybody finishes.
    pub quiet: u64,
    /// The store is closed and opened again.
    pub close: u64,
    /// The process is killed.
    pub kill: u64,
    /// The power goes, in the middle of whatever the disk is doing.
    pub power_cut: u64,
}

impl Profile {
    /// A bit of everything that does not make calls fail.
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

    /// The same with something broken on purpose.
    #[must_use]
    pub fn sabotaged(mut self, sabotage: Sabotage) -> Profile {
        self.sabotage = Some(sabotage);
        self
    }
}

/// A partition key of the world.
#[derive(Clone, Debug)]
pub struct KeyInfo {
    /// As it stands in the body.
    pub text: String,
    /// As the store takes it.
    pub key: PartitionKey,
    /// Its hash.
    pub epk: Epk,
}

/// What one seed drew.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What it drew from.
    pub profile: Profile,
    /// Partitions at the beginning.
    pub partitions: u32,
    /// How the store keeps its data.
    pub options: Options,
    /// What the container promises.
    pub rules: Rules,
    /// How long all versions are kept; zero for not at all.
    pub retention: Duration,
    /// Whether the container's policy says so, or the store's options.
    pub has_policy: bool,
    /// History may take so few bytes that versions go before their time.
    pub is_history_bounded: bool,
    /// Partition keys.
    pub keys: Vec<KeyInfo>,
    /// Ids of each.
    pub ids: usize,
    /// Tasks that write.
    pub writers: usize,
    /// Calls of each in a phase.
    pub calls: u64,
    /// Phases.
    pub phases: u64,
    /// Whether ranges are split and merged.
    pub is_reshaping: bool,
    /// Whether logs answer badly.
    pub has_bad_network: bool,
    /// The longest a log takes to answer.
    pub log_pause: Duration,
}

/// Two steps at most, so that most keys of a world are in different partitions.
const KEYS_MAX: u64 = 8;

impl Setup {
    /// Rolls the dice.
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
        // From a copy, so that a seed stays the world it was in everything else.
        setup.draw_history(&mut random.clone());
        setup.draw_split(&mut random.clone());
        setup
    }

    /// How large ranges grow before the store splits them by itself.
    fn draw_split(&mut self, random: &mut Random) {
        let sizes: &[u64] = if self.is_reshaping { &[0, 1 << 10, 4 << 10] } else { &[0] };
        self.options.split_at_bytes = *random.pick(sizes);
    }

    /// Who says how long versions are kept, and how many bytes they may take.
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

    /// Whether a power cut takes acknowledged writes; see `model/loss.rs`.
    #[must_use]
    pub fn may_lose_writes(&self) -> bool {
        matches!(self.options.durability, Durability::Os)
    }

    /// Every item there can be.
    #[must_use]
    pub fn item_keys(&self) -> Vec<Key> {
        let of_key = |pk| (0..self.ids).map(move |id| Key { pk, id });
        (0..self.keys.len()).flat_map(of_key).collect()
    }

    /// The item with this partition key and id, if it is one of ours.
    #[must_use]
    pub fn key_of(&self, partition_key: &PartitionKey, id: &str) -> Option<Key> {
        let pk = self.keys.iter().position(|info| info.key == *partition_key)?;
        let id = id.strip_prefix('i')?.parse().ok()?;
        Some(Key { pk, id })
    }

    /// The hash of an item's partition key.
    #[must_use]
    pub fn epk(&self, key: Key) -> &[u8] {
        self.keys[key.pk].epk.as_bytes()
    }

    /// Hashes between two partition keys of the world, or all of them.
    #[must_use]
    pub fn some_hashes(&self, random: &mut Random) -> KeyRange {
        let one = random.pick(&self.keys).epk.clone();
        let two = random.pick(&self.keys).epk.clone();
        KeyRange::new(one.clone().min(two.clone()), one.max(two))
            .unwrap_or_else(|_| KeyRange::full())
    }

    /// The container as it is created.
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
    // Failing syncs are about what was synced.
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
