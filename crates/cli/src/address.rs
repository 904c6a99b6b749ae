//! Parses addresses: texts that name a server, a database and a container. It opens no connection.
//!
//! ```text
//! shop/orders                                  the context in use, or http://127.0.0.1:8080
//! prod:shop/orders                             the context called prod
//! headwater://localhost:8080/shop/orders       a Headwater server in the clear, port 8080 by default
//! https://name.documents.azure.com/shop/orders any server
//! ```

use anyhow::{Result, bail, ensure};
use headwater_client::Endpoint;
use percent_encoding::percent_decode_str;
use std::str::FromStr;

const DEFAULT_PORT: u16 = 8080;
const EXAMPLE: &str = "write database/container, context:database/container or \
                       http://host:port/database/container";

/// The server part of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The current context, or this machine if there is none.
    Default,
    /// A context by its name.
    Context(String),
    /// An endpoint that the address spells out.
    Endpoint(Endpoint),
}

/// A server, and a database or container on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) place: Place,
    /// The database and the container; either can be absent.
    pub(crate) names: Vec<String>,
}

impl Address {
    /// Returns the default server: plain HTTP on this machine.
    pub(crate) fn local() -> Endpoint {
        Endpoint::http("127.0.0.1", DEFAULT_PORT)
    }

    /// Returns the database and the container. Fails unless the address names both.
    pub(crate) fn container(&self) -> Result<(&str, &str)> {
        match &self.names[..] {
            [database, container] => Ok((database, container)),
            [] => bail!("the address names no container; {EXAMPLE}"),
            [only] => bail!("{only:?} names a database but no container; {EXAMPLE}"),
            _ => bail!("the address names more than a database and a container; {EXAMPLE}"),
        }
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Address> {
        ensure!(!text.trim().is_empty(), "the address is empty; {EXAMPLE}");
        if let Some((scheme, rest)) = text.split_once("://") {
            return from_url(scheme, rest);
        }
        let (place, path) = match text.split_once(':') {
            Some((name, path)) => {
                ensure!(!name.is_empty(), "there is no context before the colon; {EXAMPLE}");
                ensure!(!name.contains('/'), "{text:?} has a colon in a name; {EXAMPLE}");
                let is_host = name == "localhost" || name.starts_with('[') || name.contains('.');
                ensure!(!is_host, "{text:?} has no scheme; write http://{text} or https://{text}");
                (Place::Context(name.to_owned()), path)
            }
            None => (Place::Default, text),
        };
        Ok(Address { place, names: names(path, false)? })
    }
}

fn from_url(scheme: &str, rest: &str) -> Result<Address> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let endpoint = match scheme.to_ascii_lowercase().as_str() {
        "headwater" => {
            let has_port = authority.rfind(':') > authority.rfind(']');
            let port = if has_port { String::new() } else { format!(":{DEFAULT_PORT}") };
            format!("http://{authority}{port}")
        }
        _ => format!("{scheme}://{authority}"),
    };
    let place = Place::Endpoint(endpoint.parse::<Endpoint>()?);
    Ok(Address { place, names: names(path, true)? })
}

/// Splits a path into its names. Only URLs use percent escapes.
fn names(path: &str, escaped: bool) -> Result<Vec<String>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let names = path.split('/').map(|name| {
        ensure!(!name.is_empty(), "the address has an empty name; {EXAMPLE}");
        if !escaped {
            return Ok(name.to_owned());
        }
        Ok(percent_decode_str(name).decode_utf8()?.into_owned())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address> {
        text.parse()
    }

    #[test]
    fn every_form_names_the_same_container() {
        let at = |text: &str| Place::Endpoint(text.parse().unwrap());
        for (text, place) in [
            ("shop/orders", Place::Default),
            ("/shop/orders/", Place::Default),
            ("prod:shop/orders", Place::Context("prod".to_owned())),
            ("prod:/shop/orders", Place::Context("prod".to_owned())),
            ("headwater://localhost:9/shop/orders", at("http://localhost:9")),
            ("headwater://localhost/shop/orders", at("http://localhost:8080")),
            ("headwater://[::1]/shop/orders", at("http://[::1]:8080")),
            ("https://a.documents.azure.com/shop/orders", at("https://a.documents.azure.com:443")),
            ("http://127.0.0.1:8080/sh%6Fp/orders", at("http://127.0.0.1:8080")),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.place, place, "{text}");
            assert_eq!(address.container().unwrap(), ("shop", "orders"), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for text in ["", " ", "shop", "a/b/c", "a//b", ":a/b", "a/b:c", "http://x", "http://x/y"] {
            let refused = parse(text).and_then(|address| address.container().map(drop));
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("database/container"), "{text}: {message}");
        }
        for text in ["localhost:8080", "localhost:8080/a/b", "127.0.0.1:8080/a/b", "[::1]:80/a/b"] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(&format!("write http://{text}")), "{text}: {message}");
        }
        for text in ["ftp://x/a/b", "http:///a/b", "http://x:0/a/b", "headwater://x:y/a/b"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
