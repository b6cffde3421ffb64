//! Mirrors: a destination volume that follows a peer's volume.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::levels::Levels;
use crate::throttle::{MirrorLink, SetMirrorLink};

/// State of a relationship.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MirrorState {
    /// Nothing has been transferred yet.
    Uninitialized,
    /// The first copy is under way.
    Initializing,
    /// Holds a whole version.
    Mirrored,
    /// An update is under way.
    Transferring,
    /// A transfer waits for its turn.
    Queued,
    /// No transfers until `mirror resume`.
    Quiesced,
    /// The destination is writable; no transfers.
    BrokenOff,
}

/// Which side of a relationship this daemon is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It holds the replica, and owns the relationship.
    Destination,
    /// It holds the original.
    Source,
}

/// What a transfer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransferKind {
    /// The first copy.
    Initialize,
    /// What changed since the base.
    Update,
    /// After a break.
    Resync,
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransferPhase {
    /// For its turn, or for a session.
    Waiting,
    /// The source takes a snapshot.
    Snapshot,
    /// The source compares metadata.
    Difference,
    /// Bytes travel.
    Transfer,
    /// The destination compares content roots.
    Verify,
    /// What arrived waits for the other volumes of its group.
    Group,
    /// The destination publishes.
    Commit,
}

/// A transfer under way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Transfer {
    /// What for.
    pub kind: TransferKind,
    /// How far.
    pub phase: TransferPhase,
    /// Bytes that differ, as found so far; null before the difference.
    pub changed_bytes: Option<u64>,
    /// Of these, bytes that are staged at the destination.
    pub done_bytes: u64,
    /// Bytes on the wire so far, both ways.
    pub wire_bytes: u64,
    /// Rate of `done_bytes` of late.
    pub rate_bytes_per_second: Option<f64>,
    /// Time that remains at this rate.
    pub eta_seconds: Option<f64>,
    /// What has arrived so far, by level.
    #[serde(default)]
    pub levels: Levels,
}

/// What the source knows of a mirror that was broken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SourceHeard {
    /// Nothing, as far as is known here; `why` says why.
    NotYet,
    /// That it was overtaken; its hosts may write.
    Noted,
    /// That it was overtaken; its hosts may not write.
    Fenced,
    /// Its volume follows this one.
    Follows,
    /// It keeps nothing for this mirror: it was released there.
    Released,
}

/// Hosts went on elsewhere than at the source of a replica: what it brings is of the old original.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SourceOvertaken {
    /// Where they went on: `PEER:POOL/VOL`, as the source calls it.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
}

/// What keeps a mirror from being updated until a person does something about it. Whatever else `why` says may end by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MirrorStopped {
    /// The two sites are not paired any more: one of them has removed the other.
    NotPaired,
    /// The source has refused the last attempt, because this site has no right to the volume (any more).
    NoRight,
    /// The source is itself a replica of this one, so neither is an original.
    NoOriginal,
    /// What the last attempt was to bring does not fit into the pool here.
    NoRoom,
    /// The pool of this side's volume does not open, or is not known here any more.
    NoPool,
}

