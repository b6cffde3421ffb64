//! Fingerprints as they are asked for.

use farside_format::Fingerprint;

/// Most fingerprints that one call is asked for: those of 256 MiB, 1 MiB of memory.
pub const FINGERPRINTS_MAX: u64 = 1 << 16;

/// Of the fingerprints' short forms, those with this many trailing zero bits are the sample that both sides agree on
/// without a word: 1 in 8. An index too small for every block keeps a part of exactly these, so who asks for a sample
/// asks for these and finds a run of n known blocks with a chance of `1 - (1 - 1/k)^n`, where the index keeps 1 in k;
/// a sample by position would find it with `1 - (1 - 1/k)^(n/8)`.
pub const SAMPLE_BITS: u32 = 3;

/// The first 8 bytes of a fingerprint, big endian: what is asked with.
pub fn short(fingerprint: Fingerprint) -> u64 {
    let (head, _) = fingerprint.0.split_at(8);
    u64::from_be_bytes(head.try_into().expect("8 of 16 bytes"))
}

/// Whether a block of this short fingerprint belongs to the sample (see [`SAMPLE_BITS`]).
pub fn is_sampled(short: u64) -> bool {
    short.trailing_zeros() >= SAMPLE_BITS
}
