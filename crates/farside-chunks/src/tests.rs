//! Tests that need what nobody outside may have: an origin that is not random.

mod corpus;
mod golden;

/// Bytes of a seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; length];
    reader.fill(&mut bytes);
    bytes
}
