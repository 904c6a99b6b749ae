//! The settings of a Cosmos DB trigger, as in `function.json` and `host.json`.
//!
//! Every setting is accepted under its current and its older names. Unknown settings and invalid combinations are
//! refused by name, because a silently ignored setting can lose changes. Never reads a file or opens a connection;
//! see [`TriggerHost::connect`](super::TriggerHost::connect).

use super::connect::AppSettings;
use super::retry::Retry;
use crate::checkpoint::Checkpoint;
use crate::lease::{Flavour, Start};
use crate::options::Options;
use headwater_model::Timestamp;
use serde_json::{Map, Value};
use std::time::Duration;

/// Errors in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file is not JSON, or has the wrong structure.
    #[error("{file} is invalid: {why}")]
    Form {
        /// The file.
        file: &'static str,
        /// What is invalid.
        why: String,
    },
    /// A required setting is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The setting does not exist.
    #[error("there is no setting {0:?}; check its spelling")]
    Unknown(String),
    /// A setting was given under two names, with different values.
    #[error("{one} and {other} name the same setting but differ; remove one")]
    Twice {
        /// One name.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// The value has the wrong type, or is out of range.
    #[error("{name} is {given}; it should be {wanted}")]
    Bad {
        /// The setting.
        name: &'static str,
        /// The given value.
        given: String,
        /// The expected values.
        wanted: &'static str,
    },
    /// Two settings exclude each other.
    #[error("startFromBeginning and startFromTime exclude each other; remove one")]
    TwoStarts,
    /// The lease container is the monitored container.
    #[error(
        "leaseContainerName is the monitored container {0:?}: every lease write would be a change to handle; use a \
         separate lease container"
    )]
    SameContainer(String),
    /// The expiration is too short: one lost renewal would cost a lease.
    #[error(
        "leaseExpirationInterval is less than three times leaseRenewInterval, so that one lost request costs a \
         lease; raise it, or renew more often"
    )]
    ExpiresTooSoon,
    /// An app setting is missing that a name in percent signs or a connection refers to.
    #[error("there is no app setting {0:?}; add it")]
    NoAppSetting(String),
}

/// The settings of a trigger. The defaults are those of the Azure Functions extension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriggerSettings {
    /// The app setting with the connection string of the monitored account (`connection`,
    /// `connectionStringSetting`); `None` means the default one.
    pub connection: Option<String>,
    /// `databaseName`
    pub database: String,
    /// `containerName`, `collectionName`
    pub container: String,
    /// The app setting with the connection string of the lease account; `None` means the monitored account
    /// (`leaseConnection`, `leaseConnectionStringSetting`).
    pub lease_connection: Option<String>,
    /// `leaseDatabaseName`; the monitored one by default.
    pub lease_database: String,
    /// `leaseContainerName`, `leaseCollectionName`
    pub lease_container: String,
    /// `createLeaseContainerIfNotExists`, `createLeaseCollectionIfNotExists`
    pub create_lease_container: bool,
    /// `leasesContainerThroughput`, `leasesCollectionThroughput`
    pub lease_throughput: Option<u32>,
    /// Separates functions that share a lease container (`leaseContainerPrefix`,
    /// `leaseCollectionPrefix`, `leaseOptions.leasePrefix` of `host.json`).
    pub prefix: String,
    /// `feedPollDelay`, `feedPollTime`
    pub poll_delay: Duration,
    /// `leaseAcquireInterval`
    pub acquire_interval: Duration,
    /// `leaseExpirationInterval`
    pub expiration: Duration,
    /// `leaseRenewInterval`
    pub renew_interval: Duration,
    /// `maxItemsPerInvocation`; 100 by default. `None` leaves the page size to the server.
    pub items_max: Option<u32>,
    /// `startFromBeginning`, `startFromTime`; applies to the very first start only.
    pub start: Start,
    /// `preferredLocations`
    pub preferred_regions: Vec<String>,
    /// `checkpointInterval`, `checkpointDocumentCount` of older versions.
    pub checkpoint: Checkpoint,
    /// `userAgentSuffix` of `host.json`
    pub user_agent_suffix: Option<String>,
    /// `retry` of a `function.json`
    pub retry: Option<Retry>,
    /// Messages about accepted settings that have no effect here.
    pub notes: Vec<String>,
}

/// The default lease container.
const LEASES: &str = "leases";
/// The default number of items per batch.
const ITEMS_MAX: u32 = 100;
/// The extension's intervals are signed 32-bit numbers of milliseconds.
const MILLIS_MAX: u64 = i32::MAX as u64;
/// The minimum throughput that the service accepts.
const THROUGHPUT_MIN: u64 = 400;

