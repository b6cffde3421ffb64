//! Clones: volumes that begin as a snapshot of another volume of the pool, by one journal record, whatever its size.
//!
//! The head of a clone is a child of that snapshot, and its nodes are of the same family; nothing else ties the two. Who owns what
//! follows from lineage and births alone (`docs/format.md`, "Lineage"), whichever volume a version belongs to: so either of the two may
//! be written, resized, rolled back, mirrored or deleted, and what both have is freed when the last of them goes.

use farside_format::catalog::{self, Change, CloneVolume, Volume};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::space::SpaceClass;
use crate::versions::VersionState;
use crate::volumes::{VolumeStatus, find_snapshot, find_volume, uuid_of};

/// How often the snapshot to clone is looked up again because the volume shows another one meanwhile.
const ROUNDS_MAX: u32 = 64;

/// What a clone begins as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloneOf<'a> {
    /// The snapshot of this name.
    Snapshot(&'a str),
    /// The snapshot that the volume shows: of a replica, the one that was published last. A volume that was written since its newest
    /// snapshot shows none.
    Shown,
}

/// What a new clone shall be.
#[derive(Clone, Debug)]
pub struct NewClone {
    /// Its name in the pool.
    pub name: String,
    /// Also if part of the snapshot is known not to be readable.
    pub even_if_damaged: bool,
}

impl Pool {
    /// A writable copy of a snapshot, made at once: see [`Pool::clone_volume`].
    pub fn clone_snapshot(&self, volume: &str, snapshot: &str, new_name: &str) -> Result<VolumeStatus> {
        let new = NewClone { name: new_name.into(), even_if_damaged: false };
        self.clone_volume(volume, CloneOf::Snapshot(snapshot), &new)
    }

    /// Makes a volume that begins as a snapshot of another one. No data is read or written, and the volume that it is made of goes on as
    /// it is, be it a replica. Durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a volume or snapshot, [`StoreError::Exists`] if the name is taken, and
    /// [`StoreError::Refused`] if part of the snapshot is known not to be readable.
    pub fn clone_volume(&self, volume: &str, of: CloneOf<'_>, new: &NewClone) -> Result<VolumeStatus> {
        self.release(self.reserve(0, SpaceClass::Metadata)?);
        let uuid = Uuid::from_bytes(self.options.randomness.uuid_bytes());
        let created_at = self.options.clock.now();
        for _ in 0..ROUNDS_MAX {
            let looked_at = find_base(&self.locked(), volume, of)?.id;
            if !new.even_if_damaged {
                self.refuse_damaged(volume, looked_at)?;
            }
            let mut is_another = false;
            let made = self.change(|state| {
                if state.versions.volume_named(&new.name).is_some() {
                    return Err(StoreError::Exists(format!("volume {}", state.full_name(&new.name))));
                }
                let base = find_base(state, volume, of)?;
                is_another = base.id != looked_at;
                if is_another {
                    return Err(StoreError::Refused("it shows another snapshot again and again".into()));
                }
                let found = find_volume(state, volume)?;
                let id = state.versions.next_id;
                let clone = Volume {
                    id,
                    uuid: uuid.as_bytes().to_vec(),
                    name: new.name.clone(),
                    family: found.family,
                    head: id + 1,
                    created_at: created_at.0,
                    replica: None,
                    deleted: false,
                    limits: None,
                    origin: Some(describe(found, base)),
                };
                Ok((Change::Clone(CloneVolume { volume: Some(clone), base: base.id }), ()))
            });
            match made {
                Err(_) if is_another => {}
                made => {
                    made?;
                    return self.volume(&new.name);
                }
            }
        }
        Err(StoreError::Refused(format!(
            "{} shows another snapshot again and again; nothing was changed",
            self.locked().full_name(volume)
        )))
    }

    /// The clones that were made of a volume's snapshots and are still there: name, and the identity of the snapshot.
    pub fn clones_of(&self, volume: &str) -> Result<Vec<(String, Uuid)>> {
        let state = self.locked();
        let id = find_volume(&state, volume)?.id;
        let live = state.versions.volumes.values().filter(|v| !v.deleted);
        let of_this = |v: &Volume| {
            let origin = v.origin.as_ref().filter(|origin| origin.volume == id)?;
            Some((v.name.clone(), uuid_of(&origin.snapshot)))
        };
        let mut clones: Vec<_> = live.filter_map(of_this).collect();
        clones.sort();
        Ok(clones)
    }

    /// A drill or a copy that turns out to be unreadable when it is needed is worse than none.
    fn refuse_damaged(&self, volume: &str, base: u64) -> Result<()> {
        let _reading = self.readers.read();
        let (view, volume, name) = {
            let state = self.locked();
            // One that is gone meanwhile is not found when it counts.
            let Some(version) = state.versions.versions.get(&base) else { return Ok(()) };
            let name = version.snapshot.as_ref().map_or_else(String::new, |s| s.name.clone());
            (state.view(version), state.full_name(volume), name)
        };
        match view.known_damage(&self.nodes)? {
            None => Ok(()),
            Some((block, _)) => Err(StoreError::Refused(format!(
                "{volume}@{name} cannot be read whole: blocks from {block} on are quarantined, because their metadata is damaged. \
                 Clone another snapshot, or say that a damaged one will do (--even-if-damaged). Nothing was changed"
            ))),
        }
    }
}

fn describe(volume: &Volume, base: &VersionState) -> catalog::Origin {
    let snapshot = base.snapshot.clone().unwrap_or_default();
    catalog::Origin {
        volume: volume.id,
        snapshot: snapshot.uuid,
        volume_name: volume.name.clone(),
        snapshot_name: snapshot.name,
        created_at: snapshot.created_at,
    }
}

/// The live snapshot that is to be cloned.
fn find_base<'a>(state: &'a State, volume: &str, of: CloneOf<'_>) -> Result<&'a VersionState> {
    if let CloneOf::Snapshot(name) = of {
        return find_snapshot(state, volume, name);
    }
    let found = find_volume(state, volume)?;
    let head = state.versions.version(found.head)?;
    let is_shown = |s: &&VersionState| {
        s.volume == found.id && s.size_bytes == head.size_bytes && !head.changed_since(s.frozen)
    };
    state.versions.live_ancestor(head).filter(is_shown).ok_or_else(|| {
        StoreError::Refused(format!(
            "{} shows no snapshot: there is none, it was deleted, or the volume was written since. Name one",
            state.full_name(volume)
        ))
    })
}
