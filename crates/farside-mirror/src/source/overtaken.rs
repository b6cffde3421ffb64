//! A destination that was broken off tells its source: hosts there went on without it. From then on updates of that
//! relationship are refused, until it is resynced from here, overwrites this side, or is released here. What is made of each
//! word is decided in [`directions`](crate::directions).

use std::time::Duration;

use farside_engine::{EngineError, VolumeName};
use farside_peer::{PeerId, Refusal};
use farside_transfer::TransferKind;
use farside_transfer::bases::{is_kept_for, release_all};
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::log_limit::Admitted;
use farside_transfer::protocol::convert::{self, CandidateBase, Place};
use farside_transfer::protocol::{self, Noted, Standing};
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::role_changes::RoleChangeMessage;
use super::service::SourceService;
use super::shared::Shared;
use crate::directions::{self, GoneOn, Heard, PoolSays, Said, Settled};
use crate::error::{MirrorError, blocking};
use crate::store::{Overtaken, SourceRelationship, place};

/// By how much a destination's clock may be ahead for the moment that it names to be believed.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(24 * 3600);

/// How often a volume is looked for that a destination calls by a name that is not known here.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

impl SourceService {
    /// The relationships whose destination was broken off, in order of volume.
    pub fn overtaken(&self) -> Vec<SourceRelationship> {
        self.destinations().into_iter().filter(|r| r.overtaken.is_some()).collect()
    }

    /// Those of one volume.
    pub fn overtaken_of(&self, volume: &VolumeName) -> Vec<SourceRelationship> {
        self.overtaken().into_iter().filter(|r| r.source == *volume).collect()
    }

    /// Volumes that hosts may not write to until their overtaking is cleared: by the policy of the right that the
    /// destination has, or had when it was broken off
    /// ([`SourceRights::is_fenced_when_overtaken`](super::SourceRights::is_fenced_when_overtaken)).
    pub fn fenced(&self) -> Vec<VolumeName> {
        let mut volumes: Vec<VolumeName> =
            self.overtaken().into_iter().filter(|r| self.shared.is_fenced(r)).map(|r| r.source).collect();
        volumes.dedup();
        volumes
    }

    /// Keeps, durably, which volumes are fenced by the policy of this moment: from now on it may go with its right, and the
    /// fence stays.
    pub async fn note_fences(&self) -> Result<(), MirrorError> {
        for relationship in self.overtaken() {
            let is_noted = relationship.overtaken.as_ref().is_some_and(|o| o.fenced);
            if !is_noted && self.shared.is_fenced(&relationship) {
                self.shared.set_fence(relationship.id, true).await?;
            }
        }
        Ok(())
    }

    /// This side's administrator says that hosts may write to `volume` although `peer` has overtaken it.
    pub async fn lift_fence(&self, peer: PeerId, volume: &VolumeName) -> Result<(), MirrorError> {
        for relationship in self.overtaken_of(volume).into_iter().filter(|r| r.peer == peer) {
            self.shared.set_fence(relationship.id, false).await?;
        }
        Ok(())
    }

    /// Changes whenever [`SourceService::overtaken`] or [`SourceService::set_back`] does; the value counts how often.
    pub fn overtaken_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.overtaken_changes.subscribe()
    }
}

/// What a destination has said, checked.
struct Word {
    relationship: Uuid,
    volume: VolumeName,
    destination: VolumeName,
    change: u64,
    said: Said,
    snapshot: Option<CandidateBase>,
    broken_off_at: u64,
    beyond: Option<String>,
    follows: Vec<Place>,
    keeps_snapshot: bool,
    again: bool,
    ended: bool,
}