/// Properties of a binding that are not settings.
const NOT_SETTINGS: [&[&str]; 4] = [&["type"], &["name"], &["direction"], &["dataType"]];

impl TriggerSettings {
    /// Returns the defaults for a monitored container.
    #[must_use]
    pub fn new(database: impl Into<String>, container: impl Into<String>) -> TriggerSettings {
        let (database, interop) = (database.into(), Options::interop(Flavour::DotNetV3, ""));
        TriggerSettings {
            connection: None,
            lease_database: database.clone(),
            database,
            container: container.into(),
            lease_connection: None,
            lease_container: LEASES.to_owned(),
            create_lease_container: false,
            lease_throughput: None,
            prefix: String::new(),
            poll_delay: interop.poll_delay,
            acquire_interval: interop.acquire_interval,
            expiration: interop.expiration,
            renew_interval: interop.renew_interval,
            items_max: Some(ITEMS_MAX),
            start: Start::Now,
            preferred_regions: Vec::new(),
            checkpoint: Checkpoint::EveryBatch,
            user_agent_suffix: None,
            retry: None,
            notes: Vec::new(),
        }
    }

    /// Parses a `function.json` and an optional `host.json`.
    ///
    /// Each may also be only its relevant part: the binding, or the section `extensions.cosmosDB`. Names in percent
    /// signs are app settings.
    ///
    /// # Errors
    /// Fails if a setting is missing, unknown, out of range, or contradicts another one.
    pub fn parse(
        function: &str,
        host: Option<&str>,
        app: &AppSettings,
    ) -> Result<TriggerSettings, SettingsError> {
        let function = object("function.json", function)?;
        let binding = binding_of(&function)?;
        let mut settings = Properties::new(binding, app).read()?;
        if let Some(retry) = function.get("retry") {
            settings.retry = Some(Retry::parse(retry)?);
        }
        if let Some(host) = host {
            let host = object("host.json", host)?;
            settings.add_host(&section_of(&host), app)?;
        }
        settings.check()?;
        Ok(settings)
    }

    /// Validates combinations that no configuration can intend.
    ///
    /// # Errors
    /// Fails if a name is empty, if the lease container is the monitored one, or if the expiration is too short.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (name, value) in [("databaseName", &self.database), ("containerName", &self.container)]
        {
            if value.is_empty() {
                return Err(SettingsError::Missing(name));
            }
        }
        let account = |name: &Option<String>| name.clone().or_else(|| self.connection.clone());
        let same_account = account(&self.lease_connection) == self.connection;
        let same_database = self.lease_database == self.database;
        if same_account && same_database && self.lease_container == self.container {
            return Err(SettingsError::SameContainer(self.container.clone()));
        }
        if self.expiration < self.renew_interval * 3 {
            return Err(SettingsError::ExpiresTooSoon);
        }
        Ok(())
    }

    /// Returns the processor options for these settings. Leases have the format of the .NET SDK, as Azure's trigger
    /// writes it, so that hosts of both kinds share the work.
    #[must_use]
    pub fn options(&self) -> Options {
        let mut options = Options::interop(Flavour::DotNetV3, self.prefix.clone());
        options.start = self.start.clone();
        options.poll_delay = self.poll_delay;
        options.acquire_interval = self.acquire_interval;
        options.expiration = self.expiration;
        options.renew_interval = self.renew_interval;
        options.items_max = self.items_max;
        options.checkpoint = self.checkpoint;
        options
    }

    /// Applies the settings of `host.json`; the binding takes precedence.
    fn add_host(
        &mut self,
        section: &Map<String, Value>,
        app: &AppSettings,
    ) -> Result<(), SettingsError> {
        let mut host = Properties::new(section, app);
        let is_direct = |mode: &str| !mode.eq_ignore_ascii_case("gateway");
        if let Some(mode) = host.text(&["connectionMode"])?.filter(|mode| is_direct(mode)) {
            self.notes.push(format!(
                "connectionMode {mode} has no effect: every connection uses the gateway"
            ));
        }
        if let Some(protocol) = host.text(&["protocol"])? {
            self.notes
                .push(format!("protocol {protocol} has no effect: every connection uses HTTP"));
        }
        self.user_agent_suffix = host.text(&["userAgentSuffix"])?;
        if let Some(lease) = host.take(&["leaseOptions"])? {
            let given = lease.as_object().ok_or_else(|| bad("leaseOptions", lease, "an object"))?;
            let mut lease = Properties::new(given, app);
            let prefix = lease.text(&["leasePrefix"])?;
            lease.end()?;
            if self.prefix.is_empty() {
                self.prefix = prefix.unwrap_or_default();
            }
        }
        host.end()
    }
}

