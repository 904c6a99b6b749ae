//! Opens the containers of a trigger: app settings, connection strings, and an optional lease container to create.
//!
//! Secrets are in app settings and never in a `function.json`; this module never prints them.

use super::settings::{SettingsError, TriggerSettings};
use crate::lease_store::{ContainerLeases, Layout, StoreError};
use crate::source::RemoteFeed;
use headwater_client::{Client, ClientError, Container, Credential, Endpoint, Options};
use headwater_runtime::Runtime;
use serde_json::Value;
use std::collections::BTreeMap;

/// The default connection name.
const DEFAULT_CONNECTION: &str = "CosmosDB";
/// The user agent suffix of the trigger's requests.
const USER_AGENT_SUFFIX: &str = "CosmosDBTriggerFunctions";

/// Errors of opening the containers of a trigger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A connection string is invalid. It is not shown, because it may contain a key.
    #[error("the app setting {name:?} is not a connection string: {why}")]
    ConnectionString {
        /// The app setting.
        name: String,
        /// What is invalid.
        why: &'static str,
    },
    /// The account cannot be used.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The lease container does not exist, and the settings do not allow creating it.
    #[error(
        "there is no lease container {0:?}; create it, partitioned by /id, or set createLeaseContainerIfNotExists"
    )]
    NoLeaseContainer(String),
    /// The lease container cannot be used.
    #[error("the lease container: {0}")]
    Leases(#[from] StoreError),
}

/// App settings by name, from a `local.settings.json` and from the environment.
#[derive(Clone, Default)]
pub struct AppSettings {
    values: BTreeMap<String, String>,
    environment: bool,
}

impl AppSettings {
    /// Returns empty settings.
    #[must_use]
    pub fn none() -> AppSettings {
        AppSettings::default()
    }

    /// Returns the settings of the environment, as in a function app.
    #[must_use]
    pub fn environment() -> AppSettings {
        AppSettings { values: BTreeMap::new(), environment: true }
    }

    /// Adds `Values` and `ConnectionStrings` of a `local.settings.json`. The environment takes precedence.
    ///
    /// # Errors
    /// Fails if the text is not a JSON object.
    pub fn with_local(mut self, text: &str) -> Result<AppSettings, SettingsError> {
        let form = |error: serde_json::Error| SettingsError::Form {
            file: "local.settings.json",
            why: error.to_string(),
        };
        let local: BTreeMap<String, Value> = serde_json::from_str(text).map_err(form)?;
        for (section, before) in [("Values", ""), ("ConnectionStrings", "ConnectionStrings:")] {
            let values = local.get(section).and_then(Value::as_object);
            for (name, value) in values.into_iter().flatten() {
                // A connection string may be inside an object, next to the name of its provider.
                let inside = value.get("ConnectionString").unwrap_or(value);
                let text = inside.as_str().map_or_else(|| inside.to_string(), str::to_owned);
                self.values.insert(format!("{before}{name}"), text);
            }
        }
        Ok(self)
    }

    /// Adds one setting.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> AppSettings {
        self.values.insert(name.into(), value.into());
        self
    }

    /// Returns the value of a setting.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        let environment = || std::env::var(name).ok();
        let from_environment = self.environment.then(environment).flatten();
        from_environment.or_else(|| self.values.get(name).cloned())
    }

    /// Replaces every name between percent signs by the setting of that name.
    pub(super) fn resolve(&self, text: &str) -> Result<String, SettingsError> {
        let (mut resolved, mut rest) = (String::new(), text);
        while let Some((before, behind)) = rest.split_once('%') {
            let Some((name, after)) = behind.split_once('%') else { break };
            let none = || SettingsError::NoAppSetting(name.to_owned());
            resolved.push_str(before);
            resolved.push_str(&self.get(name).ok_or_else(none)?);
            rest = after;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }

    /// Returns the connection string of this name, from any place where Azure Functions looks for it.
    fn connection_string(&self, name: &str) -> Result<String, SettingsError> {
        let places = ["", "ConnectionStrings:", "ConnectionStrings__"];
        let found = places.into_iter().find_map(|place| self.get(&format!("{place}{name}")));
        found.ok_or_else(|| SettingsError::NoAppSetting(name.to_owned()))
    }
}

impl std::fmt::Debug for AppSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.values.keys().collect();
        write!(f, "AppSettings({names:?})")
    }
}

