//! Says to the source what it must hear, whenever there is a session with it: that its replica was broken off, or how a
//! change of roles has ended. In the background: nothing waits for it, least of all a break.

use std::sync::Arc;

use farside_session::{PeerLink, SessionError};
use prost::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::driver::Driver;
use super::turn::TurnCommand;
use super::{Command, Published};
use crate::destination::Links;
use crate::error::MirrorError;
use crate::limits::{HERALD_LINK_WAIT, HERALD_REST};
use crate::protocol::convert::{self, CandidateBase};
use crate::protocol::{Body, Noted, Overtaken, Swap, SwapPhase, Swapped};
use crate::state::Work;
use crate::store::{Relationship, SwapMark};
use crate::transfer;

/// A herald at work; it stops when this is dropped.
pub(super) struct Herald(JoinHandle<()>);

impl Drop for Herald {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What there is to say.
struct News {
    relationship: Relationship,
    /// The end of a change of roles, if one has begun.
    swap: Option<Swap>,
    /// That the replica was broken off, if it was.
    overtaken: Option<Overtaken>,
}

impl Driver {
    /// Sends a herald if there is something to say, in place of the one that is under way. `is_turned`: broken off by a
    /// change of roles, not by a person.
    pub(super) fn call_herald(&mut self, is_turned: bool) {
        self.herald = None;
        if self.is_turn_unknown {
            return;
        }
        let broken_off = self.standing.work == Work::BrokenOff;
        let relationship = self.relationship.clone();
        let swap = match relationship.swap {
            Some(SwapMark::Turning { reverse }) if !self.is_swapping => {
                let phase = if broken_off && is_turned { SwapPhase::Done } else { SwapPhase::Cancel };
                Some(swap_message(&relationship, reverse, phase))
            }
            _ => None,
        };
        let overtaken = broken_off.then(|| overtaken_message(&relationship, self.current.as_ref()));
        if swap.is_none() && overtaken.is_none() {
            return;
        }
        let (links, own) = (self.parts.links.clone(), self.own.clone());
        let news = News { relationship, swap, overtaken };
        self.herald = Some(Herald(tokio::spawn(run(links, news, own))));
    }
}

/// A word of a change of roles.
pub(crate) fn swap_message(relationship: &Relationship, reverse: uuid::Uuid, phase: SwapPhase) -> Swap {
    Swap {
        relationship: relationship.id.as_bytes().to_vec(),
        reverse: reverse.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        destination: relationship.destination.to_string(),
        phase: convert::swap_phase_number(phase),
        schedule: relationship.schedule.to_string(),
        turn: relationship.turn,
    }
}

fn overtaken_message(relationship: &Relationship, stands_on: Option<&Published>) -> Overtaken {
    let candidate = |p: &Published| CandidateBase {
        uuid: p.uuid,
        content_root: p.content_root,
        size_bytes: p.size_bytes,
    };
    Overtaken {
        relationship: relationship.id.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        broken_off_at: relationship.broken_off_at.map_or(0, |at| at.0),
        snapshot: stands_on.map(|p| candidate(p).to_message()),
        destination: relationship.destination.to_string(),
        turn: relationship.turn,
    }
}

/// Once for each session, until it is stopped.
async fn run(links: Arc<dyn Links>, mut news: News, own: mpsc::WeakSender<Command>) {
    let (id, peer) = (news.relationship.id, news.relationship.peer);
    let mut rest = HERALD_REST;
    loop {
        let link = match links.link(peer, HERALD_LINK_WAIT).await {
            Ok(link) => link,
            Err(_) => {
                tokio::time::sleep(HERALD_REST).await;
                continue;
            }
        };
        match say(&*link, &mut news, &own).await {
            Ok(()) => {
                tracing::info!(relationship = %id, %peer, "the source knows what became of its replica")
            }
            Err(error) if error.is_lost_session() => {
                tokio::time::sleep(HERALD_REST).await;
                continue;
            }
            Err(error) if news.swap.is_some() => {
                // It may be starting, or have a pool to open yet. Until it has heard, one of its volumes may be fenced
                // for nothing: so not only once in each session.
                if rest == HERALD_REST {
                    tracing::warn!(
                        relationship = %id, %peer,
                        "how the change of roles has ended is not accepted by the source; it will be told again: {error}"
                    );
                }
                tokio::time::sleep(rest).await;
                rest = (2 * rest).min(HERALD_LINK_WAIT);
                continue;
            }
            Err(error) => {
                tracing::warn!(relationship = %id, %peer, "the source was told what became of its replica, and answered: {error}");
            }
        }
        rest = HERALD_REST;
        link.closed().await;
    }
}

async fn say(
    link: &dyn PeerLink,
    news: &mut News,
    own: &mpsc::WeakSender<Command>,
) -> Result<(), MirrorError> {
    if let Some(swap) = &news.swap {
        let turn = swap.turn;
        let heard = match transfer::call(link, Body::Swap(swap.clone()), None).await {
            Ok(answer) => newest_in(&answer, |noted: Swapped| noted.newest),
            Err(error) => Err(error),
        };
        // Refused by a person's break there: that hosts went on here is all the more to be heard.
        if let (Err(MirrorError::Session(SessionError::Refused(_))), Some(overtaken)) =
            (&heard, &news.overtaken)
        {
            say_overtaken(link, overtaken, own).await?;
        }
        check_heard(heard?, turn, own).await?;
        news.swap = None;
        // The driver forgets the change of roles; if it has ended, nobody needs to know.
        if let Some(own) = own.upgrade() {
            let (done, _) = oneshot::channel();
            let _ = own.send(Command::Turn(TurnCommand::Heard { turn, done })).await;
        }
    }
    if let Some(overtaken) = &news.overtaken {
        say_overtaken(link, overtaken, own).await?;
    }
    Ok(())
}

async fn say_overtaken(
    link: &dyn PeerLink,
    overtaken: &Overtaken,
    own: &mpsc::WeakSender<Command>,
) -> Result<(), MirrorError> {
    let answer = transfer::call(link, Body::Overtaken(overtaken.clone()), None).await?;
    check_heard(newest_in(&answer, |noted: Noted| noted.newest)?, overtaken.turn, own).await
}

/// The newest change of direction that the source has heard of, in its answer.
pub(crate) fn newest_in<M: Message + Default>(
    answer: &[u8],
    newest: impl Fn(M) -> u64,
) -> Result<u64, MirrorError> {
    let answer = M::decode(answer)
        .map_err(|e| MirrorError::Protocol(format!("an answer that cannot be read: {e}")))?;
    convert::turn(newest(answer))
}

/// What was said as `turn` had no effect if the source has heard of a newer one: with the database this side has lost its
/// count. The driver counts on from there, and sends another herald.
async fn check_heard(newest: u64, turn: u64, own: &mpsc::WeakSender<Command>) -> Result<(), MirrorError> {
    if newest <= turn {
        return Ok(());
    }
    if let Some(own) = own.upgrade() {
        let (done, _) = oneshot::channel();
        let _ = own.send(Command::Turn(TurnCommand::Raise { newest, done })).await;
    }
    Err(MirrorError::State(format!(
        "the source has heard of change of direction {newest} already, and took no notice of {turn}"
    )))
}
