//! The certificate that the API shows over HTTPS: the site's own, made at the first start, or one from files that the
//! administrator names.
//!
//! The own one is signed by itself, so a client has to be told which it is: by its fingerprint, which log, `farside config
//! show` and `GET /api/v1/site` have. It lies with its key in one file of the data directory ([`private_file`]), and is never
//! replaced while that is there.
//!
//! The files are read again when they change and at SIGHUP. Connections that are open keep what they have; new ones get the
//! new one. Files that are damaged change nothing: the last good certificate is shown on, and the log says why.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use farside_platform::{Timestamp, host_name, private_file};
use parking_lot::RwLock;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::Notify;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::options::ApiConfig;

use crate::certificate_end;

/// The own one in the data directory.
const OWN_FILE: &str = "api-certificate.pem";
/// Certificates and keys are small; what is longer is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// When the own one ends. Whoever pins it must not be locked out by a date.
const LAST_YEAR: i32 = 2125;
/// How often the files are looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(10);
/// So long before its end a certificate that was given is warned of.
const WARNED_BEFORE: Duration = Duration::from_secs(14 * 86_400);

/// Where the certificate comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The site's own, with these names and addresses.
    Own { directory: PathBuf, names: Vec<String> },
    /// Files in PEM: the certificate with those between it and its authority, and its key.
    Files { certificate: PathBuf, key: PathBuf },
}

impl Source {
    /// As the site is set up: its own lies in the data directory.
    pub(crate) fn of(config: &ApiConfig, directory: &Path) -> Source {
        match &config.own {
            Some((certificate, key)) => Source::Files { certificate: certificate.clone(), key: key.clone() },
            None => Source::Own { directory: directory.to_owned(), names: config.names.clone() },
        }
    }
}

/// When files were changed last.
type Changed = Vec<Option<(SystemTime, u64)>>;

/// What is shown now.
struct Shown {
    certified: Arc<CertifiedKey>,
    changed: Changed,
}

/// The certificate, whatever is in its files by now.
pub(crate) struct ApiCertificate {
    source: Source,
    provider: Arc<CryptoProvider>,
    shown: RwLock<Shown>,
    /// Somebody wants the files read again.
    wanted: Notify,
}

impl fmt::Debug for ApiCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiCertificate").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ApiCertificate {
    /// Reads it; the own one is made if there is none.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub(crate) fn load(source: Source) -> Result<Arc<ApiCertificate>, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let changed = source.changed();
        let certified = source.read(&provider)?;
        let certificate = ApiCertificate {
            source,
            provider,
            shown: RwLock::new(Shown { certified, changed }),
            wanted: Notify::new(),
        };
        tracing::info!(fingerprint = certificate.fingerprint(), "the API shows this certificate over HTTPS");
        certificate.warn_of_its_end();
        Ok(Arc::new(certificate))
    }

    /// How connections are encrypted with it.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn configuration(self: &Arc<Self>) -> Result<Arc<ServerConfig>, String> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| format!("cannot set up TLS for the API: {error}"))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Nothing of a connection outlives it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }

    /// When it ends.
    pub(crate) fn ends_at(&self) -> Option<Timestamp> {
        certificate_end::of(self.shown.read().certified.cert.first()?)
    }

    /// SHA-256 of the certificate, as `openssl x509 -fingerprint -sha256` counts it: 64 hexadecimal digits.
    pub(crate) fn fingerprint(&self) -> String {
        let shown = self.shown.read();
        let certificate = shown.certified.cert.first().map(AsRef::as_ref).unwrap_or_default();
        digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Has the files read again soon, whether or not they look changed.
    pub(crate) fn read_again(&self) {
        self.wanted.notify_one();
    }

    /// Follows the files as long as the daemon runs.
    pub(crate) async fn follow(self: Arc<Self>) {
        loop {
            let wanted = tokio::time::timeout(LOOKED_AT_EVERY, self.wanted.notified()).await.is_ok();
            let this = Arc::clone(&self);
            if let Err(error) = tokio::task::spawn_blocking(move || this.look(wanted)).await {
                tracing::error!(%error, "the certificate of the API could not be looked at");
            }
        }
    }

    fn look(&self, wanted: bool) {
        let changed = self.source.changed();
        if !wanted && changed == self.shown.read().changed {
            return;
        }
        let before = self.fingerprint();
        match self.source.read(&self.provider) {
            Ok(certified) => {
                *self.shown.write() = Shown { certified, changed: self.source.changed() };
                let now = self.fingerprint();
                if now != before {
                    tracing::info!(fingerprint = now, "the API shows another certificate from now on");
                }
                self.warn_of_its_end();
            }
            Err(error) => {
                self.shown.write().changed = changed;
                tracing::error!(
                    "the certificate of the API is not changed: {error}. The one before is shown on; once the files are \
                     right, they are read by themselves"
                );
            }
        }
    }

    fn warn_of_its_end(&self) {
        let certified = Arc::clone(&self.shown.read().certified);
        let Some((_, certificate)) =
            certified.cert.first().and_then(|der| X509Certificate::from_der(der).ok())
        else {
            return;
        };
        let left = certificate.validity().time_to_expiration();
        if left.is_none_or(|left| u64::try_from(left.whole_seconds()).unwrap_or(0) < WARNED_BEFORE.as_secs())
        {
            tracing::warn!(
                not_after = %certificate.validity().not_after,
                "the certificate of the API ends soon, or has ended. Put a new one in its place: it is read by itself"
            );
        }
    }
}

