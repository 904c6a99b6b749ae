//! `headwater trust`: the certificate that makes https work, and how programs are told to believe it.

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

/// Where Debian looks for authorities of the machine's owner.
const DEBIAN: &str = "/usr/local/share/ca-certificates";

/// Whose certificate, and what to do with it.
#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// http://host:port of a running server [default: the context in use, or http://127.0.0.1:8080]
    address: Option<String>,
    /// Take it from a data directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    data: Option<PathBuf>,
    /// Write the certificate to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Let this machine trust it, with update-ca-certificates
    #[arg(long)]
    install: bool,
    #[command(flatten)]
    connect: Connect,
}

/// What `--help` says.
pub(crate) const HELP: &str = "\
Show or install the certificate that makes https work

    headwater trust                      print the certificate of the server on this machine
    headwater trust --out headwater.pem  write it to a file, and say how programs are told about it
    sudo headwater trust --install       let the whole machine trust it (Debian, Ubuntu)

A server makes its own certificate authority on first start and keeps it in its data directory under tls. \
Trusting it lets SDKs connect to https://localhost:8081 without switching checks off. The authority is \
limited to localhost, loopback addresses and the server's --host names, so it can vouch for no other site. \
It ends after two years; the server renews it 60 days before, and says so.";

/// Runs the command.
pub(crate) fn run(trust: Trust) -> Result<()> {
    let pem = match &trust.data {
        Some(dir) => {
            let path = dir.join("tls").join("authority.pem");
            std::fs::read_to_string(&path).with_context(|| {
                format!("there is no certificate at {}; start a server there once", path.display())
            })?
        }
        None => block_on(ask(&trust))?,
    };
    let authority = Authority::parse(&pem).context("what the server sent is not a certificate")?;
    if trust.install {
        return install(&pem, &authority);
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
How programs are told to trust it:
  Debian, Ubuntu   sudo headwater trust --install
  Fedora           sudo cp {file} /etc/pki/ca-trust/source/anchors/ && sudo update-ca-trust
  macOS            sudo security add-trusted-cert -d -r trustRoot \\
                     -k /Library/Keychains/System.keychain {file}
  Windows          certutil -addstore -f Root {file}
  Node.js          NODE_EXTRA_CA_CERTS={file}
  Python           CosmosClient(..., connection_verify=\"{file}\")
  Java             keytool -importcert -cacerts -storepass changeit -noprompt -alias headwater -file {file}
  Rust, Go         SSL_CERT_FILE={file}
  .NET             trusts what the machine trusts
  headwater        --authority {file}"
    )
}

/// What trusting an authority means.
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

fn install(pem: &str, authority: &Authority) -> Result<()> {
    say(format_args!("{}", describe(authority)));
    ensure!(
        !authority.names.is_empty(),
        "not installed: this authority could vouch for any site. Start the server once with this version, \
         which replaces it"
    );
    if !Path::new(DEBIAN).is_dir() {
        bail!("there is no {DEBIAN} here; `headwater trust` says how other systems do it");
    }
    let path = Path::new(DEBIAN).join("headwater.crt");
    std::fs::write(&path, pem)
        .with_context(|| format!("cannot write {}; run it with sudo", path.display()))?;
    let run = Command::new("update-ca-certificates").output();
    let run = run.context("cannot run update-ca-certificates; install ca-certificates")?;
    let complaint = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "update-ca-certificates failed: {}", complaint.trim());
    say(format_args!("installed in {}; this machine trusts it now", path.display()));
    Ok(())
}
