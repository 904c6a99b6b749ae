//! Which web pages may use this server.
//!
//! A browser sends the requests of any page to any address, also to loopback. While a request needs no
//! secret (the well-known key, or no authentication), three headers that pages cannot choose protect the data:
//!
//! * `Host` must name this server. Otherwise a page could let its own name point here (DNS rebinding) and
//!   would then be of the same origin.
//! * `Origin` must be a page of this machine or a listed one, with or without preflight.
//! * `Sec-Fetch-Site` must not be that of another page unless `Origin` names an allowed one. Images, scripts
//!   and `fetch` with `no-cors` send a GET without `Origin`, and a page sees whether they were served.
//!
//! With a key of its own, a server is protected by the key, and the list says only which pages may read
//! answers. `/metrics` needs no key, so its `Host` is checked in any case.
//!
//! Pure functions of a request's head; `gateway` calls them. No authentication here.

use crate::config::Config;
use crate::failure::Failure;
use crate::operations::service::METRICS;
use headwater_protocol::error::Code;
use hyper::Request;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use std::net::IpAddr;

/// The longest name of a host, from DNS.
const HOST_BYTES_MAX: usize = 253;
/// As much of a foreign name as a refusal repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Says which page made a request. Programs other than browsers do not send it.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// A person who opens an address, and a page of this server itself. Pages of another port of this machine are
/// `same-site`: those that are allowed have an `Origin`.
const OWN_SITES: [&str; 2] = ["none", "same-origin"];

/// The rules of one server.
#[derive(Debug)]
pub(crate) struct WebRules {
    admits_anyone: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl WebRules {
    /// The rules of a checked configuration.
    pub(crate) fn new(config: &Config) -> WebRules {
        WebRules {
            admits_anyone: config.admits_anyone(),
            hosts: config.hosts.iter().filter_map(|text| parse_host(text)).collect(),
            origins: config.cors_origins.iter().filter_map(|text| parse_origin(text)).collect(),
        }
    }

    /// Refuses requests that a foreign page may have made.
    pub(crate) fn admit<B>(&self, request: &Request<B>) -> Result<(), Failure> {
        if self.admits_anyone || request.uri().path() == METRICS {
            self.check_host(request)?;
        }
        let head = request.headers();
        if !self.admits_anyone || self.cors_origin(head).is_some() {
            return Ok(());
        }
        match head.get(ORIGIN) {
            Some(foreign) => Err(foreign_origin(foreign)),
            None if head.get_all(&FETCH_SITE).iter().all(is_own_site) => Ok(()),
            None => Err(foreign_site()),
        }
    }

    /// The page that made the request, if it may read the answer.
    pub(crate) fn cors_origin(&self, head: &HeaderMap) -> Option<HeaderValue> {
        let mut origins = head.get_all(ORIGIN).iter();
        let (origin, None) = (origins.next()?, origins.next()) else { return None };
        let text = origin.to_str().ok()?;
        let is_listed = self.origins.iter().any(|listed| listed == text);
        (is_listed || self.admits_anyone && is_loopback_origin(text)).then(|| origin.clone())
    }

    /// Every name a request gives the server must be one of ours: HTTP/1.1 has `Host` and perhaps a name in
    /// the request line, HTTP/2 has `:authority` and perhaps `Host`.
    fn check_host<B>(&self, request: &Request<B>) -> Result<(), Failure> {
        let named = request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes);
        let mut named = named.chain(request.uri().authority().map(|name| name.as_str().as_bytes()));
        let Some(first) = named.next() else { return Err(foreign_host(b"")) };
        let is_foreign = |authority: &&[u8]| {
            let host = std::str::from_utf8(authority).ok().and_then(host_of);
            !host.is_some_and(|host| self.is_ours(host))
        };
        match std::iter::once(first).chain(named).find(is_foreign) {
            Some(foreign) => Err(foreign_host(foreign)),
            None => Ok(()),
        }
    }

    /// An address cannot be rebound. While anyone is admitted, only loopback is listened on.
    fn is_ours(&self, host: &str) -> bool {
        let is_address = || !self.admits_anyone && host.parse::<IpAddr>().is_ok();
        is_loopback(host)
            || is_address()
            || self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host))
    }
}

/// The host of an authority, without port and brackets.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, if after.is_empty() { after } else { after.strip_prefix(':')? })
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    port.bytes().all(|byte| byte.is_ascii_digit()).then_some(host)
}

fn is_own_site(site: &HeaderValue) -> bool {
    OWN_SITES.iter().any(|own| site == own)
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_loopback_origin(origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.and_then(host_of).is_some_and(is_loopback)
}

/// A name or an address as a configuration gives it, in the form it is compared in.
pub(crate) fn parse_host(text: &str) -> Option<String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Some(address.to_string());
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = (1..=HOST_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
    is_name.then(|| text.to_ascii_lowercase())
}

/// An origin as a configuration gives it, in the form browsers send: lower case, no default port.
pub(crate) fn parse_origin(text: &str) -> Option<String> {
    let text = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
    let (scheme, authority) = text.split_once("://")?;
    let is_scheme =
        scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme || !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    parse_host(host_of(authority)?)?;
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    let authority = authority.strip_suffix(default_port).unwrap_or(authority);
    Some(format!("{scheme}://{authority}"))
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).chars().take(SHOWN_CHARS_MAX).collect()
}

