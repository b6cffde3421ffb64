//! The newest point that both sides of a relationship hold: the source is asked.

use std::time::Duration;

use farside_engine::{ChangedBytes, VolumeName};
use farside_transfer::bases::candidates;
use farside_transfer::protocol::convert::{self, CandidateBase};
use farside_transfer::protocol::{Body, Compare, Comparison};
use prost::Message;

use super::command::Parts;
use crate::error::{MirrorError, blocking};
use crate::links::ask;
use crate::store::Relationship;

/// The newest point that both sides hold, and what lies beyond it at the source.
#[derive(Clone, Debug)]
pub(crate) struct CommonBase {
    pub(crate) base: CandidateBase,
    /// What the source has written since.
    pub(crate) incoming: ChangedBytes,
    /// The newest role change that the source has seen. With its database this side may have lost its own count.
    pub(crate) newest: u64,
    /// What the source's volume follows itself, if it is no original.
    pub(crate) follows: Option<VolumeName>,
}

/// Asks the source. Changes nothing on either side.
pub(crate) async fn common_base(
    parts: &Parts,
    relationship: &Relationship,
    link_wait: Duration,
) -> Result<CommonBase, MirrorError> {
    let (engine, volume) = (parts.engine.clone(), relationship.destination.clone());
    let candidates = blocking(move || candidates(&*engine, &volume)).await?;
    let compare = Compare {
        relationship: relationship.id.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        destination: relationship.destination.to_string(),
        candidates: candidates.iter().map(|c| c.to_message()).collect(),
    };
    let answer = ask(&*parts.links, relationship.peer, Body::Compare(compare), link_wait).await?;
    let answer = Comparison::decode(answer)
        .map_err(|e| MirrorError::protocol(format!("malformed comparison: {e}")))?;
    let Some(base) = answer.base.as_ref().map(CandidateBase::from_message).transpose()? else {
        let Relationship { source, destination, .. } = relationship;
        return Err(MirrorError::State(format!(
            "no snapshot of {destination} is also at the peer's {source}: there is no point to go on from. Nothing \
             was changed. To copy everything: farside mirror create with a new volume name; {destination} stays as \
             it is"
        )));
    };
    if !candidates.contains(&base) {
        return Err(MirrorError::protocol("the source chose a base that this site did not offer"));
    }
    convert::size(answer.size_bytes)?;
    Ok(CommonBase {
        newest: convert::newest_role_change(answer.newest)?,
        follows: convert::places(&answer.follows)?.into_iter().next().map(|place| place.volume),
        base,
        incoming: ChangedBytes { data_bytes: answer.data_bytes, hole_bytes: answer.hole_bytes },
    })
}
