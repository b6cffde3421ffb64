//! A block as it lies on the wire; the byte map is at the head of [`stream`](super).

use super::error::{DecodeError, malformed};
use super::layout::{
    BLOCK_BYTES_MAX, COMPRESSED, DIGEST, DIGEST_BYTES, NEW_FRAME, WINDOW_LOG_MAX, WINDOW_LOG_MIN,
};
use crate::varint::{put, take};

/// Its parts, not yet decoded.
pub(super) struct Block<'a> {
    /// [`COMPRESSED`] and [`NEW_FRAME`]; [`DIGEST`] goes with the digest.
    pub(super) flags: u8,
    /// Of the frame that begins, log2; 0 if none does.
    pub(super) window_log: u8,
    pub(super) stream_bytes: usize,
    pub(super) literal_bytes: usize,
    pub(super) digest: Option<[u8; DIGEST_BYTES]>,
    pub(super) operations: &'a [u8],
    /// The literals.
    pub(super) payload: &'a [u8],
}

impl<'a> Block<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Block<'a>, DecodeError> {
        let short = malformed("it ends too soon");
        let (&flags, mut rest) = bytes.split_first().ok_or(short)?;
        if flags & !(COMPRESSED | NEW_FRAME | DIGEST) != 0 {
            return Err(malformed("unknown flags"));
        }
        let mut window_log = 0;
        if flags & NEW_FRAME != 0 {
            (window_log, rest) = rest.split_first().map(|(log, rest)| (*log, rest)).ok_or(short)?;
            if !(WINDOW_LOG_MIN..=WINDOW_LOG_MAX).contains(&u32::from(window_log)) {
                return Err(malformed("a history of another size than there is"));
            }
        }
        let mut length = || {
            let length = take(&mut rest).and_then(|n| usize::try_from(n).ok()).ok_or(short)?;
            if length <= BLOCK_BYTES_MAX { Ok(length) } else { Err(malformed("a length is too large")) }
        };
        let (stream_bytes, operations, literal_bytes) = (length()?, length()?, length()?);
        if stream_bytes == 0 {
            return Err(malformed("it stands for nothing"));
        }
        if literal_bytes > stream_bytes {
            return Err(malformed("more literals than bytes"));
        }
        let digest = if flags & DIGEST != 0 {
            let (digest, after) = rest.split_first_chunk().ok_or(short)?;
            rest = after;
            Some(*digest)
        } else {
            None
        };
        let (operations, payload) = rest.split_at_checked(operations).ok_or(short)?;
        if flags & COMPRESSED == 0 && payload.len() != literal_bytes {
            return Err(malformed("other literals than announced"));
        }
        Ok(Block {
            flags: flags & !DIGEST,
            window_log,
            stream_bytes,
            literal_bytes,
            digest,
            operations,
            payload,
        })
    }

    /// Appends it to `out`.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.flags | if self.digest.is_some() { DIGEST } else { 0 });
        if self.flags & NEW_FRAME != 0 {
            out.push(self.window_log);
        }
        put(out, self.stream_bytes as u64);
        put(out, self.operations.len() as u64);
        put(out, self.literal_bytes as u64);
        if let Some(digest) = &self.digest {
            out.extend_from_slice(digest);
        }
        out.extend_from_slice(self.operations);
        out.extend_from_slice(self.payload);
    }
}

/// How many bytes of the stream a block says it stands for, 1 to [`BLOCK_BYTES_MAX`], without decoding it. None for what is no
/// block. A block that decodes gives exactly so many.
pub fn stream_bytes_of(block: &[u8]) -> Option<usize> {
    Block::parse(block).ok().map(|block| block.stream_bytes)
}

/// log2 of the bytes that the history which begins with a block may take, up to [`WINDOW_LOG_MAX`]; it takes the place of the one
/// before. None for a block that begins none, and for what is no block.
pub fn window_log_of(block: &[u8]) -> Option<u32> {
    let block = Block::parse(block).ok()?;
    (block.flags & NEW_FRAME != 0).then_some(u32::from(block.window_log))
}
