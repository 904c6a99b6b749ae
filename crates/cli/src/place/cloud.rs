//! The supported object stores: their URLs, and the environment variables that configure them.

use super::http::Http;
use anyhow::{Context, Result, bail, ensure};
use object_store::aws::AmazonS3Builder;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, RetryConfig};
use std::ffi::OsString;
use std::str::FromStr;

/// The provider of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cloud {
    Azure,
    Amazon,
    Google,
}

/// A place in an object store, as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectUrl {
    pub(super) cloud: Cloud,
    /// The container (Azure) or bucket.
    pub(super) container: String,
    /// Empty, or names with slashes between them.
    pub(super) prefix: String,
}

impl ObjectUrl {
    pub(super) fn parse(text: &str) -> Result<ObjectUrl> {
        const FORMS: &str =
            "write az://container/name, s3://bucket/name, gs://bucket/name or a directory";
        let (scheme, rest) = text.split_once("://").context(FORMS)?;
        let cloud = match scheme.to_ascii_lowercase().as_str() {
            "az" => Cloud::Azure,
            "s3" => Cloud::Amazon,
            "gs" => Cloud::Google,
            _ => bail!("{text} is no place for a backup; {FORMS}"),
        };
        let (container, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !container.is_empty() && container.chars().all(is_name),
            "{text} names no {}; {FORMS}",
            cloud.container_word()
        );
        // The library encodes other characters, so objects would not be found under these names.
        let is_plain = prefix.is_empty()
            || prefix.split('/').all(|part| !part.is_empty() && part.chars().all(is_name))
                && ObjectPath::from(prefix).as_ref() == prefix;
        ensure!(
            is_plain,
            "{text} cannot be used: behind the {} are names of letters, digits, `-`, `_` and `.`, with single \
             slashes between them. Put credentials into the environment",
            cloud.container_word()
        );
        Ok(ObjectUrl { cloud, container: container.to_owned(), prefix: prefix.to_owned() })
    }

    /// Opens a client of the store, with credentials from the environment.
    pub(super) fn open(&self, http: &Http, retry: RetryConfig) -> Result<Box<dyn ObjectStore>> {
        let cannot = || "the environment has settings that cannot be used";
        Ok(match self.cloud {
            Cloud::Azure => Box::new(
                azure()?
                    .with_container_name(&self.container)
                    .with_http_connector(http.clone())
                    .with_retry(retry)
                    .build()
                    .with_context(cannot)?,
            ),
            Cloud::Amazon => Box::new(
                variables("AWS_")
                    .fold(AmazonS3Builder::new(), |builder, (key, value)| {
                        builder.with_config(key, value)
                    })
                    .with_bucket_name(&self.container)
                    .with_http_connector(http.clone())
                    .with_retry(retry)
                    .build()
                    .with_context(cannot)?,
            ),
            Cloud::Google => Box::new(
                variables("GOOGLE_")
                    .fold(GoogleCloudStorageBuilder::new(), |builder, (key, value)| {
                        builder.with_config(key, value)
                    })
                    .with_bucket_name(&self.container)
                    .with_http_connector(http.clone())
                    .with_retry(retry)
                    .build()
                    .with_context(cannot)?,
            ),
        })
    }
}

impl Cloud {
    /// The provider's word for a container.
    pub(super) fn container_word(self) -> &'static str {
        match self {
            Cloud::Azure => "container",
            Cloud::Amazon | Cloud::Google => "bucket",
        }
    }

    /// The variable that allows plain HTTP.
    pub(super) fn allow_http_variable(self) -> &'static str {
        match self {
            Cloud::Azure => "AZURE_ALLOW_HTTP",
            Cloud::Amazon => "AWS_ALLOW_HTTP",
            Cloud::Google => "GOOGLE_ALLOW_HTTP",
        }
    }

    pub(super) fn allows_http(self) -> bool {
        let value = std::env::var(self.allow_http_variable()).unwrap_or_default();
        matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
    }

    /// The variables that select the server.
    pub(super) fn endpoint_variables(self) -> &'static str {
        match self {
            Cloud::Azure => "AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_ENDPOINT",
            Cloud::Amazon => "AWS_REGION or AWS_ENDPOINT_URL",
            Cloud::Google => "GOOGLE_BASE_URL",
        }
    }

    /// How to provide credentials.
    pub(super) fn credentials_remedy(self) -> &'static str {
        match self {
            Cloud::Azure => {
                "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN, or \
                 AZURE_STORAGE_CONNECTION_STRING"
            }
            Cloud::Amazon => {
                "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if there is one, AWS_SESSION_TOKEN"
            }
            Cloud::Google => "Set GOOGLE_APPLICATION_CREDENTIALS to the file of a service account",
        }
    }
}

