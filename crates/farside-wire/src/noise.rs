//! Whether bytes look like noise: encrypted or compressed already, of no use to any compressor.

/// Pieces that are looked at, spread evenly, and bytes of each: 8 KiB in all, a few microseconds.
const PIECES: usize = 128;
const PIECE_BYTES: usize = 64;

/// Whether the bytes occur about equally often. Text, programs, rows and base64 are far from it; what is encrypted, or
/// packed by deflate, zstd or a picture's codec, is not. It says nothing of repetitions: those a search finds.
pub(crate) fn looks_random(data: &[u8]) -> bool {
    let step = data.len() / PIECES;
    if step < PIECE_BYTES {
        return false;
    }
    let mut counts = [0u32; 256];
    for piece in data.chunks_exact(step) {
        for byte in &piece[..PIECE_BYTES] {
            counts[*byte as usize] += 1;
        }
    }
    let seen: u64 = counts.iter().map(|n| u64::from(*n)).sum();
    let squares: u64 = counts.iter().map(|n| u64::from(*n).pow(2)).sum();
    // Of n random bytes: n²/256 + n, within 1 %. Data that compresses by an eighth or more is 30 % above it at least.
    squares * 100 < (seen * seen / 256 + seen) * 110
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn noise_is_distinguished_from_what_compresses() {
        let mut rng = SmallRng::seed_from_u64(1);
        for blocks in [3, 16, 256] {
            let mut data = vec![0; blocks * crate::BLOCK_BYTES];
            rng.fill(&mut data[..]);
            assert!(looks_random(&data), "{blocks} blocks of noise");
            let base64: Vec<u8> = data.iter().map(|b| b & 0x3f | 0x40).collect();
            assert!(!looks_random(&base64));
            // One byte in eight is always the same.
            data.iter_mut().step_by(8).for_each(|b| *b = 0);
            assert!(!looks_random(&data));
        }
        assert!(!looks_random(&[]) && !looks_random(&[7; 1 << 20]));
    }
}
