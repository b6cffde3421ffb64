//! Chance that is the same on every machine: one named generator, with a stream of its own for each purpose, so that
//! a change in one part of a recipe does not move what another part draws.

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The generator for one purpose of a recipe. The stream of a seed and purpose never changes: ChaCha with 8 rounds,
/// seeded from both.
pub(super) fn stream(seed: u64, purpose: &str, number: u64) -> ChaCha8Rng {
    let mut key = [0u8; 32];
    let (of_seed, of_purpose) = key.split_at_mut(8);
    of_seed.copy_from_slice(&seed.to_le_bytes());
    let (of_number, of_purpose) = of_purpose.split_at_mut(8);
    of_number.copy_from_slice(&number.to_le_bytes());
    // Purposes are words of at most 16 bytes.
    assert!(purpose.len() <= of_purpose.len(), "{purpose} is too long for a purpose");
    of_purpose[..purpose.len()].copy_from_slice(purpose.as_bytes());
    ChaCha8Rng::from_seed(key)
}

/// A UUID for a file system: the same whenever the same is made.
pub(super) fn uuid(seed: u64, number: u64) -> String {
    let mut bytes = [0u8; 16];
    stream(seed, "uuid", number).fill_bytes(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
