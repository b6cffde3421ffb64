//! Serves the transfers of a source: gives them their slots, makes their plans, and sends what they ask for.
//!
//! Who may have one, and which relationship it is for, the caller has decided before; what it asks for while it runs is
//! checked again with each frame ([`SourceRelationships`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_engine::{ContentRoot, Engine, EngineError, VolumeName};
use farside_peer::{DataStream, PeerId, PeerLink, Refusal};
use farside_platform::Clock;
use uuid::Uuid;

use super::encoders::{EncoderBudget, EncoderSettings};
use super::prepare::{self, Asked};
use super::relationships::SourceRelationships;
use super::send;
use super::serving::Serving;
use super::shared::Shared;
use super::similarity::{Indexes, Similarity};
use crate::error::{TransferError, blocking};
use crate::limits::SERVED_MAX;
use crate::protocol::convert::{self, CandidateBase, TransferPlan};
use crate::protocol::held::Held;
use crate::protocol::stream::cut;
use crate::protocol::{StreamHeader, check_version};
use crate::refusal::{over_budget, refusal, to_refusal};

/// A transfer that is being served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Its id.
    pub transfer: Uuid,
    /// What it is for.
    pub relationship: Uuid,
    /// Its destination's site.
    pub peer: PeerId,
}

/// Whose transfer is to be served.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Its id, chosen by the destination.
    pub transfer: Uuid,
    /// What it is for.
    pub relationship: Uuid,
    /// Its destination's site.
    pub peer: PeerId,
    /// The volume here.
    pub volume: VolumeName,
    /// Transfers that may be served for this peer at the same time.
    pub served_for_peer_max: usize,
}

/// What a destination has said that it shows.
pub struct Acknowledged {
    /// The snapshot.
    pub snapshot: Uuid,
    /// Its content root, as computed there.
    pub content_root: ContentRoot,
    /// What was taken here for the next transfer since.
    pub reserved: Option<Uuid>,
    /// What the destination keeps for others.
    pub further: Vec<CandidateBase>,
}

/// The transfers of a site's volumes, as their source. One for each site.
pub struct TransferSource {
    shared: Arc<Shared>,
}

impl TransferSource {
    /// Nothing is served yet.
    pub fn new(
        engine: Arc<dyn Engine>,
        relationships: Arc<dyn SourceRelationships>,
        clock: Arc<dyn Clock>,
        similarity: Similarity,
        encoders: EncoderSettings,
    ) -> TransferSource {
        TransferSource {
            shared: Arc::new(Shared {
                engine,
                relationships,
                indexes: Arc::new(Indexes::new(similarity, clock.clone())),
                clock,
                encoders: Arc::new(EncoderBudget::new(encoders)),
                serving: Default::default(),
                link_history: Default::default(),
                quiet: Default::default(),
                failures: Default::default(),
            }),
        }
    }

    /// Transfers that are being served now.
    pub fn serving(&self) -> Vec<Served> {
        let served =
            |s: &Arc<Serving>| Served { transfer: s.transfer, relationship: s.relationship, peer: s.peer };
        self.shared.serving().values().map(served).collect()
    }

    /// Whether a transfer of the relationship is being served.
    pub fn is_serving(&self, relationship: Uuid) -> bool {
        self.shared.serving().values().any(|s| s.relationship == relationship)
    }

    /// Takes one of the slots. A transfer of the same relationship that is still here is one the destination has
    /// given up: it makes way.
    ///
    /// # Errors
    /// A refusal if all slots are taken: of the peer, or of the site.
    pub fn enter(&self, wanted: Wanted) -> Result<Slot, Refusal> {
        let Wanted { transfer, relationship, peer, volume, served_for_peer_max } = wanted;
        let mut all = self.shared.serving();
        all.retain(|_, s| {
            let is_old = s.relationship == relationship;
            if is_old {
                s.cancel.cancel();
            }
            !is_old
        });
        let (count, yours) = (all.len(), all.values().filter(|s| s.peer == peer).count());
        if yours >= served_for_peer_max {
            return Err(over_budget(format!(
                "{served_for_peer_max} transfers of the asking site at the same time (budgets.transfers of the \
                 source)"
            )));
        }
        if count >= SERVED_MAX {
            let message = format!(
                "the source is serving {count} transfers, {yours} of them for the asking site; try again \
                     later"
            );
            return Err(refusal("state", message));
        }
        if all.contains_key(&transfer) {
            return Err(refusal("failed", format!("transfer {transfer} is being served already")));
        }
        let serving = Arc::new(Serving::new(transfer, relationship, peer, volume));
        all.insert(transfer, serving.clone());
        Ok(Slot { shared: self.shared.clone(), serving, is_given_back: true })
    }

