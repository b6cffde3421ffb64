//! Who this site is: a key made once, and a certificate made of it.
//!
//! The identity is the key alone: [`PeerId`] is the SHA-256 of the subject public key info. Certificate and key are
//! kept in one PEM file, `identity.pem` (mode 0600), written to a temporary file, synced and renamed, so that a crash
//! leaves either no identity or a whole one. An existing file is never replaced: a site that loses its key has to be
//! paired again, and a site that silently made a new one would look like an intruder to every peer.
//!
//! Not guarded against: whoever can read the file can be this site.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::error::SessionError;
use crate::id::PeerId;
use crate::limits::IDENTITY_FILE_MAX;

/// Name of the identity file in the data directory.
pub const IDENTITY_FILE: &str = "identity.pem";

/// The key of this site, ready to prove itself in TLS. Cheap to clone; never shows the key.
#[derive(Clone)]
pub struct Identity {
    id: PeerId,
    certified: Arc<CertifiedKey>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Identity {
    /// A new identity that is kept nowhere.
    ///
    /// # Errors
    /// [`SessionError::Local`] if the key cannot be made.
    pub fn generate() -> Result<Self, SessionError> {
        Self::from_pem(&new_pem()?)
    }

    /// The identity kept in `directory`, made and stored first if there is none.
    ///
    /// # Errors
    /// [`SessionError::Local`] if the file cannot be read or written, is damaged, or others may read it.
    pub fn load_or_create(directory: &Path) -> Result<Self, SessionError> {
        let path = directory.join(IDENTITY_FILE);
        match load(&path)? {
            Some(identity) => Ok(identity),
            None => {
                let pem = new_pem()?;
                let identity = Self::from_pem(&pem)?;
                store(directory, &path, &pem).map_err(|e| {
                    local(format!("cannot store this site's identity in {}: {e}", path.display()))
                })?;
                tracing::info!(id = %identity.id, path = %path.display(), "created this site's identity");
                Ok(identity)
            }
        }
    }

    /// The text of the identity file in `directory`, as [`from_pem`](Self::from_pem) reads it: for a process of this site that
    /// proves itself on its own. Whoever has the text can be this site.
    ///
    /// # Errors
    /// [`SessionError::Local`] if there is none, it cannot be read, is damaged, or others may read it.
    pub fn read_pem(directory: &Path) -> Result<Zeroizing<String>, SessionError> {
        let path = directory.join(IDENTITY_FILE);
        let pem = read(&path)?
            .ok_or_else(|| local(format!("this site has no identity: {} is not there", path.display())))?;
        parse(&pem, &path)?;
        let text = std::str::from_utf8(&pem).map_err(|_| local(format!("{} is no text", path.display())))?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    /// This site's id, which its peers pin.
    pub fn id(&self) -> PeerId {
        self.id
    }

    /// Certificate and signing key for TLS.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// The identity in the text of an identity file.
    ///
    /// # Errors
    /// [`SessionError::Local`] if it holds no certificate and key that belong together.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SessionError> {
        let certificate = CertificateDer::from_pem_slice(pem)
            .map_err(|e| local(format!("no certificate in the identity: {e}")))?;
        let key = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|e| local(format!("no private key in the identity: {e}")))?;
        Self::from_parts(certificate, key, &provider())
    }

    pub(crate) fn from_parts(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Self, SessionError> {
        let id = peer_id_of(&certificate)
            .map_err(|e| local(format!("the identity's certificate is damaged: {e}")))?;
        // Also checks that key and certificate belong together.
        let certified = CertifiedKey::from_der(vec![certificate], key, provider)
            .map_err(|e| local(format!("the identity's key does not fit its certificate: {e}")))?;
        Ok(Identity { id, certified: Arc::new(certified) })
    }
}

/// A certificate shown by somebody who does not have its key.
#[cfg(test)]
impl Identity {
    pub(crate) fn stolen_from(victim: &Identity) -> Identity {
        let own = Identity::generate().expect("a key");
        let chain = victim.certified.cert.clone();
        Identity {
            id: victim.id,
            certified: Arc::new(CertifiedKey::new(chain, Arc::clone(&own.certified.key))),
        }
    }
}

/// The cryptography of every connection: named here, so that no process-wide default can change it.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// The id of whoever owns the key in `certificate`. Uses the parser that also checks TLS signatures, so that the
/// hashed key and the proving key cannot differ.
pub(crate) fn peer_id_of(certificate: &CertificateDer<'_>) -> Result<PeerId, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let hash = digest(&SHA256, parsed.subject_public_key_info().as_ref());
    let mut id = [0; 32];
    id.copy_from_slice(hash.as_ref());
    Ok(PeerId(id))
}

fn local(message: String) -> SessionError {
    SessionError::Local(message)
}

/// Certificate and PKCS#8 key (ECDSA P-256) as PEM.
fn new_pem() -> Result<Zeroizing<Vec<u8>>, SessionError> {
    let (certificate, key) = new_key_and_certificate()?;
    let mut pem = Zeroizing::new(Vec::with_capacity(4096));
    pem.extend_from_slice(certificate.as_bytes());
    pem.extend_from_slice(key.as_bytes());
    Ok(pem)
}

fn new_key_and_certificate() -> Result<(String, Zeroizing<String>), SessionError> {
    let failed = |e: rcgen::Error| local(format!("cannot make this site's key: {e}"));
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut parameters = rcgen::CertificateParams::new(vec!["farside.invalid".to_owned()]).map_err(failed)?;
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "farside site");
    // Peers pin the key and never look at the dates: an expiry would only stop a mirror one day.
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(4096, 1, 1);
    let certificate = parameters.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), Zeroizing::new(key.serialize_pem())))
}

