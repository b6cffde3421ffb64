//! What chunks that resemble each other have in common: the least of the hashes of their 64-byte windows (Broder, *On the
//! resemblance and containment of documents*, 1997; windows hashed by a gear and sampled by content as in Odess, Zou et al.,
//! ICDE 2021). Pure.

/// Hashes of a sketch. Two chunks that share one have 64 bytes in common that are among the least of both.
pub const SKETCH: usize = 4;

/// Bytes that a hash is of: the bits of the gear's hash.
const WINDOW: usize = 64;

/// Windows are looked at where these bits of the gear's hash are zero: one of 64, some 128 of a chunk.
const SAMPLE: u64 = 0x3f << 58;

/// The gear: what each byte adds. Any numbers that are as good as random; other ones would find nothing of earlier sketches, which
/// live in memory only.
static GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let (mut table, mut at, mut state) = ([0; 256], 0, 0u64);
    while at < 256 {
        // splitmix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        table[at] = z ^ (z >> 31);
        at += 1;
    }
    table
}

/// The sketch of a chunk; zeros where it has fewer windows that count.
pub fn sketch(chunk: &[u8]) -> [u64; SKETCH] {
    let mut least = [u64::MAX; SKETCH];
    let (begin, rest) = chunk.split_at(chunk.len().min(WINDOW - 1));
    let roll = |hash: u64, byte: &u8| (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
    let mut hash = begin.iter().fold(0, roll);
    let mut last = 0;
    for byte in rest {
        hash = roll(hash, byte);
        // The same hash again is a run of the same bytes, which says nothing.
        if hash & SAMPLE == 0 && hash != last {
            last = hash;
            // So that the least are no special ones.
            let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = mixed ^ (mixed >> 32);
            if mixed < least[SKETCH - 1] && !least.contains(&mixed) {
                least[SKETCH - 1] = mixed;
                least.sort_unstable();
            }
        }
    }
    least.map(|hash| if hash == u64::MAX { 0 } else { hash })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_a_little_has_much_of_the_sketch() {
        let chunk: Vec<u8> = (0..2000u32).flat_map(|n| n.wrapping_mul(0x9E37_79B9).to_be_bytes()).collect();
        let mut other = chunk.clone();
        other.splice(3000..3010, *b"something else");
        let (a, b) = (sketch(&chunk), sketch(&other));
        assert!(a.iter().filter(|hash| b.contains(hash)).count() >= SKETCH - 1, "{a:?} {b:?}");
        assert_eq!(sketch(&[0; 8000])[1..], [0; SKETCH - 1], "a run of the same says nothing");
        assert_eq!(sketch(b"short"), [0; SKETCH]);
    }
}
