//! The call of a role change: checks it, and hands it to the destination side of this site ([`Reversal`]).

use std::sync::{Arc, Weak};

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::protocol::convert;
use farside_transfer::protocol::{Swap, SwapPhase, Swapped};
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::registry::Registry;
use super::reversal::{Reversal, ReverseOffer};
use super::role_changes::RoleChangeMessage;
use super::service::SourceService;
use super::shared::Shared;
use crate::directions::Request;
use crate::error::{MirrorError, blocking};
use crate::schedule::Schedule;
use crate::store::SourceRelationship;

impl SourceService {
    /// Names the destination side that role changes are handed to. Only the first call counts; without one, they
    /// are refused.
    pub fn set_reversal(&self, reversal: Weak<dyn Reversal>) {
        let _ = self.shared.reversal.set(reversal);
    }

    /// Knows a relationship that its destination has not begun yet: the base that a role change leaves. What its
    /// destination said of role changes before this one, `role_change`, is not heeded any more.
    pub(crate) async fn adopt(
        &self,
        relationship: SourceRelationship,
        role_change: u64,
    ) -> Result<(), MirrorError> {
        self.shared.registry.accept(relationship.id, role_change, RoleChangeMessage::Continue);
        self.shared.keep(relationship).await
    }
}

impl SourceService {
    /// Says which way back the takeover of the mirror `of` has left that its former source does not know of; none when it has.
    /// Until then its base is kept as other ways back are: nobody has had the chance to ask for it.
    pub(crate) fn expect_follower(&self, of: Uuid, reverse: Option<Uuid>) {
        let mut tables = self.shared.tables();
        match reverse {
            Some(reverse) => drop(tables.ways_back.insert(of, reverse)),
            None => drop(tables.ways_back.remove(&of)),
        }
    }

    /// Whether a relationship with this id is known here that is not `peer`'s with `volume`.
    pub(crate) fn is_of_another(&self, relationship: Uuid, peer: PeerId, volume: &VolumeName) -> bool {
        self.shared.check_owner(relationship, peer, volume).is_err()
    }
}

