//! `headwater trust`: shows, writes or installs the certificate authority of a server's HTTPS.

use crate::address::{Address, Place};
use crate::connect::{Connect, block_on};
use crate::output::say;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use headwater_client::Options;
use headwater_protocol::auth::format_http_date;
use headwater_server::Authority;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's directory for locally added certificate authorities, relative to the root.
const DEBIAN: &str = "usr/local/share/ca-certificates";
const UPDATE: &str = "update-ca-certificates";

/// Whose certificate, and what to do with it.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// Running server, as http://host:port [default: the context in use, or http://127.0.0.1:8080]
    address: Option<String>,
    /// Read the certificate from a data directory instead of a server
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    data: Option<PathBuf>,
    /// Write the certificate to a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Install the certificate on this machine, with update-ca-certificates
    #[arg(long, conflicts_with = "out")]
    install: bool,
    /// Install below this directory instead of the root of the file system; for tests
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    #[command(flatten)]
    connect: Connect,
}

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Show or install the certificate that HTTPS needs

    headwater trust                      print the certificate of the server on this machine
    headwater trust --out headwater.pem  write it to a file, and say how programs are told about it
    sudo headwater trust --install       let the whole machine trust it (Debian, Ubuntu)

A server makes its own certificate authority on first start and keeps it in its data directory under tls. \
Trusting it lets SDKs connect to https://localhost:8081 without switching checks off. The authority is \
limited to localhost, loopback addresses and the server's --host names, so it can vouch for no other site. \
It ends after two years; the server renews it 60 days before, and says so.";

/// Runs the command.
pub(crate) fn run(trust: Trust) -> Result<()> {
    let (pem, authority) = match &trust.data {
        Some(dir) => read(&dir.join("tls").join("authority.pem"))?,
        None => {
            let pem = block_on(ask(&trust))?;
            let authority = Authority::parse(&pem);
            (pem, authority.context("what the server sent is not the certificate of an authority")?)
        }
    };
    if trust.install {
        return install(&trust.root, &pem, &authority);
    }
    eprintln!("{}", describe(&authority));
    match &trust.out {
        Some(file) => {
            std::fs::write(file, &pem)
                .with_context(|| format!("cannot write {}", file.display()))?;
            eprintln!("{}", advice(file));
        }
        None => {
            say(format_args!("{}", pem.trim_end()));
            eprintln!("{}", advice(Path::new("headwater.pem")));
        }
    }
    Ok(())
}

/// Reads the certificate in a data directory.
fn read(path: &Path) -> Result<(String, Authority)> {
    let bytes = std::fs::read(path).with_context(|| {
        format!("there is no certificate at {}; start a server there once", path.display())
    })?;
    let pem = String::from_utf8_lossy(&bytes).into_owned();
    let authority = Authority::parse(&pem).with_context(|| {
        let path = path.display();
        format!("{path} is damaged. Start the server once: it makes the certificate again with the same key")
    })?;
    Ok((pem, authority))
}

async fn ask(trust: &Trust) -> Result<String> {
    let place = match &trust.address {
        Some(text) => text.parse::<Address>()?.place,
        None => Place::Default,
    };
    let client = trust.connect.client(&place, Options::default())?;
    ensure!(
        !client.endpoint().is_tls(),
        "a certificate cannot be asked for over the connection it is needed for; give the server's \
         http address, or --data"
    );
    let pem = client.authority_pem().await?;
    pem.with_context(|| {
        let endpoint = client.endpoint();
        format!("{endpoint} has no certificate; was it started with --no-https?")
    })
}

fn advice(file: &Path) -> String {
    let file = file.display();
    format!(
        "
How to make programs trust it:
  Debian, Ubuntu   sudo headwater trust --install
  Fedora           sudo cp {file} /etc/pki/ca-trust/source/anchors/ && sudo update-ca-trust
  macOS            sudo security add-trusted-cert -d -r trustRoot \\
                     -k /Library/Keychains/System.keychain {file}
  Windows          certutil -addstore -f Root {file}
  Node.js          NODE_EXTRA_CA_CERTS={file}
  Python           REQUESTS_CA_BUNDLE={file}
  Java             keytool -importcert -cacerts -storepass changeit -noprompt -alias headwater -file {file}
  Rust, Go         SSL_CERT_FILE={file}
  .NET             trusts what the machine trusts
  headwater        --authority {file}"
    )
}

/// Describes an authority and the effect of trusting it.
fn describe(authority: &Authority) -> String {
    let names = match authority.names.is_empty() {
        true => "any name; start the server once with this version to limit it".to_owned(),
        false => format!("{}, and no others", authority.names.join(", ")),
    };
    format!(
        "The certificate authority of this server:
  subject      {}
  fingerprint  SHA-256 {}
  limited to   {names}
  ends         {}",
        authority.subject,
        authority.fingerprint,
        format_http_date(authority.ends_at)
    )
}

/// Installs an authority in the trust store of this machine.
///
/// Each authority has a file of its own, named by its key. A renewed certificate replaces the previous one. The
/// authorities of other servers stay trusted.
fn install(root: &Path, pem: &str, authority: &Authority) -> Result<()> {
    say(format_args!("{}", describe(authority)));
    ensure!(
        !authority.names.is_empty(),
        "not installed: this authority could vouch for any site. Start the server once with this version, \
         which replaces it"
    );
    let dir = root.join(DEBIAN);
    if !dir.is_dir() {
        bail!("there is no {} here; `headwater trust` says how other systems do it", dir.display());
    }
    let path = dir.join(format!("headwater-{}.crt", authority.key_id()));
    let before = std::fs::read(&path).ok();
    write_readable(&path, pem.as_bytes())
        .with_context(|| format!("cannot write {}; run it with sudo", path.display()))?;
    if let Err(error) = update(root) {
        // Undo the write: otherwise the next update would trust the authority.
        let undone = match before {
            Some(before) => write_readable(&path, &before),
            None => std::fs::remove_file(&path),
        };
        undone.with_context(|| format!("cannot undo; remove {}", path.display()))?;
        return Err(error.context("not installed"));
    }
    say(format_args!("installed in {}; this machine trusts it now", path.display()));
    for other in others(&dir, &path) {
        say(format_args!("also trusted, installed before: {}", other.display()));
    }
    say(format_args!("to undo: sudo rm {} && sudo {UPDATE} --fresh", path.display()));
    Ok(())
}

/// Writes a file that every user can read, regardless of the umask.
fn write_readable(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::write(path, bytes)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Runs the system's update of its trust store.
fn update(root: &Path) -> Result<()> {
    let mut command = Command::new(UPDATE);
    if root != Path::new("/") {
        for (option, path) in [
            ("--certsconf", "etc/ca-certificates.conf"),
            ("--certsdir", "usr/share/ca-certificates"),
            ("--localcertsdir", DEBIAN),
            ("--etccertsdir", "etc/ssl/certs"),
            ("--hooksdir", "etc/ca-certificates/update.d"),
        ] {
            command.arg(option).arg(root.join(path));
        }
    }
    let run = command.output();
    let run = run.with_context(|| format!("cannot run {UPDATE}; install ca-certificates"))?;
    let complaint = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "{UPDATE} failed: {}", complaint.trim());
    Ok(())
}

/// Returns the files of authorities of other servers installed here.
fn others(dir: &Path, own: &Path) -> Vec<PathBuf> {
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("headwater") && name.ends_with(".crt") && path != own
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    found.sort();
    found
}
