//! The catalog of one point: entries against each other, and the versions in an order in which parents come first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use farside_format::catalog::{
    Catalog, Origin, Replica, Snapshot, StagedFor, Version, VersionKind, Volume, VolumeLimits,
};
use farside_format::fingerprint::BLOCKS_MAX;
use farside_format::{BLOCK_BYTES, ContentRoot, Superblock, TreeReference};

use crate::reader::Reader;
use crate::report::{Location, Severity, VersionReport, What};

const HINT: &str = "the catalog says what volumes there are; volumes not named here are not concerned";

/// A version as the walk of its tree needs it.
pub(crate) struct VersionTree {
    pub(crate) id: u64,
    pub(crate) volume: u64,
    pub(crate) volume_name: String,
    pub(crate) snapshot: Option<String>,
    pub(crate) kind: VersionKind,
    pub(crate) deleted: bool,
    pub(crate) family: u64,
    pub(crate) tree: TreeReference,
    pub(crate) size_bytes: u64,
    /// The epoch it closed; 0 while it can be written.
    pub(crate) frozen: u64,
    /// Births up to this came with the snapshot it began as.
    pub(crate) inherited: u64,
    /// Blocks below this are held no more.
    pub(crate) reaped: u64,
    /// Blocks that it owns and did not inherit, as the catalog says.
    pub(crate) owned_blocks: u64,
    /// Index of the parent among the versions, always a smaller one.
    pub(crate) parent: Option<usize>,
    /// Found by the walk.
    pub(crate) mapped_blocks: Option<u64>,
    /// Blocks below lost pointers, once walked.
    pub(crate) lost_blocks: u64,
    /// Whether every node that the version holds could be read.
    pub(crate) readable: bool,
}

impl VersionTree {
    pub(crate) fn size_blocks(&self) -> u64 {
        self.size_bytes.div_ceil(BLOCK_BYTES as u64)
    }

    /// Nothing may be mapped from this block on. A version staged smaller than its base begins as all of the base,
    /// and a point may be made before it is cut.
    pub(crate) fn end_blocks(&self) -> u64 {
        if self.kind == VersionKind::Staged { BLOCKS_MAX } else { self.size_blocks() }
    }

    pub(crate) fn content_root(&self) -> Option<ContentRoot> {
        let top = self.tree.root.fingerprint.raise(self.tree.level, farside_format::fingerprint::TOP_LEVEL);
        (self.reaped == 0 && self.readable && self.lost_blocks == 0)
            .then(|| ContentRoot::new(top, self.size_bytes))
    }

    pub(crate) fn report(&self) -> VersionReport {
        VersionReport {
            id: self.id,
            inherited: self.inherited,
            volume: self.volume,
            volume_name: self.volume_name.clone(),
            kind: self.kind,
            snapshot: self.snapshot.clone(),
            deleted: self.deleted,
            size_bytes: self.size_bytes,
            content_root: self.content_root(),
            mapped_blocks: self.mapped_blocks,
            owned_blocks: Some(self.owned_blocks),
        }
    }

    pub(crate) fn location(&self, generation: u64) -> Location {
        Location {
            generation: Some(generation),
            tree: Some(farside_format::TreeKind::Volume),
            volume: Some(self.volume_name.clone()),
            version: Some(self.id),
            snapshot: self.snapshot.clone(),
            ..Location::default()
        }
    }
}

/// Checks the entries against each other and returns the versions whose trees can be walked, parents first.
pub(crate) fn check(reader: &mut Reader<'_>, superblock: &Superblock, catalog: &Catalog) -> Vec<VersionTree> {
    let mut checker = Checker { reader, superblock, catalog };
    let volumes = checker.volumes();
    checker.versions(&volumes);
    checker.heads();
    checker.trees(&volumes)
}

struct Checker<'c, 'a> {
    reader: &'c mut Reader<'a>,
    superblock: &'c Superblock,
    catalog: &'c Catalog,
}

impl Checker<'_, '_> {
    fn at(&self, volume: Option<&Volume>, version: Option<&Version>) -> Location {
        Location {
            generation: Some(self.superblock.generation),
            volume: volume.map(|v| v.name.clone()),
            version: version.map(|v| v.id),
            snapshot: version.and_then(|v| v.snapshot.as_ref()).map(|s| s.name.clone()),
            ..Location::default()
        }
    }

    fn require(&mut self, holds: bool, at: &Location, expected: &str, found: impl std::fmt::Display) {
        if !holds {
            self.reader.error(What::Catalog, at.clone(), expected, found.to_string(), HINT);
        }
    }

