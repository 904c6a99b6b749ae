//! Stores the certificate authority and issues the server's certificate.
//!
//! Clients trust the authority, so it is stored in a directory and outlives the server. It is renewed near its
//! expiry, at a start and while the server runs (see `authority`). The server's own certificate is issued with
//! it and never stored.
//!
//! Damage never replaces the authority, because machines that have installed it would stop trusting the server:
//!
//! ```text
//! certificate damaged or missing, key good   the certificate is issued again with the same key, with a warning;
//!                                            programs that trust the old certificate accept the new one
//! key damaged or missing                     the server does not start; the error says to restore the file or
//!                                            remove the directory, and what that costs
//! a file cannot be read                      the server does not start: the file may be good
//! ```

use crate::authority::{Authority, Upkeep, certify_itself, names_of, server_params};
use headwater_runtime::Runtime;
use headwater_store::private;
use parking_lot::RwLock;
use rcgen::{Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AUTHORITY: &str = "authority.pem";
const AUTHORITY_KEY: &str = "authority-key.pem";
/// The time between a failed renewal and the next attempt.
const RETRY_SECONDS: u64 = 60 * 60;

/// Why a certificate could not be loaded or issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Files cannot be read or written.
    #[error("cannot keep certificates in {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file cannot be read, or something else is in its place.
    #[error(
        "cannot read {}. Let this user read it, or remove what is in its place and restore the file from a \
         copy. {}", path.display(), remedy(path)
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The contents of a file are damaged.
    #[error("{} is damaged. Restore it from a copy. {}", path.display(), remedy(path))]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The key of the authority is missing, but its certificate exists.
    #[error("{} is missing. Restore it from a copy. {}", path.display(), remedy(path))]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Issuing a certificate failed.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// The TLS library rejects the certificate.
    #[error("cannot use the certificate")]
    Tls(#[from] rustls::Error),
}

/// What to do without a copy of the file.
fn remedy(path: &Path) -> String {
    if path.ends_with(AUTHORITY) {
        return "Without a copy, remove it: the next start makes it again with the same key, and programs \
                that trust it keep trusting the server"
            .to_owned();
    }
    let dir = path.parent().unwrap_or(path).display();
    format!(
        "Without a copy, remove the directory {dir}: the next start makes a new authority, and every program \
         and machine that trusts the old one has to trust the new one with `headwater trust`"
    )
}

/// The authority that clients trust, and the TLS configuration with the server's certificate.
#[derive(Clone, Debug)]
pub struct Certificates {
    current: Arc<RenewingCertificate>,
    pub(crate) tls: Arc<rustls::ServerConfig>,
}

/// The current certificate, which is renewed when due.
#[derive(Debug)]
struct RenewingCertificate {
    dir: Option<PathBuf>,
    names: Vec<String>,
    runtime: Runtime,
    issued: RwLock<IssuedCertificate>,
}

/// An authority and the certificate that it issued for the server.
#[derive(Clone, Debug)]
struct IssuedCertificate {
    authority_pem: String,
    certificate: Arc<CertifiedKey>,
    renew_at: u64,
}

impl Certificates {
    /// The certificate that clients have to trust, as PEM.
    #[must_use]
    pub fn authority_pem(&self) -> String {
        self.current.issued().authority_pem
    }

    /// Loads the authority from a directory, or creates it there; with `None` it exists only in memory. It is
    /// limited to loopback and `hosts`. A stored authority without these names is replaced, with a warning.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn open(
        dir: Option<&Path>,
        hosts: &[String],
        runtime: &Runtime,
    ) -> Result<Certificates, CertificateError> {
        let names = names_of(hosts);
        let issued = RwLock::new(issue(dir, &names, seconds(runtime))?);
        let dir = dir.map(Path::to_owned);
        let current =
            Arc::new(RenewingCertificate { dir, names, runtime: runtime.clone(), issued });
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Certificates { current, tls: Arc::new(tls) })
    }
}

impl RenewingCertificate {
    /// Returns the current certificate. A due renewal happens here, so it needs no timer.
    fn issued(&self) -> IssuedCertificate {
        let now = seconds(&self.runtime);
        let is_due = |issued: &IssuedCertificate| now >= issued.renew_at;
        let issued = self.issued.read().clone();
        if !is_due(&issued) {
            return issued;
        }
        let mut issued = self.issued.write();
        if is_due(&issued) {
            match issue(self.dir.as_deref(), &self.names, now) {
                Ok(new) => *issued = new,
                Err(error) => {
                    tracing::warn!(error = ?error, "cannot renew the certificate authority");
                    issued.renew_at = now + RETRY_SECONDS;
                }
            }
        }
        issued.clone()
    }
}

impl ResolvesServerCert for RenewingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.issued().certificate)
    }
}

fn seconds(runtime: &Runtime) -> u64 {
    runtime.unix_millis() / 1000
}

/// Loads or creates the authority and issues the server's certificate.
fn issue(
    dir: Option<&Path>,
    names: &[String],
    now: u64,
) -> Result<IssuedCertificate, CertificateError> {
    let damaged =
        || CertificateError::Damaged { path: dir.unwrap_or(Path::new("memory")).join(AUTHORITY) };
    let (authority_pem, key) = match dir {
        Some(dir) => kept_authority(dir, names, now)?,
        None => new_authority(names, now)?,
    };
    let authority = Authority::parse(&authority_pem).ok_or_else(damaged)?;
    let issuer = Issuer::from_ca_cert_pem(&authority_pem, key).map_err(|_| damaged())?;
    let leaf_key = KeyPair::generate()?;
    let leaf = server_params(names, now, authority.ends_at).signed_by(&leaf_key, &issuer)?;
    let der = CertificateDer::from_pem_slice(authority_pem.as_bytes()).map_err(|_| damaged())?;
    let key = PrivateKeyDer::try_from(leaf_key.serialize_der()).map_err(|_| damaged())?;
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key)?;
    let certificate = Arc::new(CertifiedKey::new(vec![leaf.der().clone(), der], key));
    Ok(IssuedCertificate { renew_at: authority.renew_at(), authority_pem, certificate })
}

