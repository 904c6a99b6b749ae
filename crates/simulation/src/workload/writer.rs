//! Performs writes of every kind, and point reads.

use super::Scene;
use crate::invariants::{Invariant, require};
use crate::model::{Answer, CallId, Condition, Key, Place, Put, Reply, Seen, Shape, Step, Token};
use crate::sabotage::Sabotage;
use crate::witness::explain;
use headwater_log::AppendError;
use headwater_model::{ChangeKind, Etag, PartitionId};
use headwater_runtime::Random;
use headwater_store::{ItemWrite, Patch, StorageError, WriteError, Written};
use std::collections::BTreeMap;
use std::time::Duration;

/// One operation, in the forms for the model and for the store.
struct Planned {
    key: Key,
    step: Step,
    write: ItemWrite,
}

/// The last known versions of items, for conditional writes; they may be out of date.
type Memory = BTreeMap<Key, (Etag, Token)>;

/// Performs the calls of one writer.
pub(super) async fn write(scene: Scene, number: usize, mut random: Random) {
    let mut memory = Memory::new();
    for _ in 0..scene.setup.calls {
        if scene.should_stop() {
            return;
        }
        match random.below(100) {
            0..3 => delete_key(&scene, number, &mut random).await,
            dice if dice < 3 + scene.setup.profile.batches => {
                batch(&scene, number, &mut memory, &mut random).await;
            }
            _ => single(&scene, number, &mut memory, &mut random).await,
        }
        if scene.disk.is_out_of_power() {
            // The power is cut: a writer on this machine must record nothing more.
            std::future::pending::<()>().await;
        }
        scene.rest(&mut random).await;
    }
}

fn draw_key(scene: &Scene, random: &mut Random) -> Key {
    Key { pk: random.index(scene.setup.keys.len()), id: random.index(scene.setup.ids) }
}

fn draw_shape(scene: &Scene, random: &mut Random) -> Shape {
    let token = scene.witness.ask(|known| known.model.next_token());
    let ttl = match scene.setup.rules.default_ttl {
        Some(_) if random.chance(20) => -1,
        Some(_) if random.chance(30) => 1 + i32::try_from(random.below(20)).unwrap_or(0),
        _ => 0,
    };
    let unique = if random.chance(30) { random.below(4) } else { 10 + token };
    Shape { token, ttl, unique }
}

