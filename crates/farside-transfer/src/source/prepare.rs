//! What a transfer and its acknowledgement do to the source's snapshots. Blocking; call from a blocking thread.

use std::collections::HashSet;

use farside_engine::{
    ContentRoot, Engine, EngineError, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeName,
};
use farside_platform::Clock;
use uuid::Uuid;

use super::choose::{Base, Beside, Rooted, choose_base, travelling};
use super::common::in_common;
use crate::bases::{keep_further, readable_root, release};
use crate::error::TransferError;
use crate::kind::TransferKind;
use crate::limits::{COMMON_MAX, STEPS_MAX};
use crate::protocol::convert::{CandidateBase, TransferPlan, TravellingSnapshot};

/// How often a list of snapshots is tried of which one is deleted meanwhile.
const ATTEMPTS_MAX: u32 = 4;

/// What a destination asked for, checked.
pub struct Asked {
    /// The relationship.
    pub relationship: Uuid,
    /// The transfer's id, which becomes that of the snapshot it takes.
    pub transfer: Uuid,
    /// The volume here.
    pub volume: VolumeName,
    /// What for.
    pub kind: TransferKind,
    /// What the destination has, oldest first.
    pub candidates: Vec<CandidateBase>,
    /// The incremental of a transfer that was cut, of which the destination has a part.
    pub staged_transfer: Option<Uuid>,
    /// An update without a common base is compared as a whole: this side has released the base, or the destination cannot
    /// read it.
    pub is_whole: bool,
    /// Snapshots that may be kept for the relationship.
    pub pins_left: usize,
    /// Snapshots of persons that the destination takes at most; the newest of those that wait.
    pub named_max: Option<usize>,
    /// Other relationships of the volume, with whose destinations this one is to have a point in common; none if it does
    /// not keep any.
    pub others: Vec<Uuid>,
    /// What the destination keeps for others itself.
    pub further: Vec<CandidateBase>,
    /// In an update of a group: the snapshot that was named for it, with which it ends.
    pub until: Option<Uuid>,
}

/// What will travel, and from which snapshot of this side.
pub(crate) struct Prepared {
    pub(crate) plan: TransferPlan,
    pub(crate) local_base: Option<Uuid>,
    /// What the destination has a part of, and travels first.
    pub(crate) taken_up: Option<Uuid>,
    /// How many snapshots are kept for it.
    pub(crate) pins: usize,
}

/// Chooses the base, takes the incremental snapshot, pins what travels and releases what earlier transfers of the
/// relationship left. If it fails before the release, nothing has changed: nobody's snapshot stays pinned for a transfer that
/// does not begin.
pub(crate) fn prepare(
    engine: &dyn Engine,
    clock: &dyn Clock,
    asked: &Asked,
) -> Result<Prepared, TransferError> {
    let mut attempts = 1;
    let Pinned { mut prepared, keep } = loop {
        let mut undo = Undo { engine, asked, taken: None, pinned: Vec::new() };
        let error = match choose_and_pin(engine, clock, asked, &mut undo) {
            Ok(pinned) => break pinned,
            Err(error) => error,
        };
        undo.undo();
        // A timetable, or a person, has deleted one that was listed: the next list is without it.
        let is_gone = matches!(error, TransferError::Engine(EngineError::NotFound { .. }));
        if !is_gone || attempts == ATTEMPTS_MAX {
            return Err(error);
        }
        attempts += 1;
    };
    // First: one that was a base until now is kept for whoever follows the destination.
    let most = asked.pins_left.saturating_sub(keep.len());
    prepared.pins += keep_further_or_warn(engine, &asked.volume, asked.relationship, &asked.further, most);
    release(engine, &asked.volume, asked.relationship, &keep)?;
    Ok(prepared)
}

/// Without it the transfer is none the worse.
fn keep_further_or_warn(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    further: &[CandidateBase],
    most: usize,
) -> usize {
    keep_further(engine, volume, relationship, further, most).unwrap_or_else(|error| {
        tracing::warn!(%relationship, %volume, "cannot keep what those hold that follow the destination. Mirrors go on; if \
             that site is lost, they may follow this one only by a comparison of everything: {error}");
        0
    })
}