    /// The step that the header of a data stream of `peer` asks for.
    ///
    /// # Errors
    /// A refusal of what is not being served, or not in this version of the protocol; the stream is to be closed with it
    /// ([`refuse_stream`]).
    pub fn step(&self, peer: PeerId, header: StreamHeader) -> Result<Step, Refusal> {
        check_version(header.version).map_err(|why| refusal("version", why))?;
        let transfer = convert::uuid(&header.transfer).map_err(to_refusal)?;
        let serving = self.shared.serving().get(&transfer).cloned();
        let serving = serving.filter(|s| s.peer == peer);
        let asked = send::AskedStep {
            index: header.step as usize,
            without_base: header.without_base,
            held: Held::from_number(header.held).map_err(to_refusal)?,
            known: header.known,
            cross_volume: convert::cross_volume(header.cross_volume).map_err(to_refusal)?,
            room_bytes: header.room_bytes,
        };
        match serving {
            Some(serving) => Ok(Step { shared: self.shared.clone(), serving, asked }),
            None => Err(refusal("not-found", "this transfer is not (or no longer) being served")),
        }
    }

    /// The destination of `transfer` has published `snapshot`: it is the base from now on. Of what the relationship had pinned
    /// only that, what is still to travel, and what is reserved for the next transfer stays, with what is kept further at the
    /// destination. Answers how many snapshots that are.
    ///
    /// # Errors
    /// A refusal if a newer transfer of the relationship has begun, or the snapshot is another one here.
    pub async fn acknowledge(
        &self,
        relationship: Uuid,
        transfer: Uuid,
        volume: &VolumeName,
        told: Acknowledged,
    ) -> Result<usize, Refusal> {
        let Acknowledged { snapshot, content_root, reserved, further } = told;
        // Snapshots of the same transfer that are still to travel keep their pins.
        let travelling =
            self.shared.serving().get(&transfer).filter(|s| s.relationship == relationship).cloned();
        let travelling = travelling.and_then(|s| s.plan.get().cloned());
        let mut keep: Vec<Uuid> = std::iter::once(snapshot).chain(reserved).collect();
        if let Some(plan) = travelling {
            keep.extend(plan.steps.iter().map(|s| s.uuid).skip_while(|uuid| *uuid != snapshot));
        }
        let (engine, of) = (self.shared.engine.clone(), volume.clone());
        let moved = blocking(move || {
            prepare::move_base(&*engine, &of, relationship, snapshot, content_root, &keep, &further)
        });
        moved.await.map_err(to_refusal)
    }

    /// Refuses what a destination says of an earlier transfer than the relationship's newest.
    pub fn check_newest(&self, relationship: Uuid, transfer: Uuid) -> Result<(), Refusal> {
        let is_late = |s: &Arc<Serving>| s.relationship == relationship && s.transfer != transfer;
        if self.shared.serving().values().any(is_late) {
            return Err(refusal("state", "a newer transfer of this relationship has begun"));
        }
        Ok(())
    }

