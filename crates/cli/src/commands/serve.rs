//! `headwater serve`: runs a server on a data directory until a signal stops it.
//!
//! Every setting can come from the command line, the environment or a file, in that order. Keys are never
//! required on the command line, where other users of the machine can read them.

use super::tail::start::age;
use crate::{data, memory, secret};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use headwater_protocol::auth::{Key, Keys};
use headwater_protocol::headers::ConsistencyLevel;
use headwater_runtime::Runtime;
use headwater_server::{Config, Server};
use headwater_store::{Account, Durability, Options};
use serde::Deserialize;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The allowed numbers of partitions of a new container.
const PARTITIONS: RangeInclusive<u32> = 1..=1000;

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Run a server that Cosmos DB SDKs connect to

    headwater serve
    headwater serve --data /var/lib/headwater --partitions 4
    headwater serve --ephemeral --http 127.0.0.1:0 --no-https --ready-json
    HEADWATER_KEY=$(openssl rand -base64 64 | tr -d '\\n') headwater serve --http 0.0.0.0:8080

Without a key of your own it takes the one every emulator has, and then listens on this machine only. A key
comes from HEADWATER_KEY, from a file or from a command, and never has to be on a command line. It has at least
32 bytes where other machines can reach the server.

Web pages: with the emulator's key or --no-auth, pages of localhost may use the server, and pages of the
origins given by --cors-origin. With a key of your own, only the latter.

Every option can also be set in the environment, or under [serve] in headwater.toml by the same name:

    [serve]
    data = \"/var/lib/headwater\"
    partitions = 4

HEADWATER_LOG=info logs every request to standard error. Ctrl-C and SIGTERM stop it in good order.";

/// Help headings of the options.
const ADDRESSES: &str = "Addresses";
const DATA: &str = "Data";
const ACCESS: &str = "Authentication and web pages";
const COMPATIBILITY: &str = "Compatibility";
const SETTINGS: &str = "Output and settings";

/// The settings of a server. All of them are optional.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Serve {
    /// Address for plain HTTP; port 0 takes any free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "HEADWATER_HTTP", help_heading = ADDRESSES)]
    http: Option<String>,
    /// Address for HTTPS; port 0 takes any free one [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "HEADWATER_HTTPS", help_heading = ADDRESSES)]
    https: Option<String>,
    /// Do not listen for HTTPS
    #[arg(long, env = "HEADWATER_NO_HTTPS", help_heading = ADDRESSES)]
    no_https: bool,
    /// Another name by which clients reach this server, besides localhost; can be repeated
    #[arg(
        long,
        value_name = "NAME",
        env = "HEADWATER_HOST",
        value_delimiter = ',',
        help_heading = ADDRESSES
    )]
    host: Vec<String>,
    /// Directory of the data [default: ./headwater-data]
    #[arg(
        long,
        value_name = "DIR",
        env = "HEADWATER_DATA",
        conflicts_with = "ephemeral",
        help_heading = DATA
    )]
    data: Option<PathBuf>,
    /// Keep everything in memory; nothing is left when the server ends
    #[arg(long, env = "HEADWATER_EPHEMERAL", help_heading = DATA)]
    ephemeral: bool,
    /// Number of partitions of a new container, 1 to 1000 [default: 1]
    #[arg(long, value_name = "N", env = "HEADWATER_PARTITIONS", help_heading = DATA)]
    partitions: Option<u32>,
    /// When a write is acknowledged [default: fsync]
    #[arg(long, env = "HEADWATER_DURABILITY", help_heading = DATA)]
    durability: Option<Level>,
    /// Age up to which superseded versions and deletes are kept, such as 24h or 7d; 0 keeps none. A
    /// changeFeedPolicy of a container takes precedence [default: 24h]
    #[arg(long, value_name = "AGE", env = "HEADWATER_HISTORY", help_heading = DATA)]
    history: Option<String>,
    /// Bytes of live items above which a range is split, such as 512MiB or 8GiB; 0 or never turns splits off. A
    /// range of a single partition key cannot be split [default: 8GiB]
    #[arg(long, value_name = "SIZE", env = "HEADWATER_SPLIT_AT", help_heading = DATA)]
    split_at: Option<String>,
    /// File with the account key, in base64 [default: the well-known key of the emulator]
    #[arg(long, value_name = "FILE", env = "HEADWATER_KEY_FILE", help_heading = ACCESS)]
    key_file: Option<PathBuf>,
    /// Command that prints the account key, such as "pass show headwater"
    #[arg(
        long,
        value_name = "CMD",
        env = "HEADWATER_KEY_COMMAND",
        conflicts_with = "key_file",
        help_heading = ACCESS
    )]
    key_command: Option<String>,
    /// File with a second account key
    #[arg(long, value_name = "FILE", env = "HEADWATER_SECONDARY_KEY_FILE", help_heading = ACCESS)]
    secondary_key_file: Option<PathBuf>,
    /// File with a key that only reads
    #[arg(long, value_name = "FILE", env = "HEADWATER_READ_ONLY_KEY_FILE", help_heading = ACCESS)]
    read_only_key_file: Option<PathBuf>,
    /// Accept requests without a signature (loopback only)
    #[arg(long, env = "HEADWATER_NO_AUTH", help_heading = ACCESS)]
    no_auth: bool,
    /// Accept any well-formed identity token (loopback only)
    #[arg(long, env = "HEADWATER_ANY_IDENTITY", help_heading = ACCESS)]
    any_identity: bool,
    /// Skip the clock-skew check of signatures
    #[arg(long, env = "HEADWATER_ANY_DATE", help_heading = ACCESS)]
    any_date: bool,
    /// Allow web pages of this origin, such as `https://app.example`; can be repeated
    #[arg(
        long,
        value_name = "ORIGIN",
        env = "HEADWATER_CORS_ORIGIN",
        value_delimiter = ',',
        help_heading = ACCESS
    )]
    cors_origin: Vec<String>,
    /// Name of the account [default: headwater]
    #[arg(long, value_name = "NAME", env = "HEADWATER_ACCOUNT", help_heading = COMPATIBILITY)]
    account: Option<String>,
    /// Default consistency level shown to SDKs; every read is strong [default: session]
    #[arg(long, value_name = "LEVEL", env = "HEADWATER_CONSISTENCY", help_heading = COMPATIBILITY)]
    consistency: Option<Consistency>,
    /// Answer 429 to requests beyond the provisioned throughput
    #[arg(long, env = "HEADWATER_ENFORCE_THROUGHPUT", help_heading = COMPATIBILITY)]
    enforce_throughput: bool,
    /// Show the item before each change in all-versions feeds also where a container has a changeFeedPolicy
    #[arg(long, env = "HEADWATER_PREVIOUS_IMAGES", help_heading = COMPATIBILITY)]
    previous_images: bool,
    /// Print one line of JSON when ready, instead of text
    #[arg(long, env = "HEADWATER_READY_JSON", help_heading = SETTINGS)]
    ready_json: bool,
    /// File with these settings under [serve] [default: ./headwater.toml if it exists]
    #[arg(long, value_name = "FILE", env = "HEADWATER_CONFIG", help_heading = SETTINGS)]
    #[serde(skip)]
    config: Option<PathBuf>,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    /// After it is on disk
    Fsync,
    /// After it is in the kernel: survives the process, not the machine
    Os,
}

