//! What the other site is known to hold: of each container, which places. Pure.
//!
//! A site names only what the other has said it holds. It says so as chunks arrive ([`Holdings`]), and all of it at the
//! beginning of a session, some five bytes a container: the containers of 500 GB are 150 KB. It also says what it
//! no longer holds. If it is wrong all the same, it asks for the chunk.

use std::collections::HashMap;

use crate::container::CHUNKS_PER_CONTAINER;
use crate::name::{ChunkName, ContainerName, OriginId};
use crate::ranges::Ranges;
use crate::varint::{put, take};

/// Containers and which places of each are held; none of one that has gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings(pub Vec<(ContainerName, Ranges)>);

/// Containers in one message at most; more are said in several.
pub const HOLDINGS_MAX: usize = 4096;

impl Holdings {
    /// As bytes: for each origin its 16 bytes, how many containers (LEB128), and for each the difference to the number
    /// before, how many ranges, and for each the places since the range before and in it. Origins and numbers ascend; no
    /// container is said twice. At most [`HOLDINGS_MAX`] are written; what is left is returned.
    pub fn encode(mut self, out: &mut Vec<u8>) -> Holdings {
        let rest = if self.0.len() > HOLDINGS_MAX { self.0.split_off(HOLDINGS_MAX) } else { Vec::new() };
        self.0.sort_unstable_by_key(|(name, _)| *name);
        for of_origin in self.0.chunk_by(|a, b| a.0.origin == b.0.origin) {
            out.extend_from_slice(&of_origin[0].0.origin.0);
            put(out, of_origin.len() as u64);
            let mut before = 0;
            for (name, ranges) in of_origin {
                put(out, name.number - before);
                before = name.number;
                put(out, ranges.pairs().len() as u64);
                let mut end_before = 0;
                for (first, end) in ranges.pairs() {
                    put(out, u64::from(first - end_before));
                    put(out, u64::from(end - first));
                    end_before = *end;
                }
            }
        }
        Holdings(rest)
    }

    /// The other way. None for bytes that are no such message, or for more than [`HOLDINGS_MAX`] containers.
    pub fn decode(mut bytes: &[u8]) -> Option<Holdings> {
        let mut holdings: Vec<(ContainerName, Ranges)> = Vec::new();
        while !bytes.is_empty() {
            let (origin, rest) = bytes.split_first_chunk()?;
            let origin = OriginId(*origin);
            bytes = rest;
            let mut number = 0u64;
            for _ in 0..take(&mut bytes)? {
                number = number.checked_add(take(&mut bytes)?)?;
                let name = ContainerName { origin, number };
                let is_next = holdings.last().is_none_or(|(before, _)| *before < name);
                if !is_next || holdings.len() == HOLDINGS_MAX {
                    return None;
                }
                holdings.push((name, take_ranges(&mut bytes)?));
            }
        }
        Some(Holdings(holdings))
    }
}

fn take_ranges(bytes: &mut &[u8]) -> Option<Ranges> {
    let (mut pairs, mut end) = (Vec::new(), 0u64);
    for _ in 0..take(bytes)? {
        let first = end.checked_add(take(bytes)?)?;
        end = first.checked_add(take(bytes)?).filter(|end| *end <= u64::from(CHUNKS_PER_CONTAINER))?;
        pairs.push((first as u16, end as u16));
        if pairs.len() > crate::ranges::RANGES_MAX {
            return None;
        }
    }
    Ranges::from_pairs(pairs)
}

/// What the peer of a realm holds.
#[derive(Clone, Debug, Default)]
pub struct KnownAtPeer {
    held: HashMap<ContainerName, Ranges>,
}

/// Containers of a peer that are remembered: those of 16 TiB. What it says beyond that is not used.
const CONTAINERS_MAX: usize = 1 << 20;

impl KnownAtPeer {
    /// The peer holds this, or no longer does.
    pub fn heed(&mut self, holdings: &Holdings) {
        for (name, ranges) in &holdings.0 {
            if ranges.is_empty() {
                self.held.remove(name);
            } else if self.held.len() < CONTAINERS_MAX || self.held.contains_key(name) {
                self.held.insert(*name, ranges.clone());
            }
        }
    }

    /// It has sent a chunk by this name, so it holds it.
    pub fn note(&mut self, name: ChunkName) {
        if self.held.len() < CONTAINERS_MAX || self.held.contains_key(&name.container) {
            self.held.entry(name.container).or_default().insert(name.place);
        }
    }

    /// It has asked for a chunk that was named to it: neither this nor what comes after it without a gap is named again
    /// before the peer says that it holds it.
    pub fn forget(&mut self, name: ChunkName) {
        if let Some(ranges) = self.held.get_mut(&name.container) {
            ranges.cut(name.place);
            if ranges.is_empty() {
                self.held.remove(&name.container);
            }
        }
    }

    /// It has cleared its store, or is another one.
    pub fn clear(&mut self) {
        self.held.clear();
    }

    /// Whether it may be named to the peer.
    pub fn holds(&self, name: ChunkName) -> bool {
        self.held.get(&name.container).is_some_and(|ranges| ranges.has(name.place))
    }

    /// Whether it holds anything of a container.
    pub fn holds_some_of(&self, container: ContainerName) -> bool {
        self.held.contains_key(&container)
    }

    /// Containers of which it holds something.
    pub fn containers(&self) -> usize {
        self.held.len()
    }
}
