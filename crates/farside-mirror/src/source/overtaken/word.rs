//! What a destination says of itself, checked, and what the pool here says to it.

use std::cmp::Ordering;
use std::time::Duration;

use farside_engine::{EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_peer::{PeerId, Refusal};
use farside_platform::Timestamp;
use farside_transfer::bases::is_kept_for;
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol;
use farside_transfer::protocol::convert::{self, CandidateBase, Place};
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use crate::directions::{GoneOn, PoolSays, Said, Settled};
use crate::error::{MirrorError, blocking};
use crate::source::refusal::to_refusal;
use crate::source::shared::Shared;
use crate::store::{SourceRelationship, place};

/// How often a volume is looked for that a destination calls by a name that is not known here.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// What a destination has said, checked.
pub(super) struct Word {
    pub(super) relationship: Uuid,
    pub(super) volume: VolumeName,
    pub(super) destination: VolumeName,
    pub(super) change: u64,
    pub(super) said: Said,
    pub(super) snapshot: Option<CandidateBase>,
    pub(super) broken_off_at: u64,
    pub(super) beyond: Option<String>,
    pub(super) follows: Vec<Place>,
    pub(super) keeps_snapshot: bool,
    pub(super) again: bool,
    pub(super) ended: bool,
    /// And how many mirrors are in it.
    pub(super) group: Option<(String, u32)>,
}

impl Word {
    pub(super) fn from_message(message: &protocol::Overtaken) -> Result<Word, Refusal> {
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
            group: convert::group_name(&message.group)
                .map_err(to_refusal)?
                .map(|name| (name, message.group_size)),
        })
    }
}

impl Word {
    /// It was broken off before it held any version, as far as this side knows too: then hosts there began with nothing, and have
    /// overtaken nobody.
    pub(super) fn never_held(&self, known: Option<&SourceRelationship>) -> bool {
        let is_break = matches!(self.said, Said::BrokenOff | Said::Ended);
        let has_held = |known: &SourceRelationship| {
            let stood_on =
                known.overtaken.as_ref().is_some_and(|o| o.snapshot.is_some() || o.beyond.is_some());
            known.base.is_some() || known.released.is_some() || stood_on
        };
        is_break && self.snapshot.is_none() && known.is_some_and(|known| !has_held(known))
    }

    /// What the same destination has followed since, and has left by now, may go on without it.
    pub(super) fn since(mut self, known: Option<&SourceRelationship>) -> Word {
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

/// The break that a word is of, as far as it can be compared with what is here.
#[derive(Clone, Copy, Debug)]
struct Break {
    relationship: Uuid,
    /// The version that hosts went on from, as the destination knows it by now.
    stands_on: Uuid,
    /// By the destination's clock.
    at: Timestamp,
}

impl Break {
    /// None of a word that is of no break, or of one whose moment went with a database: what is made of that is another matter.
    fn of(word: &Word) -> Option<Break> {
        let is_break = matches!(word.said, Said::BrokenOff | Said::Ended) && word.broken_off_at != 0;
        let stands_on = word.snapshot.filter(|_| is_break)?.uuid;
        Some(Break { relationship: word.relationship, stands_on, at: Timestamp(word.broken_off_at) })
    }

    /// Whether what is here by `back`, the mirror in the other direction, was taken by the destination after this break. `all` are the
    /// volume's snapshots.
    ///
    /// With the first version that came by `back` everything that was kept for this relationship went; what the destination has had of
    /// this volume after that is kept for it again, and takes the place of what `back` has brought. A resync that was begun and has
    /// brought nothing stands on what both had before.
    fn was_followed(&self, all: &[SnapshotInfo], back: Uuid) -> bool {
        if all.iter().any(|s| s.pinned_by.contains(&self.relationship)) {
            return false;
        }
        let is_brought = |s: &&SnapshotInfo| s.pinned_by.contains(&back);
        let Some(brought) = all.iter().filter(is_brought).max_by_key(|s| s.sequence) else { return false };
        let stands_on = all.iter().find(|s| s.uuid == self.stands_on);
        match stands_on.map(|s| s.sequence.cmp(&brought.sequence)) {
            // What hosts went on from was here before they did, and what was taken then came after it.
            Some(Ordering::Less) => true,
            Some(Ordering::Greater) => false,
            // As a rule it went with the rest; and a destination that has given up its old base calls the newest that it has what it
            // stands on. What `back` took was taken at the destination, so that both moments are of its clock: no two clocks are
            // compared. One that was set back in between has this side overtaken, which a person can end.
            Some(Ordering::Equal) | None => {
                brought.owner == SnapshotOwner::Relationship(back) && brought.created_at > self.at
            }
        }
    }
}

impl Shared {
    /// The volume has another name here than its destination knows: the pool was taken over under another, or the volume renamed
    /// while the database that knew of the mirror was lost. What is kept for the relationship tells which one it is.
    pub(super) async fn where_it_is(&self, peer: PeerId, word: Word) -> Result<Word, Refusal> {
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
    pub(super) fn may_search(&self) -> bool {
        let (now, mut tables) = (self.clock.monotonic(), self.tables());
        let may = tables.searched_at.is_none_or(|at| now.saturating_sub(at) >= SEARCH_EVERY);
        if may {
            tables.searched_at = Some(now);
        }
        may
    }

    /// Of relationships that this site keeps nothing for, one for each peer and volume says that hosts went on elsewhere: the volume
    /// is marked by that, and once its administrator has decided about it, the next can be told.
    pub(super) fn check_empty_marks(&self, peer: PeerId, volume: &VolumeName) -> Result<(), Refusal> {
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

    /// Whether any snapshot is pinned for it, or was taken for it and serves nobody: a release that was cut short leaves such a one.
    pub(super) async fn holds_for(
        &self,
        relationship: Uuid,
        volume: &VolumeName,
    ) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || Ok::<_, MirrorError>(engine.all_snapshots(&of)?)).await?;
        let is_its =
            |s: &SnapshotInfo| s.owner == SnapshotOwner::Relationship(relationship) && s.pinned_by.is_empty();
        Ok(all.iter().any(|s| s.pinned_by.contains(&relationship) || is_its(s)))
    }

    /// Whether any snapshot is pinned for it.
    pub(super) async fn is_pinned_for(
        &self,
        relationship: Uuid,
        volume: &VolumeName,
    ) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || match engine.all_snapshots(&of) {
            Err(EngineError::NotFound { .. }) => Ok(Vec::new()),
            other => Ok::<_, MirrorError>(other?),
        });
        Ok(all.await?.iter().any(|s| s.pinned_by.contains(&relationship)))
    }

