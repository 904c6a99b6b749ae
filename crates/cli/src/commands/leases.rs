//! `headwater leases`: lists leases; pauses, resumes, moves, snapshots, resets, exports and imports them. Works on
//! the leases of .NET and Java processors as well.

use crate::commands::tail::start::Start as Where;
use crate::commands::units::named;
use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use headwater_client::Options;
use headwater_model::Timestamp;
use headwater_processor::lease::{Flavour, LeaseState};
use headwater_processor::lease_store::{ContainerLeases, Layout, LeaseStore};
use headwater_processor::source::{FeedSource, RemoteFeed};
use headwater_processor::{Archive, LeaseInfo, Position, Snapshot, Start, Unit};
use headwater_runtime::Runtime;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a host may write no lease before it counts as stopped.
const SILENCE: Duration = Duration::from_secs(20);

/// What to do with leases.
#[derive(Debug, Subcommand)]
pub(crate) enum Leases {
    /// Show the leases: owner, position, age and state
    #[command(long_about = LIST_HELP)]
    List(Which),
    /// Stop every host and wait until all have stopped, or keep one lease without owner
    #[command(long_about = PAUSE_HELP)]
    Pause {
        #[command(flatten)]
        which: Which,
        /// Apply to this lease only
        #[arg(long, value_name = "LEASE", allow_hyphen_values = true)]
        lease: Option<String>,
    },
    /// Resume every host, or one lease that was paused or halted
    #[command(long_about = RESUME_HELP)]
    Resume {
        #[command(flatten)]
        which: Which,
        /// Apply to this lease only
        #[arg(long, value_name = "LEASE", allow_hyphen_values = true)]
        lease: Option<String>,
    },
    /// Move leases that no host works on to another position
    #[command(long_about = SEEK_HELP)]
    Seek {
        #[command(flatten)]
        which: Which,
        /// New position: beginning, now, a time, an age (10m, 2h, 1d), a position of one lease, or snapshot:NAME
        #[arg(long, value_name = "WHERE")]
        to: String,
        /// Apply to this lease only
        #[arg(long, value_name = "LEASE", allow_hyphen_values = true)]
        lease: Option<String>,
        /// Monitored container; needed for leases of .NET and Java, which hold positions only
        #[arg(long, value_name = "ADDRESS")]
        source: Option<String>,
    },
    /// Keep all positions under a name, or show the names
    #[command(long_about = SNAPSHOT_HELP)]
    Snapshot {
        #[command(flatten)]
        which: Which,
        /// Name; positions that were kept under it before are replaced
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Delete all leases of a processor that no host runs
    #[command(long_about = RESET_HELP)]
    Reset {
        #[command(flatten)]
        which: Which,
        /// Seconds during which no host may have written a lease
        #[arg(long, value_name = "SECONDS", default_value_t = SILENCE.as_secs())]
        silence: u64,
    },
    /// Print the leases of a processor, one per line
    #[command(long_about = EXPORT_HELP)]
    Export(Which),
    /// Write leases that `export` printed, in their own form or in that of another library
    #[command(long_about = IMPORT_HELP)]
    Import(Import),
}

const LIST_HELP: &str = "\
Show the leases: owner, position, age and state

    headwater leases list shop/leases
    headwater leases list shop/leases --processor mailer --json";

const PAUSE_HELP: &str = "\
Stop every host and wait until all have stopped, or keep one lease without owner

    headwater leases pause shop/leases --processor mailer
    headwater leases pause shop/leases --processor mailer --lease 00-FF

Without --lease it does not stop hosts of .NET and Java, which do not look for it.";

const RESUME_HELP: &str = "\
Resume every host, or one lease that was paused or halted

    headwater leases resume shop/leases --processor mailer
    headwater leases resume shop/leases --processor mailer --lease 00-FF";

const SEEK_HELP: &str = "\
Move leases that no host works on to another position

