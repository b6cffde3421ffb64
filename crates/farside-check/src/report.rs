//! What a check found: plain values, and their text.

use std::fmt;

use farside_format::catalog::VersionKind;
use farside_format::{ContentRoot, Superblock, TreeKind};
use uuid::Uuid;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing is lost; something the next opening mends, or that deserves a look.
    Warning,
    /// Something is lost, or the format's rules are broken.
    Error,
}

/// What kind of thing is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum What {
    /// A superblock slot, or the two against each other.
    Superblock,
    /// A block that must stay zero.
    ReservedArea,
    /// A tree node, or the first copy of one, that is not what its pointer means.
    Node,
    /// The second copy of a node.
    NodeSecondCopy,
    /// Blocks whose map was lost to damage, and which the pool goes on without.
    Quarantined,
    /// A data block that is not what its fingerprint says.
    DataBlock,
    /// A node's count of mapped blocks.
    MappedBlocks,
    /// A birth above what F4 or the version's freezing allow.
    Birth,
    /// A mapping past the version's size, or bytes past it that are not zero.
    PastSize,
    /// A place outside the part of the pool that the allocator gives out.
    PlaceOutOfRange,
    /// F3: a place with two owners, or shared otherwise than by descent.
    Ownership,
    /// The catalog, or an entry of it.
    Catalog,
    /// The free map against what is referenced.
    FreeMap,
    /// F8: the owner counts against the owners there are.
    OwnerCounts,
    /// F9: what a version owns against what the catalog says.
    OwnedBlocks,
    /// F2: a place that the older point needs is not kept for it.
    OlderPoint,
    /// F5: a snapshot that changed.
    SnapshotChanged,
    /// The journal as a chain of batches.
    Journal,
    /// A record that cannot follow what is before it.
    JournalRecord,
    /// A data block that a journal record maps.
    JournalData,
    /// What opens from the older superblock differs from what opens from the newest.
    EitherSuperblock,
    /// Part of the check was skipped because of other findings.
    Incomplete,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Superblock => "superblock",
            What::ReservedArea => "reserved area",
            What::Node => "tree node",
            What::NodeSecondCopy => "second copy of a tree node",
            What::Quarantined => "quarantined blocks",
            What::DataBlock => "data block",
            What::MappedBlocks => "count of mapped blocks",
            What::Birth => "birth",
            What::PastSize => "past the size",
            What::PlaceOutOfRange => "place out of range",
            What::Ownership => "ownership",
            What::Catalog => "catalog",
            What::FreeMap => "free map",
            What::OwnerCounts => "owner counts",
            What::OwnedBlocks => "count of owned blocks",
            What::OlderPoint => "place the older point needs",
            What::SnapshotChanged => "snapshot that changed",
            What::Journal => "journal",
            What::JournalRecord => "journal record",
            What::JournalData => "data block of the journal",
            What::EitherSuperblock => "opening by the other superblock",
            What::Incomplete => "check incomplete",
        })
    }
}

/// Where something is wrong, as far as it applies.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Location {
    /// The point (its generation) in which it was seen.
    pub generation: Option<u64>,
    /// Superblock slot, 0 (A) or 1 (B).
    pub slot: Option<usize>,
    /// Which tree.
    pub tree: Option<TreeKind>,
    /// The volume's name.
    pub volume: Option<String>,
    /// The version's id.
    pub version: Option<u64>,
    /// The snapshot's name, if the version is one.
    pub snapshot: Option<String>,
    /// Level: 0 for data blocks, 1 to 6 for nodes.
    pub level: Option<u8>,
    /// Index among the blocks or nodes of its level.
    pub position: Option<u64>,
    /// Place: block of the pool.
    pub place: Option<u64>,
    /// Sequence of the journal's batch.
    pub batch: Option<u64>,
}

