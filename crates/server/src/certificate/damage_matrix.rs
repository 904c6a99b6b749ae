//! Damages every file of the TLS directory in every way, and starts a server with it.
//!
//! Either a client that trusts the earlier authority accepts the server, or the server does not start and the
//! error names the damaged file and the next step. A server never starts with another authority. By default
//! one bit of each byte is flipped; `HEADWATER_MATRIX=1` flips every bit.

use super::*;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{ServerName, UnixTime};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// No file was written.
    Kept,
    /// The certificate was issued again with the same key.
    CertifiedAgain,
    /// The server did not start.
    Refused,
}

/// An authority as installed on a client.
struct Installed(Arc<WebPkiServerVerifier>);

impl Installed {
    fn new(pem: &str) -> Installed {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        Installed(verifier.build().unwrap())
    }

    /// Whether the client accepts the server's certificate.
    fn accepts(&self, certificates: &Certificates, now: u64) -> bool {
        let chain = certificates.current.issued().certificate.cert.clone();
        let (name, at) = (ServerName::try_from("localhost").unwrap(), Duration::from_secs(now));
        let at = UnixTime::since_unix_epoch(at);
        self.0.verify_server_cert(&chain[0], &chain[1..], &name, &[], at).is_ok()
    }
}

/// Starts a server with a damaged directory. The error says how the start broke the rules.
fn judge(dir: &Path, installed: &Installed, damaged: &str) -> Result<Outcome, String> {
    let runtime = Runtime::system();
    let before = std::fs::read(dir.join(AUTHORITY)).ok();
    let certificates = match Certificates::open(Some(dir), &[], &runtime) {
        Ok(certificates) => certificates,
        Err(error) => {
            let text = error.to_string();
            let names_file = text.contains(&dir.join(damaged).display().to_string());
            return match names_file && text.contains("Without a copy, remove") {
                true => Ok(Outcome::Refused),
                false => Err(format!("no file or no next step in: {text}")),
            };
        }
    };
    if !installed.accepts(&certificates, seconds(&runtime)) {
        return Err("a client that trusts the authority refuses the server".to_owned());
    }
    if !Installed::new(&certificates.authority_pem()).accepts(&certificates, seconds(&runtime)) {
        return Err("a client that trusts the authority it is given refuses the server".to_owned());
    }
    match before == std::fs::read(dir.join(AUTHORITY)).ok() {
        true => Ok(Outcome::Kept),
        false => Ok(Outcome::CertifiedAgain),
    }
}

fn write_pair(dir: &Path, pair: &[(&str, Vec<u8>)]) {
    let _ = std::fs::remove_dir_all(dir);
    private::create_dir_all(dir).unwrap();
    for (name, bytes) in pair {
        std::fs::write(dir.join(name), bytes).unwrap();
    }
}

/// Creates an authority and returns its files.
fn made(dir: &Path) -> (Installed, [(&'static str, Vec<u8>); 2]) {
    let certificates = Certificates::open(Some(dir), &[], &Runtime::system()).unwrap();
    let installed = Installed::new(&certificates.authority_pem());
    let files =
        [AUTHORITY, AUTHORITY_KEY].map(|name| (name, std::fs::read(dir.join(name)).unwrap()));
    (installed, files)
}

#[test]
fn every_kind_of_damage_to_certificate_files_is_repaired_or_named() {
    type Damage = fn(&Path);
    let damage: [(&str, Damage); 8] = [
        ("is empty", |path| std::fs::write(path, b"").unwrap()),
        ("is cut in half", |path| {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("lacks its last line", |path| {
            let bytes = std::fs::read(path).unwrap();
            let end = bytes.windows(9).rposition(|part| part == b"-----END ").unwrap();
            std::fs::write(path, &bytes[..end]).unwrap();
        }),
        ("is zeros", |path| {
            let length = std::fs::read(path).unwrap().len();
            std::fs::write(path, vec![0; length]).unwrap();
        }),
        ("is not text", |path| std::fs::write(path, [0xa5; 500]).unwrap()),
        ("is missing", |path| std::fs::remove_file(path).unwrap()),
        ("is a directory", |path| {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }),
        ("is a broken link", |path| {
            std::fs::remove_file(path).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink("nowhere", path).unwrap();
        }),
    ];
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tls");
    let (installed, files) = made(&dir);
    for (name, expected) in
        [(AUTHORITY, Outcome::CertifiedAgain), (AUTHORITY_KEY, Outcome::Refused)]
    {
        for (what, damage) in damage {
            write_pair(&dir, &files);
            damage(&dir.join(name));
            let found = judge(&dir, &installed, name);
            let expected = if what == "is a directory" { Outcome::Refused } else { expected };
            assert_eq!(found, Ok(expected), "{name} {what}");
            if expected == Outcome::CertifiedAgain {
                assert_eq!(
                    judge(&dir, &installed, name),
                    Ok(Outcome::Kept),
                    "{name} {what}: again"
                );
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_certificate_files_is_repaired_or_named() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tls");
    let (installed, files) = made(&dir);
    // Neighbouring bytes get different bits, so that all eight are flipped somewhere.
    let step = if std::env::var_os("HEADWATER_MATRIX").is_some() { 1 } else { 9 };
    for (file, (name, bytes)) in files.iter().enumerate() {
        let mut outcomes = BTreeMap::<Outcome, u32>::new();
        for bit in (0..bytes.len() * 8).step_by(step) {
            let mut pair = files.clone();
            pair[file].1[bit / 8] ^= 1 << (bit % 8);
            write_pair(&dir, &pair);
            let found = judge(&dir, &installed, name);
            let outcome = found.unwrap_or_else(|what| panic!("{name}, bit {bit}: {what}"));
            *outcomes.entry(outcome).or_default() += 1;
        }
        let (usual, never) = match *name {
            AUTHORITY => (Outcome::CertifiedAgain, Outcome::Refused),
            _ => (Outcome::Refused, Outcome::CertifiedAgain),
        };
        assert!(!outcomes.contains_key(&never), "{name}: {outcomes:?}");
        // Changes in white space between the lines and in padding bits have no effect.
        let kept = outcomes.get(&Outcome::Kept).copied().unwrap_or(0);
        assert!(outcomes[&usual] > 10 * kept, "{name}: {outcomes:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_certificate_file_that_cannot_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tls");
    let (installed, files) = made(&dir);
    for name in [AUTHORITY, AUTHORITY_KEY] {
        write_pair(&dir, &files);
        let closed = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(dir.join(name), closed).unwrap();
        // A superuser can read every file.
        let is_readable = std::fs::read(dir.join(name)).is_ok();
        let expected = if is_readable { Outcome::Kept } else { Outcome::Refused };
        assert_eq!(judge(&dir, &installed, name), Ok(expected), "{name}");
    }
}