    headwater leases seek shop/leases --processor mailer --to beginning
    headwater leases seek shop/leases --processor mailer --to 2h --lease 00-FF
    headwater leases seek shop/leases --processor mailer --to snapshot:monday";

const SNAPSHOT_HELP: &str = "\
Keep all positions under a name, or show the names

    headwater leases snapshot shop/leases --processor mailer --name monday
    headwater leases snapshot shop/leases --processor mailer
    headwater leases seek shop/leases --processor mailer --to snapshot:monday";

const RESET_HELP: &str = "\
Delete all leases of a processor that no host runs

    headwater leases reset shop/leases --processor mailer

The next host then starts as the first one did.";

const EXPORT_HELP: &str = "\
Print the leases of a processor, one per line

    headwater leases export shop/leases --processor mailer > mailer.leases

`headwater leases import` writes them to another container.";

const IMPORT_HELP: &str = "\
Write leases that `export` printed, in their own form or in that of another library

    headwater leases import mailer.leases shop/new-leases
    headwater leases import java.leases shop/leases --as native --name mailer --source shop/orders

No host may work on either of them meanwhile. Existing leases of this processor are not overwritten; reset them
first. With --dry-run the leases are printed only.";

/// What to import.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// File, or - for standard input
    file: PathBuf,
    /// Lease container: database/container, context:database/container or a URL
    address: String,
    /// Form to write
    #[arg(long = "as", value_enum, value_name = "FORM", requires = "source", requires = "name")]
    form: Option<Form>,
    /// Name or prefix of the processor that continues with them
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Monitored container
    #[arg(long, value_name = "ADDRESS")]
    source: Option<String>,
    /// Print the leases instead of writing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: Connect,
}

/// How a library writes its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// Headwater
    Native,
    /// The change feed processor library for .NET
    DotnetV2,
    /// The .NET SDK
    DotnetV3,
    /// The Java SDK, `handleChanges`
    JavaPk,
    /// The Java SDK, `handleLatestVersionChanges` and handlers of all versions
    JavaEpk,
}

impl Form {
    pub(crate) fn flavour(self) -> Flavour {
        match self {
            Form::Native | Form::DotnetV3 => Flavour::DotNetV3,
            Form::DotnetV2 => Flavour::DotNetV2,
            Form::JavaPk => Flavour::JavaPk,
            Form::JavaEpk => Flavour::JavaEpk,
        }
    }
}

/// Which leases.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Lease container: database/container, context:database/container or a URL
    address: String,
    /// Processor, if there are several: its name or a part of its namespace, as `list` shows it
    #[arg(long, value_name = "TEXT")]
    processor: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

impl Which {
    async fn store(&self) -> Result<Arc<dyn LeaseStore>> {
        let container = self.connect.container(&self.address, Options::default())?;
        Ok(Arc::new(ContainerLeases::open(container).await?))
    }

    async fn units(&self) -> Result<Vec<Unit>> {
        let store = self.store().await?;
        let found = Unit::discover(&*store).await?;
        let unit = |name| Unit::new(store.clone(), name, Runtime::system());
        let found = named(found, self.processor.as_deref());
        let units: Vec<Unit> = found.into_iter().map(unit).collect();
        ensure!(!units.is_empty(), "there are no leases of such a processor in this container");
        Ok(units)
    }

    async fn unit(&self) -> Result<Unit> {
        let mut units = self.units().await?;
        match units.len() {
            1 => Ok(units.remove(0)),
            count => bail!("there are leases of {count} processors; name one with --processor"),
        }
    }
}

