//! Volumes and versions in memory, and the one function that changes them.
//!
//! [`Versions::apply`] is pure: the running pool and recovery both go through it, so a replayed journal ends in the
//! state that was. It refuses what contradicts itself and never trusts an id from the medium.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use farside_format::catalog::{
    Catalog, Change, MovedHead, Restage, Snapshot, StagedFor, Version, VersionKind, Volume, VolumeLimits,
};
use farside_format::fingerprint::{BLOCK_BYTES, BLOCKS_MAX, level_for};
use farside_format::pins::rotates;
use farside_format::{Birth, TreeReference};

use crate::delta::{ChangeEffects, Delta};
use crate::error::{Result, StoreError};
use crate::snapshot_index::SnapshotIndex;
use crate::usage::Usage;

/// A version in memory.
#[derive(Clone)]
pub(crate) struct VersionState {
    pub(crate) id: u64,
    pub(crate) volume: u64,
    pub(crate) parent: u64,
    pub(crate) kind: VersionKind,
    pub(crate) size_bytes: u64,
    pub(crate) frozen: Birth,
    pub(crate) deleted: bool,
    pub(crate) reaped_blocks: u64,
    /// Its tree as of the last consistency point.
    pub(crate) tree: TreeReference,
    height: u8,
    /// Changes that the running consistency point is writing.
    pub(crate) capturing: Option<Arc<Delta>>,
    /// Changes since.
    pub(crate) delta: Option<Arc<Delta>>,
    pub(crate) snapshot: Option<Snapshot>,
    /// Set for staged versions.
    pub(crate) staged: Option<StagedFor>,
    /// See [`Version::inherited`].
    pub(crate) inherited: Birth,
    /// Clients that hold it open: it is not reaped under them, and what would change it under them is refused.
    pub(crate) users: u32,
    /// Walks under way, and readers like them: it is not reaped under them, but they are in nobody's way.
    pub(crate) walkers: u32,
    /// Of a staged version: held by the handles of whoever builds it.
    pub(crate) builder: Weak<()>,
    /// Its map cannot be read, so that it cannot be reaped: its blocks stay in use.
    pub(crate) stuck: bool,
    /// See [`Version::owned_blocks`]; what changes at hand replaced on the medium is in it until a point finds it.
    owned_blocks: u64,
}

impl VersionState {
    /// Level of its tree's root, deltas included: covers the size, and never sinks while deltas hang from it.
    pub(crate) fn level(&self) -> u8 {
        self.height
    }

    /// Sets the size, and raises the tree if it must be higher. No consistency point may be under way.
    fn resize(&mut self, size_bytes: u64, epoch: Birth) {
        debug_assert!(self.capturing.is_none() || level_for(blocks(size_bytes)) <= self.height);
        self.size_bytes = size_bytes;
        for _ in self.height..level_for(blocks(size_bytes)) {
            self.height += 1;
            self.delta = self.delta.take().map(|delta| delta.raised(epoch));
        }
    }

    /// What a resize to `size_bytes` will make of the changes at hand: a node for each level gained.
    pub(crate) fn raising_to(&self, size_bytes: u64) -> ChangeEffects {
        let gained = level_for(blocks(size_bytes)).saturating_sub(self.height);
        let new_inner = if self.delta.is_some() { u64::from(gained) } else { 0 };
        ChangeEffects { new_inner, ..ChangeEffects::default() }
    }

    /// Inner nodes that the first change since the last point needs besides its own: the levels by which the tree has grown since it was
    /// written, over its old part. The tree that a point writes meanwhile has them all.
    pub(crate) fn old_part(&self) -> u64 {
        let is_first = self.delta.as_ref().is_none_or(|delta| Arc::strong_count(delta) > 1);
        let stands_lower = self.capturing.is_none() && !self.tree.root.is_hole();
        if is_first && stands_lower {
            u64::from((self.height - 1).saturating_sub(self.tree.level))
        } else {
            0
        }
    }

    /// Orders parents before children.
    pub(crate) fn age(&self) -> u64 {
        if self.frozen == Birth(0) { u64::MAX } else { self.frozen.0 }
    }

    fn is_live_snapshot(&self) -> bool {
        self.kind == VersionKind::Snapshot && !self.deleted
    }

    pub(crate) fn is_writable(&self) -> bool {
        matches!(self.kind, VersionKind::Head | VersionKind::Staged) && !self.deleted
    }

