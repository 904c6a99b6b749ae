//! Who the peers are, where they are found on this machine, and how they are installed when asked to.
//!
//! Everything that is installed goes into one cache directory: npm with a prefix, go with its own place
//! for programs, Debian packages fetched and unpacked without touching the system's. Nothing here starts
//! a server.

use super::process::last_line;
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NPM_PACKAGE: &str = "@vercel/cosmosdb-server";
const GO_PACKAGE: &str = "github.com/pikami/cosmium/cmd/server";

/// What one would pick instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Peer {
    CosmosdbServer,
    Cosmium,
    Postgres,
    Redis,
}

impl Peer {
    pub(in crate::commands::bench) const ALL: [Peer; 4] =
        [Peer::CosmosdbServer, Peer::Cosmium, Peer::Postgres, Peer::Redis];

    pub(in crate::commands::bench) fn name(self) -> &'static str {
        match self {
            Peer::CosmosdbServer => "cosmosdb-server",
            Peer::Cosmium => "cosmium",
            Peer::Postgres => "postgres",
            Peer::Redis => "redis",
        }
    }
}

/// A program that can be started.
#[derive(Clone, Debug)]
pub(in crate::commands::bench) struct Program {
    pub(in crate::commands::bench) path: PathBuf,
    /// What stands before all other arguments.
    arguments: Vec<OsString>,
    /// Where its libraries are, when it was unpacked and not installed.
    libraries: Option<OsString>,
    pub(in crate::commands::bench) version: String,
}

impl Program {
    pub(in crate::commands::bench) fn command(&self) -> Command {
        let mut command = self.sibling_command(&self.path);
        command.args(&self.arguments);
        command
    }

    /// Another program that came with this one.
    pub(in crate::commands::bench) fn sibling(&self, name: &str) -> Command {
        self.sibling_command(&self.path.with_file_name(name))
    }

    fn sibling_command(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// Whether a peer is on this machine.
pub(in crate::commands::bench) enum Found {
    Present(Program),
    /// The reason, as the beginning of a sentence.
    Absent(String),
}

/// Where installed peers are kept.
pub(in crate::commands::bench) struct Cache(PathBuf);

impl Cache {
    /// The given directory, or the usual one.
    pub(in crate::commands::bench) fn at(dir: Option<PathBuf>) -> Result<Cache> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let usual = || match (from("XDG_CACHE_HOME"), from("HOME")) {
            (Some(cache), _) => Some(PathBuf::from(cache)),
            (None, home) => home.map(|home| Path::new(&home).join(".cache")),
        };
        let dir = dir.or_else(|| usual().map(|cache| cache.join("headwater").join("peers")));
        let dir = dir.context("there is no home directory; say --cache DIR")?;
        Ok(Cache(std::path::absolute(&dir)?))
    }

    pub(in crate::commands::bench) fn dir(&self) -> &Path {
        &self.0
    }

    pub(in crate::commands::bench) fn find(&self, peer: Peer) -> Found {
        match peer {
            Peer::CosmosdbServer => self.find_cosmosdb_server(),
            Peer::Cosmium => self.find_cosmium(),
            Peer::Postgres => self.find_postgres(),
            Peer::Redis => self.find_redis(),
        }
    }

    fn find_cosmosdb_server(&self) -> Found {
        let package = self.0.join("npm/node_modules").join(NPM_PACKAGE);
        let Ok(about) = std::fs::read_to_string(package.join("package.json")) else {
            return Found::Absent(format!("{NPM_PACKAGE} is not in {}", self.0.display()));
        };
        let Some(node) = in_path("node") else {
            return Found::Absent("there is no node in the PATH".to_owned());
        };
        Found::Present(Program {
            path: node,
            arguments: vec![package.join("lib/cli.js").into()],
            libraries: None,
            version: format!("{NPM_PACKAGE} {}", npm_version(&about)),
        })
    }

    fn find_cosmium(&self) -> Found {
        let installed = Some(self.0.join("go/server")).filter(|path| path.is_file());
        match installed.or_else(|| in_path("cosmium")) {
            Some(path) => Found::Present(Program {
                version: format!("cosmium at {}", path.display()),
                path,
                arguments: Vec::new(),
                libraries: None,
            }),
            None => Found::Absent(format!("cosmium is not in {} or the PATH", self.0.display())),
        }
    }

    fn find_postgres(&self) -> Found {
        let roots = [self.debian(), PathBuf::from("/")];
        let newest = |root: &PathBuf| {
            let entries = std::fs::read_dir(root.join("usr/lib/postgresql")).ok()?;
            let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let places = dirs.map(|dir| dir.join("bin/postgres")).filter(|path| path.is_file());
            places.max_by_key(|path| major_version(path))
        };
        let found = roots.iter().find_map(newest).or_else(|| in_path("postgres"));
        self.present(found, "postgres", "the PATH or /usr/lib/postgresql")
    }

    fn find_redis(&self) -> Found {
        let unpacked = self.debian().join("usr/bin/redis-server");
        let found = Some(unpacked).filter(|path| path.exists());
        self.present(found.or_else(|| in_path("redis-server")), "redis-server", "the PATH")
    }

    /// A program that tells its version when asked.
    fn present(&self, path: Option<PathBuf>, name: &str, places: &str) -> Found {
        let Some(path) = path else {
            return Found::Absent(format!("{name} is not in {} or {places}", self.0.display()));
        };
        let libraries = path.starts_with(&self.0).then(|| self.libraries()).flatten();
        let mut program =
            Program { path, arguments: Vec::new(), libraries, version: String::new() };
        match said(program.command().arg("--version")) {
            Ok(version) => program.version = version.trim().to_owned(),
            Err(error) => return Found::Absent(format!("{name} does not start: {error:#}")),
        }
        Found::Present(program)
    }

    fn debian(&self) -> PathBuf {
        self.0.join("debian")
    }

    /// The directories with libraries of unpacked packages.
    fn libraries(&self) -> Option<OsString> {
        let entries = std::fs::read_dir(self.debian().join("usr/lib")).ok()?;
        let dirs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        std::env::join_paths(dirs.filter(|dir| dir.to_string_lossy().ends_with("-linux-gnu"))).ok()
    }

    /// The command that a user could run as well.
    pub(in crate::commands::bench) fn how_to_install(&self, peer: Peer) -> String {
        let dir = self.0.display();
        match peer {
            Peer::CosmosdbServer => format!("npm install {NPM_PACKAGE} in {dir}/npm"),
            Peer::Cosmium => format!("go install {GO_PACKAGE}@latest into {dir}/go"),
            Peer::Postgres => format!("apt-get download postgresql and unpack it in {dir}/debian"),
            Peer::Redis => format!("apt-get download redis-server and unpack it in {dir}/debian"),
        }
    }

    pub(in crate::commands::bench) fn install(&self, peer: Peer) -> Result<()> {
        let done = match peer {
            Peer::CosmosdbServer => self.install_with_npm(),
            Peer::Cosmium => self.install_with_go(),
            Peer::Postgres => self.install_with_apt("postgresql"),
            Peer::Redis => self.install_with_apt("redis-server"),
        };
        done.with_context(|| format!("cannot be installed by: {}", self.how_to_install(peer)))
    }

    fn install_with_npm(&self) -> Result<()> {
        let dir = self.make("npm")?;
        // A package of a registry has no business running scripts of its own while it is installed.
        let options = ["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"];
        said(Command::new("npm").args(options).arg(&dir).arg(NPM_PACKAGE).current_dir(&dir))?;
        Ok(())
    }

    fn install_with_go(&self) -> Result<()> {
        let dir = self.make("go")?;
        let package = format!("{GO_PACKAGE}@latest");
        said(Command::new("go").args(["install", &package]).env("GOBIN", &dir).current_dir(&dir))?;
        Ok(())
    }

    /// Fetches a package and whatever it needs that is not on this machine, and unpacks all of it.
    fn install_with_apt(&self, package: &str) -> Result<()> {
        let dir = self.make("debian")?;
        let options = ["install", "--print-uris", "--no-install-recommends", "-qq", "-y"];
        let missing = missing_packages(&said(Command::new("apt-get").args(options).arg(package))?);
        ensure!(!missing.is_empty(), "apt-get names no package to fetch for {package}");
        let fetched = tempfile::tempdir_in(&dir)?;
        let mut download = Command::new("apt-get");
        said(download.arg("download").args(&missing).current_dir(fetched.path()))?;
        for entry in std::fs::read_dir(fetched.path())? {
            said(Command::new("dpkg").arg("-x").arg(entry?.path()).arg(&dir))?;
        }
        Ok(())
    }

    fn make(&self, name: &str) -> Result<PathBuf> {
        let dir = self.0.join(name);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(dir)
    }
}

/// Runs a program to its end; what it printed, or an error with its last words.
pub(in crate::commands::bench) fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{name} ended with {}; {}", output.status, last_line(&complaint));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn npm_version(package: &str) -> String {
    let about: serde_json::Value = serde_json::from_str(package).unwrap_or_default();
    about["version"].as_str().unwrap_or("of an unknown version").to_owned()
}

