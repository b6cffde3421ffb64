//! Blocks to the bytes of a stream.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

use super::block::Block;
use super::decompress::Decompressor;
use super::error::{DecodeError, Wanted, malformed};
use super::layout::{BASES_MAX, CHUNK_KEPT_MIN, CONTAINERS_MAX, WINDOW_LOG_ALONE, digest};
use super::operations::{Names, Operation};
use super::patch::{Copy, take_copies};
use crate::container::CHUNKS_PER_CONTAINER;
use crate::cut::{CHUNK_MAX, CHUNK_MIN};
use crate::known::KnownAtPeer;
use crate::name::{ChunkName, ContainerName};
use crate::sketch::sketch;
use crate::store::Realm;

/// Turns the blocks of one direction of one stream into its bytes.
pub struct StreamDecoder {
    realm: Realm,
    peer: Option<Arc<Mutex<KnownAtPeer>>>,
    names: Names,
    history: Decompressor,
    chunk: Vec<u8>,
    base: Vec<u8>,
    copies: Vec<Copy>,
}

/// The bytes of a block as they come together.
struct Assembly<'a> {
    out: &'a mut Vec<u8>,
    /// What `out` is to have in the end.
    end: usize,
    /// The first chunk that is not here.
    missing: Option<ChunkName>,
    /// The chunks have more bytes than the block stands for: one of them is not what was meant.
    is_too_much: bool,
    /// Containers that chunks were read from.
    referred: Vec<ContainerName>,
}

/// What the operations of a block may still cost. It is counted before anything is done for them.
struct Allowance {
    /// Bytes of the stream that no operation stands for yet.
    bytes: usize,
    /// Containers that were named, [`CONTAINERS_MAX`] at most.
    containers: Vec<ContainerName>,
    /// Chunks that others are made of, [`BASES_MAX`] at most.
    bases: usize,
}

impl Allowance {
    /// An operation that stands for so many bytes at least, and names that container.
    fn take(&mut self, operation: &Operation) -> Result<(), DecodeError> {
        let (least, container) = match operation {
            Operation::Patch(base) => {
                self.bases += 1;
                if self.bases > BASES_MAX {
                    return Err(malformed("it patches too many chunks"));
                }
                return self.name(base.container);
            }
            Operation::Literal(bytes) => (*bytes, None),
            Operation::New(bytes, name) => (*bytes, Some(name.container)),
            // No chunk is shorter, so a block cannot make more be read than it has bytes for.
            Operation::Reference(count, first) => {
                (usize::from(*count) * CHUNK_KEPT_MIN, Some(first.container))
            }
        };
        if least == 0 {
            return Err(malformed("an operation that stands for nothing"));
        }
        self.bytes =
            self.bytes.checked_sub(least).ok_or(malformed("operations for more bytes than it has"))?;
        container.map_or(Ok(()), |container| self.name(container))
    }

    fn name(&mut self, container: ContainerName) -> Result<(), DecodeError> {
        if !self.containers.contains(&container) {
            if self.containers.len() == CONTAINERS_MAX {
                return Err(malformed("it names too many containers"));
            }
            self.containers.push(container);
        }
        Ok(())
    }
}

impl Assembly<'_> {
    /// Whether what comes still matters.
    fn goes_on(&self) -> bool {
        self.missing.is_none() && !self.is_too_much
    }

    fn push(&mut self, bytes: &[u8]) {
        if bytes.len() > self.end - self.out.len() {
            self.is_too_much = true;
        }
        if self.goes_on() {
            self.out.extend_from_slice(bytes);
        }
    }

    /// A chunk that is made of another, with literals between the copies; how it lies in `out`.
    fn patch(&mut self, base: &[u8], copies: &[Copy], mut literals: &[u8]) -> Option<Range<usize>> {
        let begin = self.out.len();
        for copy in copies {
            let (literal, rest) = literals.split_at_checked(copy.literal)?;
            literals = rest;
            self.push(literal);
            match base.get(copy.from..copy.from + copy.length) {
                Some(copied) => self.push(copied),
                // It is another one here.
                None => self.is_too_much = true,
            }
        }
        self.push(literals);
        Some(begin..self.out.len())
    }

    fn refer(&mut self, realm: &Realm, count: u16, first: ChunkName, chunk: &mut Vec<u8>) {
        let mut name = first;
        for _ in 0..count {
            if !self.reads(realm, name, chunk) {
                return;
            }
            self.push(chunk);
            name = name.next();
        }
    }

    /// Whether a chunk is here, and still needed.
    fn reads(&mut self, realm: &Realm, name: ChunkName, chunk: &mut Vec<u8>) -> bool {
        if !self.goes_on() {
            return false;
        }
        if !self.referred.contains(&name.container) {
            self.referred.push(name.container);
        }
        if realm.read(name, chunk).is_err() {
            self.missing = Some(name);
        }
        self.goes_on()
    }
}

impl StreamDecoder {
    /// For a stream of a peer that shares `realm`.
    pub fn new(realm: Realm) -> StreamDecoder {
        StreamDecoder {
            realm,
            peer: None,
            names: Names::default(),
            history: Decompressor::default(),
            chunk: Vec::new(),
            base: Vec::new(),
            copies: Vec::new(),
        }
    }

    /// Enters what the peer sends into what it is known to hold: what goes back to it at once is named at once, before the peer
    /// has said that it has it.
    #[must_use]
    pub fn telling(mut self, peer: Arc<Mutex<KnownAtPeer>>) -> StreamDecoder {
        self.peer = Some(peer);
        self
    }

