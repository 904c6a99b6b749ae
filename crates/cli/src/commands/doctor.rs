//! `headwater doctor`: checks a server or a data directory. Each finding carries a remedy.

mod files;

use crate::address::{Address, Place};
use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Result, bail};
use clap::Args;
use headwater_client::{ClientError, Options as ClientOptions, RetryPolicy};
use std::path::PathBuf;
use std::time::Duration;

/// Servers refuse signatures when the clocks differ by more than 15 minutes.
const SKEW_MAX_SECONDS: u64 = 15 * 60;
const SKEW_ODD_SECONDS: u64 = 60;

/// What to look at.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Server to check [default: the context in use, or http://127.0.0.1:8080]
    address: Option<String>,
    /// Check a data directory instead of a server
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    data: Option<PathBuf>,
    /// Export readable items and changes to a new directory
    #[arg(long, value_name = "OUT", requires = "data")]
    salvage: Option<PathBuf>,
    /// Replace damaged partitions by those of a backup: a directory, or a URL such as az://container/name
    #[arg(long, value_name = "PLACE", requires = "data")]
    from_backup: Option<PathBuf>,
    /// Write a new catalog from the readable part of a damaged one
    #[arg(long, requires = "data", conflicts_with_all = ["salvage", "from_backup"])]
    repair_catalog: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Prints findings line by line and counts the problems.
#[derive(Default)]
struct Findings {
    problems: u32,
}

impl Findings {
    fn fine(&self, what: &str) {
        say(format_args!("ok       {what}"));
    }

    fn odd(&self, what: &str) {
        say(format_args!("odd      {what}"));
    }

    fn problem(&mut self, what: &str) {
        self.problems += 1;
        say(format_args!("problem  {what}"));
    }
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Check a server or a data directory

    headwater doctor                          the server of the context in use, or on this machine
    headwater doctor https://localhost:8081   reachable? certificate? clock? key?
    headwater doctor --data ./headwater-data  every byte of every partition read and checked
    headwater doctor --data ./headwater-data --salvage ./readable
    headwater doctor --data ./headwater-data --from-backup /backups/monday
    headwater doctor --data ./headwater-data --repair-catalog

A data directory can be checked while no server has it open. Opening it repairs what a crash left behind, \
as a server would; nothing else is changed.

The command ends with 0 when nothing is wrong, with 1 when something is, and with 3 when another process has \
the data directory open. With --from-backup it checks again afterwards, and ends with 0 when nothing is damaged \
any more.

--salvage writes JSON lines for every container: the newest readable version of each item, and apart from \
them every readable change. --from-backup replaces the files of damaged partitions by those of a backup, \
and keeps the damaged ones next to them. With both, the export comes first. --repair-catalog writes a new \
catalog from what is readable of the old one and from the CONTAINER.json of every container.";

/// Runs the command.
pub(crate) fn run(doctor: &Doctor) -> Result<()> {
    let mut findings = Findings::default();
    match &doctor.data {
        Some(dir) if doctor.repair_catalog => block_on(files::repair(dir))?,
        Some(dir) => block_on(files::check(
            dir,
            doctor.salvage.as_deref(),
            doctor.from_backup.as_deref(),
            &mut findings,
        ))?,
        None => block_on(check_server(doctor, &mut findings))?,
    }
    match findings.problems {
        0 => Ok(()),
        1 => bail!("there is a problem"),
        many => bail!("there are {many} problems"),
    }
}

async fn check_server(doctor: &Doctor, findings: &mut Findings) -> Result<()> {
    let place = match &doctor.address {
        Some(text) => text.parse::<Address>()?.place,
        None => Place::Default,
    };
    let mut options = ClientOptions::default();
    options.retry = RetryPolicy::never();
    options.request_time = Duration::from_secs(15);
    let client = doctor.connect.client(&place, options)?;
    let endpoint = client.endpoint().clone();
    let health = match client.health().await {
        Ok(health) => health,
        Err(error) => {
            findings.problem(&explain(&error));
            return Ok(());
        }
    };
    findings.fine(&format!("{endpoint} answers, in {:.1} ms", health.took.as_secs_f64() * 1000.0));
    if endpoint.is_tls() {
        findings.fine("its certificate is trusted");
    }
    if !health.ready {
        findings.problem("it is not ready: it is starting or shutting down");
    }
    match health.clock_ahead_seconds.map(i64::unsigned_abs) {
        None => findings.odd("it does not say what time it has"),
        Some(skew) if skew > SKEW_MAX_SECONDS => findings.problem(&format!(
            "its clock and ours differ by {skew} s; signatures are refused from 900 s on: set the clocks"
        )),
        Some(skew) if skew > SKEW_ODD_SECONDS => {
            findings.odd(&format!("its clock and ours differ by {skew} s"));
        }
        Some(skew) => findings.fine(&format!("the clocks differ by {skew} s")),
    }
    match client.account().await {
        Ok(account) => {
            findings.fine(&format!("the key is accepted by the account {}", account.id));
            for region in &account.readable {
                findings.fine(&format!("region {} at {}", region.name, region.endpoint));
            }
        }
        Err(error) => findings.problem(&explain(&error)),
    }
    Ok(())
}

fn explain(error: &ClientError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