impl Word {
    fn from_message(message: &protocol::Overtaken) -> Result<Word, Refusal> {
        let snapshot = message.snapshot.as_ref().map(CandidateBase::from_message).transpose();
        let beyond = convert::place_text(&message.beyond).map_err(to_refusal)?;
        Ok(Word {
            relationship: convert::uuid(&message.relationship).map_err(to_refusal)?,
            volume: convert::volume(&message.volume).map_err(to_refusal)?,
            destination: convert::volume(&message.destination).map_err(to_refusal)?,
            change: convert::role_change(message.role_change).map_err(to_refusal)?,
            said: match (message.withdrawn, message.ended, &beyond) {
                (true, ..) => Said::Withdrawn,
                (false, _, Some(_)) => Said::Beyond,
                (false, true, None) if message.returned => Said::Returned { has_left: false },
                (false, true, None) => Said::Ended,
                (false, false, None) => Said::BrokenOff,
            },
            follows: convert::places(&message.follows).map_err(to_refusal)?,
            snapshot: snapshot.map_err(to_refusal)?,
            broken_off_at: message.broken_off_at,
            beyond,
            keeps_snapshot: message.keeps_snapshot,
            again: message.again,
            ended: message.ended,
        })
    }
}

impl Word {
    /// What the same destination has followed since, and has left by now, may go on without it.
    fn since(mut self, known: Option<&SourceRelationship>) -> Word {
        let ended = known.filter(|known| known.overtaken.as_ref().is_some_and(|overtaken| overtaken.ended));
        let left = ended.map(|known| known.gone_on().left(&self.follows)).unwrap_or_default();
        match self.said {
            Said::Returned { .. } => self.said = Said::Returned { has_left: !left.is_empty() },
            Said::Ended if !self.follows.is_empty() => {
                self.follows.extend(left);
                self.follows.truncate(HOPS_MAX);
            }
            _ => {}
        }
        self
    }
}

impl Shared {
    /// Whether hosts may not write for the sake of this relationship.
    pub(super) fn is_fenced(&self, relationship: &SourceRelationship) -> bool {
        relationship.overtaken.as_ref().is_some_and(|overtaken| {
            let policy =
                self.registry.rights.is_fenced_when_overtaken(relationship.peer, &relationship.source);
            directions::is_fenced(overtaken.fenced, policy)
        })
    }

    async fn set_fence(&self, relationship: Uuid, fenced: bool) -> Result<(), MirrorError> {
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let known = self.tables().relationships.get(&relationship).cloned();
        let Some((known, overtaken)) = known.and_then(|k| k.overtaken.clone().map(|o| (k, o))) else {
            return Ok(());
        };
        if overtaken.fenced == fenced {
            return Ok(());
        }
        self.keep(SourceRelationship { overtaken: Some(Overtaken { fenced, ..overtaken }), ..known }).await
    }

