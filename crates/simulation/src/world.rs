//! One simulated machine: its disk, its index, its clock, and the store on it.
//!
//! ```text
//! open ─► work ─► close ─► open …            all tasks finish
//!           └───► kill ──► open …            tasks vanish; the disk keeps all written bytes
//!           └───► power cut ─► open …        tasks vanish, and some unsynced bytes and index rows
//! ```
//!
//! With durability `os` a power cut takes acknowledged writes; `model/loss.rs` says which.
//!
//! The tasks that use the store run on the machine and vanish with it, like a program that embeds the store.
//! The power may be cut again while the store is being opened.

use crate::faults;
use crate::invariants::Invariant;
use crate::model::{CutOutcome, Key};
use crate::sabotage::Sabotage;
use crate::setup::Setup;
use crate::witness::{FaultsSoFar, Witness};
use headwater_log::disk::{Disk, MemoryDisk};
use headwater_model::{KeyRange, Lsn};
use headwater_runtime::{Node, Random, Runtime, Simulation};
use headwater_store::{Account, Container, Environment, MemoryIndex, RangeInfo};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Time limit for opening a store of a few kilobytes, on any clock.
const OPENING_MAX: Duration = Duration::from_secs(600);

/// A simulated machine with a store.
pub struct World {
    pub(crate) setup: Arc<Setup>,
    pub(crate) witness: Witness,
    pub(crate) random: Random,
    pub(crate) disk: MemoryDisk,
    index: MemoryIndex,
    simulation: Simulation,
    node: Node,
    clock_offset: i64,
    store: Option<Store>,
    /// The ranges of the store when it was last open.
    ranges: Vec<RangeInfo>,
    /// The aftermath of a power cut, until it is taken.
    aftermath: Option<Aftermath>,
    /// An index that a sabotage restores.
    old_index: Option<MemoryIndex>,
}

/// The state after a power cut in a store with durability `os`.
#[derive(Debug)]
pub(crate) struct Aftermath {
    /// The end of the log of each range.
    pub(crate) ends: Vec<(KeyRange, Lsn)>,
    /// Items of which an older version may be the newest again.
    pub(crate) undone: BTreeSet<Key>,
}

/// An open store.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) account: Account,
    pub(crate) container: Container,
}

impl World {
    /// Creates a machine with an empty disk.
    #[must_use]
    pub fn new(simulation: &Simulation, setup: Arc<Setup>, witness: Witness) -> World {
        World {
            setup,
            witness,
            random: simulation.random(),
            disk: MemoryDisk::with_faults(),
            index: MemoryIndex::with_history(),
            node: simulation.node(),
            simulation: simulation.clone(),
            clock_offset: 0,
            store: None,
            ranges: Vec::new(),
            aftermath: None,
            old_index: None,
        }
    }