/// What a transfer that does not begin must not leave.
struct Undo<'a> {
    engine: &'a dyn Engine,
    asked: &'a Asked,
    taken: Option<Uuid>,
    pinned: Vec<Uuid>,
}

impl Undo<'_> {
    fn pin(&mut self, snapshot: &Rooted) -> Result<(), EngineError> {
        let Asked { volume, relationship, .. } = self.asked;
        self.engine.pin(volume, snapshot.info.uuid, *relationship)?;
        if !snapshot.info.pinned_by.contains(relationship) {
            self.pinned.push(snapshot.info.uuid);
        }
        Ok(())
    }

    fn undo(self) {
        let Asked { volume, relationship, .. } = self.asked;
        let unpin = |snapshot: Uuid| self.engine.unpin(volume, snapshot, *relationship);
        let undone = || {
            for snapshot in &self.pinned {
                unpin(*snapshot)?;
            }
            if let Some(taken) = self.taken {
                unpin(taken)?;
                self.engine.delete_snapshot(volume, taken)?;
            }
            Ok::<_, EngineError>(())
        };
        match undone() {
            Ok(()) | Err(EngineError::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(%relationship, %volume, "a transfer did not begin, and a snapshot stays pinned for it \
                     until the next one begins: {error}");
            }
        }
    }
}

/// A plan of which everything is pinned.
struct Pinned {
    prepared: Prepared,
    /// Nothing else is to stay pinned for the relationship.
    keep: Vec<Uuid>,
}

