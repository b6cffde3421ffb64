//! Groups of two histories: hosts went on here in one part, and another was given back. A change of roles would make one of them.

use farside_api as api;
use farside_engine::VolumeName;
use farside_mirror::SourceRelationship;
use farside_peer::PeerId;

use super::Mirrors;

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
        overtaken.iter().find(is_it)?.overtaken.as_ref()?.group.clone()
    }

    /// Volumes here that a site has taken over, and that are in this group there.
    pub(crate) fn of_group_there(&self, group: &str, peer: PeerId) -> Vec<VolumeName> {
        let overtaken = self.parts.source.overtaken().into_iter();
        let is_of_it = |r: &SourceRelationship| {
            let of = r.overtaken.as_ref().filter(|o| o.beyond.is_none() && !o.ended);
            r.peer == peer && of.is_some_and(|o| o.group.as_deref() == Some(group))
        };
        overtaken.filter(is_of_it).map(|r| r.source).collect()
    }

    /// That the volume is of such a group, with what to type here instead; none if it is not.
    pub(crate) fn of_two_histories(&self, volume: &VolumeName) -> Option<String> {
        let statuses = self.statuses();
        let of = statuses.iter().find(|status| status.relationship.destination == *volume)?;
        let group = of.relationship.group.as_deref()?;
        let now = self.parts.clock.now();
        let of_name = statuses.iter().filter(|status| status.relationship.group.as_deref() == Some(group));
        let documents: Vec<api::Mirror> = of_name.map(|status| self.document(status, now)).collect();
        let name = volume.to_string();
        let split = api::splits(&documents).into_iter().find(|split| split.is_parted() && split.has(&name));
        Some(split?.said())
    }
}