    /// Returns the runtime of the machine.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.node.runtime()
    }

    pub(crate) fn store(&self) -> Option<Store> {
        self.store.clone()
    }

    /// Writes a line into the history.
    pub(crate) fn note(&self, line: &str) {
        self.witness.tell(&self.runtime(), line, |_| ());
    }

    /// Moves the machine's clock.
    pub(crate) fn change_clock(&mut self, millis: i64) {
        self.note("the clock is about to change");
        self.clock_offset += millis;
        self.node.set_clock_offset_millis(self.clock_offset);
        self.note(&format!("the clock is changed by {millis}ms"));
    }

    /// Creates the container on the empty disk.
    pub(crate) async fn create(&mut self) {
        let Some(account) = self.open_account().await else {
            return;
        };
        let created = async {
            let database = account.create_database("d").await?;
            database.create_container_with(self.setup.definition(), self.setup.partitions).await
        };
        match created.await {
            Ok(container) => self.store = Some(Store { account, container }),
            Err(error) => {
                self.witness.object(Invariant::NothingFailsWithoutAFault, error.to_string());
            }
        }
    }

    /// Starts the machine and opens the store. Retries if the power is cut meanwhile.
    pub(crate) async fn open(&mut self) {
        loop {
            self.node = self.simulation.node();
            self.node.set_clock_offset_millis(self.clock_offset);
            let unsteady = self.random.chance(25);
            if unsteady {
                self.disk.cut_power_after(self.random.below(60));
            }
            let opened = self.open_account().await;
            if self.disk.is_out_of_power() {
                self.note("the power goes while the store is opened");
                self.node.kill();
                drop(opened);
                self.lose_power();
                continue;
            }
            self.disk.cut_power_after(u64::MAX);
            let Some(account) = opened else {
                return;
            };
            let found = async { account.database("d").await?.container("c").await };
            match found.await {
                Ok(container) => {
                    self.store = Some(Store { account, container });
                    self.rewind();
                }
                Err(error) => self.witness.object(Invariant::TheStoreOpens, error.to_string()),
            }
            return;
        }
    }

    /// Reports to the model that the store is open, and keeps the aftermath of a power cut.
    fn rewind(&mut self) {
        let Some(CutOutcome { ends, undone }) = self.witness.ask(|known| known.model.rewind())
        else {
            return;
        };
        let end_of = |range: &RangeInfo| Some((range.range.clone(), *ends.get(&range.id)?));
        let ends = self.ranges.iter().filter_map(end_of).collect();
        self.aftermath = Some(Aftermath { ends, undone });
    }

    /// Takes the aftermath of the last power cut, if there is one.
    pub(crate) fn take_aftermath(&mut self) -> Option<Aftermath> {
        self.aftermath.take()
    }

    async fn open_account(&mut self) -> Option<Account> {
        let runtime = self.runtime();
        self.witness.tell(&runtime, "open", |known| {
            known.model.reopened();
            known.faults = FaultsSoFar::default();
        });
        let environment = Environment {
            runtime: runtime.clone(),
            disk: Arc::new(self.disk.clone()),
            index: Some(self.index.clone()),
            wrap_log: Some(faults::log_wrapper(&self.setup, &runtime, &self.witness)),
        };
        let opening = Account::open_in(environment, Path::new("store"), self.setup.options.clone());
        match runtime.timeout(OPENING_MAX, opening).await {
            Some(Ok(account)) => {
                let quarantined = account.quarantined();
                if let Some(first) = quarantined.first().filter(|_| !self.disk.is_out_of_power()) {
                    self.witness.object(Invariant::TheStoreOpens, first.to_string());
                }
                Some(account)
            }
            _ if self.disk.is_out_of_power() => None,
            Some(Err(error)) => {
                self.witness.object(Invariant::TheStoreOpens, error.to_string());
                None
            }
            None => {
                self.witness.object(Invariant::EveryCallEnds, "opening never ended");
                None
            }
        }
    }

    /// Closes the store cleanly.
    pub(crate) async fn close(&mut self) {
        let Some(store) = self.store.take() else {
            return;
        };
        self.ranges = store.container.ranges();
        self.note("close");
        let failed = match self.runtime().timeout(OPENING_MAX, store.account.close()).await {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => {
                self.witness.object(Invariant::EveryCallEnds, "closing never ended");
                None
            }
        };
        let excused = self.witness.ask(|known| known.faults.any);
        if let Some(error) = failed.filter(|_| !excused) {
            self.witness.object(Invariant::NothingFailsWithoutAFault, error);
        }
        self.die("closed");
        self.heal_disk();
    }

    /// Kills the process; the disk keeps all written bytes.
    pub(crate) fn kill(&mut self) {
        self.die("kill");
        self.heal_disk();
        match self.random.below(20) {
            0..3 => self.index.clear(),
            3..8 => self.index.crash(&mut self.random),
            _ => {}
        }
        self.sabotage_files();
    }

    /// Cuts the power.
    pub(crate) fn cut_power(&mut self) {
        self.die("the power is cut");
        let old_index = self.old_index.take().or_else(|| {
            let is_asked = self.setup.profile.sabotage == Some(Sabotage::AnOldIndexComesBack);
            self.old_index = is_asked.then(|| self.index.fork());
            None
        });
        self.lose_power();
        self.sabotage_files();
        if let Some(old) = old_index {
            self.index = old;
        }
    }

    /// Ends all tasks on the machine.
    fn die(&mut self, how: &str) {
        self.witness.tell(&self.runtime(), how, |known| known.model.crash());
        self.node.kill();
        if let Some(store) = self.store.take() {
            self.ranges = store.container.ranges();
        }
    }

    fn lose_power(&mut self) {
        self.disk.crash(&mut self.random);
        if self.setup.may_lose_writes() {
            self.witness.ask(|known| known.model.power_was_cut());
        }
        match self.random.below(20) {
            0..3 => self.index.clear(),
            3..6 => {}
            _ => self.index.crash(&mut self.random),
        }
    }

    fn heal_disk(&mut self) {
        self.disk.fail_syncs(false);
        self.disk.set_room(u64::MAX);
        self.disk.cut_power_after(u64::MAX);
    }

    fn sabotage_files(&mut self) {
        match self.setup.profile.sabotage {
            Some(Sabotage::TheTailIsLost | Sabotage::TheTailIsWrittenAgain) => {
                self.index.clear();
                self.cut_tails();
            }
            Some(Sabotage::AFileIsMissing) => {
                let gone = self.files_named("MANIFEST").into_iter().next_back();
                if let Some((path, _)) = gone {
                    // The result is ignored: the damage need not succeed in every world.
                    let _ = self.disk.remove(&path);
                }
            }
            _ => {}
        }
    }

    fn files_named(&self, name: &str) -> Vec<(PathBuf, usize)> {
        let containers = Path::new("store").join("containers");
        let mut files = self.disk.files();
        files.retain(|(path, _)| {
            let text = path.to_string_lossy();
            path.starts_with(&containers) && text.ends_with(name)
        });
        files
    }

    /// Truncates the newest segment of every partition.
    fn cut_tails(&mut self) {
        let segments = self.files_named(".seg");
        for (index, (path, length)) in segments.iter().enumerate() {
            let next = segments.get(index + 1).map(|(next, _)| next.parent());
            let is_newest = next != Some(path.parent());
            if is_newest && let Ok(file) = self.disk.open(path, false) {
                let left = length.saturating_sub(self.random.index(length / 2 + 1));
                // The result is ignored here too.
                let _ = file.truncate(left as u64).and_then(|()| file.sync());
            }
        }
    }
}