    fn volumes(&mut self) -> HashMap<u64, Volume> {
        let catalog = self.catalog;
        let mut by_id = HashMap::new();
        let mut names = BTreeSet::new();
        for volume in &catalog.volumes {
            let at = self.at(Some(volume), None);
            self.require(
                (1..catalog.next_id).contains(&volume.id),
                &at,
                "a volume id from 1 and below the next id",
                volume.id,
            );
            self.require(
                (1..catalog.next_id).contains(&volume.family),
                &at,
                "a family from 1 and below the next id",
                volume.family,
            );
            self.require(volume.uuid.len() == 16, &at, "a volume UUID of 16 bytes", volume.uuid.len());
            self.require(!volume.name.is_empty(), &at, "a volume name", "an empty one");
            if !volume.deleted {
                self.require(names.insert(&volume.name), &at, "names unique among volumes", "the name twice");
            }
            for (expected, found) in volume.replica.iter().flat_map(replica_faults) {
                self.require(false, &at, expected, found);
            }
            for (expected, found) in volume.limits.iter().flat_map(limits_faults) {
                self.require(false, &at, expected, found);
            }
            if let Some(origin) = &volume.origin {
                self.require(
                    (1..volume.id).contains(&origin.volume),
                    &at,
                    "an origin that is older than its clone",
                    format!("volume {} of volume {}", volume.id, origin.volume),
                );
            }
            for (expected, found) in volume.origin.iter().flat_map(origin_faults) {
                self.require(false, &at, expected, found);
            }
            let fresh = by_id.insert(volume.id, volume.clone()).is_none();
            self.require(fresh, &at, "volume ids unique", format!("{} twice", volume.id));
        }
        by_id
    }

    fn versions(&mut self, volumes: &HashMap<u64, Volume>) {
        let catalog = self.catalog;
        let birth_epoch = self.superblock.birth_epoch;
        let by_id: HashMap<u64, &Version> = catalog.versions.iter().map(|v| (v.id, v)).collect();
        let mut ids: BTreeSet<u64> = volumes.keys().copied().collect();
        let mut names = BTreeSet::new();
        let mut children: BTreeMap<u64, u64> = BTreeMap::new();
        for version in &catalog.versions {
            let volume = volumes.get(&version.volume);
            let at = self.at(volume, Some(version));
            self.require(
                (1..catalog.next_id).contains(&version.id),
                &at,
                "a version id from 1 and below the next id",
                version.id,
            );
            self.require(
                ids.insert(version.id),
                &at,
                "ids of volumes and versions unique",
                format!("{} twice", version.id),
            );
            self.require(
                volume.is_some(),
                &at,
                "the version's volume in the catalog",
                format!("no volume {}", version.volume),
            );
            if let Some(volume) = volume {
                self.require(
                    !volume.deleted || version.deleted,
                    &at,
                    "all versions of a deleted volume deleted",
                    "one that is not",
                );
            }
            self.require(
                version.size_bytes <= BLOCKS_MAX * BLOCK_BYTES as u64,
                &at,
                "a size of at most 16 PiB",
                version.size_bytes,
            );
            let kind = VersionKind::try_from(version.kind).unwrap_or(VersionKind::Unspecified);
            self.require(
                kind != VersionKind::Unspecified,
                &at,
                "a head, snapshot or staged version",
                version.kind,
            );
            let is_snapshot = kind == VersionKind::Snapshot;
            self.require(
                is_snapshot == (version.frozen > 0),
                &at,
                "frozen set for snapshots and only for them",
                format!("{kind:?}, frozen {}", version.frozen),
            );
            self.require(
                version.frozen < birth_epoch,
                &at,
                "frozen in an epoch that is over",
                format!("frozen {}, epoch {birth_epoch}", version.frozen),
            );
            self.require(
                is_snapshot == version.snapshot.is_some(),
                &at,
                "a description for snapshots and only for them",
                format!("{kind:?}"),
            );
            self.require(
                (kind == VersionKind::Staged) == version.staged.is_some(),
                &at,
                "a purpose for staged versions and only for them",
                format!("{kind:?}"),
            );
            if let Some((expected, found)) = version.staged.as_ref().and_then(staged_fault) {
                self.require(false, &at, expected, found);
            }
            self.require(
                if is_snapshot { version.inherited == 0 } else { version.inherited < birth_epoch },
                &at,
                "births inherited from an epoch that is over, and none in a snapshot",
                format!("inherited up to {}, epoch {birth_epoch}", version.inherited),
            );
            if let Some(snapshot) = &version.snapshot {
                for (expected, found) in snapshot_faults(snapshot) {
                    self.require(false, &at, expected, found);
                }
                if !version.deleted {
                    let fresh = names.insert((version.volume, &snapshot.name));
                    self.require(
                        fresh,
                        &at,
                        "names unique among the snapshots of a volume",
                        "the name twice",
                    );
                }
            }
            self.require(
                version.reaped_blocks == 0 || version.deleted,
                &at,
                "a reaping cursor on deleted versions only",
                version.reaped_blocks,
            );
            if version.parent != 0 {
                *children.entry(version.parent).or_default() += 1;
                self.parent(version, by_id.get(&version.parent).copied(), volumes, &at);
            }
        }
        for version in &catalog.versions {
            let count = children.get(&version.id).copied().unwrap_or(0);
            let at = self.at(volumes.get(&version.volume), Some(version));
            self.require(
                version.reaped_blocks == 0 || count <= 1,
                &at,
                "a version being reaped to have at most one child",
                count,
            );
        }
    }

