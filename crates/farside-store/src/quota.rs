//! A volume's quota: how a write learns whether it fits, and makes room for itself where something of the volume may come back.
//!
//! A write counts by what it adds: a block that it replaces, and that nothing else has, goes. Far from the quota nobody looks
//! what is replaced. Near it a write looks up its blocks, in memory as a rule, and only that decides. So a volume that is full
//! to the last block can be overwritten in place for ever, at the price of that look.
//!
//! Two looks: one before the write takes room, which may wait for points and the reaper; and one in the moment in which the
//! mapping changes, under the state lock, which counts.

use farside_format::Pointer;
use farside_platform::BLOCK_BYTES;

use crate::delta;
use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::space::SpaceClass;
use crate::versions::VersionState;

/// How often one write looks for room again while others take what comes back.
pub(crate) const QUOTA_ROUNDS_MAX: u32 = 64;

/// A write that fits: what is known of what it ends.
pub(crate) enum Charge {
    /// Nobody looked.
    NotLooked,
    /// So many blocks on the medium end with the next point.
    Ending(u64),
}

impl Charge {
    /// Notes it, once the mapping of `blocks` has changed; `is_all` unless a part was left out after all.
    pub(crate) fn note(&self, state: &mut State, version: u64, blocks: u64, is_all: bool) {
        let ending = match self {
            Charge::Ending(blocks) if is_all => Some(*blocks),
            _ => None,
        };
        state.versions.changed(version, blocks, ending);
    }
}

/// What a range of blocks replaces that is the volume's own.
#[derive(Clone, Copy, Default)]
struct Replaced {
    /// Blocks in all.
    own: u64,
    /// Of those, the ones that end with a point, not at once.
    on_medium: u64,
}

/// A quota that would be passed.
struct Over {
    error: StoreError,
    /// Blocks by which it is.
    by: u64,
    may_settle: bool,
    may_be_reaped: bool,
}

impl Pool {
    /// Sees to it that a write of `data` blocks to `ranges`, (first, count) each, fits the quota of the version's volume.
    pub(crate) fn seek_quota(
        &self,
        version: u64,
        data: u64,
        ranges: impl Fn() -> Vec<(u64, u64)>,
    ) -> Result<()> {
        for _ in 0..QUOTA_ROUNDS_MAX {
            let Some(over) = beyond_quota(&self.locked(), version, data) else { return Ok(()) };
            if self.own_in(version, &ranges())?.own >= over.by {
                return Ok(());
            }
            if !over.may_settle && !over.may_be_reaped {
                return Err(over.error);
            }
            // One at a time: who comes next finds the work done.
            let _turn = self.room_turn.lock();
            match self.consistency_point() {
                // What is reaped may give it room.
                Err(StoreError::NoRoomForPoint { .. }) => {}
                result => result?,
            }
            let may_be_reaped =
                || beyond_quota(&self.locked(), version, data).is_some_and(|over| over.may_be_reaped);
            while may_be_reaped() && self.reap_step()? {}
            let Some(over) = beyond_quota(&self.locked(), version, data) else { return Ok(()) };
            if !over.may_settle && self.own_in(version, &ranges())?.own < over.by {
                return Err(over.error);
            }
        }
        match beyond_quota(&self.locked(), version, data) {
            Some(over) => Err(over.error),
            None => Ok(()),
        }
    }

    /// Whether a write of `data` blocks to `ranges` fits the quota now, with the state locked until its mapping has changed.
    pub(crate) fn charge(
        &self,
        state: &State,
        version: u64,
        data: u64,
        ranges: impl Fn() -> Vec<(u64, u64)>,
    ) -> Result<Charge> {
        let Some(over) = beyond_quota(state, version, data) else { return Ok(Charge::NotLooked) };
        let replaced = self.replaced_in(state, version, &ranges())?;
        if replaced.own < over.by {
            return Err(over.error);
        }
        Ok(Charge::Ending(replaced.on_medium))
    }

    /// Tells whoever asks for the room of the volume that its host was refused.
    pub(crate) fn note_refusal<T>(&self, version: u64, class: SpaceClass, result: &Result<T>) {
        if class == SpaceClass::Host && matches!(result, Err(StoreError::OverQuota { .. })) {
            self.locked().versions.refused(version);
        }
    }

    /// The same for a write that waits for nobody: whether it fits without a look.
    pub(crate) fn fits_at_once(&self, state: &State, version: u64, data: u64) -> bool {
        beyond_quota(state, version, data).is_none()
    }

    /// Looks without the lock, so that the nodes are in memory when it counts.
    fn own_in(&self, version: u64, ranges: &[(u64, u64)]) -> Result<Replaced> {
        let _reading = self.readers.read();
        let view = {
            let state = self.locked();
            let Some(found) = state.versions.versions.get(&version) else { return Ok(Replaced::default()) };
            state.view(found)
        };
        let mut seen = Vec::new();
        for (first, count) in ranges {
            seen.clear();
            view.lookup(&self.nodes, *first, *count, &mut seen)?;
        }
        let state = self.locked();
        self.replaced_in(&state, version, ranges)
    }

    fn replaced_in(&self, state: &State, version: u64, ranges: &[(u64, u64)]) -> Result<Replaced> {
        let found = state.versions.version(version)?;
        let (view, holder) = (state.view(found), state.versions.holder_of(found));
        let mut replaced = Replaced::default();
        let mut seen: Vec<Pointer> = Vec::new();
        for (first, count) in ranges {
            seen.clear();
            view.lookup(&self.nodes, *first, *count, &mut seen)?;
            for (block, pointer) in (*first..).zip(&seen) {
                if pointer.is_hole() || pointer.is_lost() || pointer.birth <= holder.at_block(block) {
                    continue;
                }
                replaced.own += 1;
                replaced.on_medium += u64::from(!is_in_memory(found, block));
            }
        }
        Ok(replaced)
    }
}

/// Whether the changes since the last capture say where a block lies: what they say is replaced at once.
fn is_in_memory(version: &VersionState, block: u64) -> bool {
    version.delta.as_ref().is_some_and(|delta| delta::covers(delta, version.level(), block))
}

/// Whether `data` blocks more, nothing of the volume being replaced, would pass the quota.
fn beyond_quota(state: &State, version: u64, data: u64) -> Option<Over> {
    let (volume, limits) = state.versions.limits_of(version)?;
    // What only makes room is never refused.
    if limits.quota_bytes == 0 || data == 0 {
        return None;
    }
    let block = BLOCK_BYTES as u64;
    let usage = state.versions.usage_of(volume);
    let by = (usage.alive() + data).saturating_sub(limits.quota_bytes / block);
    if by == 0 {
        return None;
    }
    let error = StoreError::OverQuota {
        volume: state.versions.volumes.get(&volume).map_or_else(String::new, |v| state.full_name(&v.name)),
        quota_bytes: limits.quota_bytes,
        occupied_bytes: usage.alive() * block,
        needed_bytes: data * block,
    };
    let is_going = |v: &VersionState| v.volume == volume && v.deleted && !v.stuck && !v.is_in_use();
    let may_be_reaped = state.versions.versions.values().any(is_going);
    Some(Over { error, by, may_settle: usage.may_settle(), may_be_reaped })
}
