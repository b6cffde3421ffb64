//! The newest point that both sides of a relationship hold: the source is asked.

use std::sync::Arc;
use std::time::Duration;

use farside_engine::{
    ChangedBytes, Engine, EngineError, ReplicaRecord, SnapshotOwner, SnapshotSpec, VolumeName,
};
use farside_platform::{Clock, Timestamp};
use farside_transfer::bases::{candidates, drop_left_probes, probe_name};
use farside_transfer::protocol::convert::{self, CandidateBase, Place};
use farside_transfer::protocol::{Body, Compare, Comparison};
use prost::Message;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::command::Parts;
use crate::error::{MirrorError, blocking};
use crate::links::ask;
use crate::store::Relationship;

/// What a volume must have in common with the one that it is to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparing {
    /// A point that both hold: the same snapshot, or the same content.
    CommonPoint,
    /// Nothing, if there is no such point: then all that the volume has is compared with what the source has, by fingerprints of
    /// blocks (8 bytes for each), and what is equal does not travel.
    Everything,
}

/// How a resync is asked for.
#[derive(Clone)]
pub struct ResyncRequest {
    /// What the volume must have in common with the one that it is to follow.
    pub comparing: Comparing,
    /// How long a session is waited for.
    pub link_wait: Duration,
    /// The moment that what is set aside is named by: what one command sets aside of several volumes has one. None: now.
    pub set_aside_at: Option<Timestamp>,
    /// Asked when the source has answered, before anything is changed, perhaps more than once: whoever wanted it may have thought better
    /// of it while the other site was away.
    pub may_begin: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Ends the wait for the source. What has begun goes on.
    pub given_up: CancellationToken,
}

impl ResyncRequest {
    /// One that nobody takes back.
    pub fn new(comparing: Comparing, link_wait: Duration) -> ResyncRequest {
        ResyncRequest {
            comparing,
            link_wait,
            set_aside_at: None,
            may_begin: Arc::new(|| true),
            given_up: CancellationToken::new(),
        }
    }
}

impl std::fmt::Debug for ResyncRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ResyncRequest { comparing, link_wait, .. } = self;
        f.debug_struct("ResyncRequest")
            .field("comparing", comparing)
            .field("link_wait", link_wait)
            .finish_non_exhaustive()
    }
}

/// The newest point that both sides hold, and what lies beyond it at the source.
#[derive(Clone, Debug)]
pub(crate) struct CommonBase {
    pub(crate) base: CandidateBase,
    /// What the source has written since; none if nothing is in common, and the base is what is here.
    pub(crate) incoming: Option<ChangedBytes>,
    /// The source does not show what it has of the base: it lies on a side branch there.
    pub(crate) is_beside: bool,
    /// What was taken here of the present state, to be compared.
    pub(crate) probe: Option<Uuid>,
    /// The newest role change that the source has seen. With its database this side may have lost its own count.
    pub(crate) newest: u64,
    /// What the source's volume follows itself, the nearest first; nothing if it is an original.
    pub(crate) follows: Vec<Place>,
}

/// Asks the source. Changes nothing on either side, but that the present state of a volume which no snapshot of its main line holds
/// is taken as one for the relationship: its content may be just what the source has. If it is not the base it is deleted again.
pub(crate) async fn common_base(
    parts: &Parts,
    relationship: &Relationship,
    comparing: Comparing,
    link_wait: Duration,
) -> Result<CommonBase, MirrorError> {
    let (engine, clock) = (parts.engine.clone(), parts.clock.clone());
    let uuid = uuid::Builder::from_random_bytes(parts.randomness.uuid_bytes()).into_uuid();
    let (of, volume) = (relationship.id, relationship.destination.clone());
    let probe = blocking(move || take_probe(&*engine, &*clock, &volume, of, uuid)).await?;
    let found = ask_for_base(parts, relationship, comparing, link_wait).await;
    match (found, probe) {
        (Ok(found), probe) if probe == Some(found.base.uuid) => Ok(CommonBase { probe, ..found }),
        (found, None) => found,
        (found, Some(_)) => {
            drop_probe(parts, relationship, probe).await;
            found
        }
    }
}

