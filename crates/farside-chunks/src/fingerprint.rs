//! What a chunk is found by: 128 bits of keyed BLAKE3.

use std::fmt;

use rand::TryRngCore;

use crate::name::RealmId;

/// Bytes of a fingerprint. Of 10^9 chunks two have the same with a probability of 10^-21.
pub const FINGERPRINT_BYTES: usize = 16;

/// A chunk's fingerprint, under the key of its realm at this site. It never travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; FINGERPRINT_BYTES]);

impl Fingerprint {
    /// Its first eight bytes, which are as good as random.
    pub(crate) fn word(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().unwrap_or_default())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The secret of a store. Each realm has a key of its own, derived from it: what is stored in one is not found in another.
#[derive(Clone)]
pub struct FingerprintKey([u8; 32]);

impl FingerprintKey {
    /// Of these bytes.
    pub fn new(secret: [u8; 32]) -> FingerprintKey {
        FingerprintKey(secret)
    }

    /// A new one.
    ///
    /// # Errors
    ///
    /// The system has no random bytes.
    pub fn random() -> Result<FingerprintKey, rand::rand_core::OsError> {
        let mut secret = [0; 32];
        rand::rngs::OsRng.try_fill_bytes(&mut secret)?;
        Ok(FingerprintKey(secret))
    }

    /// Its bytes, to be kept where only this site can read them.
    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn of_realm(&self, realm: RealmId) -> FingerprintKey {
        FingerprintKey(*blake3::keyed_hash(&self.0, &realm.0).as_bytes())
    }

    /// The fingerprint of `chunk`.
    pub fn fingerprint(&self, chunk: &[u8]) -> Fingerprint {
        let hash = blake3::keyed_hash(&self.0, chunk);
        let mut short = [0; FINGERPRINT_BYTES];
        short.copy_from_slice(&hash.as_bytes()[..FINGERPRINT_BYTES]);
        Fingerprint(short)
    }
}

impl fmt::Debug for FingerprintKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FingerprintKey")
    }
}