impl Shared {
    /// Whether a role change of `volume` is any business of `peer`'s: it mirrors the volume by `of`, or the volume is a
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
            Err(error) if error.is_not_found() => Ok(false),
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
        let change = convert::role_change(message.role_change).map_err(to_refusal)?;
        let group = convert::group_name(&message.group).map_err(to_refusal)?;
        self.check_owner(of, peer, &volume)?;
        self.check_not_own(of, &volume).await?;
        if !matches!(phase, SwapPhase::Prepare | SwapPhase::Look) && !self.concerns(of, peer, &volume).await?
        {
            return match phase {
                SwapPhase::Cancel => Ok(Swapped::default()),
                _ => Err(refusal(
                    "forbidden",
                    format!(
                        "{volume} at the source is not a replica of a volume of the \
                     asking site"
                    ),
                )),
            };
        }
        let Some(reversal) = self.reversal() else {
            return Err(refusal("state", "the source is starting or stopping; try again"));
        };
        let order = self.registry.order(of);
        let _order = order.lock().await;
        if phase == SwapPhase::Confirm {
            // Somebody else's break may have been told meanwhile.
            self.check_decided(&volume, Request::RoleChange).await?;
        }
        match phase {
            SwapPhase::Prepare | SwapPhase::Look => {
                self.check_rights(peer, &volume)?;
                self.check_decided(&volume, Request::RoleChange).await?;
                if !self.registry.rights.may_reverse(peer, &volume) {
                    let message = format!(
                        "the source does not allow {volume} to become a replica of the asking site. No role changed. \
                         At the source: farside peer allow {} {volume} --reverse (and --fence, if it is set)",
                        self.name_of(peer)
                    );
                    return Err(refusal("forbidden", message));
                }
                // Before anything is noted: who is refused here has begun nothing.
                if phase == SwapPhase::Prepare {
                    self.admit_swap(peer)?;
                }
                // Under the relationship's lock: one that is released meanwhile would leave the last snapshot pinned for nobody.
                let lock = self.registry.lock(of);
                let _lock = lock.lock().await;
                if !self.tables().relationships.contains_key(&of) {
                    return Err(refusal(
                        "not-found",
                        format!(
                            "the source does not know relationship {of}. No role changed. Run farside mirror \
                             update at the replica first"
                        ),
                    ));
                }
                // Pins are given and taken by this id: it must not be one that stands for somebody else's base.
                if reverse == of || self.tables().relationships.contains_key(&reverse) {
                    return Err(refusal(
                        "forbidden",
                        format!(
                            "relationship {reverse} is another mirror at the source; it cannot be the reverse \
                             mirror. No role changed"
                        ),
                    ));
                }
                let schedule = Schedule::from_peer(&message.schedule).map_err(to_refusal)?;
                if phase == SwapPhase::Look {
                    let offer = ReverseOffer { of, reverse, peer, volume, source, schedule };
                    reversal.look(&offer).await.map_err(to_refusal)?;
                    return Ok(self.noted(of));
                }
                let Some(_offered) = Offered::new(&self.registry, reverse) else {
                    let message = format!("relationship {reverse} is being made for another volume here");
                    return Err(refusal("state", message));
                };
                if !self.registry.accept(of, change, RoleChangeMessage::Begin) {
                    return Ok(self.late(of, peer, &volume, phase));
                }
                let offer = ReverseOffer { of, reverse, peer, volume, source, schedule };
                let accepted = reversal.prepare(&offer).await.map_err(to_refusal)?;
                Ok(Swapped {
                    snapshot: Some(accepted.last.to_message()),
                    reverse: accepted.reverse.as_bytes().to_vec(),
                    newest: self.registry.newest_role_change(of),
                    reverse_role_change: accepted.role_change,
                })
            }
            _ if !self.registry.accept(of, change, message_of(phase)) => {
                Ok(self.late(of, peer, &volume, phase))
            }
            SwapPhase::Confirm => match reversal.prepared(&volume, of).await.map_err(to_refusal)? {
                Some(_) => Ok(self.noted(of)),
                None => Err(refusal(
                    "state",
                    format!(
                        "{volume} was broken off at the source while the roles were changing; the roles stay as they \
                         are"
                    ),
                )),
            },
            // Taking back and finishing need no right: a peer that was denied the volume must not leave it fenced.
            SwapPhase::Cancel => {
                reversal.cancel(&volume, of).await.map_err(to_refusal)?;
                Ok(self.noted(of))
            }
            SwapPhase::Done => {
                reversal.done(&volume, of, group).await.map_err(to_refusal)?;
                Ok(self.noted(of))
            }
        }
    }

    fn noted(&self, of: Uuid) -> Swapped {
        Swapped { newest: self.registry.newest_role_change(of), ..Swapped::default() }
    }

    /// Nothing is done: newer messages were received.
    fn late(&self, of: Uuid, peer: PeerId, volume: &VolumeName, phase: SwapPhase) -> Swapped {
        tracing::info!(
            relationship = %of, %peer, %volume, ?phase,
            "ignored a delayed role-change message: a newer role change is known. Nothing to do"
        );
        self.noted(of)
    }
}

/// Keeps the id that a peer has offered for a way back from being offered for another one.
struct Offered<'a> {
    registry: &'a Registry,
    reverse: Uuid,
}

impl<'a> Offered<'a> {
    fn new(registry: &'a Registry, reverse: Uuid) -> Option<Self> {
        registry.tables().offered.insert(reverse).then_some(Offered { registry, reverse })
    }
}

impl Drop for Offered<'_> {
    fn drop(&mut self) {
        self.registry.tables().offered.remove(&self.reverse);
    }
}

fn message_of(phase: SwapPhase) -> RoleChangeMessage {
    match phase {
        SwapPhase::Prepare | SwapPhase::Look => RoleChangeMessage::Begin,
        SwapPhase::Confirm => RoleChangeMessage::Continue,
        SwapPhase::Cancel | SwapPhase::Done => RoleChangeMessage::End,
    }
}