fn choose_and_pin(
    engine: &dyn Engine,
    clock: &dyn Clock,
    asked: &Asked,
    undo: &mut Undo<'_>,
) -> Result<Pinned, TransferError> {
    let volume = &asked.volume;
    let is_replica = engine.volume(volume)?.is_replica;
    let Snapshots { mut line, mut beside } = Snapshots::find(engine, volume, &asked.candidates)?;
    let reserved = reserved_for(asked, &mut line, &mut beside);
    let mut base = choose_base(&line, &beside, &asked.candidates, asked.kind == TransferKind::Resync)?;
    // What the volume shows now may be just what the destination has, though no snapshot holds it: then that is the base, and
    // named snapshots travel as differences from it.
    let is_unknown = base.is_none() && asked.kind == TransferKind::Resync && !is_replica;
    let early =
        (is_unknown && asked.pins_left >= 2).then(|| take_incremental(engine, clock, asked)).transpose()?;
    undo.taken = early.as_ref().map(|early| early.info.uuid);
    if let Some(rooted) = &early {
        base = equal_content(rooted, &asked.candidates).map(|candidate| Base {
            rooted,
            candidate,
            from: 0,
            is_beside: false,
        });
    }
    if base.is_none()
        && asked.kind == TransferKind::Update
        && !asked.is_whole
        && !has_unreadable_base(engine, asked)?
    {
        return Err(TransferError::State(format!(
            "no snapshot of {volume} at the source is also at the destination. Nothing was changed. At \
             the destination, farside mirror resync with --whole compares everything, and what is equal does not travel; \
             or farside mirror create with a new volume name copies everything"
        )));
    }
    // Only what was begun for this relationship, and is kept for it since, can be gone on with; or what a person made, which
    // travels anyway, and is pinned only while it does.
    let may_go_on =
        |s: &Rooted| s.info.pinned_by.contains(&asked.relationship) || s.info.owner == SnapshotOwner::Person;
    let staged_transfer =
        asked.staged_transfer.filter(|uuid| line.iter().any(|s| s.info.uuid == *uuid && may_go_on(s)));
    let mut steps: Vec<&Rooted> = travelling(&line, base.as_ref(), staged_transfer).collect();
    let taken_up = staged_transfer.filter(|uuid| steps.iter().any(|s| s.info.uuid == *uuid));
    let mut common = in_common(&line, &beside, base.as_ref(), &asked.candidates, &asked.others, taken_up);
    let left_out = leave_out_oldest(&mut steps, asked.named_max);
    // With the base and the incremental.
    if asked.pins_left < 2 || (!steps.is_empty() && asked.pins_left < 3) {
        return Err(TransferError::OverBudget(format!(
            "the mirror would pin {} snapshots at the source, and budgets.pins of the source leaves {}. Nothing was \
             changed. Delete snapshots of {volume} at the source, end other mirrors, or raise budgets.pins there",
            steps.len() + 2,
            asked.pins_left
        )));
    }
    // What is more waits: this transfer ends with the newest that fits, and the next goes on from there.
    let portion = (STEPS_MAX - 1).min(asked.pins_left - 2);
    let waiting = steps.len().saturating_sub(portion);
    steps.truncate(portion);
    common.limit(if waiting > 0 { 0 } else { portion - steps.len() });
    let incremental;
    let mut last = None;
    if waiting > 0 {
        tracing::info!(%volume, travel = steps.len(), waiting, "more snapshots wait than one transfer carries; the next \
             transfers bring the rest");
    } else if is_replica && reserved.is_none() {
        // A replica takes no snapshot of its own: a cascade names the version that was published last.
        let newest = line.last().ok_or_else(|| {
            TransferError::State(format!(
                "{volume} at the source is itself a replica and holds no version yet. Nothing was changed. At the \
                 source: farside mirror initialize {volume}"
            ))
        })?;
        let is_base = base.is_some_and(|b| b.rooted.info.uuid == newest.info.uuid);
        if !is_base && steps.last().is_none_or(|s| s.info.uuid != newest.info.uuid) {
            last = Some(newest);
        }
    } else if let Some(early) = &early {
        last = Some(early);
    } else if let Some(reserved) = &reserved {
        // Pinned already; if this fails it goes, as one that was taken now does.
        let is_ours = reserved.info.owner == SnapshotOwner::Relationship(asked.relationship);
        undo.taken = Some(reserved.info.uuid).filter(|_| is_ours);
        last = Some(reserved);
    } else {
        incremental = take_incremental(engine, clock, asked)?;
        undo.taken = Some(incremental.info.uuid);
        last = Some(&incremental);
    }
    if let Some(last) = last {
        common.end_with(last);
    }
    // Whoever it is kept for may have moved on since it was listed: then it is gone, and does not travel.
    for snapshot in common.travels.clone() {
        match undo.pin(snapshot) {
            Ok(()) => {}
            Err(EngineError::NotFound { .. }) => common.forget(snapshot.info.uuid),
            Err(error) => return Err(error.into()),
        }
    }
    if !common.travels.is_empty() {
        let travels: Vec<Uuid> = steps.iter().chain(&common.travels).map(|s| s.info.uuid).collect();
        steps = line.iter().filter(|s| travels.contains(&s.info.uuid)).collect();
    }
    steps.extend(last);

    for snapshot in steps.iter().copied().chain(base.map(|b| b.rooted)) {
        undo.pin(snapshot)?;
    }
    let mut keep: Vec<Uuid> = steps.iter().map(|s| s.info.uuid).collect();
    keep.extend(base.map(|b| b.rooted.info.uuid));
    keep.dedup();
    let (plan, local_base) = planned(&line, base, &steps);
    let plan =
        TransferPlan { waiting: waiting as u64, left_out: left_out as u64, common: common.keeps, ..plan };
    Ok(Pinned { prepared: Prepared { plan, local_base, taken_up, pins: keep.len() }, keep })
}

