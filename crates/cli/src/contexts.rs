//! The user's file of named servers (contexts), which saves typing keys and long addresses.
//!
//! ```toml
//! current = "prod"
//!
//! [contexts.prod]
//! endpoint = "https://shop.documents.azure.com"
//! key-env = "PROD_KEY"      # or key-file = "prod.key", or key-command = "pass show prod"
//! authority = "ca.pem"      # a PEM file to trust, if the machine does not
//! ```

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context to use when a command names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, NamedServer>,
}

/// A server with a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct NamedServer {
    pub(crate) endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) authority: Option<PathBuf>,
}

/// Returns the directory of the file: HEADWATER_CONFIG_DIR, or the platform's configuration directory.
pub(crate) fn directory() -> Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = from("HEADWATER_CONFIG_DIR") {
        return Ok(dir.into());
    }
    if let Some(dir) = from("XDG_CONFIG_HOME") {
        return Ok(Path::new(&dir).join("headwater"));
    }
    match from("HOME").or_else(|| from("USERPROFILE")) {
        Some(home) => Ok(Path::new(&home).join(".config").join("headwater")),
        None => bail!("there is no home directory; set HEADWATER_CONFIG_DIR"),
    }
}

impl Contexts {
    /// Reads the file; without one there are no contexts.
    pub(crate) fn load() -> Result<Contexts> {
        let path = directory()?.join("contexts.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Contexts::default());
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        toml::from_str(&text)
            .with_context(|| format!("{} is damaged; correct or remove it", path.display()))
    }

    /// Replaces the file atomically.
    pub(crate) fn save(&self) -> Result<()> {
        let dir = directory()?;
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut file = tempfile::NamedTempFile::new_in(&dir)?;
        std::io::Write::write_all(&mut file, toml::to_string(self)?.as_bytes())?;
        file.persist(dir.join("contexts.toml"))?;
        Ok(())
    }

    /// Returns the context of this name.
    pub(crate) fn named(&self, name: &str) -> Result<&NamedServer> {
        self.contexts.get(name).with_context(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!(
                "there is no context {name:?} (there are: {known}); see `headwater context add`"
            )
        })
    }
}

/// Stores a key in a file that only its owner can read.
pub(crate) fn keep_key(name: &str, key: &str) -> Result<PathBuf> {
    let dir = directory()?.join("keys");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let path = dir.join(name);
    // Temporary files are readable by their owner alone, and keep these permissions when renamed.
    let mut file = tempfile::NamedTempFile::new_in(&dir)?;
    std::io::Write::write_all(&mut file, key.as_bytes())?;
    file.persist(&path)?;
    Ok(path)
}
