//! The rolling hash (gear) that picks anchors.

/// A dense anchor: this many leading zero bits, one position in 1024.
pub(crate) const DENSE_ZEROS: u32 = 10;
/// A sampled anchor, a subset of the dense ones: one position in 16384.
pub(crate) const SAMPLED_ZEROS: u32 = 14;

/// Bytes that a hash depends on.
const WINDOW: usize = 64;

/// Golden ratio, the increment and multiplier of splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

const GEAR: [u64; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = mix((i as u64 + 1).wrapping_mul(GOLDEN));
        i += 1;
    }
    table
};

/// The finisher of splitmix64: every bit of the outcome depends on every bit given.
pub(crate) const fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Calls `found` with the end of the window (in bytes, exclusive) and the mixed hash of each dense anchor of `bytes`, and
/// whether it is a sampled one. A hash that repeats at once is left out: filler of one byte would else be all anchors.
pub(crate) fn anchors(bytes: &[u8], mut found: impl FnMut(usize, u64, bool)) {
    let (head, mut rest) = bytes.split_at(bytes.len().min(WINDOW - 1));
    let mut hash = head.iter().fold(0, roll);
    let mut last = u64::MAX;
    while let Some(after) = next(rest, &mut hash) {
        rest = &rest[after..];
        if hash != last {
            last = hash;
            found(bytes.len() - rest.len(), mix(hash), hash >> (64 - SAMPLED_ZEROS) == 0);
        }
    }
}

#[inline(always)]
fn roll(hash: u64, byte: &u8) -> u64 {
    (hash << 1).wrapping_add(GEAR[*byte as usize])
}

/// Rolls on over `bytes` to the next dense anchor, and says how many bytes that took. Every byte that travels passes here: by
/// itself and unrolled this loop is five instructions for a byte; together with what is done at an anchor it was twelve.
#[inline(never)]
fn next(bytes: &[u8], hash: &mut u64) -> Option<usize> {
    const UNROLLED: usize = 16;
    let mut rolled = *hash;
    let (chunks, rest) = bytes.as_chunks::<UNROLLED>();
    for (n, chunk) in chunks.iter().enumerate() {
        for (at, byte) in chunk.iter().enumerate() {
            rolled = roll(rolled, byte);
            if rolled >> (64 - DENSE_ZEROS) == 0 {
                *hash = rolled;
                return Some(n * UNROLLED + at + 1);
            }
        }
    }
    for (at, byte) in rest.iter().enumerate() {
        rolled = roll(rolled, byte);
        if rolled >> (64 - DENSE_ZEROS) == 0 {
            *hash = rolled;
            return Some(chunks.len() * UNROLLED + at + 1);
        }
    }
    *hash = rolled;
    None
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// As it is defined, one byte after the other.
    fn plainly(bytes: &[u8]) -> Vec<(usize, u64, bool)> {
        let (mut hash, mut last, mut found) = (0u64, u64::MAX, Vec::new());
        for (at, byte) in bytes.iter().enumerate() {
            hash = (hash << 1).wrapping_add(GEAR[*byte as usize]);
            if hash >> 54 == 0 && hash != last && at + 1 >= 64 {
                last = hash;
                found.push((at + 1, mix(hash), hash >> 50 == 0));
            }
        }
        found
    }

    #[test]
    fn anchors_are_those_of_the_definition() {
        let seed = 5;
        println!("seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut noise = vec![0; 1 << 18];
        rng.fill(&mut noise[..]);
        for length in [0, 1, 62, 63, 64, 65, 79, 80, 81, 4096, 1 << 18] {
            let mut found = Vec::new();
            anchors(&noise[..length], |at, hash, is_sampled| found.push((at, hash, is_sampled)));
            assert_eq!(found, plainly(&noise[..length]), "{length} bytes");
        }
        assert!(plainly(&noise).len() > 100 && plainly(&noise).iter().any(|a| a.2));
        // Filler of any byte, and words of two.
        for byte in 0..=255 {
            let filler: Vec<u8> = (0..4096).map(|n| if n % 7 < 4 { byte } else { 0 }).collect();
            for filler in [&filler[..], &[byte; 4096]] {
                let mut found = Vec::new();
                anchors(filler, |at, hash, is_sampled| found.push((at, hash, is_sampled)));
                assert_eq!(found, plainly(filler));
            }
        }
    }
}
