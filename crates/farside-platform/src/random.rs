//! Randomness: for identities and tokens from the kernel, for tests from a printed seed.

use parking_lot::Mutex;
use rand::rngs::{OsRng, StdRng};
use rand::{RngCore, SeedableRng, TryRngCore};

/// Where random bytes come from.
pub trait Randomness: Send + Sync + 'static {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// A random integer.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Sixteen random bytes, the material of a UUID.
    fn uuid_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes
    }
}

/// The kernel's generator; fit for secrets.
#[derive(Debug, Default)]
pub struct OsRandomness;

impl Randomness for OsRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        // Without entropy no identity and no token is safe: stopping is right.
        OsRng.try_fill_bytes(bytes).expect("the kernel's random number generator failed");
    }
}

/// A generator that repeats itself from its seed. Never for secrets.
#[derive(Debug)]
pub struct SeededRandomness(Mutex<StdRng>);

impl SeededRandomness {
    /// The same seed gives the same bytes.
    pub fn new(seed: u64) -> Self {
        SeededRandomness(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Randomness for SeededRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.lock().fill_bytes(bytes);
    }
}
