//! `headwater context`: adds, lists, selects and removes named servers.

use crate::address::{Address, Place};
use crate::contexts::{Contexts, NamedServer, keep_key};
use crate::output::say;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use headwater_client::{Credential, Endpoint};
use std::io::BufRead;
use std::path::PathBuf;

/// What to do with names of servers.
#[derive(Debug, Subcommand)]
pub(crate) enum Context {
    /// Name a server
    #[command(long_about = ADD_HELP)]
    Add(Add),
    /// Show all names
    #[command(long_about = "Show all names\n\n    headwater context list")]
    List,
    /// Set the server that commands use when none is named
    #[command(long_about = USE_HELP)]
    Use {
        /// Name; `-` for none
        name: String,
    },
    /// Remove a name, and the key kept under it
    #[command(
        long_about = "Remove a name, and the key kept under it\n\n    headwater context remove dev"
    )]
    Remove {
        /// Name
        name: String,
    },
}

const USE_HELP: &str = "\
Set the server that commands use when none is named

    headwater context use dev
    headwater context use -";

const ADD_HELP: &str = "\
Name a server

    headwater context add dev http://localhost:8080
    headwater context add prod https://shop.documents.azure.com --key-env PROD_KEY
    headwater context add prod https://shop.documents.azure.com --key-command \"pass show prod\"
    echo \"$CONNECTION_STRING\" | headwater context add prod -

Afterwards `prod:shop/orders` is the container `orders` in the database `shop` there. The file is
~/.config/headwater/contexts.toml. A key is never written into it: it stays in the environment, in a file
or with a program that prints it; one that comes with a connection string is kept in a file only you can read.";

/// A new name.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Name
    name: String,
    /// http://host:port, https://host:port, or `-` to read a connection string from standard input
    endpoint: String,
    /// File with the account key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Environment variable with the account key
    #[arg(long, value_name = "NAME", conflicts_with = "key_file")]
    key_env: Option<String>,
    /// Command that prints the account key
    #[arg(long, value_name = "CMD", conflicts_with_all = ["key_file", "key_env"])]
    key_command: Option<String>,
    /// PEM file of authorities to trust
    #[arg(long, value_name = "FILE")]
    authority: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(command: Context) -> Result<()> {
    let mut contexts = Contexts::load()?;
    match command {
        Context::Add(add) => {
            let (name, server) = server_of(add)?;
            say(format_args!("{name} is {}", server.endpoint));
            contexts.contexts.insert(name, server);
            contexts.save()
        }
        Context::List => {
            list(&contexts);
            Ok(())
        }
        Context::Use { name } => {
            if name != "-" {
                contexts.named(&name)?;
            }
            contexts.current = Some(name).filter(|name| name != "-");
            contexts.save()
        }
        Context::Remove { name } => {
            contexts.named(&name)?;
            let removed = contexts.contexts.remove(&name);
            let kept = crate::contexts::directory()?.join("keys").join(&name);
            if removed.and_then(|server| server.key_file).is_some_and(|file| file == kept) {
                std::fs::remove_file(&kept)
                    .with_context(|| format!("cannot remove {}", kept.display()))?;
            }
            contexts.current = contexts.current.filter(|current| *current != name);
            contexts.save()
        }
    }
}

fn list(contexts: &Contexts) {
    if contexts.contexts.is_empty() {
        say(format_args!("no contexts; `headwater context add NAME http://host:port` makes one"));
    }
    for (name, server) in &contexts.contexts {
        let mark = if contexts.current.as_ref() == Some(name) { "*" } else { " " };
        let key = match (&server.key_file, &server.key_env, &server.key_command) {
            (Some(file), _, _) => format!("key in {}", file.display()),
            (None, Some(variable), _) => format!("key in ${variable}"),
            (None, None, Some(command)) => format!("key from {command:?}"),
            (None, None, None) => "no key of its own".to_owned(),
        };
        say(format_args!("{mark} {name}\t{}\t{key}", server.endpoint));
    }
}

fn server_of(add: Add) -> Result<(String, NamedServer)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ensure!(
        !add.name.is_empty() && add.name.len() <= 100 && add.name.chars().all(plain),
        "{:?} cannot be a name; use letters, digits, - and _",
        add.name
    );
    let mut server = NamedServer {
        endpoint: String::new(),
        key_file: add.key_file.map(std::path::absolute).transpose()?,
        key_env: add.key_env,
        key_command: add.key_command,
        authority: add.authority.map(std::path::absolute).transpose()?,
    };
    server.endpoint = if add.endpoint == "-" {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
        let (endpoint, key) = connection_string(line.trim())?;
        if let Some(key) = key {
            server.key_file = Some(keep_key(&add.name, &key)?);
        }
        endpoint.to_string()
    } else {
        endpoint_of(&add.endpoint)?.to_string()
    };
    Ok((add.name, server))
}

fn endpoint_of(text: &str) -> Result<Endpoint> {
    let address: Address = text.parse()?;
    match address.place {
        Place::Endpoint(endpoint) if address.names.is_empty() => Ok(endpoint),
        _ => bail!("{text:?} is not the address of a server; write http://host:port"),
    }
}

/// Parses a connection string: `AccountEndpoint=https://…;AccountKey=…;`
fn connection_string(text: &str) -> Result<(Endpoint, Option<String>)> {
    let mut endpoint = None;
    let mut key = None;
    for part in text.split(';').filter(|part| !part.trim().is_empty()) {
        match part.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("AccountEndpoint") => {
                endpoint = Some(value.trim().parse::<Endpoint>()?);
            }
            Some((name, value)) if name.trim().eq_ignore_ascii_case("AccountKey") => {
                Credential::key(value)?;
                key = Some(value.trim().to_owned());
            }
            Some(_) => {}
            None => bail!(
                "that is no connection string; it has the form AccountEndpoint=…;AccountKey=…"
            ),
        }
    }
    let endpoint = endpoint.context("the connection string has no AccountEndpoint")?;
    Ok((endpoint, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_name_a_server_and_a_key() {
        let (endpoint, key) =
            connection_string("AccountEndpoint=https://a.example.org:443/;AccountKey=QUJD;")
                .unwrap();
        assert_eq!(endpoint.to_string(), "https://a.example.org:443");
        assert_eq!(key.as_deref(), Some("QUJD"));
        for text in [
            "",
            "x",
            "AccountKey=QUJD",
            "AccountEndpoint=x",
            "AccountEndpoint=http://a;AccountKey=*",
        ] {
            assert!(connection_string(text).is_err(), "{text}");
        }
    }
}
