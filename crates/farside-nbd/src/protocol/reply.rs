//! Answers to commands, as pieces ready for a vectored write.

use bytes::{BufMut, Bytes, BytesMut};
use zerocopy::IntoBytes;

use crate::error::NbdError;
use crate::export::Marked;
use crate::limits::ERROR_TEXT_BYTES_MAX;
use crate::protocol::option::cut;
use crate::protocol::{CHUNK_MAGIC, ChunkHeader, SIMPLE_REPLY_MAGIC, SimpleReplyHeader};

const CHUNK_FLAG_DONE: u16 = 1 << 0;

const CHUNK_OFFSET_DATA: u16 = 1;
const CHUNK_OFFSET_HOLE: u16 = 2;
const CHUNK_BLOCK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = (1 << 15) | 1;

/// Part of what a READ found.
#[derive(Clone, Debug)]
pub(crate) enum ReadRun {
    /// Bytes at `offset` of the export.
    Data { offset: u64, bytes: Bytes },
    /// Zeros.
    Hole { offset: u64, length: u32 },
}

/// The answer to a command that returns nothing.
pub(crate) fn done(cookie: u64) -> Vec<Bytes> {
    vec![simple_header(cookie, 0)]
}

/// The answer to a command that failed.
pub(crate) fn failed(cookie: u64, structured: bool, error: &NbdError) -> Vec<Bytes> {
    if !structured {
        return vec![simple_header(cookie, error.kind.number())];
    }
    let text = cut(&error.message, ERROR_TEXT_BYTES_MAX);
    let mut bytes = BytesMut::with_capacity(64 + text.len());
    chunk_header(&mut bytes, CHUNK_FLAG_DONE, CHUNK_ERROR, cookie, 4 + 2 + text.len());
    bytes.put_u32(error.kind.number());
    bytes.put_u16(u16::try_from(text.len()).expect("error texts are cut to 1 KiB"));
    bytes.put_slice(text.as_bytes());
    vec![bytes.freeze()]
}

/// The answer to a READ of a client without structured replies.
pub(crate) fn read_simple(cookie: u64, data: Bytes) -> Vec<Bytes> {
    vec![simple_header(cookie, 0), data]
}

/// The answer to a READ, a chunk for each run. There must be one at least.
pub(crate) fn read_structured(cookie: u64, runs: Vec<ReadRun>) -> Vec<Bytes> {
    let last = runs.len() - 1;
    // A hole's chunk has 32 bytes, the head of a data chunk 28.
    let mut heads = BytesMut::with_capacity(32 * runs.len());
    let mut pieces = Vec::with_capacity(2 * runs.len());
    for (index, run) in runs.into_iter().enumerate() {
        let flags = if index == last { CHUNK_FLAG_DONE } else { 0 };
        match run {
            ReadRun::Data { offset, bytes } => {
                chunk_header(&mut heads, flags, CHUNK_OFFSET_DATA, cookie, 8 + bytes.len());
                heads.put_u64(offset);
                pieces.push(heads.split().freeze());
                pieces.push(bytes);
            }
            ReadRun::Hole { offset, length } => {
                chunk_header(&mut heads, flags, CHUNK_OFFSET_HOLE, cookie, 8 + 4);
                heads.put_u64(offset);
                heads.put_u32(length);
                pieces.push(heads.split().freeze());
            }
        }
    }
    pieces
}

/// The answer to a BLOCK_STATUS, a chunk for each context by its number. There must be a context at least, and a run of each,
/// none of more than 4 GiB - 1.
pub(crate) fn block_status(cookie: u64, contexts: &[(u32, Vec<Marked>)]) -> Vec<Bytes> {
    let chunk = |(index, (id, runs)): (usize, &(u32, Vec<Marked>))| {
        let flags = if index + 1 == contexts.len() { CHUNK_FLAG_DONE } else { 0 };
        let length = 4 + 8 * runs.len();
        let mut bytes = BytesMut::with_capacity(size_of::<ChunkHeader>() + length);
        chunk_header(&mut bytes, flags, CHUNK_BLOCK_STATUS, cookie, length);
        bytes.put_u32(*id);
        for run in runs {
            bytes.put_u32(u32::try_from(run.length).expect("runs are clamped to the request"));
            bytes.put_u32(run.flags);
        }
        bytes.freeze()
    };
    contexts.iter().enumerate().map(chunk).collect()
}

fn simple_header(cookie: u64, error: u32) -> Bytes {
    let header =
        SimpleReplyHeader { magic: SIMPLE_REPLY_MAGIC.into(), error: error.into(), cookie: cookie.into() };
    Bytes::copy_from_slice(header.as_bytes())
}

fn chunk_header(bytes: &mut BytesMut, flags: u16, kind: u16, cookie: u64, length: usize) {
    let header = ChunkHeader {
        magic: CHUNK_MAGIC.into(),
        flags: flags.into(),
        kind: kind.into(),
        cookie: cookie.into(),
        length: u32::try_from(length).expect("replies are bounded by 32 MiB and a header").into(),
    };
    bytes.put_slice(header.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn joined(pieces: Vec<Bytes>) -> Vec<u8> {
        pieces.concat()
    }

    #[test]
    fn a_read_with_a_hole_ends_with_its_last_chunk() {
        let runs = vec![
            ReadRun::Data { offset: 0x10, bytes: Bytes::from_static(b"ab") },
            ReadRun::Hole { offset: 0x12, length: 5 },
        ];
        #[rustfmt::skip]
        let expected = [
            0x66, 0x8e, 0x33, 0xef, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 10,
            0, 0, 0, 0, 0, 0, 0, 0x10, b'a', b'b',
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 12,
            0, 0, 0, 0, 0, 0, 0, 0x12, 0, 0, 0, 5,
        ];
        assert_eq!(joined(read_structured(9, runs)), expected);
    }

    #[test]
    fn errors_carry_number_and_text() {
        let error = NbdError::new(ErrorKind::NoSpace, "full");
        #[rustfmt::skip]
        let structured = [
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 10,
            0, 0, 0, 28, 0, 4, b'f', b'u', b'l', b'l',
        ];
        assert_eq!(joined(failed(9, true, &error)), structured);
        let simple = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(joined(failed(9, false, &error)), simple);
    }

    #[test]
    fn status_is_a_chunk_for_each_context() {
        let contexts = [
            (2, vec![Marked { length: 0x1200, flags: 1 }]),
            (1, vec![Marked { length: 4096, flags: 0 }, Marked { length: 512, flags: 3 }]),
        ];
        #[rustfmt::skip]
        let expected = [
            0x66, 0x8e, 0x33, 0xef, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 12,
            0, 0, 0, 2, 0, 0, 0x12, 0, 0, 0, 0, 1,
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 20,
            0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3,
        ];
        assert_eq!(joined(block_status(9, &contexts)), expected);
    }
}
