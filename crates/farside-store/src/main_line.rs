//! What a volume shows: its main line, moving it to another snapshot, and what becomes of what it showed before.
//!
//! A volume is branches under one namespace of snapshot names. The head, and whatever it descends from, is the main line.
//! Moving it is one journal record; nothing that hosts wrote is lost by it: what was main stays as a side branch.

use farside_format::catalog::{Change, DescribeSnapshot, MoveMain, MovedHead, Snapshot, Volume};
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::space::SpaceClass;
use crate::volumes::{
    ReplicaStatus, SnapshotStatus, find_snapshot, find_snapshot_by_uuid, find_volume, published_by, uuid_of,
};

impl Pool {
    /// The volume shows `snapshot` from now on, whatever branch that is on: its head begins anew as a copy of it, its
    /// size included. With `record` the replica record changes in the same journal record. Durable when it returns.
    ///
    /// If the old head showed what no snapshot keeps, written by hosts or published by a mirror, it stays as a side branch, `rescue-` and the moment, which is
    /// returned. The moment is `moment` where one is given: what one command sets aside of several volumes has one. Snapshots newer than `snapshot` stay too; but one that was taken for a mirror goes when the mirror needs it
    /// no more, and what a timetable or retention keeps when it is its turn, so these keep nothing.
    ///
    /// # Errors
    /// Refused while somebody has the volume open for writing; readers of a replica keep what they opened.
    pub fn move_main(
        &self,
        volume: &str,
        snapshot: Uuid,
        record: Option<ReplicaStatus>,
        moment: Option<Timestamp>,
    ) -> Result<Option<SnapshotStatus>> {
        self.move_main_while(volume, snapshot, record, moment, |_, _| Ok(()))
    }

    /// The same for a mirror, whose replica the volume must be in the moment of the change: what is under way when a mirror is
    /// broken off or ended takes nothing from the hosts that write by then.
    ///
    /// # Errors
    /// Refused if it is not, besides what [`Pool::move_main`] refuses.
    pub fn move_replica(
        &self,
        volume: &str,
        snapshot: Uuid,
        relationship: Uuid,
    ) -> Result<Option<SnapshotStatus>> {
        self.move_main_while(volume, snapshot, None, None, |state, found| {
            refuse_unless_replica(state, found, relationship)
        })
    }

    fn move_main_while(
        &self,
        volume: &str,
        snapshot: Uuid,
        record: Option<ReplicaStatus>,
        moment: Option<Timestamp>,
        check: impl Fn(&State, &Volume) -> Result<()>,
    ) -> Result<Option<SnapshotStatus>> {
        if record.as_ref().is_some_and(|record| record.broken_off) {
            self.make_way();
        }
        self.release(self.reserve(0, SpaceClass::Metadata)?);
        let rescue_uuid = Uuid::from_bytes(self.options.randomness.uuid_bytes());
        let now = moment.unwrap_or_else(|| self.options.clock.now());
        let is_rescued = self.change(|state| {
            let found = find_volume(state, volume)?;
            check(state, found)?;
            let is_writable = found.replica.as_ref().is_none_or(|r| r.broken_off);
            let users = state.versions.versions.get(&found.head).map_or(0, |h| h.users);
            if is_writable && users > 0 {
                return Err(StoreError::Refused(format!(
                    "{} is open; disconnect its clients before it shows another snapshot. Nothing was changed",
                    state.full_name(volume)
                )));
            }
            let base = find_snapshot_by_uuid(state, volume, snapshot)?.id;
            let rescue = rescue_of_head(state, volume, base, "", rescue_uuid, now)?;
            let is_rescued = rescue.is_some();
            let moved = MovedHead {
                volume: found.id,
                base,
                head: state.versions.next_id,
                rescue,
                sets_replica: record.is_some(),
                replica: record.as_ref().map(|r| r.encode(published_by(found, &r.peer))),
            };
            let epoch = state.epoch.0;
            Ok((Change::MoveMain(MoveMain { moved: vec![moved], epoch }), is_rescued))
        })?;
        self.wake.signal();
        is_rescued.then(|| self.snapshot(volume, rescue_uuid)).transpose()
    }
}

