//! The clients that the server is tested with. To add one, add an entry to `CLIENTS` and a folder under
//! `compatibility/` that holds its program and the exact version of its SDK.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A test program that uses a third-party SDK.
#[derive(Debug)]
pub(super) struct Client {
    /// The name in its results.
    pub(super) name: &'static str,
    /// The SDK, as shown to readers.
    pub(super) sdk: &'static str,
    /// The name of its folders under `compatibility/` and `target/compatibility/`.
    pub(super) home: &'static str,
    /// Commands that succeed if its requirements are installed.
    pub(super) needs: &'static [&'static [&'static str]],
    /// Installs the SDK into the folder; quick if it is already there.
    pub(super) install: &'static [Step],
    pub(super) install_time: Duration,
    pub(super) run: Step,
}

/// A command. `{home}` stands for the private folder, `{source}` for the program's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    words: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

/// The folders of a client.
pub(super) struct Places<'a> {
    pub(super) source: PathBuf,
    pub(super) home: &'a Path,
}

impl Places<'_> {
    fn fill(&self, text: &str) -> String {
        let text = text.replace("{home}", &self.home.display().to_string());
        text.replace("{source}", &self.source.display().to_string())
    }
}

impl Step {
    const fn new(words: &'static [&'static str]) -> Step {
        Step { words, env: &[] }
    }

    const fn with(
        words: &'static [&'static str],
        env: &'static [(&'static str, &'static str)],
    ) -> Step {
        Step { words, env }
    }

    pub(super) fn command(&self, places: &Places<'_>) -> Command {
        let words: Vec<String> = self.words.iter().map(|word| places.fill(word)).collect();
        let (program, args) = words.split_first().map_or(("", &[][..]), |(p, rest)| (p, rest));
        let mut command = Command::new(program);
        command.args(args).current_dir(&places.source);
        command.envs(self.env.iter().map(|(name, value)| (*name, places.fill(value))));
        command
    }

    pub(super) fn text(&self) -> String {
        self.words.join(" ")
    }
}

const INSTALL_TIME: Duration = Duration::from_secs(300);

const PYTHON_INSTALL: &[Step] = &[
    Step::new(&["python3", "-m", "venv", "{home}/venv"]),
    Step::new(&[
        "{home}/venv/bin/pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        "{source}/requirements.txt",
    ]),
];