/// The default consistency level of the account.
#[derive(Clone, Copy, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Consistency {
    Strong,
    BoundedStaleness,
    Session,
    ConsistentPrefix,
    Eventual,
}

impl From<Consistency> for ConsistencyLevel {
    fn from(level: Consistency) -> ConsistencyLevel {
        match level {
            Consistency::Strong => ConsistencyLevel::Strong,
            Consistency::BoundedStaleness => ConsistencyLevel::BoundedStaleness,
            Consistency::Session => ConsistencyLevel::Session,
            Consistency::ConsistentPrefix => ConsistencyLevel::ConsistentPrefix,
            Consistency::Eventual => ConsistencyLevel::Eventual,
        }
    }
}

/// The `[serve]` section of the configuration file.
#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    serve: Serve,
}

/// Time after a signal at which the process ends, even with work unfinished. The server waits 10 s for open
/// requests; closing the store has the rest.
const STOP_TIME: Duration = Duration::from_secs(15);

/// Serves until a signal arrives.
pub(crate) fn run(given: Serve) -> Result<()> {
    let settings = given.with_file()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let executor = tokio::runtime::Builder::new_multi_thread()
        // Connections have threads of their own. These threads run writes, queries and background tasks. There are
        // at least two, because one may block on the disk.
        .worker_threads(cores.max(2))
        .enable_all()
        .build()
        .context("cannot start threads")?;
    // Signals and the stop deadline have their own thread, because all workers may be busy.
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.context("cannot watch for signals")?;
    let workers = {
        let _entered = executor.enter();
        Runtime::system()
    };
    let served = control.block_on(serve(settings, &workers));
    // Unfinished tasks end with the process.
    executor.shutdown_background();
    served
}

