//! What a server is told before it starts.

use headwater_protocol::auth::{BadKey, EMULATOR_KEY, Key, Keys};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How a server listens, whom it lets in, and what it refuses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where to listen in the clear: HTTP/1.1, and HTTP/2 with prior knowledge.
    pub http: Option<SocketAddr>,
    /// Where to listen with TLS.
    pub https: Option<SocketAddr>,
    /// Where the certificate authority is kept; `None` makes one that is forgotten.
    pub certificates: Option<PathBuf>,
    /// The name of the account.
    pub account: String,
    /// The keys that are accepted.
    pub keys: Keys,
    /// Whether the keys are the ones everybody knows.
    pub keys_are_public: bool,
    /// How far the date of a request may be from ours; `None` accepts any date.
    pub clock_skew: Option<Duration>,
    /// Whether any well-formed identity token is accepted.
    pub any_identity: bool,
    /// Whether requests need a valid signature at all.
    pub check_signatures: bool,
    /// Whether provisioned throughput is enforced.
    pub enforce_throughput: bool,
    /// Whether all-versions feeds show the item before each change to everybody, also where a policy
    /// alone would not.
    pub previous_images: bool,
    /// What a change feed that starts at a time answers first.
    pub start_times: StartTimes,
    /// Threads that serve connections.
    pub threads: usize,
    /// What a client may use.
    pub limits: Limits,
}

/// What the first answer of a change feed that starts at a time holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartTimes {
    /// Changes for clients of today, a position for those from before 2018-12-31.
    #[default]
    ByVersion,
    /// Always changes.
    Changes,
    /// Always a position.
    Position,
}

/// What one client, or all of them together, may use.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// How long a request's head may take, from its first byte. The first head of a connection has this time
    /// from the start of the connection.
    pub head_time: Duration,
    /// How long a request's body may take.
    pub body_time: Duration,
    /// How long a client may read nothing of its answer.
    pub send_time: Duration,
    /// The same, while less than a quarter of `sending_bytes` is left for all or for its address.
    pub scarce_send_time: Duration,
    /// How long a connection may have no request under way.
    pub idle_time: Duration,
    /// Connections at a time.
    pub connections: usize,
    /// Requests of one connection at a time over HTTP/2.
    pub streams: u32,
    /// Memory of requests being received: heads and bodies of more than 8 KiB.
    pub receiving_bytes: usize,
    /// Memory of answers being sent that have more than 8 KiB.
    pub sending_bytes: usize,
    /// How long a request waits for memory in use by others.
    pub memory_time: Duration,
    /// What one address may use of `connections`, `requests`, `waiting_readers`, `receiving_bytes` and
    /// `sending_bytes`, in percent; networks of IPv6 (/64) count as one address.
    pub address_share_percent: usize,
    /// Requests being worked on at a time, waiting readers not counted.
    pub requests: usize,
    /// Readers that wait for changes at a time.
    pub waiting_readers: usize,
    /// How long a reader may wait for changes.
    pub wait_max: Duration,
    /// How long a shutdown waits for requests under way.
    pub shutdown_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // A batch of 2 MiB of items, in JSON that escapes some of it.
            body_bytes: 4 << 20,
            head_bytes: 64 << 10,
            head_time: Duration::from_secs(20),
            body_time: Duration::from_secs(60),
            send_time: Duration::from_secs(60),
            scarce_send_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(120),
            connections: 10_000,
            streams: 128,
            receiving_bytes: 64 << 20,
            sending_bytes: 256 << 20,
            memory_time: Duration::from_secs(30),
            // Many programs may share an address; others must still be served.
            address_share_percent: 80,
            requests: 4_096,
            waiting_readers: 10_000,
            wait_max: Duration::from_secs(60),
            shutdown_time: Duration::from_secs(10),
        }
    }
}

/// Why a server cannot be told that.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The key everybody knows, on an address others can reach.
    #[error(
        "{0} can be reached by others, and the emulator's key is known to everybody; set \
         HEADWATER_KEY (or --key-file) to a key of your own, or listen on 127.0.0.1"
    )]
    PublicKey(SocketAddr),
    /// Nothing to listen on.
    #[error("there is nothing to listen on; give an address for http or https")]
    NoAddress,
    /// An account id that SDKs treat specially, or that is none.
    #[error("the account cannot be called {0:?}; use letters, digits and dashes, not `localhost`")]
    Account(String),
}

impl Config {
    /// A server on loopback with the keys of the emulator.
    ///
    /// # Errors
    /// Never in practice: the emulator's key is well-formed.
    pub fn emulator() -> Result<Config, BadKey> {
        Ok(Config {
            http: Some(SocketAddr::from(([127, 0, 0, 1], 8080))),
            https: Some(SocketAddr::from(([127, 0, 0, 1], 8081))),
            certificates: None,
            account: "headwater".to_owned(),
            keys: Keys::new(Key::from_base64(EMULATOR_KEY)?),
            keys_are_public: true,
            clock_skew: Some(Duration::from_secs(15 * 60)),
            any_identity: false,
            check_signatures: true,
            enforce_throughput: false,
            previous_images: false,
            start_times: StartTimes::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            limits: Limits::default(),
        })
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let addresses: Vec<SocketAddr> = self.http.into_iter().chain(self.https).collect();
        if addresses.is_empty() {
            return Err(ConfigError::NoAddress);
        }
        let open = addresses.iter().find(|address| !address.ip().is_loopback());
        if let Some(address) = open.filter(|_| self.keys_are_public) {
            return Err(ConfigError::PublicKey(*address));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let named = !self.account.is_empty() && self.account.len() <= 50;
        if !named || !self.account.chars().all(plain) || self.account == "localhost" {
            return Err(ConfigError::Account(self.account.clone()));
        }
        Ok(())
    }
}
