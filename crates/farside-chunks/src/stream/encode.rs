//! Bytes of a stream to blocks.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::block::Block;
use super::compress::{Compressor, Payload, compress_alone};
use super::layout::{BASES_MAX, BLOCK_BYTES_MAX, CHUNK_KEPT_MIN, CONTAINERS_MAX, digest};
use super::operations::{Names, Operation};
use super::patch::{Matcher, put_copies};
use super::settings::StreamSettings;
use crate::cut::{CHUNK_MAX, CHUNK_MIN, first_chunk};
use crate::fingerprint::Fingerprint;
use crate::known::KnownAtPeer;
use crate::name::{ChunkName, ContainerName};
use crate::sketch::{SKETCH, sketch};
use crate::store::{Cursor, Realm};

/// Chunks that this stream has sent and that may be named before the peer says that it holds them; some 500 MB.
const SENT_MAX: usize = 1 << 16;

/// Bytes of a patch beside its copies: its mark, and the base's name half of the time.
const BASE_COST: usize = 4;
/// How much more what is copied would take as literals than the patch does, at least, by how small literals got of late. What
/// resembles something takes less than that: with 1.25 a log was a third larger than without patches; with 3 to 6 nothing was.
const PATCH_GAIN: f64 = 6.0;
/// Chunks for which no base is looked for after one was of no use, at most: a log resembles itself everywhere, and is not
/// shorter so. With 64 half of what patches bring to updates was gone.
const BASELESS_MAX: u32 = 3;

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
    compressor: Compressor,
    names: Names,
    cursor: Option<Cursor>,
    /// What the peer has of this stream, and which literal byte of the stream it began with; none of what was patched.
    sent: HashMap<ChunkName, Option<u64>>,
    /// Literal bytes before this block.
    literals_before: u64,
    operations: Vec<Operation>,
    literals: Vec<u8>,
    containers: Containers,
    patches: Patches,
}

/// What of a block is said as copies from other chunks.
#[derive(Default)]
struct Patches {
    matcher: Option<Matcher>,
    /// What the latest was of.
    last: Option<ChunkName>,
    base: Vec<u8>,
    /// Chunks that are not looked at yet, and how many after the next that was of no use.
    skip: u32,
    next_skip: u32,
    /// The copies of each, as bytes, one after the other.
    scripts: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// Chunks that the peer keeps once it has verified the block: nothing in it may refer to them.
    unverified: Vec<ChunkName>,
}

/// Those that a block names, [`CONTAINERS_MAX`] at most.
#[derive(Default)]
struct Containers(Vec<ContainerName>);

impl Containers {
    fn can_name(&self, container: ContainerName) -> bool {
        self.0.len() < CONTAINERS_MAX || self.0.contains(&container)
    }

    /// The same if another is named as well.
    fn can_name_beside(&self, container: ContainerName) -> bool {
        self.0.len() + 1 < CONTAINERS_MAX || self.0.contains(&container)
    }

    fn name(&mut self, container: ContainerName) {
        // Most often it is the one before.
        if self.0.last() != Some(&container) && !self.0.contains(&container) {
            self.0.push(container);
        }
    }
}

impl StreamEncoder {
    /// For a stream to a peer that holds `peer`.
    pub fn new(realm: Realm, peer: Arc<Mutex<KnownAtPeer>>, settings: StreamSettings) -> StreamEncoder {
        StreamEncoder {
            realm,
            peer,
            settings,
            compressor: Compressor::new(settings),
            names: Names::default(),
            cursor: None,
            sent: HashMap::new(),
            literals_before: 0,
            operations: Vec::new(),
            literals: Vec::new(),
            containers: Containers::default(),
            patches: Patches::default(),
        }
    }

