//! Snapshots as bases, the same at both sides: which may serve, and how those of a relationship are released. Blocking; call
//! from a blocking thread.

use farside_engine::{ContentRoot, Engine, EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
pub use farside_format::pins::{common_of, kept_of, rotates};
use uuid::Uuid;

use crate::error::TransferError;
use crate::limits::{CANDIDATES_MAX, COMMON_MAX, NAME_BYTES_MAX};
use crate::protocol::convert::CandidateBase;

/// What the name of a snapshot begins with that holds what a mirror, or a person's decision, took out of sight.
pub const RESCUE: &str = "rescue";
/// What the name of a snapshot begins with that retention keeps, and that a mirror took.
pub const KEPT: &str = "kept";
/// What it begins with if it was the source that left it behind.
pub const RESCUE_OF_SOURCE: &str = "rescue-source";
/// What the name of a snapshot begins with that was the base of a mirror that is over.
pub const LEFT_BASE: &str = "base";

/// Letters of a moment that say its day: `2027-01-15`.
pub const DAY: usize = 10;
/// More than a moment, a number after it and what is before them have.
const RESCUE_NAME_MAX: usize = 72;

/// When what has this name was set aside, if it is the name of a rescue: `rescue-2027-01-15T08:00:00Z`, or with `-2` after it; and
/// whether the source left it behind (`rescue-source-…`). What the data is of may be older.
pub fn rescue_moment(name: &str) -> Option<(&str, bool)> {
    let rest = name.strip_prefix(RESCUE)?.strip_prefix('-').filter(|_| name.len() <= RESCUE_NAME_MAX)?;
    let of_source = rest.strip_prefix("source-");
    moment_of(of_source.unwrap_or(rest)).map(|at| (at, of_source.is_some()))
}

/// The moment in a name `STEM-TIME`, or `STEM-TIME-NUMBER`.
fn moment_after<'a>(stem: &str, name: &'a str) -> Option<&'a str> {
    moment_of(name.strip_prefix(stem)?.strip_prefix('-')?)
}

/// The moment that `rest` is, perhaps with a number after it.
fn moment_of(rest: &str) -> Option<&str> {
    let (at, number) = rest.split_at(rest.find('Z')? + 1);
    let is_day = |c: (usize, char)| if matches!(c.0, 4 | 7) { c.1 == '-' } else { c.1.is_ascii_digit() };
    let is_moment = at.len() > DAY && at.is_ascii() && at.char_indices().take(DAY).all(is_day);
    let is_numbered = number.strip_prefix('-').is_some_and(|number| number.parse::<u64>().is_ok());
    (is_moment && (number.is_empty() || is_numbered)).then_some(at)
}

/// Whether it is a name as timetables of snapshots give it: `auto-2027-01-15T08:00:00Z`, or `app-…` if an application was frozen for
/// it. Anybody may give such a name; where it travels to, the name is all that tells.
pub fn is_of_timetable(name: &str) -> bool {
    ["auto", "app"].iter().any(|stem| moment_after(stem, name).is_some())
}

/// Whether it is the name of what a mirror that is over left here as its last base.
pub fn is_left_base(name: &str) -> bool {
    moment_after(LEFT_BASE, name).is_some()
}

/// Whether it is the name that a transfer gives to what it takes: `mirror-RELATIONSHIP-TRANSFER`, 8 and 12 digits. Of what is a person's:
/// the mirror is over, and retention had kept it.
pub fn is_of_transfer(name: &str) -> bool {
    let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
    let ids = name.strip_prefix("mirror-").and_then(|rest| rest.split_once('-'));
    ids.is_some_and(|(of, by)| is_hex(of, 8) && is_hex(by, 12))
}

/// Whether it is the name of a point of a mirror that retention kept. Of what is a person's: the mirror is over, and left it here.
pub fn is_left_kept(name: &str) -> bool {
    moment_after(KEPT, name).is_some()
}

/// The name at this site of a snapshot that a person at the source called `name`: what is called a rescue there is none here, and
/// is not to go, nor to push out another, as one.
pub(crate) fn arrival_name(name: &str) -> String {
    match rescue_moment(name) {
        Some(_) => format!("source-{name}"),
        None => name.to_owned(),
    }
}