fn object(file: &'static str, text: &str) -> Result<Map<String, Value>, SettingsError> {
    let form = |error: serde_json::Error| SettingsError::Form { file, why: error.to_string() };
    serde_json::from_str(text).map_err(form)
}

/// Returns the trigger's binding in a `function.json`; the object itself if it is a binding.
fn binding_of(function: &Map<String, Value>) -> Result<&Map<String, Value>, SettingsError> {
    let Some(bindings) = function.get("bindings") else { return Ok(function) };
    let is_trigger = |binding: &&Map<String, Value>| {
        let kind = binding.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("cosmosDBTrigger"))
    };
    let bindings = bindings.as_array().into_iter().flatten().filter_map(Value::as_object);
    let why = "it has no binding of type cosmosDBTrigger".to_owned();
    let none = SettingsError::Form { file: "function.json", why };
    bindings.into_iter().find(is_trigger).ok_or(none)
}

/// Returns the extension's section in a `host.json`; the object itself if it is that section.
fn section_of(host: &Map<String, Value>) -> Map<String, Value> {
    if !host.contains_key("version") && !host.contains_key("extensions") {
        return host.clone();
    }
    let section = host.get("extensions").and_then(|all| all.get("cosmosDB"));
    section.and_then(Value::as_object).cloned().unwrap_or_default()
}

fn bad(name: &'static str, given: &Value, wanted: &'static str) -> SettingsError {
    let given = given.as_str().map_or_else(|| given.to_string(), |text| format!("{text:?}"));
    SettingsError::Bad { name, given, wanted }
}

/// The properties of an object. Each is taken once, so that the remaining ones are unknown.
struct Properties<'a> {
    left: Vec<(&'a str, &'a Value)>,
    app: &'a AppSettings,
}

