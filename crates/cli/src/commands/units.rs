//! Finds the processors (Headwater, .NET or Java) that keep leases for a container, for `lag`, `watch` and scalers.

use crate::connect::Connect;
use anyhow::{Result, ensure};
use clap::Args;
use headwater_client::{Container, Options};
use headwater_processor::lease_store::{ContainerLeases, LeaseStore, StoreError};
use headwater_processor::source::{FeedSource, RemoteFeed};
use headwater_processor::{Namespace, Unit};
use headwater_runtime::Runtime;
use std::sync::Arc;

/// A monitored container, and where the leases for it are.
#[derive(Debug, Args)]
pub(crate) struct Monitored {
    /// Monitored container: database/container, context:database/container or a URL
    address: String,
    /// Lease container [default: `leases` in the same database]
    #[arg(long, value_name = "ADDRESS")]
    leases: Option<String>,
    /// Processor, if there are several: its name or a part of its namespace
    #[arg(long, value_name = "TEXT")]
    processor: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

/// Returns the default lease container: `leases` in the same database.
pub(crate) fn leases_beside(address: &str) -> String {
    match address.rsplit_once('/') {
        Some((before, _)) => format!("{before}/leases"),
        None => format!("{address}/leases"),
    }
}

impl Monitored {
    /// Returns both containers. Sends no request.
    pub(crate) fn places(self) -> Result<Places> {
        let leases = self.leases.clone().unwrap_or_else(|| leases_beside(&self.address));
        let leases = self.connect.container(&leases, Options::default())?;
        let source = RemoteFeed::new(self.connect.container(&self.address, Options::default())?);
        Ok(Places { source, leases, processor: self.processor })
    }
}

/// The monitored container and the lease container. Repeated reads reuse their connections.
pub(crate) struct Places {
    pub(crate) source: RemoteFeed,
    leases: Container,
    processor: Option<String>,
}

impl Places {
    /// Returns every processor on the monitored container. Fails if there is none.
    pub(crate) async fn units(&self) -> Result<Vec<Unit>> {
        let units = self.of(ContainerLeases::open(self.leases.clone()).await?).await?;
        ensure!(!units.is_empty(), "no processor keeps leases for this container there");
        Ok(units)
    }

    /// Returns every processor on the monitored container. Having none is not an error: none may have started.
    pub(crate) async fn units_if_any(&self) -> Result<Vec<Unit>> {
        match ContainerLeases::open(self.leases.clone()).await {
            Ok(store) => self.of(store).await,
            Err(StoreError::Gone(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    async fn of(&self, store: ContainerLeases) -> Result<Vec<Unit>> {
        let store: Arc<dyn LeaseStore> = Arc::new(store);
        let identity = self.source.identity().await?;
        // Leases name a container by resource id, or by name (one flavour of Java).
        let ends = [false, true].map(|names| {
            let whole = Namespace::new("", &identity, names);
            whole.as_str()[identity.host.len()..].to_owned()
        });
        let mut found = Unit::discover(&*store).await?;
        found.retain(|name| ends.iter().any(|end| name.as_str().ends_with(end.as_str())));
        let unit = |name| Unit::new(store.clone(), name, Runtime::system());
        Ok(named(found, self.processor.as_deref()).into_iter().map(unit).collect())
    }
}

/// Selects the processors whose namespace contains a text. A namespace begins with the processor's name, followed by
/// the endpoint. A namespace that begins with the text is therefore preferred, and of `mail` and `mailer` at one
/// endpoint the first.
pub(crate) fn named(mut found: Vec<Namespace>, processor: Option<&str>) -> Vec<Namespace> {
    let Some(text) = processor else { return found };
    let behind = |name: &Namespace| name.as_str().strip_prefix(text).map(str::to_owned);
    let ends: Vec<String> = found.iter().filter_map(behind).collect();
    found.retain(|name| match behind(name) {
        Some(end) => !ends.iter().any(|shorter| end != *shorter && end.ends_with(shorter.as_str())),
        None => ends.is_empty() && name.as_str().contains(text),
    });
    found
}

#[cfg(test)]
mod tests {
    use super::{leases_beside, named};
    use headwater_processor::Namespace;

    #[test]
    fn a_processor_is_found_by_its_name_also_if_others_begin_or_end_with_it() {
        let all =
            ["mail127.0.0.1_a_b", "mailer127.0.0.1_a_b", "hotmail127.0.0.1_a_b", "127.0.0.1_a_b"];
        for (text, expected) in [
            ("mail", &all[..1]),
            ("mailer", &all[1..2]),
            ("hotmail", &all[2..3]),
            ("otmail", &all[2..3]),
            ("127", &all[3..]),
            ("a_b", &all[..]),
            ("other", &[]),
        ] {
            let found = all.map(Namespace::given).to_vec();
            let names: Vec<String> =
                named(found, Some(text)).iter().map(|name| name.as_str().to_owned()).collect();
            assert_eq!(names, expected, "{text}");
        }
        assert_eq!(named(all.map(Namespace::given).to_vec(), None).len(), all.len());
    }

    #[test]
    fn leases_are_looked_for_beside_the_container() {
        for (address, expected) in [
            ("shop/orders", "shop/leases"),
            ("prod:shop/orders", "prod:shop/leases"),
            ("http://127.0.0.1:8080/shop/orders", "http://127.0.0.1:8080/shop/leases"),
        ] {
            assert_eq!(leases_beside(address), expected);
        }
    }
}
