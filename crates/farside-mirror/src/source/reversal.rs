//! A role change, as the source that is to become the replica sees it. Its peer asks; the destination side of this site
//! does it ([`Reversal`]). What each message leaves, and what a repetition of it does, is told at
//! [`crate::destination::swap`](crate::destination).

use async_trait::async_trait;
use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_transfer::protocol::convert::CandidateBase;
use uuid::Uuid;

use crate::error::MirrorError;
use crate::schedule::Schedule;

/// The mirror that shall take the place of another, the other way round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReverseOffer {
    /// The relationship that ends.
    pub of: Uuid,
    /// The relationship that takes its place, unless the volume remembers one with that peer already.
    pub reverse: Uuid,
    /// The peer that asks: it holds the replica, which becomes the original.
    pub peer: PeerId,
    /// The volume here, which becomes the replica.
    pub volume: VolumeName,
    /// The volume there, which becomes the original.
    pub source: VolumeName,
    /// When its updates shall begin, unless it remembers a schedule of its own.
    pub schedule: Schedule,
}

/// What was made of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReverseAccepted {
    /// The relationship that takes the other's place.
    pub reverse: Uuid,
    /// The last snapshot of the volume. Nothing can be written after it.
    pub last: CandidateBase,
    /// Number of this role change, as the mirror that takes the other's place counts them.
    pub role_change: u64,
}

/// The destination side of this site, as far as a role change needs it. [`Destination`](crate::Destination) does it
/// for the volumes of its pool.
#[async_trait]
pub trait Reversal: Send + Sync + 'static {
    /// Makes the volume read-only and takes its last snapshot, durably. Refused while a host has it open for writing.
    /// Again: the same answer.
    async fn prepare(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError>;
    /// Whether [`prepare`](Reversal::prepare) would be refused now, and why. Changes nothing.
    async fn look(&self, offer: &ReverseOffer) -> Result<(), MirrorError>;
    /// What `peer` is called here, for whoever reads it.
    fn name_of(&self, _peer: PeerId) -> Option<String> {
        None
    }
    /// `peer`'s volume `destination` does not follow `volume` any more, by its own decision: a mirror the other way round, which was
    /// broken off, need not tell it anything.
    async fn released(&self, _volume: &VolumeName, _peer: PeerId, _destination: &VolumeName) {}
    /// Asks the source of `volume`, if it is a replica here, where it stands, and keeps that. `hops`: through so many sites that may
    /// be asked, this one included. What does not answer in time stays as it was known.
    async fn look_upstream(&self, volume: &VolumeName, hops: usize);
    /// Whether `volume` is to follow its source and nothing of that has come yet.
    async fn awaits_first(&self, volume: &VolumeName) -> bool;
    /// The resync `of` has crossed with one in the other direction: it is taken back, if nothing has come of it. Answers whether it
    /// was.
    async fn give_way(&self, _volume: &VolumeName, _of: Uuid) -> Result<bool, MirrorError> {
        Ok(false)
    }
    /// The last snapshot that was prepared for the end of `of`; none if it is not prepared.
    async fn prepared(&self, volume: &VolumeName, of: Uuid) -> Result<Option<Uuid>, MirrorError>;
    /// Whether `volume` is read-only for a role change that ends `of` and is not over, also one that the database has forgotten.
    async fn is_changing(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError>;
    /// Makes the volume what it was before. Nothing to do is no error.
    async fn cancel(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError>;
    /// The peer has taken over: the volume is its replica from now on, in `group` if it remembers none. Nothing to do is no error.
    async fn done(&self, volume: &VolumeName, of: Uuid, group: Option<String>) -> Result<(), MirrorError>;
}

/// What a destination gives its source so that the roles can change: the right to read the replica.
#[async_trait]
pub trait ReverseRights: Send + Sync + 'static {
    /// Lets `peer` read `volume`, durably, besides what it may do already.
    async fn grant_reverse(&self, peer: PeerId, volume: &VolumeName) -> Result<(), MirrorError>;
}
