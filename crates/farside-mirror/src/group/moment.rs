//! How the source is asked for one moment of all volumes of a group.

use std::collections::BTreeMap;
use std::sync::Arc;

use farside_engine::Engine;
use farside_peer::PeerLink;
use farside_platform::{Clock, Randomness};
use farside_transfer::calls::call;
use farside_transfer::protocol::group::{self, GroupMoment, NO_ONE_MOMENT, Reservation};
use farside_transfer::protocol::{Body, ReserveTogether, ReservedTogether};
use prost::Message;
use uuid::Uuid;

use super::member::{GroupKey, Member};
use crate::error::{MirrorError, blocking};
use crate::source::SourceService;

/// What a member works with when it joins.
pub(crate) struct Joining<'a> {
    pub(crate) key: GroupKey,
    pub(crate) id: Uuid,
    pub(crate) link: &'a dyn PeerLink,
    /// Says which volumes here have become originals.
    pub(crate) source: &'a SourceService,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) randomness: &'a dyn Randomness,
}

/// Asks the source for a moment of all members.
pub(super) async fn ask(
    engine: Arc<dyn Engine>,
    joining: &Joining<'_>,
    members: &BTreeMap<Uuid, Member>,
) -> Result<BTreeMap<Uuid, GroupMoment>, MirrorError> {
    // Not to be found out when everything has been brought.
    engine.need_together(&joining.key.pool, NO_ONE_MOMENT)?;
    let of = members.clone();
    // The pool's own word: a driver may not yet have heard of what it has published.
    let shown = blocking(move || {
        let shows = |(id, member): (&Uuid, &Member)| {
            let snapshots = engine.snapshots(&member.volume)?;
            Ok::<_, MirrorError>(snapshots.iter().rev().find(|s| s.pinned_by.contains(id)).map(|s| s.uuid))
        };
        of.iter().map(shows).collect::<Result<Vec<_>, _>>()
    })
    .await?;
    let reservation = |((id, member), shows): ((&Uuid, &Member), Option<Uuid>)| Reservation {
        relationship: *id,
        transfer: uuid::Builder::from_random_bytes(joining.randomness.uuid_bytes()).into_uuid(),
        volume: member.source.clone(),
        role_change: member.role_change,
        shows,
    };
    let asked: Vec<Reservation> = members.iter().zip(shown).map(reservation).collect();
    let message = ReserveTogether { members: asked.iter().map(Reservation::to_message).collect() };
    let answer = call(joining.link, Body::ReserveTogether(message), None).await;
    let answer = answer.map_err(|error| MirrorError::NotTogether {
        group: joining.key.name.clone(),
        error: Box::new(error),
    })?;
    let answer = ReservedTogether::decode(answer)
        .map_err(|e| MirrorError::State(format!("the source's answer cannot be read: {e}")))?;
    let moments = group::moments(&answer, asked.len())
        .map_err(|e| MirrorError::State(format!("the source's answer cannot be used: {e}")))?;
    Ok(asked.iter().map(|r| r.relationship).zip(moments).collect())
}