/// Runs the command.
pub(crate) fn run(command: Leases) -> Result<()> {
    block_on(async {
        match command {
            Leases::List(which) => {
                for unit in which.units().await? {
                    show(&unit, &unit.look().await?, which.json);
                }
            }
            Leases::Pause { which, lease: None } => {
                which.unit().await?.pause(SILENCE).await?;
                say(format_args!("paused; nobody works on these leases until they are resumed"));
            }
            Leases::Pause { which, lease: Some(lease) } => {
                which.unit().await?.set_state(&lease, LeaseState::Paused).await?;
                say(format_args!("paused {lease}; its owner stops with its next write"));
            }
            Leases::Resume { which, lease: None } => {
                which.unit().await?.resume().await?;
                say(format_args!("resumed"));
            }
            Leases::Resume { which, lease: Some(lease) } => {
                which.unit().await?.set_state(&lease, LeaseState::Running).await?;
                say(format_args!("resumed {lease}"));
            }
            Leases::Reset { which, silence } => {
                let unit = which.unit().await?;
                let deleted = unit.reset(Duration::from_secs(silence)).await?;
                say(format_args!("{deleted} leases deleted; the next start begins anew"));
            }
            Leases::Export(which) => {
                let archive = which.unit().await?.export().await?;
                print(&archive);
            }
            Leases::Import(wanted) => import(&wanted).await?,
            Leases::Snapshot { which, name: Some(name) } => {
                let kept = which.unit().await?.keep(&name).await?;
                say(format_args!("{} positions kept as {name}", kept.leases()));
            }
            Leases::Snapshot { which, name: None } => {
                for kept in which.unit().await?.all_kept().await? {
                    let (name, at, leases) = (&kept.name, kept.at, kept.leases());
                    say(format_args!("{name:<36}  {at}  {leases} leases"));
                }
            }
            Leases::Seek { which, to, lease, source } => {
                let lease = lease.as_deref();
                match to.strip_prefix("snapshot:") {
                    Some(name) => seek_to_kept(&which, name, lease).await?,
                    None => seek(&which, &to, lease, source).await?,
                }
            }
        }
        Ok(())
    })
}

async fn seek_to_kept(which: &Which, name: &str, lease: Option<&str>) -> Result<()> {
    let moved = which.unit().await?.seek_to_kept(lease, name, SILENCE).await?;
    say(format_args!("{moved} leases go on from where they were as {name}"));
    Ok(())
}

async fn seek(which: &Which, to: &str, lease: Option<&str>, source: Option<String>) -> Result<()> {
    let start = start_of(to)?;
    let one = matches!(start, Start::Position(_)) && lease.is_none();
    ensure!(!one, "a position belongs to one lease; name it with --lease");
    let unit = which.unit().await?;
    let source = match source {
        Some(address) => Some(feed(&which.connect, &address)?),
        None => None,
    };
    let unknown = source.is_none()
        && !matches!(start, Start::Position(_))
        && unit.look().await?.leases.iter().any(|info| info.lease.is_shared());
    ensure!(
        !unknown,
        "these leases are read by .NET or Java, which know positions only; name the \
         monitored container with --source, so that they can be looked up"
    );
    let source = source.as_ref().map(|feed| feed as &dyn FeedSource);
    let moved = unit.seek(lease, &start, source, SILENCE).await?;
    say(format_args!("{moved} leases go on from {start}"));
    Ok(())
}

fn feed(connect: &Connect, address: &str) -> Result<RemoteFeed> {
    Ok(RemoteFeed::new(connect.container(address, Options::default())?))
}

async fn import(wanted: &Import) -> Result<()> {
    let text = match wanted.file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()).context("cannot read")?,
        _ => std::fs::read_to_string(&wanted.file)
            .with_context(|| format!("cannot read {}", wanted.file.display()))?,
    };
    let mut archive = Archive::parse(&text)?;
    if let (Some(form), Some(name), Some(source)) = (wanted.form, &wanted.name, &wanted.source) {
        let source = feed(&wanted.connect, source)?;
        let by_hashes = form == Form::Native;
        archive = archive.converted(form.flavour(), by_hashes, name, &source).await?;
    }
    if wanted.dry_run {
        print(&archive);
        return Ok(());
    }
    let container = wanted.connect.container(&wanted.address, Options::default())?;
    // Headwater leases are fastest in one partition; .NET and Java require one partition per lease.
    let native = archive.leases.iter().all(|lease| lease.token.contains('-'));
    let layout = if native { Layout::PartitionKey } else { Layout::Id };
    let store = Arc::new(ContainerLeases::open_or_create(container, layout, None).await?);
    let unit = Unit::new(store, archive.namespace.clone(), Runtime::system());
    let made = unit.import(&archive).await?;
    say(format_args!("{made} leases of {}", archive.namespace.as_str()));
    Ok(())
}

