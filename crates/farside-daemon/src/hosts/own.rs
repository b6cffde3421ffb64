//! Certificates that do not come from the site's authority: files that the administrator names.
//!
//! A host is called as its certificate says: the common name of its subject, or else the first DNS name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Certificates and keys are small; what is longer is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Where they lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OwnFiles {
    /// The server's certificate, and those between it and its authority.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The authorities of hosts.
    pub(crate) client_ca: PathBuf,
}

/// What is in them.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) server: Arc<CertifiedKey>,
    pub(crate) clients: RootCertStore,
}

impl OwnFiles {
    /// Reads them.
    ///
    /// # Errors
    /// Which one is wrong.
    pub(crate) fn load(&self, provider: &CryptoProvider) -> Result<Own, String> {
        let chain = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|error| format!("{} holds no private key: {error}", self.key.display()))?;
        let server = CertifiedKey::from_der(chain, key, provider).map_err(|error| {
            format!("the key {} does not fit {}: {error}", self.key.display(), self.certificate.display())
        })?;
        let mut clients = RootCertStore::empty();
        for certificate in certificates(&self.client_ca)? {
            clients.add(certificate).map_err(|error| {
                format!("{} holds a certificate that is no authority: {error}", self.client_ca.display())
            })?;
        }
        Ok(Own { server: Arc::new(server), clients })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match all {
        Ok(all) if all.is_empty() => Err(format!("{} holds no certificate in PEM", path.display())),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{} is damaged: {error}", path.display())),
    }
}

fn read(path: &Path) -> Result<zeroize::Zeroizing<Vec<u8>>, String> {
    use std::io::Read;
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(bytes)
}

/// What the certificate calls its owner.
pub(crate) fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let common = parsed.subject().iter_common_name().find_map(|name| name.as_str().ok());
    let dns = || {
        let names = parsed.subject_alternative_name().ok()??;
        names.value.general_names.iter().find_map(|name| match name {
            GeneralName::DNSName(name) => Some(*name),
            _ => None,
        })
    };
    common.or_else(dns).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(parameters: rcgen::CertificateParams) -> CertificateDer<'static> {
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_host_is_called_as_its_certificate_says() {
        let mut parameters = rcgen::CertificateParams::new(vec!["web.example".into()]).unwrap();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        assert_eq!(name_in(&certificate(parameters.clone())).as_deref(), Some("web.example"));
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "x".repeat(200));
        assert_eq!(name_in(&certificate(parameters.clone())).as_deref(), Some("web.example"));
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "web-1");
        let whole = certificate(parameters);
        assert_eq!(name_in(&whole).as_deref(), Some("web-1"));
        assert_eq!(name_in(&CertificateDer::from(&whole[..whole.len() / 2])), None);
    }

    #[test]
    fn a_certificate_that_is_cut_or_changed_anywhere_does_no_harm() {
        let mut parameters = rcgen::CertificateParams::new(vec!["web.example".into()]).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "web-1");
        let whole = certificate(parameters);
        assert!(name_in(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(name_in(&CertificateDer::from(&whole[..end])), None, "{end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[at] = 0xff;
            let _ = name_in(&CertificateDer::from(changed));
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(name_in(&CertificateDer::from(longer)), None);
    }
}
