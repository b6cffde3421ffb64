//! A snapshot among the versions next to it: what of it no other holds.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::handle::Difference;
use crate::pool::Pool;
use crate::versions::VersionState;
use crate::volumes::find_snapshot_by_uuid;

/// A snapshot among the versions that it descends from, and those that go on from it.
pub struct InLine {
    /// Against each of them, and the one before.
    pub differences: Vec<Difference>,
    /// How many go on from it. While there are several nothing of it comes back.
    pub heirs: usize,
    /// The side branches that begin at it, if several go on from it, each by its oldest snapshot.
    pub branches: Vec<String>,
}

impl Pool {
    /// What a snapshot holds against each version of its line next to it: what differs from all of them comes back when it is deleted,
    /// but for what deduplication shares.
    pub fn snapshot_in_line(self: &Arc<Self>, volume: &str, uuid: Uuid) -> Result<InLine> {
        let mut state = self.locked();
        let version = find_snapshot_by_uuid(&state, volume, uuid)?.clone();
        let of_all = state.versions.heirs();
        let heirs = of_all.get(&version.id).cloned().unwrap_or_default();
        let mut branches = Vec::new();
        if heirs.len() > 1 {
            let line = state.versions.main_line(version.volume);
            let beside = |v: &&VersionState| v.volume == version.volume && !line.contains(&v.id);
            let own: Vec<_> = state.versions.snapshots_of(version.volume).filter(beside).collect();
            for heir in &heirs {
                // Its oldest snapshot names it.
                let of_it = |v: &&&VersionState| state.versions.descends_from(v, *heir);
                let named = own.iter().find(of_it).and_then(|v| v.snapshot.as_ref());
                branches.extend(named.map(|snapshot| snapshot.name.clone()));
            }
        }
        let ancestor = state.versions.staying_ancestor(&version, &of_all).map(|a| a.id);
        let mut differences = Vec::with_capacity(heirs.len() + 1);
        for other in heirs.iter().map(|heir| Some(*heir)).chain([ancestor]) {
            differences.push(Difference::begin(self, &mut state, other, version.id)?);
        }
        Ok(InLine { differences, heirs: heirs.len(), branches })
    }
}
