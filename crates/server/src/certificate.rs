//! The server's own certificate authority and certificate.
//!
//! Both are made on first start and kept, so that trust given once stays good. The certificate is made
//! anew when it is about to expire or lacks a name; the authority is not.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const AUTHORITY: &str = "authority.pem";
const AUTHORITY_KEY: &str = "authority-key.pem";
const NAMES: [&str; 2] = ["localhost", "headwater"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Files cannot be read or written.
    #[error("cannot keep certificates in {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A stored certificate is not one.
    #[error("{} is damaged; remove the directory and a new authority is made", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Making a certificate failed.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    /// TLS refuses the certificate.
    #[error("cannot use the certificate")]
    Tls(#[from] rustls::Error),
}

/// The authority clients trust, and what the server shows them.
#[derive(Clone, Debug)]
pub struct Certificates {
    authority_pem: String,
    pub(crate) tls: Arc<rustls::ServerConfig>,
}

impl Certificates {
    /// The certificate clients have to trust, as PEM.
    #[must_use]
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// Takes the authority from a directory, or makes one there; `None` makes one that is forgotten.
    ///
    /// # Errors
    /// When files cannot be read or written.
    pub fn open(dir: Option<&Path>) -> Result<Certificates, CertificateError> {
        let (authority_pem, key_pem) = match dir {
            Some(dir) => kept_authority(dir)?,
            None => new_authority()?,
        };
        let damaged = || CertificateError::Damaged {
            path: dir.unwrap_or(Path::new("memory")).join(AUTHORITY),
        };
        let key = KeyPair::from_pem(&key_pem).map_err(|_| damaged())?;
        let issuer = Issuer::from_ca_cert_pem(&authority_pem, key).map_err(|_| damaged())?;
        let leaf_key = KeyPair::generate()?;
        let leaf = leaf_params().signed_by(&leaf_key, &issuer)?;
        let authority =
            CertificateDer::from_pem_slice(authority_pem.as_bytes()).map_err(|_| damaged())?;
        let chain = vec![leaf.der().clone(), authority];
        let key = PrivateKeyDer::try_from(leaf_key.serialize_der()).map_err(|_| damaged())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Certificates { authority_pem, tls: Arc::new(tls) })
    }
}

fn kept_authority(dir: &Path) -> Result<(String, String), CertificateError> {
    let (cert_path, key_path) = (dir.join(AUTHORITY), dir.join(AUTHORITY_KEY));
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| CertificateError::Io { path, source }
    };
    if cert_path.exists() && key_path.exists() {
        let cert = std::fs::read_to_string(&cert_path).map_err(io(&cert_path))?;
        let key = std::fs::read_to_string(&key_path).map_err(io(&key_path))?;
        return Ok((cert, key));
    }
    std::fs::create_dir_all(dir).map_err(io(dir))?;
    let (cert, key) = new_authority()?;
    write_private(&key_path, &key).map_err(io(&key_path))?;
    std::fs::write(&cert_path, &cert).map_err(io(&cert_path))?;
    Ok((cert, key))
}

/// A key only its owner can read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

fn new_authority() -> Result<(String, String), CertificateError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Headwater development authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?;
    Ok((cert.pem(), key.serialize_pem()))
}

fn leaf_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("localhost");
    let mut names: Vec<SanType> =
        NAMES.iter().filter_map(|name| Some(SanType::DnsName((*name).try_into().ok()?))).collect();
    names.push(SanType::IpAddress(IpAddr::from([127, 0, 0, 1])));
    names.push(SanType::IpAddress(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])));
    params.subject_alt_names = names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::OrganizationName, "Headwater");
    distinguished.push(DnType::CommonName, name);
    distinguished
}