    fn parent(
        &mut self,
        version: &Version,
        parent: Option<&Version>,
        volumes: &HashMap<u64, Volume>,
        at: &Location,
    ) {
        let Some(parent) = parent else {
            self.require(false, at, "the parent in the catalog", format!("no version {}", version.parent));
            return;
        };
        self.require(
            parent.kind == VersionKind::Snapshot as i32,
            at,
            "a snapshot as parent",
            format!("version {} of kind {}", parent.id, parent.kind),
        );
        self.require(
            version.frozen == 0 || version.frozen > parent.frozen,
            at,
            "a snapshot frozen after its parent",
            format!("frozen {}, parent {} frozen {}", version.frozen, parent.id, parent.frozen),
        );
        let family = |v: &Version| volumes.get(&v.volume).map(|v| v.family);
        self.require(
            family(version) == family(parent),
            at,
            "parent and child of one family",
            format!("parent {}", parent.id),
        );
    }

    /// Each live volume has one head, and it is the one it names.
    fn heads(&mut self) {
        let catalog = self.catalog;
        let by_id: HashMap<u64, &Version> = catalog.versions.iter().map(|v| (v.id, v)).collect();
        let mut heads: HashMap<u64, Vec<u64>> = HashMap::new();
        for version in catalog.versions.iter().filter(|v| v.kind == VersionKind::Head as i32 && !v.deleted) {
            heads.entry(version.volume).or_default().push(version.id);
        }
        for volume in &catalog.volumes {
            let at = self.at(Some(volume), None);
            let live = heads.get(&volume.id).cloned().unwrap_or_default();
            let expected: &[u64] = if volume.deleted { &[] } else { std::slice::from_ref(&volume.head) };
            self.require(
                live == expected,
                &at,
                "the volume's head and no other",
                format!("head {}, heads {live:?}", volume.head),
            );
            let published = volume.replica.as_ref().map_or(0, |r| r.published);
            if published != 0 && !volume.deleted {
                let is_snapshot = by_id
                    .get(&published)
                    .is_some_and(|v| v.volume == volume.id && v.kind == VersionKind::Snapshot as i32);
                if !is_snapshot {
                    self.reader.find(
                        Severity::Warning,
                        What::Catalog,
                        at,
                        "the published version to be a snapshot of the volume",
                        published.to_string(),
                        "somebody deleted it; the head still shows what was published",
                    );
                }
            }
        }
    }

