//! When there is something to tell the source.

use farside_platform::Timestamp;
use farside_transfer::protocol::convert::Place;
use farside_transfer::protocol::{Overtaken, Standing, SwapPhase};
use tokio::sync::watch;

use super::announcements::{beyond_message, overtaken_message, swap_message};
use super::divergence_notice::{DivergenceNotice, Heard, PendingNotice};
use super::driver::Driver;
use super::status::SourceHeard;
use crate::group::GroupKey;
use crate::source::Overtaker;
use crate::state::Work;
use crate::store::{Relationship, SwapMark};

impl Driver {
    /// Sends a divergence notice if there is something to say, in place of the one that is under way.
    pub(super) fn send_notice(&mut self) {
        let before = self.notice.take();
        self.was_followed = self.is_followed();
        if self.is_outcome_unknown {
            return;
        }
        let broken_off = self.state.work == Work::BrokenOff;
        let relationship = self.relationship.clone();
        let ended = match relationship.swap {
            Some(SwapMark::TakenOver { reverse }) if broken_off => Some((reverse, SwapPhase::Done)),
            // By whatever: the source becomes writable by a cancel, so where this volume is, and nobody knows that it was a
            // person's break, it hears only that it was overtaken.
            Some(SwapMark::Swapping { .. }) if broken_off => None,
            Some(mark) => mark.reverse().map(|reverse| (reverse, SwapPhase::Cancel)),
            None => None,
        };
        let swap = ended
            .filter(|_| !self.is_swapping)
            .map(|(reverse, phase)| swap_message(&relationship, reverse, phase));
        let overtaken = if broken_off {
            let size = GroupKey::of(&relationship).map_or(0, |key| self.parts.groups.size(&key));
            let group_size = u32::try_from(size).unwrap_or(u32::MAX);
            Some(Overtaken { group_size, ..overtaken_message(&relationship, self.current.as_ref()) })
        } else {
            let beyond = self.overtaker();
            // A source may still believe what was said before a restart: it is told once that it is not so.
            let is_settled = self.told.as_ref().is_some_and(|told| told.withdrawn)
                && matches!(&*self.heard.borrow(), Heard::Yes(..));
            let is_news = beyond.is_some() || (!is_settled && self.has_destinations_elsewhere());
            (is_news && self.state.initialized).then(|| beyond_message(&relationship, beyond, &self.line()))
        };
        if swap.is_none() && overtaken.is_none() {
            if broken_off || self.told.as_ref().is_some_and(|told| !told.withdrawn) {
                self.told = None;
            } else {
                // Who follows is said in each session.
                self.notice = before;
            }
            return;
        }
        let without = |told: &Overtaken| Overtaken { again: false, ..told.clone() };
        if self.told.as_ref().map(without) != overtaken.as_ref().map(without) {
            self.heard = watch::Sender::new(Heard::NotYet(None)).subscribe();
        }
        let before = self.heard.borrow().clone();
        let (heard_tx, heard) = watch::channel(before);
        self.heard = heard;
        self.told = overtaken.clone();
        let (links, own) = (self.parts.links.clone(), self.own.clone());
        let notice = PendingNotice { clock: self.parts.clock.clone(), relationship, swap, overtaken };
        self.notice = Some(DivergenceNotice::send(links, notice, own, heard_tx));
    }

    /// Who went on without this volume, besides its own source.
    pub(super) fn overtaker(&self) -> Option<Overtaker> {
        self.parts.source.overtaker(&self.relationship.destination, &self.chain())
    }

    /// What this volume follows, as far as that is known here, the nearest first.
    pub(super) fn chain(&self) -> Vec<Place> {
        self.relationship.chain()
    }

