//! Resolves appends with an unknown outcome by reading the first slot of the group.

use crate::PartitionLog;
use crate::entry::Group;
use crate::error::AppendError;
use headwater_runtime::Runtime;
use std::time::Duration;

/// The most attempts before `Undecided` is returned.
const ATTEMPTS_MAX: u32 = 200;
/// The first pause between two attempts. It doubles up to a hundred times this value.
const PAUSE: Duration = Duration::from_millis(1);

/// Appends a group and determines the outcome.
///
/// After a lost answer or a conflict it reads the first slots of the group. If they hold batches of this group,
/// those entries were written and the rest is sent. If the first holds another batch, the group was rejected.
/// If it is empty, the same bytes are sent again.
///
/// # Errors
/// `Conflict` when another writer has the slot, `Undecided` when all attempts fail, and any other error of the
/// log.
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
            // This attempt wrote nothing, but an earlier one may still arrive.
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
    /// The first entries of the group are written; this is their number.
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
