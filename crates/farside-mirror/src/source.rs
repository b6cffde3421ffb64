//! The source's side: what this site does for destinations that mirror its volumes.
//!
//! A destination asks; nothing happens here unasked. What is kept for a relationship is its base and, while a
//! transfer runs, the snapshots that travel; each is pinned in the pool, so that neither a person nor a crash takes it
//! away, and each goes when the destination has acknowledged a newer one, at the latest at the next transfer. A
//! relationship belongs to the peer that began it: nobody else can move or release its bases. Rights are asked at
//! every call, every stream and every frame.
//!
//! It never learns what state the relationship is in: that is the destination's.

mod choose;
mod compare;
mod complaints;
mod counters;
mod encoders;
mod heard;
mod keep;
mod known;
mod learnt;
mod others;
mod overtaken;
mod pins;
mod prepare;
mod remaining;
mod reversal;
mod send;
mod similarity;

use complaints::{Admitted, Complaints};
use encoders::EncoderBudget;
pub use encoders::{ENCODER_MEMORY, ENCODER_MEMORY_MIN, EncoderSettings};
pub use keep::BudgetUse;
pub use pins::UnexplainedPin;
pub(crate) use prepare::let_go;
pub use reversal::{Reversal, ReverseAccepted, ReverseOffer, ReverseRights};
pub use similarity::{MemorySimilarityStore, SIMILARITY_BYTES_PER_TIB, Similarity, SimilarityStore};

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use farside_engine::{Engine, EngineError, VolumeName};
use farside_platform::Clock;
use farside_session::{DataStream, PeerId, PeerLink, PeerService, Refusal};
use prost::Message;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::budgets::{Budgets, Rates};
use crate::error::{MirrorError, blocking};
use crate::limits::SERVED_MAX;
use crate::protocol::convert::{self, TransferPlan};
use crate::protocol::held::Held;
use crate::protocol::stream::cut;
use crate::protocol::{
    Acknowledge, Begin, Body, Describe, Description, End, Nothing, Release, Request, StreamHeader,
    check_request, check_version,
};
use crate::state::TransferKind;
use crate::store::{SourceRelationship, SourceStore};

/// Who may mirror what from this site. Asked at every operation, so an answer taken back takes effect at once.
pub trait SourceRights: Send + Sync + 'static {
    /// Whether `peer` may read `volume`. An unknown volume is simply not allowed.
    fn may_read(&self, peer: PeerId, volume: &VolumeName) -> bool;

    /// Whether `volume` may become the replica of a volume of `peer` (the way back), and `peer` may ask for it (a change
    /// of roles). Told to the peer when it makes a mirror.
    fn may_reverse(&self, _peer: PeerId, _volume: &VolumeName) -> bool {
        false
    }

    /// Whether hosts shall not write to `volume` either, once it is known that its replica at `peer` was broken off.
    fn is_fenced_when_overtaken(&self, _peer: PeerId, _volume: &VolumeName) -> bool {
        false
    }
}

/// Serves destinations. One for each site.
pub struct SourceService {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    rights: Arc<dyn SourceRights>,
    store: Arc<dyn SourceStore>,
    clock: Arc<dyn Clock>,
    encoders: Arc<EncoderBudget>,
    indexes: Arc<similarity::Indexes>,
    /// How often what is overtaken has changed.
    overtaken_changes: watch::Sender<u64>,
    /// The destination side of this site, for a change of roles; it holds this side, so not the other way round too.
    reversal: OnceLock<Weak<dyn Reversal>>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    relationships: HashMap<Uuid, SourceRelationship>,
    /// By transfer id; at most [`SERVED_MAX`].
    serving: HashMap<Uuid, Arc<Serving>>,
    /// By relationship: one change of its snapshots at a time, however its calls overtake each other.
    turns: HashMap<Uuid, Arc<tokio::sync::Mutex<()>>>,
    complaints: Complaints<PeerId>,
    /// Of words that hosts went on elsewhere, by relationship: no flood of others hides one.
    alarms: Complaints<Uuid>,
    budgets: Budgets,
    rates: Rates,
    /// By relationship: how many snapshots are kept for it, as far as that was seen since the start.
    pins: HashMap<Uuid, usize>,
    keeping: keep::Keeping,
    learnt: learnt::Learnt,
    /// At most about [`HEARD_MAX`](crate::limits::HEARD_MAX) besides those in `relationships`.
    heard: HashMap<Uuid, heard::Heard>,
}