async fn serve(settings: Serve, workers: &Runtime) -> Result<()> {
    let given = settings.clone();
    let started = workers.run("start", async move { start(&given).await }).await;
    let (server, account) = started.context("the server did not start")??;
    let watched = Arc::downgrade(&server);
    workers.spawn("memory", memory::give_back_while_resting(watched, workers.clone()));
    announce(&server, &settings)?;
    wait_for_signal().await?;
    eprintln!("stopping");
    let stopped = workers.run("stop", async move {
        server.stop().await;
        account.close().await.context("cannot close the store cleanly; nothing is lost")
    });
    match Runtime::system().timeout(STOP_TIME, stopped).await {
        Some(closed) => {
            closed.context("the store did not close; acknowledged writes are on disk")?
        }
        None => bail!(
            "requests still ran {} s after the signal and were cut off; acknowledged writes are on disk",
            STOP_TIME.as_secs()
        ),
    }
}

async fn start(settings: &Serve) -> Result<(Arc<Server>, Account)> {
    let config = settings.server_config()?;
    let account = settings.open().await?;
    for quarantine in account.quarantined() {
        eprintln!("{quarantine}");
    }
    let server = Server::start(config, account.clone(), Runtime::system()).await?;
    Ok((Arc::new(server), account))
}

impl Serve {
    /// Fills settings that the command line and the environment do not give from the file.
    fn with_file(self) -> Result<Serve> {
        let path = match &self.config {
            Some(path) => path.clone(),
            None if Path::new("headwater.toml").exists() => PathBuf::from("headwater.toml"),
            None => return Ok(self),
        };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let file: File = toml::from_str(&text)
            .with_context(|| format!("{} is not a configuration", path.display()))?;
        let mut file = file.serve;
        // A key source on the command line overrides any key source in the file.
        if self.key_file.is_some() || self.key_command.is_some() {
            (file.key_file, file.key_command) = (None, None);
        }
        Ok(Serve {
            // `--data` on the command line overrides `ephemeral` in the file.
            ephemeral: self.ephemeral || (file.ephemeral && self.data.is_none()),
            data: self.data.or(file.data),
            http: self.http.or(file.http),
            https: self.https.or(file.https),
            no_https: self.no_https || file.no_https,
            host: or_else(self.host, file.host),
            cors_origin: or_else(self.cors_origin, file.cors_origin),
            partitions: self.partitions.or(file.partitions),
            durability: self.durability.or(file.durability),
            history: self.history.or(file.history),
            split_at: self.split_at.or(file.split_at),
            account: self.account.or(file.account),
            key_file: self.key_file.or(file.key_file),
            key_command: self.key_command.or(file.key_command),
            secondary_key_file: self.secondary_key_file.or(file.secondary_key_file),
            read_only_key_file: self.read_only_key_file.or(file.read_only_key_file),
            enforce_throughput: self.enforce_throughput || file.enforce_throughput,
            consistency: self.consistency.or(file.consistency),
            any_date: self.any_date || file.any_date,
            no_auth: self.no_auth || file.no_auth,
            any_identity: self.any_identity || file.any_identity,
            previous_images: self.previous_images || file.previous_images,
            ready_json: self.ready_json || file.ready_json,
            config: self.config,
        })
    }

    fn data_dir(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| PathBuf::from("headwater-data"))
    }

    async fn open(&self) -> Result<Account> {
        let mut options = Options::default();
        options.script_workers = Some(super::script_worker::workers()?);
        options.partitions = self.partitions.unwrap_or(1);
        let partitions = options.partitions;
        ensure!(PARTITIONS.contains(&partitions), "partitions is {partitions}; give 1 to 1000");
        options.durability = match self.durability {
            None | Some(Level::Fsync) => Durability::Fsync,
            Some(Level::Os) => Durability::Os,
        };
        if let Some(history) = &self.history {
            options.history = history_of(history)?;
        }
        if let Some(size) = &self.split_at {
            options.split_at_bytes = size_of(size).with_context(|| {
                format!("--split-at is {size}; give a size like 512MiB or 8GiB, 0 or never")
            })?;
        }
        if self.ephemeral {
            return Account::ephemeral_with(options).await.context("cannot start in memory");
        }
        let dir = self.data_dir();
        data::open(&dir, options, "choose another directory with --data").await
    }

    fn server_config(&self) -> Result<Config> {
        let mut config = Config::emulator()?;
        if let Some(text) = &self.http {
            config.http = Some(resolve(text)?);
        }
        if let Some(text) = &self.https {
            config.https = Some(resolve(text)?);
        }
        if self.no_https {
            config.https = None;
        }
        config.hosts.clone_from(&self.host);
        config.cors_origins.clone_from(&self.cors_origin);
        config.certificates = Some(self.data_dir().join("tls")).filter(|_| !self.ephemeral);
        if let Some(account) = &self.account {
            config.account.clone_from(account);
        }
        if let Some(keys) = self.keys()? {
            config.keys = keys;
        }
        config.enforce_throughput = self.enforce_throughput;
        if let Some(level) = self.consistency {
            config.consistency = level.into();
        }
        config.clock_skew = Some(Duration::from_secs(15 * 60)).filter(|_| !self.any_date);
        config.any_identity = self.any_identity;
        config.previous_images = self.previous_images;
        config.check_signatures = !self.no_auth;
        Ok(config)
    }

    fn keys(&self) -> Result<Option<Keys>> {
        let primary = match (&self.key_file, &self.key_command, std::env::var("HEADWATER_KEY")) {
            (Some(path), _, _) => Some(read_key(path)?),
            (None, Some(command), _) => {
                let text = secret::of_command(command)?;
                let key = Key::from_base64(&text);
                Some(key.with_context(|| format!("what {command:?} prints is no key"))?)
            }
            (None, None, Ok(text)) => Some(Key::from_base64(text.trim()).context("HEADWATER_KEY")?),
            (None, None, Err(_)) => None,
        };
        let optional = |path: &Option<PathBuf>| path.as_deref().map(read_key).transpose();
        let secondary = optional(&self.secondary_key_file)?;
        let read_only = optional(&self.read_only_key_file)?;
        let Some(primary) = primary else {
            if secondary.is_some() || read_only.is_some() {
                bail!(
                    "a second or read-only key needs a first one; set HEADWATER_KEY, --key-file or \
                     --key-command"
                );
            }
            return Ok(None);
        };
        let mut keys = Keys::new(primary);
        keys.secondary = secondary;
        keys.primary_read_only = read_only;
        Ok(Some(keys))
    }
}