/// The same for a resync, which begins now unless it was given up meanwhile.
pub(crate) async fn base_to_begin_from(
    parts: &Parts,
    relationship: &Relationship,
    request: &ResyncRequest,
) -> Result<CommonBase, MirrorError> {
    let volume = &relationship.destination;
    let given_up = || {
        MirrorError::State(format!(
            "the resync of {volume} was given up before it had begun; nothing was changed"
        ))
    };
    let found = tokio::select! {
        biased;
        () = request.given_up.cancelled() => {
            let (engine, of) = (parts.engine.clone(), volume.clone());
            // What was taken to be compared.
            if let Err(error) = blocking(move || Ok::<_, MirrorError>(drop_left_probes(&*engine, &of)?)).await {
                tracing::warn!(%volume, "a snapshot that was taken to be compared stays until the next comparison: {error}");
            }
            return Err(given_up());
        }
        found = common_base(parts, relationship, request.comparing, request.link_wait) => found?,
    };
    let refused = match no_room(parts, relationship, found.incoming).await {
        Some(why) => why,
        None if (request.may_begin)() => return Ok(found),
        None => {
            drop_probe(parts, relationship, found.probe).await;
            return Err(given_up());
        }
    };
    drop_probe(parts, relationship, found.probe).await;
    Err(MirrorError::State(refused))
}

/// Why what a resync brings does not fit, if it does not: the volume would be read-only, and nothing would come. Where the engine cannot
/// tell, or where some of it has come already, the transfer begins and sees.
pub(crate) async fn no_room(
    parts: &Parts,
    relationship: &Relationship,
    incoming: Option<ChangedBytes>,
) -> Option<String> {
    if relationship.resync_pending {
        return None;
    }
    let brings = incoming?.data_bytes;
    let (engine, of) = (parts.engine.clone(), relationship.destination.clone());
    let room = blocking(move || Ok::<_, MirrorError>(engine.staging_room(&of)?)).await.ok().flatten()?;
    // What a volume has of its quota is counted to the last block only when room is really needed.
    if room.quota_bytes.is_some() {
        return None;
    }
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let Relationship { destination, .. } = relationship;
    let pool = &destination.pool;
    let to_make_room = match &room.below {
        Some(below) => format!("free some of the file system of {}", below.path),
        None => format!("farside pool grow {pool} --size SIZE"),
    };
    (brings > room.room_bytes).then(|| {
        format!(
            "the resync of {destination} brings {}, and there is room for {} in pool {pool}. {destination} is as it was: nothing was \
             changed. To make room: {to_make_room}, or delete snapshots that nobody needs (what they held comes back some seconds later)",
            mebibytes(brings),
            mebibytes(room.room_bytes)
        )
    })
}

/// Deletes what was taken to be compared. It is not pinned: at worst it goes with the next transfer, or the end of the mirror.
pub(crate) async fn drop_probe(parts: &Parts, relationship: &Relationship, probe: Option<Uuid>) {
    let Some(probe) = probe else { return };
    let (engine, volume) = (parts.engine.clone(), relationship.destination.clone());
    let dropped = blocking(move || Ok::<_, MirrorError>(engine.delete_snapshot(&volume, probe)?));
    if let Err(error) = dropped.await {
        tracing::warn!(volume = %relationship.destination, snapshot = %probe, "a snapshot that was taken to be \
             compared with the source could not be deleted; it holds space: {error}");
    }
}