    pub(super) async fn overtaken(
        &self,
        peer: PeerId,
        message: protocol::Overtaken,
    ) -> Result<Noted, Refusal> {
        let word = self.where_it_is(peer, Word::from_message(&message)?).await?;
        let (relationship, volume) = (word.relationship, word.volume.clone());
        self.check_owner(relationship, peer, &volume)?;
        let is_known = self.tables().relationships.contains_key(&relationship);
        if !is_known {
            self.check_not_own(relationship, &volume).await?;
        }
        // A role change whose last message was lost: broken off at the very snapshot that was the last here. Asked before
        // this relationship's lock is taken: the driver that answers may be waiting for it, to let the bases go.
        let concerned = self.concerns(relationship, peer, &volume).await?;
        let order = self.registry.order(relationship);
        let _order = order.lock().await;
        let noted = |standing| Noted {
            newest: self.registry.newest_role_change(relationship),
            standing: convert::standing_number(standing),
        };
        if self.registry.is_late(relationship, word.change, RoleChangeMessage::Continue) {
            tracing::info!(%relationship, %peer, %volume, "ignored a delayed break message: a newer one is known. \
                 Nothing to do");
            return Ok(noted(Standing::NothingKept));
        }
        let pool = self.pool_says(peer, &word, concerned).await;
        let (pool, was_its_replica) = match pool {
            Ok(says) => says,
            // What is known suffices: a pool that is away, or fails, must not come back unfenced.
            Err(error) if is_known => {
                tracing::debug!(%relationship, %volume, "the pool cannot be asked of an overtaken volume: {error}");
                (PoolSays::Absent, false)
            }
            Err(error) => return Err(to_refusal(error)),
        };
        if let (PoolSays::Present { is_taken_over: true, .. }, Some(reversal)) = (pool, self.reversal()) {
            self.registry.accept(relationship, word.change, RoleChangeMessage::End);
            self.registry.follows(relationship, word.change);
            reversal.done(&volume, relationship).await.map_err(to_refusal)?;
            return Ok(noted(Standing::Follows));
        }
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let known = self.tables().relationships.get(&relationship).cloned();
        let word = word.since(known.as_ref());
        let pool = match (pool, &known) {
            (PoolSays::Present { follows, settled, is_taken_over, .. }, None) => {
                let is_kept = self.is_kept(relationship, &volume).await.map_err(to_refusal)?;
                PoolSays::Present { is_kept, follows, settled, is_taken_over }
            }
            (pool, _) => pool,
        };
        let is_kept = matches!(pool, PoolSays::Present { is_kept: true, .. });
        // A replica that never held anything has overtaken nobody. And this side may itself have been its replica and broken
        // off since: one that has forgotten when it was broken off, with its database, has forgotten that this side knows.
        let is_in_doubt = was_its_replica && word.broken_off_at == 0;
        let is_plain = word.snapshot.is_some() && !is_in_doubt;
        let may_mirror = self.registry.rights.may_read(peer, &volume);
        let is_break = word.said == Said::BrokenOff;
        let is_news = !word.again && may_mirror && (word.said == Said::Beyond || is_plain);
        let heard = directions::hear(word.said, known.is_some(), is_news, pool);
        let heard = match heard {
            // Who may not mirror the volume must not learn from the answer whether there is one of that name.
            Heard::NothingKept if !may_mirror && word.said != Said::Withdrawn => Heard::NotHere,
            heard => heard,
        };
        let heard = match heard {
            Heard::Follows => {
                self.registry.follows(relationship, word.change);
                heard
            }
            // It followed that one since, and whoever ended that here knew that hosts had gone on there. Of one that was on its way
            // meanwhile nobody must think that it is news.
            Heard::Note if is_break && self.registry.has_followed(relationship, word.change) => {
                Heard::NothingKept
            }
            heard => heard,
        };
        let is_known = known.is_some();
        let is_kept = is_known || is_kept;
        if heard == Heard::Note && !is_kept {
            // A peer that makes relationships up fills no database, and gives nobody more to decide than one honest peer does.
            self.check_mirrors(peer, relationship)?;
            self.check_empty_marks(peer, &volume)?;
        }
        // The replica's pool may have another name by now; what this side follows later is called by that. With the database
        // lost the pins still tell whose base is kept here; without the right, too: it makes this side only safer.
        let known = known.unwrap_or_else(|| {
            SourceRelationship::new(relationship, peer, volume.clone(), word.destination.clone())
        });
        let known = SourceRelationship { destination: word.destination.clone(), ..known };
        match heard {
            Heard::NotHere => {
                return Err(refusal(
                    "not-found",
                    format!(
                        "{volume} cannot be seen at the source now (its pool is not open there, it has no such volume, or this \
                         site may not mirror it), or who went on has followed it until now, so that it was overtaken is not noted. It is told again. At the source: \
                         farside pool list, farside peer allow"
                    ),
                ));
            }
            Heard::NothingKept => {
                tracing::debug!(%relationship, %peer, %volume, "a mirror for which this site keeps no base was \
                     broken off; nothing to do");
                return Ok(noted(Standing::NothingKept));
            }
            _ => {}
        }
        // Once more, now that this relationship's order lock is held: a resync may have begun meanwhile.
        if !self.registry.accept(relationship, word.change, RoleChangeMessage::Continue) {
            return Ok(noted(Standing::NothingKept));
        }
        match heard {
            Heard::Clear => {
                if known.overtaken.as_ref().is_some_and(|o| o.beyond.is_some()) {
                    tracing::warn!(%relationship, %peer, %volume, "no longer overtaken: it was decided at {}", known.destination);
                    self.keep(SourceRelationship { overtaken: None, ..known }).await.map_err(to_refusal)?;
                }
                if word.said == Said::Withdrawn {
                    self.tables().lines_said.insert(relationship, word.follows.clone());
                }
                drop(_lock);
                if word.said == Said::Withdrawn {
                    let mut line = word.follows.clone();
                    line.push(place(peer, &word.destination));
                    self.settle(&volume, &line).await.map_err(to_refusal)?;
                }
                Ok(noted(Standing::Noted))
            }
            Heard::Note => {
                self.tables().lines_said.remove(&relationship);
                let known = self.note(peer, known, &word).await.map_err(to_refusal)?;
                if word.ended && !word.keeps_snapshot {
                    // Nobody could come back to it.
                    self.let_go(&known).await;
                }
                let standing = if self.is_fenced(&known) { Standing::Fenced } else { Standing::Noted };
                drop(_lock);
                if word.said == Said::Ended {
                    // It may have come back meanwhile, or what it follows has said so.
                    let line = self.line_of(peer, &word);
                    self.settle(&volume, &line).await.map_err(to_refusal)?;
                }
                Ok(noted(standing))
            }
            Heard::Over => {
                drop(_lock);
                let follows = word.follows.first().map(|place| place.volume.to_string());
                tracing::info!(
                    %relationship, %peer, %volume, replica = %known.destination, follows,
                    "no longer overtaken by this replica: it follows another volume by now, and nobody went on beside those \
                     that stand in one line with {volume}"
                );
                self.release(relationship, volume.clone()).await.map_err(to_refusal)?;
                // What followed it then has come back with it.
                let back = place(peer, &word.destination);
                let is_back = matches!(word.said, Said::Returned { .. });
                let further = if is_back { vec![back] } else { Vec::new() };
                self.settle(&volume, &further).await.map_err(to_refusal)?;
                Ok(noted(Standing::Follows))
            }
            Heard::Back => {
                let standing = if self.is_fenced(&known) { Standing::Fenced } else { Standing::Noted };
                drop(_lock);
                let back = place(peer, &word.destination);
                self.settle(&volume, &[back]).await.map_err(to_refusal)?;
                Ok(noted(standing))
            }
            // This side follows that one by now: no alarm. What is still pinned here goes with the next version; what was taken for
            // the mirror and is needed by another is that one's.
            _ => {
                if is_known || self.is_pinned(relationship, &volume).await.map_err(to_refusal)? {
                    self.keep(known).await.map_err(to_refusal)?;
                }
                Ok(noted(Standing::Follows))
            }
        }
    }