    /// The source has answered, for the first time since the break: remembered, so that one that releases the mirror is not told
    /// anew.
    pub(super) async fn remember_told(&mut self) {
        let is_heard = matches!(&*self.heard.borrow(), Heard::Yes(..));
        // That nobody went on is no news that could come too late.
        let Some(told) = self.told.as_ref().filter(|_| is_heard).map(|told| !told.withdrawn) else { return };
        if self.relationship.told == told {
            return;
        }
        self.relationship.told = told;
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            // Known to this process.
            tracing::warn!(relationship = %self.relationship.id, "the state database could not record that the \
                 source has heard of the break: {error}");
        }
    }

    /// The former source has ended the mirror by which it followed: it is its own again, knows that hosts went on here, and is not to
    /// be told anew.
    pub(super) async fn is_followed_no_more(&mut self) {
        if self.state.work != Work::BrokenOff {
            return;
        }
        self.relationship.told = true;
        self.relationship.ended_there = true;
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            // Known to this process.
            tracing::warn!(relationship = %self.relationship.id, "the state database could not record that the \
                 former source does not follow any more: {error}");
        }
        let heard = Heard::Yes(Standing::NothingKept, self.parts.clock.now());
        self.heard = watch::Sender::new(heard).subscribe();
        self.send_notice();
    }

    /// What follows this volume, besides its own source, as far as it has said.
    fn line(&self) -> Vec<Place> {
        let chain = self.chain();
        let mut line = self.parts.source.line(&self.relationship.destination);
        line.retain(|place| !chain.contains(place));
        line
    }

    fn has_destinations_elsewhere(&self) -> bool {
        let Relationship { peer, destination, .. } = &self.relationship;
        self.parts.source.destinations().iter().any(|r| r.source == *destination && r.peer != *peer)
    }

    /// Who has been overtaken here has changed: what follows from it for the source of this volume.
    pub(super) fn on_overtaken_change(&mut self) {
        if self.state.work == Work::BrokenOff {
            let is_followed = self.is_followed();
            if std::mem::replace(&mut self.was_followed, is_followed) && !is_followed {
                // What it has come to there is another thing by now. It knew of the break when it followed: that is no news.
                self.relationship.told = true;
                self.send_notice();
            }
            return;
        }
        if !self.is_settled() {
            return;
        }
        let beyond = self.overtaker();
        let what = |told: &Overtaken| (told.withdrawn, told.beyond.clone(), told.follows.clone());
        let said = beyond_message(&self.relationship, beyond, &self.line());
        let is_said = match &self.told {
            Some(told) => what(told) == what(&said),
            None => said.withdrawn && said.follows.is_empty(),
        };
        if is_said {
            return;
        }
        self.relationship.told = false;
        let overtaken = Some(Overtaken { again: false, ..said });
        let swap = None;
        let (heard_tx, heard) = watch::channel(Heard::NotYet(None));
        (self.heard, self.told) = (heard, overtaken.clone());
        let (clock, relationship) = (self.parts.clock.clone(), self.relationship.clone());
        let notice = PendingNotice { clock, relationship, swap, overtaken };
        let (links, own) = (self.parts.links.clone(), self.own.clone());
        self.notice = Some(DivergenceNotice::send(links, notice, own, heard_tx));
    }

    /// Whether the source knows that its replica was broken off, and when it said so, where that is not known here; none if it was not.
    pub(super) fn source_heard(&self) -> Option<(SourceHeard, Option<Timestamp>)> {
        if self.state.work != Work::BrokenOff || self.never_held() {
            return None;
        }
        // It holds a base of this very volume by now: the roles have changed, whatever it said before.
        if self.is_followed() {
            return Some((SourceHeard::Follows, None));
        }
        // It followed, and was broken off in its turn: this direction sleeps, and what counts is said of the other one.
        if self.is_overtaken_back() {
            return None;
        }
        Some(match &*self.heard.borrow() {
            // It knew when it ended its mirror; with that this site may have lost the right to ask it again.
            Heard::NotYet(_) if self.relationship.ended_there => (SourceHeard::Released, None),
            Heard::NotYet(_) => (SourceHeard::NotYet, None),
            Heard::Yes(standing, at) => {
                let heard = match standing {
                    Standing::Noted => SourceHeard::Noted,
                    Standing::Fenced => SourceHeard::Fenced,
                    Standing::Follows => SourceHeard::Follows,
                    Standing::NothingKept => SourceHeard::Released,
                };
                (heard, Some(*at))
            }
        })
    }

    pub(super) fn is_followed(&self) -> bool {
        let Relationship { peer, source, destination, .. } = &self.relationship;
        self.parts.source.destinations().iter().any(|r| {
            let is_reverse = r.peer == *peer && r.source == *destination && r.destination == *source;
            is_reverse && r.base.is_some() && r.overtaken.is_none()
        })
    }

    /// The source had followed this volume, and hosts have gone on there since.
    pub(super) fn is_overtaken_back(&self) -> bool {
        let Relationship { peer, source, destination, .. } = &self.relationship;
        self.parts.source.destinations().iter().any(|r| {
            let is_reverse = r.peer == *peer && r.source == *destination && r.destination == *source;
            is_reverse && r.overtaken.as_ref().is_some_and(|o| o.beyond.is_none())
        })
    }

    /// It holds no version, so hosts that go on here began with nothing.
    fn never_held(&self) -> bool {
        // Where the roles changed and the other site ended its mirror since, nothing is kept any more.
        self.is_probed && !self.state.initialized && self.current.is_none() && !self.relationship.ended_there
    }

    /// Why the source's hosts may be writing beside those here.
    pub(super) fn untold_why(&self) -> Option<String> {
        let of = self.source_name();
        if self.state.work == Work::BrokenOff && self.never_held() {
            return Some(format!(
                "no copy of {of} had arrived whole when this mirror was broken off; its hosts go on. To begin again: farside mirror \
                 delete {0}, then farside mirror create {of} {0}, with --every and --keep once more: they end with the mirror; where hosts have \
                 written to {0}, instead of the latter: farside mirror resync {0} --from {of} --whole",
                self.relationship.destination
            ));
        }
        match self.source_heard()?.0 {
            SourceHeard::NotYet => {}
            SourceHeard::Released if self.relationship.ended_there => {
                return Some(format!(
                    "sleeps: the other site has ended the mirror by which {of} followed {0}, and each goes its own way: it is no \
                     replica of {0} any more. If that is as it should be, and to forget the way back: farside mirror delete {0}",
                    self.relationship.destination
                ));
            }
            // Nothing is kept for the direction of the way back either, where its source has gone on since and is yet to say so.
            SourceHeard::Released if self.relationship.broken_off_at.is_none() => {
                return Some(format!(
                    "this site has lost its state database, and {of} keeps nothing for this mirror: it was released there, or was only the \
                     way back. Whether hosts went on there is told within a minute; farside mirror status there says it, too. Only if none \
                     did: farside mirror delete {}",
                    self.relationship.destination
                ));
            }
            SourceHeard::Released => {
                return Some(format!(
                    "{of} keeps nothing for this mirror (it was released there): hosts may be writing to both. To end \
                     the mirror here too: farside mirror delete {}",
                    self.relationship.destination
                ));
            }
            SourceHeard::Noted => {
                return Some(format!(
                    "{of} has been told that it was overtaken; when it was, its hosts might write on: keep them stopped, or decide \
                     which side counts"
                ));
            }
            SourceHeard::Fenced | SourceHeard::Follows => return None,
        }
        let peer = self.parts.links.name_of(self.relationship.peer).unwrap_or_else(|| "the source".into());
        Some(match &*self.heard.borrow() {
            Heard::NotYet(Some(refused)) => format!(
                "{peer} has not accepted the word that {of} was overtaken, and its hosts may be writing there; it is \
                 told again within a minute: {refused}. If the mirror was ended there, end it here too: farside mirror delete {}",
                self.relationship.destination
            ),
            // No person may have broken off anything: the direction of the way back rests as one that was.
            _ if self.relationship.broken_off_at.is_none() => format!(
                "this site has lost its state database, and has not heard since whether {of} follows {}, or its hosts may be \
                 writing there; it is asked when there is a session with {peer}",
                self.relationship.destination
            ),
            _ => format!(
                "{of} has not been told yet that this mirror was broken off, and its hosts may be writing there; it is \
                 told when there is a session with {peer}"
            ),
        })
    }

    /// `PEER:POOL/VOL` of the source.
    pub(super) fn source_name(&self) -> String {
        match self.parts.links.name_of(self.relationship.peer) {
            Some(peer) => format!("{peer}:{}", self.relationship.source),
            None => self.relationship.source.to_string(),
        }
    }
}