impl ResolvesServerCert for ApiCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().certified))
    }
}

impl Source {
    fn files(&self) -> Vec<PathBuf> {
        match self {
            Source::Own { directory, .. } => vec![directory.join(OWN_FILE)],
            Source::Files { certificate, key } => vec![certificate.clone(), key.clone()],
        }
    }

    fn changed(&self) -> Changed {
        let changed = |path: PathBuf| {
            let metadata = path.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        self.files().into_iter().map(changed).collect()
    }

    /// What the start would refuse. Its own certificate is not made for that.
    ///
    /// # Errors
    /// What is wrong with which name or file.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Source::Own { names, .. } => alternatives(names).map(drop),
            Source::Files { .. } => self.read(&rustls::crypto::aws_lc_rs::default_provider()).map(drop),
        }
    }

    fn read(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
        match self {
            Source::Own { directory, names } => {
                // A certificate that is there already makes no wrong name right.
                let names = alternatives(names)?;
                let path = directory.join(OWN_FILE);
                let pem =
                    match private_file::read(&path, FILE_BYTES_MAX).map_err(|error| error.to_string())? {
                        Some(pem) => pem,
                        None => make(&path, &names)?,
                    };
                certified(&pem, &path, &pem, &path, provider)
            }
            Source::Files { certificate, key } => {
                let chain = read(certificate)?;
                certified(&chain, certificate, &read(key)?, key, provider)
            }
        }
    }
}

fn certified(
    chain: &[u8],
    chain_path: &Path,
    key: &[u8],
    key_path: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{} is damaged: {error}", chain_path.display()))?;
    if chain.is_empty() {
        return Err(format!("{} holds no certificate in PEM", chain_path.display()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("{} holds no private key in PEM: {error}", key_path.display()))?;
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
        format!(
            "the key in {} does not fit the certificate in {}: {error}",
            key_path.display(),
            chain_path.display()
        )
    })?;
    Ok(Arc::new(certified))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    use std::io::Read;
    let mut bytes = Zeroizing::new(Vec::new());
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(bytes)
}

/// Makes the own one, and keeps it.
fn make(path: &Path, names: &[SanType]) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: rcgen::Error| format!("cannot make a certificate for the API: {error}");
    let mut alternatives = names.to_vec();
    let always = [host_name(), "localhost".into(), "127.0.0.1".into(), "::1".into()];
    for name in always.iter().filter_map(|name| alternative(name)) {
        if !alternatives.contains(&name) {
            alternatives.push(name);
        }
    }
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, "farside API");
    parameters.subject_alt_names = alternatives;
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(LAST_YEAR, 1, 1);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&key).map_err(failed)?;
    let mut pem = Zeroizing::new(certificate.pem().into_bytes());
    pem.extend_from_slice(Zeroizing::new(key.serialize_pem()).as_bytes());
    private_file::store(path, &pem)
        .map_err(|error| format!("cannot store the certificate of the API in {}: {error}", path.display()))?;
    tracing::info!(path = %path.display(), "made a certificate for the API");
    Ok(pem)
}

fn alternatives(names: &[String]) -> Result<Vec<SanType>, String> {
    let named = |name: &String| {
        alternative(name).ok_or_else(|| format!("[api]: {name:?} is no host name or address"))
    };
    names.iter().map(named).collect()
}

fn alternative(name: &str) -> Option<SanType> {
    match name.parse::<IpAddr>() {
        Ok(address) => Some(SanType::IpAddress(address)),
        Err(_) => {
            rustls::pki_types::DnsName::try_from(name).ok()?;
            Some(SanType::DnsName(name.try_into().ok()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(directory: &Path) -> Source {
        Source::Own { directory: directory.to_owned(), names: vec!["san.example".into()] }
    }

    #[test]
    fn the_own_one_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let first = ApiCertificate::load(own(directory.path())).unwrap().fingerprint();
        assert_eq!(first.len(), 64);
        assert_eq!(ApiCertificate::load(own(directory.path())).unwrap().fingerprint(), first);
        let wrong = Source::Own { directory: directory.path().join("x"), names: vec!["a b".into()] };
        assert!(ApiCertificate::load(wrong).unwrap_err().contains("a b"));
    }

    #[test]
    fn files_that_change_are_taken_up_and_damaged_ones_are_not() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for directory in [&here, &there] {
            ApiCertificate::load(own(directory.path())).unwrap();
        }
        let file = here.path().join("given.pem");
        std::fs::copy(here.path().join(OWN_FILE), &file).unwrap();
        let shown =
            ApiCertificate::load(Source::Files { certificate: file.clone(), key: file.clone() }).unwrap();
        let first = shown.fingerprint();
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\n").unwrap();
        shown.look(true);
        assert_eq!(shown.fingerprint(), first, "it is damaged");
        std::fs::copy(there.path().join(OWN_FILE), &file).unwrap();
        shown.look(false);
        assert_ne!(shown.fingerprint(), first);
        let missing = Source::Files { certificate: file, key: here.path().join("absent") };
        assert!(ApiCertificate::load(missing).unwrap_err().contains("absent"));
    }
}