/// Returns the settings among the environment variables with this prefix. An empty one counts as absent, because
/// pipelines pass missing secrets as empty variables.
fn variables<K: FromStr>(prefix: &'static str) -> impl Iterator<Item = (K, String)> {
    let setting = move |(name, value): (OsString, OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_set = name.starts_with(prefix) && !value.is_empty();
        Some((name.to_ascii_lowercase().parse().ok().filter(|_| is_set)?, value))
    };
    std::env::vars_os().filter_map(setting)
}

/// Reads the variables of `object_store` and those of Azure's own command line.
fn azure() -> Result<MicrosoftAzureBuilder> {
    let mut builder = MicrosoftAzureBuilder::new();
    for (key, value) in variables("AZURE_") {
        builder = builder.with_config(key, value);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(endpoint) = variable("IDENTITY_ENDPOINT") {
        builder = builder.with_msi_endpoint(endpoint);
    }
    if let Some(account) = variable("AZURE_STORAGE_ACCOUNT") {
        builder = builder.with_account(account);
    }
    if let Some(key) = variable("AZURE_STORAGE_KEY") {
        builder = builder.with_access_key(key);
    }
    if let Some(text) = variable("AZURE_STORAGE_CONNECTION_STRING") {
        for (key, value) in connection_string(&text)? {
            builder = builder.with_config(key, value);
        }
    }
    let has = |key| builder.get_config_value(&key).is_some_and(|value| value != "false");
    ensure!(
        has(AzureConfigKey::AccountName) || has(AzureConfigKey::UseEmulator),
        "the environment names no storage account. {}",
        Cloud::Azure.credentials_remedy()
    );
    Ok(builder)
}

/// Parses the settings of a connection string: `AccountName=…;AccountKey=…;BlobEndpoint=…`.
fn connection_string(text: &str) -> Result<Vec<(AzureConfigKey, String)>> {
    const NAME: &str = "AZURE_STORAGE_CONNECTION_STRING";
    let mut settings = Vec::new();
    let (mut scheme, mut suffix, mut account, mut has_endpoint) =
        ("https", "core.windows.net", None, false);
    for field in text.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let field = field.split_once('=');
        let (key, value) = field.with_context(|| format!("{NAME} has a field without `=`"))?;
        match key.to_ascii_lowercase().as_str() {
            "accountname" => account = Some(value),
            "accountkey" => settings.push((AzureConfigKey::AccessKey, value.to_owned())),
            "sharedaccesssignature" => settings.push((AzureConfigKey::SasKey, value.to_owned())),
            "blobendpoint" => {
                settings.push((AzureConfigKey::Endpoint, value.trim_end_matches('/').to_owned()));
                has_endpoint = true;
            }
            "usedevelopmentstorage" => {
                settings.push((AzureConfigKey::UseEmulator, value.to_ascii_lowercase()));
            }
            "defaultendpointsprotocol" => scheme = value,
            "endpointsuffix" => suffix = value,
            // Settings of other services.
            _ => {}
        }
    }
    if let Some(account) = account {
        settings.push((AzureConfigKey::AccountName, account.to_owned()));
        if !has_endpoint {
            let endpoint = format!("{scheme}://{account}.blob.{suffix}");
            settings.push((AzureConfigKey::Endpoint, endpoint));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_container_and_a_prefix() {
        let url = |cloud, container: &str, prefix: &str| ObjectUrl {
            cloud,
            container: container.to_owned(),
            prefix: prefix.to_owned(),
        };
        let parsed = |text| ObjectUrl::parse(text).unwrap();
        assert_eq!(parsed("az://backups/shop"), url(Cloud::Azure, "backups", "shop"));
        assert_eq!(parsed("s3://b.c/shop/2026/"), url(Cloud::Amazon, "b.c", "shop/2026"));
        assert_eq!(parsed("GS://b"), url(Cloud::Google, "b", ""));
        for odd in [
            "az://",
            "az:///shop",
            "s3://b//shop",
            "s3://b/../shop",
            "s3://b/.",
            "az://c/shop?sig=secret",
            "s3://key:secret@b/shop",
            "az://c/a b",
            "https://account.example/c",
            "file:///x",
        ] {
            assert!(ObjectUrl::parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_connection_string_gives_account_key_and_endpoint() {
        let settings = |text| connection_string(text).unwrap();
        let has = |settings: &[(AzureConfigKey, String)], key, value: &str| {
            assert!(settings.contains(&(key, value.to_owned())), "{value} of {}", settings.len());
        };
        let azure = settings(
            "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=QQ==;EndpointSuffix=x.y",
        );
        has(&azure, AzureConfigKey::AccessKey, "QQ==");
        has(&azure, AzureConfigKey::Endpoint, "https://a.blob.x.y");
        let local = settings("AccountName=a;BlobEndpoint=http://127.0.0.1:1/a/;QueueEndpoint=x");
        has(&local, AzureConfigKey::Endpoint, "http://127.0.0.1:1/a");
        has(&settings("UseDevelopmentStorage=true"), AzureConfigKey::UseEmulator, "true");
        assert!(connection_string("AccountName").is_err());
    }
}