fn take_probe(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    of: Uuid,
    uuid: Uuid,
) -> Result<Option<Uuid>, MirrorError> {
    // One that a crash has left serves nobody.
    drop_left_probes(engine, volume)?;
    if let Some(newest) = engine.snapshots(volume)?.pop() {
        match engine.changed_since(volume, newest.uuid) {
            Ok(changed) if changed == ChangedBytes::default() => return Ok(None),
            // Deleted by whoever it was kept for.
            Ok(_) | Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let spec = SnapshotSpec {
        name: probe_name(uuid),
        uuid,
        created_at: clock.now(),
        owner: SnapshotOwner::Relationship(of),
        pin_for: None,
    };
    Ok(Some(engine.take_snapshot(volume, &spec)?.uuid))
}

async fn ask_for_base(
    parts: &Parts,
    relationship: &Relationship,
    comparing: Comparing,
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
        let Relationship { destination, .. } = relationship;
        if comparing == Comparing::Everything
            && let Some(own) = newest_here(parts, destination, &candidates).await?
        {
            let newest = convert::newest_role_change(answer.newest)?;
            let follows = convert::places(&answer.follows)?;
            return Ok(CommonBase {
                base: own,
                incoming: None,
                is_beside: false,
                probe: None,
                newest,
                follows,
            });
        }
        // Of a volume without snapshots nothing could be.
        if candidates.is_empty() && relationship.broken_off_at.is_some() && comparing != Comparing::Everything
        {
            return Err(MirrorError::State(never_held(relationship)));
        }
        return Err(MirrorError::State(nothing_in_common(parts, relationship).await));
    };
    if !candidates.contains(&base) {
        return Err(MirrorError::protocol("the source chose a base that this site did not offer"));
    }
    convert::size(answer.size_bytes)?;
    Ok(CommonBase {
        probe: None,
        newest: convert::newest_role_change(answer.newest)?,
        follows: convert::places(&answer.follows)?,
        base,
        is_beside: answer.base_is_beside,
        incoming: Some(ChangedBytes { data_bytes: answer.data_bytes, hole_bytes: answer.hole_bytes }),
    })
}

/// What is to be said of a mirror that was broken off before its first copy was whole.
fn never_held(Relationship { source, destination, .. }: &Relationship) -> String {
    format!(
        "{destination} was broken off before a copy of {source} had arrived whole: there is no point to go on from. Nothing was changed. \
         To begin again: farside mirror delete {destination}, then farside mirror create PEER:{source} {destination}"
    )
}

/// What is to be said where no snapshot is at both sides, and what to do: by way of a third site there may be one.
async fn nothing_in_common(parts: &Parts, relationship: &Relationship) -> String {
    let Relationship { source, destination, peer, .. } = relationship;
    let (engine, of) = (parts.engine.clone(), destination.clone());
    let record = blocking(move || Ok::<_, MirrorError>(engine.replica_record(&of)?)).await.ok().flatten();
    let named = parts.links.name_of(*peer).map(|peer| format!(" --from {peer}:{source}")).unwrap_or_default();
    let is_another = |r: &ReplicaRecord| r.peer != peer.0 || r.source != source.to_string();
    let by_way = match record.filter(|r| !r.broken_off && is_another(r)) {
        Some(followed) => format!(
            "{destination} follows {followed} now: if {followed} follows {source}, or {source} follows it, farside mirror \
             update {destination} brings what both hold; then this again",
            followed = followed.source
        ),
        None => format!(
            "If a third site holds a snapshot in common with each of them (farside snapshot list), let {destination} follow \
             that first: farside mirror resync {destination} --from OTHER:POOL/VOL; then this again"
        ),
    };
    format!(
        "no snapshot of {destination} is also at the peer's {source}: there is no point to go on from. Nothing was changed. \
         {by_way}. Otherwise, if {destination} was a copy of the same data: farside mirror resync {destination}{named} --whole \
         compares everything, and what is equal does not travel. To copy everything: farside mirror create with a new volume \
         name; {destination} stays as it is"
    )
}

/// What the volume has, of the candidates: the newest on its main line.
async fn newest_here(
    parts: &Parts,
    volume: &VolumeName,
    candidates: &[CandidateBase],
) -> Result<Option<CandidateBase>, MirrorError> {
    let (engine, of) = (parts.engine.clone(), volume.clone());
    let newest = blocking(move || Ok::<_, MirrorError>(engine.snapshots(&of)?.pop())).await?;
    Ok(newest.and_then(|newest| candidates.iter().find(|c| c.uuid == newest.uuid)).copied())
}