    /// Whether somebody still reads it, so that it may not be reaped.
    pub(crate) fn is_in_use(&self) -> bool {
        self.users > 0 || self.walkers > 0
    }

    /// Ends its life as something writable: a snapshot from now on.
    fn freeze(&mut self, epoch: u64, snapshot: &Snapshot) {
        self.kind = VersionKind::Snapshot;
        self.frozen = Birth(epoch);
        self.snapshot = Some(snapshot.clone());
        self.staged = None;
        self.inherited = Birth(0);
    }

    /// Whether anything in it came into being after `frozen`.
    pub(crate) fn changed_since(&self, frozen: Birth) -> bool {
        let younger = |delta: &Option<Arc<Delta>>| delta.as_ref().is_some_and(|d| d.birth > frozen);
        self.tree.root.birth > frozen || younger(&self.capturing) || younger(&self.delta)
    }
}

/// Blocks of a volume of `size_bytes` bytes.
pub(crate) fn blocks(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES as u64)
}

/// The largest volume, bytes: 16 PiB.
pub const VOLUME_BYTES_MAX: u64 = BLOCKS_MAX * BLOCK_BYTES as u64;

/// All volumes and versions.
#[derive(Default)]
pub(crate) struct Versions {
    pub(crate) next_id: u64,
    pub(crate) volumes: BTreeMap<u64, Volume>,
    pub(crate) versions: BTreeMap<u64, VersionState>,
    /// See [`Catalog::unattributed_blocks_max`].
    pub(crate) unattributed_blocks_max: u64,
    /// What the versions of each volume own, deleted ones included.
    usage: HashMap<u64, Usage>,
    /// Live volumes for which something is reserved.
    reserving: Vec<u64>,
    /// The snapshots that live.
    index: SnapshotIndex,
    /// How many were looked at to find others.
    looked_at: Cell<u64>,
}

fn inconsistent(what: impl Into<String>) -> StoreError {
    StoreError::Inconsistent(what.into())
}

impl Versions {
    /// Those of a new pool: none.
    pub(crate) fn new() -> Versions {
        Versions { next_id: 1, ..Versions::default() }
    }

