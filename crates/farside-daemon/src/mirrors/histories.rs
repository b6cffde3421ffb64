//! Groups that two sites know. Groups of two histories: hosts went on here in one part, and another was given back, or never was taken over.
//! A change of roles would make one of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use farside_api as api;
use farside_api::split::{Split, splits};
use farside_api::{ErrorBody, ErrorCode};
use farside_engine::VolumeName;
use farside_mirror::{Mirror, MirrorStatus, Relationship, SourceHeard, SourceRelationship, State};
use farside_peer::PeerId;
use farside_transfer::protocol::group::NO_ONE_MOMENT;

use super::role_changes::Together;
use super::{Mirrors, one_moment};
use crate::failure::Failure;

/// Volumes here, by the peer and the group that they are of.
pub(super) type OfGroups = HashMap<(PeerId, String), HashSet<VolumeName>>;

/// How many of a group of `size` mirrors at `peer` that site has not taken over from here, and do not follow it here.
pub(super) fn rest_of_group(known: &OfGroups, group: &str, size: u32, peer: PeerId) -> u32 {
    let known = known.get(&(peer, group.to_owned())).map_or(0, HashSet::len);
    size.saturating_sub(u32::try_from(known).unwrap_or(u32::MAX))
}

/// A mirror whose pool does not answer keeps nobody from an update of the others.
const SEEN_WITHIN: Duration = Duration::from_millis(500);
/// How long the update after a change of roles waits for a session.
const TO_ONE_MOMENT_PATIENCE: Duration = Duration::from_secs(30);

impl Mirrors {
    /// The group that a volume here is in at the site that has taken it over as `destination`.
    pub(crate) fn group_there(
        &self,
        volume: &VolumeName,
        peer: PeerId,
        destination: &VolumeName,
    ) -> Option<String> {
        let overtaken = self.parts.source.overtaken();
        let is_it =
            |r: &&SourceRelationship| r.source == *volume && r.peer == peer && r.destination == *destination;
        overtaken.iter().find(is_it)?.overtaken.as_ref()?.group.clone().map(|(name, _)| name)
    }

    /// The group of a volume that follows `source` of a peer, or is to: its mirror's here, else that at the other site.
    pub(crate) fn group_of(&self, volume: &VolumeName, peer: PeerId, source: &VolumeName) -> Option<String> {
        let own = self.mirror(volume).ok().map(|mirror| mirror.status().relationship);
        let own = own.filter(|own| own.peer == peer && own.source == *source).and_then(|own| own.group);
        own.or_else(|| self.group_there(volume, peer, source))
    }

    /// Volumes here that a site has taken over, and that are in this group there.
    pub(crate) fn of_group_there(&self, group: &str, peer: PeerId) -> Vec<VolumeName> {
        let overtaken = self.parts.source.overtaken().into_iter();
        let is_of_it = |r: &SourceRelationship| {
            let of = r.overtaken.as_ref().filter(|o| o.beyond.is_none() && !o.ended);
            r.peer == peer && of.is_some_and(|o| o.group.as_ref().is_some_and(|(name, _)| name == group))
        };
        overtaken.filter(is_of_it).map(|r| r.source).collect()
    }

    /// Volumes here of each group of a peer: what it has taken over from here, and what follows it here.
    pub(super) fn of_groups(&self) -> OfGroups {
        let mut known = OfGroups::default();
        for of in self.parts.source.overtaken() {
            let overtaken = of.overtaken.filter(|o| o.beyond.is_none() && !o.ended);
            if let Some((group, _)) = overtaken.and_then(|o| o.group) {
                known.entry((of.peer, group)).or_default().insert(of.source);
            }
        }
        // The way back of an original is in the group as well, and its volume follows nobody.
        let follows = self.statuses().into_iter().filter(|status| status.state != State::BrokenOff);
        for of in follows.map(|status| status.relationship) {
            if let Some(group) = of.group {
                known.entry((of.peer, group)).or_default().insert(of.destination);
            }
        }
        known
    }

    /// The mirrors of a group are of one site, and their replicas in one pool: only that is of one moment, and changes in one record.
    pub(crate) fn check_group(
        &self,
        group: Option<&str>,
        peer: PeerId,
        destination: &VolumeName,
    ) -> Result<(), ErrorBody> {
        let Some(group) = group else { return Ok(()) };
        let engine = &self.parts.engine;
        engine.need_together(&destination.pool, NO_ONE_MOMENT).map_err(Failure::into_error_body)?;
        let is_elsewhere = |r: &Relationship| {
            r.group.as_deref() == Some(group) && (r.peer != peer || r.destination.pool != destination.pool)
        };
        // What was broken off from a site that is not paired any more is in no group that anybody could use.
        let is_over =
            |status: &MirrorStatus| status.state == State::BrokenOff && self.peer_of(status).is_none();
        let of =
            self.statuses().into_iter().filter(|status| !is_over(status)).map(|status| status.relationship);
        match of.into_iter().find(is_elsewhere) {
            None => Ok(()),
            Some(other) => Err(ErrorBody::new(
                ErrorCode::Refused,
                format!(
                    "group {group} is of mirrors from one site into pool {}, {} among them; {destination} is of another site or pool. \
                     Nothing was changed",
                    other.destination.pool, other.destination
                ),
            )
            .hint("choose another name for this group")),
        }
    }

