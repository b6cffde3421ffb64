//! What the embedded store has beyond what every engine has: everything.

use farside_format::Fingerprint;
use farside_platform::Timestamp;
use uuid::Uuid;

use super::EmbeddedEngine;
use super::convert::{as_stored, convert, new_snapshot, replica_status, snapshot_info};
use super::staged::Staged;
use crate::{
    Branches, EngineError, KnownData, KnownDataScope, ReadyVersion, ReplicaRecord, SnapshotInfo,
    SnapshotSpec, StagedVersion, Subtrees, Together, VolumeName, Wanted, is_label,
};

impl Branches for EmbeddedEngine {
    fn of_all_branches(&self, volume: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        let all = self.on(volume, |pool| pool.snapshots(&volume.volume))?;
        Ok(all.iter().map(snapshot_info).collect())
    }

    fn fork(&self, volume: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError> {
        self.on(volume, |pool| pool.fork_of(&volume.volume, snapshot))
    }

    fn move_main(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
        moment: Option<Timestamp>,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        let replica = record.map(replica_status);
        let rescued = self.on(volume, |pool| pool.move_main(&volume.volume, snapshot, replica, moment))?;
        Ok(rescued.as_ref().map(snapshot_info))
    }

    fn move_replica(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        let rescued = self.on(volume, |pool| pool.move_replica(&volume.volume, snapshot, relationship))?;
        Ok(rescued.as_ref().map(snapshot_info))
    }
}

impl Together for EmbeddedEngine {
    fn take_snapshots(
        &self,
        wanted: &[(VolumeName, SnapshotSpec)],
    ) -> Result<Vec<SnapshotInfo>, EngineError> {
        let Some((first, _)) = wanted.first() else { return Ok(Vec::new()) };
        if let Some((volume, spec)) = wanted.iter().find(|(_, spec)| !is_label(&spec.name)) {
            return Err(EngineError::BadName { name: format!("{volume}@{}", spec.name) });
        }
        one_pool(wanted.iter().map(|(volume, _)| volume))?;
        let new: Vec<_> = wanted.iter().map(|(v, spec)| (v.volume.clone(), new_snapshot(spec))).collect();
        let taken = self.on(first, |pool| pool.create_snapshots(&new))?;
        Ok(taken.iter().map(snapshot_info).collect())
    }

    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError> {
        let Some(first) = versions.first() else { return Ok(Vec::new()) };
        one_pool(versions.iter().map(|version| &version.volume))?;
        let staged = versions
            .iter()
            .map(|version| Ok((&of_this_engine(&*version.staged)?.staged, new_snapshot(&version.spec))));
        let staged: Vec<_> = staged.collect::<Result<_, EngineError>>()?;
        let done = self.on(&first.volume, |pool| pool.commit_together(&staged))?;
        Ok(done.iter().map(snapshot_info).collect())
    }
}

impl KnownData for EmbeddedEngine {
    fn may_hold(&self, scope: &KnownDataScope) -> bool {
        self.pools.read().values().any(|pool| pool.holds_of(&scope.peer))
    }

    /// What the volume's own pool does not know, the other pools are asked for.
    fn adopt(
        &self,
        staged: &dyn StagedVersion,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError> {
        let Staged { pool: own, staged } = of_this_engine(staged)?;
        let converted = |result: Result<_, _>| result.map_err(|e| convert(own, e));
        let mut missing: Vec<_> = wanted.iter().map(as_stored).collect();
        let mut answers = converted(staged.adopt(&scope.peer, &missing))?;
        let others: Vec<_> = {
            let pools = self.pools.read();
            pools.iter().filter(|(name, _)| *name != own).map(|(_, pool)| pool.clone()).collect()
        };
        for other in others {
            let entries: Vec<usize> =
                answers.iter().enumerate().filter(|(_, a)| a.is_none()).map(|(entry, _)| entry).collect();
            if entries.is_empty() {
                break;
            }
            missing = entries.iter().map(|entry| as_stored(&wanted[*entry])).collect();
            let found = converted(staged.adopt_from(&other, &scope.peer, &missing))?;
            for (entry, answer) in entries.into_iter().zip(found) {
                answers[entry] = answer;
            }
        }
        Ok(answers)
    }
}

impl Subtrees for EmbeddedEngine {
    fn subtree_fingerprints(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
        level: u8,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        let handle = self.open(volume, snapshot)?;
        handle.subtree_fingerprints(level, first, count).map_err(|e| convert(&volume.pool, e))
    }
}

fn of_this_engine(staged: &dyn StagedVersion) -> Result<&Staged, EngineError> {
    let foreign = || EngineError::Invalid("a staged version of another engine".into());
    staged.as_any().downcast_ref().ok_or_else(foreign)
}

/// What is done in one record is done in one pool.
fn one_pool<'a>(volumes: impl Iterator<Item = &'a VolumeName> + Clone) -> Result<(), EngineError> {
    let is_split = |(one, other): (&VolumeName, &VolumeName)| one.pool != other.pool;
    match volumes.clone().zip(volumes.skip(1)).find(|pair| is_split(*pair)) {
        None => Ok(()),
        Some((one, other)) => Err(EngineError::Refused(format!(
            "{one} and {other} are in different pools; only volumes of one pool change in one moment. Nothing was changed"
        ))),
    }
}