/// The snapshot that was taken while the transfer waited for its turn, if there is one. What came after it waits for the next
/// transfer: a replica shows no point that is older than another that it has of the same line.
fn reserved_for(asked: &Asked, line: &mut Vec<Rooted>, beside: &mut [Beside]) -> Option<Rooted> {
    let is_reserved = |s: &Rooted| match asked.until {
        Some(until) => s.info.uuid == until && s.info.pinned_by.contains(&asked.relationship),
        None => {
            s.info.uuid == asked.transfer && s.info.owner == SnapshotOwner::Relationship(asked.relationship)
        }
    };
    let at = line.iter().position(is_reserved).filter(|_| asked.kind == TransferKind::Update)?;
    let reserved = line.split_off(at).into_iter().next();
    beside.iter_mut().for_each(|beside| beside.from = beside.from.min(at));
    reserved
}

/// Takes the oldest snapshots of persons away, so that no more than `most` of them are left. Answers how many.
fn leave_out_oldest(steps: &mut Vec<&Rooted>, most: Option<usize>) -> usize {
    let is_named = |s: &&Rooted| s.info.owner == SnapshotOwner::Person;
    let named = steps.iter().filter(|s| is_named(s)).count();
    let too_many = named.saturating_sub(most.unwrap_or(usize::MAX));
    let mut left = too_many;
    steps.retain(|s| {
        let goes = left > 0 && is_named(s);
        left -= usize::from(goes);
        !goes
    });
    too_many
}

/// The plan, and what its base is called here.
fn planned(line: &[Rooted], base: Option<Base<'_>>, steps: &[&Rooted]) -> (TransferPlan, Option<Uuid>) {
    let local = base.map(|b| &b.rooted.info);
    // What lies beside the line, and is not on it under another name, is gone from what this side shows.
    let is_on_line = |b: &Base<'_>| {
        let is_same = |s: &Rooted| s.root == b.rooted.root && s.info.size_bytes == b.rooted.info.size_bytes;
        line.iter().chain(steps.iter().copied()).any(is_same)
    };
    let base_is_beside = base.is_some_and(|b| b.is_beside && !is_on_line(&b));
    let steps = steps.iter().map(|s| TravellingSnapshot {
        uuid: s.info.uuid,
        name: s.info.name.clone(),
        created_at: s.info.created_at,
        size_bytes: s.info.size_bytes,
        content_root: s.root,
        made_by_person: s.info.owner == SnapshotOwner::Person,
    });
    let plan = TransferPlan {
        base: base.map(|b| b.candidate),
        base_name: local.map(|info| info.name.clone()),
        base_is_beside,
        steps: steps.collect(),
        waiting: 0,
        left_out: 0,
        common: Vec::new(),
    };
    (plan, local.map(|info| info.uuid))
}

/// What the destination has of the content of a snapshot; of equals the newest.
pub(super) fn equal_content(rooted: &Rooted, candidates: &[CandidateBase]) -> Option<CandidateBase> {
    let is_equal =
        |c: &&CandidateBase| c.content_root == rooted.root && c.size_bytes == rooted.info.size_bytes;
    candidates.iter().rev().find(is_equal).copied()
}