impl Location {
    /// Whether both are one place of the pool, in whichever point it was seen.
    pub(crate) fn is_same_but_for_the_point(&self, other: &Location) -> bool {
        let Location { generation: _, slot, tree, volume, version, snapshot, level, position, place, batch } =
            self;
        (slot, tree, version, level) == (&other.slot, &other.tree, &other.version, &other.level)
            && (position, place, batch) == (&other.position, &other.place, &other.batch)
            && (volume, snapshot) == (&other.volume, &other.snapshot)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if let Some(slot) = self.slot {
            parts.push(format!("slot {}", if slot == 0 { 'A' } else { 'B' }));
        }
        match (self.tree, &self.volume) {
            (Some(TreeKind::Catalog), _) => parts.push("catalog".into()),
            (Some(TreeKind::FreeMap), _) => parts.push("free map".into()),
            (Some(TreeKind::OwnerCounts), _) => parts.push("owner counts".into()),
            (_, Some(volume)) => parts.push(match &self.snapshot {
                Some(snapshot) => format!("{volume}@{snapshot}"),
                None => volume.clone(),
            }),
            _ => {}
        }
        let numbers = [
            ("version", self.version),
            ("level", self.level.map(u64::from)),
            ("position", self.position),
            ("place", self.place),
            ("batch", self.batch),
            ("generation", self.generation),
        ];
        parts.extend(numbers.iter().filter_map(|(name, number)| number.map(|n| format!("{name} {n}"))));
        f.write_str(&parts.join(", "))
    }
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// What kind of thing.
    pub what: What,
    /// Where.
    pub location: Location,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What it means for the operator, and what to do.
    pub hint: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.severity == Severity::Error { "error" } else { "warning" };
        write!(
            f,
            "{severity}: {} ({}): expected {}, found {}",
            self.what, self.location, self.expected, self.found
        )?;
        if !self.hint.is_empty() {
            write!(f, "\n  {}", self.hint)?;
        }
        Ok(())
    }
}

/// One superblock slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotReport {
    /// Its generation, or why it cannot be used.
    pub generation: Result<u64, String>,
}

/// One volume of the newest point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeReport {
    /// Id in the pool.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Being reaped.
    pub deleted: bool,
}

/// One version, as of the newest point or after replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionReport {
    /// Id in the pool.
    pub id: u64,
    /// Id of its volume.
    pub volume: u64,
    /// Name of its volume.
    pub volume_name: String,
    /// Head, snapshot or staged version.
    pub kind: VersionKind,
    /// Snapshot name.
    pub snapshot: Option<String>,
    /// Hidden, waiting to be reaped.
    pub deleted: bool,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Of a head or staged version: births up to this came with the snapshot it began as.
    pub inherited: u64,
    /// Content root; none if part of the version is reaped or cannot be read.
    pub content_root: Option<ContentRoot>,
    /// Blocks that are no holes; none if unknown (after replay it is not counted).
    pub mapped_blocks: Option<u64>,
    /// Blocks that it owns and did not inherit, as the catalog says; none after replay.
    pub owned_blocks: Option<u64>,
}

/// Why the journal ends where it ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JournalEnd {
    /// Nothing that looks like the next batch is there: the usual end.
    NoBatch(String),
    /// A batch of this pool, but not the next one: the usual end of a ring that has gone round.
    AnotherBatch(&'static str),
    /// The batch's records cannot be decoded or contradict what is before them.
    Record(String),
    /// An unproven batch maps a block that never reached the medium; nobody was told that it had.
    Data(String),
    /// The batches fill the whole ring.
    RingFull,
    /// The superblock's journal position cannot be.
    Unusable,
}

impl fmt::Display for JournalEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalEnd::NoBatch(why) | JournalEnd::Record(why) | JournalEnd::Data(why) => f.write_str(why),
            JournalEnd::AnotherBatch(field) => write!(f, "another batch: {field} differs"),
            JournalEnd::RingFull => f.write_str("the ring is full"),
            JournalEnd::Unusable => f.write_str("the journal position in the superblock is impossible"),
        }
    }
}

/// The journal after the newest point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalReport {
    /// Sequence of the first batch after the point.
    pub first_sequence: u64,
    /// Batches that an opening would replay.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// The highest sequence that a later batch proves to have been synced; none if no batch proves any.
    pub proven: Option<u64>,
    /// Position (bytes) where the journal ends.
    pub end_position: u64,
    /// Why it ends there.
    pub end: JournalEnd,
}

