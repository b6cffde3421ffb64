//! Snapshots.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A snapshot as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Snapshot {
    /// Its name within the volume.
    pub name: String,
    /// The volume, `POOL/VOL`.
    pub volume: String,
    /// Its identity; travels with it.
    pub uuid: Uuid,
    /// 32 hexadecimal digits over content and size: equal roots are equal volumes.
    pub content_root: Option<String>,
    /// When the data was so, at its origin.
    pub created_at: Timestamp,
    /// Whether a person holds it.
    pub held: bool,
    /// Whether it lies on the line of what hosts see; otherwise it is on a side branch: a version that was overtaken, and
    /// opens all the same.
    #[serde(default = "on_main_line")]
    pub on_main_line: bool,
    /// Who wanted it. A mirror deletes its own as it goes on; a person's stay.
    #[serde(default)]
    pub made_by: MadeBy,
    /// Of one that is a person's by now, and that no person made: what took it; absent if a person did, as far as can be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_by: Option<TakenBy>,
    /// Whether retention keeps it, and will let it go when it names it no more; also what persons at the source made.
    #[serde(default)]
    pub rotates: bool,
    /// Bytes of data it refers to.
    pub referenced_bytes: Option<u64>,
    /// Bytes of data that it has and the versions next to it do not have. Deleting it may free less (clones, deduplication and
    /// versions further away may use them) or more (equal data that was written again has a place of its own): the plan of the
    /// deletion says how much at most.
    pub unique_bytes: Option<u64>,
}

/// Who wanted a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MadeBy {
    /// A person, here or at the source; or what `taken_by` names: a timetable, say.
    #[default]
    Person,
    /// A mirror, for its updates.
    Mirror,
    /// Retention, which a mirror has here: it keeps what the mirror took, and lets it go again.
    Kept,
    /// A mirror, to have it in common with other replicas of the same volume: if their source is lost, one can follow another.
    Common,
}

/// What took a snapshot that is a person's: nothing but retention, and for rescues their number, lets it go by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TakenBy {
    /// A timetable of snapshots, here or at the source.
    Timetable,
    /// It holds what a break, resync, swap, rollback or update took out of sight.
    Rescue,
    /// A mirror that is over: its last base, or what its retention kept.
    Mirror,
}

/// What a daemon that does not say has.
fn on_main_line() -> bool {
    true
}

/// `POST /volumes/POOL/VOL/snapshots/SNAP/rollback`. Without a body: what the volume showed is set aside as of now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartRollback {
    /// All that the volume shows is kept as `rescue-` and this moment, whatever else holds it: what one command sets aside of several
    /// volumes has one name. If absent, or not of the last hour by the daemon's clock, a side branch is made, and named by now, where no
    /// other snapshot holds what goes out of sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside_at: Option<Timestamp>,
}

/// `POST /volumes/POOL/VOL/snapshots/SNAP/rollback`, as it was done.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rollback {
    /// The volume, `POOL/VOL`.
    pub volume: String,
    /// The snapshot that it shows now.
    pub snapshot: String,
    /// The snapshot that holds what the volume showed before, `POOL/VOL@SNAP`; null if that was no more than its
    /// snapshots hold.
    pub kept_as: Option<String>,
}

/// A timetable of snapshots of a volume.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SnapshotSchedule {
    /// The volume, `POOL/VOL`.
    pub volume: String,
    /// Volumes of the same pool whose snapshots are taken in the same instant.
    #[serde(default)]
    pub others: Vec<String>,
    /// `every 1h`, or a timetable.
    pub schedule: String,
    /// Which of its snapshots stay: `hourly=24,daily=7`.
    pub retention: String,
    /// The hook of `farside.toml` that freezes and thaws an application around it.
    pub hook: Option<String>,
    /// When it took the last one.
    pub last_at: Option<Timestamp>,
    /// Its name: `app-TIME` if a hook had frozen the application, else `auto-TIME`.
    pub last_snapshot: Option<String>,
    /// Snapshots of it that are there; null if its pool is not open.
    pub points: Option<u64>,
    /// What went wrong the last time.
    pub why: Option<String>,
}

/// `POST /volumes/POOL/VOL/snapshot-schedule`: what is absent stays as it is.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSnapshotSchedule {
    /// Interval in seconds.
    #[serde(default)]
    pub every_seconds: Option<f64>,
    /// Instead: a timetable, the five fields of cron.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The timetable's time zone, by name; the one of the daemon's system if absent.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Which of its snapshots stay.
    #[serde(default)]
    pub retention: Option<String>,
    /// Volumes of the same pool whose snapshots are to be taken in the same instant.
    #[serde(default)]
    pub others: Option<Vec<String>>,
    /// The name of a hook; empty for none.
    #[serde(default)]
    pub hook: Option<String>,
}

/// `POST /snapshots`: one consistent instant over all named.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshots {
    /// `POOL/VOL@SNAP`, all of one pool.
    pub snapshots: Vec<String>,
}

/// The new name of a snapshot or volume: the last part alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The name within the volume (of a snapshot), or within the pool (of a volume).
    pub name: String,
}

/// Whether a person holds the snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HoldSnapshot {
    /// Whether.
    pub held: bool,
}

/// What a range is in the later version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DifferenceKind {
    /// Other data.
    Data,
    /// A hole; somewhere in the range there was data.
    Hole,
}

/// One range in which two versions differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Difference {
    /// Byte offset.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What the later version has there.
    pub kind: DifferenceKind,
}