/// A relationship as `mirror status` lists it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Mirror {
    /// The relationship's id, the same on both sides.
    pub id: Uuid,
    /// This side's volume, `POOL/VOL`.
    pub name: String,
    /// Which side this daemon is.
    pub role: Role,
    /// The original: `PEER:POOL/VOL` at the destination, `POOL/VOL` at the source.
    pub source: String,
    /// The replica: `POOL/VOL` at the destination, `PEER:POOL/VOL` at the source.
    pub destination: String,
    /// Its state.
    pub state: MirrorState,
    /// Why it is not doing what it should, or what stands in its way; null if nothing.
    pub why: Option<String>,
    /// What of that only a person can end; absent if nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<MirrorStopped>,
    /// Age of the replica's data; null while there is none, or where unknown (source).
    pub lag_seconds: Option<f64>,
    /// The recovery point objective.
    pub objective_seconds: Option<f64>,
    /// How old the data will get at most, by what updates have taken of late; null without an objective, or if it falls behind more
    /// and more (`why` says so).
    #[serde(default)]
    pub forecast_seconds: Option<f64>,
    /// Its place among the transfers that wait for their turn, the next is 1; null if it does not wait.
    #[serde(default)]
    pub queue_position: Option<u64>,
    /// Which of the points that were published stay: `last=10,hourly=24`; null if only the newest does, and what persons made.
    #[serde(default)]
    pub retention: Option<String>,
    /// The group of mirrors that are updated and broken off together; null if none.
    #[serde(default)]
    pub group: Option<String>,
    /// The daemon of this site that drives it, where the site's state is in PostgreSQL; null where there is one daemon.
    #[serde(default)]
    pub owner: Option<String>,
    /// Name of the newest replicated snapshot; null also while `shows_own_state`.
    pub current_snapshot: Option<String>,
    /// Its content root.
    pub content_root: Option<String>,
    /// Name of the snapshot the next update starts from.
    pub base_snapshot: Option<String>,
    /// When this replica was last re-read and compared as a whole.
    pub last_proven_at: Option<Timestamp>,
    /// `every 10s`, `rpo 30s`, or a timetable; null if updates are only asked for.
    pub schedule: Option<String>,
    /// It had one, perhaps, and that was lost with the state database: the mirror was found in its pool.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub schedule_lost: bool,
    /// Bytes per second, the limit of this mirror at this moment; null if it has none of its own.
    pub throttle: Option<u64>,
    /// What its transfers take of the link, as it is set; null at the source.
    #[serde(default)]
    pub link: Option<MirrorLink>,
    /// The transfer under way, if any.
    pub transfer: Option<Transfer>,
    /// At a destination: a resync is pending and has brought nothing yet, so the volume shows its own state. In the answer to a break: it did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shows_own_state: bool,
    /// At a destination: a change of roles has begun and is not over, as far as this site knows. The site of the source knows late.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changes_roles: bool,
    /// At a destination, `broken-off`: a direction that sleeps. Its volume is the original by now and is followed; what is kept here is the
    /// way back, and nothing is wrong. `farside mirror status` shows it with `--all`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sleeping: bool,
    /// Its group is split: what is where, and what to type for either side. Absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_split: Option<String>,
    /// At a destination: the volumes of its group show different moments, and hold none in common, so that `break --group` takes over
    /// nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_common_moment: bool,
    /// At the source: that the destination was broken off and is independent; null if not.
    #[serde(default)]
    pub overtaken: Option<Overtaken>,
    /// At a destination that was broken off: what the source knows of that; null if it was not.
    #[serde(default)]
    pub source_heard: Option<SourceHeard>,
    /// When it said so; null if it has said nothing, or if this site knows it by itself.
    #[serde(default)]
    pub source_heard_at: Option<Timestamp>,
    /// At a destination: since when hosts may write to it; absent if it follows, or where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_off_at: Option<Timestamp>,
    /// At a destination that was broken off: by what; absent if it follows, or if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub went_on_by: Option<WentOnBy>,
    /// At a destination that follows by a change of roles: since when; absent if it follows by something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turned_at: Option<Timestamp>,
    /// At a destination that follows by a resync: when hosts could write to it before; absent if they could not, or if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was_in_use: Option<WasInUse>,
    /// At a destination: what was set aside here last of what hosts wrote; absent if nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<SetAside>,
    /// At the destination: that hosts went on elsewhere than at the source; null if not.
    #[serde(default)]
    pub source_overtaken: Option<SourceOvertaken>,
    /// In the answer to a break at a snapshot: the side branch that newer content stays as, `POOL/VOL@NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<String>,
    /// In the answer to a break: why hosts' writes fail all the same for now, and what helps; absent if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts_refused: Option<String>,
    /// In the answer to its making: whether its source's site may mirror the volume back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_back: Option<bool>,
    /// In the answer to its making: what its first copy brings at most, bytes; absent if the source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_copy_bytes: Option<u64>,
    /// Beside that: how much may be staged in the pool here now, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room_bytes: Option<u64>,
    /// Beside that: the volume was there with another size, and gets that of its source with the first copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resized: Option<Resized>,
    /// In the answer to what puts it into a group: what its source follows itself, `PEER:POOL/VOL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_follows: Option<String>,
    /// In the answer to its making: it was there without what a lost state database had of it, and goes on as asked for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over: Option<TakenOver>,
    /// In the answer to *abort* or *break*: what had not begun, and does not any more. Nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<String>,
}

/// When hosts could write to a volume that follows again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WasInUse {
    /// From this moment on.
    pub from: Timestamp,
    /// By what; absent if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<WentOnBy>,
    /// Until a resync began.
    pub until: Timestamp,
    /// The snapshot that has what it showed then; absent if there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_as: Option<String>,
    /// When hosts had gone on at what it follows since; absent if they had not, or if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over_at: Option<Timestamp>,
}

/// By what hosts came to write to a volume that was a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum WentOnBy {
    /// A person broke it off.
    Break,
    /// A change of roles.
    Swap,
}

/// A side branch of a replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SetAside {
    /// Its snapshot, `rescue-TIME`.
    pub name: String,
    /// When it was set aside.
    pub at: Timestamp,
}

