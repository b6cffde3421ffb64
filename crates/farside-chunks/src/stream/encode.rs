//! Bytes of a stream to blocks.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::layout::{BLOCK_BYTES_MAX, CHUNK_KEPT_MIN, COMPRESSED, DIGEST, NEW_FRAME, WINDOW_LOG_MAX, digest};
use super::operations::{Names, Operation};
use crate::cut::{CHUNK_MAX, first_chunk};
use crate::fingerprint::Fingerprint;
use crate::known::KnownAtPeer;
use crate::name::ChunkName;
use crate::store::{Cursor, Realm};
use crate::varint::put;

/// Chunks that this stream has sent and that may be named before the peer says that it holds them; some 500 MB.
const SENT_MAX: usize = 1 << 16;
/// Share of its bytes that compressed literals may have and still be worth it.
const WORTH: f64 = 0.97;
/// Fewer literal bytes than this go as they are: a flush of zstd alone takes five.
const COMPRESSED_MIN: usize = 24;
/// Literal bytes after which a stream that did not get smaller goes uncompressed.
const NOISE_AFTER: u64 = 128 << 10;
/// Literal bytes that then go uncompressed before the next is tried, at first and at most.
const NOISE_FOR: (u64, u64) = (1 << 20, 64 << 20);

/// What may be spent on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// zstd's level, 1 to 19.
    pub level: i32,
    /// log2 of the history's bytes, 10 to [`WINDOW_LOG_MAX`].
    pub window_log: u32,
}

impl Default for StreamSettings {
    fn default() -> StreamSettings {
        StreamSettings { level: 3, window_log: 20 }
    }
}

/// What [`StreamEncoder::encode`] has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes of the stream that the block stands for; what is left waits for what follows.
    pub consumed: usize,
    /// Of which so many are references.
    pub referred: usize,
}

impl Encoded {
    /// The peer may ask for the block's bytes: they have to be kept until it has said that it has them.
    pub fn may_be_asked_for(&self) -> bool {
        self.referred > 0
    }
}

/// Turns one direction of one stream into blocks.
pub struct StreamEncoder {
    realm: Realm,
    peer: Arc<Mutex<KnownAtPeer>>,
    settings: StreamSettings,
    names: Names,
    cursor: Option<Cursor>,
    sent: HashSet<ChunkName>,
    history: Option<CCtx<'static>>,
    noise: Noise,
    operations: Vec<Operation>,
    literals: Vec<u8>,
    compressed: Vec<u8>,
}

/// Whether it is worth compressing what comes.
#[derive(Clone, Copy, Debug)]
struct Noise {
    in_bytes: u64,
    out_bytes: u64,
    /// Bytes that go uncompressed yet.
    skip: u64,
    next_skip: u64,
}

impl StreamEncoder {
    /// For a stream to a peer that holds `peer`.
    pub fn new(realm: Realm, peer: Arc<Mutex<KnownAtPeer>>, settings: StreamSettings) -> StreamEncoder {
        StreamEncoder {
            realm,
            peer,
            settings,
            names: Names::default(),
            cursor: None,
            sent: HashSet::new(),
            history: None,
            noise: Noise { in_bytes: 0, out_bytes: 0, skip: 0, next_skip: NOISE_FOR.0 },
            operations: Vec::new(),
            literals: Vec::new(),
            compressed: Vec::new(),
        }
    }

    /// Appends to `out` the block of what comes next in the stream. Without `is_flush` what may still be part of a longer chunk
    /// is left; with fewer than [`CHUNK_MAX`] bytes that may be all, and then there is no block. Each call looks at what is left
    /// anew: it is not for each byte that comes.
    pub fn encode(&mut self, bytes: &[u8], is_flush: bool, out: &mut Vec<u8>) -> Encoded {
        // What comes after this block is no end.
        let is_flush = is_flush && bytes.len() <= BLOCK_BYTES_MAX;
        let bytes = &bytes[..bytes.len().min(BLOCK_BYTES_MAX)];
        self.operations.clear();
        self.literals.clear();
        let mut encoded = Encoded::default();
        while encoded.consumed < bytes.len() {
            let rest = &bytes[encoded.consumed..];
            let Some((length, found)) = self.next_chunk(rest, is_flush) else { break };
            let chunk = &rest[..length];
            if let Some(name) = found.named {
                encoded.referred += length;
                self.refer(name);
            } else {
                self.literals.extend_from_slice(chunk);
                let kept =
                    found.fingerprint.and_then(|fingerprint| self.keep(&fingerprint, found.here, chunk));
                match (kept, self.operations.last_mut()) {
                    (Some(name), _) => {
                        self.names.register(name.container.origin);
                        self.operations.push(Operation::New(length, name));
                    }
                    (None, Some(Operation::Literal(bytes))) => *bytes += length,
                    (None, _) => self.operations.push(Operation::Literal(length)),
                }
            }
            encoded.consumed += length;
        }
        if encoded.consumed > 0 {
            self.write(&bytes[..encoded.consumed], encoded.referred > 0, out);
        }
        encoded
    }

