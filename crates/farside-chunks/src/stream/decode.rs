//! Blocks to the bytes of a stream.

use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::layout::{
    BLOCK_BYTES_MAX, CHUNK_KEPT_MIN, COMPRESSED, DIGEST, DIGEST_BYTES, NEW_FRAME, WINDOW_LOG_MAX, digest,
};
use super::operations::{Names, Operation};
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

    /// The same for the answer to what was asked for ([`answer`](super::StreamEncoder::answer)): the stream's history stays as it is.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Malformed`].
    pub fn decode_answer(&self, block: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
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
        let mut missing = None;
        while !operations.is_empty() {
            match self.names.decode(&mut operations).ok_or(malformed("no operation"))? {
                Operation::Literal(length) => out.extend_from_slice(split(&mut literals, length)?),
                Operation::New(length, name) => {
                    let chunk = split(&mut literals, length)?;
                    if !(CHUNK_KEPT_MIN..=CHUNK_MAX).contains(&length) {
                        return Err(malformed("a chunk has another size than chunks have"));
                    }
                    // What cannot be kept is asked for when it is named.
                    if let Err(error) = self.realm.keep_as(name, chunk) {
                        tracing::debug!("{error}");
                    }
                    out.extend_from_slice(chunk);
                }
                Operation::Reference(count, first) => {
                    let mut name = first;
                    for _ in 0..count {
                        if missing.is_some() {
                            break;
                        }
                        match self.realm.read(name, &mut self.chunk) {
                            Ok(()) => out.extend_from_slice(&self.chunk),
                            Err(_) => missing = Some(name),
                        }
                        // A chunk has a byte at least, and no more are delivered than the block stands for.
                        if out.len() - begins > block.stream_bytes {
                            return Err(malformed("more bytes than announced"));
                        }
                        name = name.next();
                    }
                }
            }
        }
        if !literals.is_empty() {
            return Err(malformed("literals that nothing stands for"));
        }
        let is_whole = out.len() - begins == block.stream_bytes
            && block.digest.is_none_or(|expected| digest(&out[begins..]) == *expected);
        match (missing, block.digest) {
            (None, _) if is_whole => Ok(()),
            // Only what refers to chunks can be other than it was meant.
            (_, Some(_)) => Err(DecodeError::Again { missing, stream_bytes: block.stream_bytes }),
            (_, None) => Err(malformed("other bytes than announced")),
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
        self.literals.reserve(block.literal_bytes + 1);
        let mut input = InBuffer::around(block.payload);
        loop {
            // A byte more than announced, so that too many are noticed.
            let before = (input.pos(), self.literals.len());
            let mut room = vec![0; block.literal_bytes + 1 - self.literals.len()];
            let mut output = OutBuffer::around(&mut room[..]);
            let decompressed = history.decompress_stream(&mut output, &mut input);
            let written = output.pos();
            if decompressed.is_err() {
                return Err(malformed("its literals do not decompress"));
            }
            self.literals.extend_from_slice(&room[..written]);
            if self.literals.len() > block.literal_bytes {
                return Err(malformed("other literals than announced"));
            }
            let is_stuck = before == (input.pos(), self.literals.len());
            if input.pos() == block.payload.len() && (self.literals.len() == block.literal_bytes || is_stuck)
            {
                break;
            }
            if is_stuck {
                return Err(malformed("its literals do not decompress"));
            }
        }
        if self.literals.len() == block.literal_bytes {
            Ok(())
        } else {
            Err(malformed("other literals than announced"))
        }
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