    /// How many versions were looked at to find others, since the pool was opened.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.get()
    }

    fn look_at(&self, id: u64) -> Option<&VersionState> {
        self.looked_at.set(self.looked_at.get() + 1);
        self.versions.get(&id)
    }

    /// Enters a version into the index if it is a snapshot that lives.
    fn enter(&mut self, id: u64) {
        let Some(version) = self.versions.get(&id) else { return };
        if let Some(described) = version.snapshot.as_ref().filter(|_| version.is_live_snapshot()) {
            self.index.enter(version.volume, id, version.frozen, described);
        }
    }

    /// Takes it out, before it is changed.
    fn leave(&mut self, id: u64) {
        let Some(version) = self.versions.get(&id) else { return };
        if let Some(described) = version.snapshot.as_ref().filter(|_| version.is_live_snapshot()) {
            self.index.leave(version.volume, id, version.frozen, described);
        }
    }

    /// The versions from which a volume's head descends, and the head.
    pub(crate) fn main_line(&self, volume: u64) -> HashSet<u64> {
        let mut line = HashSet::new();
        let mut next = self.volumes.get(&volume).and_then(|v| self.look_at(v.head));
        while let Some(version) = next {
            line.insert(version.id);
            next = self.look_at(version.parent);
        }
        line
    }

    /// Whether the head of its volume is `version`, or descends from it. Younger versions are looked at, none that is older.
    pub(crate) fn is_on_main_line(&self, version: &VersionState) -> bool {
        let mut next = self.volumes.get(&version.volume).and_then(|v| self.look_at(v.head));
        while let Some(found) = next.filter(|found| found.age() >= version.age()) {
            if found.id == version.id {
                return true;
            }
            next = self.look_at(found.parent);
        }
        false
    }

    /// From the catalog on the medium.
    pub(crate) fn load(catalog: Catalog) -> Result<Versions> {
        let mut versions = Versions {
            next_id: catalog.next_id,
            unattributed_blocks_max: catalog.unattributed_blocks_max,
            ..Versions::default()
        };
        for version in catalog.versions {
            let tree =
                version.decode_tree().map_err(|e| inconsistent(format!("version {}: {e}", version.id)))?;
            if version.size_bytes > VOLUME_BYTES_MAX {
                return Err(inconsistent(format!("version {} has an impossible size", version.id)));
            }
            let kind = version.kind();
            let state = VersionState {
                id: version.id,
                volume: version.volume,
                parent: version.parent,
                kind,
                size_bytes: version.size_bytes,
                frozen: Birth(version.frozen),
                deleted: version.deleted,
                reaped_blocks: version.reaped_blocks,
                tree,
                height: tree.level.max(level_for(blocks(version.size_bytes))),
                capturing: None,
                delta: None,
                snapshot: version.snapshot,
                staged: version.staged,
                inherited: Birth(version.inherited),
                users: 0,
                walkers: 0,
                builder: Weak::new(),
                stuck: false,
                owned_blocks: version.owned_blocks,
            };
            versions.usage.entry(state.volume).or_default().gains(state.owned_blocks);
            if version.id >= versions.next_id || versions.versions.insert(state.id, state).is_some() {
                return Err(inconsistent(format!(
                    "version id {} is used twice or never given out",
                    version.id
                )));
            }
        }
        for volume in catalog.volumes {
            let id = volume.id;
            let known = versions.versions.get(&volume.head).is_some_and(|h| h.volume == id);
            if (!volume.deleted && !known) || versions.volumes.insert(id, volume).is_some() {
                return Err(inconsistent(format!("volume {id} has no head, or is there twice")));
            }
        }
        let orphan = versions.versions.values().find(|v| {
            !versions.volumes.contains_key(&v.volume)
                || (v.parent != 0
                    && versions
                        .versions
                        .get(&v.parent)
                        .is_none_or(|p| p.frozen == Birth(0) || p.age() >= v.age()))
        });
        // A parent is always frozen, and before its child: that also excludes cycles.
        if let Some(v) = orphan {
            return Err(inconsistent(format!("version {} has no volume or no parent", v.id)));
        }
        let ids: Vec<u64> = versions.versions.keys().copied().collect();
        ids.into_iter().for_each(|id| versions.enter(id));
        versions.note_reserving();
        Ok(versions)
    }

    /// For the medium. Trees are those of the last point; the caller replaces them.
    pub(crate) fn encode(&self, tree_of: impl Fn(&VersionState) -> TreeReference) -> Catalog {
        let versions = self.versions.values().map(|v| {
            let mut version = Version {
                id: v.id,
                volume: v.volume,
                parent: v.parent,
                kind: v.kind as i32,
                size_bytes: v.size_bytes,
                frozen: v.frozen.0,
                deleted: v.deleted,
                reaped_blocks: v.reaped_blocks,
                tree: Vec::new(),
                snapshot: v.snapshot.clone(),
                staged: v.staged.clone(),
                inherited: v.inherited.0,
                owned_blocks: v.owned_blocks,
            };
            version.set_tree(&tree_of(v));
            version
        });
        Catalog {
            next_id: self.next_id,
            volumes: self.volumes.values().cloned().collect(),
            versions: versions.collect(),
            unattributed_blocks_max: self.unattributed_blocks_max,
        }
    }

    pub(crate) fn version(&self, id: u64) -> Result<&VersionState> {
        self.versions.get(&id).ok_or_else(|| inconsistent(format!("version {id} does not exist")))
    }

    pub(crate) fn version_mut(&mut self, id: u64) -> Result<&mut VersionState> {
        self.versions.get_mut(&id).ok_or_else(|| inconsistent(format!("version {id} does not exist")))
    }

    fn volume_mut(&mut self, id: u64) -> Result<&mut Volume> {
        self.volumes.get_mut(&id).ok_or_else(|| inconsistent(format!("volume {id} does not exist")))
    }

    /// The live volume of this number.
    pub(crate) fn volume_numbered(&self, id: u64) -> Option<&Volume> {
        self.volumes.get(&id).filter(|volume| !volume.deleted)
    }

    /// The live volume of this name.
    pub(crate) fn volume_named(&self, name: &str) -> Option<&Volume> {
        self.volumes.values().find(|v| !v.deleted && v.name == name)
    }

    /// Live snapshots of a volume, oldest data first.
    pub(crate) fn snapshots_of(&self, volume: u64) -> impl Iterator<Item = &VersionState> {
        self.index.of(volume).filter_map(|id| self.look_at(id))
    }

    /// How many those are.
    pub(crate) fn count_snapshots(&self, volume: u64) -> usize {
        self.index.count(volume)
    }

    /// The live snapshot of this name.
    pub(crate) fn snapshot_named(&self, volume: u64, name: &str) -> Option<&VersionState> {
        let mut found = self.index.maybe_named(volume, name).filter_map(|id| self.look_at(id));
        found.find(|v| v.snapshot.as_ref().is_some_and(|s| s.name == name))
    }

    /// The live snapshot of this identity.
    pub(crate) fn snapshot_identified(&self, volume: u64, identity: &[u8]) -> Option<&VersionState> {
        let mut found = self.index.maybe_identified(volume, identity).filter_map(|id| self.look_at(id));
        found.find(|v| v.snapshot.as_ref().is_some_and(|s| s.uuid == identity))
    }

    pub(crate) fn children_of(&self, id: u64) -> impl Iterator<Item = &VersionState> {
        self.versions.values().filter(move |v| v.parent == id)
    }

    /// The versions that go on from each, and stay when all that can go is gone: a deleted one stays while several go on from it. In one
    /// pass, children before their parents (a head is older than the snapshot that it goes on from): thousands that were deleted may wait
    /// in a row to be reaped.
    pub(crate) fn heirs(&self) -> HashMap<u64, Vec<u64>> {
        let mut children: HashMap<u64, Vec<&VersionState>> = HashMap::new();
        let mut order: Vec<&VersionState> = Vec::with_capacity(self.versions.len());
        for version in self.versions.values() {
            match self.versions.contains_key(&version.parent) {
                true => children.entry(version.parent).or_default().push(version),
                false => order.push(version),
            }
        }
        let mut next = 0;
        while let Some(version) = order.get(next).copied() {
            order.extend(children.remove(&version.id).unwrap_or_default());
            next += 1;
        }
        let mut heirs: HashMap<u64, Vec<u64>> = HashMap::new();
        for version in order.into_iter().rev() {
            let below = heirs.get(&version.id).map_or(&[][..], Vec::as_slice);
            let stays = !version.deleted || version.is_in_use() || below.len() > 1;
            let passed_on = if stays { vec![version.id] } else { below.to_vec() };
            heirs.entry(version.parent).or_default().extend(passed_on);
        }
        heirs
    }

    /// Whether a version is `ancestor`, or descends from it.
    pub(crate) fn descends_from(&self, version: &VersionState, ancestor: u64) -> bool {
        let mut next = Some(version);
        while let Some(found) = next {
            if found.id == ancestor {
                return true;
            }
            next = self.versions.get(&found.parent);
        }
        false
    }

    /// The nearest version that one descends from and that stays, by the [`heirs`](Self::heirs) of all.
    pub(crate) fn staying_ancestor(
        &self,
        version: &VersionState,
        heirs: &HashMap<u64, Vec<u64>>,
    ) -> Option<&VersionState> {
        let count = |id| heirs.get(&id).map_or(0, Vec::len);
        let mut ancestor = self.versions.get(&version.parent);
        while let Some(going) = ancestor.filter(|a| a.deleted && !a.is_in_use() && count(a.id) < 2) {
            ancestor = self.versions.get(&going.parent);
        }
        ancestor
    }

    fn take_id(&mut self, id: u64) -> Result<u64> {
        if id < self.next_id || id > self.next_id + 1_000_000 {
            return Err(inconsistent(format!("id {id} was given out before (next is {})", self.next_id)));
        }
        self.next_id = id + 1;
        Ok(id)
    }

    fn insert_head(
        &mut self,
        id: u64,
        volume: u64,
        parent: Option<&VersionState>,
        size_bytes: u64,
    ) -> Result<()> {
        let id = self.take_id(id)?;
        let head = VersionState {
            id,
            volume,
            parent: parent.map_or(0, |p| p.id),
            kind: VersionKind::Head,
            size_bytes,
            frozen: Birth(0),
            deleted: false,
            reaped_blocks: 0,
            tree: parent.map_or(TreeReference::default(), |p| p.tree),
            height: parent.map_or(0, |p| p.height).max(level_for(blocks(size_bytes))),
            capturing: parent.and_then(|p| p.capturing.clone()),
            delta: parent.and_then(|p| p.delta.clone()),
            snapshot: None,
            staged: None,
            inherited: parent.map_or(Birth(0), |p| p.frozen),
            users: 0,
            walkers: 0,
            builder: Weak::new(),
            stuck: false,
            owned_blocks: 0,
        };
        self.versions.insert(id, head);
        Ok(())
    }

    /// Carries out one change. `epoch` is the birth epoch, raised by freeze and commit.
    pub(crate) fn apply(&mut self, change: &Change, epoch: &mut Birth) -> Result<()> {
        match change {
            Change::CreateVolume(create) => {
                let volume =
                    create.volume.clone().ok_or_else(|| inconsistent("a volume without description"))?;
                if create.size_bytes > VOLUME_BYTES_MAX || volume.uuid.len() != 16 {
                    return Err(inconsistent("a new volume with an impossible size or id"));
                }
                let id = self.take_id(volume.id)?;
                self.insert_head(volume.head, id, None, create.size_bytes)?;
                self.volumes.insert(id, volume);
                self.note_reserving();
            }
            Change::RenameVolume(rename) => self.volume_mut(rename.volume)?.name.clone_from(&rename.name),
            Change::ResizeHead(resize) => {
                if resize.size_bytes > VOLUME_BYTES_MAX {
                    return Err(inconsistent("an impossible size"));
                }
                let head = self.version_mut(resize.version)?;
                head.resize(resize.size_bytes, *epoch);
            }
            Change::DeleteVolume(delete) => {
                self.volume_mut(delete.volume)?.deleted = true;
                self.note_reserving();
                for version in self.versions.values_mut().filter(|v| v.volume == delete.volume) {
                    version.deleted = true;
                }
                self.index.leave_all_of(delete.volume);
            }
            Change::Freeze(freeze) => {
                for frozen in &freeze.frozen {
                    let id = self.take_id(frozen.version)?;
                    let head = self.version_mut(frozen.head)?;
                    let (VersionKind::Head, Some(described)) = (head.kind, &frozen.snapshot) else {
                        return Err(inconsistent("a freeze of something that is no head"));
                    };
                    let mut snapshot = VersionState { id, users: 0, walkers: 0, ..head.clone() };
                    snapshot.freeze(freeze.epoch, described);
                    // The head keeps its id, so that open writers go on. What it owned came into being before.
                    let head = self.version_mut(frozen.head)?;
                    head.parent = id;
                    head.owned_blocks = 0;
                    self.versions.insert(id, snapshot);
                    self.enter(id);
                }
                close_epoch(epoch, freeze.epoch)?;
            }
            Change::DeleteVersion(delete) => {
                self.leave(delete.version);
                self.version_mut(delete.version)?.deleted = true;
            }
            Change::DescribeSnapshot(describe) => {
                let version = self.version(describe.version)?;
                if version.kind != VersionKind::Snapshot || describe.snapshot.is_none() {
                    return Err(inconsistent("a description of something that is no snapshot"));
                }
                self.leave(describe.version);
                self.version_mut(describe.version)?.snapshot.clone_from(&describe.snapshot);
                self.enter(describe.version);
            }
            Change::Stage(stage) => {
                let base = match stage.base {
                    0 => None,
                    base => Some(self.version(base)?.clone()),
                };
                if stage.size_bytes > VOLUME_BYTES_MAX || base.as_ref().is_some_and(|b| b.frozen == Birth(0))
                {
                    return Err(inconsistent("a staged version with an impossible size or base"));
                }
                self.volume_mut(stage.volume)?;
                let size = base.as_ref().map_or(stage.size_bytes, |b| b.size_bytes);
                self.insert_head(stage.version, stage.volume, base.as_ref(), size)?;
                let staged = self.version_mut(stage.version)?;
                staged.kind = VersionKind::Staged;
                staged.staged = Some(described(&stage.staged)?);
                staged.resize(stage.size_bytes, *epoch);
            }
            Change::Restage(restage) => self.restage(restage, *epoch)?,
            Change::Commit(commit) => {
                for committed in &commit.committed {
                    let version = self.version_mut(committed.version)?;
                    let (VersionKind::Staged, Some(described)) = (version.kind, &committed.snapshot) else {
                        return Err(inconsistent("a commit of something that is not staged"));
                    };
                    version.freeze(commit.epoch, described);
                    let version = version.clone();
                    self.enter(version.id);
                    self.replace_head(&version, committed.head, &committed.rescue, commit.epoch)?;
                    if let Some(replica) = &mut self.volume_mut(version.volume)?.replica {
                        replica.published = version.id;
                    }
                }
                close_epoch(epoch, commit.epoch)?;
            }
            Change::MoveMain(moves) => {
                for moved in &moves.moved {
                    self.move_main(moved, moves.epoch)?;
                }
                close_epoch(epoch, moves.epoch)?;
            }
            Change::SetReplica(set) => self.volume_mut(set.volume)?.replica.clone_from(&set.replica),
            Change::SetLimits(set) => {
                self.volume_mut(set.volume)?.limits = set.limits;
                self.note_reserving();
            }
            Change::Clone(clone) => {
                let volume =
                    clone.volume.clone().ok_or_else(|| inconsistent("a clone without description"))?;
                let base = self.version(clone.base)?.clone();
                let id = self.take_id(volume.id)?;
                self.insert_head(volume.head, id, Some(&base), base.size_bytes)?;
                self.volumes.insert(id, volume);
                self.note_reserving();
            }
        }
        Ok(())
    }

    fn restage(&mut self, restage: &Restage, epoch: Birth) -> Result<()> {
        if restage.size_bytes > VOLUME_BYTES_MAX {
            return Err(inconsistent("an impossible size"));
        }
        let version = self.version_mut(restage.version)?;
        if version.kind != VersionKind::Staged || version.deleted {
            return Err(inconsistent("a new description of something that is not staged"));
        }
        version.staged = Some(described(&restage.staged)?);
        version.resize(restage.size_bytes, epoch);
        Ok(())
    }

    fn move_main(&mut self, moved: &MovedHead, epoch: u64) -> Result<()> {
        let base = self.version(moved.base)?.clone();
        if base.kind != VersionKind::Snapshot || base.deleted || base.volume != moved.volume {
            return Err(inconsistent("a head moved to something that is no snapshot of its volume"));
        }
        self.replace_head(&base, moved.head, &moved.rescue, epoch)?;
        if moved.sets_replica {
            self.volume_mut(moved.volume)?.replica.clone_from(&moved.replica);
        }
        Ok(())
    }

    /// A new head that begins as the snapshot `base`. The old one stays as `rescue`, or goes.
    fn replace_head(
        &mut self,
        base: &VersionState,
        head: u64,
        rescue: &Option<Snapshot>,
        epoch: u64,
    ) -> Result<()> {
        self.insert_head(head, base.volume, Some(base), base.size_bytes)?;
        let old_head = std::mem::replace(&mut self.volume_mut(base.volume)?.head, head);
        let old = self.version_mut(old_head)?;
        match rescue {
            Some(rescue) => old.freeze(epoch, rescue),
            None => old.deleted = true,
        }
        self.enter(old_head);
        Ok(())
    }

    /// Whether the head holds writes that nothing would keep once it makes way for a child of version `base`: something
    /// that neither came with the snapshot it began as, nor is in a snapshot that stays. A snapshot stays if a person made
    /// it, or if it lies on the new line. One that was taken for a mirror and lies beside that line does not: the mirror
    /// deletes it when it needs it no more, so what the head began as is its own then. Nor does one that a timetable or
    /// retention lets go one day, unless a person holds it. (A deleted snapshot keeps nothing safe, whether reaped or not.)
    pub(crate) fn head_has_own_writes(&self, volume: &Volume, base: u64) -> bool {
        let Some(head) = self.versions.get(&volume.head) else { return false };
        let mut new_line = HashSet::new();
        let mut next = self.versions.get(&base);
        while let Some(version) = next {
            new_line.insert(version.id);
            next = self.versions.get(&version.parent);
        }
        let mirror = volume.replica.as_ref().map(|replica| uuid_of(&replica.relationship));
        let is_rotating = |s: &Snapshot| {
            !s.held && rotates(uuid_of(&volume.uuid), mirror, s.pins.iter().map(|pin| uuid_of(pin)))
        };
        let is_lasting = |s: &Snapshot| s.relationship.is_empty() && !is_rotating(s);
        let stays = |snapshot: &VersionState| {
            new_line.contains(&snapshot.id) || snapshot.snapshot.as_ref().is_some_and(is_lasting)
        };
        let (mut inherited, mut ancestor) = (head.inherited, self.live_ancestor(head));
        while let Some(beside) = ancestor.filter(|a| !stays(a)) {
            if beside.frozen == inherited {
                inherited = Birth(0);
            }
            ancestor = self.live_ancestor(beside);
        }
        let kept = ancestor.map_or(Birth(0), |a| a.frozen);
        head.changed_since(kept.max(inherited))
    }

    /// The nearest live snapshot that a version descends from; of another volume, if it is a clone's.
    pub(crate) fn live_ancestor(&self, version: &VersionState) -> Option<&VersionState> {
        let mut ancestor = self.versions.get(&version.parent);
        while let Some(deleted) = ancestor.filter(|a| a.deleted) {
            ancestor = self.versions.get(&deleted.parent);
        }
        ancestor
    }

    /// Which ancestor still holds what `version` inherited: see [`Holder`].
    pub(crate) fn holder_of(&self, version: &VersionState) -> Holder {
        let mut holder = Holder { version: version.id, steps: Vec::new() };
        let mut parent = self.versions.get(&version.parent);
        while let Some(p) = parent {
            holder.steps.push(Step { version: p.id, reaped: p.reaped_blocks, frozen: p.frozen });
            if p.reaped_blocks == 0 {
                return holder;
            }
            parent = self.versions.get(&p.parent);
        }
        holder.steps.push(Step { version: 0, reaped: 0, frozen: Birth(0) });
        holder
    }

    /// What a volume takes, with all its versions.
    pub(crate) fn usage_of(&self, volume: u64) -> Usage {
        self.usage.get(&volume).copied().unwrap_or_default()
    }

    /// Of each volume.
    pub(crate) fn usage_mut(&mut self) -> impl Iterator<Item = &mut Usage> {
        self.usage.values_mut()
    }

    /// Something of a version changed; see [`Usage::changed`].
    pub(crate) fn changed(&mut self, version: u64, blocks: u64, ending: Option<u64>) {
        if let Some(found) = self.versions.get(&version) {
            self.usage.entry(found.volume).or_default().changed(blocks, ending);
        }
    }

    /// A host was told that the quota of a version's volume is reached.
    pub(crate) fn refused(&mut self, version: u64) {
        if let Some(found) = self.versions.get(&version) {
            self.usage.entry(found.volume).or_default().refused();
        }
    }

    /// What is said of the room of a version's volume, with the volume's id; none if nothing is.
    pub(crate) fn limits_of(&self, version: u64) -> Option<(u64, &VolumeLimits)> {
        let volume = self.versions.get(&version)?.volume;
        Some((volume, self.volumes.get(&volume)?.limits.as_ref()?))
    }

    /// Live volumes for which something is reserved: id and blocks reserved.
    pub(crate) fn reserving(&self) -> impl Iterator<Item = (u64, u64)> {
        let reserved =
            |id: &u64| self.volumes.get(id)?.limits.as_ref().map(|l| (*id, blocks(l.reserve_bytes)));
        self.reserving.iter().filter_map(reserved)
    }

    fn note_reserving(&mut self) {
        let reserves = |v: &&Volume| !v.deleted && v.limits.as_ref().is_some_and(|l| l.reserve_bytes > 0);
        self.reserving = self.volumes.values().filter(reserves).map(|v| v.id).collect();
    }

    /// What a version owns; see [`Version::owned_blocks`].
    pub(crate) fn owned_blocks(&self, version: u64) -> u64 {
        self.versions.get(&version).map_or(0, |found| found.owned_blocks)
    }

    /// A version got `blocks` ownerships.
    pub(crate) fn owns(&mut self, version: u64, blocks: u64) {
        if let Some(found) = self.versions.get_mut(&version) {
            found.owned_blocks += blocks;
            self.usage.entry(found.volume).or_default().gains(blocks);
        }
    }

    /// Of what a version owned `blocks` ended.
    pub(crate) fn owns_no_more(&mut self, version: u64, blocks: u64) {
        if let Some(found) = self.versions.get_mut(&version) {
            debug_assert!(
                found.owned_blocks >= blocks,
                "version {version} owns {} blocks",
                found.owned_blocks
            );
            let ended = blocks.min(found.owned_blocks);
            found.owned_blocks -= ended;
            self.usage.entry(found.volume).or_default().loses(ended);
        }
    }

    /// A point found that of what `version` owned when it began, before epoch `birth`, `blocks` ended. What the version had then is
    /// a snapshot's, if it was frozen since.
    pub(crate) fn owned_no_more_at(&mut self, version: u64, birth: Birth, blocks: u64) {
        let mut owner = version;
        while let Some(parent) = self.versions.get(&owner).and_then(|v| self.versions.get(&v.parent))
            && parent.frozen >= birth
        {
            owner = parent.id;
        }
        self.owns_no_more(owner, blocks);
    }

    /// A version is reaped. What it owned and its child has too is the child's from now on.
    pub(crate) fn remove_reaped(&mut self, id: u64, child: Option<u64>) -> Result<()> {
        let reaped =
            self.versions.remove(&id).ok_or_else(|| inconsistent(format!("version {id} is gone")))?;
        self.usage.entry(reaped.volume).or_default().loses(reaped.owned_blocks);
        if let Some(child) = child {
            self.version_mut(child)?.parent = reaped.parent;
            self.owns(child, reaped.owned_blocks);
        }
        let volume_is_empty = !self.versions.values().any(|v| v.volume == reaped.volume);
        if volume_is_empty {
            self.volumes.remove(&reaped.volume);
            self.usage.remove(&reaped.volume);
        }
        Ok(())
    }
}