    /// The next chunk's length, and what is known of it.
    fn next_chunk(&mut self, rest: &[u8], is_flush: bool) -> Option<(usize, Known)> {
        // Where a stream goes on as one before, its cuts are there too: the bytes need not be looked at for them.
        if let Some(cursor) = &mut self.cursor
            && let Some(length) = cursor.next_length()
            && length <= rest.len()
        {
            let fingerprint = self.realm.fingerprint(&rest[..length]);
            if self.realm.follows(cursor, &fingerprint) {
                return Some((length, self.known(fingerprint)));
            }
        }
        let length = first_chunk(rest, is_flush)?;
        debug_assert!(length <= CHUNK_MAX);
        if length < CHUNK_KEPT_MIN {
            return Some((length, Known { fingerprint: None, here: None, named: None }));
        }
        let fingerprint = self.realm.fingerprint(&rest[..length]);
        if !self.cursor.as_mut().is_some_and(|cursor| self.realm.follows(cursor, &fingerprint)) {
            let found = self.realm.find(&fingerprint, |name| self.can_refer_to(name));
            if found.is_none() {
                // What is new has no neighbour here.
                self.cursor = None;
                return Some((length, Known { fingerprint: Some(fingerprint), here: None, named: None }));
            }
            self.cursor = found;
        }
        Some((length, self.known(fingerprint)))
    }

    /// What is known of the chunk that the cursor stands on.
    fn known(&mut self, fingerprint: Fingerprint) -> Known {
        let name = self.cursor.as_ref().map(Cursor::name);
        if let Some(name) = name.filter(|name| self.can_refer_to(*name)) {
            return Known { fingerprint: Some(fingerprint), here: Some(name), named: Some(name) };
        }
        // It may be here twice: from the peer, which has lost it since, and kept once more when it was sent back.
        let own = self.realm.origin();
        let is_wanted = |name: ChunkName| self.can_refer_to(name) || name.container.origin == own;
        if let Some(found) = self.realm.find(&fingerprint, is_wanted) {
            self.cursor = Some(found);
        }
        let here = self.cursor.as_ref().map(Cursor::name);
        let named = here.filter(|name| self.can_refer_to(*name));
        Known { fingerprint: Some(fingerprint), here, named }
    }

    /// Whether the peer holds a chunk, and it can be named in this stream.
    fn can_refer_to(&self, name: ChunkName) -> bool {
        self.names.can_name(name.container.origin)
            && (self.sent.contains(&name) || self.peer.lock().holds(name))
    }

    /// The name under which the peer is to keep a chunk: the one that it has here, unless its origin is the peer, which keeps
    /// none of its own a second time.
    fn keep(
        &mut self,
        fingerprint: &Fingerprint,
        here: Option<ChunkName>,
        chunk: &[u8],
    ) -> Option<ChunkName> {
        let origin = self.realm.origin();
        if !self.names.can_name(origin) {
            return None;
        }
        // One of which it has a part, and that is closed here, may be closed there too: it would be refused for ever.
        let is_open = |name: &ChunkName| {
            !self.peer.lock().holds_some_of(name.container) || self.realm.is_growing(name.container)
        };
        let own = here.filter(|name| name.container.origin == origin).filter(is_open);
        let name = own.or_else(|| self.realm.keep(fingerprint, chunk).ok())?;
        if self.sent.len() >= SENT_MAX {
            self.sent.clear();
        }
        self.sent.insert(name);
        Some(name)
    }

    fn refer(&mut self, name: ChunkName) {
        if let Some(Operation::Reference(count, first)) = self.operations.last_mut()
            && first.container == name.container
            && first.place.checked_add(*count) == Some(name.place)
        {
            *count += 1;
        } else {
            self.names.register(name.container.origin);
            self.operations.push(Operation::Reference(1, name));
        }
    }

    fn write(&mut self, bytes: &[u8], refers: bool, out: &mut Vec<u8>) {
        let mut operations = Vec::new();
        for operation in &self.operations {
            self.names.encode(*operation, &mut operations);
        }
        let is_new = self.history.is_none();
        let is_compressed = self.noise.tries(self.literals.len()) && self.compress();
        let mut flags = 0;
        if is_compressed {
            flags |= COMPRESSED | if is_new { NEW_FRAME } else { 0 };
        }
        flags |= if refers { DIGEST } else { 0 };
        out.push(flags);
        put(out, bytes.len() as u64);
        put(out, operations.len() as u64);
        put(out, self.literals.len() as u64);
        if refers {
            out.extend_from_slice(&digest(bytes));
        }
        out.extend_from_slice(&operations);
        out.extend_from_slice(if is_compressed { &self.compressed } else { &self.literals });
    }