fn foreign_host(name: &[u8]) -> Failure {
    let message = match shown(name) {
        name if name.is_empty() => {
            "the request does not say which host it is for. Send a Host header".to_owned()
        }
        name => format!(
            "the request is for the host {name:?}, which is not a name of this server. Use localhost or an \
             address. If the name is yours, start the server with --host and this name"
        ),
    };
    Failure::new(Code::Forbidden, message)
}

fn foreign_origin(origin: &HeaderValue) -> Failure {
    let message = match shown(origin.as_bytes()) {
        origin if origin == "null" => {
            "the request comes from a page without an origin, such as a file or a sandboxed frame, and this \
             server needs no secret key, so only pages of this machine may use it. Serve the page from \
             http://localhost"
                .to_owned()
        }
        origin => format!(
            "the request comes from a page of {origin:?}, and this server needs no secret key, so only pages \
             of this machine may use it. If the page is yours, start the server with --cors-origin and this \
             origin"
        ),
    };
    Failure::new(Code::Forbidden, message)
}

fn foreign_site() -> Failure {
    let message = "the request comes from another page and names no origin, and this server needs no secret \
                   key. Use fetch() with the mode `cors` from a page of http://localhost or of a --cors-origin";
    Failure::new(Code::Forbidden, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::auth::{Key, Keys};

    fn rules(change: impl FnOnce(&mut Config)) -> WebRules {
        let mut config = Config::emulator().unwrap();
        change(&mut config);
        config.check().unwrap();
        WebRules::new(&config)
    }

    fn own_key(config: &mut Config) {
        config.keys = Keys::new(Key::from_base64("QUJD").unwrap());
    }

    fn request(path: &str, head: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri(path);
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn is_admitted(rules: &WebRules, path: &str, head: &[(&str, &str)]) -> bool {
        rules.admit(&request(path, head)).is_ok()
    }

    #[test]
    fn while_no_secret_is_needed_only_requests_for_this_machine_are_served() {
        let open = [
            rules(|_| ()),
            rules(|config| {
                own_key(config);
                config.check_signatures = false;
            }),
            rules(|config| {
                own_key(config);
                config.any_identity = true;
            }),
            rules(|config| {
                own_key(config);
                config.keys.primary_read_only = Some(Config::emulator().unwrap().keys.primary);
            }),
        ];
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:8080", true),
            ("127.0.0.1", true),
            ("127.0.0.1:1", true),
            ("[::1]", true),
            ("[::1]:8081", true),
            ("evil.test", false),
            ("evil.test:8080", false),
            ("localhost.evil.test", false),
            ("evil.test:localhost", false),
            ("localhost:80@evil.test", false),
            ("user@localhost", false),
            ("192.0.2.1:8080", false),
            ("0.0.0.0:8080", false),
            ("[::1]evil.test", false),
            ("[::1", false),
            ("", false),
        ] {
            for (rules, path) in open
                .iter()
                .flat_map(|rules| ["/dbs", "/health/live", METRICS].map(|path| (rules, path)))
            {
                assert_eq!(is_admitted(rules, path, &[("host", host)]), expected, "{host} {path}");
            }
        }
    }

    #[test]
    fn a_request_that_names_two_hosts_must_name_ours_both_times() {
        let rules = rules(|_| ());
        assert!(!is_admitted(&rules, "/dbs", &[]), "none");
        assert!(is_admitted(&rules, "http://localhost/dbs", &[]), "HTTP/2");
        assert!(!is_admitted(&rules, "http://evil.test/dbs", &[]), "HTTP/2");
        assert!(!is_admitted(&rules, "http://localhost/dbs", &[("host", "evil.test")]));
        assert!(!is_admitted(&rules, "http://evil.test/dbs", &[("host", "localhost")]));
        let twice = [("host", "localhost"), ("host", "evil.test")];
        assert!(!is_admitted(&rules, "/dbs", &twice));
    }

    #[test]
    fn while_no_secret_is_needed_only_pages_of_this_machine_and_listed_ones_are_served() {
        let rules = rules(|config| {
            config.hosts = vec!["Box.example".to_owned()];
            config.cors_origins = vec!["https://App.example:443/".to_owned()];
        });
        assert!(is_admitted(&rules, "/dbs", &[("host", "box.example:8080")]));
        for (origin, expected) in [
            ("http://localhost", true),
            ("http://localhost:3000", true),
            ("https://127.0.0.1:8443", true),
            ("http://[::1]:5173", true),
            ("https://app.example", true),
            ("http://app.example", false),
            ("https://app.example:8443", false),
            ("https://app.example.evil.test", false),
            ("https://evil.test", false),
            ("http://localhost.evil.test", false),
            ("http://localhost@evil.test", false),
            ("http://box.example:8080", false),
            ("ftp://localhost", false),
            ("file://", false),
            ("null", false),
            ("*", false),
            ("", false),
        ] {
            let head = [("host", "localhost"), ("origin", origin)];
            assert_eq!(is_admitted(&rules, "/dbs", &head), expected, "{origin}");
            assert_eq!(is_admitted(&rules, METRICS, &head), expected, "{origin}");
            let allowed = rules.cors_origin(request("/", &head).headers());
            assert_eq!(allowed, expected.then(|| origin.parse().unwrap()), "{origin}");
        }
        let twice = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "https://evil.test"),
        ];
        assert!(!is_admitted(&rules, "/dbs", &twice));
    }

    #[test]
    fn while_no_secret_is_needed_no_request_of_another_page_is_served_without_an_allowed_origin() {
        let open = rules(|_| ());
        let own = rules(own_key);
        for (site, expected) in [
            ("none", true),
            ("same-origin", true),
            ("same-site", false),
            ("cross-site", false),
            ("None", false),
            ("", false),
        ] {
            let head = [("host", "localhost"), (FETCH_SITE.as_str(), site)];
            assert_eq!(is_admitted(&open, "/dbs", &head), expected, "{site}");
            assert_eq!(is_admitted(&open, METRICS, &head), expected, "{site}");
            assert!(is_admitted(&own, "/dbs", &head), "{site}");
            let allowed = [head[0], head[1], ("origin", "http://localhost:3000")];
            assert!(is_admitted(&open, "/dbs", &allowed), "{site}");
            let foreign = [head[0], head[1], ("origin", "https://evil.test")];
            assert!(!is_admitted(&open, "/dbs", &foreign), "{site}");
        }
        let twice = [
            ("host", "localhost"),
            (FETCH_SITE.as_str(), "none"),
            (FETCH_SITE.as_str(), "cross-site"),
        ];
        assert!(!is_admitted(&open, "/dbs", &twice));
    }

    #[test]
    fn with_a_key_of_its_own_a_server_has_any_name_and_answers_only_listed_pages() {
        let rules = rules(|config| {
            own_key(config);
            config.cors_origins = vec!["https://app.example".to_owned()];
        });
        for (origin, expected) in [
            ("https://app.example", true),
            ("http://localhost:3000", false),
            ("https://evil.test", false),
            ("null", false),
        ] {
            let head = [("host", "db.example"), ("origin", origin)];
            assert!(is_admitted(&rules, "/dbs", &head), "{origin}");
            let allowed = rules.cors_origin(request("/", &head).headers());
            assert_eq!(allowed.is_some(), expected, "{origin}");
        }
    }

    #[test]
    fn metrics_need_no_key_and_so_no_page_can_read_them_by_rebinding_its_name() {
        let rules = rules(|config| {
            own_key(config);
            config.hosts = vec!["db.example".to_owned()];
        });
        for (host, expected) in [
            ("10.0.0.7:8080", true),
            ("[fd00::1]:8080", true),
            ("localhost:8080", true),
            ("db.example", true),
            ("evil.test", false),
        ] {
            assert_eq!(is_admitted(&rules, METRICS, &[("host", host)]), expected, "{host}");
            assert!(is_admitted(&rules, "/health/ready", &[("host", host)]), "{host}");
        }
    }

    #[test]
    fn origins_and_hosts_of_a_configuration() {
        for (text, expected) in [
            ("https://app.example", Some("https://app.example")),
            ("http://App.example:80/", Some("http://app.example")),
            ("http://192.0.2.7:3000", Some("http://192.0.2.7:3000")),
            ("http://[fd00::1]:3000", Some("http://[fd00::1]:3000")),
            ("tauri://localhost", Some("tauri://localhost")),
            ("https://*.example", None),
            ("https://app.example/path", None),
            ("app.example", None),
            ("://app.example", None),
            ("https://", None),
            ("*", None),
            ("null", None),
            ("", None),
        ] {
            assert_eq!(parse_origin(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("Db.example", Some("db.example")),
            ("[::1]", Some("::1")),
            ("192.0.2.1", Some("192.0.2.1")),
            ("db.example:8080", None),
            ("http://db.example", None),
            ("*", None),
            ("", None),
        ] {
            assert_eq!(parse_host(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_refusal_says_what_happened_and_what_to_do() {
        let rules = rules(|_| ());
        let said = |head: &[(&str, &str)]| rules.admit(&request("/dbs", head)).unwrap_err().message;
        assert!(
            said(&[("host", "evil.test")]).contains("\"evil.test\", which is not a name of this")
        );
        let local = ("host", "localhost");
        assert!(said(&[local, ("origin", "https://evil.test")]).contains("--cors-origin"));
        assert!(said(&[local, ("origin", "null")]).contains("http://localhost"));
        assert!(said(&[("host", &"x".repeat(10_000))]).len() < 400);
    }
}
