//! What is said of mirrors that are updated together, checked in form.

use std::collections::HashSet;

use farside_engine::VolumeName;
use farside_platform::Timestamp;
use uuid::Uuid;

use super::convert::{role_change, uuid, volume};
use super::messages::{Reserve, ReserveTogether, ReservedTogether};
use crate::error::TransferError;
use crate::limits::GROUP_MAX;

/// What is not done where an engine has no moment for several volumes.
pub const NO_ONE_MOMENT: &str = "its volumes cannot be mirrored as a group. To mirror each by itself, at the destination: \
    farside mirror set POOL/VOL --group none";

/// What a destination wants a snapshot to be taken for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The relationship.
    pub relationship: Uuid,
    /// The transfer that will bring it.
    pub transfer: Uuid,
    /// The source's volume.
    pub volume: VolumeName,
    /// The newest role change that the destination has seen.
    pub role_change: u64,
    /// The snapshot that the destination shows.
    pub shows: Option<Uuid>,
}

impl Reservation {
    /// As it was asked for.
    pub fn from_message(message: &Reserve) -> Result<Reservation, TransferError> {
        Ok(Reservation {
            relationship: uuid(&message.relationship)?,
            transfer: uuid(&message.transfer)?,
            volume: volume(&message.volume)?,
            role_change: role_change(message.role_change)?,
            shows: optional(&message.shows)?,
        })
    }

    /// The message that asks for it.
    pub fn to_message(&self) -> Reserve {
        Reserve {
            relationship: self.relationship.as_bytes().to_vec(),
            transfer: self.transfer.as_bytes().to_vec(),
            volume: self.volume.to_string(),
            role_change: self.role_change,
            shows: self.shows.map(|shows| shows.as_bytes().to_vec()).unwrap_or_default(),
        }
    }
}

/// Those of a group, no two of one relationship, volume or transfer.
pub fn reservations(message: &ReserveTogether) -> Result<Vec<Reservation>, TransferError> {
    let count = message.members.len();
    if count == 0 || count > GROUP_MAX {
        return Err(TransferError::Protocol(format!("a group of {count} mirrors, limit {GROUP_MAX}")));
    }
    let members: Vec<_> = message.members.iter().map(Reservation::from_message).collect::<Result<_, _>>()?;
    let relationships: HashSet<_> = members.iter().map(|m| m.relationship).collect();
    let transfers: HashSet<_> = members.iter().map(|m| m.transfer).collect();
    let volumes: HashSet<_> = members.iter().map(|m| &m.volume).collect();
    match relationships.len() == count && transfers.len() == count && volumes.len() == count {
        true => Ok(members),
        false => Err(TransferError::Protocol("a group that names a mirror, volume or transfer twice".into())),
    }
}

/// What a transfer of a group brings: this snapshot of its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupMoment {
    /// The snapshot, by its identity.
    pub snapshot: Uuid,
    /// When it was taken, the same of all.
    pub created_at: Timestamp,
}

/// The moment of each of `asked` mirrors.
pub fn moments(message: &ReservedTogether, asked: usize) -> Result<Vec<GroupMoment>, TransferError> {
    let count = message.snapshots.len();
    if count != asked || count > GROUP_MAX {
        return Err(TransferError::Protocol(format!("{count} snapshots for a group of {asked} mirrors")));
    }
    let created_at = Timestamp(message.created_at);
    let of = |snapshot: &Vec<u8>| Ok(GroupMoment { snapshot: uuid(snapshot)?, created_at });
    message.snapshots.iter().map(of).collect()
}

/// A snapshot that need not be named.
pub fn optional(bytes: &[u8]) -> Result<Option<Uuid>, TransferError> {
    (!bytes.is_empty()).then(|| uuid(bytes)).transpose()
}
