//! What journal records may say, and what the pool holds after them.

use std::collections::BTreeMap;

use farside_format::catalog::{
    CatalogChange, Change, MovedHead, Origin, Replica, Restage, Snapshot, StagedFor, VersionKind, Volume,
};
use farside_format::fingerprint::{BLOCKS_MAX, level_for, span};
use farside_format::journal::Record;
use farside_format::{BLOCK_BYTES, Birth, Place, Pointer};

use crate::catalog::{limits_faults, origin_faults, replica_faults, snapshot_faults, staged_fault};
use crate::overlay::Content;
use crate::places::PlaceSet;
use crate::point::Point;
use crate::reader::Reader;
use crate::report::VersionReport;

/// A record that cannot follow what is before it.
pub(crate) struct Fault {
    pub(crate) expected: String,
    pub(crate) found: String,
}

fn require(holds: bool, expected: &str, found: impl std::fmt::Display) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault { expected: expected.into(), found: found.to_string() }) }
}

/// A version while records are applied.
struct Version {
    volume: u64,
    /// 0: none.
    parent: u64,
    /// Blocks below this are held no more. Reaping is no record: as of the point.
    reaped: u64,
    /// Blocks that its tree covers: an opening changes nothing beyond. It never sinks.
    reach: u64,
    kind: VersionKind,
    snapshot: Option<Snapshot>,
    deleted: bool,
    size_bytes: u64,
    /// The epoch it closed; 0 while it can be written.
    frozen: u64,
    /// Births up to this came with the snapshot it began as.
    inherited: u64,
    content: Content,
    /// False if part of it is reaped or unreadable, so that no content root can be given.
    whole: bool,
}

/// Blocks that the tree of a version of this size covers at least.
fn reach(size_bytes: u64) -> u64 {
    span(level_for(size_bytes.div_ceil(BLOCK_BYTES as u64)))
}

impl Version {
    fn resize(&mut self, size_bytes: u64) {
        (self.size_bytes, self.reach) = (size_bytes, self.reach.max(reach(size_bytes)));
    }

    fn freeze(&mut self, epoch: u64, snapshot: &Snapshot) {
        (self.kind, self.frozen, self.inherited) = (VersionKind::Snapshot, epoch, 0);
        self.snapshot = Some(snapshot.clone());
    }

    /// A version may only be made smaller once nothing lies past its new size.
    fn require_cut(&self, reader: &mut Reader<'_>, size_bytes: u64) -> Result<(), Fault> {
        if !self.whole || size_bytes >= self.size_bytes {
            return Ok(());
        }
        let blocks = size_bytes.div_ceil(BLOCK_BYTES as u64);
        // A node that cannot be read was noted before; nothing can be said then.
        let beyond = self.content.maps_from(reader, blocks).unwrap_or(false);
        require(
            !beyond,
            "blocks past the new size unmapped before",
            format!("mappings from block {blocks} on"),
        )
    }
}

fn require_purpose(staged: &Option<StagedFor>) -> Result<(), Fault> {
    let Some(staged) = staged else {
        return require(false, "what a staged version is built for", "nothing");
    };
    match staged_fault(staged) {
        Some((expected, found)) => require(false, expected, found),
        None => Ok(()),
    }
}

/// A clone that tells of its origin tells of what it began as. (One of an early pool tells nothing.)
fn require_origin(origin: &Option<Origin>, volume: u64, snapshot: Option<&Snapshot>) -> Result<(), Fault> {
    let Some(origin) = origin else { return Ok(()) };
    if let Some((expected, found)) = origin_faults(origin) {
        return require(false, expected, found);
    }
    require(
        origin.volume == volume && snapshot.is_some_and(|s| s.uuid == origin.snapshot),
        "an origin that is what the clone began as",
        format!("volume {}, snapshot {:02x?}", origin.volume, origin.snapshot),
    )
}

/// The pool as records change it.
pub(crate) struct Replay<'p> {
    point: &'p Point,
    volumes: BTreeMap<u64, Volume>,
    versions: BTreeMap<u64, Version>,
    /// Ids below this were given before the point.
    first_new_id: u64,
    epoch: u64,
    /// The highest number of a point so far.
    generation: u64,
    points: u64,
    /// Whether blocks that waited at the point may be reused after the next point's record.
    reuses_waiting: bool,
    /// Places that map records took.
    mapped: PlaceSet,
    /// Of those with several owners: owners beyond the first. (What the point has in use stays so: an ownership of the
    /// point ends with the next point, not with a record.)
    further_owners: BTreeMap<u64, u32>,
    /// Of those, the ones whose last owner has gone: nothing uses them any more.
    freed: PlaceSet,
    pub(crate) records: u64,
}

