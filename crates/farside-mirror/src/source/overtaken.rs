//! A destination that was broken off tells its source: hosts there went on without it. From then on updates of that
//! relationship are refused, until it is resynced from here, overwrites this side, or is released here. What is made of each
//! word is decided in [`directions`].

mod over;
mod word;

use std::time::Duration;

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::log_limit::Admitted;
use farside_transfer::protocol::convert;
use farside_transfer::protocol::{self, Noted, Standing};
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::role_changes::RoleChangeMessage;
use super::service::SourceService;
use super::shared::Shared;
use crate::directions::{self, Heard, PoolSays, Said};
use crate::error::MirrorError;
use crate::store::{Overtaken, SourceRelationship, place};
use word::Word;

/// Whether nothing is known of a relationship but that its destination says to be broken off, and has forgotten when: the mark is
/// shown, and keeps no host away.
fn is_bare_mark(relationship: &SourceRelationship) -> bool {
    let is_undated = |o: &Overtaken| o.broken_off_at.is_none() && o.beyond.is_none();
    relationship.overtaken.as_ref().is_some_and(is_undated)
        && relationship.base.is_none()
        && relationship.released.is_none()
}

/// By how much a destination's clock may be ahead for the moment that it names to be believed.
const CLOCKS_APART_MAX: Duration = Duration::from_secs(24 * 3600);

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

impl Shared {
    /// Whether hosts may not write for the sake of this relationship.
    pub(super) fn is_fenced(&self, relationship: &SourceRelationship) -> bool {
        relationship.overtaken.as_ref().is_some_and(|overtaken| {
            let policy =
                self.registry.rights.is_fenced_when_overtaken(relationship.peer, &relationship.source);
            directions::is_fenced(overtaken.fenced, policy && !is_bare_mark(relationship))
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
            reversal
                .done(&volume, relationship, word.group.clone().map(|(name, _)| name))
                .await
                .map_err(to_refusal)?;
            return Ok(noted(Standing::Follows));
        }
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let known = self.tables().relationships.get(&relationship).cloned();
        let word = word.since(known.as_ref());
        // This side may itself have been its replica and broken off since: one that has forgotten when it was broken off, with its
        // database, has forgotten that this side knows.
        let has_forgotten = word.said == Said::BrokenOff && word.broken_off_at == 0;
        let is_in_doubt = was_its_replica && word.broken_off_at == 0;
        let pool = match (pool, &known) {
            (PoolSays::Present { follows, settled, is_taken_over, .. }, None) => {
                let has_followed_since = match was_its_replica {
                    true => self.has_followed_since(&word).await.map_err(to_refusal)?,
                    false => false,
                };
                // What was once taken for it may be here as a point that retention keeps of the other direction: only a pin says
                // that it followed last.
                let is_kept = match has_forgotten || is_in_doubt {
                    true => self.is_pinned_for(relationship, &volume).await,
                    false => self.is_kept(relationship, &volume).await,
                };
                let is_kept = is_kept.map_err(to_refusal)?;
                PoolSays::Present { is_kept, follows, settled, is_taken_over, has_followed_since }
            }
            (pool, _) => pool,
        };
        let is_kept = matches!(pool, PoolSays::Present { is_kept: true, .. });
        // A replica that never held anything has overtaken nobody.
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
            // A mirror that is over, of a destination that went on nowhere: nothing of it stays.
            Heard::Clear if word.ended => Heard::Over,
            // It followed that one since, and whoever ended that here knew that hosts had gone on there. A word that was on its way
            // meanwhile is no news.
            Heard::Note if is_break && self.registry.has_followed(relationship, word.change) => {
                Heard::NothingKept
            }
            heard => heard,
        };
        let is_known = known.is_some();
        let gave_up = heard == Heard::Note && word.never_held(known.as_ref());
        // What is kept for it goes with it, once its pool is there.
        let heard = if gave_up && pool == PoolSays::Absent { Heard::NotHere } else { heard };
        if gave_up && heard == Heard::Note {
            // Whoever broke it off gave up a first copy. An older version of this one may have marked its volume by it.
            drop(_lock);
            tracing::info!(
                %relationship, %peer, %volume, replica = %word.destination,
                "the mirror was broken off before a copy of {volume} had arrived whole: nobody went on elsewhere, and it is over"
            );
            self.release(relationship, volume).await.map_err(to_refusal)?;
            return Ok(noted(Standing::NothingKept));
        }
        let is_pinned = is_kept;
        let is_kept = is_known || is_kept;
        // A site that lost its database may take for a break what was the way back, and this site's volume lives on since: where nothing
        // here says otherwise it is noted, and no host is kept away for it.
        let may_fence =
            is_pinned || known.as_ref().is_some_and(|known| !is_bare_mark(known)) || !has_forgotten;
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
                if matches!(pool, PoolSays::Present { has_followed_since: true, .. }) {
                    tracing::info!(%relationship, %peer, %volume, replica = %known.destination, "heard of an old break of \
                         {0}: {volume} has followed {0} since, and was broken off after that. Nothing to do", known.destination);
                } else {
                    tracing::debug!(%relationship, %peer, %volume, "a mirror for which this site keeps no base was \
                         broken off; nothing to do");
                }
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
                let known = self.note(peer, known, &word, may_fence).await.map_err(to_refusal)?;
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
            // This side follows that one by now: no alarm. What is still kept here goes with the next version. What was taken for
            // the mirror and is pinned by another is that one's.
            _ => {
                // Should this side not follow it after all, that its mirror is over was told for good.
                let overtaken = known.overtaken.clone().map(|o| match word.said {
                    Said::Ended => Overtaken { ended: true, follows: word.follows.clone(), ..o },
                    _ => o,
                });
                let known = SourceRelationship { overtaken, ..known };
                if is_known || self.holds_for(relationship, &volume).await.map_err(to_refusal)? {
                    self.keep(known).await.map_err(to_refusal)?;
                }
                Ok(noted(Standing::Follows))
            }
        }
    }

    /// Notes that hosts went on elsewhere, if that is news.
    async fn note(
        &self,
        peer: PeerId,
        known: SourceRelationship,
        word: &Word,
        may_fence: bool,
    ) -> Result<SourceRelationship, MirrorError> {
        let before = known.overtaken.clone();
        let policy = may_fence && self.registry.rights.is_fenced_when_overtaken(peer, &known.source);
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
            group: word.group.clone().map(|(name, size)| {
                // A site that has just started may not know all of them yet.
                let known = before.as_ref().filter(|o| o.broken_off_at.map_or(0, |at| at.0) == broken_off_at);
                let known = known.and_then(|o| o.group.as_ref()).filter(|(of, _)| *of == name);
                let size = size.max(known.map_or(0, |(_, size)| *size));
                (name, size)
            }),
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
        let site = self.name_of(peer);
        tracing::warn!(
            %relationship, %peer, %volume, replica = %destination, fenced, suppressed,
            "OVERTAKEN: the replica of {volume} was broken off and hosts may be writing to it.{ended} Decide which side \
             counts. To make {volume} follow the replica: farside mirror resync {volume} --from {site}:{destination} \
             (what was written to {volume} since stays as a side branch). To make the replica follow {volume}, at \
             its site: farside mirror resync {destination}. To keep both and end the mirror: farside mirror release \
             {volume} {site}"
        );
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
}