    /// `peer` ends a transfer; `failure` says why, if it failed there. Answers what it was, if it was being served.
    pub fn end(&self, peer: PeerId, transfer: Uuid, failure: &str) -> Option<Ended> {
        let serving = self.shared.serving().get(&transfer).filter(|s| s.peer == peer).cloned()?;
        let (volume, brought) = (&serving.volume, serving.brought.load(Ordering::Relaxed));
        if failure.is_empty() && brought == 0 {
            tracing::debug!(%transfer, %volume, "transfer ends: there was nothing to bring");
            let told = self.shared.quiet().one_more(self.shared.clock.monotonic());
            if let Some(updates) = told {
                tracing::info!(
                    updates,
                    "{updates} updates of volumes here brought nothing in the last hour or more"
                );
            }
        } else if failure.is_empty() {
            tracing::info!(%transfer, %volume, brought, "transfer ends: the destination has it all");
        } else if let Some(suppressed) = self.shared.admit_failure(peer) {
            tracing::info!(
                %transfer, %volume, suppressed, "transfer failed at the destination: {}", cut(failure)
            );
        }
        self.shared.leave(&serving);
        Some(Ended { serving })
    }

    /// Ends the transfers of a relationship. With `is_to_begin_again` their destination hears no failure, and asks again.
    pub fn stop(&self, relationship: Uuid, is_to_begin_again: bool) {
        for serving in self.shared.of_relationship(relationship) {
            serving.is_to_begin_again.store(is_to_begin_again, Ordering::Relaxed);
            self.shared.leave(&serving);
        }
    }

    /// A relationship is no more: what its transfers knew of the link goes, and what was known of `peers` with whom there is no
    /// other.
    pub fn forget_relationship(&self, relationship: Uuid, is_peer: impl Fn(&PeerId) -> bool) {
        self.shared.link_history().forget(relationship, is_peer);
    }

    /// Nobody mirrors this volume any more: its index of similar content goes.
    pub async fn forget_volume(&self, volume: &VolumeName) {
        let (engine, indexes, of) = (self.shared.engine.clone(), self.shared.indexes.clone(), volume.clone());
        // Of a volume that is gone the file stays; it is small, and nobody asks for it.
        let forgotten = blocking(move || {
            indexes.forget(engine.volume(&of)?.uuid);
            Ok::<_, EngineError>(())
        });
        let _ = forgotten.await;
    }
}

/// A slot for a transfer, given back when this is dropped before the transfer has begun.
pub struct Slot {
    shared: Arc<Shared>,
    serving: Arc<Serving>,
    is_given_back: bool,
}

impl Slot {
    /// Whether a newer transfer of the relationship has taken it.
    pub fn is_given_up(&self) -> bool {
        self.serving.cancel.is_cancelled()
    }

    /// Chooses the base, takes the snapshot and pins what travels. Answers how many snapshots are kept for the relationship.
    pub async fn prepare(&self, asked: Asked) -> Result<Prepared, TransferError> {
        let (engine, clock) = (self.shared.engine.clone(), self.shared.clock.clone());
        let prepared = blocking(move || prepare::prepare(&*engine, &*clock, &asked)).await?;
        Ok(Prepared(prepared))
    }

    /// From here on the transfer is served, as long as its session lives; `lost` is called when that was lost under it.
    pub fn begin(
        mut self,
        link: Arc<dyn PeerLink>,
        prepared: Prepared,
        lost: impl FnOnce(Ended) + Send + 'static,
    ) -> TransferPlan {
        let Prepared(prepared) = prepared;
        let _ = self.serving.local_base.set(prepared.local_base);
        let _ = self.serving.taken_up.set(prepared.taken_up);
        let plan = self.serving.plan.get_or_init(|| prepared.plan).clone();
        self.leave_when_lost(link, lost);
        self.is_given_back = false;
        plan
    }

    /// A transfer dies with its session: its destination begins a new one.
    fn leave_when_lost(&self, link: Arc<dyn PeerLink>, lost: impl FnOnce(Ended) + Send + 'static) {
        let (shared, serving) = (self.shared.clone(), self.serving.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = link.closed() => {
                    tracing::info!(
                        transfer = %serving.transfer, volume = %serving.volume, peer = %serving.peer,
                        "transfer ends: the session was lost; the destination asks again when there is another"
                    );
                    shared.leave(&serving);
                    lost(Ended { serving });
                }
                () = serving.cancel.cancelled() => {}
            }
        });
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.is_given_back {
            self.shared.leave(&self.serving);
        }
    }
}