impl<'p> Replay<'p> {
    /// Begins with the point's state; none if its catalog cannot be read. `reuses_waiting` says that a later point has
    /// been on the medium, so that what waited at this one may have been given out again.
    pub(crate) fn new(point: &'p Point, reuses_waiting: bool) -> Option<Replay<'p>> {
        let catalog = point.catalog.as_ref()?;
        let versions = catalog.versions.iter().filter_map(|version| {
            let tree = point.versions.iter().position(|v| v.id == version.id)?;
            Some((version, &point.versions[tree]))
        });
        let versions = versions.map(|(version, tree)| {
            let live = Version {
                volume: version.volume,
                parent: tree.parent.map_or(0, |parent| point.versions[parent].id),
                reaped: tree.reaped,
                reach: span(tree.tree.level).max(reach(version.size_bytes)),
                kind: tree.kind,
                snapshot: version.snapshot.clone(),
                deleted: version.deleted,
                size_bytes: version.size_bytes,
                frozen: version.frozen,
                inherited: version.inherited,
                content: Content::stored(tree.tree, tree.family),
                whole: tree.content_root().is_some(),
            };
            (version.id, live)
        });
        Some(Replay {
            point,
            volumes: catalog.volumes.iter().map(|v| (v.id, v.clone())).collect(),
            versions: versions.collect(),
            first_new_id: catalog.next_id,
            epoch: point.superblock.birth_epoch,
            generation: point.superblock.generation,
            points: 0,
            reuses_waiting,
            mapped: PlaceSet::default(),
            further_owners: BTreeMap::new(),
            freed: PlaceSet::default(),
            records: 0,
        })
    }

    /// The birth epoch after the records so far.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Applies one record.
    pub(crate) fn apply(
        &mut self,
        reader: &mut Reader<'_>,
        record: &Record,
        is_last: bool,
    ) -> Result<(), Fault> {
        self.records += 1;
        match record {
            Record::Map { version, birth, block, place, fingerprints }
            | Record::Share { version, birth, block, place, fingerprints } => {
                let end = block + fingerprints.len() as u64;
                self.require_epoch(birth)?;
                let count = fingerprints.len() as u64;
                if matches!(record, Record::Share { .. }) {
                    self.require_shared(place.0, count)?;
                    (place.0..place.0 + count).for_each(|place| self.gain(place));
                } else {
                    self.require_places(place.0, count)?;
                }
                let target = self.writable(*version)?;
                require(
                    end <= target.size_bytes.div_ceil(BLOCK_BYTES as u64),
                    "blocks below the version's size",
                    format!("blocks up to {end}, size {} bytes", target.size_bytes),
                )?;
                let mut replaced = Vec::new();
                for ((block, place), fingerprint) in (*block..end).zip(place.0..).zip(fingerprints) {
                    let pointer = Pointer { fingerprint: *fingerprint, place: Place(place), birth: *birth };
                    replaced.extend(target.content.map(block, pointer).map(|old| (block, old)));
                }
                self.release(*version, &replaced);
            }
            Record::Unmap { version, birth, block, count } => {
                self.require_epoch(birth)?;
                require(*count > 0, "a range of at least one block", count)?;
                let target = self.writable(*version)?;
                require(
                    block + count <= target.reach,
                    "blocks below the end of the version's tree",
                    format!("blocks up to {}, a tree of {}", block + count, target.reach),
                )?;
                let replaced = target.content.unmap(*block, block + count);
                self.release(*version, &replaced);
            }
            Record::Catalog(change) => self.change(reader, change)?,
            Record::Point { generation, birth_epoch } => {
                // A point whose superblock was lost, or never written, keeps its number: numbers are given once.
                require(
                    *generation > self.generation,
                    &format!("a point after generation {}", self.generation),
                    generation,
                )?;
                require(
                    birth_epoch.0 == self.epoch + 1,
                    &format!("birth epoch {}", self.epoch + 1),
                    birth_epoch.0,
                )?;
                // The superblock names whole batches as in the point or not.
                require(is_last, "a point as the last record of its batch", "records after it")?;
                (self.generation, self.epoch) = (*generation, birth_epoch.0);
                self.points += 1;
            }
        }
        Ok(())
    }

    fn require_epoch(&self, birth: &Birth) -> Result<(), Fault> {
        require(birth.0 == self.epoch, &format!("birth {}, the epoch", self.epoch), birth.0)
    }

    /// Map records name blocks that nothing else has, at the point or since.
    fn require_places(&mut self, first: u64, count: u64) -> Result<(), Fault> {
        let superblock = &self.point.superblock;
        let allocatable = superblock.first_allocatable()..superblock.pool_blocks;
        for place in first..first + count {
            require(allocatable.contains(&place), "places that can be allocated", format!("place {place}"))?;
            require(
                !self.point.usage.used.contains(place),
                "places that are free at the point",
                format!("place {place}, in use by generation {}", superblock.generation),
            )?;
            require(
                !self.point.waiting.contains(place) || (self.reuses_waiting && self.points > 0),
                "places that are free at the point",
                format!("place {place}, kept for an older point"),
            )?;
            require(
                self.mapped.insert(place),
                "places mapped once between points",
                format!("place {place} again"),
            )?;
        }
        Ok(())
    }

    /// Share records name blocks that something has, at the point or since.
    fn require_shared(&self, first: u64, count: u64) -> Result<(), Fault> {
        let first_allocatable = self.point.superblock.first_allocatable();
        for place in first..first + count {
            let since = self.mapped.contains(place) && !self.freed.contains(place);
            // What a damaged node names is not found by walking.
            let may_be_unknown = self.point.usage.unreadable > 0 || self.point.unattributed.contains(place);
            let in_use = self.point.usage.used.contains(place) || since || may_be_unknown;
            require(
                place >= first_allocatable && in_use,
                "places that are in use",
                format!("place {place}, which nothing uses"),
            )?;
        }
        Ok(())
    }

    /// One owner more.
    fn gain(&mut self, place: u64) {
        if self.mapped.contains(place) {
            *self.further_owners.entry(place).or_default() += 1;
        }
    }

    /// Mappings of a version that came since the point have been replaced: those that no ancestor has end here.
    fn release(&mut self, version: u64, replaced: &[(u64, Pointer)]) {
        for (block, pointer) in replaced {
            let place = pointer.place.0;
            if pointer.birth.0 <= self.held(version, *block) || !self.mapped.contains(place) {
                continue;
            }
            match self.further_owners.get_mut(&place) {
                Some(1) => {
                    self.further_owners.remove(&place);
                }
                Some(further) => *further -= 1,
                None => {
                    self.freed.insert(place);
                }
            }
        }
    }

    /// Births up to this are held by an ancestor at `block`: by the nearest that is not reaped there.
    fn held(&self, version: u64, block: u64) -> u64 {
        let parent_of = |version: &Version| self.versions.get(&version.parent);
        let mut ancestor = self.versions.get(&version).and_then(parent_of);
        while let Some(reaped) = ancestor.filter(|a| block < a.reaped) {
            ancestor = parent_of(reaped);
        }
        ancestor.map_or(0, |a| a.frozen)
    }

    fn version(&mut self, id: u64) -> Result<&mut Version, Fault> {
        let found = format!("version {id}");
        let version = self.versions.get_mut(&id).filter(|v| !v.deleted);
        version.ok_or_else(|| Fault { expected: "a version that exists".into(), found })
    }

    fn writable(&mut self, id: u64) -> Result<&mut Version, Fault> {
        let version = self.version(id)?;
        let kind = version.kind;
        require(
            matches!(kind, VersionKind::Head | VersionKind::Staged),
            "a head or staged version",
            format!("version {id}, a {kind:?}"),
        )?;
        Ok(version)
    }

    fn of_kind(&mut self, id: u64, expected: VersionKind) -> Result<&mut Version, Fault> {
        let version = self.version(id)?;
        require(
            version.kind == expected,
            &format!("a {expected:?}"),
            format!("version {id}, a {:?}", version.kind),
        )?;
        Ok(version)
    }

    fn volume(&mut self, id: u64) -> Result<&mut Volume, Fault> {
        let volume = self.volumes.get_mut(&id).filter(|v| !v.deleted);
        volume.ok_or_else(|| Fault { expected: "a volume that exists".into(), found: format!("volume {id}") })
    }

    fn require_new_id(&self, id: u64) -> Result<(), Fault> {
        let fresh =
            id >= self.first_new_id && !self.versions.contains_key(&id) && !self.volumes.contains_key(&id);
        require(fresh, &format!("an id never used before, from {} on", self.first_new_id), id)
    }

    fn require_size(size_bytes: u64) -> Result<(), Fault> {
        require(size_bytes <= BLOCKS_MAX * BLOCK_BYTES as u64, "a size of at most 16 PiB", size_bytes)
    }

    fn require_volume_name(&self, name: &str) -> Result<(), Fault> {
        let taken = self.volumes.values().any(|v| !v.deleted && v.name == name);
        require(!name.is_empty() && !taken, "a name of its own", format!("`{name}`"))
    }

    fn require_snapshot(&self, volume: u64, this: u64, snapshot: &Snapshot) -> Result<(), Fault> {
        if let Some((expected, found)) = snapshot_faults(snapshot).into_iter().next() {
            return require(false, expected, found);
        }
        let taken = self.versions.iter().any(|(id, v)| {
            *id != this
                && !v.deleted
                && v.volume == volume
                && v.snapshot.as_ref().is_some_and(|s| s.name == snapshot.name)
        });
        require(!taken, "a snapshot name of its own", format!("`{}`", snapshot.name))
    }

    fn change(&mut self, reader: &mut Reader<'_>, change: &CatalogChange) -> Result<(), Fault> {
        let missing = |what: &str| Fault { expected: what.into(), found: "none".into() };
        match change.change.as_ref().ok_or_else(|| missing("a change this version knows"))? {
            Change::CreateVolume(create) => {
                let volume = create.volume.as_ref().ok_or_else(|| missing("a volume"))?;
                Self::require_size(create.size_bytes)?;
                self.add_volume(volume, Content::empty(volume.family), create.size_bytes)?;
            }
            Change::RenameVolume(rename) => {
                self.volume(rename.volume)?;
                self.require_volume_name(&rename.name)?;
                self.volume(rename.volume)?.name = rename.name.clone();
            }
            Change::ResizeHead(resize) => {
                Self::require_size(resize.size_bytes)?;
                let version = self.of_kind(resize.version, VersionKind::Head)?;
                version.require_cut(reader, resize.size_bytes)?;
                version.resize(resize.size_bytes);
            }
            Change::DeleteVolume(delete) => {
                self.volume(delete.volume)?.deleted = true;
                for version in self.versions.values_mut().filter(|v| v.volume == delete.volume) {
                    version.deleted = true;
                }
            }
            Change::Freeze(freeze) => {
                self.close_epoch(freeze.epoch)?;
                require(!freeze.frozen.is_empty(), "at least one head to freeze", 0)?;
                for frozen in &freeze.frozen {
                    let snapshot =
                        frozen.snapshot.as_ref().ok_or_else(|| missing("a snapshot's description"))?;
                    self.require_new_id(frozen.version)?;
                    let head = self.of_kind(frozen.head, VersionKind::Head)?;
                    let volume = head.volume;
                    let version = Version {
                        volume,
                        parent: std::mem::replace(&mut head.parent, frozen.version),
                        reaped: 0,
                        reach: head.reach,
                        kind: VersionKind::Snapshot,
                        snapshot: Some(snapshot.clone()),
                        deleted: false,
                        size_bytes: head.size_bytes,
                        frozen: freeze.epoch,
                        inherited: 0,
                        content: head.content.clone(),
                        whole: head.whole,
                    };
                    self.require_snapshot(volume, frozen.version, snapshot)?;
                    self.versions.insert(frozen.version, version);
                }
            }
            Change::DeleteVersion(delete) => {
                let version = self.version(delete.version)?;
                require(
                    version.kind != VersionKind::Head,
                    "a snapshot or staged version",
                    format!("head {}", delete.version),
                )?;
                version.deleted = true;
            }
            Change::DescribeSnapshot(describe) => {
                let snapshot =
                    describe.snapshot.as_ref().ok_or_else(|| missing("a snapshot's description"))?;
                let volume = self.of_kind(describe.version, VersionKind::Snapshot)?.volume;
                self.require_snapshot(volume, describe.version, snapshot)?;
                self.version(describe.version)?.snapshot = Some(snapshot.clone());
            }
            Change::Stage(stage) => self.stage(stage)?,
            Change::Commit(commit) => {
                self.close_epoch(commit.epoch)?;
                require(!commit.committed.is_empty(), "at least one version to commit", 0)?;
                for committed in &commit.committed {
                    self.commit(committed, commit.epoch)?;
                }
            }
            Change::MoveMain(moves) => {
                self.close_epoch(moves.epoch)?;
                require(!moves.moved.is_empty(), "at least one volume to move", 0)?;
                for moved in &moves.moved {
                    self.move_main(moved, moves.epoch)?;
                }
            }
            Change::Restage(restage) => self.restage(reader, restage)?,
            Change::SetReplica(set) => self.set_replica(set.volume, &set.replica)?,
            Change::SetLimits(set) => {
                if let Some((expected, found)) = set.limits.iter().find_map(limits_faults) {
                    return require(false, expected, found);
                }
                self.volume(set.volume)?.limits = set.limits;
            }
            Change::Clone(clone) => {
                let volume = clone.volume.as_ref().ok_or_else(|| missing("a volume"))?;
                let base = self.of_kind(clone.base, VersionKind::Snapshot)?;
                let (content, size, whole) = (base.content.clone(), base.size_bytes, base.whole);
                let (base_volume, inherited, reach) = (base.volume, base.frozen, base.reach);
                require_origin(&volume.origin, base_volume, base.snapshot.as_ref())?;
                self.require_family(base_volume, volume.family)?;
                self.add_volume(volume, content, size)?;
                let head = self.version(volume.head)?;
                (head.parent, head.whole, head.inherited) = (clone.base, whole, inherited);
                head.reach = head.reach.max(reach);
            }
        }
        Ok(())
    }

    fn close_epoch(&mut self, epoch: u64) -> Result<(), Fault> {
        require(epoch == self.epoch, &format!("epoch {} to be closed", self.epoch), epoch)?;
        self.epoch += 1;
        Ok(())
    }

    /// The volume of a base may be deleted while its snapshots still carry others, but its record is there.
    fn require_family(&self, base_volume: u64, family: u64) -> Result<(), Fault> {
        let of_base = self.volumes.get(&base_volume).map(|v| v.family);
        require(of_base == Some(family), "the family of the base", format!("family {family}"))
    }

    fn add_volume(&mut self, volume: &Volume, content: Content, size_bytes: u64) -> Result<(), Fault> {
        self.require_new_id(volume.id)?;
        self.require_new_id(volume.head)?;
        require(volume.id != volume.head, "an id for the volume and one for its head", volume.id)?;
        require(volume.family != 0 && !volume.deleted, "a live volume with a family", volume.family)?;
        require(volume.uuid.len() == 16, "a volume UUID of 16 bytes", volume.uuid.len())?;
        self.require_volume_name(&volume.name)?;
        let head = Version {
            volume: volume.id,
            parent: 0,
            reaped: 0,
            reach: reach(size_bytes),
            kind: VersionKind::Head,
            snapshot: None,
            deleted: false,
            size_bytes,
            frozen: 0,
            inherited: 0,
            content,
            whole: true,
        };
        self.versions.insert(volume.head, head);
        self.volumes.insert(volume.id, volume.clone());
        Ok(())
    }

    fn stage(&mut self, stage: &farside_format::catalog::Stage) -> Result<(), Fault> {
        self.require_new_id(stage.version)?;
        Self::require_size(stage.size_bytes)?;
        let family = self.volume(stage.volume)?.family;
        // All of its base, even if it is staged smaller: unmap records cut what lies past its own size.
        let (content, whole, inherited, of_base) = match stage.base {
            0 => (Content::empty(family), true, 0, 0),
            base => {
                let base = self.of_kind(base, VersionKind::Snapshot)?;
                let found = (base.content.clone(), base.whole, base.frozen, base.reach);
                let volume = base.volume;
                self.require_family(volume, family)?;
                found
            }
        };
        require_purpose(&stage.staged)?;
        let version = Version {
            volume: stage.volume,
            parent: stage.base,
            reaped: 0,
            reach: reach(stage.size_bytes).max(of_base),
            kind: VersionKind::Staged,
            snapshot: None,
            deleted: false,
            size_bytes: stage.size_bytes,
            frozen: 0,
            inherited,
            content,
            whole,
        };
        self.versions.insert(stage.version, version);
        Ok(())
    }

    fn restage(&mut self, reader: &mut Reader<'_>, restage: &Restage) -> Result<(), Fault> {
        Self::require_size(restage.size_bytes)?;
        require_purpose(&restage.staged)?;
        let version = self.of_kind(restage.version, VersionKind::Staged)?;
        version.require_cut(reader, restage.size_bytes)?;
        version.resize(restage.size_bytes);
        Ok(())
    }

    fn set_replica(&mut self, volume: u64, replica: &Option<Replica>) -> Result<(), Fault> {
        if let Some((expected, found)) = replica.iter().flat_map(replica_faults).next() {
            return require(false, expected, found);
        }
        self.volume(volume)?.replica.clone_from(replica);
        Ok(())
    }

    fn move_main(&mut self, moved: &MovedHead, epoch: u64) -> Result<(), Fault> {
        let base = self.of_kind(moved.base, VersionKind::Snapshot)?;
        let of = base.volume;
        require(of == moved.volume, "a snapshot of the volume itself", format!("one of volume {of}"))?;
        require(moved.sets_replica || moved.replica.is_none(), "no replica record unless one is set", "one")?;
        self.replace_head(moved.base, moved.head, &moved.rescue, epoch)?;
        if moved.sets_replica { self.set_replica(moved.volume, &moved.replica) } else { Ok(()) }
    }

    /// A new head that begins as the snapshot `base`; the old one stays as `rescue`, or goes.
    fn replace_head(
        &mut self,
        base: u64,
        head: u64,
        rescue: &Option<Snapshot>,
        epoch: u64,
    ) -> Result<(), Fault> {
        self.require_new_id(head)?;
        let parent = base;
        let base = self.of_kind(base, VersionKind::Snapshot)?;
        let begun = Version {
            volume: base.volume,
            parent,
            reaped: 0,
            reach: base.reach,
            kind: VersionKind::Head,
            snapshot: None,
            deleted: false,
            size_bytes: base.size_bytes,
            frozen: 0,
            inherited: base.frozen,
            content: base.content.clone(),
            whole: base.whole,
        };
        let volume = begun.volume;
        let old_head = std::mem::replace(&mut self.volume(volume)?.head, head);
        if let Some(rescue) = rescue {
            self.require_snapshot(volume, old_head, rescue)?;
        }
        let old = self.of_kind(old_head, VersionKind::Head)?;
        match rescue {
            Some(rescue) => old.freeze(epoch, rescue),
            None => old.deleted = true,
        }
        self.versions.insert(head, begun);
        Ok(())
    }

    fn commit(
        &mut self,
        committed: &farside_format::catalog::CommittedVersion,
        epoch: u64,
    ) -> Result<(), Fault> {
        let missing = || Fault { expected: "a snapshot's description".into(), found: "none".into() };
        let snapshot = committed.snapshot.as_ref().ok_or_else(missing)?;
        let staged = self.of_kind(committed.version, VersionKind::Staged)?;
        staged.freeze(epoch, snapshot);
        let volume = staged.volume;
        self.require_snapshot(volume, committed.version, snapshot)?;
        self.replace_head(committed.version, committed.head, &committed.rescue, epoch)?;
        if let Some(replica) = &mut self.volume(volume)?.replica {
            replica.published = committed.version;
        }
        Ok(())
    }

    /// The versions as they are now.
    pub(crate) fn report(&self, reader: &mut Reader<'_>) -> Vec<VersionReport> {
        let versions = self.versions.iter().map(|(&id, version)| {
            let root = version.whole.then(|| version.content.content_root(reader, version.size_bytes).ok());
            VersionReport {
                id,
                volume: version.volume,
                volume_name: self.volumes.get(&version.volume).map_or_else(String::new, |v| v.name.clone()),
                kind: version.kind,
                snapshot: version.snapshot.as_ref().map(|s| s.name.clone()),
                deleted: version.deleted,
                size_bytes: version.size_bytes,
                inherited: version.inherited,
                content_root: root.flatten(),
                mapped_blocks: None,
                owned_blocks: None,
            }
        });
        versions.collect()
    }
}