/// A mirror that was found in its pool is set anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TakenOver {
    /// Its source's site may mirror the volume back.
    pub reverse: bool,
}

/// A volume gets another size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Resized {
    /// What it has, bytes.
    pub from_bytes: u64,
    /// What it gets, bytes.
    pub to_bytes: u64,
}

impl Mirror {
    /// It was broken off, and nobody has decided what becomes of its source: hosts may be writing there as well, or it may come back.
    pub fn is_undecided(&self) -> bool {
        let heard =
            matches!(self.source_heard, Some(SourceHeard::NotYet | SourceHeard::Noted | SourceHeard::Fenced));
        self.role == Role::Destination && self.state == MirrorState::BrokenOff && heard
    }
}

/// Without the directions that sleep: a volume that was a replica, was broken off, and is a source that others follow now. What is
/// kept of its first direction is the way back; nothing is wrong with it, once its source has come to follow it or has let go of it:
/// until then there may be two originals, whoever else follows this one.
pub fn awake(mirrors: &[Mirror]) -> Vec<&Mirror> {
    let lives =
        |m: &&Mirror| m.role == Role::Source && m.overtaken.is_none() && m.state != MirrorState::BrokenOff;
    let living: HashSet<&str> = mirrors.iter().filter(lives).map(|m| m.name.as_str()).collect();
    // Also where the one that follows was broken off in its turn: what counts then is said of that direction.
    let back: HashSet<(&str, &str)> = mirrors
        .iter()
        .filter(|m| m.role == Role::Source)
        .map(|m| (m.name.as_str(), m.destination.as_str()))
        .collect();
    let sleeps = |m: &Mirror| {
        m.role == Role::Destination
            && m.state == MirrorState::BrokenOff
            && (living.contains(m.name.as_str()) && !m.is_undecided()
                || back.contains(&(m.name.as_str(), m.source.as_str())))
    };
    mirrors.iter().filter(|m| !sleeps(m)).collect()
}

/// A volume here was overtaken: its replica was broken off, and hosts may be writing there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Overtaken {
    /// When the replica was broken off, by its site's clock.
    pub since: Timestamp,
    /// When this site was told of it.
    pub reported_at: Timestamp,
    /// Name of the newest snapshot here that the replica was broken off from; null if it is gone.
    pub snapshot: Option<String>,
    /// Bytes that were written or freed here since that snapshot; null if it cannot be told.
    pub diverged_bytes: Option<u64>,
    /// The same in blocks of 4096 bytes.
    pub diverged_blocks: Option<u64>,
    /// Whether the volume refuses host writes for it (`peer allow --fence`).
    pub fenced: bool,
    /// The mirror was deleted there since: only this site remembers it.
    #[serde(default)]
    pub ended: bool,
    /// Who went on, if not the destination itself but one beyond it: `PEER:POOL/VOL`, as the destination calls it.
    #[serde(default)]
    pub beyond: Option<String>,
    /// What the volume here follows, if it is itself a replica: `PEER:POOL/VOL`.
    #[serde(default)]
    pub follows: Option<String>,
    /// What the replica follows since, whose mirror of this volume is over (`ended`): `PEER:POOL/VOL`.
    #[serde(default)]
    pub follows_since: Option<String>,
    /// The volume here followed it when its pool was newer: that was set back since. Left out where it is not so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub set_back: bool,
    /// The group that the replica is in there; absent if it is in none, or if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many mirrors of that group have not been taken over from here, and do not follow there; absent with no group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_rest: Option<u32>,
}

/// How a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TransferResult {
    /// Published.
    Ok,
    /// Not; the replica is as it was.
    Failed,
    /// Ended by a person; the replica is as it was.
    Aborted,
}