/// Opens the monitored container and the lease container, which is created if the settings say so.
pub(super) async fn open(
    settings: &TriggerSettings,
    app: &AppSettings,
    runtime: &Runtime,
) -> Result<(RemoteFeed, ContainerLeases), ConnectError> {
    let monitored = settings.connection.as_deref().unwrap_or(DEFAULT_CONNECTION);
    let lease = settings.lease_connection.as_deref().unwrap_or(monitored);
    let client = client(settings, monitored, app, runtime)?;
    let lease_client = match lease == monitored {
        true => client.clone(),
        false => self::client(settings, lease, app, runtime)?,
    };
    let feed = RemoteFeed::new(client.container(&settings.database, &settings.container));
    let leases = lease_client.container(&settings.lease_database, &settings.lease_container);
    let leases = match settings.create_lease_container {
        true => open_or_create(leases, settings.lease_throughput).await?,
        false => ContainerLeases::open(leases).await.map_err(|error| match error {
            StoreError::Gone(_) => ConnectError::NoLeaseContainer(settings.lease_container.clone()),
            other => other.into(),
        })?,
    };
    Ok((feed, leases))
}

/// Creates the database and the container, partitioned by `/id`; by `/partitionKey` on Gremlin accounts, which
/// refuse `/id`.
async fn open_or_create(
    leases: Container,
    throughput: Option<u32>,
) -> Result<ContainerLeases, ConnectError> {
    match leases.client().create_database(leases.database()).await {
        Ok(_) => {}
        Err(error) if error.is_already_exists() => {}
        Err(error) => return Err(error.into()),
    }
    match ContainerLeases::open_or_create(leases.clone(), Layout::Id, throughput).await {
        Err(StoreError::Refused(why)) if why.contains("Gremlin API") => {
            let layout = Layout::PartitionKey;
            Ok(ContainerLeases::open_or_create(leases, layout, throughput).await?)
        }
        other => Ok(other?),
    }
}

fn client(
    settings: &TriggerSettings,
    name: &str,
    app: &AppSettings,
    runtime: &Runtime,
) -> Result<Client, ConnectError> {
    let bad = |why| ConnectError::ConnectionString { name: name.to_owned(), why };
    let (endpoint, credential) = parse(&app.connection_string(name)?).map_err(bad)?;
    let mut options = Options::default();
    options.preferred_regions.clone_from(&settings.preferred_regions);
    options.user_agent_suffix = Some(match &settings.user_agent_suffix {
        Some(more) => format!("{USER_AGENT_SUFFIX} {more}"),
        None => USER_AGENT_SUFFIX.to_owned(),
    });
    Ok(Client::new(endpoint, credential, options, runtime.clone())?)
}

/// Parses `AccountEndpoint=https://…;AccountKey=…;`.
fn parse(text: &str) -> Result<(Endpoint, Credential), &'static str> {
    let part = |wanted: &str| {
        let mut parts = text.split(';').filter_map(|part| part.split_once('='));
        let found = parts.find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim())
    };
    let endpoint = part("AccountEndpoint").ok_or("it has no AccountEndpoint")?;
    let endpoint = endpoint.parse().map_err(|_| "its AccountEndpoint is not an address")?;
    let key = part("AccountKey").ok_or("it has no AccountKey")?;
    let key = Credential::key(key).map_err(|_| "its AccountKey is not base64")?;
    Ok((endpoint, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_percent_signs_are_app_settings() {
        let app = AppSettings::none().with("Db", "shop").with("Suffix", "-eu");
        let resolve = |text: &str| app.resolve(text);
        assert_eq!(resolve("%Db%%Suffix%").unwrap(), "shop-eu");
        assert_eq!(resolve("plain").unwrap(), "plain");
        assert_eq!(resolve("100%").unwrap(), "100%");
        let missing = SettingsError::NoAppSetting("Other".to_owned());
        assert_eq!(resolve("a%Other%b"), Err(missing));
    }

    #[test]
    fn local_settings_are_read_and_never_shown() {
        let text = r#"{"IsEncrypted":false,"Values":{"Shop":"a-secret","Port":7071},
            "ConnectionStrings":{"Old":{"ConnectionString":"b","ProviderName":"x"}}}"#;
        let app = AppSettings::none().with_local(text).unwrap();
        assert_eq!(app.get("Shop").as_deref(), Some("a-secret"));
        assert_eq!(app.get("Port").as_deref(), Some("7071"));
        assert_eq!(app.connection_string("Old").unwrap(), "b");
        assert!(app.connection_string("New").is_err());
        assert!(!format!("{app:?}").contains("a-secret"));
    }

    #[test]
    fn connection_strings_name_an_account_and_a_key() {
        let good = "AccountEndpoint=https://a.example.org:443/;AccountKey=QQ==;";
        assert_eq!(parse(good).unwrap().0.to_string(), "https://a.example.org:443");
        for (text, why) in [
            ("", "no AccountEndpoint"),
            ("AccountEndpoint=https://a.example.org", "no AccountKey"),
            ("AccountEndpoint=x y;AccountKey=QUJD", "not an address"),
            ("AccountEndpoint=https://a.example.org;AccountKey=*", "not base64"),
        ] {
            let refused = parse(text).map(|_| ()).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