fn print(archive: &Archive) {
    let now = Timestamp::from_millis(Runtime::system().unix_millis());
    say(format_args!("{}", archive.to_text(now).trim_end()));
}

/// Parses `--from` and `--to` of leases. A position is an etag, in the form that leases store.
pub(crate) fn start_of(text: &str) -> Result<Start> {
    let now = Runtime::system().unix_millis();
    Ok(match text.parse::<Where>() {
        Ok(Where::Beginning) => Start::Beginning,
        Ok(Where::Now) => Start::Now,
        Ok(Where::Time(time)) => Start::Time(time),
        Ok(Where::Age(age)) => Start::Time(Timestamp::from_millis(now.saturating_sub(age))),
        Ok(Where::Position(_)) | Err(_) if text.trim_matches('"').parse::<u64>().is_ok() => {
            let quoted = format!("\"{}\"", text.trim_matches('"'));
            Start::Position(Position::new(quoted).context("an empty position")?)
        }
        Ok(Where::Position(_)) => bail!("a position of tail is not one of a lease; give a number"),
        Err(error) => return Err(error),
    })
}

fn show(unit: &Unit, snapshot: &Snapshot, json: bool) {
    if json {
        for info in &snapshot.leases {
            say(format_args!("{}", to_json(unit, snapshot, info)));
        }
        return;
    }
    let state = if snapshot.control.paused { "  (paused)" } else { "" };
    say(format_args!("{}{state}", unit.namespace().as_str()));
    say(format_args!(
        "  {:<36}  {:<24}  {:>12}  {:>6}  {:>8}  state",
        "lease", "owner", "position", "epoch", "written"
    ));
    for info in &snapshot.leases {
        let lease = &info.lease;
        let position = lease.position.as_ref().map_or("-", Position::as_str).trim_matches('"');
        let age = info.age.map_or_else(|| "?".to_owned(), |age| format!("{} s", age.as_secs()));
        say(format_args!(
            "  {:<36}  {:<24}  {position:>12}  {:>6}  {age:>8}  {}",
            lease.token,
            lease.owner.as_deref().unwrap_or("-"),
            lease.extra.epoch,
            snapshot.activity(info).as_str(),
        ));
    }
    for member in &snapshot.members {
        let leaving = if member.draining { ", about to leave" } else { "" };
        let name = &member.host.name;
        let is_owned = |info: &&LeaseInfo| info.lease.owner.as_ref() == Some(name);
        let owned = snapshot.leases.iter().filter(is_owned).count();
        say(format_args!("  host {name}: {owned} leases{leaving}"));
    }
    for document in &snapshot.unreadable {
        say(format_args!("  {document} is no lease"));
    }
}

pub(crate) fn to_json(unit: &Unit, snapshot: &Snapshot, info: &LeaseInfo) -> serde_json::Value {
    let lease = &info.lease;
    serde_json::json!({
        "processor": unit.namespace().as_str(),
        "lease": lease.token,
        "owner": lease.owner,
        "position": lease.position.as_ref().map(Position::as_str),
        "epoch": lease.extra.epoch,
        "state": snapshot.activity(info).as_str(),
        "flavour": lease.flavour().to_string(),
        "ageSeconds": info.age.map(|age| age.as_secs()),
    })
}