/// A transfer that has ended, as `mirror history` lists it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TransferRecord {
    /// The transfer's id, the same on both sides.
    pub id: Uuid,
    /// The replica that it was for, `POOL/VOL`, as it was called then; null where that is not known.
    #[serde(default)]
    pub volume: Option<String>,
    /// What for.
    pub kind: TransferKind,
    /// How it ended.
    pub result: TransferResult,
    /// Why, if not well.
    pub reason: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How long it took.
    pub duration_seconds: f64,
    /// Name of the snapshot it started from; null for a first copy.
    pub base: Option<String>,
    /// Name of the snapshot it brought.
    pub incremental: Option<String>,
    /// That snapshot's content root, as computed here.
    pub content_root: Option<String>,
    /// Whether it went on with what an earlier one had staged.
    pub resumed: bool,
    /// How many snapshots it brought.
    pub snapshots: u64,
    /// Bytes of data that travelled: what the metadata difference found, less what was held.
    pub changed_bytes: u64,
    /// Bytes of data that did not travel because an earlier transfer, which was cut, had brought them.
    #[serde(default)]
    pub resumed_bytes: u64,
    /// Bytes that became holes.
    pub deallocated_bytes: u64,
    /// Bytes of data the source read.
    pub source_read_bytes: Option<u64>,
    /// Bytes the source read to code against: of the base, or of what it had sent before.
    #[serde(default)]
    pub base_read_bytes: Option<u64>,
    /// Bytes that travelled as references to what this side had: known or repeated.
    pub referenced_bytes: Option<u64>,
    /// Bytes that travelled coded against similar content.
    pub delta_bytes: Option<u64>,
    /// Bytes that travelled compressed by themselves, or as they are.
    pub literal_bytes: Option<u64>,
    /// What travelled, by level; null in records of versions that did not count it.
    #[serde(default)]
    pub levels: Option<Levels>,
    /// Of the bytes at the level *raw*: those that look encrypted or packed already. The others would have compressed, had the link not
    /// been faster. Null if there were none, or in records of versions that did not look.
    #[serde(default)]
    pub noise_bytes: Option<u64>,
    /// Wire bytes of both directions that no level accounts for: frame headers and tables, messages, TLS, and steps that did
    /// not arrive whole. Null where `levels` is.
    #[serde(default)]
    pub overhead_bytes: Option<u64>,
    /// Wire bytes destination to source: frames, control messages, TLS.
    pub wire_bytes_sent: u64,
    /// Wire bytes source to destination.
    pub wire_bytes_received: u64,
    /// Time the source spent comparing metadata.
    pub scan_seconds: Option<f64>,
    /// Names of the side branches that content of the volume became on which it does not go on (`rescue-TIME`). In the answer to a
    /// request those of all its transfers.
    #[serde(default)]
    pub set_aside: Vec<String>,
    /// Names of the old side branches that were deleted for these, because a volume keeps so many (`replicas.rescues`). Left out where
    /// there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub let_go: Vec<String>,
}

/// A relationship as its source knows it, as `mirror destinations` lists it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MirrorDestination {
    /// The relationship's id, the same on both sides.
    pub id: Uuid,
    /// The original here, `POOL/VOL`.
    pub volume: String,
    /// The peer that mirrors it.
    pub peer: String,
    /// The replica there, `POOL/VOL`.
    pub destination: String,
    /// Name of the snapshot that both sides hold, kept here for the next update.
    pub base_snapshot: Option<String>,
    /// Its content root.
    pub content_root: Option<String>,
    /// Since when that is the base.
    pub since: Option<Timestamp>,
    /// What the volume has replaced since: about what keeping the base costs, bytes.
    pub pinned_bytes: Option<u64>,
    /// Snapshots of the volume that cannot be deleted because of this mirror, oldest first; the base is one of them.
    #[serde(default)]
    pub kept: Vec<KeptSnapshot>,
    /// Whether a transfer is being served.
    pub transferring: bool,
    /// Whether the relationship is known here. If not, its pins are all there is of it (the state database was lost, or
    /// the pool came from elsewhere): `peer` and `destination` are empty, and its id releases it.
    #[serde(default = "is_known")]
    pub known: bool,
    /// The peer has a newer mirror into a volume of this name: this one is over, and its id releases it.
    #[serde(default)]
    pub stale: bool,
    /// That the destination was broken off; null if not.
    #[serde(default)]
    pub overtaken: Option<Overtaken>,
    /// That its base was released here because of a budget, and why; null if not. Its next update is compared as a whole.
    #[serde(default)]
    pub released: Option<Released>,
    /// How much of its budgets the peer uses; null for one that nobody here knows.
    #[serde(default)]
    pub budgets: Option<BudgetUse>,
}

/// A snapshot that is kept for a mirror at its source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct KeptSnapshot {
    /// Its name.
    pub name: String,
    /// Whether a person made it. What a mirror made goes by itself.
    pub made_by_person: bool,
    /// Why.
    pub why: KeptFor,
}

/// Why a snapshot is kept for a mirror at its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KeptFor {
    /// Both sides hold it: the next update is a difference from it.
    Base,
    /// It travels, or what travels is a difference from it. It is released when the transfer ends.
    Transfer,
    /// A transfer ended before its end, and the destination may have it or a part of it. The next transfer goes on with it or
    /// releases it.
    Interrupted,
    /// Nobody here knows the mirror.
    Unknown,
}

