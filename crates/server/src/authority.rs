//! The certificate authority of a server: what it certifies, how long, and what a stored one says.
//!
//! Name constraints (RFC 5280, 4.2.1.10) limit it to the names of this server. A machine that trusts it
//! believes it about no other site, also when its key is stolen. Pure: no files, no clock.

use crate::web::parse_host;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints,
    SanType, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

const DAY_SECONDS: u64 = 24 * 60 * 60;
/// How long an authority is good.
const LIFETIME_SECONDS: u64 = 2 * 365 * DAY_SECONDS;
/// How long before its end it is renewed: time to let programs trust the new one.
const RENEWAL_SECONDS: u64 = 60 * DAY_SECONDS;
/// Names every authority is for.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What an authority's certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Authority {
    /// Its distinguished name.
    pub subject: String,
    /// SHA-256 of the certificate, as other tools print it.
    pub fingerprint: String,
    /// Names and addresses it is limited to; empty if it may certify any.
    pub names: Vec<String>,
    /// When it ends, in seconds since 1970.
    pub ends_at: u64,
    public_key: Vec<u8>,
}

/// What to do with a stored authority.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Upkeep {
    Keep,
    /// It ends soon: a new certificate for the same key, so that the old one stays good until its end.
    Renew,
    /// It cannot be used any more: a new key, which programs have to be told to trust.
    Replace(String),
}

impl Authority {
    /// Reads a certificate that is signed with its own key. `None` if it is damaged or another thing.
    #[must_use]
    pub fn parse(pem: &str) -> Option<Authority> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let (rest, certificate) = X509Certificate::from_der(&der).ok()?;
        if !rest.is_empty() || !is_signed_by_itself(&certificate) {
            return None;
        }
        // Clients decode more strictly than this parser.
        RootCertStore::empty().add(der.clone()).ok()?;
        let constraints = certificate.name_constraints().ok()?;
        let permitted = constraints.and_then(|found| found.value.permitted_subtrees.as_ref());
        let names = permitted.into_iter().flatten().map(|subtree| shown(&subtree.base)).collect();
        let fingerprint: Vec<String> =
            Sha256::digest(&der).iter().map(|byte| format!("{byte:02X}")).collect();
        Some(Authority {
            subject: certificate.subject().to_string(),
            fingerprint: fingerprint.join(":"),
            names,
            ends_at: u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
        })
    }

    /// A short name of its key, the same after a renewal: the first 16 hexadecimal digits of its SHA-256.
    #[must_use]
    pub fn key_id(&self) -> String {
        let digest = Sha256::digest(&self.public_key);
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether it can go on certifying these names with this key.
    pub(crate) fn upkeep(&self, names: &[String], key: &KeyPair, now: u64) -> Upkeep {
        if self.names.is_empty() {
            return Upkeep::Replace("it was not limited to the names of this server".to_owned());
        }
        if let Some(name) = names.iter().find(|name| !self.names.contains(name)) {
            return Upkeep::Replace(format!("it was not made for {name}"));
        }
        if self.public_key != key.public_key_raw() {
            return Upkeep::Replace("its key was another one".to_owned());
        }
        if now >= self.renew_at() { Upkeep::Renew } else { Upkeep::Keep }
    }

    /// When it has to be renewed, in seconds since 1970.
    pub(crate) fn renew_at(&self) -> u64 {
        self.ends_at.saturating_sub(RENEWAL_SECONDS)
    }
}

/// Whether its signature is by its own key over its own bytes: any changed bit shows.
fn is_signed_by_itself(certificate: &X509Certificate<'_>) -> bool {
    let (content, signature) = (certificate.tbs_certificate.as_ref(), &certificate.signature_value);
    let key = &certificate.public_key().subject_public_key.data;
    let algorithms =
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
    let fits = |one: &&dyn SignatureVerificationAlgorithm| {
        one.verify_signature(key, content, &signature.data).is_ok()
    };
    // The signature does not cover the name of its algorithm, which is written twice.
    certificate.signature_algorithm == certificate.tbs_certificate.signature
        && algorithms.all.iter().any(fits)
}

/// The names of a server: loopback and its own.
pub(crate) fn names_of(hosts: &[String]) -> Vec<String> {
    let mut names = LOOPBACK.map(str::to_owned).to_vec();
    for name in hosts.iter().filter_map(|host| parse_host(host)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A certificate for the authority's key, as PEM.
pub(crate) fn certify_itself(
    key: &KeyPair,
    names: &[String],
    now: u64,
) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("Headwater development authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Name constraints limit servers; without this, it could also sign for mail, code and clients.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let permitted_subtrees = names.iter().map(|name| match name.parse::<IpAddr>() {
        Ok(address) => {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, prefix))
        }
        Err(_) => GeneralSubtree::DnsName(name.clone()),
    });
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: permitted_subtrees.collect(),
        excluded_subtrees: Vec::new(),
    });
    limit(&mut params, now, now + LIFETIME_SECONDS);
    Ok(params.self_signed(key)?.pem())
}

/// What the server's own certificate says.
pub(crate) fn server_params(names: &[String], now: u64, ends_at: u64) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("localhost");
    let name = |name: &String| match name.parse::<IpAddr>() {
        Ok(address) => Some(SanType::IpAddress(address)),
        Err(_) => Some(SanType::DnsName(name.as_str().try_into().ok()?)),
    };
    params.subject_alt_names = names.iter().filter_map(name).collect();
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    limit(&mut params, now, ends_at);
    params
}

