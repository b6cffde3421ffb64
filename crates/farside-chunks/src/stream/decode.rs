//! Blocks to the bytes of a stream.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::layout::{
    BLOCK_BYTES_MAX, CHUNK_KEPT_MIN, COMPRESSED, DIGEST, DIGEST_BYTES, NEW_FRAME, WINDOW_LOG_MAX, digest,
};
use super::operations::{Names, Operation};
use crate::container::CHUNKS_PER_CONTAINER;
use crate::cut::CHUNK_MAX;
use crate::name::ChunkName;
use crate::store::Realm;
use crate::varint::take;

/// Why a block gave no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A chunk that it names is not here, or the bytes are not those that were meant: they have to be asked for. The
    /// blocks after it can be decoded.
    #[error("a chunk is not here; the block is asked for again")]
    Again {
        /// What is missing; none if all chunks are here and the digest does not fit.
        missing: Option<ChunkName>,
        /// Bytes that the block stands for.
        stream_bytes: usize,
    },
    /// It is no block. Nothing after it can be decoded.
    #[error("malformed block: {0}")]
    Malformed(&'static str),
}

/// Turns the blocks of one direction of one stream into its bytes.
pub struct StreamDecoder {
    realm: Realm,
    names: Names,
    history: Option<DCtx<'static>>,
    literals: Vec<u8>,
    chunk: Vec<u8>,
}

struct Block<'a> {
    flags: u8,
    stream_bytes: usize,
    literal_bytes: usize,
    digest: Option<&'a [u8]>,
    operations: &'a [u8],
    payload: &'a [u8],
}

const fn malformed(what: &'static str) -> DecodeError {
    DecodeError::Malformed(what)
}

impl<'a> Block<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Block<'a>, DecodeError> {
        let short = malformed("it ends too soon");
        let (&flags, mut rest) = bytes.split_first().ok_or(short)?;
        if flags & !(COMPRESSED | NEW_FRAME | DIGEST) != 0 {
            return Err(malformed("unknown flags"));
        }
        let mut length = || {
            let length = take(&mut rest).and_then(|n| usize::try_from(n).ok()).ok_or(short)?;
            if length <= BLOCK_BYTES_MAX { Ok(length) } else { Err(malformed("a length is too large")) }
        };
        let (stream_bytes, operations, literal_bytes) = (length()?, length()?, length()?);
        if literal_bytes > stream_bytes {
            return Err(malformed("more literals than bytes"));
        }
        let digest = if flags & DIGEST != 0 {
            let (digest, after) = rest.split_at_checked(DIGEST_BYTES).ok_or(short)?;
            rest = after;
            Some(digest)
        } else {
            None
        };
        let (operations, payload) = rest.split_at_checked(operations).ok_or(short)?;
        if flags & COMPRESSED == 0 && payload.len() != literal_bytes {
            return Err(malformed("other literals than announced"));
        }
        Ok(Block { flags, stream_bytes, literal_bytes, digest, operations, payload })
    }
}

impl StreamDecoder {
    /// For a stream of a peer that shares `realm`.
    pub fn new(realm: Realm) -> StreamDecoder {
        StreamDecoder {
            realm,
            names: Names::default(),
            history: None,
            literals: Vec::new(),
            chunk: Vec::new(),
        }
    }

    /// Appends to `out` the bytes that `block` stands for, at most [`BLOCK_BYTES_MAX`]; nothing on an error.
    ///
    /// # Errors
    ///
    /// [`DecodeError`].
    pub fn decode(&mut self, block: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let begins = out.len();
        let decoded = self.decode_parts(block, out);
        if decoded.is_err() {
            out.truncate(begins);
        }
        decoded
    }

    /// The same for the answer to what was asked for, which stands for `stream_bytes` ([`answer`](super::StreamEncoder::answer)): the stream's history stays as it is.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Malformed`].
    pub fn decode_answer(
        &self,
        block: &[u8],
        stream_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        if Block::parse(block)?.stream_bytes != stream_bytes {
            return Err(malformed("an answer of another length than was asked for"));
        }
        let mut alone = StreamDecoder::new(self.realm.clone());
        match alone.decode(block, out) {
            Err(DecodeError::Again { .. }) => Err(malformed("an answer refers to chunks")),
            other => other,
        }
    }