/// That a base was released.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Released {
    /// When.
    pub at: Timestamp,
    /// The budget and what was over it.
    pub why: String,
}

/// What a peer uses of its budgets, and what it may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BudgetUse {
    /// Transfers that are being served.
    pub transfers: u64,
    /// At most.
    pub transfers_max: u64,
    /// Mirrors of volumes here.
    pub mirrors: u64,
    /// At most.
    pub mirrors_max: u64,
    /// Snapshots that are kept for them.
    pub pins: u64,
    /// At most.
    pub pins_max: u64,
    /// Snapshots of the last minute.
    pub snapshots: u64,
    /// At most, in a minute.
    pub snapshots_max: u64,
    /// Bytes that are kept, at most; null: what the pool has above its reserve.
    pub pinned_bytes_max: Option<u64>,
}

/// What a daemon that does not say has.
fn is_known() -> bool {
    true
}

/// `POST /mirrors`: makes a relationship, and the destination volume if it is not there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateMirror {
    /// `PEER:POOL/VOL`.
    pub source: String,
    /// `POOL/VOL` here.
    pub destination: String,
    /// Update interval in seconds.
    #[serde(default)]
    pub every_seconds: Option<f64>,
    /// If the mirror is there, and is so as far as this says anything, answer with it; without, it is refused in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
    /// Do not give the source's site the right to mirror the replica back, although it would give it to this one.
    #[serde(default)]
    pub no_reverse: bool,
    /// Make it also if the source is a replica of a volume of this site: a copy of a copy, beside the original. Else it is `unconfirmed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub copy_of_own: bool,
    /// Instead of an interval: a timetable, the five fields of cron. Without either, updates begin only when asked for.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The timetable's time zone, by name; the one of the daemon's system if absent.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Instead of both: a recovery point objective in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpo_seconds: Option<f64>,
    /// Which of the points that were published stay: `last=10,hourly=24,daily=7`, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
    /// The group of mirrors that are updated and broken off together; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What its transfers may take of the link.
    #[serde(default, deserialize_with = "crate::object::optional", skip_serializing_if = "Option::is_none")]
    pub link: Option<SetMirrorLink>,
}

/// `POST /mirrors/POOL/VOL/set`: what is absent stays as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetMirror {
    /// The new update interval in seconds; 0: updates begin only when asked for.
    #[serde(default)]
    pub every_seconds: Option<f64>,
    /// Instead of an interval: a timetable, the five fields of cron.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The timetable's time zone, by name; the one of the daemon's system if absent.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// Instead of both: a recovery point objective in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpo_seconds: Option<f64>,
    /// Which of the points that were published stay: `last=10,hourly=24,daily=7`, or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
    /// The group of mirrors that are updated and broken off together; empty for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What its transfers may take of the link.
    #[serde(default, deserialize_with = "crate::object::optional", skip_serializing_if = "Option::is_none")]
    pub link: Option<SetMirrorLink>,
}

/// `POST /mirrors/POOL/VOL/break`. Without a body: at the newest replicated point.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BreakMirror {
    /// The snapshot of the replica that hosts shall find; what is newer stays as a side branch.
    #[serde(default)]
    pub at: Option<String>,
    /// The moment that the side branch is named by: what one command sets aside of several volumes has one. Of the last hour; now if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside_at: Option<Timestamp>,
}

/// `POST /mirrors/POOL/VOL/resync`: the volume becomes, again or for the first time, the replica of a peer's volume,
/// from the newest point that both hold.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResyncMirror {
    /// `PEER:POOL/VOL`; what the volume was broken off from if absent. It may be another one than the volume follows, or
    /// followed: then the mirror with that one is over.
    #[serde(default)]
    pub from: Option<String>,
    /// If the two have no point in common, compare everything that the volume holds instead of refusing: what is equal does not
    /// travel.
    #[serde(default)]
    pub whole: bool,
    /// Update interval in seconds from then on; 0 for none, as it was if absent.
    #[serde(default)]
    pub every_seconds: Option<f64>,
    /// Instead of an interval: a timetable, the five fields of cron.
    #[serde(default)]
    pub schedule: Option<String>,
    /// The timetable's time zone, by name; the one of the daemon's system if absent.
    #[serde(default)]
    pub time_zone: Option<String>,
    /// How long to wait for a lost session, seconds; the daemon's default if absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
    /// As in [`StartRollback`](crate::StartRollback).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside_at: Option<Timestamp>,
}

/// `POST /mirrors/POOL/VOL/initialize`, `/update` and `/swap`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartTransfer {
    /// How long to wait for a lost session, seconds; the daemon's default if absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}
