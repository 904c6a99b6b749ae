//! What a server is told before it starts.

use crate::web;
use headwater_protocol::auth::{BadKey, EMULATOR_KEY, Key, Keys};
use headwater_protocol::headers::ConsistencyLevel;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The shortest key that is accepted where other machines can try to guess it.
const KEY_BYTES_MIN: usize = 32;

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
    /// Names and addresses by which clients reach this server, besides those of loopback.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use this server, such as `https://app.example`. Pages of loopback need
    /// no entry while [`Config::admits_anyone`].
    pub cors_origins: Vec<String>,
    /// How far the date of a request may be from ours; `None` accepts any date.
    pub clock_skew: Option<Duration>,
    /// Whether any well-formed identity token is accepted.
    pub any_identity: bool,
    /// Whether requests need a valid signature at all.
    pub check_signatures: bool,
    /// Whether provisioned throughput is enforced.
    pub enforce_throughput: bool,
    /// The default consistency level that the account document shows. Every read is strong; SDKs use the
    /// level to decide whether to send session tokens.
    pub consistency: ConsistencyLevel,
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
    /// Memory of the filters that readers of the change feed have given.
    pub filter_bytes: usize,
    /// How long a request waits for memory in use by others.
    pub memory_time: Duration,
    /// What one address may use of `connections`, `requests`, `waiting_readers`, `receiving_bytes`,
    /// `sending_bytes` and `filter_bytes`, in percent; networks of IPv6 (/64) count as one address.
    pub address_share_percent: usize,
    /// Requests being worked on at a time, waiting readers not counted.
    pub requests: usize,
    /// Readers that wait for changes at a time.
    pub waiting_readers: usize,
    /// How long a reader may wait for changes.
    pub wait_max: Duration,
    /// How long a backup may have no request, before the files it holds are released.
    pub backup_idle_time: Duration,
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
            // An idle one over HTTP/2 takes about 60 KB.
            connections: 5_120,
            streams: 128,
            receiving_bytes: 64 << 20,
            sending_bytes: 192 << 20,
            filter_bytes: 64 << 20,
            memory_time: Duration::from_secs(30),
            // Many programs may share an address; others must still be served.
            address_share_percent: 80,
            requests: 4_096,
            waiting_readers: 10_000,
            wait_max: Duration::from_secs(60),
            backup_idle_time: Duration::from_secs(300),
            shutdown_time: Duration::from_secs(10),
        }
    }
}

