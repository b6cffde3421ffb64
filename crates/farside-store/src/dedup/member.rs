//! What takes part in deduplication: heads of volumes, their leaves and blocks.

use farside_format::fingerprint::FAN_OUT;
use farside_format::{Fingerprint, Pointer};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::view::View;

/// Leaves looked at in one step: 4 MiB of a volume. So much data is read at most before anybody hears how far it is.
pub(super) const LEAVES_PER_STEP: usize = 8;

/// A volume that takes part: its number in the pool, and its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) volume: u64,
    pub(super) head: u64,
}

/// A leaf at hand.
pub(super) struct Leaf {
    pub(super) leaf: u64,
    pub(super) own: Option<Fingerprint>,
    pub(super) pointers: Box<[Pointer; FAN_OUT]>,
}

/// A block of a head, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub(super) volume: u64,
    pub(super) head: u64,
    pub(super) block: u64,
    pub(super) pointer: Pointer,
}

/// A volume that hosts may write.
pub(super) fn check_member(state: &State, uuid: Uuid) -> Result<Member> {
    let mut volumes = state.versions.volumes.values();
    let found = volumes.find(|volume| !volume.deleted && volume.uuid == uuid.as_bytes());
    let volume = found.ok_or_else(|| StoreError::NotFound(format!("volume {uuid}")))?;
    crate::volumes::refuse_replica(state, volume, "deduplicated: its next update replaces what it holds")?;
    Ok(Member { volume: volume.id, head: volume.head })
}

/// A head as it is now, if it is the head still.
pub(super) fn head_view(pool: &Pool, member: Member) -> Option<View> {
    let state = pool.locked();
    let volume = state.versions.volumes.get(&member.volume)?;
    if volume.deleted || volume.head != member.head {
        return None;
    }
    Some(state.view(state.versions.versions.get(&member.head)?))
}
