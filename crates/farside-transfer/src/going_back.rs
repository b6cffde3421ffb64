//! How a volume is made to show one of its snapshots again. Blocking; call from a blocking thread.
//!
//! An engine with branches does it by one record. For one without, the snapshot is staged and published anew, as what lies last on
//! the only line that the volume has: what the replica's source knows by another identity there is found by its content. A crash
//! in between leaves the volume as it was, or showing that snapshot with the record it had.

use farside_engine::{
    Engine, EngineError, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec, StagedFor, VolumeName,
};
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::bases::free_name;

/// Who has a volume go back.
#[derive(Clone, Debug)]
pub enum GoingBack {
    /// A person, with a volume that is nobody's replica.
    OfPerson,
    /// The mirror that it is the replica of: refused if it is not, not even in the moment of the change.
    OfMirror(Uuid),
    /// A person who breaks it off, which this record says.
    BrokenOff(ReplicaRecord),
}

/// What came of it.
pub struct Back {
    /// The snapshot that the volume shows: the one asked for, or another of the same content.
    pub shown: Uuid,
    /// What hosts had written that nothing else has.
    pub rescued: Option<SnapshotInfo>,
}

/// Has the volume show `snapshot`. What it showed that neither the new line nor a person's snapshot has stays, as a side branch of
/// `moment` where one is given and the engine has branches: that of the command that does the same to other volumes.
pub fn go_back(
    engine: &dyn Engine,
    volume: &VolumeName,
    snapshot: Uuid,
    going: GoingBack,
    moment: Option<Timestamp>,
) -> Result<Back, EngineError> {
    let Some(branches) = engine.branches(&volume.pool) else {
        return show_anew(engine, volume, snapshot, going);
    };
    let rescued = match going {
        GoingBack::OfPerson => branches.move_main(volume, snapshot, None, moment)?,
        GoingBack::OfMirror(relationship) => branches.move_replica(volume, snapshot, relationship)?,
        GoingBack::BrokenOff(record) => branches.move_main(volume, snapshot, Some(record), moment)?,
    };
    Ok(Back { shown: snapshot, rescued })
}

fn show_anew(
    engine: &dyn Engine,
    volume: &VolumeName,
    snapshot: Uuid,
    going: GoingBack,
) -> Result<Back, EngineError> {
    let before = engine.snapshots(volume)?;
    let absent = || EngineError::NotFound { what: format!("snapshot {snapshot} of {volume}") };
    let from = before.iter().find(|s| s.uuid == snapshot).ok_or_else(absent)?;
    let taken: Vec<String> = before.iter().map(|s| s.name.clone()).collect();
    let shown = again(snapshot, |uuid| before.iter().all(|s| s.uuid != uuid));
    let (owner, pin_for) = match &going {
        GoingBack::OfPerson => (SnapshotOwner::Person, None),
        GoingBack::OfMirror(relationship) => {
            (SnapshotOwner::Relationship(*relationship), Some(*relationship))
        }
        GoingBack::BrokenOff(record) => (SnapshotOwner::Person, Some(record.relationship)),
    };
    let spec = SnapshotSpec {
        name: free_name(&from.name, shown, &taken),
        uuid: shown,
        created_at: from.created_at,
        owner,
        pin_for,
    };
    let staged_for = StagedFor { relationship: pin_for.unwrap_or(Uuid::nil()), incremental: shown };
    let staged = engine.stage(volume, Some(snapshot), from.size_bytes, staged_for)?;
    if let Err(error) = staged.checkpoint().and_then(|()| staged.commit(&spec)) {
        // Nobody goes on with it; what cannot be thrown away now the next transfer throws away.
        let _ = staged.abandon();
        return Err(error);
    }
    if let GoingBack::BrokenOff(record) = going {
        engine.set_replica_record(volume, Some(record))?;
    }
    let is_new = |s: &SnapshotInfo| s.uuid != shown && before.iter().all(|old| old.uuid != s.uuid);
    let rescued = engine.snapshots(volume)?.into_iter().find(is_new);
    Ok(Back { shown, rescued })
}

/// An identity for the same content once more: the same wherever it is made, so that it never stands for two contents.
fn again(snapshot: Uuid, is_free: impl Fn(Uuid) -> bool) -> Uuid {
    const STEP: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let of = |n: u128| {
        let bytes = (snapshot.as_u128() ^ n.wrapping_mul(STEP)).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    };
    (1..).map(of).find(|uuid| is_free(*uuid)).expect("numbers do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_gets_the_same_identity_unless_that_is_taken() {
        let first = Uuid::from_u128(7);
        let second = again(first, |_| true);
        assert_ne!(second, first);
        assert_eq!(again(first, |_| true), second);
        let third = again(first, |uuid| uuid != second);
        assert!(third != first && third != second);
    }
}