fn load(path: &Path) -> Result<Option<Identity>, SessionError> {
    read(path)?.map(|pem| parse(&pem, path)).transpose()
}

fn parse(pem: &[u8], path: &Path) -> Result<Identity, SessionError> {
    Identity::from_pem(pem).map_err(|e| {
        local(format!(
            "{}: {e}. Restore the file from a backup; removing it makes a new identity, and every peer must be paired again",
            path.display()
        ))
    })
}

/// The file, unless others may read it; none if it is not there.
fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, SessionError> {
    let failed =
        |e: std::io::Error| local(format!("cannot read this site's identity {}: {e}", path.display()));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let metadata = file.metadata().map_err(failed)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(local(format!(
            "others may read this site's private key {} (mode {:o}); run: chmod 600 {}",
            path.display(),
            metadata.mode() & 0o777,
            path.display()
        )));
    }
    if metadata.len() > IDENTITY_FILE_MAX {
        return Err(local(format!(
            "{} has {} bytes: no identity of farside",
            path.display(),
            metadata.len()
        )));
    }
    let mut pem = Zeroizing::new(Vec::with_capacity(IDENTITY_FILE_MAX as usize));
    (&mut file).take(IDENTITY_FILE_MAX).read_to_end(&mut pem).map_err(failed)?;
    Ok(Some(pem))
}

fn store(directory: &Path, path: &Path, pem: &[u8]) -> std::io::Result<()> {
    let temporary = directory.join(format!("{IDENTITY_FILE}.new"));
    // A crash may have left one; it was never anybody's identity.
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(pem)?;
    file.sync_all()?; // the bytes, before the name points at them
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all() // the name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn is_made_once_and_loaded_back() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::load_or_create(dir.path()).unwrap();
        let second = Identity::load_or_create(dir.path()).unwrap();
        assert_eq!(first.id(), second.id());
        let mode = fs::metadata(dir.path().join(IDENTITY_FILE)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        let names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [IDENTITY_FILE], "no temporary file stays");
    }

    #[test]
    fn its_text_is_read_with_the_same_care() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Identity::read_pem(dir.path()).unwrap_err().to_string().contains("is not there"));
        let made = Identity::load_or_create(dir.path()).unwrap();
        let pem = Identity::read_pem(dir.path()).unwrap();
        assert_eq!(Identity::from_pem(pem.as_bytes()).unwrap().id(), made.id());
        let path = dir.path().join(IDENTITY_FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Identity::read_pem(dir.path()).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, b"half a key").unwrap();
        assert!(Identity::read_pem(dir.path()).unwrap_err().to_string().contains("Restore"));
    }

    #[test]
    fn a_left_over_temporary_file_does_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("identity.pem.new"), b"half a key").unwrap();
        let made = Identity::load_or_create(dir.path()).unwrap();
        assert_eq!(made.id(), Identity::load_or_create(dir.path()).unwrap().id());
    }

    #[test]
    fn damage_and_open_modes_are_refused_and_nothing_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load_or_create(dir.path()).unwrap();
        let path = dir.path().join(IDENTITY_FILE);
        let good = fs::read(&path).unwrap();

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Identity::load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();

        fs::write(&path, &good[..good.len() / 2]).unwrap();
        let error = Identity::load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("Restore"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), &good[..good.len() / 2]);
    }

    #[test]
    fn key_of_another_does_not_fit() {
        let (certificate, _) = new_key_and_certificate().unwrap();
        let (_, key) = new_key_and_certificate().unwrap();
        let error = Identity::from_pem(format!("{certificate}{}", *key).as_bytes()).unwrap_err().to_string();
        assert!(error.contains("does not fit"), "{error}");
    }

    #[test]
    fn debug_shows_no_key() {
        let identity = Identity::generate().unwrap();
        assert_eq!(format!("{identity:?}"), format!("Identity {{ id: {:?}, .. }}", identity.id()));
    }
}