    fn trees(&mut self, volumes: &HashMap<u64, Volume>) -> Vec<VersionTree> {
        let catalog = self.catalog;
        let by_id: HashMap<u64, &Version> = catalog.versions.iter().map(|v| (v.id, v)).collect();
        let mut children: HashMap<u64, Vec<&Version>> = HashMap::new();
        let mut ready: Vec<(&Version, Option<usize>)> = Vec::new();
        for version in by_id.values() {
            if version.parent != 0 && by_id.contains_key(&version.parent) {
                children.entry(version.parent).or_default().push(version);
            } else {
                ready.push((version, None));
            }
        }
        let mut trees = Vec::new();
        // Depth first, by a list of its own: lineages may be a million long.
        ready.sort_by_key(|(v, _)| std::cmp::Reverse(v.id));
        while let Some((version, parent)) = ready.pop() {
            let mut below = children.remove(&version.id).unwrap_or_default();
            below.sort_by_key(|v| std::cmp::Reverse(v.id));
            ready.extend(below.into_iter().map(|child| (child, Some(trees.len()))));
            let volume = volumes.get(&version.volume);
            let at = self.at(volume, Some(version));
            let (tree, readable) = match version.decode_tree() {
                Ok(tree) => (tree, true),
                Err(why) => {
                    self.require(false, &at, "a tree reference", why);
                    (TreeReference { length_bytes: version.size_bytes, ..TreeReference::default() }, false)
                }
            };
            self.require(
                tree.length_bytes == version.size_bytes,
                &at,
                "the tree's length to be the version's size",
                format!("{} and {}", tree.length_bytes, version.size_bytes),
            );
            trees.push(VersionTree {
                id: version.id,
                volume: version.volume,
                volume_name: volume.map_or_else(|| format!("volume {}", version.volume), |v| v.name.clone()),
                snapshot: version.snapshot.as_ref().map(|s| s.name.clone()),
                kind: VersionKind::try_from(version.kind).unwrap_or(VersionKind::Unspecified),
                deleted: version.deleted,
                family: volume.map_or(0, |v| v.family),
                tree,
                size_bytes: version.size_bytes,
                frozen: version.frozen,
                inherited: version.inherited,
                reaped: version.reaped_blocks,
                owned_blocks: version.owned_blocks,
                parent,
                mapped_blocks: None,
                lost_blocks: 0,
                readable,
            });
        }
        for version in children.into_values().flatten() {
            let at = self.at(volumes.get(&version.volume), Some(version));
            self.require(false, &at, "parents that form no circle", format!("version {} in one", version.id));
        }
        trees
    }
}

/// What is wrong with a snapshot's description by itself: (expected, found).
pub(crate) fn snapshot_faults(snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    if snapshot.name.is_empty() {
        faults.push(("a snapshot name", "an empty one".to_string()));
    }
    if snapshot.uuid.len() != 16 {
        faults.push(("a snapshot UUID of 16 bytes", snapshot.uuid.len().to_string()));
    }
    if !matches!(snapshot.relationship.len(), 0 | 16) {
        faults.push(("a relationship of 16 bytes or none", snapshot.relationship.len().to_string()));
    }
    for pin in snapshot.pins.iter().filter(|pin| pin.len() != 16) {
        faults.push(("pins of 16 bytes", pin.len().to_string()));
    }
    faults
}

/// What is wrong with what a staged version is being built for: (expected, found).
pub(crate) fn staged_fault(staged: &StagedFor) -> Option<(&'static str, String)> {
    let lengths = (staged.relationship.len(), staged.incremental.len());
    (lengths != (16, 16)).then(|| ("a relationship and an incremental of 16 bytes", format!("{lengths:?}")))
}

/// What is wrong with a replica record by itself: (expected, found).
pub(crate) fn replica_faults(replica: &Replica) -> Vec<(&'static str, String)> {
    let mut faults = Vec::new();
    if replica.relationship.len() != 16 {
        faults.push(("a relationship of 16 bytes", replica.relationship.len().to_string()));
    }
    if replica.peer.len() != 32 {
        faults.push(("a peer key hash of 32 bytes", replica.peer.len().to_string()));
    }
    faults
}

/// What is wrong with what was said of a volume's room: (expected, found).
pub(crate) fn limits_faults(limits: &VolumeLimits) -> Option<(&'static str, String)> {
    let VolumeLimits { quota_bytes, reserve_bytes, autogrow_to_bytes, autogrow_step_bytes } = *limits;
    let block = BLOCK_BYTES as u64;
    if autogrow_to_bytes > BLOCKS_MAX * block
        || !autogrow_to_bytes.is_multiple_of(block)
        || !autogrow_step_bytes.is_multiple_of(block)
        || (autogrow_to_bytes == 0) != (autogrow_step_bytes == 0)
    {
        return Some((
            "a size to grow to and a step of whole blocks",
            format!("{autogrow_to_bytes} and {autogrow_step_bytes} bytes"),
        ));
    }
    (quota_bytes > 0 && reserve_bytes > quota_bytes).then(|| {
        (
            "a reservation within the quota",
            format!("a quota of {quota_bytes}, a reservation of {reserve_bytes} bytes"),
        )
    })
}

/// The first rule that what a clone says of its origin breaks, with what it breaks it with.
pub(crate) fn origin_faults(origin: &Origin) -> Option<(&'static str, String)> {
    if origin.snapshot.len() != 16 {
        return Some(("an origin's snapshot UUID of 16 bytes", origin.snapshot.len().to_string()));
    }
    let is_named = !origin.volume_name.is_empty() && !origin.snapshot_name.is_empty();
    (!is_named)
        .then(|| ("names of an origin", format!("`{}` and `{}`", origin.volume_name, origin.snapshot_name)))
}
