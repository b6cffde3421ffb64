//! The site's own authority for hosts: it signs a certificate for each host that is added, and one for this server.
//!
//! Key and certificate are kept in one PEM file of the data directory ([`private_file`]): a crash leaves none or a whole one. An existing file is never replaced, since every host knows the site by it.
//!
//! The server's own key is made at each start and kept nowhere. Its certificate is made for each connection: it names
//! whatever the client calls this machine, and the address that it came to. Hosts trust this authority for this site alone,
//! so a name proves no more than the authority does; this way hosts that check the name find it, by whichever name or
//! address they come.
//!
//! Keys of hosts are made here, handed out once, and not kept.
//!
//! Not guarded against: whoever can read the file can make itself a server that hosts of this site believe. It cannot make
//! a certificate that the site lets in: those are known one by one.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use farside_platform::{Timestamp, host_name, private_file};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use zeroize::Zeroizing;

use crate::convert;

/// The file in the data directory.
pub(crate) const AUTHORITY_FILE: &str = "nbd-authority.pem";
/// It has some thousand bytes; what is longer is another file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// How long a host's certificate is good.
const HOST_YEARS: i32 = 10;
/// When the authority's own ends: it has to outlive every host's.
const LAST_YEAR: i32 = 2125;

/// A certificate for a host, and its key.
pub(crate) struct Issued {
    /// Of the authority, PEM.
    pub(crate) authority: String,
    /// Of the host, PEM.
    pub(crate) certificate: String,
    /// PKCS#8, PEM.
    pub(crate) key: Zeroizing<String>,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) expires_at: Timestamp,
}

/// The authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` shows it.
pub(crate) fn fingerprint_of(certificate: &[u8]) -> [u8; 32] {
    digest(&SHA256, certificate).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl Authority {
    /// The one kept in `directory`, made and stored first if there is none.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do.
    pub(crate) fn load_or_create(directory: &Path) -> Result<Authority, String> {
        let path = directory.join(AUTHORITY_FILE);
        let damaged = |error: String| {
            format!(
                "{}: {error}. Restore the file from a backup. If you remove it, a new authority is made, and every host \
                 needs a new certificate (farside host remove, farside host add)",
                path.display()
            )
        };
        if let Some(pem) = private_file::read(&path, FILE_BYTES_MAX).map_err(|error| error.to_string())? {
            let pem = std::str::from_utf8(&pem).map_err(|_| damaged("it is no text".into()))?;
            return Authority::from_pem(pem).map_err(damaged);
        }
        let failed = |error: rcgen::Error| format!("cannot make the authority for hosts: {error}");
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let certificate = authority_parameters(&key).self_signed(&key).map_err(failed)?;
        let mut pem = Zeroizing::new(certificate.pem());
        pem.push_str(&Zeroizing::new(key.serialize_pem()));
        private_file::store(&path, pem.as_bytes()).map_err(|error| {
            format!("cannot store the authority for hosts in {}: {error}", path.display())
        })?;
        tracing::info!(path = %path.display(), "created this site's authority for hosts");
        Authority::from_pem(&pem)
    }

    fn from_pem(pem: &str) -> Result<Authority, String> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("it holds no certificate: {error}"))?;
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| format!("it holds no private key: {error}"))?;
        let key = KeyPair::try_from(&key).map_err(|error| format!("its key is damaged: {error}"))?;
        let parsed = rustls::server::ParsedCertificate::try_from(&certificate)
            .map_err(|error| format!("its certificate is damaged: {error}"))?;
        if parsed.subject_public_key_info().as_ref() != key.subject_public_key_info() {
            return Err(String::from("its key does not fit its certificate"));
        }
        let end = pem.find("-----END CERTIFICATE-----").unwrap_or(0);
        let certificate_pem = format!("{}\n", &pem[..end + "-----END CERTIFICATE-----".len()]);
        let issuer = Issuer::new(authority_parameters(&key), key);
        Ok(Authority { issuer, certificate, certificate_pem })
    }

    /// Its certificate: what a host's has to be signed by.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A certificate with a new key for the host `name`.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn issue(&self, name: &str, now: Timestamp) -> Result<Issued, String> {
        let failed = |error: rcgen::Error| format!("cannot make a certificate for host {name}: {error}");
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let today = convert::time(now).to_zoned(jiff::tz::TimeZone::UTC).date();
        let expires =
            today.saturating_add(jiff::Span::new().years(HOST_YEARS)).min(jiff::civil::date(9999, 1, 1));
        let mut parameters = parameters(name);
        // A day back: the host's clock may be behind.
        let from = today.saturating_sub(jiff::Span::new().days(1));
        let at = |day: jiff::civil::Date| {
            rcgen::date_time_ymd(day.year().into(), day.month().unsigned_abs(), day.day().unsigned_abs())
        };
        parameters.not_before = at(from);
        parameters.not_after = at(expires);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(failed)?;
        let expires_at =
            expires.to_zoned(jiff::tz::TimeZone::UTC).map_or(now, |at| convert::timestamp(at.timestamp()));
        Ok(Issued {
            authority: self.certificate_pem.clone(),
            fingerprint: fingerprint_of(certificate.der()),
            certificate: certificate.pem(),
            key: Zeroizing::new(key.serialize_pem()),
            expires_at,
        })
    }
}