/// What a check found.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Where the pool lies.
    pub device: String,
    /// The pool.
    pub pool: Uuid,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Slots A and B.
    pub superblocks: [SlotReport; 2],
    /// The newest point.
    pub generation: u64,
    /// The volumes of the newest point.
    pub volumes: Vec<VolumeReport>,
    /// The versions of the newest point, as its catalog has them.
    pub versions: Vec<VersionReport>,
    /// Blocks that the newest point has in use, fixed areas included.
    pub blocks_in_use: u64,
    /// Of those, data blocks that have several owners.
    pub shared_blocks: u64,
    /// The journal.
    pub journal: JournalReport,
    /// Versions as an opening would find them; none if replay was not asked for or the catalog cannot be read.
    pub versions_after_replay: Option<Vec<VersionReport>>,
    /// What is wrong, in the order found.
    pub findings: Vec<Finding>,
    /// Findings beyond [`crate::CheckOptions::findings_max`], counted only.
    pub findings_dropped: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Report {
    pub(crate) fn new(device: String, newest: &Superblock, superblocks: [SlotReport; 2]) -> Report {
        Report {
            device,
            pool: newest.identity(),
            pool_bytes: newest.pool_blocks * 4096,
            superblocks,
            generation: newest.generation,
            volumes: Vec::new(),
            versions: Vec::new(),
            blocks_in_use: 0,
            shared_blocks: 0,
            journal: JournalReport {
                first_sequence: newest.journal_sequence,
                batches: 0,
                records: 0,
                proven: None,
                end_position: newest.journal_position,
                end: JournalEnd::Unusable,
            },
            versions_after_replay: None,
            findings: Vec::new(),
            findings_dropped: 0,
            bytes_read: 0,
        }
    }

    /// Whether nothing of [`Severity::Error`] was found. Warnings (a superblock torn by a power failure, which the
    /// next opening mends) leave a pool clean.
    pub fn is_clean(&self) -> bool {
        self.findings_dropped == 0 && self.findings.iter().all(|f| f.severity < Severity::Error)
    }

    /// Snapshots that are not deleted, in the newest point.
    pub fn snapshots(&self) -> impl Iterator<Item = &VersionReport> {
        self.versions.iter().filter(|v| v.kind == VersionKind::Snapshot && !v.deleted)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pool {} on {}, {} bytes", self.pool, self.device, self.pool_bytes)?;
        for (slot, report) in ['A', 'B'].iter().zip(&self.superblocks) {
            match &report.generation {
                Ok(generation) => writeln!(f, "superblock {slot}: generation {generation}")?,
                Err(why) => writeln!(f, "superblock {slot}: {why}")?,
            }
        }
        writeln!(
            f,
            "generation {}: {} volumes, {} versions ({} snapshots), {} blocks in use, {} of them with several owners",
            self.generation,
            self.volumes.iter().filter(|v| !v.deleted).count(),
            self.versions.len(),
            self.snapshots().count(),
            self.blocks_in_use,
            self.shared_blocks
        )?;
        for version in self.versions.iter().filter(|v| !v.deleted) {
            let name = match (&version.snapshot, version.kind) {
                (Some(snapshot), _) => format!("{}@{snapshot}", version.volume_name),
                (None, VersionKind::Staged) => {
                    format!("{} (staged, version {})", version.volume_name, version.id)
                }
                (None, _) => version.volume_name.clone(),
            };
            let root = version.content_root.map_or("unknown".into(), |r| r.to_string());
            let mapped = version.mapped_blocks.map_or("unknown".into(), |m| m.to_string());
            writeln!(
                f,
                "  {name}: {} bytes, {mapped} blocks mapped, content root {root}",
                version.size_bytes
            )?;
        }
        let journal = &self.journal;
        write!(
            f,
            "journal: {} batches, {} records from sequence {}; ",
            journal.batches, journal.records, journal.first_sequence
        )?;
        if let Some(proven) = journal.proven {
            write!(f, "proven up to {proven}; ")?;
        }
        writeln!(f, "ends at position {}: {}", journal.end_position, journal.end)?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        if self.findings_dropped > 0 {
            writeln!(f, "and {} more findings", self.findings_dropped)?;
        }
        let errors = self.findings.iter().filter(|f| f.severity == Severity::Error).count();
        let warnings = self.findings.len() - errors;
        let verdict = if self.is_clean() { "clean" } else { "DAMAGED" };
        write!(f, "{verdict}: {errors} errors, {warnings} warnings, {} bytes read", self.bytes_read)
    }
}