impl Tables {
    /// How many snapshots are kept for a relationship: before its first transfer since the start, what is known for sure.
    fn pins_of(&self, relationship: &SourceRelationship) -> usize {
        self.pins.get(&relationship.id).copied().unwrap_or(usize::from(relationship.base.is_some()))
    }
}

/// A transfer that is being served.
struct Serving {
    transfer: Uuid,
    relationship: Uuid,
    peer: PeerId,
    volume: VolumeName,
    /// Set once the plan is made.
    plan: std::sync::OnceLock<TransferPlan>,
    /// The base as this site calls it; differs from the plan's, which is the destination's.
    local_base: std::sync::OnceLock<Option<Uuid>>,
    cancel: CancellationToken,
    /// Ended, but the destination may have it if it asks again: its stream breaks off, and nothing says that it has failed.
    is_to_begin_again: AtomicBool,
    /// Ends the data stream that was opened last.
    stream: Mutex<CancellationToken>,
    /// Held by the stream that is being served: however many are opened, what one costs in memory is there once.
    stream_turn: tokio::sync::Mutex<()>,
}

impl Serving {
    /// A new data stream of the transfer, and what ends it: the one before makes way, since its destination has given it up.
    fn next_stream(&self) -> CancellationToken {
        let next = self.cancel.child_token();
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stream, next.clone()).cancel();
        next
    }
}

impl SourceService {
    /// Reads what the store knows of relationships and serves from then on.
    pub async fn open(
        engine: Arc<dyn Engine>,
        rights: Arc<dyn SourceRights>,
        store: Arc<dyn SourceStore>,
        clock: Arc<dyn Clock>,
        similarity: Similarity,
        encoders: EncoderSettings,
    ) -> Result<SourceService, MirrorError> {
        let known = store.source_relationships().await?;
        let relationships = known.into_iter().map(|r| (r.id, r)).collect();
        let tables = Tables { relationships, ..Tables::default() };
        Ok(SourceService {
            shared: Arc::new(Shared {
                engine,
                rights,
                store,
                indexes: Arc::new(similarity::Indexes::new(similarity, clock.clone())),
                clock,
                encoders: Arc::new(EncoderBudget::new(encoders)),
                overtaken_changes: watch::Sender::new(0),
                reversal: OnceLock::new(),
                tables: Mutex::new(tables),
            }),
        })
    }

    /// Who holds which base of this site's volumes, in order of volume.
    pub fn destinations(&self) -> Vec<SourceRelationship> {
        let mut all: Vec<_> = self.shared.tables().relationships.values().cloned().collect();
        all.sort_by(|a, b| (&a.source, a.id).cmp(&(&b.source, b.id)));
        all
    }

    /// Transfers that are being served now: (relationship, transfer).
    pub fn serving(&self) -> Vec<(Uuid, Uuid)> {
        self.shared.tables().serving.values().map(|s| (s.relationship, s.transfer)).collect()
    }

    /// Ends the relationships of `peer` on `volume` from this side: their bases are let go and the space comes back.
    /// The destination keeps its replica; its next update finds no common base, unless a snapshot that a person made
    /// serves. Returns how many there were.
    pub async fn release(&self, volume: &VolumeName, peer: PeerId) -> Result<usize, MirrorError> {
        let of_peer = |r: &&SourceRelationship| r.peer == peer && r.source == *volume;
        self.release_those(volume, of_peer).await
    }

    /// `volume` has become the replica of `peer`'s volume `destination`, which mirrored it before: what was kept for that is
    /// let go. Nothing to do is no error.
    pub async fn overwritten(
        &self,
        volume: &VolumeName,
        peer: PeerId,
        destination: &VolumeName,
    ) -> Result<usize, MirrorError> {
        let is_turned =
            |r: &&SourceRelationship| r.peer == peer && r.source == *volume && r.destination == *destination;
        self.release_those(volume, is_turned).await
    }

    async fn release_those(
        &self,
        volume: &VolumeName,
        which: impl Fn(&&SourceRelationship) -> bool,
    ) -> Result<usize, MirrorError> {
        let ids: Vec<Uuid> =
            self.shared.tables().relationships.values().filter(which).map(|r| r.id).collect();
        for id in &ids {
            self.shared.release(*id, volume.clone()).await?;
        }
        Ok(ids.len())
    }

