//! The next slot decides: turning an append that may end undecided into one that does not.

use crate::PartitionLog;
use crate::entry::Group;
use crate::error::AppendError;
use headwater_runtime::Runtime;
use std::time::Duration;

/// How often an unanswered append is looked into before the caller is told that it stays undecided.
const ATTEMPTS_MAX: u32 = 200;
/// First pause between two attempts; it doubles up to a hundred times itself.
const PAUSE: Duration = Duration::from_millis(1);

/// Appends a group and finds out what became of it.
///
/// After a lost answer or a conflict it reads the first slot of the group: our own batch there means
/// it was written (or its beginning was: the rest is sent), another's means it was rejected, and
/// nothing means that the same bytes are sent again.
///
/// # Errors
/// `Conflict` when another writer has the slot, `Undecided` when the log did not answer for long, and
/// whatever else the log says.
pub async fn append_decided(
    log: &dyn PartitionLog,
    group: &Group,
    runtime: &Runtime,
) -> Result<(), AppendError> {
    let mut rest = group.clone();
    let mut pause = PAUSE;
    let mut in_doubt = false;
    for _ in 0..ATTEMPTS_MAX {
        let lost = match log.append(rest.clone()).await {
            Ok(()) => return Ok(()),
            Err(error @ (AppendError::Conflict { .. } | AppendError::Undecided)) => error,
            // That this attempt wrote nothing says nothing about an earlier one that is still on its way.
            Err(AppendError::DiskFull | AppendError::Io(_)) if in_doubt => AppendError::Undecided,
            Err(error) => return Err(error),
        };
        in_doubt |= matches!(lost, AppendError::Undecided);
        match written(log, &rest).await {
            Slots::Ours(count) => match rest.without_first(count) {
                None => return Ok(()),
                Some(more) => rest = more,
            },
            Slots::Another => {
                return match lost {
                    AppendError::Conflict { .. } => Err(lost),
                    _ => Err(AppendError::Conflict {
                        expected: rest.after().lsn,
                        tail: rest.after().lsn.next(),
                    }),
                };
            }
            Slots::Free => {}
        }
        runtime.sleep(pause).await;
        pause = (pause * 2).min(PAUSE * 100);
    }
    Err(AppendError::Undecided)
}

enum Slots {
    /// So many entries of the group are there.
    Ours(usize),
    Another,
    Free,
}

async fn written(log: &dyn PartitionLog, group: &Group) -> Slots {
    for (count, entry) in group.entries().iter().enumerate() {
        match log.entry(entry.lsn).await {
            Ok(Some(found)) if found.batch == entry.batch => {}
            Ok(Some(_)) if count == 0 => return Slots::Another,
            _ if count == 0 => return Slots::Free,
            _ => return Slots::Ours(count),
        }
    }
    Slots::Ours(group.entries().len())
}
