//! Emulators of object stores, each started for one test, and direct requests to them.

use crate::support::{Running, headwater};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::CertificateDer;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const CONTAINER: &str = "backups";
/// The account that every emulator has: https://learn.microsoft.com/azure/storage/common/storage-connect-azurite
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// An object store with one container.
pub(crate) struct Store {
    _process: Running,
    /// The URL of the container, for the command.
    pub(crate) url: String,
    /// The environment variables of the command.
    pub(crate) variables: Vec<(&'static str, String)>,
    address: String,
    /// The client for direct requests, where plain HTTP is not served.
    tls: Option<Arc<rustls::ClientConfig>>,
    /// The prefix of object names in the path of a request.
    root: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Azure,
    S3,
}

impl Store {
    /// Azurite.
    pub(crate) fn azurite() -> Store {
        Store::azurite_with("--inMemoryPersistence")
    }

    /// Azurite with a certificate that it signed itself, kept in `dir`.
    pub(crate) fn azurite_with_tls(dir: &Path) -> Store {
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(dir.join("certificate.pem"), certified.cert.pem()).unwrap();
        std::fs::write(dir.join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
        let dir = dir.to_str().unwrap();
        let tls = format!("--cert '{dir}/certificate.pem' --key '{dir}/key.pem'");
        let mut store = Store::azurite_with(&format!("--inMemoryPersistence {tls}"));
        store.tls = Some(trusting(certified.cert.der()));
        store
    }

    fn azurite_with(more: &str) -> Store {
        let program = installed("HEADWATER_AZURITE");
        let options =
            format!("--blobHost 127.0.0.1 --blobPort 0 --silent --disableTelemetry {more}");
        let (process, url) = start(&format!("exec node '{program}' {options} 2>&1"), "listens on ");
        let (scheme, address) = url.split_once("://").unwrap();
        let address = address.to_owned();
        let variables = vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY.to_owned()),
            ("AZURE_STORAGE_ENDPOINT", format!("{scheme}://{address}/{ACCOUNT}")),
        ];
        Store {
            _process: process,
            tls: None,
            url: format!("az://{CONTAINER}"),
            variables,
            address,
            root: format!("/{ACCOUNT}/{CONTAINER}"),
            kind: Kind::Azure,
        }
    }

    /// moto's S3.
    pub(crate) fn moto() -> Store {
        let python = installed("HEADWATER_MOTO");
        let (process, url) =
            start(&format!("exec '{python}' -m moto.server -H 127.0.0.1 -p 0 2>&1"), "Running on ");
        let address = url.trim_start_matches("http://").to_owned();
        let variables = vec![
            ("AWS_ACCESS_KEY_ID", "key".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        Store {
            _process: process,
            tls: None,
            url: format!("s3://{CONTAINER}"),
            variables,
            address,
            root: format!("/{CONTAINER}"),
            kind: Kind::S3,
        }
    }

    /// Returns the command with the variables of this store, and no other cloud variables.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = headwater(arguments);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["AZURE_", "AWS_", "GOOGLE_"].iter().any(|cloud| text.starts_with(cloud)) {
                command.env_remove(&name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn connection_string(&self) -> String {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};\
             BlobEndpoint=http://{}/{ACCOUNT};",
            self.address
        )
    }

    pub(crate) fn create_container(&self) {
        let query = if self.kind == Kind::Azure { "restype=container" } else { "" };
        assert!(self.send("PUT", "", query, b"").0 < 300, "the container cannot be made");
    }

    /// Returns the names of the objects with this prefix, sorted.
    pub(crate) fn list(&self, prefix: &str) -> Vec<String> {
        let (query, element) = match self.kind {
            Kind::Azure => ("restype=container&comp=list", "Name"),
            Kind::S3 => ("list-type=2", "Key"),
        };
        let (status, body) = self.send("GET", "", &format!("{query}&prefix={prefix}"), b"");
        assert_eq!(status, 200);
        let text = String::from_utf8(body).unwrap();
        let tag = format!("<{element}>");
        let behind = text.split(&tag).skip(1);
        let name = |rest: &str| rest.split('<').next().unwrap_or_default().to_owned();
        let mut names: Vec<String> = behind.map(name).collect();
        // The name of the bucket is an element of its own.
        names.retain(|name| name.starts_with(prefix));
        names.sort_unstable();
        names
    }

    pub(crate) fn get(&self, object: &str) -> Option<Vec<u8>> {
        let (status, body) = self.send("GET", &format!("/{object}"), "", b"");
        (status == 200).then_some(body)
    }

    pub(crate) fn put(&self, object: &str, bytes: &[u8]) {
        assert!(self.send("PUT", &format!("/{object}"), "", bytes).0 < 300);
    }

    pub(crate) fn delete(&self, object: &str) {
        assert!(self.send("DELETE", &format!("/{object}"), "", b"").0 < 300);
    }

    /// Creates a shared access signature of the account with these permissions.
    pub(crate) fn shared_access(&self, rights: &str) -> String {
        const EXPIRES: &str = "2099-01-01T00:00:00Z";
        const VERSION: &str = "2020-08-04";
        let signed = format!("{ACCOUNT}\n{rights}\nb\nsco\n\n{EXPIRES}\n\n\n{VERSION}\n");
        let key = BASE64_STANDARD.decode(KEY).unwrap();
        let mut hmac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
        hmac.update(signed.as_bytes());
        let signature = BASE64_STANDARD.encode(hmac.finalize().into_bytes());
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        format!(
            "sv={VERSION}&ss=b&srt=sco&sp={rights}&se={}&sig={}",
            encoded(EXPIRES),
            encoded(&signature)
        )
    }

    /// A request as version 1.0 of HTTP: the answer ends with its connection.
    fn send(&self, method: &str, path: &str, query: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let (query, header) = match self.kind {
            Kind::Azure => {
                let access = self.shared_access("rwdlac");
                (format!("{query}&{access}"), "x-ms-blob-type: BlockBlob".to_owned())
            }
            // The emulator reads the access key and does not check the signature.
            Kind::S3 => {
                let scope = "Credential=key/20260101/us-east-1/s3/aws4_request";
                let header = format!(
                    "Authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"
                );
                (query.to_owned(), header)
            }
        };
        let root = &self.root;
        let length = body.len();
        let mut request = format!(
            "{method} {root}{path}?{query} HTTP/1.0\r\nHost: {}\r\n{header}\r\nContent-Length: {length}\r\n\r\n",
            self.address
        )
        .into_bytes();
        request.extend_from_slice(body);
        let plain = TcpStream::connect(&self.address).unwrap();
        let answer = match &self.tls {
            None => exchange(plain, &request),
            Some(config) => {
                let host = "127.0.0.1".try_into().unwrap();
                let session = rustls::ClientConnection::new(config.clone(), host).unwrap();
                exchange(rustls::StreamOwned::new(session, plain), &request)
            }
        };
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }
}

/// Sends a request, and reads until the server closes the connection.
fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn trusting(certificate: &CertificateDer<'static>) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

fn installed(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set; run this with `cargo xtask objects`"))
}

/// Starts a server, and reads its URL from the line that contains this text.
fn start(script: &str, before_address: &str) -> (Running, String) {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    let process = Running::of(command);
    loop {
        let line = process.line();
        if let Some((_, url)) = line.split_once(before_address) {
            let url = url.trim().to_owned();
            return (process, url);
        }
    }
}