    /// A volume that follows who has taken it over is of the same group as there: what is done with all of it takes it along. One that is in
    /// a group here stays in that.
    pub(crate) async fn join_group(&self, mirror: &Mirror, group: String) {
        let known = mirror.status().relationship;
        if known.group.is_some() || self.check_group(Some(&group), known.peer, &known.destination).is_err() {
            return;
        }
        if let Err(error) = mirror.set_group(Some(group.clone())).await {
            tracing::warn!(
                volume = %known.destination, group,
                "the volume is not in the group that it is in at the other site; farside mirror set puts it there: {error}"
            );
        }
    }

    /// Has the group of a volume updated if its volumes show different moments, and waits for that. Answers whether it is decided: while one of
    /// them is under way nobody knows.
    pub(crate) async fn to_one_moment_within(&self, volume: &VolumeName, patience: Duration) -> bool {
        let statuses = self.statuses();
        let Some(key) = statuses
            .iter()
            .map(|status| &status.relationship)
            .find(|r| r.destination == *volume)
            .and_then(|r| Some((r.group.clone()?, r.peer, r.destination.pool.clone())))
        else {
            return true;
        };
        let is_of_it = |status: &&MirrorStatus| {
            let of = &status.relationship;
            (of.group.as_ref(), of.peer, &of.destination.pool) == (Some(&key.0), key.1, &key.2)
        };
        let members: Vec<&MirrorStatus> = statuses.iter().filter(is_of_it).collect();
        // Beside one that a person has broken off nothing is updated.
        let is_kept =
            |m: &&MirrorStatus| m.state == State::BrokenOff && m.source_heard != Some(SourceHeard::Follows);
        if members.iter().any(is_kept) {
            return true;
        }
        match one_moment::differ(&members) {
            None => return false,
            Some(false) => return true,
            Some(true) => {}
        }
        let Ok(mirror) = self.mirror(volume) else { return true };
        let updated = async { mirror.update(patience).await?.ended().await };
        if let Ok(Err(error)) = tokio::time::timeout(patience, updated).await {
            tracing::info!(
                %volume, group = key.0,
                "the group shows different moments since this volume follows; its next update brings it to one: {error}"
            );
        }
        true
    }

    /// What else of the group of `of` the site that it follows has taken over from here, and does not follow there yet; none if nothing is.
    pub(crate) fn left_behind_with(&self, of: &Relationship) -> Option<(String, Vec<VolumeName>)> {
        let group = of.group.clone()?;
        let follows = |volume: &VolumeName| {
            self.mirror(volume).is_ok_and(|mirror| mirror.status().state != State::BrokenOff)
        };
        let mut left = self.of_group_there(&group, of.peer);
        left.retain(|volume| {
            *volume != of.destination && volume.pool == of.destination.pool && !follows(volume)
        });
        (!left.is_empty()).then_some((group, left))
    }

    /// A person has asked for an update of the group of `of`: what there is to be seen of the others was seen with it.
    pub(crate) async fn seen_with(&self, of: &Relationship) {
        let Some(group) = &of.group else { return };
        for other in self.statuses().into_iter().map(|status| status.relationship) {
            let is_of_it = other.group.as_ref() == Some(group)
                && (other.peer, &other.destination.pool) == (of.peer, &of.destination.pool)
                && other.id != of.id;
            // It is as good as unseen where it cannot be said: the notice stays.
            if is_of_it && let Ok(mirror) = self.mirror(&other.destination) {
                let _ = tokio::time::timeout(SEEN_WITHIN, mirror.seen()).await;
            }
        }
    }

    /// The group of two histories that the volume is of, with what to type here; none if it is of none.
    pub(crate) fn of_two_histories(&self, volume: &VolumeName) -> Option<Split> {
        let statuses = self.statuses();
        let of = statuses.iter().find(|status| status.relationship.destination == *volume)?;
        let group = of.relationship.group.as_deref()?;
        let now = self.parts.clock.now();
        let of_name = statuses.iter().filter(|status| status.relationship.group.as_deref() == Some(group));
        let documents: Vec<api::Mirror> = of_name.map(|status| self.document(status, now)).collect();
        let name = volume.to_string();
        splits(&documents).into_iter().find(|split| split.is_parted() && split.has(&name))
    }
}

#[async_trait]
impl Together for Mirrors {
    fn of_two_histories(&self, volume: &VolumeName) -> Option<String> {
        Mirrors::of_two_histories(self, volume).map(|split| split.said())
    }

    async fn join(&self, volume: &VolumeName, group: String) {
        if let Ok(mirror) = self.mirror(volume) {
            self.join_group(&mirror, group).await;
        }
    }

    async fn to_one_moment(&self, volume: &VolumeName) -> bool {
        self.to_one_moment_within(volume, TO_ONE_MOMENT_PATIENCE).await
    }
}
