//! A change of roles, as the source that is to become the replica sees it. Its peer asks; the destination side of this site
//! does it ([`Reversal`]). What each word leaves, and what a repetition of it does, is told at
//! [`crate::destination::swap`](crate::destination).

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use farside_engine::{EngineError, VolumeName};
use farside_session::{PeerId, Refusal};
use uuid::Uuid;

use super::heard::Word;
use super::{Shared, SourceService, refusal, to_refusal};
use crate::error::{MirrorError, blocking};
use crate::protocol::convert::{self, CandidateBase};
use crate::protocol::{Swap, SwapPhase, Swapped};
use crate::schedule::Schedule;
use crate::store::SourceRelationship;

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
    /// Number of this change of direction, as the mirror that takes the other's place counts them.
    pub turn: u64,
}

/// The destination side of this site, as far as a change of roles needs it. [`Destination`](crate::Destination) does it
/// for the volumes of its pool.
#[async_trait]
pub trait Reversal: Send + Sync + 'static {
    /// Makes the volume read-only and takes its last snapshot, durably. Refused while a host has it open for writing.
    /// Again: the same answer.
    async fn prepare(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError>;
    /// The last snapshot that was prepared for the end of `of`; none if it is not prepared.
    async fn prepared(&self, volume: &VolumeName, of: Uuid) -> Result<Option<Uuid>, MirrorError>;
    /// Makes the volume what it was before. Nothing to do is no error.
    async fn cancel(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError>;
    /// The peer has turned: the volume is its replica from now on. Nothing to do is no error.
    async fn done(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError>;
}

/// What a destination gives its source so that the roles can change: the right to read the replica.
#[async_trait]
pub trait ReverseRights: Send + Sync + 'static {
    /// Lets `peer` read `volume`, durably, besides what it may do already.
    async fn grant_reverse(&self, peer: PeerId, volume: &VolumeName) -> Result<(), MirrorError>;
}

impl SourceService {
    /// Names the destination side that changes of roles are handed to. Only the first call counts; without one, they
    /// are refused.
    pub fn set_reversal(&self, reversal: Weak<dyn Reversal>) {
        let _ = self.shared.reversal.set(reversal);
    }

    /// Knows a relationship that its destination has not begun yet: the base that a change of roles leaves. What its
    /// destination said of changes of direction before this one, `turn`, is not heeded any more.
    pub(crate) async fn adopt(&self, relationship: SourceRelationship, turn: u64) -> Result<(), MirrorError> {
        self.shared.hear(relationship.id, turn, Word::GoesOn);
        self.shared.keep(relationship).await
    }
}

impl SourceService {
    /// Whether a relationship with this id is known here that is not `peer`'s with `volume`.
    pub(crate) fn is_of_another(&self, relationship: Uuid, peer: PeerId, volume: &VolumeName) -> bool {
        self.shared.check_owner(relationship, peer, volume).is_err()
    }
}

impl Shared {
    /// Whether a change of roles of `volume` is any business of `peer`'s: it mirrors the volume by `of`, or the volume is a
    /// replica of one of its own. To anybody else nothing is said, not even whether the volume or its pool is there.
    pub(super) async fn concerns(
        &self,
        of: Uuid,
        peer: PeerId,
        volume: &VolumeName,
    ) -> Result<bool, Refusal> {
        if self.tables().relationships.contains_key(&of) {
            // Its owner was checked.
            return Ok(true);
        }
        let (engine, at) = (self.engine.clone(), volume.clone());
        match blocking(move || engine.replica_record(&at)).await {
            Ok(record) => Ok(record.is_some_and(|record| record.peer == peer.0)),
            Err(MirrorError::Engine(EngineError::NotFound { .. })) => Ok(false),
            Err(error) => Err(to_refusal(error)),
        }
    }

    pub(super) fn reversal(&self) -> Option<Arc<dyn Reversal>> {
        self.reversal.get().and_then(Weak::upgrade)
    }

    pub(super) async fn swap(&self, peer: PeerId, message: Swap) -> Result<Swapped, Refusal> {
        let of = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let reverse = convert::uuid(&message.reverse).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let source = convert::volume(&message.destination).map_err(to_refusal)?;
        let phase = convert::swap_phase(message.phase).map_err(to_refusal)?;
        let change = convert::turn(message.turn).map_err(to_refusal)?;
        self.check_owner(of, peer, &volume)?;
        self.check_not_own(of, &volume).await?;
        if phase != SwapPhase::Prepare && !self.concerns(of, peer, &volume).await? {
            return match phase {
                SwapPhase::Cancel => Ok(Swapped::default()),
                _ => Err(refusal("forbidden", format!("{volume} is not a replica of yours here"))),
            };
        }
        let Some(reversal) = self.reversal() else {
            return Err(refusal("state", "this site is starting or stopping; try again"));
        };
        if phase == SwapPhase::Prepare && change == 0 {
            return Err(refusal(
                "version",
                "your site does not number changes of roles, without which one that was given up could come into force in the \
                 middle of the next. Nothing was changed; upgrade farside there",
            ));
        }
        let order = self.order(of);
        let _order = order.lock().await;
        let newest = self.newest_turn(of);
        if change == 0 && newest > 0 {
            return Err(refusal(
                "state",
                format!(
                    "this says not which change of roles of {volume} it is about, and may come late. Nothing was changed; \
                     upgrade farside at your site. `mirror break {volume}` here makes it writable"
                ),
            ));
        }
        match phase {
            SwapPhase::Prepare => {
                self.check_rights(peer, &volume)?;
                if !self.rights.may_reverse(peer, &volume) {
                    let message = format!(
                        "this site does not allow {volume} to become your replica; there, run `farside peer allow <your \
                         name> {volume} --reverse`"
                    );
                    return Err(refusal("forbidden", message));
                }
                // Before anything is noted: who is refused here has begun nothing.
                self.admit_swap(peer)?;
                // With the relationship's turn: one that is released meanwhile would leave the last snapshot pinned for nobody.
                let turn = self.turn(of);
                let _turn = turn.lock().await;
                if !self.tables().relationships.contains_key(&of) {
                    return Err(refusal(
                        "not-found",
                        format!("relationship {of} is not known here; update first"),
                    ));
                }
                // Pins are given and taken by this id: it must not be one that stands for somebody else's base.
                if reverse == of || self.tables().relationships.contains_key(&reverse) {
                    return Err(refusal(
                        "forbidden",
                        format!("relationship {reverse} is another one here; it cannot be the way back"),
                    ));
                }
                let schedule = convert::schedule(&message.schedule).map_err(to_refusal)?;
                if !self.hear(of, change, Word::Begins) {
                    return Ok(self.late(of, peer, &volume, phase));
                }
                let offer = ReverseOffer { of, reverse, peer, volume, source, schedule };
                let accepted = reversal.prepare(&offer).await.map_err(to_refusal)?;
                Ok(Swapped {
                    snapshot: Some(accepted.last.to_message()),
                    reverse: accepted.reverse.as_bytes().to_vec(),
                    newest: self.newest_turn(of),
                    reverse_turn: accepted.turn,
                })
            }
            _ if change != 0 && !self.hear(of, change, word_of(phase)) => {
                Ok(self.late(of, peer, &volume, phase))
            }
            SwapPhase::Confirm => match reversal.prepared(&volume, of).await.map_err(to_refusal)? {
                Some(_) => Ok(self.noted(of)),
                None => Err(refusal(
                    "state",
                    format!(
                        "{volume} was broken off here while the roles were changing; they stay as they are"
                    ),
                )),
            },
            // Taking back and finishing need no right: a peer that was denied the volume must not leave it fenced.
            SwapPhase::Cancel => {
                reversal.cancel(&volume, of).await.map_err(to_refusal)?;
                Ok(self.noted(of))
            }
            SwapPhase::Done => {
                reversal.done(&volume, of).await.map_err(to_refusal)?;
                Ok(self.noted(of))
            }
        }
    }

    fn noted(&self, of: Uuid) -> Swapped {
        Swapped { newest: self.newest_turn(of), ..Swapped::default() }
    }

    /// Nothing is done: newer things were heard.
    fn late(&self, of: Uuid, peer: PeerId, volume: &VolumeName, phase: SwapPhase) -> Swapped {
        tracing::info!(
            relationship = %of, %peer, %volume, ?phase,
            "a word of a change of roles came late and has no effect: newer things were heard since"
        );
        self.noted(of)
    }
}

fn word_of(phase: SwapPhase) -> Word {
    match phase {
        SwapPhase::Prepare => Word::Begins,
        SwapPhase::Confirm => Word::GoesOn,
        SwapPhase::Cancel | SwapPhase::Done => Word::Ends,
    }
}