fn kept_authority(
    dir: &Path,
    names: &[String],
    now: u64,
) -> Result<(String, KeyPair), CertificateError> {
    let (cert_path, key_path) = (dir.join(AUTHORITY), dir.join(AUTHORITY_KEY));
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| CertificateError::Io { path, source }
    };
    private::create_dir_all(dir).map_err(io(dir))?;
    let certify_again = |key: KeyPair| -> Result<_, CertificateError> {
        let cert = certify_itself(&key, names, now)?;
        private::write(&cert_path, cert.as_bytes()).map_err(io(&cert_path))?;
        Ok((cert, key))
    };
    let (cert, key) = (read_text(&cert_path)?, read_text(&key_path)?);
    match (cert, key) {
        (None, None) => {}
        (Some(_), None) => return Err(CertificateError::Missing { path: key_path }),
        (cert, Some(key)) => {
            let key = KeyPair::from_pem(&key)
                .map_err(|_| CertificateError::Damaged { path: key_path.clone() })?;
            let authority = cert.as_deref().and_then(Authority::parse);
            let (Some(cert), Some(authority)) = (cert, authority) else {
                let certified = certify_again(key)?;
                tracing::warn!(
                    file = %cert_path.display(),
                    "the certificate of the authority was damaged or missing and was issued again with the \
                     same key; programs that trust the old certificate keep trusting the server"
                );
                return Ok(certified);
            };
            match authority.upkeep(names, &key, now) {
                Upkeep::Keep => return Ok((cert, key)),
                Upkeep::Renew => {
                    let certified = certify_again(key)?;
                    tracing::warn!(
                        dir = %dir.display(),
                        "the certificate authority expires soon and was renewed with the same key; make programs \
                         trust the new certificate with `headwater trust`"
                    );
                    return Ok(certified);
                }
                Upkeep::Replace(reason) => tracing::warn!(
                    dir = %dir.display(),
                    reason,
                    "the certificate authority was replaced; make programs trust the new one with \
                     `headwater trust`, and remove the old one where it is installed"
                ),
            }
        }
    }
    let (cert, key) = new_authority(names, now)?;
    // A crash between the two writes leaves a certificate of another key, which the next start replaces.
    private::write(&key_path, key.serialize_pem().as_bytes()).map_err(io(&key_path))?;
    private::write(&cert_path, cert.as_bytes()).map_err(io(&cert_path))?;
    Ok((cert, key))
}

/// Reads a file, or returns `None` if it does not exist. Non-text bytes count as damage, not as an error.
fn read_text(path: &Path) -> Result<Option<String>, CertificateError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CertificateError::Unreadable { path: path.to_owned(), source }),
    }
}

fn new_authority(names: &[String], now: u64) -> Result<(String, KeyPair), CertificateError> {
    let key = KeyPair::generate()?;
    Ok((certify_itself(&key, names, now)?, key))
}

#[cfg(test)]
mod damage_matrix;

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_runtime::Simulation;
    use std::time::Duration;

    const DAYS: u64 = 24 * 60 * 60;

    fn authority(pem: &str) -> Authority {
        Authority::parse(pem).unwrap()
    }

    fn key_of(dir: &Path) -> String {
        std::fs::read_to_string(dir.join(AUTHORITY_KEY)).unwrap()
    }

    #[test]
    fn an_authority_is_renewed_with_its_key_while_the_server_runs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tls");
        let simulation = Simulation::new(1);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            let certificates = Certificates::open(Some(&path), &[], &runtime).unwrap();
            let (first, key) = (certificates.authority_pem(), key_of(&path));
            runtime.sleep(Duration::from_secs(600 * DAYS)).await;
            assert_eq!(certificates.authority_pem(), first);
            runtime.sleep(Duration::from_secs(100 * DAYS)).await;
            let second = certificates.authority_pem();
            assert!(authority(&second).ends_at > authority(&first).ends_at + 600 * DAYS);
            assert_eq!(key_of(&path), key, "trust in the first is good until its end");
            let stored = std::fs::read_to_string(path.join(AUTHORITY)).unwrap();
            assert_eq!(stored, second);
            let again = Certificates::open(Some(&path), &[], &runtime).unwrap();
            assert_eq!(again.authority_pem(), second);
        });
    }

    #[test]
    fn an_authority_without_limits_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tls");
        let runtime = Runtime::system();
        let old_key = KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let old = params.self_signed(&old_key).unwrap().pem();
        private::create_dir_all(&path).unwrap();
        std::fs::write(path.join(AUTHORITY), &old).unwrap();
        std::fs::write(path.join(AUTHORITY_KEY), old_key.serialize_pem()).unwrap();
        assert!(authority(&old).names.is_empty());
        let new = Certificates::open(Some(&path), &[], &runtime).unwrap().authority_pem();
        assert_eq!(authority(&new).names, ["localhost", "127.0.0.1", "::1"]);
        assert_ne!(key_of(&path), old_key.serialize_pem());
        let hosts = ["db.example".to_owned()];
        let more = Certificates::open(Some(&path), &hosts, &runtime).unwrap().authority_pem();
        assert_eq!(authority(&more).names.len(), 4);
        let fewer = Certificates::open(Some(&path), &[], &runtime).unwrap().authority_pem();
        assert_eq!(fewer, more, "trust given once stays good");
    }
}