pub(super) const CLIENTS: &[Client] = &[
    Client {
        name: "python",
        sdk: "Python azure-cosmos 4.17.1",
        home: "python",
        needs: &[&["python3", "-m", "venv", "--help"]],
        install: PYTHON_INSTALL,
        install_time: INSTALL_TIME,
        run: Step::with(&["{home}/venv/bin/python", "main.py", "sync"], PYTHON_ENV),
    },
    Client {
        name: "python-async",
        sdk: "Python azure-cosmos 4.17.1, asyncio",
        home: "python",
        needs: &[&["python3", "-m", "venv", "--help"]],
        install: PYTHON_INSTALL,
        install_time: INSTALL_TIME,
        run: Step::with(&["{home}/venv/bin/python", "main.py", "async"], PYTHON_ENV),
    },
    Client {
        name: "javascript",
        sdk: "JavaScript @azure/cosmos 4.9.3",
        home: "javascript",
        needs: &[&["node", "--version"], &["npm", "--version"]],
        install: &[
            Step::new(&["cp", "{source}/package.json", "{source}/package-lock.json", "{home}/"]),
            Step::new(NPM_INSTALL),
        ],
        install_time: INSTALL_TIME,
        run: Step::with(&["node", "main.mjs"], &[("HEADWATER_MODULES", "{home}")]),
    },
    Client {
        name: "documentdb",
        sdk: "JavaScript documentdb 1.15.3, through a proxy that ends its TLS 1.0",
        home: "documentdb",
        needs: &[&["node", "--version"], &["npm", "--version"], &["openssl", "version"]],
        install: &[
            Step::new(&["cp", "{source}/package.json", "{source}/package-lock.json", "{home}/"]),
            Step::new(NPM_INSTALL),
            // The proxy's certificate, which the client is made to trust.
            Step::new(&[
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                "{home}/proxy-key.pem",
                "-out",
                "{home}/proxy.pem",
                "-days",
                "30",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ]),
        ],
        install_time: INSTALL_TIME,
        run: Step::with(
            // The client's TLS is weaker than Node's default allows, and its code uses many deprecated APIs.
            &["node", "--tls-cipher-list=DEFAULT@SECLEVEL=0", "--no-deprecation", "main.mjs"],
            &[("HEADWATER_MODULES", "{home}"), ("NODE_EXTRA_CA_CERTS", "{home}/proxy.pem")],
        ),
    },
    Client {
        name: "go",
        sdk: "Go azcosmos 1.5.0",
        home: "go",
        needs: &[&["go", "version"]],
        install: &[Step::with(&["go", "build", "-o", "{home}/checks", "."], GO_ENV)],
        install_time: INSTALL_TIME,
        run: Step::new(&["{home}/checks"]),
    },
    Client {
        name: "java",
        sdk: "Java azure-cosmos 4.81.0, gateway mode over TLS",
        home: "java",
        needs: &[&["mvn", "--version"], &["javac", "-version"]],
        install: &[
            Step::new(&[
                "mvn",
                "--quiet",
                "--batch-mode",
                "-Dmaven.repo.local={home}/repository",
                "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies",
                "-DoutputDirectory={home}/lib",
            ]),
            Step::new(&[
                "javac",
                "-encoding",
                "UTF-8",
                "-d",
                "{home}/classes",
                "-cp",
                "{home}/lib/*",
                "--source-path",
                "src/main/java",
                "src/main/java/headwater/Main.java",
                // What `headwater bench processor` runs.
                "src/main/java/headwater/Hosts.java",
            ]),
        ],
        install_time: INSTALL_TIME,
        run: Step::new(&["java", "-cp", "{home}/lib/*:{home}/classes", "headwater.Main"]),
    },
    Client {
        name: "dotnet",
        sdk: ".NET Microsoft.Azure.Cosmos 3.51.0, gateway mode",
        home: "dotnet",
        // The package with the .NET runtime supports only this platform.
        needs: &[
            &["sh", "-c", "test \"$(uname -sm)\" = \"Linux x86_64\""],
            &["npm", "--version"],
            &["python3", "-m", "venv", "--help"],
        ],
        install: &[
            Step::new(&["cp", "{source}/package.json", "{source}/package-lock.json", "{home}/"]),
            Step::new(NPM_INSTALL),
            PYTHON_INSTALL[0],
            PYTHON_INSTALL[1],
        ],
        install_time: INSTALL_TIME,
        run: Step::with(
            &["{home}/venv/bin/python", "main.py"],
            &[("HEADWATER_MODULES", "{home}"), ("PYTHONDONTWRITEBYTECODE", "1")],
        ),
    },
    Client {
        name: "rust",
        sdk: "Rust azure_data_cosmos 1.0.0, binary encoding",
        home: "rust",
        needs: &[&["cargo", "--version"]],
        install: RUST_INSTALL,
        install_time: RUST_INSTALL_TIME,
        run: Step::with(
            &["{home}/debug/headwater-compatibility", "rust"],
            &[("AZURE_COSMOS_BINARY_ENCODING_ENABLED", "true")],
        ),
    },
    Client {
        name: "rust-text",
        sdk: "Rust azure_data_cosmos 1.0.0, text encoding",
        home: "rust",
        needs: &[&["cargo", "--version"]],
        install: RUST_INSTALL,
        install_time: RUST_INSTALL_TIME,
        run: Step::with(
            &["{home}/debug/headwater-compatibility", "rust-text"],
            &[("AZURE_COSMOS_BINARY_ENCODING_ENABLED", "false")],
        ),
    },
];

const NPM_INSTALL: &[&str] = &[
    "npm",
    "install",
    "--prefix",
    "{home}",
    "--no-audit",
    "--no-fund",
    "--prefer-offline",
    "--no-save",
];

/// The Rust client is not a member of this workspace; it has its own lock file and build folder.
const RUST_INSTALL: &[Step] =
    &[Step::with(&["cargo", "build", "--quiet", "--locked"], &[("CARGO_TARGET_DIR", "{home}")])];
/// Time limit for compiling the client from source.
const RUST_INSTALL_TIME: Duration = Duration::from_secs(600);

/// Puts modules and compiled files into the private folder, and keeps the lock file unchanged.
const GO_ENV: &[(&str, &str)] = &[
    ("GOPATH", "{home}/path"),
    ("GOCACHE", "{home}/cache"),
    ("GOFLAGS", "-mod=readonly -modcacherw"),
];

/// Keeps compiled files out of the source folder.
const PYTHON_ENV: &[(&str, &str)] = &[("PYTHONDONTWRITEBYTECODE", "1")];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_client_has_a_name_of_its_own_and_a_folder() {
        let names: BTreeSet<&str> = CLIENTS.iter().map(|client| client.name).collect();
        assert_eq!(names.len(), CLIENTS.len());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compatibility");
        for client in CLIENTS {
            assert!(root.join(client.home).is_dir(), "{}", client.name);
        }
    }

    #[test]
    fn places_are_filled_in() {
        let places = Places { source: PathBuf::from("s"), home: Path::new("h") };
        let step = Step::with(&["{home}/bin", "{source}/x"], &[("A", "{home}")]);
        let command = step.command(&places);
        assert_eq!(command.get_program(), "h/bin");
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["s/x"]);
    }
}