    /// Logs a refusal, as far as the peer's share of the log reaches.
    fn complain(&self, peer: PeerId, what: &str, refusal: &Refusal) {
        let now = self.shared.clock.monotonic();
        match self.shared.tables().complaints.admit(peer, now) {
            Admitted::Line { suppressed: 0 } => {
                tracing::warn!(%peer, code = refusal.code, "refused a {what} of the peer: {}", refusal.message);
            }
            Admitted::Line { suppressed } => tracing::warn!(
                %peer, code = refusal.code, suppressed,
                "refused a {what} of the peer: {}; so were others before, which are not listed", refusal.message
            ),
            Admitted::Nothing => {}
        }
    }
}

#[async_trait]
impl PeerService for SourceService {
    async fn call(&self, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        let peer = link.peer();
        let answer = self.shared.answer(link, request).await;
        answer.inspect_err(|refusal| self.complain(peer, "call", refusal))
    }

    async fn stream(&self, link: &Arc<dyn PeerLink>, header: Bytes, mut stream: DataStream) {
        let peer = link.peer();
        let opened = self
            .shared
            .admit(peer)
            .and_then(|()| {
                StreamHeader::decode(&header[..])
                    .map_err(|e| refusal("failed", format!("a stream header that cannot be read: {e}")))
            })
            .and_then(|header| {
                check_version(header.version).map_err(|why| refusal("version", why))?;
                let transfer = convert::uuid(&header.transfer).map_err(to_refusal)?;
                let serving = self.shared.tables().serving.get(&transfer).cloned();
                let serving = serving.filter(|s| s.peer == peer);
                let asked = send::AskedStep {
                    index: header.step as usize,
                    without_base: header.without_base,
                    held: Held::from_number(header.held).map_err(to_refusal)?,
                    known: header.known,
                    others: convert::others(header.others).map_err(to_refusal)?,
                };
                serving
                    .map(|serving| (serving, asked))
                    .ok_or_else(|| refusal("not-found", "this transfer is not (or no longer) being served"))
            });
        match opened {
            Ok((serving, asked)) => send::serve_step(&self.shared, &serving, asked, stream).await,
            Err(refusal) => {
                self.complain(peer, "stream", &refusal);
                send::refuse(&mut stream.io, &refusal).await;
            }
        }
    }
}

fn refusal(code: &str, message: impl Into<String>) -> Refusal {
    Refusal { code: code.into(), message: message.into() }
}

fn over_budget(said: String) -> Refusal {
    refusal("budget", format!("this is over what the source allows you: {said}"))
}

/// What a peer is told of an error here.
fn to_refusal(error: MirrorError) -> Refusal {
    let code = match &error {
        MirrorError::Engine(EngineError::NotFound { .. }) => "not-found",
        MirrorError::Engine(EngineError::NoSpace { .. }) => "no-space",
        MirrorError::Engine(EngineError::Corrupt(_)) | MirrorError::IdentityClash { .. } => "corrupt",
        MirrorError::State(_) => "state",
        MirrorError::OverBudget(said) => return over_budget(said.clone()),
        _ => "failed",
    };
    refusal(code, error.to_string())
}