fn body(scene: &Scene, key: Key, shape: &Shape, random: &mut Random) -> String {
    let Shape { token, ttl, unique } = shape;
    let ttl = if *ttl == 0 { String::new() } else { format!(r#","ttl":{ttl}"#) };
    let most = if random.chance(10) { 1_500 } else { 120 };
    let padding = "x".repeat(random.index(most));
    let pk = &scene.setup.keys[key.pk].text;
    let id = key.id;
    format!(
        r#"{{"id":"i{id}","pk":"{pk}","w":{token},"u":{unique},"n":0{ttl},"padding":"{padding}"}}"#
    )
}

fn plan(scene: &Scene, key: Key, memory: &Memory, random: &mut Random) -> Planned {
    let known = memory.get(&key).filter(|_| random.chance(40)).copied();
    let condition = known.map_or(Condition::None, |(_, token)| Condition::Version(token));
    let conditional = |write: ItemWrite| match known {
        Some((etag, _)) => write.if_match(&etag.to_string()),
        None => write,
    };
    let partition_key = scene.setup.keys[key.pk].key.clone();
    let id = format!("i{}", key.id);
    let dice = random.below(100);
    let shape = draw_shape(scene, random);
    let (step, write) = match dice {
        0..25 => {
            let write = ItemWrite::create(body(scene, key, &shape, random));
            (Step::Put(Put::Create, shape, Condition::None), write)
        }
        25..50 => {
            let write = conditional(ItemWrite::upsert(body(scene, key, &shape, random)));
            (Step::Put(Put::Upsert, shape, condition), write)
        }
        50..55 => {
            let write = ItemWrite::upsert(body(scene, key, &shape, random)).if_none_match("*");
            (Step::Put(Put::Upsert, shape, Condition::Absent), write)
        }
        55..70 => {
            let write = conditional(ItemWrite::replace(&id, body(scene, key, &shape, random)));
            (Step::Put(Put::Replace, shape, condition), write)
        }
        70..85 => (Step::Delete(condition), conditional(ItemWrite::delete(partition_key, &id))),
        _ => {
            let unique = random.chance(20).then_some(shape.unique);
            let write = ItemWrite::patch(partition_key, &id, patch(shape.token, unique));
            (Step::Patch { token: shape.token, unique }, write)
        }
    };
    Planned { key, step, write }
}

fn patch(token: Token, unique: Option<u64>) -> Patch {
    let valid = "a constant path and a number";
    let patch = Patch::new().set("/w", token.to_string()).expect(valid);
    let patch = patch.increment("/n", 1).expect(valid);
    match unique {
        Some(unique) => patch.set("/u", unique.to_string()).expect(valid),
        None => patch,
    }
}

/// A call in progress.
struct Started {
    call: CallId,
    partition: Option<PartitionId>,
    event: u64,
}

fn begin(scene: &Scene, number: usize, steps: Vec<(Key, Step)>, is_batch: bool) -> Started {
    let partition = steps.first().and_then(|(key, _)| partition_of(scene, *key));
    let text: Vec<String> = steps.iter().map(|(key, step)| format!("{key} {step:?}")).collect();
    let line = format!("writer {number}: {}", text.join("; "));
    let (call, event) = scene.witness.tell(&scene.runtime, &line, |known| {
        (known.model.invoke(steps, is_batch), known.model.moment().event)
    });
    Started { call, partition, event }
}

fn partition_of(scene: &Scene, key: Key) -> Option<PartitionId> {
    let ranges = scene.store.container.ranges();
    let epk = scene.setup.epk(key);
    ranges.iter().find(|range| range.range.contains(epk)).map(|range| range.id)
}

async fn single(scene: &Scene, number: usize, memory: &mut Memory, random: &mut Random) {
    let Planned { key, step, write } = plan(scene, draw_key(scene, random), memory, random);
    let started = begin(scene, number, vec![(key, step)], false);
    let writing = scene.store.container.write(write);
    if random.chance(1) {
        // The caller gives up; the write may still take effect.
        let patience = Duration::from_micros(random.below(3_000));
        if scene.runtime.timeout(patience, writing).await.is_none() {
            end(scene, &started, "walked away", &Reply::InDoubt);
        } else {
            end(scene, &started, "looked away", &Reply::InDoubt);
        }
        return;
    }
    let Some(result) = scene.call("a write", writing).await else {
        return;
    };
    let result = deny(scene, result, random);
    match result {
        Ok(written) => done(scene, &started, &[(key, step)], &[written], memory, random),
        Err(error) => refused(scene, &started, &[(key, step)], 0, &error),
    }
}

/// Reports a successful write as refused, if the sabotage says so.
fn deny(
    scene: &Scene,
    result: Result<Written, WriteError>,
    random: &mut Random,
) -> Result<Written, WriteError> {
    let lies = scene.setup.profile.sabotage == Some(Sabotage::SuccessIsDenied);
    if lies && result.is_ok() && random.chance(5) {
        return Err(StorageError::from(AppendError::DiskFull).into());
    }
    result
}

async fn batch(scene: &Scene, number: usize, memory: &mut Memory, random: &mut Random) {
    let pk = random.index(scene.setup.keys.len());
    let mut steps = Vec::new();
    let mut writes = Vec::new();
    for _ in 0..1 + random.below(6) {
        let key = Key { pk, id: random.index(scene.setup.ids) };
        if random.chance(8) {
            steps.push((key, Step::Read));
            writes.push(ItemWrite::read(&format!("i{}", key.id)));
            continue;
        }
        let planned = plan(scene, key, memory, random);
        // Mostly operations that succeed; otherwise long batches never would.
        let Planned { step, write, .. } = match planned.step {
            Step::Put(Put::Create | Put::Replace, shape, _) if random.chance(60) => {
                let write = ItemWrite::upsert(body(scene, key, &shape, random));
                Planned { key, step: Step::Put(Put::Upsert, shape, Condition::None), write }
            }
            _ => planned,
        };
        steps.push((key, step));
        writes.push(write);
    }
    let started = begin(scene, number, steps.clone(), true);
    let key = scene.setup.keys[pk].key.clone();
    if scene.setup.profile.sabotage == Some(Sabotage::BatchesAreNotAtomic) {
        one_by_one(scene, &started, &steps, writes, random).await;
        return;
    }
    let Some(result) = scene.call("a batch", scene.store.container.batch(key, writes)).await else {
        return;
    };
    match result {
        Ok(written) => done(scene, &started, &steps, &written, memory, random),
        Err(error) => refused(scene, &started, &steps, error.index, &error.error),
    }
}

/// Performs a batch one operation at a time (a sabotage). Its answers are ignored.
async fn one_by_one(
    scene: &Scene,
    started: &Started,
    steps: &[(Key, Step)],
    writes: Vec<ItemWrite>,
    random: &mut Random,
) {
    for (write, (_, step)) in writes.into_iter().zip(steps) {
        if *step != Step::Read {
            let _ = scene.store.container.write(write).await;
            scene.runtime.sleep(Duration::from_micros(random.below(10_000))).await;
        }
    }
    end(scene, started, "went one by one", &Reply::InDoubt);
}

async fn delete_key(scene: &Scene, number: usize, random: &mut Random) {
    let pk = random.index(scene.setup.keys.len());
    let line = format!("writer {number}: delete all of k{pk}");
    let partition = partition_of(scene, Key { pk, id: 0 });
    let (call, event) = scene.witness.tell(&scene.runtime, &line, |known| {
        (known.model.invoke_delete_key(pk), known.model.moment().event)
    });
    let started = Started { call, partition, event };
    let key = scene.setup.keys[pk].key.clone();
    let deleting = scene.store.container.delete_partition_key(key);
    match scene.call("deleting a partition key", deleting).await {
        None => {}
        Some(Ok(count)) => end(scene, &started, &format!("deleted {count}"), &Reply::KeyDeleted),
        Some(Err(WriteError::Storage(error))) => {
            storage_failed(scene, &started, &error);
        }
        Some(Err(error)) => fail(scene, &error),
    }
}

fn end(scene: &Scene, started: &Started, line: &str, reply: &Reply) {
    let line = format!("call {}: {line}", started.call);
    let checked =
        scene.witness.tell(&scene.runtime, &line, |known| known.model.respond(started.call, reply));
    scene.witness.judge(checked);
}

fn done(
    scene: &Scene,
    started: &Started,
    steps: &[(Key, Step)],
    written: &[Written],
    memory: &mut Memory,
    random: &mut Random,
) {
    check_not_refusing(scene, started, written);
    let mut answers = Vec::with_capacity(written.len());
    for ((key, _), written) in steps.iter().zip(written) {
        let seen = written.item.as_ref().map(Seen::of);
        let mut answer = match (written.change, &seen) {
            (Some(ChangeKind::Create), _) => Answer::Created,
            (Some(ChangeKind::Replace), _) => Answer::Replaced,
            (Some(ChangeKind::Delete), _) => Answer::Deleted,
            (None, Some(seen)) => Answer::Read(seen.token),
            (None, None) => Answer::Silent,
        };
        let mixed_up = scene.setup.profile.sabotage == Some(Sabotage::AnswersAreMixedUp);
        if mixed_up && answer == Answer::Replaced && random.chance(10) {
            answer = Answer::Created;
        }
        if let Some(seen) = &seen {
            memory.insert(*key, (seen.etag, seen.token));
        }
        answers.push((answer, seen));
    }
    let text: Vec<String> = answers
        .iter()
        .map(|(answer, seen)| match seen {
            Some(seen) => format!("{answer:?} at {}:{}", seen.partition, seen.lsn),
            None => format!("{answer:?}"),
        })
        .collect();
    let place = place_of(written);
    end(scene, started, &text.join("; "), &Reply::Done(answers, place));
}

/// Returns the place of a call in its log, if it wrote anything. After a delete the store returns an LSN that is
/// not below that of the entry.
fn place_of(written: &[Written]) -> Option<Place> {
    let mut changes = written.iter().filter(|written| written.change.is_some());
    let any = changes.clone().next()?;
    let exact = changes.find_map(|written| Some(written.item.as_ref()?.lsn()));
    Some(Place {
        partition: any.partition,
        lsn: exact.unwrap_or(any.lsn),
        is_exact: exact.is_some(),
    })
}

/// Checks that a partition that cannot sync, or has refused writes, accepts none.
fn check_not_refusing(scene: &Scene, started: &Started, written: &[Written]) {
    let wrote = written.iter().any(|written| written.change.is_some());
    let partition = written.first().map(|written| written.partition);
    let (failing, refusing) = scene.witness.ask(|known| {
        let faults = &known.faults;
        let failing = faults.syncs_fail_since.is_some_and(|since| since < started.event);
        let refused = partition.and_then(|id| faults.refusing.get(&id).copied());
        (failing, refused.is_some_and(|since| since < started.event))
    });
    let checked =
        require(!wrote || !(failing || refusing), Invariant::AFailedSyncRefusesWrites, || {
            format!("call {} was done by {partition:?} after a failed sync", started.call)
        });
    scene.witness.judge(checked);
}

fn refused(
    scene: &Scene,
    started: &Started,
    steps: &[(Key, Step)],
    index: usize,
    error: &WriteError,
) {
    let answer = match error {
        WriteError::AlreadyExists { .. } => Answer::AlreadyExists,
        WriteError::NotFound { .. } => Answer::NotFound,
        WriteError::EtagMismatch { .. } => Answer::Mismatch,
        WriteError::UniqueKey { other, .. } => {
            check_holder(scene, steps.get(index), other);
            Answer::UniqueKey
        }
        WriteError::Storage(error) => return storage_failed(scene, started, error),
        other => return fail(scene, other),
    };
    end(scene, started, &format!("refused {index}: {error}"), &Reply::Refused(index, answer));
}

/// Checks that a unique key refusal names an item that may have had the value.
fn check_holder(scene: &Scene, step: Option<&(Key, Step)>, other: &str) {
    let Some((key, step)) = step else { return };
    let unique = match step {
        Step::Put(_, shape, _) => Some(shape.unique),
        Step::Patch { unique, .. } => *unique,
        _ => None,
    };
    let other = other.strip_prefix('i').and_then(|id| id.parse().ok());
    let (Some(unique), Some(id)) = (unique, other) else { return };
    let holder = Key { pk: key.pk, id };
    let held = scene.witness.ask(|known| known.model.may_have_held(holder, unique));
    let checked = require(held && holder != *key, Invariant::UniqueKeysHold, || {
        format!("{key} was refused the value {unique} because of {holder}, which never had it")
    });
    scene.witness.judge(checked);
}

fn storage_failed(scene: &Scene, started: &Started, error: &StorageError) {
    let line = explain(error);
    let out_of_power = scene.disk.is_out_of_power();
    let faults = scene.witness.ask(|known| {
        let refusing = matches!(error, StorageError::Append(AppendError::Poisoned));
        let mut again = false;
        if let (true, Some(partition)) = (refusing, started.partition) {
            let first = known
                .faults
                .refusing
                .entry(partition)
                .or_insert(started.event.max(known.model.moment().event));
            again = *first < started.event;
        }
        (known.faults.any || out_of_power, known.faults.full_disk, again)
    });
    let (excused, disk_was_full, refused_before) = faults;
    let reply = match error {
        StorageError::Append(AppendError::DiskFull) if disk_was_full || !excused => Reply::NoEffect,
        _ if refused_before => Reply::NoEffect,
        _ => Reply::InDoubt,
    };
    end(scene, started, &line, &reply);
    let sabotaged = scene.setup.profile.sabotage == Some(Sabotage::SuccessIsDenied);
    if !excused && !sabotaged {
        scene.witness.object(Invariant::NothingFailsWithoutAFault, line);
    }
}

fn fail(scene: &Scene, error: &WriteError) {
    scene.witness.object(Invariant::NothingFailsWithoutAFault, explain(error));
}

/// Reads items one by one.
pub(super) async fn look(scene: Scene, mut random: Random) {
    let mut last: BTreeMap<Key, Option<Seen>> = BTreeMap::new();
    for _ in 0..2 * scene.setup.calls {
        if scene.should_stop() {
            return;
        }
        let key = draw_key(&scene, &mut random);
        let Some(seen) = look_at(&scene, key).await else {
            return;
        };
        let stale = scene.setup.profile.sabotage == Some(Sabotage::ReadsAreStale);
        let before = last.insert(key, seen).filter(|_| stale && random.chance(50));
        observe(&scene, key, before.unwrap_or(seen), Invariant::ReadsShowTheNewestVersion);
        scene.rest(&mut random).await;
    }
}

/// Performs one point read; `None` if it failed.
pub(crate) async fn look_at(scene: &Scene, key: Key) -> Option<Option<Seen>> {
    let partition_key = scene.setup.keys[key.pk].key.clone();
    match scene.store.container.read(partition_key, &format!("i{}", key.id)).await {
        Ok(item) => Some(item.as_ref().map(Seen::of)),
        Err(error) => {
            let what = format!("reading {key}: {}", explain(&error));
            scene.witness.object(Invariant::NothingFailsWithoutAFault, what);
            None
        }
    }
}

/// Reports the result of a point read to the model.
pub(crate) fn observe(scene: &Scene, key: Key, seen: Option<Seen>, otherwise: Invariant) {
    let line = match &seen {
        Some(seen) => format!("{key} is version {}", seen.token),
        None => format!("{key} is not there"),
    };
    let checked = scene
        .witness
        .tell(&scene.runtime, &line, |known| known.model.observe(key, seen.as_ref(), otherwise));
    scene.witness.judge(checked);
}