/// `name`, or if that is taken here, the name with a piece of the snapshot's identity.
pub(crate) fn free_name(name: &str, uuid: Uuid, taken: &[String]) -> String {
    if !taken.iter().any(|t| t == name) {
        return name.into();
    }
    let suffix = format!("-{}", &uuid.simple().to_string()[..12]);
    let keep = name.len().min(NAME_BYTES_MAX - suffix.len());
    format!("{}{suffix}", &name[..keep])
}

/// What the name of a snapshot begins with that is taken only to be compared.
const PROBE: &str = "mirror-probe-";

/// The name of a snapshot that is taken only to be compared with what the other side has.
pub fn probe_name(uuid: Uuid) -> String {
    format!("{PROBE}{}", &uuid.simple().to_string()[..12])
}

/// Deletes what was taken to be compared and is nobody's base: a crash may leave such a snapshot.
pub fn drop_left_probes(engine: &dyn Engine, volume: &VolumeName) -> Result<(), TransferError> {
    let is_left = |s: &&SnapshotInfo| {
        s.name.starts_with(PROBE) && s.owner != SnapshotOwner::Person && s.pinned_by.is_empty() && !s.held
    };
    for left in engine.all_snapshots(volume)?.iter().filter(is_left) {
        match engine.delete_snapshot(volume, left.uuid) {
            Ok(()) | Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Every snapshot here that may serve as base, side branches included, oldest first, [`CANDIDATES_MAX`] at most: those that
/// a mirror keeps as a base (a common one is among them however many were taken since), and the newest.
pub fn candidates(engine: &dyn Engine, volume: &VolumeName) -> Result<Vec<CandidateBase>, TransferError> {
    let mut snapshots = engine.all_snapshots(volume)?;
    let mut too_many = snapshots.len().saturating_sub(CANDIDATES_MAX);
    let kept = engine.replica_record(volume)?.map(|record| kept_of(record.relationship));
    snapshots.retain(|s| {
        let is_dropped = too_many > 0 && s.pinned_by.iter().all(|pin| Some(*pin) == kept);
        too_many -= usize::from(is_dropped);
        !is_dropped
    });
    let newest = &snapshots[snapshots.len().saturating_sub(CANDIDATES_MAX)..];
    let candidate = |s: &SnapshotInfo| {
        let content_root = readable_root(engine, volume, s)?;
        Ok(content_root.map(|root| CandidateBase {
            uuid: s.uuid,
            content_root: root,
            size_bytes: s.size_bytes,
        }))
    };
    newest.iter().filter_map(|s| candidate(s).transpose()).collect()
}

/// The content root of a snapshot; none if damaged metadata keeps part of it from being read, or if it was deleted since it was
/// listed. One such snapshot must not stop a mirror: it serves as base no more, and the others do.
pub(crate) fn readable_root(
    engine: &dyn Engine,
    volume: &VolumeName,
    snapshot: &SnapshotInfo,
) -> Result<Option<ContentRoot>, EngineError> {
    match engine.content_root(volume, snapshot.uuid) {
        Ok(root) => Ok(Some(root)),
        Err(EngineError::Corrupt(reason)) => {
            tracing::warn!(
                %volume, snapshot = snapshot.name,
                "part of this snapshot cannot be read, so it cannot serve as base: {reason}"
            );
            Ok(None)
        }
        Err(EngineError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the end of the relationship leaves of it at its destination: its newest base, as a person's, so that the volume can follow
/// that source again, or another one that holds the same, without a copy of everything. With `common` also what other
/// destinations hold too. What a person's snapshot holds already is not left again.
pub fn leave_bases(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    common: bool,
) -> Result<Vec<SnapshotInfo>, TransferError> {
    let keeper = common_of(relationship);
    let all = engine.all_snapshots(volume)?;
    let newest = all.iter().rposition(|s| s.pinned_by.contains(&relationship));
    let is_left =
        |at: usize, s: &SnapshotInfo| Some(at) == newest || (common && s.pinned_by.contains(&keeper));
    let mut left = Vec::new();
    for (_, base) in all.iter().enumerate().filter(|(at, s)| is_left(*at, s)) {
        if base.owner != SnapshotOwner::Person && !is_a_persons_too(engine, volume, base)? {
            left.push(engine.hand_over(volume, base.uuid, SnapshotOwner::Person, LEFT_BASE, None)?);
        }
    }
    Ok(left)
}

/// What retention keeps for a relationship becomes a person's: nothing lets it go by itself any more. Answers how many points that
/// are.
pub fn leave_kept(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<usize, TransferError> {
    let keeper = kept_of(relationship);
    let mut left = 0;
    for point in engine.all_snapshots(volume)?.iter().filter(|s| s.pinned_by.contains(&keeper)) {
        // First: in between a crash leaves what retention keeps, and a mirror's snapshot without a pin may go at any time.
        if point.owner != SnapshotOwner::Person {
            engine.make_user_snapshot(volume, point.uuid)?;
        }
        engine.unpin(volume, point.uuid, keeper)?;
        left += 1;
    }
    Ok(left)
}

/// Whether a person's snapshot holds what `base` does; also if that cannot be read, which then is nobody's base.
fn is_a_persons_too(
    engine: &dyn Engine,
    volume: &VolumeName,
    base: &SnapshotInfo,
) -> Result<bool, TransferError> {
    let Some(root) = readable_root(engine, volume, base)? else { return Ok(true) };
    // What was set aside stays only as long as there are not too many.
    let is_lasting = |s: &&SnapshotInfo| s.owner == SnapshotOwner::Person && !s.name.starts_with("rescue-");
    let all = engine.all_snapshots(volume)?;
    for person in all.iter().filter(is_lasting).filter(|s| s.size_bytes == base.size_bytes) {
        if readable_root(engine, volume, person)? == Some(root) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A destination keeps, of what it has in common with others, these and no more. What a person made it does not keep:
/// that is the person's to delete.
pub(crate) fn keep_common(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    common: &[Uuid],
) -> Result<(), TransferError> {
    let keeper = common_of(relationship);
    for snapshot in engine.all_snapshots(volume)? {
        if common.contains(&snapshot.uuid) && snapshot.owner != SnapshotOwner::Person {
            match engine.pin(volume, snapshot.uuid, keeper) {
                Ok(()) | Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    release(engine, volume, keeper, common)
}

/// What a destination keeps for anybody but the relationship by which it follows, the newest last, [`COMMON_MAX`] at most: what
/// those who follow it stand on. Without what a person made, which is only the person's to keep.
pub fn kept_for_others(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<Vec<CandidateBase>, TransferError> {
    let own = [relationship, common_of(relationship), kept_of(relationship)];
    let is_for_others = |s: &&SnapshotInfo| {
        s.owner != SnapshotOwner::Person && s.pinned_by.iter().any(|pin| !own.contains(pin))
    };
    let all = engine.all_snapshots(volume)?;
    let mut kept = Vec::new();
    for snapshot in all.iter().rev().filter(is_for_others) {
        if kept.len() >= COMMON_MAX {
            break;
        }
        if let Some(content_root) = readable_root(engine, volume, snapshot)? {
            kept.push(CandidateBase { uuid: snapshot.uuid, content_root, size_bytes: snapshot.size_bytes });
        }
    }
    kept.reverse();
    Ok(kept)
}

/// A source keeps, of what its destination keeps for others, what it has too, the newest `most` of it; and nothing that was named
/// before. Answers how many snapshots that are, besides those that are kept for the relationship itself.
pub(crate) fn keep_further(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    further: &[CandidateBase],
    most: usize,
) -> Result<usize, TransferError> {
    let keeper = common_of(relationship);
    let all = engine.all_snapshots(volume)?;
    let mut keep = Vec::new();
    let mut more = 0;
    for known in find(engine, volume, &all, relationship, further)?.into_iter().rev() {
        let is_more = !known.pinned_by.contains(&relationship);
        if known.owner == SnapshotOwner::Person || keep.contains(&known.uuid) || (is_more && more >= most) {
            continue;
        }
        match engine.pin(volume, known.uuid, keeper) {
            Ok(()) => {
                keep.push(known.uuid);
                more += usize::from(is_more);
            }
            // Let go since it was listed.
            Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    release(engine, volume, keeper, &keep)?;
    Ok(more)
}

/// What a volume has of the content of snapshots of another: the newest that is kept for the relationship already, else the newest
/// at all, so that of a volume that nobody writes to one stands for all. In the order in which they are `named`; what it has not is
/// left out.
fn find<'a>(
    engine: &dyn Engine,
    volume: &VolumeName,
    all: &'a [SnapshotInfo],
    relationship: Uuid,
    named: &[CandidateBase],
) -> Result<Vec<&'a SnapshotInfo>, TransferError> {
    if named.is_empty() {
        return Ok(Vec::new());
    }
    // Looked up once, however many are named.
    let content = |s: &'a SnapshotInfo| readable_root(engine, volume, s).map(|root| (root, s.size_bytes, s));
    let all = all.iter().map(content).collect::<Result<Vec<_>, _>>()?;
    let find = |named: &CandidateBase| {
        let equal = all.iter().filter(|(root, size_bytes, _)| {
            *root == Some(named.content_root) && *size_bytes == named.size_bytes
        });
        // Of several that are as good the last, which is the newest.
        equal.map(|(_, _, snapshot)| *snapshot).max_by_key(|s| s.pinned_by.contains(&relationship))
    };
    Ok(named.iter().filter_map(find).collect())
}

/// The relationship is over at this side: [`release`] of everything, with what is kept in common with others.
pub fn release_all(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<(), TransferError> {
    release(engine, volume, relationship, &[])?;
    release(engine, volume, common_of(relationship), &[])
}

/// Whether any snapshot is pinned or was taken for the relationship.
pub fn is_kept_for(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<bool, TransferError> {
    let is_for = |s: &SnapshotInfo| {
        s.pinned_by.contains(&relationship) || s.owner == SnapshotOwner::Relationship(relationship)
    };
    Ok(engine.all_snapshots(volume)?.iter().any(is_for))
}

/// Takes the relationship's pins off everything but `keep`, and deletes what was taken for it alone. A snapshot that
/// another relationship or a person still needs stays; this is tried again at each transfer. Side branches included:
/// what a rollback left beside the main line would otherwise stay pinned for ever.
pub fn release(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    keep: &[Uuid],
) -> Result<(), TransferError> {
    for snapshot in engine.all_snapshots(volume)? {
        if keep.contains(&snapshot.uuid) {
            continue;
        }
        let was_pinned = snapshot.pinned_by.contains(&relationship);
        if was_pinned {
            engine.unpin(volume, snapshot.uuid, relationship)?;
        }
        // After a role change a base may have been taken for one relationship and be kept by another: it goes with
        // the last pin.
        let is_ours = match snapshot.owner {
            SnapshotOwner::Person => false,
            SnapshotOwner::Relationship(owner) => owner == relationship || was_pinned,
        };
        if is_ours && snapshot.pinned_by.iter().all(|pin| *pin == relationship) {
            match engine.delete_snapshot(volume, snapshot.uuid) {
                Ok(()) | Err(EngineError::NotFound { .. }) => {}
                Err(EngineError::Refused(reason)) => {
                    tracing::debug!(%volume, snapshot = snapshot.name, "an old base stays for now: {reason}");
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_took_a_snapshot() {
        for name in ["auto-2027-01-15T08:00:00Z", "app-2027-01-15T08:00:00Z-2"] {
            assert!(is_of_timetable(name) && !is_left_base(name) && rescue_moment(name).is_none(), "{name}");
        }
        for name in
            ["auto-monday", "app", "automatic-2027-01-15T08:00:00Z", "auto-2027-01-15T08:00:00Z-x", "monday"]
        {
            assert!(!is_of_timetable(name), "{name}");
        }
        assert!(is_left_base("base-2027-01-15T08:00:00.5Z") && !is_left_base("base-camp"));
        assert!(is_left_kept("kept-2027-01-15T08:00:00Z-2") && !is_left_kept("kept-for-audit"));
        assert_eq!(
            rescue_moment("rescue-source-2027-01-15T08:00:00Z-3"),
            Some(("2027-01-15T08:00:00Z", true))
        );
        assert_eq!(rescue_moment("rescue-2027-01-15T08:00:00Z"), Some(("2027-01-15T08:00:00Z", false)));
        assert_eq!(rescue_moment("rescue-boat"), None);
    }
}