/// A plan, and what is pinned for it.
pub struct Prepared(prepare::Prepared);

impl Prepared {
    /// How many snapshots are kept for the relationship.
    pub fn pins(&self) -> usize {
        self.0.pins
    }

    /// What the next transfer of the relationship goes on with, if this one does not begin: the base, of which `acknowledged` is
    /// the newest, and what the destination has a part of, unless that is a person's.
    pub fn half_there(&self, acknowledged: Option<Uuid>) -> Vec<Uuid> {
        let prepare::Prepared { plan, local_base, taken_up, .. } = &self.0;
        let of_mirror = |uuid: &Uuid| plan.steps.iter().any(|s| s.uuid == *uuid && !s.made_by_person);
        acknowledged.into_iter().chain(*local_base).chain(taken_up.filter(of_mirror)).collect()
    }
}

/// A step that is to be sent.
pub struct Step {
    shared: Arc<Shared>,
    serving: Arc<Serving>,
    asked: send::AskedStep,
}

impl Step {
    /// Sends it.
    pub async fn send(self, stream: DataStream) {
        send::serve_step(&self.shared, &self.serving, self.asked, stream).await;
    }
}

/// Tells the destination why nothing comes on a stream, as far as the link still carries it, and closes it.
pub async fn refuse_stream(stream: &mut DataStream, refusal: &Refusal) {
    send::refuse(&mut stream.io, refusal).await;
}

/// A transfer that has ended: its destination has ended it, or its session was lost.
pub struct Ended {
    serving: Arc<Serving>,
}

impl Ended {
    /// What it was for.
    pub fn relationship(&self) -> Uuid {
        self.serving.relationship
    }

    /// The volume here.
    pub fn volume(&self) -> &VolumeName {
        &self.serving.volume
    }

    /// What the next transfer of the same relationship goes on with: the base, of which `acknowledged` is the newest, and the
    /// snapshot of which a part has arrived. What a person made is not in it, unless the destination shows it (`unacknowledged`):
    /// otherwise it travels again if it is still there. None if the transfer had no plan yet.
    pub fn half_there(&self, acknowledged: Option<Uuid>, unacknowledged: Option<Uuid>) -> Option<Vec<Uuid>> {
        let steps = &self.serving.plan.get()?.steps;
        let taken_up = self.serving.taken_up.get().copied().flatten();
        let begun = self.serving.steps_begun.load(Ordering::Relaxed);
        let position = |uuid: Option<Uuid>| steps.iter().position(|s| Some(s.uuid) == uuid);
        let shown = position(unacknowledged);
        let done = shown.or(position(acknowledged)).map_or(0, |at| at + 1);
        let arriving = steps.get(done).filter(|s| begun > done || Some(s.uuid) == taken_up);
        let arriving = arriving.filter(|s| !s.made_by_person);
        let keeps = shown.map(|at| &steps[at]).into_iter().chain(arriving).map(|s| s.uuid);
        Some(self.bases(acknowledged).chain(keeps).collect())
    }

    /// The same of a transfer that was cut: nobody has said how much of it is published. So what arrived last may be, and all that the
    /// mirror itself has taken may be what the destination has a part of.
    pub fn cut(&self, acknowledged: Option<Uuid>) -> Option<Vec<Uuid>> {
        let steps = &self.serving.plan.get()?.steps;
        let sent = self.serving.steps_sent.load(Ordering::Relaxed);
        let last_sent = sent.checked_sub(1).and_then(|last| steps.get(last));
        let keeps = steps.iter().filter(|s| !s.made_by_person).chain(last_sent).map(|s| s.uuid);
        Some(self.bases(acknowledged).chain(keeps).collect())
    }

    fn bases(&self, acknowledged: Option<Uuid>) -> impl Iterator<Item = Uuid> {
        let local_base = self.serving.local_base.get().copied().flatten();
        acknowledged.into_iter().chain(local_base)
    }
}
