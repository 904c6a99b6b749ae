//! Checks the files of a data directory that no server has open, exports what is readable, and takes
//! damaged partitions from a backup.

use super::Findings;
use crate::data;
use crate::output::{bytes, say};
use crate::place::BackupPlace;
use anyhow::{Context, Result};
use headwater_store::{Account, Hole, Options, PartitionReport, repair_catalog, restore_partition};
use std::path::Path;

/// The alternative to stopping a server that has the directory open.
const ASK_THE_SERVER: &str = "ask the running server: `headwater doctor http://HOST:PORT`";

/// Checks every file; exports readable items and takes damaged partitions from a backup if requested.
pub(super) async fn check(
    dir: &Path,
    salvage: Option<&Path>,
    from_backup: Option<&Path>,
    findings: &mut Findings,
) -> Result<()> {
    if let Err(error) = data::ensure_is_one(dir) {
        findings.problem(&format!("{error:#}"));
        return Ok(());
    }
    // Opened first, so that an unusable place fails before every byte is read.
    let from_backup = match from_backup {
        Some(place) => Some(BackupPlace::for_restore(place).await?),
        None => None,
    };
    let damaged = open_and_inspect(dir, salvage, findings).await?;
    let Some(from) = from_backup.filter(|_| !damaged.is_empty()) else { return Ok(()) };
    for report in &damaged {
        restore(dir, &from, report).await?;
    }
    // The files were replaced, so earlier findings no longer apply.
    *findings = Findings::default();
    say(format_args!("checking again"));
    open_and_inspect(dir, None, findings).await.map(drop)
}

/// Opens the directory, reads every byte and exports what is readable. Returns the damaged partitions.
async fn open_and_inspect(
    dir: &Path,
    salvage: Option<&Path>,
    findings: &mut Findings,
) -> Result<Vec<PartitionReport>> {
    let account = match data::open(dir, Options::default(), ASK_THE_SERVER).await {
        Ok(account) => account,
        Err(error) if data::is_in_use(&error) => return Err(error),
        Err(error) => {
            findings.problem(&format!("it cannot be opened: {error:#}"));
            return Ok(Vec::new());
        }
    };
    findings.fine(&format!("{} opens", dir.display()));
    let damaged = inspect(&account, findings)?;
    if let Some(out) = salvage {
        export(&account, out)?;
    }
    account.close().await.context("cannot close the store cleanly; nothing is lost")?;
    Ok(damaged)
}

/// Rebuilds a damaged catalog.
pub(super) async fn repair(dir: &Path) -> Result<()> {
    data::ensure_is_one(dir)?;
    let repaired = match repair_catalog(dir).await {
        Err(error) => Err(data::explain(error, ASK_THE_SERVER)),
        Ok(repaired) => Ok(repaired),
    };
    let repaired =
        repaired.with_context(|| format!("cannot repair the catalog of {}", dir.display()))?;
    for hole in &repaired.holes {
        say(format_args!("lost     the catalog: {}", lost(hole)));
    }
    if let Some(lsn) = repaired.copy_lsn {
        say(format_args!("found    a copy of the catalog in CATALOG.json, up to LSN {lsn}"));
    }
    say(format_args!(
        "the catalog has {} databases, {} containers ({} of them known from their own files only) and {} \
         users, permissions, scripts and offers. The old one is in {}",
        repaired.databases,
        repaired.containers,
        repaired.from_files,
        repaired.resources,
        repaired.damaged_files.display()
    ));
    Ok(())
}

/// Reads every byte and reports the findings. Returns the damaged partitions.
fn inspect(account: &Account, findings: &mut Findings) -> Result<Vec<PartitionReport>> {
    let bar = bytes(account.bytes_to_inspect());
    let reports = account.inspect(&mut |read| bar.inc(read));
    bar.finish_and_clear();
    let mut damaged = Vec::new();
    for report in reports.context("the index cannot be read")? {
        let name = match &report.container {
            Some(container) => format!("{container} partition {}", report.partition),
            None => "the catalog".to_owned(),
        };
        if !report.is_damaged() {
            findings.fine(&format!(
                "{name}: {} changes, newest LSN {}",
                report.found.changes, report.found.newest
            ));
            continue;
        }
        for hole in &report.found.holes {
            findings.problem(&format!("{name}: {}", lost(hole)));
        }
        if let Some(quarantine) =
            report.quarantine.as_ref().filter(|_| report.found.holes.is_empty())
        {
            findings.problem(&format!("{name}: {}", quarantine.damage));
        }
        let items = match report.items_lost {
            Some(items) => format!("the newest version of {items} items is lost"),
            None => "it is not known how many items are lost".to_owned(),
        };
        findings.odd(&format!(
            "{name}: {items}; {} changes up to LSN {} are readable",
            report.found.changes, report.found.newest
        ));
        damaged.push(report);
    }
    if damaged.is_empty() {
        match account.state_hash() {
            Ok(hash) => findings.fine(&format!("nothing is damaged; state {hash}")),
            Err(error) => findings.problem(&format!("the index: {error}")),
        }
    }
    Ok(damaged)
}

fn lost(hole: &Hole) -> String {
    let lsns = match (hole.damage.lsn, hole.last_lsn) {
        (Some(first), Some(last)) if first < last => format!(", LSN {first} to {last}"),
        (Some(first), _) => format!(", LSN {first}"),
        _ => String::new(),
    };
    let changes = hole.changes.map(|count| format!(", {count} changes")).unwrap_or_default();
    let damage = &hole.damage;
    format!(
        "{} bytes {} to {}{lsns}{changes}: {}",
        damage.file, damage.offset, hole.end, damage.what
    )
}

fn export(account: &Account, out: &Path) -> Result<()> {
    let bar = bytes(account.bytes_to_inspect());
    let salvaged = account.salvage(out, &mut |read| bar.inc(read));
    bar.finish_and_clear();
    let salvaged = salvaged.with_context(|| format!("cannot export to {}", out.display()))?;
    for one in salvaged {
        say(format_args!(
            "exported {}: {} items in {}, {} changes in {}",
            one.container,
            one.items,
            one.items_file.display(),
            one.changes,
            one.changes_file.display()
        ));
    }
    Ok(())
}

async fn restore(dir: &Path, from: &BackupPlace, report: &PartitionReport) -> Result<()> {
    let (Some(rid), Some(container)) = (report.rid, &report.container) else {
        say(format_args!("the catalog is not taken from a backup; restore all of it"));
        return Ok(());
    };
    let (store, prefix) = (from.store(), from.prefix());
    let restored = restore_partition(store, prefix, dir, rid, report.partition).await;
    let restored = restored.map_err(|error| from.explain(error)).with_context(|| {
        format!("cannot take {container} partition {} from {from}", report.partition)
    })?;
    say(format_args!(
        "{container} partition {}: taken from the backup, as of LSN {}. Changes after it are gone from \
         the store: {} of them, up to LSN {}, could be read in the damaged files. Those are now in {}",
        report.partition,
        restored.lsn,
        restored.newer_changes,
        restored.newest,
        restored.damaged_files.display()
    ));
    Ok(())
}
