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
    let (mut hash, mut last) = (0u64, u64::MAX);
    for (at, byte) in bytes.iter().enumerate() {
        hash = (hash << 1).wrapping_add(GEAR[*byte as usize]);
        if hash >> (64 - DENSE_ZEROS) == 0 && hash != last && at + 1 >= WINDOW {
            last = hash;
            found(at + 1, mix(hash), hash >> (64 - SAMPLED_ZEROS) == 0);
        }
    }
}