/// Errors in a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The well-known key, on an address that other machines can reach.
    #[error(
        "{address} can be reached from other machines, and the {which} is the well-known key of the \
         emulator. Set HEADWATER_KEY (or --key-file) to a key of your own, or listen on 127.0.0.1"
    )]
    PublicKey {
        /// The address.
        address: SocketAddr,
        /// Which of the keys.
        which: &'static str,
    },
    /// A key that can be guessed, on an address that other machines can reach.
    #[error(
        "{address} can be reached from other machines, and the {which} has {bytes} bytes. Use a key of at \
         least {KEY_BYTES_MIN} bytes, such as the output of `openssl rand -base64 64`, or listen on 127.0.0.1"
    )]
    ShortKey {
        /// The address.
        address: SocketAddr,
        /// Which of the keys.
        which: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// Authentication is off, on an address that other machines can reach.
    #[error(
        "{0} can be reached from other machines, and authentication is off. Leave out --no-auth, or \
         listen on 127.0.0.1"
    )]
    NoAuthentication(SocketAddr),
    /// Any identity token is accepted, on an address that other machines can reach.
    #[error(
        "{0} can be reached from other machines, and any identity token is accepted. Leave out \
         --any-identity, or listen on 127.0.0.1"
    )]
    AnyIdentity(SocketAddr),
    /// Not the name of a host.
    #[error("{0:?} is not the name of a host. Give a name or an address without scheme and port")]
    Host(String),
    /// Not an origin.
    #[error(
        "{0:?} is not an origin. Give scheme, name and port of the page, such as https://app.example or \
         http://192.168.0.7:3000; `*` and `null` are not allowed"
    )]
    Origin(String),
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
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            clock_skew: Some(Duration::from_secs(15 * 60)),
            any_identity: false,
            check_signatures: true,
            enforce_throughput: false,
            consistency: ConsistencyLevel::Session,
            previous_images: false,
            start_times: StartTimes::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            limits: Limits::default(),
        })
    }

    /// Whether only programs on this machine reach the server.
    pub(crate) fn is_local(&self) -> bool {
        self.http.into_iter().chain(self.https).all(|address| address.ip().is_loopback())
    }

    /// Whether a request needs no secret: a key is the well-known one, or authentication is off.
    #[must_use]
    pub fn admits_anyone(&self) -> bool {
        !self.check_signatures
            || self.any_identity
            || self.keys.named().any(|(_, key)| key.is_well_known())
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let addresses: Vec<SocketAddr> = self.http.into_iter().chain(self.https).collect();
        if addresses.is_empty() {
            return Err(ConfigError::NoAddress);
        }
        if let Some(address) = addresses.iter().find(|address| !address.ip().is_loopback()) {
            self.check_protection(*address)?;
        }
        let is_bad_host = |text: &&String| web::parse_host(text).is_none();
        if let Some(text) = self.hosts.iter().find(is_bad_host) {
            return Err(ConfigError::Host(text.clone()));
        }
        let is_bad_origin = |text: &&String| web::parse_origin(text).is_none();
        if let Some(text) = self.cors_origins.iter().find(is_bad_origin) {
            return Err(ConfigError::Origin(text.clone()));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let named = !self.account.is_empty() && self.account.len() <= 50;
        if !named || !self.account.chars().all(plain) || self.account == "localhost" {
            return Err(ConfigError::Account(self.account.clone()));
        }
        Ok(())
    }

    /// What an address that other machines can reach needs.
    fn check_protection(&self, address: SocketAddr) -> Result<(), ConfigError> {
        if !self.check_signatures {
            return Err(ConfigError::NoAuthentication(address));
        }
        if self.any_identity {
            return Err(ConfigError::AnyIdentity(address));
        }
        for (which, key) in self.keys.named() {
            if key.is_well_known() {
                return Err(ConfigError::PublicKey { address, which });
            }
            if key.bytes() < KEY_BYTES_MIN {
                return Err(ConfigError::ShortKey { address, which, bytes: key.bytes() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "bG9uZyBlbm91Z2ggdGhhdCBpdCBjYW5ub3QgYmUgZ3Vlc3NlZCBieSBhbnlvbmU=";
    const SHORT: &str = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZQ==";

    fn key(text: &str) -> Key {
        Key::from_base64(text).unwrap()
    }

    /// A server with its own key, on an address that other machines can reach.
    fn reachable() -> Config {
        let mut config = Config::emulator().unwrap();
        config.http = Some("192.0.2.1:8080".parse().unwrap());
        config.keys = Keys::new(key(LONG));
        config
    }

    #[track_caller]
    fn refused(change: impl Fn(&mut Config), says: &str) {
        let mut config = reachable();
        change(&mut config);
        let error = config.check().unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("192.0.2.1:8080"), "{error}");
        config.http = Some("127.0.0.1:8080".parse().unwrap());
        config.check().unwrap();
    }

    #[test]
    fn other_machines_reach_only_a_server_that_checks_keys_nobody_can_guess() {
        reachable().check().unwrap();
        refused(
            |config| config.keys = Keys::new(key(EMULATOR_KEY)),
            "the primary key is the well-known",
        );
        for text in [EMULATOR_KEY, SHORT] {
            let says = if text == SHORT { "key has 31 bytes" } else { "key is the well-known" };
            refused(|config| config.keys.secondary = Some(key(text)), says);
            refused(|config| config.keys.primary_read_only = Some(key(text)), says);
            refused(|config| config.keys.secondary_read_only = Some(key(text)), says);
        }
        refused(|config| config.keys = Keys::new(key(SHORT)), "the primary key has 31 bytes");
        refused(|config| config.check_signatures = false, "authentication is off");
        refused(|config| config.any_identity = true, "any identity token is accepted");
    }

    #[test]
    fn one_reachable_address_is_enough_to_refuse() {
        let mut config = Config::emulator().unwrap();
        config.https = Some("[::]:8081".parse().unwrap());
        assert!(matches!(config.check(), Err(ConfigError::PublicKey { .. })));
    }

    #[test]
    fn names_and_origins_are_checked_before_the_start() {
        let mut config = reachable();
        config.hosts = vec!["db.example".to_owned()];
        config.cors_origins = vec!["https://app.example".to_owned()];
        config.check().unwrap();
        config.cors_origins.push("*".to_owned());
        assert!(matches!(config.check(), Err(ConfigError::Origin(text)) if text == "*"));
        config.hosts.push("db.example:8080".to_owned());
        assert!(matches!(config.check(), Err(ConfigError::Host(_))));
    }
}
