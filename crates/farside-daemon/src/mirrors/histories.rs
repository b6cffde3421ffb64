//! Groups of two histories: hosts went on here in one part, and another was given back. A change of roles would make one of them.

use farside_api as api;
use farside_engine::VolumeName;

use super::Mirrors;

impl Mirrors {
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