/// Good from a day before now, as clocks differ.
fn limit(params: &mut CertificateParams, now: u64, ends_at: u64) {
    let at = |seconds: u64| date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.not_before = at(now.saturating_sub(DAY_SECONDS));
    params.not_after = at(ends_at);
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::OrganizationName, "Headwater");
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// A permitted name as people write it.
fn shown(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => shown_network(bytes),
        other => other.to_string(),
    }
}

/// An address with its mask, which is left out if it is a single address.
fn shown_network(bytes: &[u8]) -> String {
    let (address, mask) = bytes.split_at(bytes.len() / 2);
    let ip = |bytes: &[u8]| {
        let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
    };
    match (ip(address), ip(mask)) {
        (Some(address), Some(_)) if mask.iter().all(|byte| *byte == 0xff) => address.to_string(),
        (Some(address), Some(mask)) => format!("{address}/{mask}"),
        _ => format!("{bytes:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::Issuer;
    use rustls::CertificateError;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use std::sync::Arc;

    const NOW: u64 = 1_800_000_000;

    /// Whether a client that trusts the authority accepts a certificate it signed for a name.
    fn accepts(pem: &str, key: &KeyPair, name: &str) -> Result<(), rustls::Error> {
        let authority = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let issuer = Issuer::from_ca_cert_pem(pem, key).unwrap();
        let leaf_key = KeyPair::generate().unwrap();
        let params = server_params(&[name.to_owned()], NOW, NOW + DAY_SECONDS);
        let leaf = params.signed_by(&leaf_key, &issuer).unwrap();
        let at = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
        let server = ServerName::try_from(name.to_owned()).unwrap();
        let verified =
            verifier.build().unwrap().verify_server_cert(leaf.der(), &[], &server, &[], at);
        verified.map(drop)
    }

    #[test]
    fn what_the_authority_signs_for_another_name_is_not_accepted() {
        let key = KeyPair::generate().unwrap();
        let names = names_of(&["db.example".to_owned(), "192.0.2.7".to_owned()]);
        let pem = certify_itself(&key, &names, NOW).unwrap();
        for name in ["localhost", "127.0.0.1", "::1", "db.example", "192.0.2.7"] {
            accepts(&pem, &key, name).unwrap();
        }
        for name in ["evil.test", "bank.example", "192.0.2.8", "2001:db8::1"] {
            let refused = accepts(&pem, &key, name).unwrap_err();
            let constrained =
                matches!(&refused, rustls::Error::InvalidCertificate(CertificateError::Other(_)));
            assert!(
                constrained && format!("{refused:?}").contains("NameConstraint"),
                "{name}: {refused:?}"
            );
        }
    }

    #[test]
    fn an_authority_is_good_for_servers_alone() {
        let key = KeyPair::generate().unwrap();
        let pem = certify_itself(&key, &names_of(&[]), NOW).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (_, authority) = X509Certificate::from_der(&der).unwrap();
        let usage = authority.extended_key_usage().unwrap().expect("it is limited").value;
        let others = [usage.any, usage.client_auth, usage.code_signing, usage.email_protection];
        assert!(
            usage.server_auth && !others.contains(&true) && usage.other.is_empty(),
            "{usage:?}"
        );
        accepts(&pem, &key, "localhost").unwrap();
    }

    #[test]
    fn an_authority_says_what_it_is_for_and_when_it_ends() {
        let key = KeyPair::generate().unwrap();
        let pem = certify_itself(&key, &names_of(&["db.example".to_owned()]), NOW).unwrap();
        let authority = Authority::parse(&pem).unwrap();
        assert_eq!(authority.names, ["localhost", "127.0.0.1", "::1", "db.example"]);
        assert_eq!(authority.ends_at, NOW + 2 * 365 * DAY_SECONDS);
        assert_eq!(authority.subject, "O=Headwater, CN=Headwater development authority");
        assert_eq!(authority.fingerprint.len(), 95);
        assert_eq!(Authority::parse("no certificate"), None);
    }

    #[test]
    fn an_authority_is_kept_renewed_near_its_end_and_replaced_where_it_cannot_serve() {
        let (key, other_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let names = names_of(&[]);
        let authority = Authority::parse(&certify_itself(&key, &names, NOW).unwrap()).unwrap();
        let upkeep = |names: &[String], key, now| authority.upkeep(names, key, now);
        assert_eq!(upkeep(&names, &key, NOW), Upkeep::Keep);
        assert_eq!(upkeep(&names[..1], &key, authority.renew_at() - 1), Upkeep::Keep);
        assert_eq!(upkeep(&names, &key, authority.renew_at()), Upkeep::Renew);
        assert_eq!(upkeep(&names, &key, authority.ends_at + 1), Upkeep::Renew);
        let more = names_of(&["db.example".to_owned()]);
        assert_eq!(
            upkeep(&more, &key, NOW),
            Upkeep::Replace("it was not made for db.example".into())
        );
        assert!(matches!(upkeep(&names, &other_key, NOW), Upkeep::Replace(_)));
        let unlimited = Authority { names: Vec::new(), ..authority.clone() };
        assert!(matches!(unlimited.upkeep(&names, &key, NOW), Upkeep::Replace(_)));
    }
}