    /// The volume has another name here than its destination knows: the pool was taken over under another, or the volume renamed
    /// while the database that knew of the mirror was lost. What is kept for the relationship tells which one it is.
    async fn where_it_is(&self, peer: PeerId, word: Word) -> Result<Word, Refusal> {
        let (engine, named, relationship) = (self.engine.clone(), word.volume.clone(), word.relationship);
        let known = self.tables().relationships.get(&relationship).cloned();
        let is_here = blocking(move || match engine.volume(&named) {
            Err(EngineError::NotFound { .. }) => Ok(false),
            _ => Ok::<_, MirrorError>(true),
        });
        if is_here.await.map_err(to_refusal)? || !self.may_search() {
            return Ok(word);
        }
        let engine = self.engine.clone();
        let found = blocking(move || {
            if let Some(known) = known {
                return Ok::<_, MirrorError>(Some(known.source).filter(|_| known.peer == peer));
            }
            for volume in engine.volumes()? {
                if is_kept_for(&*engine, &volume, relationship).unwrap_or(false) {
                    return Ok(Some(volume));
                }
            }
            Ok(None)
        });
        match found.await.map_err(to_refusal)? {
            Some(volume) if volume != word.volume => {
                let named = &word.volume;
                tracing::info!(%relationship, %peer, %volume, %named, "a destination speaks of a volume by a name that it \
                     had here before");
                Ok(Word { volume, ..word })
            }
            _ => Ok(word),
        }
    }