impl Pool {
    /// Whether anything was written to a volume after one of its snapshots was taken, be it the bytes that were there: what
    /// was would stay as a side branch if another snapshot took its place.
    ///
    /// # Errors
    /// There is no such volume, or no such snapshot of it.
    pub fn is_written_since(&self, volume: &str, snapshot: Uuid) -> Result<bool> {
        let state = self.locked();
        let base = find_snapshot_by_uuid(&state, volume, snapshot)?.id;
        Ok(state.versions.head_has_own_writes(find_volume(&state, volume)?, base))
    }
}

/// Refuses what a mirror wants of a volume that is not, or not any more, its replica.
pub(crate) fn refuse_unless_replica(state: &State, volume: &Volume, relationship: Uuid) -> Result<()> {
    let record = volume.replica.as_ref().filter(|record| !record.broken_off);
    if record.is_some_and(|r| uuid_of(&r.relationship) == relationship) {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "the pool does not know {} as the replica of this relationship any more; nothing was changed",
        state.full_name(&volume.name)
    )))
}

impl Pool {
    /// Where the branch of a snapshot left the main line: the newest live snapshot of the main line that it is or descends
    /// from; none if there is none left.
    ///
    /// # Errors
    /// There is no such volume, or no such snapshot of it.
    pub fn fork_of(&self, volume: &str, snapshot: Uuid) -> Result<Option<Uuid>> {
        let state = self.locked();
        let found = find_snapshot_by_uuid(&state, volume, snapshot)?;
        let of_volume = found.volume;
        let line = state.versions.main_line(of_volume);
        let mut next = Some(found);
        while let Some(version) = next.filter(|v| v.volume == of_volume) {
            if line.contains(&version.id) {
                return Ok(version.snapshot.as_ref().map(|s| uuid_of(&s.uuid)));
            }
            next = state.versions.live_ancestor(version);
        }
        Ok(None)
    }

    /// Gives a snapshot to another owner (`None`: a person), whoever it was taken for, and the name `stem` with the moment, as
    /// rescued versions have it: `moment`, or now. One record.
    ///
    /// # Errors
    /// There is no such volume, or no such snapshot of it.
    pub fn hand_over(
        &self,
        volume: &str,
        snapshot: Uuid,
        relationship: Option<Uuid>,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotStatus> {
        let now = moment.unwrap_or_else(|| self.options.clock.now());
        self.change(|state| {
            let version = find_snapshot_by_uuid(state, volume, snapshot)?;
            let mut described = version.snapshot.clone().unwrap_or_default();
            described.relationship = relationship.map(|r| r.as_bytes().to_vec()).unwrap_or_default();
            described.name = dated_name(state, volume, stem, "", now);
            let version = version.id;
            Ok((Change::DescribeSnapshot(DescribeSnapshot { version, snapshot: Some(described) }), ()))
        })?;
        self.snapshot(volume, snapshot)
    }
}

/// The snapshot as which the head of a volume stays when a child of version `base` takes its place; none if it holds nothing
/// of its own. `taken` is a name given in the same record.
pub(crate) fn rescue_of_head(
    state: &State,
    volume: &str,
    base: u64,
    taken: &str,
    uuid: Uuid,
    now: Timestamp,
) -> Result<Option<Snapshot>> {
    let is_needed = state.versions.head_has_own_writes(find_volume(state, volume)?, base);
    Ok(is_needed.then(|| Snapshot {
        name: dated_name(state, volume, "rescue", taken, now),
        uuid: uuid.as_bytes().to_vec(),
        created_at: now.0,
        ..Snapshot::default()
    }))
}

/// A free name: `stem` and the moment, with a number if there is one of that moment.
fn dated_name(state: &State, volume: &str, stem: &str, taken: &str, now: Timestamp) -> String {
    let stem = format!("{stem}-{now}");
    let free = |name: &String| name != taken && find_snapshot(state, volume, name).is_err();
    if free(&stem) {
        return stem;
    }
    (2u64..).map(|n| format!("{stem}-{n}")).find(free).expect("numbers do not end")
}
