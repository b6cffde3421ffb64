//! Where a volume stands among the sites: what it follows itself, and whether hosts went on elsewhere. Told with each transfer,
//! so that a replica whose source was overtaken says so, and no chain of mirrors is closed to a ring.

use std::collections::BTreeMap;

use farside_engine::{EngineError, ReplicaRecord, VolumeName};
use farside_peer::{PeerId, Refusal};
use farside_platform::Timestamp;
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::convert::{Place, Upstream, UpstreamOvertaken};
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::service::SourceService;
use super::shared::Shared;
use crate::directions::{self, Request};
use crate::error::{MirrorError, blocking};
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

    /// By whom a volume here, which follows `chain`, was overtaken besides those: none if it was not.
    pub(crate) fn overtaker(&self, volume: &VolumeName, chain: &[Place]) -> Option<Overtaker> {
        // Also by a mirror that is over since: whoever deleted it may write on.
        let first = self.shared.first_overtaker(volume, chain)?;
        let UpstreamOvertaken { by, at, .. } = self.shared.overtaker(&first)?;
        Some(Overtaker { by, at, places: first.gone_on().places() })
    }

    /// A volume here has something of what it follows: who else stands in that line has not gone on without it any more.
    pub(crate) async fn settle(&self, volume: &VolumeName) -> Result<(), MirrorError> {
        self.shared.settle(volume, &[]).await
    }

    /// How a volume here that has been a replica stands now.
    pub(crate) async fn standing(&self, volume: &VolumeName) -> Stands {
        let (engine, of) = (self.shared.engine.clone(), volume.clone());
        match blocking(move || Ok::<_, MirrorError>(engine.replica_record(&of)?)).await {
            Ok(Some(record)) if record.broken_off => Stands::Original,
            Ok(Some(record)) => Stands::Follows(self.shared.chain(volume, Some(&record))),
            Ok(None) | Err(_) => Stands::Unknown,
        }
    }

    /// Whether a volume here is to follow its source and nothing of that has come yet.
    pub(crate) async fn awaits_first(&self, volume: &VolumeName) -> bool {
        match self.shared.reversal() {
            Some(reversal) => reversal.awaits_first(volume).await,
            None => false,
        }
    }

    /// The source of a mirror that is over knows that: the pool need not remember it any more. Answers whether it does not; where its
    /// pool is away nobody can tell.
    pub(crate) async fn forget_replica(
        &self,
        relationship: Uuid,
        named: Option<VolumeName>,
    ) -> Result<bool, MirrorError> {
        let engine = self.shared.engine.clone();
        blocking(move || {
            let volumes = engine.volumes()?;
            let is_open = named.is_none_or(|named| volumes.iter().any(|v| v.pool == named.pool));
            for volume in &volumes {
                match engine.end_replica_record(volume, relationship) {
                    Ok(false) | Err(EngineError::NotFound { .. }) => {}
                    ended => return Ok(ended?),
                }
            }
            Ok::<_, MirrorError>(is_open)
        })
        .await
    }

    /// What follows a volume here, as far as it has said.
    pub(crate) fn line(&self, volume: &VolumeName) -> Vec<Place> {
        self.shared.tables().line(volume)
    }
}

/// How a volume stands that has been a replica.
pub(crate) enum Stands {
    /// It follows these, the nearest first.
    Follows(Vec<Place>),
    /// It was broken off, or took over.
    Original,
    /// It is nobody's replica, or cannot be looked at.
    Unknown,
}

/// Who went on without a volume here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Overtaker {
    /// `PEER:POOL/VOL`.
    pub(crate) by: String,
    /// Since when.
    pub(crate) at: Timestamp,
    /// The volume, and what it follows since.
    pub(crate) places: Vec<Place>,
}

impl Shared {
    pub(super) fn name_of(&self, peer: PeerId) -> String {
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

    /// Who went on without `volume`, which follows `chain`; the first of them, if it was overtaken by several.
    fn first_overtaker(&self, volume: &VolumeName, chain: &[Place]) -> Option<SourceRelationship> {
        let mut of_volume: Vec<SourceRelationship> = {
            let tables = self.tables();
            let is_overtaken = |r: &&SourceRelationship| {
                r.source == *volume && r.overtaken.is_some() && !tables.is_settled(r, chain, &[])
            };
            tables.relationships.values().filter(is_overtaken).cloned().collect()
        };
        of_volume.sort_by_key(|r| (r.overtaken.as_ref().and_then(|o| o.broken_off_at), r.id));
        of_volume.into_iter().next()
    }

    fn overtaken_by(&self, volume: &VolumeName, chain: &[Place]) -> Option<UpstreamOvertaken> {
        self.first_overtaker(volume, chain).and_then(|first| self.overtaker(&first))
    }

    /// What the volume follows, the nearest first; nothing if it is an original.
    pub(super) async fn follows(&self, volume: &VolumeName) -> Result<Vec<Place>, Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let record = blocking(move || engine.replica_record(&of)).await.map_err(to_refusal)?;
        Ok(self.chain(volume, record.as_ref()))
    }

    /// The same, of a volume of which the pool has this record.
    pub(super) fn chain(&self, volume: &VolumeName, record: Option<&ReplicaRecord>) -> Vec<Place> {
        let Some(record) = record.filter(|record| !record.broken_off) else { return Vec::new() };
        let Ok(source) = record.source.parse() else { return Vec::new() };
        let mut follows = vec![Place { site: record.peer, volume: source }];
        let tables = self.tables();
        let beyond = tables.upstreams.get(volume).into_iter().flat_map(|upstream| &upstream.follows);
        follows.extend(beyond.take(HOPS_MAX - 1).cloned());
        follows
    }

    /// Asks those that `volume` follows where they stand now: what they said with the last transfer may be old. Through so many
    /// sites as `hops` says.
    pub(super) async fn look_upstream(&self, volume: &VolumeName, hops: usize) {
        if hops > 0
            && let Some(reversal) = self.reversal()
        {
            reversal.look_upstream(volume, hops).await;
        }
    }

    /// What a destination must know of where a transfer comes from.
    pub(super) async fn upstream(&self, volume: &VolumeName) -> Result<Upstream, Refusal> {
        let follows = self.follows(volume).await?;
        let overtaken = self.overtaken_by(volume, &follows).or_else(|| {
            let (first, tables) = (follows.first()?, self.tables());
            let beyond = tables.upstreams.get(volume)?.overtaken.clone()?;
            drop(tables);
            let source = || format!("{}:{}", self.name_of(PeerId(first.site)), first.volume);
            Some(UpstreamOvertaken { what: Some(beyond.what.clone().unwrap_or_else(source)), ..beyond })
        });
        Ok(Upstream { follows, overtaken })
    }

    /// Refuses what would go round an overtaken volume: hosts went on elsewhere, and a person has to decide first.
    pub(super) async fn check_decided(&self, volume: &VolumeName, request: Request) -> Result<(), Refusal> {
        // A volume that is not here now follows nothing; what needs it says so.
        let chain = self.follows(volume).await.unwrap_or_default();
        let Some(overtaken) = self.overtaken_by(volume, &chain) else { return Ok(()) };
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