    /// Whoever asks for volumes that are not here has all snapshots looked through: once in a while is enough, since what was not
    /// noted is told again.
    fn may_search(&self) -> bool {
        let (now, mut tables) = (self.clock.monotonic(), self.tables());
        let may = tables.searched_at.is_none_or(|at| now.saturating_sub(at) >= SEARCH_EVERY);
        if may {
            tables.searched_at = Some(now);
        }
        may
    }

    /// Of relationships that this site keeps nothing for, one for each peer and volume says that hosts went on elsewhere: the volume
    /// is marked by that, and once its administrator has decided about it, the next can be told.
    fn check_empty_marks(&self, peer: PeerId, volume: &VolumeName) -> Result<(), Refusal> {
        let tables = self.tables();
        let is_empty_mark = |r: &&SourceRelationship| {
            r.peer == peer && r.source == *volume && r.overtaken.is_some() && tables.pins_of(r) == 0
        };
        match tables.relationships.values().find(is_empty_mark) {
            None => Ok(()),
            Some(marked) => Err(refusal(
                "state",
                format!(
                    "{volume} is overtaken by {} of the asking site already, and the source keeps nothing for this other \
                     mirror. It is noted once that is decided there: farside mirror release, or a resync. It is told again",
                    marked.destination
                ),
            )),
        }
    }

    /// Notes that hosts went on elsewhere, if that is news.
    async fn note(
        &self,
        peer: PeerId,
        known: SourceRelationship,
        word: &Word,
    ) -> Result<SourceRelationship, MirrorError> {
        let before = known.overtaken.clone();
        let policy = self.registry.rights.is_fenced_when_overtaken(peer, &known.source);
        let reported_at = self.clock.now();
        // Clocks differ, by hours where a time zone was taken for UTC. What is still to come after that never was.
        let broken_off_at = word.broken_off_at.min(reported_at.plus(CLOCKS_APART_MAX).0);
        let overtaken = Overtaken {
            broken_off_at: Some(broken_off_at).filter(|at| *at != 0).map(farside_platform::Timestamp),
            reported_at,
            snapshot: word.snapshot.map(|s| (s.uuid, s.content_root)),
            fenced: directions::is_fenced(before.as_ref().is_some_and(|o| o.fenced), policy),
            ended: word.ended,
            beyond: word.beyond.clone(),
            follows: word.follows.clone(),
        };
        // When it was told does not matter.
        let what = |o: &Overtaken| Overtaken { reported_at, ..o.clone() };
        let is_saved = !self.tables().unsaved.contains(&known.id);
        if is_saved && before.as_ref().map(what) == Some(what(&overtaken)) {
            return Ok(known);
        }
        let known = SourceRelationship { overtaken: Some(overtaken), ..known };
        self.alarm(peer, &known);
        // In memory first: a database that is full keeps nobody from being fenced, and is tried again with the next word.
        self.tables().unsaved.insert(known.id);
        self.show(known.clone());
        self.keep(known.clone()).await?;
        Ok(known)
    }