/// Its subject contains its key: authorities of two sites have two names.
fn authority_parameters(key: &KeyPair) -> CertificateParams {
    let number: String =
        fingerprint_of(&key.subject_public_key_info())[..8].iter().map(|b| format!("{b:02x}")).collect();
    let mut parameters = parameters(&format!("farside hosts {number}"));
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(LAST_YEAR, 1, 1);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.use_authority_key_identifier_extension = false;
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters
}

fn parameters(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.use_authority_key_identifier_extension = true;
    // QEMU before 10 refuses a certificate that may not encipher keys, though TLS 1.3 never does.
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    parameters
}

/// The certificates of this server: one for each connection, by one key.
#[derive(Clone)]
pub(crate) struct ServerCertificates {
    authority: Arc<Authority>,
    key: Arc<KeyPair>,
    signing: Arc<dyn SigningKey>,
    /// Names and addresses that are in every one.
    names: Arc<Vec<SanType>>,
}

impl fmt::Debug for ServerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificates").field("names", &self.names).finish_non_exhaustive()
    }
}

impl ServerCertificates {
    /// With a key that is made now.
    ///
    /// # Errors
    /// Why there are none: a name that cannot be in a certificate.
    pub(crate) fn new(
        authority: Arc<Authority>,
        names: &[String],
        provider: &CryptoProvider,
    ) -> Result<ServerCertificates, String> {
        let failed = |error: &dyn fmt::Display| format!("cannot make this server's certificate: {error}");
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|error| failed(&error))?;
        let der = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let signing = provider.key_provider.load_private_key(der).map_err(|error| failed(&error))?;
        let mut names = alternatives(names)?;
        names.extend(san(&host_name()));
        Ok(ServerCertificates { authority, key: Arc::new(key), signing, names: Arc::new(names) })
    }

    /// Those for clients that come to this address.
    pub(crate) fn at(&self, local: IpAddr) -> Arc<dyn ResolvesServerCert> {
        Arc::new(At { certificates: self.clone(), local: local.to_canonical() })
    }

    fn certificate(&self, local: IpAddr, called: Option<&str>) -> Result<CertifiedKey, rcgen::Error> {
        let mut parameters = parameters("farside");
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(LAST_YEAR, 1, 1);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        parameters.subject_alt_names = (*self.names).clone();
        parameters.subject_alt_names.push(SanType::IpAddress(local));
        parameters.subject_alt_names.extend(called.and_then(san));
        let certificate = parameters.signed_by(&*self.key, &self.authority.issuer)?;
        let chain = vec![certificate.der().clone(), self.authority.certificate.clone()];
        Ok(CertifiedKey::new(chain, Arc::clone(&self.signing)))
    }
}

/// These names, as they are in a certificate.
///
/// # Errors
/// Which one cannot be there.
pub(super) fn alternatives(names: &[String]) -> Result<Vec<SanType>, String> {
    names
        .iter()
        .map(|name| san(name).ok_or_else(|| format!("[nbd]: {name:?} is no host name or address")))
        .collect()
}

fn san(name: &str) -> Option<SanType> {
    match name.parse::<IpAddr>() {
        Ok(address) => Some(SanType::IpAddress(address)),
        Err(_) => {
            rustls::pki_types::DnsName::try_from(name).ok()?;
            Some(SanType::DnsName(name.try_into().ok()?))
        }
    }
}

/// [`ServerCertificates`] at one address.
#[derive(Debug)]
struct At {
    certificates: ServerCertificates,
    local: IpAddr,
}

impl ResolvesServerCert for At {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.certificates.certificate(self.local, hello.server_name()) {
            Ok(certificate) => Some(Arc::new(certificate)),
            Err(error) => {
                tracing::error!(%error, "cannot make a certificate for an NBD client; it is not served");
                None
            }
        }
    }
}
