//! `headwater backup` and `headwater restore`: copies a running server or a data directory to a directory or an
//! object store, and restores it with verification. A backup never changes the data it copies.

use crate::address::Address;
use crate::connect::{Connect, block_on};
use crate::data;
use crate::output::{bytes as progress_bar, say};
use crate::place::{self, BackupPlace};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use headwater_client::{ClientError, RetryPolicy};
use headwater_store::{
    BackupError, BackupPartition, BackupPlan, BackupSource, BackupSummary, CopyOptions, Options,
    copy_backup, restore,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// From where, and where to.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct Backup {
    /// Server (a URL, or a context followed by a colon) or data directory that no server has open
    /// [default: the server of the current context, or of this machine]
    from: Option<String>,
    /// Directory, az://container/name, s3://bucket/name or gs://bucket/name: a new one, or that of an earlier
    /// backup
    #[arg(value_name = "PLACE")]
    to: PathBuf,
    /// Compare the whole backup with the server, and replace damaged parts
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    connect: Connect,
}

/// From where, and where to.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Place of the backup: a directory, az://container/name, s3://bucket/name or gs://bucket/name
    #[arg(value_name = "PLACE")]
    from: PathBuf,
    /// New data directory
    data: PathBuf,
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Copy a running server or a data directory into a directory or an object store

    headwater backup /backups/shop
    headwater backup http://db.example:8080 /backups/shop
    headwater backup http://db.example:8080 az://backups/shop
    headwater backup ./headwater-data s3://my-bucket/shop

The copy holds every partition at one LSN. Writes continue meanwhile. It needs a read-write key of the account.

A second backup into the same place copies only what is new, and replaces the first when it is complete. Until \
then the first can be restored, also after this command was killed. Use several places to keep several moments.

The copy is complete when the command says so: it holds a list of its files with their checksums and a \
hash of everything in the store, which `headwater restore` compares.

Credentials of an object store come from the environment, in the variables of its own tools: AZURE_STORAGE_ACCOUNT_NAME \
and AZURE_STORAGE_ACCOUNT_KEY, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS. The \
container or bucket must exist.";

/// The long help text of the command.
pub(crate) const RESTORE_HELP: &str = "\
Restore a backup to a new data directory

    headwater restore /backups/shop ./restored
    headwater restore az://backups/shop ./restored
    headwater serve --data ./restored

Every file is checked, the store is opened, and what is in it is compared with what was backed up. LSNs and \
change feed positions stay valid.";

/// Runs `headwater backup`.
pub(crate) fn run(backup: &Backup) -> Result<()> {
    if let Some(from) = backup.from.as_deref().filter(|from| place::is_object_url(from)) {
        bail!("{from} is a place for backups, not a server; restore it with `headwater restore`");
    }
    block_on(async {
        let place = BackupPlace::for_backup(&backup.to).await?;
        let options = place.copy_options().verify(backup.verify);
        let summary = match backup.from.as_deref() {
            Some(data) if !is_server(data) => from_directory(data, &place, options).await?,
            server => from_server(server, &backup.connect, &place, options).await?,
        };
        show("backed up", &format!("{} of them new, ", summary.copied_bytes), &summary);
        Ok(())
    })
}

/// Returns whether a text names a server and not a directory.
fn is_server(text: &str) -> bool {
    text.contains("://") || text.ends_with(':')
}

async fn from_server(
    server: Option<&str>,
    connect: &Connect,
    place: &BackupPlace,
    options: CopyOptions,
) -> Result<BackupSummary> {
    let place_of_server = match server {
        Some(server) => {
            let address: Address = server.parse()?;
            ensure!(
                address.names.is_empty(),
                "{server} names a database; a backup is of all of them"
            );
            address.place
        }
        None => crate::address::Place::Default,
    };
    // A backup takes long, so it must survive the restart of a proxy or load balancer on the way.
    let mut retry = RetryPolicy::default();
    retry.others_max = 12;
    retry.wait_max = Duration::from_secs(120);
    let mut settings = headwater_client::Options::default();
    settings.retry = retry;
    let client = connect.client(&place_of_server, settings)?;
    let begun = client.begin_backup().await;
    let backup =
        begun.with_context(|| format!("cannot begin a backup of {}", client.endpoint()))?;
    let plan = serde_json::from_str(backup.plan()).context("the server's answer is no backup")?;
    let source = Server { backup, plan };
    let copied = copy(&source, place, options).await;
    // A failure is harmless: the server releases the backup by itself after a while.
    let _ = source.backup.end().await;
    copied
}

async fn from_directory(
    data: &str,
    place: &BackupPlace,
    options: CopyOptions,
) -> Result<BackupSummary> {
    let data = Path::new(data);
    data::ensure_is_one(data)?;
    let otherwise = "back up the running server: `headwater backup http://HOST:PORT PLACE`";
    let account = data::open(data, quiet(), otherwise).await?;
    let copied = match account.begin_backup().await {
        Ok(cut) => copy(&cut, place, options).await,
        Err(error) => Err(error).context("cannot begin the backup"),
    };
    account.close().await.context("cannot close the store cleanly; nothing is lost")?;
    copied
}

async fn copy<S: BackupSource>(
    source: &S,
    place: &BackupPlace,
    options: CopyOptions,
) -> Result<BackupSummary> {
    let bar = progress_bar(0);
    let report = bar.clone();
    let mut show = move |progress: headwater_store::BackupProgress| {
        report.set_length(progress.bytes);
        report.set_position(progress.done_bytes);
    };
    let copied = copy_backup(source, place.store(), place.prefix(), options, &mut show).await;
    bar.finish_and_clear();
    copied.map_err(|error| place.explain(error)).context(
        "the backup is not complete; the one before it can still be restored, and the next one continues",
    )
}

/// A backup that a server keeps open, as a source of files.
struct Server {
    backup: headwater_client::Backup,
    plan: BackupPlan,
}

impl BackupSource for Server {
    fn plan(&self) -> &BackupPlan {
        &self.plan
    }

    async fn partition(&self, number: usize) -> Result<BackupPartition, BackupError> {
        let json = self.backup.partition(number).await.map_err(failed)?;
        serde_json::from_slice(&json).map_err(|error| BackupError::Answer(error.to_string()))
    }

    async fn read(
        &self,
        file: usize,
        offset: u64,
        bytes: usize,
        known: Option<&str>,
    ) -> Result<Option<Bytes>, BackupError> {
        self.backup.read(file, offset, bytes, known).await.map_err(failed)
    }
}

fn failed(error: ClientError) -> BackupError {
    BackupError::Source(Box::new(error))
}

/// Runs `headwater restore`.
pub(crate) fn run_restore(command: &Restore) -> Result<()> {
    block_on(async {
        let place = BackupPlace::for_restore(&command.from).await?;
        let restored = restore(place.store(), place.prefix(), &command.data, quiet()).await;
        let restored = restored.map_err(|error| place.explain(error));
        let (account, summary) = restored
            .with_context(|| format!("cannot restore {place} to {}", command.data.display()))?;
        account.close().await.context("cannot close the store cleanly; nothing is lost")?;
        show("restored and compared", "", &summary);
        Ok(())
    })
}

/// Options of a store without background maintenance.
fn quiet() -> Options {
    let mut options = Options::default();
    options.maintenance_interval = Duration::ZERO;
    options
}

fn show(what: &str, new: &str, summary: &BackupSummary) {
    say(format_args!(
        "{what}: {} items in {} partitions, {} bytes, {new}state {}",
        summary.items, summary.partitions, summary.bytes, summary.state_hash
    ));
}