impl Shared {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is one insertion or removal: a panic in between leaves nothing half done.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: &Arc<Self>, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        let request = Request::decode(request)
            .map_err(|e| refusal("failed", format!("a request that cannot be read: {e}")))?;
        let body = check_request(request).map_err(|why| refusal("version", why))?;
        let peer = link.peer();
        // What frees something is always heard.
        if !matches!(body, Body::End(_) | Body::Release(_)) {
            self.admit(peer)?;
        }
        let answer = match body {
            Body::Describe(describe) => self.describe(peer, describe).await?.encode_to_vec(),
            Body::Begin(begin) => self.begin(link, begin).await?.to_message().encode_to_vec(),
            Body::Acknowledge(acknowledge) => self.acknowledge(peer, acknowledge).await?.encode_to_vec(),
            Body::End(end) => self.end(peer, &end).await?.encode_to_vec(),
            Body::Release(release) => self.release_for(peer, &release).await?.encode_to_vec(),
            Body::Compare(compare) => self.compare(peer, compare).await?.encode_to_vec(),
            Body::Overtaken(overtaken) => self.overtaken(peer, overtaken).await?.encode_to_vec(),
            Body::Swap(swap) => self.swap(peer, swap).await?.encode_to_vec(),
        };
        Ok(answer.into())
    }

    /// Counts a call or a stream of `peer` against its budget.
    fn admit(&self, peer: PeerId) -> Result<(), Refusal> {
        let now = self.clock.monotonic();
        let mut tables = self.tables();
        let Tables { rates, budgets, .. } = &mut *tables;
        rates.call(budgets, peer, now).map_err(over_budget)
    }

    /// The same for what takes a snapshot or walks through metadata.
    fn admit_snapshot(&self, peer: PeerId) -> Result<(), Refusal> {
        let now = self.clock.monotonic();
        let mut tables = self.tables();
        let Tables { rates, budgets, .. } = &mut *tables;
        rates.snapshot(budgets, peer, now).map_err(over_budget)
    }

    /// The same for what takes the last snapshot of a change of roles.
    fn admit_swap(&self, peer: PeerId) -> Result<(), Refusal> {
        let now = self.clock.monotonic();
        let mut tables = self.tables();
        let Tables { rates, budgets, .. } = &mut *tables;
        rates.swap(budgets, peer, now).map_err(over_budget)
    }

    /// Rights first, existence second: who may not read a volume does not learn whether it is there.
    fn check_rights(&self, peer: PeerId, volume: &VolumeName) -> Result<(), Refusal> {
        if self.rights.may_read(peer, volume) {
            return Ok(());
        }
        let message = format!(
            "this site does not allow you volume {volume}; there, run `farside peer allow <your name> {volume}`"
        );
        Err(refusal("forbidden", message))
    }

    /// A relationship is its peer's and its volume's alone.
    fn check_owner(&self, relationship: Uuid, peer: PeerId, volume: &VolumeName) -> Result<(), Refusal> {
        match self.tables().relationships.get(&relationship) {
            Some(known) if known.peer != peer || known.source != *volume => Err(refusal(
                "forbidden",
                format!("relationship {relationship} belongs to another peer or volume"),
            )),
            _ => Ok(()),
        }
    }

    /// The relationship that this volume is itself a replica of belongs to its destination, which is this site: a peer
    /// that named it could have the replica's own base let go.
    async fn check_not_own(&self, relationship: Uuid, volume: &VolumeName) -> Result<(), Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || engine.replica_record(&of)).await {
            Ok(Some(record)) if record.relationship == relationship => Err(refusal(
                "forbidden",
                format!(
                    "relationship {relationship} is the one {volume} is a replica of; it is this site's own"
                ),
            )),
            // A volume that is gone has nothing to protect; what needs it will say so.
            Ok(_) | Err(MirrorError::Engine(EngineError::NotFound { .. })) => Ok(()),
            Err(error) => Err(to_refusal(error)),
        }
    }

    /// The incremental snapshot takes the transfer's identity, and pins and deletion go by identity: one that a
    /// snapshot has already must not be given again.
    async fn check_unused(&self, transfer: Uuid, volume: &VolumeName) -> Result<(), Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || engine.all_snapshots(&of)).await.map_err(to_refusal)?;
        match all.iter().find(|s| s.uuid == transfer) {
            None => Ok(()),
            Some(taken) => Err(refusal(
                "failed",
                format!(
                    "transfer {transfer} has the identity of snapshot {volume}@{}; begin a new one",
                    taken.name
                ),
            )),
        }
    }

    async fn describe(&self, peer: PeerId, message: Describe) -> Result<Description, Refusal> {
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        let reverse = self.rights.may_reverse(peer, &volume);
        let engine = self.engine.clone();
        let info = blocking(move || engine.volume(&volume)).await.map_err(to_refusal)?;
        Ok(Description { size_bytes: info.size_bytes, reverse })
    }

    async fn begin(
        self: &Arc<Self>,
        link: &Arc<dyn PeerLink>,
        message: Begin,
    ) -> Result<TransferPlan, Refusal> {
        let peer = link.peer();
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let destination = convert::volume(&message.destination).map_err(to_refusal)?;
        let kind = convert::kind(message.kind).map_err(to_refusal)?;
        let candidates = convert::candidates(&message.candidates).map_err(to_refusal)?;
        let half_brought = convert::half_brought(message.staged.as_ref()).map_err(to_refusal)?;
        let change = convert::turn(message.turn).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_owner(relationship, peer, &volume)?;
        self.admit_snapshot(peer)?;
        if candidates.is_empty() {
            link.expect_bulk();
        }
        self.check_not_own(relationship, &volume).await?;
        if kind == TransferKind::Resync {
            self.check_no_circle(peer, &volume, &destination).await?;
        }
        self.check_unused(transfer, &volume).await?;
        let serving = self.enter(peer, relationship, transfer, &volume)?;
        // From here on the place is given back on every way out but success.
        let leave = Leave { shared: self, serving: &serving, armed: true };

        let turn = self.turn(relationship);
        let _turn = turn.lock().await;
        // In its turn: an acknowledgement that comes late must not bring back what this clears.
        self.check_overtaken(relationship, &volume, kind, change).await?;
        // Remembered before anything is pinned: what is pinned can always be released by name.
        let is_new = self.remember(relationship, peer, &volume, destination).await.map_err(to_refusal)?;
        // It may have waited for its turn for long.
        self.check_rights(peer, &volume)?;
        let (engine, clock) = (self.engine.clone(), self.clock.clone());
        let (let_go, pins_left) = self.left_for(peer, relationship);
        let asked = prepare::Asked {
            relationship,
            transfer,
            volume: volume.clone(),
            kind,
            candidates,
            half_brought,
            is_whole: let_go,
            pins_left,
        };
        let prepared = match blocking(move || prepare::prepare(&*engine, &*clock, &asked)).await {
            Ok(prepared) => prepared,
            Err(error) => {
                if is_new {
                    self.forget_unused(relationship, &volume).await;
                }
                return Err(to_refusal(error));
            }
        };

        self.tables().pins.insert(relationship, prepared.pins);
        // The right may have gone while the snapshot was taken: its frames would be refused.
        self.check_rights(peer, &volume)?;
        let _ = serving.local_base.set(prepared.local_base);
        let plan = serving.plan.get_or_init(|| prepared.plan).clone();
        tracing::info!(
            %transfer, %relationship, %peer, %volume, %kind, base = plan.base_name, snapshots = plan.steps.len(),
            "transfer begins"
        );
        self.leave_when_lost(link.clone(), &serving);
        leave.disarm();
        Ok(plan)
    }

    /// Whether the relationship's base was let go here, and how many snapshots may be kept for it.
    fn left_for(&self, peer: PeerId, relationship: Uuid) -> (bool, usize) {
        let tables = self.tables();
        let of_peer = tables.relationships.values().filter(|r| r.peer == peer && r.id != relationship);
        let pins: usize = of_peer.map(|r| tables.pins_of(r)).sum();
        let let_go = tables.relationships.get(&relationship).is_some_and(|r| r.let_go.is_some());
        (let_go, tables.budgets.pins.saturating_sub(pins))
    }

    fn turn(&self, relationship: Uuid) -> Arc<tokio::sync::Mutex<()>> {
        let mut tables = self.tables();
        let Tables { turns, relationships, .. } = &mut *tables;
        // Of relationships that never came about nothing is kept.
        turns.retain(|id, turn| relationships.contains_key(id) || Arc::strong_count(turn) > 1);
        turns.entry(relationship).or_default().clone()
    }

    /// Forgets a relationship whose first transfer was refused, unless something is kept for it.
    async fn forget_unused(&self, relationship: Uuid, volume: &VolumeName) {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let forgotten = async {
            if blocking(move || prepare::is_kept_for(&*engine, &of, relationship)).await? {
                return Ok(());
            }
            self.store.remove_source(relationship).await?;
            self.tables().relationships.remove(&relationship);
            Ok::<_, MirrorError>(())
        };
        if let Err(error) = forgotten.await {
            tracing::warn!(%relationship, %volume, "it stays listed although nothing is kept for it: {error}");
        }
    }

    /// Answers whether it was not known before.
    async fn remember(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
        destination: VolumeName,
    ) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        blocking(move || engine.volume(&of)).await?;
        let known = self.tables().relationships.get(&relationship).cloned();
        let wanted = match known.clone() {
            Some(known) => SourceRelationship { destination, ..known },
            None => SourceRelationship::new(relationship, peer, volume.clone(), destination),
        };
        if known.as_ref() != Some(&wanted) {
            self.keep(wanted).await?;
        }
        Ok(known.is_none())
    }

    /// Takes one of the places. A transfer of the same relationship that is still here is one the destination has
    /// given up: it makes way.
    fn enter(
        &self,
        peer: PeerId,
        relationship: Uuid,
        transfer: Uuid,
        volume: &VolumeName,
    ) -> Result<Arc<Serving>, Refusal> {
        let mut tables = self.tables();
        let of_peer = tables.relationships.values().filter(|r| r.peer == peer).count();
        let Budgets { mirrors, transfers, .. } = tables.budgets;
        if of_peer >= mirrors && !tables.relationships.contains_key(&relationship) {
            return Err(over_budget(format!(
                "{mirrors} mirrors (budgets.mirrors there); end some, or have some released there"
            )));
        }
        tables.serving.retain(|_, s| {
            let is_old = s.relationship == relationship;
            if is_old {
                s.cancel.cancel();
            }
            !is_old
        });
        let (all, yours) = (tables.serving.len(), tables.serving.values().filter(|s| s.peer == peer).count());
        if yours >= transfers {
            return Err(over_budget(format!(
                "{transfers} transfers at the same time (budgets.transfers there)"
            )));
        }
        if all >= SERVED_MAX {
            let message =
                format!("the source is serving {all} transfers, {yours} of them yours; try again later");
            return Err(refusal("state", message));
        }
        if tables.serving.contains_key(&transfer) {
            return Err(refusal("failed", format!("transfer {transfer} is being served already")));
        }
        let serving = Arc::new(Serving {
            transfer,
            relationship,
            peer,
            volume: volume.clone(),
            plan: std::sync::OnceLock::new(),
            local_base: std::sync::OnceLock::new(),
            cancel: CancellationToken::new(),
            is_to_begin_again: AtomicBool::new(false),
            stream: Mutex::default(),
            stream_turn: tokio::sync::Mutex::default(),
        });
        tables.serving.insert(transfer, serving.clone());
        Ok(serving)
    }

    fn leave(&self, serving: &Serving) {
        serving.cancel.cancel();
        self.tables().serving.remove(&serving.transfer);
    }

    /// A transfer dies with its session: its destination begins a new one.
    fn leave_when_lost(self: &Arc<Self>, link: Arc<dyn PeerLink>, serving: &Arc<Serving>) {
        let (shared, serving) = (self.clone(), serving.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = link.closed() => {
                    tracing::info!(
                        transfer = %serving.transfer, volume = %serving.volume, peer = %serving.peer,
                        "transfer ends: the session was lost; the destination asks again when there is another"
                    );
                    shared.leave(&serving);
                }
                () = serving.cancel.cancelled() => {}
            }
        });
    }

    async fn acknowledge(&self, peer: PeerId, message: Acknowledge) -> Result<Nothing, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let snapshot = convert::uuid(&message.snapshot).map_err(to_refusal)?;
        let content_root = convert::content_root(&message.content_root).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_not_own(relationship, &volume).await?;
        let turn = self.turn(relationship);
        let _turn = turn.lock().await;
        let is_late = |s: &Arc<Serving>| s.relationship == relationship && s.transfer != transfer;
        if self.tables().serving.values().any(is_late) {
            return Err(refusal("state", "a newer transfer of this relationship has begun"));
        }
        let known = self.tables().relationships.get(&relationship).cloned();
        let Some(known) = known else {
            return Err(refusal("not-found", format!("relationship {relationship} is not known here")));
        };
        // Snapshots of the same transfer that are still to travel keep their pins.
        let travelling =
            self.tables().serving.get(&transfer).filter(|s| s.relationship == relationship).cloned();
        let travelling = travelling.and_then(|s| s.plan.get().cloned());
        let mut keep = vec![snapshot];
        if let Some(plan) = travelling {
            keep.extend(plan.steps.iter().map(|s| s.uuid).skip_while(|uuid| *uuid != snapshot));
        }
        let (engine, of, kept) = (self.engine.clone(), volume.clone(), keep.len());
        blocking(move || prepare::move_base(&*engine, &of, relationship, snapshot, content_root, &keep))
            .await
            .map_err(to_refusal)?;
        self.tables().pins.insert(relationship, kept);
        let known =
            SourceRelationship { base: Some(snapshot), since: Some(self.clock.now()), let_go: None, ..known };
        let replica = known.destination.clone();
        self.keep(known).await.map_err(to_refusal)?;
        if let Err(error) = self.let_go_dormant(peer, &volume, &replica).await {
            tracing::warn!(%volume, "bases of the mirror in the other direction stay until the next update: {error}");
        }
        tracing::info!(%transfer, %relationship, %volume, %snapshot, %content_root, "the destination holds a new base");
        Ok(Nothing {})
    }

    async fn end(&self, peer: PeerId, message: &End) -> Result<Nothing, Refusal> {
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let serving = self.tables().serving.get(&transfer).filter(|s| s.peer == peer).cloned();
        if let Some(serving) = serving {
            if message.failure.is_empty() {
                tracing::info!(%transfer, volume = %serving.volume, "transfer ends: the destination has it all");
            } else {
                tracing::info!(
                    %transfer, volume = %serving.volume,
                    "transfer failed at the destination: {}", cut(&message.failure)
                );
            }
            self.leave(&serving);
            if !message.failure.is_empty()
                && let Some(keep) = self.half_there(&serving)
            {
                self.loosen(serving.relationship, &serving.volume, keep).await;
            }
        }
        Ok(Nothing {})
    }

    /// What the next transfer of the same relationship goes on with: the base, and the snapshot that was arriving.
    fn half_there(&self, serving: &Serving) -> Option<Vec<Uuid>> {
        let plan = serving.plan.get()?;
        let acknowledged = self.tables().relationships.get(&serving.relationship)?.base;
        let done = plan.steps.iter().position(|s| Some(s.uuid) == acknowledged).map_or(0, |at| at + 1);
        let local_base = serving.local_base.get().copied().flatten();
        let arriving = plan.steps.get(done).map(|s| s.uuid);
        Some(acknowledged.into_iter().chain(local_base).chain(arriving).collect())
    }

    /// Letting go needs no right to read: a peer that was denied a volume may still free its space.
    async fn release_for(&self, peer: PeerId, message: &Release) -> Result<Nothing, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_not_own(relationship, &volume).await?;
        if self.tables().relationships.contains_key(&relationship) {
            self.release(relationship, volume).await.map_err(to_refusal)?;
        }
        Ok(Nothing {})
    }

    async fn release(&self, relationship: Uuid, volume: VolumeName) -> Result<(), MirrorError> {
        let serving: Vec<_> =
            self.tables().serving.values().filter(|s| s.relationship == relationship).cloned().collect();
        serving.iter().for_each(|s| self.leave(s));
        let turn = self.turn(relationship);
        let _turn = turn.lock().await;
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || prepare::let_go(&*engine, &of, relationship, &[])).await {
            // A volume that is gone has nothing pinned.
            Ok(()) | Err(MirrorError::Engine(EngineError::NotFound { .. })) => {}
            Err(error) => return Err(error),
        }
        self.store.remove_source(relationship).await?;
        let (released, is_last) = {
            let mut tables = self.tables();
            let released = tables.relationships.remove(&relationship);
            tables.turns.remove(&relationship);
            tables.pins.remove(&relationship);
            let Tables { relationships, learnt, .. } = &mut *tables;
            learnt.forget(relationship, |peer| relationships.values().any(|other| other.peer == *peer));
            (released, tables.relationships.values().all(|other| other.source != volume))
        };
        if is_last {
            let (engine, indexes, of) = (self.engine.clone(), self.indexes.clone(), volume.clone());
            // Of a volume that is gone the file stays; it is small, and nobody asks for it.
            let forgotten = blocking(move || {
                indexes.forget(engine.volume(&of)?.uuid);
                Ok::<_, EngineError>(())
            });
            let _ = forgotten.await;
        }
        if released.is_some_and(|released| released.overtaken.is_some()) {
            self.overtaken_changes.send_modify(|changes| *changes += 1);
        }
        tracing::info!(%relationship, %volume, "released: no base is kept for it any more");
        Ok(())
    }
}

/// Gives a place back unless disarmed.
struct Leave<'a> {
    shared: &'a Shared,
    serving: &'a Serving,
    armed: bool,
}

impl Leave<'_> {
    fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.shared.leave(self.serving);
        }
    }
}