/// The 15 of `…/postgresql/15/bin/postgres`.
fn major_version(path: &Path) -> u32 {
    let dir = path.ancestors().nth(2).and_then(|dir| dir.file_name());
    dir.and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

/// Names of packages in what `apt-get --print-uris` prints: an address in quotes, a file, a size, a hash.
fn missing_packages(printed: &str) -> Vec<String> {
    let file = |line: &str| {
        let line = line.strip_prefix('\'')?;
        let file = line.split_whitespace().nth(1)?.strip_suffix(".deb")?;
        Some(file.split_once('_')?.0.to_owned())
    };
    printed.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_to_fetch_are_read_from_what_apt_prints() {
        let printed = "'http://deb.example/pool/r/redis-tools_7.0_amd64.deb' \
                       redis-tools_5%3a7.0_amd64.deb 991984 SHA256:0a\n\
                       Reading package lists...\n\
                       'http://deb.example/pool/l/liblzf1_3.6-3_amd64.deb' liblzf1_3.6-3_amd64.deb 1 \n\
                       'http://deb.example/pool/x' x 1\n";
        assert_eq!(missing_packages(printed), ["redis-tools", "liblzf1"]);
        assert!(missing_packages("").is_empty());
    }

    #[test]
    fn versions_are_read_where_they_stand() {
        assert_eq!(npm_version(r#"{"name":"x","version":"1.0.1"}"#), "1.0.1");
        assert_eq!(npm_version("not JSON"), "of an unknown version");
        assert_eq!(major_version(Path::new("/usr/lib/postgresql/15/bin/postgres")), 15);
        assert_eq!(major_version(Path::new("/usr/local/bin/postgres")), 0);
    }

    #[test]
    fn an_empty_cache_has_no_peer_and_says_how_to_get_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::at(Some(dir.path().to_owned())).expect("a cache");
        let Found::Absent(reason) = cache.find(Peer::CosmosdbServer) else {
            panic!("found in an empty directory");
        };
        assert!(reason.contains("is not in"), "{reason}");
        let how = cache.how_to_install(Peer::CosmosdbServer);
        assert!(how.starts_with("npm install @vercel/cosmosdb-server in "), "{how}");
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = said(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]));
        let text = format!("{:#}", error.expect_err("it fails"));
        assert!(text.contains("no such thing"), "{text}");
    }
}