    /// Appends to `out` the block of what comes next in the stream. Without `is_flush` what may still be part of a longer chunk
    /// is left; with fewer than [`CHUNK_MAX`] bytes that may be all, and then there is no block. Each call looks at what is left
    /// anew: it is not for each byte that comes. A stream that does not refer to chunks has none to wait for: nothing is
    /// left but what is beyond [`BLOCK_BYTES_MAX`].
    pub fn encode(&mut self, bytes: &[u8], is_flush: bool, out: &mut Vec<u8>) -> Encoded {
        // What comes after this block is no end.
        let is_flush = is_flush && bytes.len() <= BLOCK_BYTES_MAX;
        let bytes = &bytes[..bytes.len().min(BLOCK_BYTES_MAX)];
        self.operations.clear();
        self.literals_before += self.literals.len() as u64;
        self.literals.clear();
        self.containers.0.clear();
        self.patches.scripts.clear();
        self.patches.ends.clear();
        let mut encoded = Encoded::default();
        if !self.settings.refers && !bytes.is_empty() {
            self.literals.extend_from_slice(bytes);
            self.operations.push(Operation::Literal(bytes.len()));
            encoded.consumed = bytes.len();
        }
        while encoded.consumed < bytes.len() {
            let rest = &bytes[encoded.consumed..];
            let Some((length, found)) = self.next_chunk(rest, is_flush) else { break };
            let chunk = &rest[..length];
            if let Some(name) = found.named {
                encoded.referred += length;
                self.refer(name);
            } else {
                let kept =
                    found.fingerprint.and_then(|fingerprint| self.keep(&fingerprint, found.here, chunk));
                let copied = kept.and_then(|name| self.patch(name, chunk));
                if let Some(copied) = copied {
                    encoded.referred += copied;
                    self.patches.unverified.extend(kept);
                } else {
                    let at = self.literals_before + self.literals.len() as u64;
                    self.literals.extend_from_slice(chunk);
                    self.sent.extend(kept.map(|name| (name, Some(at))));
                }
                match (kept, self.operations.last_mut()) {
                    (Some(name), _) => {
                        self.containers.name(name.container);
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
            self.sent.extend(self.patches.unverified.drain(..).map(|name| (name, None)));
        }
        encoded
    }

    /// The next chunk's length, and what is known of it.
    fn next_chunk(&mut self, rest: &[u8], is_flush: bool) -> Option<(usize, Known)> {
        // Where a stream goes on as one before, its cuts are there too: the bytes need not be looked at for them.
        if let Some(cursor) = &mut self.cursor
            && let Some(length) = cursor.next_length()
            && (CHUNK_KEPT_MIN..=rest.len()).contains(&length)
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
        // It may be here twice: from the peer, which has lost it since, and kept once more when it was sent back; or kept here once
        // more since the peer has lost a part of the first container, and takes nothing more for that. What can be referred to
        // comes first: otherwise the first one would be found each time, and sent each time.
        let own = self.realm.origin();
        let is_own = |name: ChunkName| name.container.origin == own;
        let mut found = self.realm.find(&fingerprint, |name| self.can_refer_to(name));
        if found.as_ref().is_some_and(|found| !self.can_refer_to(found.name()) && !is_own(found.name())) {
            found = self.realm.find(&fingerprint, is_own);
        }
        if found.is_some() {
            self.cursor = found;
        }
        let here = self.cursor.as_ref().map(Cursor::name);
        let named = here.filter(|name| self.can_refer_to(*name));
        Known { fingerprint: Some(fingerprint), here, named }
    }

    /// Whether the peer holds a chunk, and it can be named in this block.
    fn can_refer_to(&self, name: ChunkName) -> bool {
        self.names.can_name(name.container.origin)
            && self.containers.can_name(name.container)
            && (self.sent.contains_key(&name) || self.peer.lock().holds(name))
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
        let can_name = |name: &ChunkName| self.containers.can_name(name.container);
        let own = here.filter(|name| name.container.origin == origin).filter(is_open).filter(can_name);
        let name = own.or_else(|| self.realm.keep(fingerprint, chunk).ok()).filter(can_name)?;
        if self.sent.len() >= SENT_MAX {
            self.sent.clear();
        }
        Some(name)
    }

    /// Says a chunk that is kept by that name as copies from one that resembles it, if that is less; how many bytes are copies.
    fn patch(&mut self, name: ChunkName, chunk: &[u8]) -> Option<usize> {
        if !self.settings.patches || chunk.len() < CHUNK_MIN {
            return None;
        }
        let sketch = sketch(chunk);
        let base = self.base_of(&sketch);
        let copied = base.and_then(|base| self.copies(base, chunk));
        let patches = &mut self.patches;
        patches.skip = patches.skip.saturating_sub(1);
        if copied.is_some() {
            patches.next_skip = 0;
        } else if base.is_some() {
            patches.skip = patches.next_skip;
            patches.next_skip = (2 * patches.next_skip + 1).min(BASELESS_MAX);
        }
        self.realm.resembles(&sketch, name);
        copied
    }

    /// A chunk that one of this sketch may be made of.
    fn base_of(&self, sketch: &[u64; SKETCH]) -> Option<ChunkName> {
        if self.patches.ends.len() == BASES_MAX || self.patches.skip > 0 {
            return None;
        }
        // What zstd has in its history it finds itself, and says shorter.
        let history = self.compressor.history_bytes();
        let is_near = |name: ChunkName| {
            let at = self.sent.get(&name).copied().flatten();
            at.is_some_and(|at| at + history >= self.literals_before)
        };
        // The chunk's own names have to find room beside it.
        let can_be_base = |name: ChunkName| {
            self.names.can_name_beside(name.container.origin)
                && self.containers.can_name_beside(name.container)
                && self.can_refer_to(name)
                && !is_near(name)
        };
        let after_last = || self.patches.last.map(ChunkName::next).filter(|name| can_be_base(*name));
        self.realm.similar(sketch, can_be_base).or_else(after_last)
    }

    fn copies(&mut self, base: ChunkName, chunk: &[u8]) -> Option<usize> {
        let patches = &mut self.patches;
        self.realm.read(base, &mut patches.base).ok()?;
        let matcher = patches.matcher.get_or_insert_default();
        let copied = matcher.find(&patches.base, chunk);
        let begin = patches.scripts.len();
        put_copies(&matcher.copies, &mut patches.scripts);
        let cost = patches.scripts.len() - begin + BASE_COST;
        if copied as f64 * self.compressor.ratio() < PATCH_GAIN * cost as f64 {
            patches.scripts.truncate(begin);
            return None;
        }
        patches.ends.push(patches.scripts.len());
        patches.last = Some(base);
        let mut at = 0;
        for copy in &matcher.copies {
            self.literals.extend_from_slice(&chunk[at..at + copy.literal]);
            at += copy.literal + copy.length;
        }
        self.literals.extend_from_slice(&chunk[at..]);
        self.containers.name(base.container);
        self.names.register(base.container.origin);
        self.operations.push(Operation::Patch(base));
        Some(copied)
    }

    fn refer(&mut self, name: ChunkName) {
        self.containers.name(name.container);
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
        let (mut operations, mut ends, mut begin) = (Vec::new(), self.patches.ends.iter(), 0);
        for operation in &self.operations {
            self.names.encode(*operation, &mut operations);
            if matches!(operation, Operation::Patch(_))
                && let Some(end) = ends.next()
            {
                operations.extend_from_slice(&self.patches.scripts[begin..*end]);
                begin = *end;
            }
        }
        let Payload { flags, window_log, bytes: payload } = self.compressor.payload(&self.literals);
        let block = Block {
            flags,
            window_log,
            stream_bytes: bytes.len(),
            literal_bytes: self.literals.len(),
            digest: refers.then(|| digest(bytes)),
            operations: &operations,
            payload,
        };
        block.put(out);
    }

    /// Lets go of the history, and of the place in the store, since the stream rests or its memory is needed; what comes next
    /// begins a new one.
    pub fn drop_history(&mut self) {
        self.compressor.drop_history();
        // It holds a container's directory and its file.
        self.cursor = None;
        // Up to a MiB of the last block.
        self.literals = Vec::new();
        self.operations = Vec::new();
    }

    /// From the next block on. Level and window are a history's own: where they are others one begins anew, unless the new level
    /// would gain less than the history that is lost.
    pub fn set(&mut self, settings: StreamSettings) {
        self.settings = settings;
        self.compressor.set(settings);
        if !settings.refers {
            // Where the stream was will not be where it is when chunks are found again.
            self.cursor = None;
        }
    }

    /// The peer has asked for a block: what it named is not there, or something else is there under a name.
    pub fn heed_missing(&mut self, missing: Option<ChunkName>) {
        let Some(missing) = missing else {
            self.sent.clear();
            return;
        };
        self.peer.lock().forget(missing);
        // Most likely the whole container is gone.
        self.sent.retain(|name, _| name.container != missing.container);
    }

    /// The answer to a peer that asked: a block of the bytes that one with references stood for. It needs neither chunks nor
    /// history; what is named in it is kept, so that it can be referred to again.
    pub fn answer(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let bytes = &bytes[..bytes.len().min(BLOCK_BYTES_MAX)];
        let mut operations = Vec::new();
        if self.settings.refers {
            self.answer_with_names(bytes, &mut operations);
        } else {
            Names::default().encode(Operation::Literal(bytes.len()), &mut operations);
        }
        let mut compressed = Vec::new();
        let Payload { flags, window_log, bytes: payload } =
            compress_alone(self.settings, bytes, &mut compressed);
        let block = Block {
            flags,
            window_log,
            stream_bytes: bytes.len(),
            literal_bytes: bytes.len(),
            digest: None,
            operations: &operations,
            payload,
        };
        block.put(out);
    }

    /// What is here under a name of this site is kept by the peer under the same.
    fn answer_with_names(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let own = self.realm.origin();
        let (mut names, mut containers, mut at) = (Names::default(), Containers::default(), 0);
        while let Some(length) = first_chunk(&bytes[at..], true) {
            let chunk = &bytes[at..at + length];
            let is_own =
                |name: ChunkName| name.container.origin == own && containers.can_name(name.container);
            let name = (length >= CHUNK_KEPT_MIN)
                .then(|| self.realm.find(&self.realm.fingerprint(chunk), is_own))
                .flatten()
                .map(|found| found.name())
                .filter(|name| is_own(*name));
            if let Some(name) = name {
                containers.name(name.container);
            }
            let operation = name.map_or(Operation::Literal(length), |name| Operation::New(length, name));
            names.encode(operation, out);
            at += length;
        }
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