/// Whether a snapshot that the destination names is here, and only damage keeps it from being the base. Then the whole volume is
/// compared: it costs a comparison, and the mirror goes on.
fn has_unreadable_base(engine: &dyn Engine, asked: &Asked) -> Result<bool, TransferError> {
    let is_named = |s: &SnapshotInfo| asked.candidates.iter().any(|c| c.uuid == s.uuid);
    for named in engine.all_snapshots(&asked.volume)?.iter().filter(|s| is_named(s)) {
        if readable_root(engine, &asked.volume, named)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The snapshots of a volume that can be read whole.
pub(crate) struct Snapshots {
    /// On the main line, oldest first.
    pub(crate) line: Vec<Rooted>,
    /// Beside it, those that the other side holds too.
    pub(crate) beside: Vec<Beside>,
}

impl Snapshots {
    pub(crate) fn find(
        engine: &dyn Engine,
        volume: &VolumeName,
        candidates: &[CandidateBase],
    ) -> Result<Snapshots, TransferError> {
        let on_line = engine.snapshots(volume)?;
        let ids: HashSet<Uuid> = on_line.iter().map(|s| s.uuid).collect();
        // By the index that it has among all of the line.
        let mut line = Vec::with_capacity(on_line.len());
        for (at, info) in on_line.iter().enumerate() {
            let root = readable_root(engine, volume, info)?;
            line.extend(root.map(|root| (at, Rooted { info: info.clone(), root })));
        }
        let mut beside = Vec::new();
        let Some(branches) = engine.branches(&volume.pool) else {
            return Ok(Snapshots { line: line.into_iter().map(|(_, rooted)| rooted).collect(), beside });
        };
        for info in branches.of_all_branches(volume)?.into_iter().filter(|s| !ids.contains(&s.uuid)) {
            let Some(root) = readable_root(engine, volume, &info)? else { continue };
            let is_common = |c: &CandidateBase| {
                c.uuid == info.uuid || (c.content_root == root && c.size_bytes == info.size_bytes)
            };
            if candidates.iter().any(is_common) {
                let fork = match branches.fork(volume, info.uuid) {
                    // Deleted since it was listed.
                    Err(EngineError::NotFound { .. }) => continue,
                    fork => fork?,
                };
                let fork = fork.and_then(|fork| on_line.iter().position(|s| s.uuid == fork));
                let from = line.iter().filter(|(at, _)| fork.is_some_and(|fork| *at <= fork)).count();
                beside.push(Beside { rooted: Rooted { info, root }, from });
            }
        }
        Ok(Snapshots { line: line.into_iter().map(|(_, rooted)| rooted).collect(), beside })
    }
}

pub(super) fn incremental_spec(clock: &dyn Clock, relationship: Uuid, transfer: Uuid) -> SnapshotSpec {
    let (of, by) = (relationship.simple().to_string(), transfer.simple().to_string());
    SnapshotSpec {
        name: format!("mirror-{}-{}", &of[..8], &by[20..]),
        // One transfer takes one snapshot, so the two can share an identity: the same id in every log.
        uuid: transfer,
        created_at: clock.now(),
        owner: SnapshotOwner::Relationship(relationship),
        pin_for: Some(relationship),
    }
}

/// The name says whose it is; the identity of the transfer makes it unique.
fn take_incremental(engine: &dyn Engine, clock: &dyn Clock, asked: &Asked) -> Result<Rooted, TransferError> {
    let spec = incremental_spec(clock, asked.relationship, asked.transfer);
    let info = engine.take_snapshot(&asked.volume, &spec)?;
    match engine.content_root(&asked.volume, info.uuid) {
        Ok(root) => Ok(Rooted { info, root }),
        Err(error) => {
            // It must not stay: pinned, it could be neither used nor deleted.
            engine.unpin(&asked.volume, info.uuid, asked.relationship)?;
            engine.delete_snapshot(&asked.volume, info.uuid)?;
            Err(match error {
                EngineError::Corrupt(reason) => TransferError::Engine(EngineError::Corrupt(format!(
                    "part of {volume} at the source cannot be read, so it cannot be transferred. The replica is \
                     unchanged. At the source: farside volume status {volume} names the damaged blocks, and writing \
                     them whole heals them ({reason})",
                    volume = asked.volume
                ))),
                error => error.into(),
            })
        }
    }
}

/// The destination holds `snapshot` with `content_root`: it is the base from now on; of what the relationship had
/// pinned only `keep` stays, and of what is `further` kept there. Answers how many snapshots that are.
pub(crate) fn move_base(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    snapshot: Uuid,
    content_root: ContentRoot,
    keep: &[Uuid],
    further: &[CandidateBase],
) -> Result<usize, TransferError> {
    let ours = engine.content_root(volume, snapshot)?;
    if ours != content_root {
        return Err(TransferError::IdentityClash { uuid: snapshot, ours, theirs: content_root });
    }
    // The new pin is durable before the old one goes: at no moment is there no base.
    engine.pin(volume, snapshot, relationship)?;
    let more = keep_further_or_warn(engine, volume, relationship, further, COMMON_MAX);
    release(engine, volume, relationship, keep)?;
    Ok(keep.len() + more)
}
