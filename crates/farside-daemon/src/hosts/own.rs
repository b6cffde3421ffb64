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

/// Certificates and keys are small; what is longer is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// `commonName`, as it is written in a certificate: 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
/// UTF8String, PrintableString, IA5String: what a name may be written in.
const STRINGS: [u8; 3] = [0x0c, 0x13, 0x16];

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
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    common_name(parsed.subject()).or_else(|| parsed.valid_dns_names().next().map(str::to_owned))
}

/// The first common name of a subject: a sequence of sets of pairs.
fn common_name(subject: &[u8]) -> Option<String> {
    let mut sets = Der(subject);
    while let Some((SET, set)) = sets.next() {
        let mut pairs = Der(set);
        while let Some((SEQUENCE, pair)) = pairs.next() {
            let mut pair = Der(pair);
            let (Some((OBJECT_IDENTIFIER, kind)), Some((tag, value))) = (pair.next(), pair.next()) else {
                return None;
            };
            if kind == COMMON_NAME && STRINGS.contains(&tag) {
                return std::str::from_utf8(value).ok().map(str::to_owned);
            }
        }
    }
    None
}

/// What is left of some values one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Iterator for Der<'a> {
    type Item = (u8, &'a [u8]);

    /// The next one's tag and content; nothing where it is not well-formed.
    fn next(&mut self) -> Option<Self::Item> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            ..=0x7f => (usize::from(first), rest),
            0x81 => {
                let (&[length], rest) = rest.split_first_chunk()?;
                (usize::from(length), rest)
            }
            0x82 => {
                let (&length, rest) = rest.split_first_chunk()?;
                (usize::from(u16::from_be_bytes(length)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
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
    fn a_subject_that_is_cut_anywhere_has_no_name_and_does_no_harm() {
        let subject = [0x31, 0x0c, 0x30, 0x0a, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x03, b'w', b'e', b'b'];
        assert_eq!(common_name(&subject).as_deref(), Some("web"));
        for end in 0..subject.len() {
            assert_eq!(common_name(&subject[..end]), None, "{end}");
        }
        for at in 0..subject.len() {
            let mut changed = subject;
            changed[at] = 0xff;
            let _ = common_name(&changed);
        }
    }
}
