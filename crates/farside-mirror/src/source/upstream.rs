//! Where a volume stands among the sites: what it follows itself, and whether hosts went on elsewhere. Told with each transfer,
//! so that a replica whose source was overtaken says so, and no chain of mirrors is closed to a ring.

use std::collections::BTreeMap;

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::convert::{Place, Upstream, UpstreamOvertaken};
use farside_transfer::refusal::refusal;

use super::refusal::to_refusal;
use super::service::SourceService;
use super::shared::Shared;
use crate::directions::{self, Request};
use crate::error::blocking;
use crate::store::SourceRelationship;

impl SourceService {
    /// What the source of `volume`, which is a replica here, has said of itself.
    pub(crate) fn set_upstream(&self, volume: &VolumeName, upstream: Option<Upstream>) {
        let mut tables = self.shared.tables();
        match upstream {
            Some(upstream) => drop(tables.upstreams.insert(volume.clone(), upstream)),
            None => drop(tables.upstreams.remove(volume)),
        }
    }

    /// Why hosts may not write to `volume`, whose pool was set back; none if it was not, or that is over.
    pub fn note_set_back(&self, volume: &VolumeName, why: Option<String>) {
        let mut tables = self.shared.tables();
        let before = match why.clone() {
            Some(why) => tables.set_back.insert(volume.clone(), why),
            None => tables.set_back.remove(volume),
        };
        drop(tables);
        if before != why {
            self.shared.overtaken_changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Volumes that hosts may not write to, since their pool was set back, each with the reason.
    pub fn set_back(&self) -> BTreeMap<VolumeName, String> {
        self.shared.tables().set_back.clone()
    }

    /// By whom a volume here, which follows `source` of `peer`, was overtaken besides that one: `PEER:POOL/VOL`, and since when;
    /// none if it was not.
    pub(crate) fn overtaker(
        &self,
        volume: &VolumeName,
        peer: PeerId,
        source: &VolumeName,
    ) -> Option<(String, farside_platform::Timestamp)> {
        // Also by a mirror that is over since: whoever deleted it may write on.
        let is_other = |r: &SourceRelationship| r.peer != peer || r.destination != *source;
        let first = self.overtaken_of(volume).into_iter().find(is_other)?;
        self.shared.overtaker(&first).map(|overtaken| (overtaken.by, overtaken.at))
    }
}

impl Shared {
    fn name_of(&self, peer: PeerId) -> String {
        let named = self.reversal().and_then(|reversal| reversal.name_of(peer));
        named.unwrap_or_else(|| format!("{peer:?}"))
    }

    /// Who went on without this side, by one relationship.
    fn overtaker(&self, of: &SourceRelationship) -> Option<UpstreamOvertaken> {
        let overtaken = of.overtaken.as_ref()?;
        let itself = || format!("{}:{}", self.name_of(of.peer), of.destination);
        Some(UpstreamOvertaken {
            by: overtaken.beyond.clone().unwrap_or_else(itself),
            at: overtaken.broken_off_at.unwrap_or(overtaken.reported_at),
            what: None,
        })
    }

    /// Who went on without `volume`; the first of them, if it was overtaken by several.
    fn overtaken_by(&self, volume: &VolumeName) -> Option<UpstreamOvertaken> {
        let mut of_volume: Vec<SourceRelationship> = {
            let tables = self.tables();
            let all = tables.relationships.values();
            all.filter(|r| r.source == *volume && r.overtaken.is_some()).cloned().collect()
        };
        of_volume.sort_by_key(|r| r.overtaken.as_ref().and_then(|o| o.broken_off_at));
        of_volume.first().and_then(|first| self.overtaker(first))
    }

    /// What the volume follows, the nearest first; nothing if it is an original.
    pub(super) async fn follows(&self, volume: &VolumeName) -> Result<Vec<Place>, Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let record = blocking(move || engine.replica_record(&of)).await.map_err(to_refusal)?;
        let Some(record) = record.filter(|record| !record.broken_off) else { return Ok(Vec::new()) };
        let mut follows = Vec::new();
        if let Ok(source) = record.source.parse() {
            follows.push(Place { site: record.peer, volume: source });
        }
        let tables = self.tables();
        let beyond = tables.upstreams.get(volume).into_iter().flat_map(|upstream| &upstream.follows);
        follows.extend(beyond.take(HOPS_MAX - 1).cloned());
        Ok(follows)
    }

    /// What a destination must know of where a transfer comes from.
    pub(super) async fn upstream(&self, volume: &VolumeName) -> Result<Upstream, Refusal> {
        let follows = self.follows(volume).await?;
        let overtaken = self.overtaken_by(volume).or_else(|| {
            let (first, tables) = (follows.first()?, self.tables());
            let beyond = tables.upstreams.get(volume)?.overtaken.clone()?;
            drop(tables);
            let source = || format!("{}:{}", self.name_of(PeerId(first.site)), first.volume);
            Some(UpstreamOvertaken { what: Some(beyond.what.clone().unwrap_or_else(source)), ..beyond })
        });
        Ok(Upstream { follows, overtaken })
    }

    /// Refuses what would go round an overtaken volume: hosts went on elsewhere, and a person has to decide first.
    pub(super) fn check_decided(&self, volume: &VolumeName, request: Request) -> Result<(), Refusal> {
        let Some(overtaken) = self.overtaken_by(volume) else { return Ok(()) };
        if !directions::is_refused(request, true) {
            return Ok(());
        }
        let (what, UpstreamOvertaken { by, at, .. }) = (
            match request {
                Request::RoleChange => "No role changed",
                _ => "Nothing was made, as it would be a copy of the old original",
            },
            overtaken,
        );
        Err(refusal(
            "state",
            format!(
                "{volume} at the source was overtaken by {by} at {at:.0}: hosts went on there. {what}. Decide first which \
                 of them counts, at the source: farside mirror status {volume}"
            ),
        ))
    }
}