fn described(staged: &Option<StagedFor>) -> Result<StagedFor> {
    staged.clone().ok_or_else(|| inconsistent("a staged version that nothing is said of"))
}

fn close_epoch(epoch: &mut Birth, closed: u64) -> Result<()> {
    if epoch.0 != closed {
        return Err(inconsistent(format!("epoch {closed} is closed while {} runs", epoch.0)));
    }
    epoch.0 += 1;
    Ok(())
}

/// Up to which birth an ancestor holds what a version inherited. An ancestor that is being reaped holds nothing
/// below its cursor any more; there the next one counts.
#[derive(Clone, Default)]
pub(crate) struct Holder {
    /// Whose it is.
    version: u64,
    /// Nearest ancestor first.
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
struct Step {
    version: u64,
    /// Below this block it holds nothing.
    reaped: u64,
    frozen: Birth,
}

impl Holder {
    /// Births up to this are held by an ancestor at `block`.
    pub(crate) fn at_block(&self, block: u64) -> Birth {
        self.steps.iter().find(|step| block >= step.reaped).map_or(Birth(0), |step| step.frozen)
    }

    /// The same for a node whose range ends before `end`: it is held until the cursor has passed that end.
    pub(crate) fn at_node(&self, end: u64) -> Birth {
        self.steps.iter().find(|step| end > step.reaped).map_or(Birth(0), |step| step.frozen)
    }

