//! The settings of a Cosmos DB trigger, as `function.json` and `host.json` have them.
//!
//! Every setting is known under its present name and under its older ones. What it does not know, or what cannot
//! be meant, is refused with the name of the setting: a setting that is silently not obeyed is how changes get
//! lost. It reads no file and opens no connection; see [`TriggerHost::connect`](super::TriggerHost::connect).

use super::connect::AppSettings;
use super::retry::Retry;
use crate::checkpoint::Checkpoint;
use crate::lease::{Flavour, Start};
use crate::options::Options;
use headwater_model::Timestamp;
use serde_json::{Map, Value};
use std::time::Duration;

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not JSON, or not of that form.
    #[error("{file} is not what it should be: {why}")]
    Form {
        /// Which.
        file: &'static str,
        /// What is wrong.
        why: String,
    },
    /// Something has to be said.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Nobody knows it.
    #[error("there is no setting {0:?}")]
    Unknown(String),
    /// Under two names, with two values.
    #[error("{one} and {other} are two names of one setting, and differ; leave one out")]
    Twice {
        /// One name.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Not of that kind, or out of range.
    #[error("{name} is {given}; it should be {wanted}")]
    Bad {
        /// Which setting.
        name: &'static str,
        /// What it is.
        given: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Two settings that exclude each other.
    #[error("startFromBeginning and startFromTime exclude each other; leave one out")]
    TwoStarts,
    /// A lease that is written would be a change to handle.
    #[error(
        "leaseContainerName is the monitored container {0:?}: every lease that is written would be a change to \
         handle; give leases a container of their own"
    )]
    SameContainer(String),
    /// A renewal that is lost would cost a lease.
    #[error(
        "leaseExpirationInterval is less than three times leaseRenewInterval, so that one lost request costs a \
         lease; make it longer, or renew more often"
    )]
    ExpiresTooSoon,
    /// A name in percent signs, or of a connection, that no app setting has.
    #[error("there is no app setting {0:?}")]
    NoAppSetting(String),
}

/// What the settings of a trigger say. The defaults are those of the extension.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TriggerSettings {
    /// The app setting with the connection string of the monitored account (`connection`,
    /// `connectionStringSetting`); the default one if nothing is said.
    pub connection: Option<String>,
    /// `databaseName`
    pub database: String,
    /// `containerName`, `collectionName`
    pub container: String,
    /// The same for leases; that of the monitored account if nothing is said (`leaseConnection`,
    /// `leaseConnectionStringSetting`).
    pub lease_connection: Option<String>,
    /// `leaseDatabaseName`; the monitored one by default.
    pub lease_database: String,
    /// `leaseContainerName`, `leaseCollectionName`
    pub lease_container: String,
    /// `createLeaseContainerIfNotExists`, `createLeaseCollectionIfNotExists`
    pub create_lease_container: bool,
    /// `leasesContainerThroughput`, `leasesCollectionThroughput`
    pub lease_throughput: Option<u32>,
    /// What makes functions on one lease container independent of each other (`leaseContainerPrefix`,
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
    /// `maxItemsPerInvocation`; 100 by default. `None` leaves it to the server.
    pub items_max: Option<u32>,
    /// `startFromBeginning`, `startFromTime`; for the very first start only.
    pub start: Start,
    /// `preferredLocations`
    pub preferred_regions: Vec<String>,
    /// `checkpointInterval`, `checkpointDocumentCount` of older versions.
    pub checkpoint: Checkpoint,
    /// `userAgentSuffix` of `host.json`
    pub user_agent_suffix: Option<String>,
    /// `retry` of a `function.json`
    pub retry: Option<Retry>,
    /// Settings that were read and change nothing here, and why.
    pub notes: Vec<String>,
}

/// The lease container if nothing is said.
const LEASES: &str = "leases";
/// Items in a batch if nothing is said.
const ITEMS_MAX: u32 = 100;
/// Intervals of the originals are 32-bit numbers of milliseconds.
const MILLIS_MAX: u64 = i32::MAX as u64;
/// The service takes no less.
const THROUGHPUT_MIN: u64 = 400;

/// What a binding says besides its settings.
const NOT_SETTINGS: [&[&str]; 4] = [&["type"], &["name"], &["direction"], &["dataType"]];

impl TriggerSettings {
    /// The defaults, for a container.
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

    /// Reads a `function.json`, or its binding alone, and the `host.json` beside it, or its section
    /// `extensions.cosmosDB` alone. Names in percent signs are app settings.
    ///
    /// # Errors
    /// When something is missing, unknown, out of range, or cannot be meant.
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

    /// What cannot be meant, whoever put the settings together.
    ///
    /// # Errors
    /// When it is so.
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

    /// The options of a processor that are these settings: its leases are those of the .NET SDK, which is what
    /// the trigger writes, so that hosts of both kinds share the work.
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

    /// Where `host.json` says something the binding does not.
    fn add_host(
        &mut self,
        section: &Map<String, Value>,
        app: &AppSettings,
    ) -> Result<(), SettingsError> {
        let mut host = Properties::new(section, app);
        let is_direct = |mode: &str| !mode.eq_ignore_ascii_case("gateway");
        if let Some(mode) = host.text(&["connectionMode"])?.filter(|mode| is_direct(mode)) {
            self.notes
                .push(format!("connectionMode {mode}: every connection here is to the gateway"));
        }
        if let Some(protocol) = host.text(&["protocol"])? {
            self.notes.push(format!("protocol {protocol}: every connection here is HTTP"));
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

/// The binding of the trigger in a `function.json`; itself if it is one.
fn binding_of(function: &Map<String, Value>) -> Result<&Map<String, Value>, SettingsError> {
    let Some(bindings) = function.get("bindings") else { return Ok(function) };
    let is_trigger = |binding: &&Map<String, Value>| {
        let kind = binding.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("cosmosDBTrigger"))
    };
    let bindings = bindings.as_array().into_iter().flatten().filter_map(Value::as_object);
    let why = "it has no binding of the type cosmosDBTrigger".to_owned();
    let none = SettingsError::Form { file: "function.json", why };
    bindings.into_iter().find(is_trigger).ok_or(none)
}

/// The section of the extension in a `host.json`; itself if it is one.
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

/// The properties of an object, each taken once, so that what is left over is what nobody knows.
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

    /// The value under one of the names of a setting. As the original does, it reads them in any case and takes
    /// null for nothing.
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

    /// A text with its app settings put in; nothing if it is empty.
    fn text(&mut self, names: &[&'static str]) -> Result<Option<String>, SettingsError> {
        let Some(value) = self.take(names)? else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| bad(names[0], value, "a text"))?;
        Ok(Some(self.app.resolve(text)?).filter(|text| !text.is_empty()))
    }

    /// A number, which may be written as a text; nothing if it is zero, as in the original.
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

    /// Nothing may be left that nobody knows.
    fn end(self) -> Result<(), SettingsError> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        Err(SettingsError::Unknown((*name).to_owned()))
    }
}

#[cfg(test)]
mod tests;