    /// Whether any snapshot is pinned for it.
    async fn is_pinned(&self, relationship: Uuid, volume: &VolumeName) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || Ok::<_, MirrorError>(engine.all_snapshots(&of)?)).await?;
        Ok(all.iter().any(|snapshot| snapshot.pinned_by.contains(&relationship)))
    }

    /// Whether any snapshot is pinned for it, or was taken for it.
    async fn is_kept(&self, relationship: Uuid, volume: &VolumeName) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || is_kept_for(&*engine, &of, relationship)).await {
            Err(error) if error.is_not_found() => Ok(false),
            other => other,
        }
    }

    /// What the pool says of the relationship, and whether the volume was the destination's replica and broken off; what is kept
    /// for it is looked at later.
    async fn pool_says(
        &self,
        peer: PeerId,
        word: &Word,
        concerned: bool,
    ) -> Result<(PoolSays, bool), MirrorError> {
        let (relationship, volume) = (word.relationship, word.volume.clone());
        let (engine, of) = (self.engine.clone(), volume.clone());
        let seen = blocking(move || {
            engine.volume(&of)?;
            Ok::<_, MirrorError>(engine.replica_record(&of)?)
        });
        let record = match seen.await {
            Ok(record) => record,
            Err(error) if error.is_not_found() => return Ok((PoolSays::Absent, false)),
            Err(error) => return Err(error),
        };
        let chain = self.chain(&volume, record.as_ref());
        let follows = chain.contains(&place(peer, &word.destination));
        let itself = (word.said != Said::Beyond).then(|| place(peer, &word.destination));
        let gone_on = GoneOn { itself, follows: word.follows.clone() };
        let settled = gone_on.settled(&chain, &self.line_of(peer, word));
        let from = word.destination.to_string();
        let was_its_replica = record.is_some_and(|r| r.broken_off && r.peer == peer.0 && r.source == from);
        let prepared = match self.reversal().filter(|_| concerned) {
            Some(reversal) => reversal.prepared(&volume, relationship).await?,
            None => None,
        };
        let stands_on = word.snapshot.map(|s| s.uuid);
        let is_break = matches!(word.said, Said::BrokenOff | Said::Ended);
        let is_taken_over = is_break && stands_on.is_some() && prepared == stands_on;
        // What is prepared is a replica only for the time being.
        let (follows, settled) = match prepared {
            Some(_) => (false, Settled::No),
            None => (follows, settled),
        };
        Ok((PoolSays::Present { is_kept: false, follows, settled, is_taken_over }, was_its_replica))
    }

    /// What follows the volume, as far as it counts for this word. Of what is said once it is asked later who has come back since.
    /// But what has gone on, and says that it follows by way of another, is in line if that has said so too while it followed:
    /// alone it cannot know whether the other has left this volume.
    fn line_of(&self, peer: PeerId, word: &Word) -> Vec<Place> {
        match (word.said, word.follows.first()) {
            (Said::Beyond, _) if !word.ended => self.tables().line(&word.volume),
            (Said::Ended, Some(nearest)) => {
                self.tables().line_with(&word.volume, &place(peer, &word.destination), nearest)
            }
            _ => Vec::new(),
        }
    }

    /// The very volume that went on follows again, under another relationship: what its old one has left is settled, unless it has
    /// followed one since that may go on.
    pub(super) async fn comes_back(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
        left: Vec<Place>,
    ) -> Result<(), MirrorError> {
        let is_over = |r: &&SourceRelationship| {
            let is_ended = r.overtaken.as_ref().is_some_and(|overtaken| overtaken.ended);
            let names_it = || r.gone_on().places().contains(&place(peer, destination));
            is_ended && r.source == *volume && r.id != relationship && names_it()
        };
        let over: Vec<SourceRelationship> =
            self.tables().relationships.values().filter(is_over).cloned().collect();
        for known in over {
            let Some(mut overtaken) = known.overtaken.clone() else { continue };
            overtaken
                .follows
                .extend(left.iter().filter(|place| !known.gone_on().places().contains(place)).cloned());
            overtaken.follows.truncate(HOPS_MAX);
            if overtaken.follows.is_empty() {
                self.release(known.id, volume.clone()).await?;
            } else if known.overtaken.as_ref() != Some(&overtaken) {
                self.keep(SourceRelationship { overtaken: Some(overtaken), ..known }).await?;
            }
        }
        Ok(())
    }

    /// Who stands in one line with a volume here has not gone on without it any more. `further` follow it, besides those that are
    /// known to. To be called with no relationship's lock held.
    pub(super) async fn settle(&self, volume: &VolumeName, further: &[Place]) -> Result<(), MirrorError> {
        let is_overtaken = |r: &SourceRelationship| r.source == *volume && r.overtaken.is_some();
        if !self.tables().relationships.values().any(is_overtaken) {
            return Ok(());
        }
        let (engine, of) = (self.engine.clone(), volume.clone());
        let record = match blocking(move || engine.replica_record(&of)).await {
            Err(error) if error.is_not_found() => return Ok(()),
            record => record?,
        };
        let chain = self.chain(volume, record.as_ref());
        let settled: Vec<Uuid> = {
            let tables = self.tables();
            let is_settled =
                |r: &&SourceRelationship| is_overtaken(r) && tables.is_settled(r, &chain, further);
            tables.relationships.values().filter(is_settled).map(|r| r.id).collect()
        };
        for id in settled {
            let lock = self.registry.lock(id);
            let guard = lock.lock().await;
            let known = {
                let tables = self.tables();
                let known = tables.relationships.get(&id);
                known.filter(|known| tables.is_settled(known, &chain, further)).cloned()
            };
            let Some(known) = known else { continue };
            tracing::info!(
                relationship = %id, %volume, replica = %known.destination,
                "no longer overtaken by way of this replica: who went on stands in one line with {volume} by now"
            );
            if known.overtaken.as_ref().is_some_and(|overtaken| overtaken.ended) {
                drop(guard);
                self.release(id, volume.clone()).await?;
            } else {
                self.keep(SourceRelationship { overtaken: None, ..known }).await?;
            }
        }
        Ok(())
    }

    /// Lets go of what is kept for a relationship that only stands for its being overtaken. What fails costs space, until it is
    /// released.
    async fn let_go(&self, known: &SourceRelationship) {
        let (engine, of, id) = (self.engine.clone(), known.source.clone(), known.id);
        match blocking(move || release_all(&*engine, &of, id)).await {
            Ok(()) => {
                self.tables().pins.insert(id, 0);
            }
            Err(error) => {
                tracing::warn!(relationship = %id, volume = %known.source, "cannot release the base of a mirror that \
                     was deleted; it holds space until farside mirror release: {error}");
                return;
            }
        }
        let without = SourceRelationship { base: None, since: None, ..known.clone() };
        if let Err(error) = self.keep(without).await {
            tracing::warn!(relationship = %id, volume = %known.source, "the state database could not record that \
                 a base is released: {error}");
        }
    }

    /// The destination gives up what is kept for it. Answers whether this side stays overtaken: then that is all it gives up.
    pub(super) async fn release_to_mark(&self, relationship: Uuid) -> Result<bool, MirrorError> {
        let known = self.tables().relationships.get(&relationship).cloned();
        let Some((known, overtaken)) = known.and_then(|k| k.overtaken.clone().map(|o| (k, o))) else {
            return Ok(false);
        };
        if directions::release(true) == directions::Left::Nothing {
            return Ok(false);
        }
        self.transfers.stop(relationship, false);
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let known = SourceRelationship { overtaken: Some(Overtaken { ended: true, ..overtaken }), ..known };
        self.keep(known.clone()).await?;
        self.let_go(&known).await;
        Ok(true)
    }

    /// Tells the log that hosts went on at `peer`, as far as its share of alarms reaches: a destination that makes up a new
    /// break with each call fills no disk.
    fn alarm(&self, peer: PeerId, known: &SourceRelationship) {
        let suppressed = match self.tables().alarms.admit(known.id, self.clock.monotonic()) {
            Admitted::Line { suppressed } => suppressed,
            Admitted::Nothing => return,
        };
        let SourceRelationship { id: relationship, source: volume, destination, overtaken, .. } = known;
        let fenced = self.is_fenced(known);
        if let Some(beyond) = overtaken.as_ref().and_then(|o| o.beyond.as_deref()) {
            tracing::warn!(
                %relationship, %peer, %volume, replica = %destination, beyond, fenced, suppressed,
                "OVERTAKEN: {beyond}, which followed {destination}, which follows {volume}, was broken off, and hosts \
                 may be writing to it. Decide which side counts. To end this with {volume} as it is: at the site of \
                 {destination}, farside mirror release, or farside mirror resync at the site of {beyond}"
            );
            return;
        }
        let ended = match overtaken {
            Some(o) if o.ended && !o.follows.is_empty() => {
                " It follows another volume since, where hosts may be writing."
            }
            Some(o) if o.ended => " Its mirror was deleted there, so only this site remembers it.",
            _ => "",
        };
        tracing::warn!(
            %relationship, %peer, %volume, replica = %destination, fenced, suppressed,
            "OVERTAKEN: the replica of {volume} was broken off and hosts may be writing to it.{ended} Decide which side \
             counts. To make {volume} follow the replica: farside mirror resync {volume} --from PEER:{destination} \
             (what was written to {volume} since stays as a side branch). To make the replica follow {volume}, at \
             its site: farside mirror resync {destination}. To keep both and end the mirror: farside mirror release \
             {volume} PEER"
        );
    }

    /// Refuses what an overtaken source must not do; a resync says that the destination's hosts have stopped, and
    /// clears it.
    pub(super) async fn check_overtaken(
        &self,
        relationship: Uuid,
        volume: &VolumeName,
        kind: TransferKind,
        change: u64,
    ) -> Result<(), Refusal> {
        let is_news = self.registry.accept(relationship, change, RoleChangeMessage::Continue);
        let known = self.tables().relationships.get(&relationship).cloned();
        // A destination that asks for an update follows: what it has passed on is no reason to refuse it.
        let is_its_own = |known: &SourceRelationship| {
            known.overtaken.as_ref().is_some_and(|overtaken| overtaken.beyond.is_none())
        };
        let Some(known) = known.filter(is_its_own) else { return Ok(()) };
        let of_overtaker = kind != TransferKind::Resync;
        if directions::is_refused(directions::Request::Update { of_overtaker }, true) {
            return Err(refusal(
                "state",
                format!(
                    "{volume} is overtaken: its replica {} was broken off, and both sides may have been written to \
                     since. Nothing was transferred. To make the replica follow {volume} again, at the replica's \
                     site: farside mirror resync {}",
                    known.destination, known.destination
                ),
            ));
        }
        if !is_news {
            return Err(refusal(
                "state",
                format!(
                    "{} was broken off again after this resync was asked for. Nothing was transferred. Run farside \
                     mirror resync again",
                    known.destination
                ),
            ));
        }
        tracing::info!(%relationship, %volume, "the replica follows again: no longer overtaken");
        self.keep(SourceRelationship { overtaken: None, ..known }).await.map_err(to_refusal)
    }

    /// Shows a relationship to whoever looks, and tells those who watch if its being overtaken changed.
    fn show(&self, relationship: SourceRelationship) {
        let is_overtaken = relationship.overtaken.clone();
        let before = self.tables().relationships.insert(relationship.id, relationship);
        if is_overtaken != before.and_then(|before| before.overtaken) {
            self.overtaken_changes.send_modify(|changes| *changes += 1);
        }
    }

    /// Stores a relationship, durably, and tells those who watch if its being overtaken changed.
    pub(super) async fn keep(&self, relationship: SourceRelationship) -> Result<(), MirrorError> {
        self.store.save_source(&relationship).await?;
        self.tables().unsaved.remove(&relationship.id);
        self.show(relationship);
        Ok(())
    }

    /// Once a destination holds a new base of this volume, and the volume was itself that destination's replica before
    /// it was broken off: the bases of that older, dormant relationship have a successor. Its record stays, so that the
    /// roles can be changed again.
    pub(super) async fn release_dormant(
        &self,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
    ) -> Result<(), MirrorError> {
        let (engine, of, from) = (self.engine.clone(), volume.clone(), destination.to_string());
        blocking(move || {
            let dormant = engine.replica_record(&of)?;
            let dormant = dormant.filter(|r| r.broken_off && r.peer == peer.0 && r.source == from);
            match dormant {
                Some(dormant) => release_all(&*engine, &of, dormant.relationship),
                None => Ok(()),
            }
        })
        .await
    }
}