    /// Whatever was born up to this is held by an ancestor, wherever it is.
    pub(crate) fn everywhere(&self) -> Birth {
        self.steps.last().map_or(Birth(0), |step| step.frozen)
    }

    /// As whose a mapping of this birth is counted ([`Version::owned_blocks`]): the version's own, or that of an ancestor
    /// whose reaping has passed it.
    pub(crate) fn owner(&self, birth: Birth) -> u64 {
        let mut owner = self.version;
        for step in self.steps.iter().take_while(|step| birth <= step.frozen) {
            owner = step.version;
        }
        owner
    }
}

/// Ownerships that ended: of how many blocks, for each version as whose they were counted. Few versions at a time.
#[derive(Default)]
pub(crate) struct Ended(Vec<(u64, u64)>);

impl Ended {
    pub(crate) fn add(&mut self, version: u64) {
        match self.0.iter_mut().find(|(found, _)| *found == version) {
            Some((_, blocks)) => *blocks += 1,
            None => self.0.push((version, 1)),
        }
    }

    /// (version, blocks).
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }
}

/// What reaping or replacing a delta's mappings ends: those that no ancestor holds.
pub(crate) fn freed_of<'a>(
    replaced: &'a [(u64, farside_format::Pointer)],
    holder: &'a Holder,
) -> impl Iterator<Item = farside_format::Pointer> {
    replaced.iter().filter(|(block, p)| p.birth > holder.at_block(*block)).map(|(_, p)| *p)
}

/// Of 16 bytes; none of another length is one.
pub(crate) fn uuid_of(bytes: &[u8]) -> uuid::Uuid {
    uuid::Uuid::from_slice(bytes).unwrap_or_default()
}