impl<'a> Properties<'a> {
    fn new(object: &'a Map<String, Value>, app: &'a AppSettings) -> Properties<'a> {
        Properties {
            left: object.iter().map(|(name, value)| (name.as_str(), value)).collect(),
            app,
        }
    }

    /// Takes the value under any name of a setting. Like the extension, ignores case and treats null as absent.
    fn take(&mut self, names: &[&'static str]) -> Result<Option<&'a Value>, SettingsError> {
        let mut taken: Option<(&'static str, &'a Value)> = None;
        for name in names {
            let at = self.left.iter().position(|(given, _)| given.eq_ignore_ascii_case(name));
            let Some(at) = at else { continue };
            let (_, value) = self.left.swap_remove(at);
            match taken {
                _ if value.is_null() => {}
                Some((one, before)) if before != value => {
                    return Err(SettingsError::Twice { one, other: name });
                }
                _ => taken = Some((name, value)),
            }
        }
        Ok(taken.map(|(_, value)| value))
    }

    /// Takes a text and resolves its app settings; `None` if it is empty.
    fn text(&mut self, names: &[&'static str]) -> Result<Option<String>, SettingsError> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| bad(names[0], value, "a text"))?;
        Ok(Some(self.app.resolve(text)?).filter(|text| !text.is_empty()))
    }

    /// Takes a number, which may be written as a string; zero counts as absent, like in the extension.
    fn number(
        &mut self,
        names: &[&'static str],
        range: std::ops::RangeInclusive<u64>,
        wanted: &'static str,
    ) -> Result<Option<u64>, SettingsError> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        let number = match value.as_str() {
            Some(text) => self.app.resolve(text)?.parse().ok(),
            None => value.as_u64(),
        };
        match number {
            Some(0) => Ok(None),
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(bad(names[0], value, wanted)),
        }
    }

    fn millis(&mut self, names: &[&'static str]) -> Result<Option<Duration>, SettingsError> {
        let wanted = "a number of milliseconds, or 0 for the default";
        Ok(self.number(names, 1..=MILLIS_MAX, wanted)?.map(Duration::from_millis))
    }

    fn flag(&mut self, names: &[&'static str]) -> Result<bool, SettingsError> {
        let Some(value) = self.take(names)? else { return Ok(false) };
        let text = value.as_str().map(|text| self.app.resolve(text)).transpose()?;
        match (value.as_bool(), text.as_deref()) {
            (Some(flag), _) => Ok(flag),
            (_, Some(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
            (_, Some(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(bad(names[0], value, "true or false")),
        }
    }

    fn read(mut self) -> Result<TriggerSettings, SettingsError> {
        for names in NOT_SETTINGS {
            self.take(names)?;
        }
        let database = self.text(&["databaseName"])?;
        let container = self.text(&["containerName", "collectionName"])?;
        let mut settings = TriggerSettings::new(
            database.ok_or(SettingsError::Missing("databaseName"))?,
            container.ok_or(SettingsError::Missing("containerName"))?,
        );
        self.read_leases(&mut settings)?;
        self.read_intervals(&mut settings)?;
        settings.connection = self.text(&["connection", "connectionStringSetting"])?;
        let count = "a number of items, or 0 for the default";
        let items = self.number(&["maxItemsPerInvocation"], 1..=MILLIS_MAX, count)?;
        if let Some(items) = items.and_then(|items| u32::try_from(items).ok()) {
            settings.items_max = Some(items);
        }
        settings.start = self.start()?;
        settings.checkpoint = self.checkpoint()?;
        let regions = self.text(&["preferredLocations"])?.unwrap_or_default();
        let regions = regions.split(',').map(str::trim).filter(|region| !region.is_empty());
        settings.preferred_regions = regions.map(str::to_owned).collect();
        self.end()?;
        Ok(settings)
    }

    fn read_leases(&mut self, settings: &mut TriggerSettings) -> Result<(), SettingsError> {
        settings.lease_connection =
            self.text(&["leaseConnection", "leaseConnectionStringSetting"])?;
        if let Some(database) = self.text(&["leaseDatabaseName"])? {
            settings.lease_database = database;
        }
        if let Some(container) = self.text(&["leaseContainerName", "leaseCollectionName"])? {
            settings.lease_container = container;
        }
        let create = ["createLeaseContainerIfNotExists", "createLeaseCollectionIfNotExists"];
        settings.create_lease_container = self.flag(&create)?;
        let throughput = ["leasesContainerThroughput", "leasesCollectionThroughput"];
        let throughput =
            self.number(&throughput, THROUGHPUT_MIN..=1_000_000, "at least 400, in RU/s")?;
        settings.lease_throughput = throughput.and_then(|units| u32::try_from(units).ok());
        let prefix = ["leaseContainerPrefix", "leaseCollectionPrefix", "leasePrefix"];
        settings.prefix = self.text(&prefix)?.unwrap_or_default();
        Ok(())
    }

    fn read_intervals(&mut self, settings: &mut TriggerSettings) -> Result<(), SettingsError> {
        for (names, interval) in [
            (&["feedPollDelay", "feedPollTime"][..], &mut settings.poll_delay),
            (&["leaseAcquireInterval"], &mut settings.acquire_interval),
            (&["leaseExpirationInterval"], &mut settings.expiration),
            (&["leaseRenewInterval"], &mut settings.renew_interval),
        ] {
            if let Some(given) = self.millis(names)? {
                *interval = given;
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<Start, SettingsError> {
        let beginning = self.flag(&["startFromBeginning"])?;
        let time = self.text(&["startFromTime"])?;
        match time {
            Some(_) if beginning => Err(SettingsError::TwoStarts),
            Some(text) => Timestamp::from_rfc3339(&text).map(Start::Time).map_err(|_| {
                let wanted = "a moment in UTC such as 2021-02-16T14:19:29Z";
                bad("startFromTime", &Value::from(text), wanted)
            }),
            None if beginning => Ok(Start::Beginning),
            None => Ok(Start::Now),
        }
    }

    fn checkpoint(&mut self) -> Result<Checkpoint, SettingsError> {
        let interval = self.millis(&["checkpointInterval"])?;
        let count = "a number of documents, or 0 for the default";
        let items = self.number(&["checkpointDocumentCount"], 1..=MILLIS_MAX, count)?;
        let items = items.and_then(|items| usize::try_from(items).ok()).unwrap_or(0);
        Ok(match (interval, items) {
            (None, 0) => Checkpoint::EveryBatch,
            (interval, items) => {
                Checkpoint::Every { items, bytes: 0, interval: interval.unwrap_or_default() }
            }
        })
    }

    /// Refuses properties that were not taken.
    fn end(self) -> Result<(), SettingsError> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        Err(SettingsError::Unknown((*name).to_owned()))
    }
}

#[cfg(test)]
mod tests;