    /// Compresses the literals with those before as history. False if zstd does not; then the history begins anew.
    fn compress(&mut self) -> bool {
        let history = match &mut self.history {
            Some(history) => history,
            None => {
                let Some(history) = begin(self.settings) else { return false };
                self.history.insert(history)
            }
        };
        if compress(history, &self.literals, &mut self.compressed).is_err() {
            self.history = None;
            return false;
        }
        self.noise.note(self.literals.len(), self.compressed.len());
        true
    }

    /// Lets go of the history, since the stream rests or its memory is needed; what comes next begins a new one.
    pub fn drop_history(&mut self) {
        self.history = None;
    }

    /// From the next history on.
    pub fn set(&mut self, settings: StreamSettings) {
        if settings != self.settings {
            self.settings = settings;
            self.history = None;
        }
    }

    /// The peer has asked for a block: what it named is not there, or something else is there under a name.
    pub fn heed_missing(&mut self, missing: Option<ChunkName>) {
        let Some(missing) = missing else {
            self.sent.clear();
            return;
        };
        self.peer.lock().forget(missing);
        self.sent.remove(&missing);
    }

    /// The answer to a peer that asked: a block of the bytes that one with references stood for. It needs neither chunks nor
    /// history; what is named in it is kept, so that it can be referred to again.
    pub fn answer(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let bytes = &bytes[..bytes.len().min(BLOCK_BYTES_MAX)];
        let own = self.realm.origin();
        let (mut names, mut operations, mut at) = (Names::default(), Vec::new(), 0);
        while let Some(length) = first_chunk(&bytes[at..], true) {
            let chunk = &bytes[at..at + length];
            let name = (length >= CHUNK_KEPT_MIN)
                .then(|| self.realm.find(&self.realm.fingerprint(chunk), |name| name.container.origin == own))
                .flatten()
                .map(|found| found.name())
                .filter(|name| name.container.origin == own);
            let operation = name.map_or(Operation::Literal(length), |name| Operation::New(length, name));
            names.encode(operation, &mut operations);
            at += length;
        }
        let mut compressed = Vec::new();
        let is_smaller = begin(self.settings)
            .is_some_and(|mut history| compress(&mut history, bytes, &mut compressed).is_ok())
            && compressed.len() < bytes.len();
        out.push(if is_smaller { COMPRESSED | NEW_FRAME } else { 0 });
        put(out, bytes.len() as u64);
        put(out, operations.len() as u64);
        put(out, bytes.len() as u64);
        out.extend_from_slice(&operations);
        out.extend_from_slice(if is_smaller { &compressed } else { bytes });
    }
}

/// A chunk of the stream.
struct Known {
    /// None for what is too short to be kept.
    fingerprint: Option<Fingerprint>,
    /// Its name in this site's store.
    here: Option<ChunkName>,
    /// The same if the peer holds it.
    named: Option<ChunkName>,
}

impl Noise {
    fn tries(&mut self, bytes: usize) -> bool {
        if bytes < COMPRESSED_MIN {
            return false;
        }
        if self.skip > 0 {
            self.skip = self.skip.saturating_sub(bytes as u64);
            return false;
        }
        true
    }

    fn note(&mut self, in_bytes: usize, out_bytes: usize) {
        self.in_bytes += in_bytes as u64;
        self.out_bytes += out_bytes as u64;
        if self.in_bytes < NOISE_AFTER {
            return;
        }
        if self.out_bytes as f64 > WORTH * self.in_bytes as f64 {
            self.skip = self.next_skip;
            self.next_skip = (2 * self.next_skip).min(NOISE_FOR.1);
        } else {
            self.next_skip = NOISE_FOR.0;
        }
        (self.in_bytes, self.out_bytes) = (0, 0);
    }
}

fn begin(settings: StreamSettings) -> Option<CCtx<'static>> {
    let mut history = CCtx::try_create()?;
    let window_log = settings.window_log.clamp(10, WINDOW_LOG_MAX);
    let all = [
        CParameter::CompressionLevel(settings.level.clamp(1, 19)),
        CParameter::WindowLog(window_log),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ];
    all.into_iter().all(|parameter| history.set_parameter(parameter).is_ok()).then_some(history)
}

fn compress(history: &mut CCtx<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), zstd_safe::ErrorCode> {
    out.clear();
    // A flush ends a block; it adds three bytes to each 128 KiB, and some for what was left of the block before.
    out.reserve(zstd_safe::compress_bound(bytes.len()) + 64);
    let mut input = InBuffer::around(bytes);
    let mut output = OutBuffer::around(out);
    loop {
        let left = history.compress_stream2(
            &mut output,
            &mut input,
            zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush,
        )?;
        if left == 0 && input.pos() == bytes.len() {
            return Ok(());
        }
        if output.pos() == output.capacity() {
            // Cannot be: the buffer takes whatever a flush makes of these bytes.
            return Err(0);
        }
    }
}
