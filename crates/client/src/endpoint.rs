//! The address of a server: scheme, host and port, without a path.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The longest possible host name.
const HOST_BYTES_MAX: usize = 255;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    tls: bool,
    host: String,
    port: u16,
}

/// Why a text is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEndpoint {
    /// The scheme is missing or not supported.
    #[error("{0:?} has no supported scheme; write http://host:port or https://host:port")]
    Scheme(String),
    /// The host is missing or malformed.
    #[error("{0:?} names no host; write http://host:port or https://host:port")]
    Host(String),
    /// The port is not valid.
    #[error("{0:?} has a port that is not a number from 1 to 65535")]
    Port(String),
    /// The text continues after the port.
    #[error("{0:?} continues after the host and port; remove the rest")]
    Path(String),
}

impl Endpoint {
    /// An endpoint without TLS.
    #[must_use]
    pub fn http(host: &str, port: u16) -> Endpoint {
        Endpoint { tls: false, host: host.to_owned(), port }
    }

    /// An endpoint with TLS.
    #[must_use]
    pub fn https(host: &str, port: u16) -> Endpoint {
        Endpoint { tls: true, host: host.to_owned(), port }
    }

    /// Whether it is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let bare = self.host.trim_matches(['[', ']']);
        bare.eq_ignore_ascii_case("localhost")
            || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Whether it is reached with TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The host; an IPv6 address is in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The same host and port with the other scheme.
    pub(crate) fn with_other_scheme(&self) -> Endpoint {
        Endpoint { tls: !self.tls, ..self.clone() }
    }
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, BadEndpoint> {
        let shown = || text.chars().take(HOST_BYTES_MAX).collect::<String>();
        let (scheme, rest) = text.split_once("://").ok_or_else(|| BadEndpoint::Scheme(shown()))?;
        let (tls, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(BadEndpoint::Scheme(shown())),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            return Err(BadEndpoint::Path(shown()));
        }
        let port_at = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
        let (host, port) = match port_at {
            Some(at) => {
                let port = authority[at + 1..].parse::<u16>().ok().filter(|port| *port != 0);
                (&authority[..at], port.ok_or_else(|| BadEndpoint::Port(shown()))?)
            }
            None => (authority, default_port),
        };
        if !is_host(host) {
            return Err(BadEndpoint::Host(shown()));
        }
        Ok(Endpoint { tls, host: host.to_owned(), port })
    }
}

fn is_host(text: &str) -> bool {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match bracketed {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && text.len() <= HOST_BYTES_MAX && text.bytes().all(plain),
    }
}

/// `http://host:port`, always with the port.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_a_scheme_a_host_and_a_port() {
        for (text, expected) in [
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://localhost", "http://localhost:80"),
            ("HTTPS://shop.documents.azure.com:443/", "https://shop.documents.azure.com:443"),
            ("https://[::1]:8081", "https://[::1]:8081"),
            ("http://[::1]", "http://[::1]:80"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), expected);
        }
        for text in [
            "",
            "localhost",
            "ftp://a",
            "http://",
            "http://a:0",
            "http://a:99999",
            "http://a:b",
            "http://a b",
            "http://a/b",
            "http://u@a",
            "http://[::1",
            "http://[x]:1",
            "http://a?b",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_is_this_machine_only() {
        for (text, here) in [
            ("http://localhost:1", true),
            ("http://127.0.0.9", true),
            ("http://[::1]:1", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example.org", false),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().is_loopback(), here, "{text}");
        }
    }
}
