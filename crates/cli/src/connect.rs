//! Builds a client from the options of a command: the server, the key and the trusted certificates.

use crate::address::{Address, Place};
use crate::contexts::{Contexts, NamedServer};
use crate::secret;
use anyhow::{Context, Result, bail};
use clap::Args;
use headwater_client::{Client, Container, Credential, Endpoint, Options};
use headwater_runtime::Runtime;
use std::path::{Path, PathBuf};

/// Help heading of these options.
const HEADING: &str = "Connection";

/// Which credentials to use, and which authorities to trust.
// Each option names its heading: a heading for the whole group would also cover the options after it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Connect {
    /// File with the account key [default: HEADWATER_KEY, the context's, or the emulator's on this machine]
    #[arg(long, value_name = "FILE", env = "HEADWATER_KEY_FILE", help_heading = HEADING)]
    key_file: Option<PathBuf>,
    /// Command that prints the account key, such as "pass show headwater"
    #[arg(long, value_name = "CMD", env = "HEADWATER_KEY_COMMAND", conflicts_with = "key_file", help_heading = HEADING)]
    key_command: Option<String>,
    /// PEM file of authorities to trust besides those of the machine
    #[arg(long, value_name = "FILE", env = "HEADWATER_AUTHORITY", help_heading = HEADING)]
    authority: Option<PathBuf>,
    /// Region to read from, such as "West Europe"; can be repeated, the best first
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    region: Vec<String>,
}

impl Connect {
    /// Returns the container that an address names.
    pub(crate) fn container(&self, address: &str, options: Options) -> Result<Container> {
        let address: Address = address.parse()?;
        let (database, container) = address.container()?;
        Ok(self.client(&address.place, options)?.container(database, container))
    }

    /// Returns a client of the server.
    pub(crate) fn client(&self, place: &Place, mut options: Options) -> Result<Client> {
        let (endpoint, server) = resolve(place)?;
        let credential = self.credential(&endpoint, server.as_ref())?;
        let authority = self.authority.clone();
        options.authorities =
            authority.or_else(|| server.and_then(|server| server.authority.clone()));
        options.preferred_regions.clone_from(&self.region);
        Ok(Client::new(endpoint, credential, options, Runtime::system())?)
    }

    fn credential(&self, endpoint: &Endpoint, server: Option<&NamedServer>) -> Result<Credential> {
        if let Some(file) = &self.key_file {
            return key_of_file(file);
        }
        if let Some(command) = &self.key_command {
            return key_of_command(command);
        }
        if let Some(file) = server.and_then(|server| server.key_file.as_deref()) {
            return key_of_file(file);
        }
        if let Some(name) = server.and_then(|server| server.key_env.as_deref()) {
            let text = std::env::var(name).with_context(|| {
                format!("the context takes its key from {name}, which is not set")
            })?;
            return Credential::key(&text).with_context(|| format!("the key in {name}"));
        }
        if let Some(command) = server.and_then(|server| server.key_command.as_deref()) {
            return key_of_command(command);
        }
        if let Ok(text) = std::env::var("HEADWATER_KEY") {
            return Credential::key(&text).context("the key in HEADWATER_KEY");
        }
        if let Ok(text) = std::env::var("HEADWATER_TOKEN") {
            return Ok(Credential::ResourceToken(text.trim().to_owned()));
        }
        if endpoint.is_loopback() {
            return Ok(Credential::emulator()?);
        }
        bail!(
            "there is no key for {endpoint}; set HEADWATER_KEY, give --key-file or --key-command, or \
             name the server once with `headwater context add`"
        )
    }
}

fn key_of_command(command: &str) -> Result<Credential> {
    let text = secret::of_command(command)?;
    Credential::key(&text).with_context(|| format!("what {command:?} prints is no key"))
}

fn key_of_file(file: &Path) -> Result<Credential> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the key in {}", file.display()))?;
    Credential::key(&text).with_context(|| format!("{} holds no key", file.display()))
}

/// Returns the endpoint, and its context if it has one.
fn resolve(place: &Place) -> Result<(Endpoint, Option<NamedServer>)> {
    let named = |contexts: &Contexts, name: &str| {
        let server = contexts.named(name)?.clone();
        let endpoint = server.endpoint.parse::<Endpoint>();
        let endpoint = endpoint.with_context(|| format!("the context {name:?}"))?;
        Ok((endpoint, Some(server)))
    };
    match place {
        Place::Endpoint(endpoint) => Ok((endpoint.clone(), None)),
        Place::Context(name) => named(&Contexts::load()?, name),
        Place::Default => {
            let contexts = Contexts::load()?;
            match &contexts.current {
                Some(name) => named(&contexts, name),
                None => Ok((Address::local(), None)),
            }
        }
    }
}

/// Runs a command that talks to servers.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let executor = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start threads")?;
    executor.block_on(work)
}