/// Parses an age, or 0.
fn history_of(text: &str) -> Result<Duration> {
    let millis = if text.trim() == "0" { Some(0) } else { age(text.trim()) };
    let millis =
        millis.with_context(|| format!("--history is {text}; give an age like 24h, 7d or 0"))?;
    Ok(Duration::from_millis(millis))
}

/// Parses a number of bytes with or without a unit. Returns 0 for `never`.
fn size_of(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    if text == "never" {
        return Some(0);
    }
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns the values of the command line, or else those of the file.
fn or_else(given: Vec<String>, file: Vec<String>) -> Vec<String> {
    if given.is_empty() { file } else { given }
}

/// Resolves the address to listen on. Prefers IPv4, which most clients try first.
fn resolve(text: &str) -> Result<SocketAddr> {
    let found = text.to_socket_addrs().with_context(|| {
        format!("cannot listen on {text:?}; give an address and a port, such as 127.0.0.1:8080")
    })?;
    let found: Vec<SocketAddr> = found.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().with_context(|| format!("cannot listen on {text:?}; the name has no address"))
}

fn read_key(path: &Path) -> Result<Key> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the key in {}", path.display()))?;
    Key::from_base64(text.trim()).with_context(|| format!("{} holds no key", path.display()))
}

fn announce(server: &Server, settings: &Serve) -> Result<()> {
    let at = |scheme: &str, address: Option<SocketAddr>| {
        address.map(|address| format!("{scheme}://{address}"))
    };
    let (http, https) = (at("http", server.http()), at("https", server.https()));
    let mut out = std::io::stdout().lock();
    let data = match settings.ephemeral {
        true => None,
        false => Some(std::path::absolute(settings.data_dir())?),
    };
    if settings.ready_json {
        let data = data.map(|dir| dir.display().to_string());
        let authentication = !settings.no_auth && !settings.any_identity;
        let line = serde_json::json!({
            "ready": true, "http": http, "https": https, "data": data, "authentication": authentication
        });
        writeln!(out, "{line}")?;
    } else {
        let both: Vec<String> = http.into_iter().chain(https).collect();
        let kept = data.map_or("in memory".to_owned(), |dir| format!("in {}", dir.display()));
        let warning = match (settings.no_auth, settings.any_identity) {
            (true, _) => "; authentication is off (--no-auth)",
            (false, true) => "; any identity token is accepted (--any-identity)",
            (false, false) => "",
        };
        writeln!(out, "headwater is ready at {}, data {kept}{warning}", both.join(" and "))?;
    }
    out.flush()?;
    Ok(())
}

async fn wait_for_signal() -> Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted?,
            _ = terminated.recv() => {}
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_none_and_can_be_never() {
        for (text, expected) in [
            ("0", Some(0)),
            ("never", Some(0)),
            ("Never", Some(0)),
            ("4096", Some(4096)),
            ("8GiB", Some(8 << 30)),
            ("512 mib", Some(512 << 20)),
            ("2t", Some(2 << 40)),
            ("", None),
            ("GiB", None),
            ("-1", None),
            ("8GB", None),
            ("1.5GiB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(size_of(text), expected, "{text}");
        }
    }
}