    /// Appends to `out` the bytes that `block` stands for, at most [`BLOCK_BYTES_MAX`](super::BLOCK_BYTES_MAX); nothing on an
    /// error. What that costs is bounded by these bytes: a block that names more chunks than they could be is refused
    /// before any is read.
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

    /// The same for the answer to what was asked for ([`answer`](super::StreamEncoder::answer)): the stream's history stays
    /// as it is. An answer of other bytes than were wanted is refused.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Malformed`].
    pub fn decode_answer(&self, block: &[u8], wanted: &Wanted, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let parsed = Block::parse(block)?;
        if parsed.digest.is_some() {
            return Err(malformed("an answer that refers to chunks"));
        }
        if parsed.stream_bytes != wanted.stream_bytes {
            return Err(malformed("an answer of another length than was asked for"));
        }
        if u32::from(parsed.window_log) > WINDOW_LOG_ALONE {
            return Err(malformed("an answer with more history than it can have"));
        }
        let begins = out.len();
        StreamDecoder::new(self.realm.clone()).decode(block, out)?;
        if digest(&out[begins..]) != wanted.digest {
            out.truncate(begins);
            return Err(malformed("an answer of other bytes than were asked for"));
        }
        Ok(())
    }

    fn decode_parts(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let block = Block::parse(bytes)?;
        let mut literals = self.history.literals(&block)?;
        let mut operations = block.operations;
        let mut allowance = Allowance { bytes: block.stream_bytes, containers: Vec::new(), bases: 0 };
        let begins = out.len();
        let mut assembly = Assembly {
            end: begins + block.stream_bytes,
            out,
            missing: None,
            is_too_much: false,
            referred: Vec::new(),
        };
        let mut patched = Vec::new();
        let mut base = None;
        while !operations.is_empty() {
            let operation = self.names.decode(&mut operations).ok_or(malformed("no operation"))?;
            allowance.take(&operation)?;
            if base.is_some() && !matches!(operation, Operation::New(..)) {
                return Err(malformed("a patch of what is no new chunk"));
            }
            match operation {
                Operation::Patch(name) => {
                    if block.digest.is_none() {
                        return Err(malformed("it patches a chunk and has no digest"));
                    }
                    take_copies(&mut operations, &mut self.copies).ok_or(malformed("no copies"))?;
                    base = Some(name);
                }
                Operation::Literal(length) => assembly.push(split(&mut literals, length)?),
                Operation::New(length, name) => {
                    let copied: usize =
                        if base.is_some() { self.copies.iter().map(|copy| copy.length).sum() } else { 0 };
                    let rest =
                        length.checked_sub(copied).ok_or(malformed("copies of more than the chunk"))?;
                    let chunk = split(&mut literals, rest)?;
                    let is_chunk = (CHUNK_KEPT_MIN..=CHUNK_MAX).contains(&length);
                    if !is_chunk || name.place >= CHUNKS_PER_CONTAINER {
                        return Err(malformed("what is to be kept is no chunk"));
                    }
                    if let Some(base) = base.take() {
                        if let Some(peer) = &self.peer {
                            peer.lock().note(name);
                        }
                        if assembly.reads(&self.realm, base, &mut self.base) {
                            let made = assembly.patch(&self.base, &self.copies, chunk);
                            patched.push((name, made.ok_or(malformed("copies of more than the chunk"))?));
                        }
                        continue;
                    }
                    keep(&self.realm, name, chunk);
                    if let Some(peer) = &self.peer {
                        peer.lock().note(name);
                    }
                    assembly.push(chunk);
                }
                Operation::Reference(count, first) => {
                    if block.digest.is_none() {
                        return Err(malformed("it refers to chunks and has no digest"));
                    }
                    assembly.refer(&self.realm, count, first, &mut self.chunk);
                }
            }
        }
        if base.is_some() {
            return Err(malformed("a patch of nothing"));
        }
        if !literals.is_empty() {
            return Err(malformed("literals that nothing stands for"));
        }
        let Assembly { out, end, missing, is_too_much, referred } = assembly;
        let is_whole = missing.is_none() && !is_too_much && out.len() == end;
        let Some(expected) = block.digest else {
            return if is_whole { Ok(()) } else { Err(malformed("other bytes than announced")) };
        };
        if is_whole && digest(&out[begins..]) == expected {
            // Not before: what they are made of might have been something else.
            for (name, made) in patched {
                keep(&self.realm, name, &out[made]);
            }
            return Ok(());
        }
        if missing.is_none() {
            // Something else has one of these names here. Without them the peer does not refer to them again.
            referred.into_iter().for_each(|container| self.realm.distrust(container));
        }
        Err(DecodeError::Again {
            missing,
            wanted: Wanted { stream_bytes: block.stream_bytes, digest: expected },
        })
    }

    /// Lets go of the history, since the stream rests; what comes next must begin a new one.
    pub fn drop_history(&mut self) {
        self.history.drop_history();
    }
}

/// Keeps a chunk under that name; what cannot be kept is asked for when it is named. What goes back may resemble it.
fn keep(realm: &Realm, name: ChunkName, chunk: &[u8]) {
    match realm.keep_as(name, chunk) {
        Ok(true) if chunk.len() >= CHUNK_MIN => realm.resembles(&sketch(chunk), name),
        Ok(_) => {}
        Err(error) => tracing::debug!("{error}"),
    }
}

fn split<'a>(literals: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let (first, rest) = literals.split_at_checked(length).ok_or(malformed("more literals than announced"))?;
    *literals = rest;
    Ok(first)
}
