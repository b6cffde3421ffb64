//! Where else the content of the leaves at hand may lie: the table's hints, looked up in the maps as they are now.

use std::collections::{HashMap, HashSet, VecDeque};

use farside_format::fingerprint::FAN_OUT;
use farside_format::{Fingerprint, Pointer};
use farside_platform::BLOCK_BYTES;

use super::Dedup;
use super::member::{At, Leaf, Member, head_view};
use crate::error::Result;
use crate::fingerprint_index::{LeafAt, short};

/// Leaves looked up for one step at most: where each of 1024 blocks lies beside others elsewhere, a step stays bounded.
const LEAVES_LOOKED_UP_MAX: usize = 2048;
/// Of those, leaves between two tellings of the pace.
const LEAVES_PER_READ: usize = 32;
/// Places remembered of one content.
const PLACES_MAX: usize = 4;

/// Contents of blocks at hand to where else they lie.
pub(super) type Candidates = HashMap<Fingerprint, Vec<At>>;

impl Dedup {
    /// Looks for the contents of `own` in what the table leads to. What lies beside a match is looked at too where the table keeps a
    /// sample only: content that was copied in one piece lies side by side.
    pub(super) fn candidates(
        &self,
        members: &[Member],
        leaves: &[Leaf],
        own: &[At],
        pace: &mut dyn FnMut(u64),
    ) -> Result<Candidates> {
        let wanted: HashSet<Fingerprint> = own.iter().map(|at| at.pointer.fingerprint).collect();
        let is_sample = self.index.table.sampling_bits() > 0;
        let mut queue: VecDeque<LeafAt> = self.follow.iter().copied().collect();
        for leaf in leaves.iter().filter_map(|leaf| leaf.own) {
            queue.extend(self.index.table.leaf(short(leaf)));
        }
        for at in own {
            queue.extend(self.index.table.block(short(at.pointer.fingerprint)));
        }
        let mut seen: HashSet<LeafAt> = HashSet::new();
        let mut found = Candidates::new();
        let mut reads = self.pool.nodes.reads();
        while let Some(at) = queue.pop_front() {
            if seen.len() >= LEAVES_LOOKED_UP_MAX || !seen.insert(at) {
                continue;
            }
            let Some(member) = members.iter().find(|member| member.volume == at.volume) else { continue };
            let Some(pointers) = self.leaf_now(*member, at.leaf)? else { continue };
            if enter(&mut found, &wanted, *member, at.leaf, &pointers) && is_sample {
                queue.extend(at.leaf.checked_sub(1).map(|leaf| LeafAt { leaf, ..at }));
                queue.push_back(LeafAt { leaf: at.leaf + 1, ..at });
            }
            if seen.len().is_multiple_of(LEAVES_PER_READ) {
                let now = self.pool.nodes.reads();
                pace(now.saturating_sub(reads) * BLOCK_BYTES as u64);
                reads = now;
            }
        }
        Ok(found)
    }

    /// The mappings of a leaf of a head as they are now; none if there is no such head any more.
    fn leaf_now(&self, member: Member, leaf: u64) -> Result<Option<[Pointer; FAN_OUT]>> {
        let _reading = self.pool.readers.read();
        let Some(view) = head_view(&self.pool, member) else { return Ok(None) };
        view.leaf(&self.pool.nodes, leaf).map(Some)
    }
}

/// Remembers what of a leaf is wanted; whether there was any that was not known.
fn enter(
    found: &mut Candidates,
    wanted: &HashSet<Fingerprint>,
    Member { volume, head }: Member,
    leaf: u64,
    pointers: &[Pointer; FAN_OUT],
) -> bool {
    let mut is_new = false;
    for (pointer, block) in pointers.iter().zip(leaf * FAN_OUT as u64..) {
        if pointer.is_hole() || pointer.is_lost() || !wanted.contains(&pointer.fingerprint) {
            continue;
        }
        let places = found.entry(pointer.fingerprint).or_default();
        is_new |= places.is_empty();
        if places.len() < PLACES_MAX {
            places.push(At { volume, head, block, pointer: *pointer });
        }
    }
    is_new
}
