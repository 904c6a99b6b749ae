//! Injects faults: slow and unreliable logs, clock jumps, full disks, failed syncs, and power cuts in the middle
//! of disk operations.

use crate::setup::Setup;
use crate::witness::Witness;
use headwater_log::disk::MemoryDisk;
use headwater_log::{AppendError, Entry, Faults, FaultyLog, Group, PartitionLog, ReadError, Tail};
use headwater_model::Lsn;
use headwater_runtime::{BoxFuture, Random, Runtime};
use headwater_store::LogWrapper;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Returns the wrapper that injects faults between writers and their logs.
pub(crate) fn log_wrapper(setup: &Arc<Setup>, runtime: &Runtime, witness: &Witness) -> LogWrapper {
    let (setup, runtime, witness) = (setup.clone(), runtime.clone(), witness.clone());
    Arc::new(move |local| {
        if setup.may_lose_writes() {
            let (partition, end) = (local.partition(), local.local_tail().lsn);
            let line = format!("the log of partition {partition} ends at {end}");
            let checked =
                witness.tell(&runtime, &line, |known| known.model.log_was_opened(partition, end));
            witness.judge(checked);
        }
        let mut log: Arc<dyn PartitionLog> = Arc::new(local);
        if setup.has_bad_network {
            let random = Random::seeded(runtime.random());
            log = Arc::new(FaultyLog::new(log, Faults::many(), random));
        }
        if let Some(sabotage) = setup.profile.sabotage {
            log = sabotage.wrap(log, &runtime);
        }
        if setup.log_pause.is_zero() {
            return log;
        }
        let random = Arc::new(Mutex::new(Random::seeded(runtime.random())));
        Arc::new(SlowLog { inner: log, runtime: runtime.clone(), random, most: setup.log_pause })
    })
}

/// A log with delays before and after each write. The delays let other tasks interleave: requests
/// form groups, readers read, machines crash with an append written but not acknowledged.
struct SlowLog {
    inner: Arc<dyn PartitionLog>,
    runtime: Runtime,
    random: Arc<Mutex<Random>>,
    most: Duration,
}

impl SlowLog {
    fn pause(&self) -> BoxFuture<()> {
        let most = u64::try_from(self.most.as_micros()).unwrap_or(0);
        let mut random = self.random.lock();
        let micros = if random.chance(30) { 0 } else { random.below(most) };
        self.runtime.sleep(Duration::from_micros(micros))
    }
}

impl PartitionLog for SlowLog {
    fn append(&self, group: Group) -> BoxFuture<Result<(), AppendError>> {
        let (before, after, inner) = (self.pause(), self.pause(), self.inner.clone());
        Box::pin(async move {
            before.await;
            let result = inner.append(group).await;
            after.await;
            result
        })
    }

    fn entry(&self, lsn: Lsn) -> BoxFuture<Result<Option<Entry>, ReadError>> {
        self.inner.entry(lsn)
    }

    fn tail(&self) -> BoxFuture<Result<Tail, ReadError>> {
        self.inner.tail()
    }
}

/// The faults of one phase: those planned and those active.
pub(crate) struct Troubles {
    failing_syncs: Stage,
    full_disk: Stage,
    clock_changes: u64,
}

/// The stage of a fault, which occurs once and ends by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Never,
    Expected,
    Here,
    Over,
}

impl Troubles {
    pub(crate) fn draw(setup: &Setup, random: &mut Random) -> Troubles {
        let mut once = |percent| {
            if random.chance(percent) { Stage::Expected } else { Stage::Never }
        };
        let failing_syncs = once(setup.profile.failing_syncs);
        let full_disk = once(setup.profile.full_disks);
        let clock_changes =
            if random.chance(setup.profile.clock_changes) { 1 + random.below(3) } else { 0 };
        Troubles { failing_syncs, full_disk, clock_changes }
    }

    /// Returns whether the store must be reopened to recover from the faults.
    pub(crate) fn need_reopening(&self) -> bool {
        self.failing_syncs != Stage::Never || self.full_disk != Stage::Never
    }

    /// Returns by how much to move the clock now, if at all.
    pub(crate) fn clock_change(&mut self, random: &mut Random) -> Option<i64> {
        if self.clock_changes == 0 || !random.chance(5) {
            return None;
        }
        self.clock_changes -= 1;
        let seconds = |most: u64, random: &mut Random| {
            i64::try_from(1000 * (1 + random.below(most)) + random.below(1000)).unwrap_or(0)
        };
        Some(match random.below(3) {
            0 => -seconds(100, random),
            1 => seconds(10, random),
            _ => seconds(600, random),
        })
    }

    /// Starts and ends faults.
    pub(crate) fn tick(
        &mut self,
        disk: &MemoryDisk,
        witness: &Witness,
        runtime: &Runtime,
        random: &mut Random,
    ) {
        match self.failing_syncs {
            Stage::Expected if random.chance(10) => {
                self.failing_syncs = Stage::Here;
                disk.fail_syncs(true);
                witness.tell(runtime, "syncs begin to fail", |known| {
                    known.faults.any = true;
                    known.faults.syncs_fail_since = Some(known.model.moment().event);
                });
            }
            Stage::Here if random.chance(5) => {
                self.failing_syncs = Stage::Over;
                disk.fail_syncs(false);
                witness.tell(runtime, "syncs work again", |known| {
                    known.faults.syncs_fail_since = None;
                });
            }
            _ => {}
        }
        match self.full_disk {
            Stage::Expected if random.chance(10) => {
                self.full_disk = Stage::Here;
                let room = random.below(3_000);
                disk.set_room(room);
                witness.tell(runtime, &format!("the disk has room for {room} bytes"), |known| {
                    known.faults.any = true;
                    known.faults.full_disk = true;
                });
            }
            Stage::Here if random.chance(5) => {
                self.full_disk = Stage::Over;
                disk.set_room(u64::MAX);
                witness.tell(runtime, "the disk has room again", |_| ());
            }
            _ => {}
        }
    }
}
