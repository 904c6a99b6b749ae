//! Hosts of our processor in a process of their own, to be counted and killed from outside. They print the id
//! of every change they are given, and end when their standard input does.

use anyhow::Result;
use clap::{Args, ValueEnum};
use headwater_client::{Client, Credential, Endpoint};
use headwater_processor::lease::Flavour;
use headwater_processor::lease_store::{ContainerLeases, Layout};
use headwater_processor::source::RemoteFeed;
use headwater_processor::{Ack, Batch, Options, Processor, Running, Start};
use headwater_runtime::Runtime;
use std::io::Write;
use std::time::Duration;

/// The unit all of them belong to.
pub(super) const UNIT: &str = "p";

/// Which hosts, at which server.
#[derive(Clone, Debug, Args)]
pub(crate) struct HostsArguments {
    /// Where the server listens
    #[arg(long)]
    port: u16,
    /// The database
    database: String,
    /// The monitored container
    container: String,
    /// The lease container
    leases: String,
    /// Their names, separated by commas
    #[arg(value_delimiter = ',', num_args = 1, required = true)]
    names: Vec<String>,
    /// How fast they are
    settings: Settings,
    /// In the form .NET shares
    #[arg(long)]
    shared: bool,
}

/// How often hosts write and look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Settings {
    Defaults,
    /// As by default, but leases are looked at every second, so that they are soon shared.
    Settled,
    /// Gone after 1.5 seconds.
    Fast,
}

impl Settings {
    /// As both programs understand it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Settings::Defaults => "defaults",
            Settings::Settled => "settled",
            Settings::Fast => "fast",
        }
    }

    pub(super) fn apply(self, options: &mut Options) {
        match self {
            Settings::Defaults => {}
            Settings::Settled => options.acquire_interval = Duration::from_secs(1),
            Settings::Fast => {
                options.renew_interval = Duration::from_millis(300);
                options.acquire_interval = Duration::from_millis(500);
                options.expiration = Duration::from_millis(1500);
            }
        }
    }
}

/// Starts them; they work as long as what is returned lives.
pub(crate) async fn start(clock: Runtime, arguments: HostsArguments) -> Result<Vec<Running>> {
    let mut running = Vec::new();
    for name in &arguments.names {
        // Every host has a client of its own, as if it were a process of its own.
        let at = Endpoint::http("127.0.0.1", arguments.port);
        let options = headwater_client::Options::default();
        let client = Client::new(at, Credential::emulator()?, options, clock.clone())?;
        let leases = client.container(&arguments.database, &arguments.leases);
        let layout = if arguments.shared { Layout::Id } else { Layout::PartitionKey };
        let processor = Processor::builder()
            .source(RemoteFeed::new(client.container(&arguments.database, &arguments.container)))
            .leases(ContainerLeases::open_or_create(leases, layout, None).await?)
            .handler(|batch: Batch| async move { print(&batch).map(|()| Ack::Done) })
            .options(options_of(&arguments, name))
            .build()?;
        running.push(processor.start().await?);
    }
    Ok(running)
}

fn options_of(arguments: &HostsArguments, name: &str) -> Options {
    let mut options = match arguments.shared {
        true => Options::interop(Flavour::DotNetV3, UNIT),
        false => Options::native(UNIT),
    };
    options.start = Start::Beginning;
    options.host_name = Some(name.to_owned());
    arguments.settings.apply(&mut options);
    options
}

fn print(batch: &Batch) -> Result<(), headwater_processor::HandlerError> {
    let mut out = std::io::stdout().lock();
    for change in batch.changes.iter() {
        let json: serde_json::Value = change.parse()?;
        writeln!(out, "{}", json["id"].as_str().unwrap_or_default())?;
    }
    Ok(out.flush()?)
}
