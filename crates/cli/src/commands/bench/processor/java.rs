//! Where the official Java processor is on this machine, if it is. It is fetched and compiled by `cargo xtask
//! compatibility java`; nothing here installs anything.

use headwater_protocol::auth::EMULATOR_KEY;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the runner of the compatibility checks puts it.
const USUAL: &str = "target/compatibility/java";
const CLASS: &str = "headwater.Hosts";

/// The client and the program that runs its hosts.
#[derive(Clone, Debug)]
pub(super) struct Java {
    dir: PathBuf,
    /// As its file is called.
    pub(super) version: String,
}

impl Java {
    /// The reason, as the beginning of a sentence, if it is not there.
    pub(super) fn find(dir: Option<&Path>) -> Result<Java, String> {
        let dir = dir.unwrap_or(Path::new(USUAL)).to_owned();
        let class = dir.join("classes").join(CLASS.replace('.', "/")).with_extension("class");
        if !class.is_file() {
            let dir = dir.display();
            return Err(format!("{dir} has no {CLASS}; `cargo xtask compatibility java` makes it"));
        }
        let version = client_version(&dir.join("lib"));
        let version = version.ok_or_else(|| format!("{} has no client in lib", dir.display()))?;
        let mut probe = Command::new("java");
        probe.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match probe.status() {
            Ok(status) if status.success() => Ok(Java { dir, version }),
            _ => Err("there is no java in the PATH".to_owned()),
        }
    }

    /// Starts hosts at a server without TLS, which the client allows when it is told to.
    pub(super) fn command(&self, port: u16) -> Command {
        let mut command = Command::new("java");
        let path = format!("{0}/lib/*:{0}/classes", self.dir.display());
        command.args(["-DCOSMOS.HTTP_CONNECTION_WITHOUT_TLS_ALLOWED=true", "-cp", &path, CLASS]);
        command.env("HEADWATER_ENDPOINT_HTTPS", format!("http://127.0.0.1:{port}"));
        command.env("HEADWATER_ACCOUNT_KEY", EMULATOR_KEY);
        command
    }
}

/// `azure-cosmos 4.81.0`, from the names of files.
fn client_version(lib: &Path) -> Option<String> {
    let files = std::fs::read_dir(lib).ok()?.filter_map(Result::ok);
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    names.into_iter().find_map(|name| {
        let version = name.strip_prefix("azure-cosmos-")?.strip_suffix(".jar")?;
        version.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("azure-cosmos {version}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_java_processor_it_is_said_how_to_get_one() {
        let empty = tempfile::tempdir().unwrap();
        let why = Java::find(Some(empty.path())).unwrap_err();
        assert!(why.contains("cargo xtask compatibility java"), "{why}");
        let classes = empty.path().join("classes/headwater");
        std::fs::create_dir_all(&classes).unwrap();
        std::fs::write(classes.join("Hosts.class"), "").unwrap();
        let why = Java::find(Some(empty.path())).unwrap_err();
        assert!(why.contains("no client"), "{why}");
    }

    #[test]
    fn the_version_is_that_of_the_client_and_of_nothing_that_is_called_similarly() {
        let lib = tempfile::tempdir().unwrap();
        std::fs::write(lib.path().join("azure-cosmos-encryption-2.1.jar"), "").unwrap();
        assert_eq!(client_version(lib.path()), None);
        std::fs::write(lib.path().join("azure-cosmos-4.81.0.jar"), "").unwrap();
        assert_eq!(client_version(lib.path()).as_deref(), Some("azure-cosmos 4.81.0"));
    }
}
