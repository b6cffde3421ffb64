//! The two digests of a frame: 16 bytes of keyed BLAKE3, each with a context of its own.

use std::sync::LazyLock;

use farside_format::Fingerprint;

use crate::layout::BLOCK_BYTES;

static PREFIX_KEY: LazyLock<[u8; 32]> =
    LazyLock::new(|| blake3::derive_key("farside 2026-11 frame prefix v1", &[]));
static FRAME_KEY: LazyLock<[u8; 32]> =
    LazyLock::new(|| blake3::derive_key("farside 2026-11 frame digest v1", &[]));

/// Digest of the prefix bytes; zeros stand for no prefix.
pub(crate) fn of_prefix(bytes: &[u8]) -> [u8; 16] {
    if bytes.is_empty() {
        return [0; 16];
    }
    truncate(&blake3::keyed_hash(&PREFIX_KEY, bytes))
}

/// Digest of a frame: all of it but the digest itself, and the full fingerprint of every data block. The payload
/// is covered too, so that no bit of a frame is without meaning.
pub(crate) fn of_frame(header: &[u8], table: &[u8], payload: &[u8], data: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(&FRAME_KEY);
    hasher.update(header).update(table).update(payload);
    for block in data.chunks_exact(BLOCK_BYTES) {
        hasher.update(&Fingerprint::of_block(block).0);
    }
    truncate(&hasher.finalize())
}

fn truncate(hash: &blake3::Hash) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&hash.as_bytes()[..16]);
    out
}
