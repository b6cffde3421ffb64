//! One consistency point, by itself: everything that one superblock reaches.

use std::collections::HashMap;

use farside_format::catalog::{CATALOG_BYTES_MAX, Catalog};
use farside_format::{BLOCK_BYTES, Superblock, TreeKind};

use crate::catalog::{self, VersionTree};
use crate::free_map;
use crate::owners;
use crate::places::{PlaceSet, runs};
use crate::reader::Reader;
use crate::report::{Location, Report, Severity, VolumeReport, What};
use crate::tree::{self, PoolTree};
use crate::usage::Usage;

/// A point and what was found in it.
pub(crate) struct Point {
    pub(crate) superblock: Superblock,
    pub(crate) usage: Usage,
    /// State 2 in the free map.
    pub(crate) waiting: PlaceSet,
    /// In use for nobody, since damage took the maps that said for whom.
    pub(crate) unattributed: PlaceSet,
    pub(crate) catalog: Option<Catalog>,
    /// Parents first.
    pub(crate) versions: Vec<VersionTree>,
}

impl Point {
    /// Writes into the report what it says of the newest point.
    pub(crate) fn describe(&self, report: &mut Report) {
        report.blocks_in_use = self.usage.used.len();
        report.shared_blocks = self.usage.owners.shared_places();
        if let Some(catalog) = &self.catalog {
            report.volumes = catalog
                .volumes
                .iter()
                .map(|v| VolumeReport { id: v.id, name: v.name.clone(), deleted: v.deleted })
                .collect();
        }
        report.versions = self.versions.iter().map(|v| v.report()).collect();
    }
}

/// Checks everything that the superblock reaches. `verified` is a point checked before: data that both have at the
/// same position under the same pointer is not read again.
pub(crate) fn check(reader: &mut Reader<'_>, superblock: &Superblock, verified: Option<&Point>) -> Point {
    let mut point = Point {
        superblock: superblock.clone(),
        usage: Usage::default(),
        waiting: PlaceSet::default(),
        unattributed: PlaceSet::default(),
        catalog: None,
        versions: Vec::new(),
    };
    let fixed_end = superblock.first_allocatable().min(reader.device_blocks());
    for place in 0..fixed_end {
        point.usage.used.insert(place);
    }
    point.catalog = read_catalog(reader, &mut point.usage, superblock);
    if let Some(catalog) = &point.catalog {
        point.versions = catalog::check(reader, superblock, catalog);
    }
    let chunks = free_map::walk(reader, &mut point.usage, superblock);
    owners::read(reader, &mut point.usage, superblock);
    tree::check(
        reader,
        superblock,
        &mut point.usage,
        &mut point.versions,
        verified.map(|v| v.versions.as_slice()),
    );
    if verified.is_none() {
        reader.set_bytes_in_use(point.usage.used.len() * BLOCK_BYTES as u64);
    }
    if point.catalog.is_none() || point.usage.unreadable > 0 {
        let found = match &point.catalog {
            None => "an unreadable catalog".to_string(),
            Some(_) => format!("{} unreadable nodes", point.usage.unreadable),
        };
        reader.find(
            Severity::Warning,
            What::Incomplete,
            Location { generation: Some(superblock.generation), ..Location::default() },
            "every reference known",
            found,
            "blocks that the free map holds and nothing refers to are not reported: they may belong to what cannot be read",
        );
    }
    let all_known = point.catalog.is_some() && point.usage.unreadable == 0;
    let unattributed_max = point.catalog.as_ref().map_or(0, |c| c.unattributed_blocks_max);
    let surplus = owners::compare(reader, &point.usage, superblock, all_known, unattributed_max);
    owners::compare_owned(reader, &point.usage, superblock, &point.versions, all_known, unattributed_max);
    let allowed = (surplus, unattributed_max);
    (point.waiting, point.unattributed) =
        free_map::compare(reader, superblock, &point.usage, all_known, allowed, &chunks);
    point
}

fn read_catalog(reader: &mut Reader<'_>, usage: &mut Usage, superblock: &Superblock) -> Option<Catalog> {
    let at = Location {
        generation: Some(superblock.generation),
        tree: Some(TreeKind::Catalog),
        ..Location::default()
    };
    let length = superblock.catalog.length_bytes;
    if length > CATALOG_BYTES_MAX {
        let expected = format!("at most {CATALOG_BYTES_MAX} bytes");
        reader.error(What::Catalog, at, expected, length.to_string(), "");
        return None;
    }
    let blocks = length.div_ceil(BLOCK_BYTES as u64);
    let unreadable_before = usage.unreadable;
    let tree = PoolTree { kind: TreeKind::Catalog, reference: superblock.catalog, blocks };
    let mut bytes = Vec::new();
    let mut whole = true;
    tree::walk_pool_tree(reader, usage, superblock, &tree, &mut |reader, index, pointer| {
        // Bounded: `index` is below `blocks`, 256 MiB at most.
        bytes.resize((index as usize) * BLOCK_BYTES, 0);
        match tree::read_data(reader, pointer) {
            Ok(block) => bytes.extend_from_slice(&block),
            Err(why) => {
                whole = false;
                let at = Location {
                    level: Some(0),
                    position: Some(index),
                    place: Some(pointer.place.0),
                    ..at.clone()
                };
                reader.error(
                    What::DataBlock,
                    at,
                    pointer.fingerprint.to_string(),
                    why,
                    "the catalog cannot be read from this point; the other superblock's may be whole",
                );
            }
        }
    });
    if !whole || usage.unreadable > unreadable_before {
        return None;
    }
    bytes.resize(length as usize, 0);
    match <Catalog as prost::Message>::decode(bytes.as_slice()) {
        Ok(catalog) => Some(catalog),
        Err(why) => {
            reader.error(What::Catalog, at, "a catalog", why.to_string(), "");
            None
        }
    }
}

/// F2 and F5: what the older point needs is kept for it, and snapshots are the same in both.
pub(crate) fn compare(reader: &mut Reader<'_>, older: &Point, newest: &Point) {
    let kept = [&newest.usage.used, &newest.waiting, &newest.unattributed];
    let lost = older.usage.used.iter().filter(|&place| !kept.iter().any(|kept| kept.contains(place)));
    // If part of the newest point is unreadable, its places are unknown and cannot be missed.
    if newest.usage.unreadable == 0 && newest.catalog.is_some() {
        for (first, count) in runs(lost) {
            reader.error(
                What::OlderPoint,
                Location {
                    generation: Some(newest.superblock.generation),
                    place: Some(first),
                    ..Location::default()
                },
                format!(
                    "{count} blocks that generation {} refers to in use or waiting",
                    older.superblock.generation
                ),
                "free",
                "if the newest superblock is lost, the older one may lead to overwritten blocks",
            );
        }
    }
    let by_id: HashMap<u64, &VersionTree> = older.versions.iter().map(|v| (v.id, v)).collect();
    for version in newest.versions.iter().filter(|v| v.frozen > 0) {
        let Some(before) = by_id.get(&version.id).filter(|v| v.frozen > 0) else { continue };
        let (Some(root), Some(root_before)) = (version.content_root(), before.content_root()) else {
            continue;
        };
        if root != root_before || version.frozen != before.frozen {
            reader.error(
                What::SnapshotChanged,
                version.location(newest.superblock.generation),
                format!("content root {root_before}, frozen {}", before.frozen),
                format!("content root {root}, frozen {}", version.frozen),
                "a snapshot must never change; do not use it as a base",
            );
        }
    }
}