    fn decode_parts(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let block = Block::parse(bytes)?;
        self.decompress(&block)?;
        let begins = out.len();
        let (mut literals, mut operations) = (&self.literals[..], block.operations);
        let (mut missing, mut referred) = (None, Vec::new());
        while !operations.is_empty() {
            match self.names.decode(&mut operations).ok_or(malformed("no operation"))? {
                Operation::Literal(length) => out.extend_from_slice(split(&mut literals, length)?),
                Operation::New(length, name) => {
                    let chunk = split(&mut literals, length)?;
                    let is_chunk = (CHUNK_KEPT_MIN..=CHUNK_MAX).contains(&length);
                    if !is_chunk || name.place >= CHUNKS_PER_CONTAINER {
                        return Err(malformed("what is to be kept is no chunk"));
                    }
                    // What cannot be kept is asked for when it is named.
                    if let Err(error) = self.realm.keep_as(name, chunk) {
                        tracing::debug!("{error}");
                    }
                    out.extend_from_slice(chunk);
                }
                Operation::Reference(count, first) => {
                    if referred.last() != Some(&first.container) {
                        referred.push(first.container);
                    }
                    let mut name = first;
                    for _ in 0..count {
                        // With more bytes than the block stands for, one of its chunks is not what was meant.
                        let is_too_much = out.len() - begins > block.stream_bytes;
                        if missing.is_some() || is_too_much {
                            break;
                        }
                        match self.realm.read(name, &mut self.chunk) {
                            Ok(()) => out.extend_from_slice(&self.chunk),
                            Err(_) => missing = Some(name),
                        }
                        name = name.next();
                    }
                }
            }
        }
        if !literals.is_empty() {
            return Err(malformed("literals that nothing stands for"));
        }
        if missing.is_some() && block.digest.is_some() {
            return Err(DecodeError::Again { missing, stream_bytes: block.stream_bytes });
        }
        let is_whole = out.len() - begins == block.stream_bytes
            && block.digest.is_none_or(|expected| digest(&out[begins..]) == *expected);
        match (is_whole, block.digest) {
            (true, _) => Ok(()),
            // Something else has one of these names here. Without them the peer does not refer to them again.
            (false, Some(_)) => {
                referred.into_iter().for_each(|container| self.realm.distrust(container));
                Err(DecodeError::Again { missing: None, stream_bytes: block.stream_bytes })
            }
            // Only what refers to chunks can be other than it was meant.
            (false, None) => Err(malformed("other bytes than announced")),
        }
    }

    /// The block's literals.
    fn decompress(&mut self, block: &Block<'_>) -> Result<(), DecodeError> {
        self.literals.clear();
        if block.flags & COMPRESSED == 0 {
            self.literals.extend_from_slice(block.payload);
            return Ok(());
        }
        if block.flags & NEW_FRAME != 0 || self.history.is_none() {
            let mut history = match self.history.take() {
                Some(history) => history,
                None => DCtx::try_create().ok_or(malformed("no memory for it"))?,
            };
            let is_ready = history.reset(ResetDirective::SessionOnly).is_ok()
                && history.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).is_ok();
            if !is_ready || block.flags & NEW_FRAME == 0 {
                return Err(malformed("it goes on with a history that is not there"));
            }
            self.history = Some(history);
        }
        let Some(history) = &mut self.history else { return Err(malformed("no history")) };
        if block.payload.len() > zstd_safe::compress_bound(block.literal_bytes) + 64 {
            return Err(malformed("its literals are larger than uncompressed"));
        }
        // A byte more than announced, so that too many are noticed.
        self.literals.resize(block.literal_bytes + 1, 0);
        let mut written = 0;
        let mut input = InBuffer::around(block.payload);
        loop {
            let before = (input.pos(), written);
            let mut output = OutBuffer::around_pos(&mut self.literals[..], written);
            let decompressed = history.decompress_stream(&mut output, &mut input);
            written = output.pos();
            let is_at_end = input.pos() == block.payload.len();
            match decompressed {
                Err(_) => return Err(malformed("its literals do not decompress")),
                // A frame's end, and another behind it: no stream is said so.
                Ok(0) if !is_at_end => return Err(malformed("more than one frame")),
                Ok(_) => {}
            }
            if written > block.literal_bytes || (before == (input.pos(), written) && !is_at_end) {
                return Err(malformed("other literals than announced"));
            }
            if is_at_end && (written == block.literal_bytes || before == (input.pos(), written)) {
                break;
            }
        }
        self.literals.truncate(written);
        if written == block.literal_bytes { Ok(()) } else { Err(malformed("other literals than announced")) }
    }

    /// Lets go of the history, since the stream rests; what comes next must begin a new one.
    pub fn drop_history(&mut self) {
        self.history = None;
    }
}

fn split<'a>(literals: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let (first, rest) = literals.split_at_checked(length).ok_or(malformed("more literals than announced"))?;
    *literals = rest;
    Ok(first)
}
