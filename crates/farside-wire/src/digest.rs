//! The two digests of a frame: 16 bytes of keyed BLAKE3, each with a context of its own.

use std::sync::LazyLock;

use farside_format::Fingerprint;

static PREFIX_KEY: LazyLock<[u8; 32]> =
    LazyLock::new(|| blake3::derive_key("farside 2026-11 frame prefix v1", &[]));
static FRAME_KEY: LazyLock<[u8; 32]> =
    LazyLock::new(|| blake3::derive_key("farside 2026-11 frame digest v2", &[]));

/// Digest of the prefix bytes; zeros stand for no prefix.
pub(crate) fn of_prefix(bytes: &[u8]) -> [u8; 16] {
    if bytes.is_empty() {
        return [0; 16];
    }
    truncate(&blake3::keyed_hash(&PREFIX_KEY, bytes))
}

/// Digest of a frame: its header (all but the digest itself), its table, a compressed payload, and the full
/// fingerprint of every data and repeat block, in order. A raw payload is its blocks, so their fingerprints cover it;
/// a compressed one is covered itself, so that no bit of a frame is without meaning.
pub(crate) fn of_frame(
    header: &[u8],
    table: &[u8],
    compressed: &[u8],
    fingerprints: impl Iterator<Item = Fingerprint>,
) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(&FRAME_KEY);
    hasher.update(header).update(table).update(compressed);
    // In groups: BLAKE3 takes a KiB at a time.
    let (mut group, mut held) = ([0; 64 * 16], 0);
    for fingerprint in fingerprints {
        group[held..held + 16].copy_from_slice(&fingerprint.0);
        held += 16;
        if held == group.len() {
            hasher.update(&group);
            held = 0;
        }
    }
    hasher.update(&group[..held]);
    truncate(&hasher.finalize())
}

fn truncate(hash: &blake3::Hash) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}
