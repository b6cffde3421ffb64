//! What is told to the source of a role change, and what of its answer counts.

use farside_transfer::protocol::convert::{self, CandidateBase, Place};
use farside_transfer::protocol::{Overtaken, Swap, SwapPhase};
use prost::Message;

use super::status::Published;
use crate::error::MirrorError;
use crate::source::Overtaker;
use crate::store::Relationship;

/// A message of a role change.
pub(crate) fn swap_message(relationship: &Relationship, reverse: uuid::Uuid, phase: SwapPhase) -> Swap {
    Swap {
        relationship: relationship.id.as_bytes().to_vec(),
        reverse: reverse.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        destination: relationship.destination.to_string(),
        phase: convert::swap_phase_number(phase),
        schedule: relationship.schedule.to_string(),
        role_change: relationship.role_change,
        group: relationship.group.clone().unwrap_or_default(),
    }
}

/// That the replica was broken off, and stands on this snapshot.
pub(super) fn overtaken_message(relationship: &Relationship, stands_on: Option<&Published>) -> Overtaken {
    let candidate = |p: &Published| CandidateBase {
        uuid: p.uuid,
        content_root: p.content_root,
        size_bytes: p.size_bytes,
    };
    Overtaken {
        relationship: relationship.id.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        broken_off_at: relationship.broken_off_at.map_or(0, |at| at.0),
        snapshot: stands_on.map(|p| candidate(p).to_message()),
        destination: relationship.destination.to_string(),
        role_change: relationship.role_change,
        again: relationship.told,
        group: relationship.group.clone().unwrap_or_default(),
        ..Overtaken::default()
    }
}

/// That the replica follows, and was itself overtaken by `beyond`; or by nobody, so that `line` follows with it.
pub(super) fn beyond_message(
    relationship: &Relationship,
    beyond: Option<Overtaker>,
    line: &[Place],
) -> Overtaken {
    let follows = beyond.as_ref().map_or(line, |beyond| &beyond.places);
    Overtaken {
        relationship: relationship.id.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        destination: relationship.destination.to_string(),
        role_change: relationship.role_change,
        withdrawn: beyond.is_none(),
        broken_off_at: beyond.as_ref().map_or(0, |beyond| beyond.at.0),
        follows: convert::place_messages(follows),
        beyond: beyond.map(|beyond| beyond.by).unwrap_or_default(),
        again: relationship.told,
        ..Overtaken::default()
    }
}

/// The newest role change that the source has seen, in its answer.
pub(crate) fn newest_in<M: Message + Default>(
    answer: &[u8],
    newest: impl Fn(M) -> u64,
) -> Result<u64, MirrorError> {
    let answer = M::decode(answer).map_err(|e| MirrorError::protocol(format!("malformed answer: {e}")))?;
    Ok(convert::newest_role_change(newest(answer))?)
}