    /// Whether any snapshot is pinned for it, or was taken for it.
    pub(super) async fn is_kept(&self, relationship: Uuid, volume: &VolumeName) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || is_kept_for(&*engine, &of, relationship)).await {
            Err(error) if error.is_not_found() => Ok(false),
            other => other,
        }
    }

    /// Whether the volume, which was the destination's replica and was broken off, has followed it since the break that this word is
    /// of. Asked of the pool alone: a restart, or a lost database, takes nothing of it along.
    pub(super) async fn has_followed_since(&self, word: &Word) -> Result<bool, MirrorError> {
        let Some(break_off) = Break::of(word) else { return Ok(false) };
        let (engine, of) = (self.engine.clone(), word.volume.clone());
        blocking(move || {
            let Some(back) = engine.replica_record(&of)?.filter(|record| record.broken_off) else {
                return Ok(false);
            };
            Ok::<_, MirrorError>(break_off.was_followed(&engine.all_snapshots(&of)?, back.relationship))
        })
        .await
    }

    /// What the pool says of the relationship, and whether the volume was the destination's replica and broken off; what is kept
    /// for it, and what the volume has followed, is looked at later.
    pub(super) async fn pool_says(
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
        let has_followed_since = false;
        let says = PoolSays::Present { is_kept: false, follows, settled, is_taken_over, has_followed_since };
        Ok((says, was_its_replica))
    }

    /// What follows the volume, as far as it counts for this word. Of what is said once it is asked later who has come back since.
    /// But what has gone on, and says that it follows by way of another, is in line if that has said so too while it followed:
    /// alone it cannot know whether the other has left this volume.
    pub(super) fn line_of(&self, peer: PeerId, word: &Word) -> Vec<Place> {
        match (word.said, word.follows.first()) {
            (Said::Beyond, _) if !word.ended => self.tables().line(&word.volume),
            (Said::Ended, Some(nearest)) => {
                self.tables().line_with(&word.volume, &place(peer, &word.destination), nearest)
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIRROR: Uuid = Uuid::from_u128(1);
    const BACK: Uuid = Uuid::from_u128(2);

    /// The snapshot that came here as number `sequence`, and is kept for these.
    fn kept(sequence: u64, taken_at: u64, taken_for: Uuid, pinned_by: &[Uuid]) -> SnapshotInfo {
        SnapshotInfo {
            name: format!("s{sequence}"),
            uuid: Uuid::from_u128(sequence.into()),
            created_at: Timestamp(taken_at),
            size_bytes: 0,
            owner: SnapshotOwner::Relationship(taken_for),
            held: false,
            pinned_by: pinned_by.to_vec(),
            sequence,
        }
    }

    fn was_followed(stands_on: u128, at: u64, all: &[SnapshotInfo]) -> bool {
        let stands_on = Uuid::from_u128(stands_on);
        Break { relationship: MIRROR, stands_on, at: Timestamp(at) }.was_followed(all, BACK)
    }

    #[test]
    fn what_came_by_the_mirror_back_says_whether_a_break_was_followed() {
        let base = kept(10, 5, MIRROR, &[]);
        let brought = kept(11, 20, BACK, &[BACK]);
        // Whatever clocks say: what hosts went on from was here before what they wrote came here.
        assert!(was_followed(10, 30, &[base.clone(), brought.clone()]));
        let later = kept(12, 5, MIRROR, &[]);
        assert!(!was_followed(12, 10, &[brought.clone(), later]), "it came here after that");
        // What hosts went on from is gone, or called by what was taken of them.
        for stands_on in [10, 11, 99] {
            assert!(was_followed(stands_on, 10, std::slice::from_ref(&brought)));
            assert!(!was_followed(stands_on, 20, std::slice::from_ref(&brought)), "a newer break");
        }
        // Nothing has come: the mirror back stands on what both had before, and that moment is of another clock.
        assert!(!was_followed(10, 1, &[kept(10, 5, MIRROR, &[BACK])]));
        assert!(!was_followed(10, 1, &[kept(9, 4, MIRROR, &[BACK])]), "from an older point");
        assert!(!was_followed(10, 5, &[kept(9, 4, BACK, &[BACK])]), "from one of an earlier time");
        // The destination has had something of this volume since, or nothing of the mirror back is left.
        assert!(!was_followed(10, 10, &[base.clone(), brought, kept(12, 30, MIRROR, &[MIRROR])]));
        assert!(!was_followed(10, 10, &[base, kept(11, 20, BACK, &[])]));
    }
}
