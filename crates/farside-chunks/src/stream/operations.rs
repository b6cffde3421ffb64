//! What a block consists of, and the names in it. Pure.

use crate::name::{ChunkName, ContainerName, OriginId};
use crate::varint::{put, take};

/// Origins that one direction of a stream names at most. A stream that meets more sends what they made anew.
const ORIGINS_MAX: usize = 256;

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Bytes that are no chunk.
    Literal(usize),
    /// Bytes that both sides keep by that name.
    New(usize, ChunkName),
    /// So many chunks from that one on.
    Reference(u16, ChunkName),
    /// The operation after it is a chunk made of that one, by the copies that follow.
    Patch(ChunkName),
}

/// The names that one direction of a stream has used. Both sides have the same.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// And whether each was said already.
    origins: Vec<(OriginId, bool)>,
    last: Option<ChunkName>,
    /// What the latest patch was of.
    last_base: Option<ChunkName>,
}

const LITERAL: u64 = 0;
const NEXT: u64 = 1;
const NEW: u64 = 2;
const REFERENCE: u64 = 3;

impl Names {
    /// Whether chunks of that origin can be named.
    pub(super) fn can_name(&self, origin: OriginId) -> bool {
        self.origins.len() < ORIGINS_MAX || self.origins.iter().any(|(known, _)| *known == origin)
    }

    /// The same if another origin is named as well.
    pub(super) fn can_name_beside(&self, origin: OriginId) -> bool {
        self.origins.len() + 1 < ORIGINS_MAX || self.origins.iter().any(|(known, _)| *known == origin)
    }

    /// A chunk of that origin will be named: from here on it has a number. To be called in the order in which they are encoded.
    pub(super) fn register(&mut self, origin: OriginId) {
        if self.origins.iter().all(|(known, _)| *known != origin) {
            self.origins.push((origin, false));
        }
    }

    pub(super) fn encode(&mut self, operation: Operation, out: &mut Vec<u8>) {
        match operation {
            Operation::Literal(bytes) => put(out, (bytes as u64) << 2 | LITERAL),
            Operation::New(bytes, name) => {
                let is_next = self.last.is_some_and(|last| last.next() == name);
                put(out, (bytes as u64) << 2 | if is_next { NEXT } else { NEW });
                if !is_next {
                    self.put_name(name, out);
                }
                self.last = Some(name);
            }
            Operation::Reference(count, name) => {
                put(out, u64::from(count) << 2 | REFERENCE);
                self.put_name(name, out);
                self.last = Some(last_of(count, name));
            }
            Operation::Patch(base) => {
                put(out, REFERENCE);
                let is_next = self.last_base.is_some_and(|last| last.next() == base);
                put(out, u64::from(!is_next));
                if !is_next {
                    self.put_name(base, out);
                }
                self.last_base = Some(base);
            }
        }
    }

    fn put_name(&mut self, name: ChunkName, out: &mut Vec<u8>) {
        let origin = name.container.origin;
        self.register(origin);
        for (number, (known, is_said)) in self.origins.iter_mut().enumerate() {
            if *known == origin {
                put(out, number as u64);
                if !std::mem::replace(is_said, true) {
                    out.extend_from_slice(&origin.0);
                }
            }
        }
        put(out, name.container.number);
        put(out, u64::from(name.place));
    }

    /// None for what is no operation.
    pub(super) fn decode(&mut self, bytes: &mut &[u8]) -> Option<Operation> {
        let number = take(bytes)?;
        let (count, kind) = (number >> 2, number & 3);
        let length = usize::try_from(count).ok()?;
        Some(match kind {
            LITERAL => Operation::Literal(length),
            NEXT => {
                let name = self.last?.next();
                self.last = Some(name);
                Operation::New(length, name)
            }
            NEW => {
                let name = self.take_name(bytes)?;
                self.last = Some(name);
                Operation::New(length, name)
            }
            _ if count == 0 => {
                let base = match take(bytes)? {
                    0 => self.last_base?.next(),
                    1 => self.take_name(bytes)?,
                    _ => return None,
                };
                self.last_base = Some(base);
                Operation::Patch(base)
            }
            _ => {
                let count = u16::try_from(count).ok()?;
                let name = self.take_name(bytes)?;
                self.last = Some(last_of(count, name));
                Operation::Reference(count, name)
            }
        })
    }

    fn take_name(&mut self, bytes: &mut &[u8]) -> Option<ChunkName> {
        let known = usize::try_from(take(bytes)?).ok()?;
        if known == self.origins.len() && known < ORIGINS_MAX {
            let (origin, rest) = bytes.split_at_checked(16)?;
            *bytes = rest;
            self.origins.push((OriginId(origin.try_into().ok()?), true));
        }
        let (origin, _) = *self.origins.get(known)?;
        let number = take(bytes)?;
        let place = u16::try_from(take(bytes)?).ok()?;
        Some(ChunkName { container: ContainerName { origin, number }, place })
    }
}

fn last_of(count: u16, first: ChunkName) -> ChunkName {
    ChunkName { place: first.place.saturating_add(count.saturating_sub(1)), ..first }
}
