//! What the engine has beyond what every engine has, unless it was told to lack it.

use farside_platform::Timestamp;
use uuid::Uuid;

use super::MemoryEngine;
use super::image::NODE_BLOCKS;
use super::staged::Staged;
use crate::{
    BLOCK_BYTES, Branches, Engine, EngineError, Fingerprint, KnownData, KnownDataScope, ReadyVersion,
    ReplicaRecord, SnapshotInfo, SnapshotSpec, StagedVersion, Subtrees, Together, VolumeName, Wanted,
    subtrees_of_blocks,
};

impl Branches for MemoryEngine {
    fn of_all_branches(&self, name: &VolumeName) -> Result<Vec<SnapshotInfo>, EngineError> {
        self.with(name, |volume| Ok(volume.snapshots.iter().map(|s| s.info.clone()).collect()))
    }

    fn fork(&self, name: &VolumeName, snapshot: Uuid) -> Result<Option<Uuid>, EngineError> {
        self.with(name, |volume| {
            volume.position(snapshot)?;
            let line = volume.main_line();
            let next = |of: &Uuid| volume.position(*of).ok().and_then(|at| volume.snapshots[at].parent);
            Ok(std::iter::successors(Some(snapshot), next).find(|uuid| line.contains(uuid)))
        })
    }

    fn move_main(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        record: Option<ReplicaRecord>,
        moment: Option<Timestamp>,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        self.change("move main", name, |volume| {
            let rescued = volume.replace_head(snapshot, moment)?;
            volume.record = record.or(volume.record.take());
            Ok(rescued)
        })
    }

    fn move_replica(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        self.change("move replica", name, |volume| {
            volume.check_replica(relationship)?;
            volume.replace_head(snapshot, None)
        })
    }
}

impl Together for MemoryEngine {
    fn take_snapshots(
        &self,
        wanted: &[(VolumeName, SnapshotSpec)],
    ) -> Result<Vec<SnapshotInfo>, EngineError> {
        one_pool(wanted.iter().map(|(name, _)| name))?;
        self.change_all("take snapshots", |medium| {
            for (name, spec) in wanted {
                medium.volume(name)?.check_free(spec)?;
            }
            wanted.iter().map(|(name, spec)| medium.volume(name)?.take(spec)).collect()
        })
    }

    fn commit_together(&self, versions: &[ReadyVersion]) -> Result<Vec<SnapshotInfo>, EngineError> {
        one_pool(versions.iter().map(|version| &version.volume))?;
        let of = |version: &ReadyVersion| Ok((of_this_engine(&*version.staged)?.number, version.clone()));
        let versions: Vec<_> = versions.iter().map(of).collect::<Result<_, EngineError>>()?;
        let beside = self.branches("").is_some();
        self.change_all("commit together", |medium| {
            for (number, version) in &versions {
                medium.volume(&version.volume)?.check_commit(*number, &version.spec)?;
            }
            let publish = |(number, version): &(u64, ReadyVersion)| {
                medium.volume(&version.volume)?.publish(*number, &version.spec, beside)
            };
            versions.iter().map(publish).collect()
        })
    }
}

/// Of different volumes of one pool.
fn one_pool<'a>(volumes: impl Iterator<Item = &'a VolumeName> + Clone) -> Result<(), EngineError> {
    for (at, volume) in volumes.clone().enumerate() {
        if volumes.clone().skip(at + 1).any(|other| other == volume) {
            return Err(EngineError::Invalid(format!("{volume} is named twice")));
        }
        if let Some(other) = volumes.clone().find(|other| other.pool != volume.pool) {
            return Err(EngineError::Refused(format!("{volume} and {other} are in different pools")));
        }
    }
    Ok(())
}

fn of_this_engine(staged: &dyn StagedVersion) -> Result<&Staged, EngineError> {
    let foreign = || EngineError::Invalid("a staged version of another engine".into());
    staged.as_any().downcast_ref().ok_or_else(foreign)
}

impl KnownData for MemoryEngine {
    fn may_hold(&self, _: &KnownDataScope) -> bool {
        true
    }

    fn adopt(
        &self,
        staged: &dyn StagedVersion,
        scope: &KnownDataScope,
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>, EngineError> {
        let staged = of_this_engine(staged)?;
        let known = self.with_all(|medium| Ok(medium.known(scope)))?;
        let (adopts_falsely, finds_other_content) = {
            let faults = self.faults.lock();
            (faults.adopts_falsely, faults.finds_other_content)
        };
        let mut found = Vec::new();
        for wanted in wanted {
            let blocks_each = if wanted.level == 0 { 1 } else { NODE_BLOCKS };
            let first = wanted.position * blocks_each;
            staged.with(|image| image.check(first * BLOCK_BYTES, BLOCK_BYTES))?;
            let Some((fingerprint, blocks)) = known.get(&(wanted.level, wanted.short)) else {
                found.push(None);
                continue;
            };
            staged.with(|image| {
                for (position, block) in (first..).zip(blocks) {
                    match block {
                        Some(_) if adopts_falsely || finds_other_content => {
                            image.write(position * BLOCK_BYTES, &[0xaa; BLOCK_BYTES as usize]);
                        }
                        Some(block) => image.write(position * BLOCK_BYTES, block),
                        None => image.discard(position * BLOCK_BYTES, BLOCK_BYTES),
                    }
                }
                Ok(())
            })?;
            let mut answered = *fingerprint;
            answered.0[15] ^= u8::from(finds_other_content);
            found.push(Some(answered));
        }
        Ok(found)
    }
}

impl Subtrees for MemoryEngine {
    fn subtree_fingerprints(
        &self,
        name: &VolumeName,
        snapshot: Uuid,
        level: u8,
        first: u64,
        count: u64,
    ) -> Result<Vec<Fingerprint>, EngineError> {
        let blocks = |first, count| self.fingerprints(name, snapshot, first, count);
        let size_bytes = self.with(name, |volume| Ok(volume.image(snapshot)?.size_bytes))?;
        subtrees_of_blocks(level, first, count, size_bytes / BLOCK_BYTES, &blocks)
    }
}
