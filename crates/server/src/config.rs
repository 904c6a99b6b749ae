//! The configuration of a server, and its validation.

use crate::web;
use headwater_protocol::auth::{BadKey, EMULATOR_KEY, Key, Keys};
use headwater_protocol::headers::ConsistencyLevel;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The minimum key length on addresses that other machines can reach.
const KEY_BYTES_MIN: usize = 32;

/// The configuration of a server: addresses, keys, rules and limits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The address for plain connections: HTTP/1.1, and HTTP/2 with prior knowledge.
    pub http: Option<SocketAddr>,
    /// The address for TLS connections.
    pub https: Option<SocketAddr>,
    /// The directory of the certificate authority; with `None` it exists only in memory.
    pub certificates: Option<PathBuf>,
    /// The name of the account.
    pub account: String,
    /// The accepted account keys.
    pub keys: Keys,
    /// Names and addresses by which clients reach this server, in addition to those of loopback.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use this server, such as `https://app.example`. Pages of loopback need
    /// no entry while [`Config::admits_anyone`].
    pub cors_origins: Vec<String>,
    /// How far a request's date may be from the server's time; `None` accepts any date.
    pub clock_skew: Option<Duration>,
    /// Accepts any well-formed identity token.
    pub any_identity: bool,
    /// Requires a valid signature for every request.
    pub check_signatures: bool,
    /// Enforces provisioned throughput.
    pub enforce_throughput: bool,
    /// The default consistency level that the account document shows. Every read is strong; SDKs use the
    /// level to decide whether to send session tokens.
    pub consistency: ConsistencyLevel,
    /// Includes the previous version of items in all-versions feeds for every client, even where the container's
    /// policy does not.
    pub previous_images: bool,
    /// The first response of a change feed that starts at a time.
    pub start_times: StartTimes,
    /// The number of threads that serve connections.
    pub threads: usize,
    /// The limits on clients.
    pub limits: Limits,
}

/// The content of the first response of a change feed that starts at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartTimes {
    /// Changes for API versions since 2018-12-31, a position for older ones.
    #[default]
    ByVersion,
    /// Always changes.
    Changes,
    /// Always a position.
    Position,
}

/// Limits on what one client, or all together, may use.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum size of a request's body.
    pub body_bytes: usize,
    /// The maximum size of a request's head.
    pub head_bytes: usize,
    /// The time limit for a request's head, from its first byte. For the first head of a connection it starts
    /// with the connection.
    pub head_time: Duration,
    /// The time limit for a request's body.
    pub body_time: Duration,
    /// How long a client may read nothing of its response.
    pub send_time: Duration,
    /// Replaces `send_time` while less than a quarter of `sending_bytes` is free for all or for the address.
    pub scarce_send_time: Duration,
    /// How long a connection may be without a request.
    pub idle_time: Duration,
    /// The maximum number of connections.
    pub connections: usize,
    /// The maximum number of concurrent requests on one HTTP/2 connection.
    pub streams: u32,
    /// The memory for requests being received: heads and bodies of more than 8 KiB.
    pub receiving_bytes: usize,
    /// The memory for responses of more than 8 KiB that are being sent.
    pub sending_bytes: usize,
    /// The memory for the filters of change feed readers.
    pub filter_bytes: usize,
    /// How long a request waits for memory.
    pub memory_time: Duration,
    /// The share that one address may use of `connections`, `requests`, `waiting_readers`, `receiving_bytes`,
    /// `sending_bytes` and `filter_bytes`, in percent; an IPv6 network (/64) counts as one address.
    pub address_share_percent: usize,
    /// The maximum number of concurrent requests, not counting waiting readers.
    pub requests: usize,
    /// The maximum number of readers that wait for changes.
    pub waiting_readers: usize,
    /// How long a reader may wait for changes.
    pub wait_max: Duration,
    /// How long a backup may be without a request before it is released.
    pub backup_idle_time: Duration,
    /// How long a shutdown waits for requests in progress.
    pub shutdown_time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // A batch holds 2 MiB of items; escapes in its JSON need more.
            body_bytes: 4 << 20,
            head_bytes: 64 << 10,
            head_time: Duration::from_secs(20),
            body_time: Duration::from_secs(60),
            send_time: Duration::from_secs(60),
            scarce_send_time: Duration::from_secs(5),
            idle_time: Duration::from_secs(120),
            // An idle HTTP/2 connection takes about 60 KB.
            connections: 5_120,
            streams: 128,
            receiving_bytes: 64 << 20,
            sending_bytes: 192 << 20,
            filter_bytes: 64 << 20,
            memory_time: Duration::from_secs(30),
            // Many programs may share an address, but others must still be served.
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
    /// The key is the well-known one, on an address that other machines can reach.
    #[error(
        "{address} can be reached from other machines, and the {which} is the well-known key of the \
         emulator. Set HEADWATER_KEY (or --key-file) to a key of your own, or listen on 127.0.0.1"
    )]
    PublicKey {
        /// The address.
        address: SocketAddr,
        /// The name of the key.
        which: &'static str,
    },
    /// The key is too short, on an address that other machines can reach.
    #[error(
        "{address} can be reached from other machines, and the {which} has {bytes} bytes. Use a key of at \
         least {KEY_BYTES_MIN} bytes, such as the output of `openssl rand -base64 64`, or listen on 127.0.0.1"
    )]
    ShortKey {
        /// The address.
        address: SocketAddr,
        /// The name of the key.
        which: &'static str,
        /// The length of the key.
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
    /// A value is not the name of a host.
    #[error("{0:?} is not the name of a host. Give a name or an address without scheme and port")]
    Host(String),
    /// A value is not an origin.
    #[error(
        "{0:?} is not an origin. Give scheme, name and port of the page, such as https://app.example or \
         http://192.168.0.7:3000; `*` and `null` are not allowed"
    )]
    Origin(String),
    /// No address is configured.
    #[error("there is nothing to listen on; give an address for http or https")]
    NoAddress,
    /// The account id is malformed, or one that SDKs treat specially.
    #[error("the account cannot be called {0:?}; use letters, digits and dashes, not `localhost`")]
    Account(String),
}

impl Config {
    /// A configuration for loopback with the emulator's key.
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

    /// Whether the server is reachable only from this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.http.into_iter().chain(self.https).all(|address| address.ip().is_loopback())
    }

    /// Whether a request needs no secret: a key is the well-known one, or any identity token or no signature
    /// is accepted.
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

    /// Checks the protection of an address that other machines can reach.
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
