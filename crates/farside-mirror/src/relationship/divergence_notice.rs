//! Notifies the source, whenever there is a session with it: that its replica was broken off, or how a
//! role change has ended. In the background: nothing waits for it, least of all a break.

use std::sync::Arc;

use farside_peer::{PeerLink, SessionError};
use farside_platform::{Clock, Timestamp};
use farside_transfer::TransferError;
use farside_transfer::calls::call;
use farside_transfer::protocol::{Body, Noted, Overtaken, Standing, Swap, SwapPhase, Swapped, convert};
use prost::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::announcements::newest_in;
use super::command::{Command, RoleChangeCommand};
use crate::error::MirrorError;
use crate::limits::{NOTICE_AGAIN, NOTICE_LINK_WAIT, NOTICE_LOST_REST, NOTICE_REST};
use crate::links::Links;
use crate::store::Relationship;

/// A divergence notice at work; it stops when this is dropped.
pub(super) struct DivergenceNotice(JoinHandle<()>);

impl Drop for DivergenceNotice {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether the source has heard that its replica was broken off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// Not since this began; why it was refused, if it was.
    NotYet(Option<String>),
    /// What it has come to there, as it said at a moment.
    Yes(Standing, Timestamp),
}

/// What there is to say.
pub(super) struct PendingNotice {
    /// By which what is heard has its moment.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) relationship: Relationship,
    /// The end of a role change, if one has begun.
    pub(super) swap: Option<Swap>,
    /// That the replica was broken off, if it was.
    pub(super) overtaken: Option<Overtaken>,
}

impl DivergenceNotice {
    /// Begins to tell.
    pub(super) fn send(
        links: Arc<dyn Links>,
        notice: PendingNotice,
        own: mpsc::WeakSender<Command>,
        heard: watch::Sender<Heard>,
    ) -> DivergenceNotice {
        DivergenceNotice(tokio::spawn(run(links, notice, own, heard)))
    }
}

/// Once for each session, again where it was refused, and every few minutes, until it is stopped: the source may lose what it
/// has noted. That nobody went on is said once, and who follows once for each session.
async fn run(
    links: Arc<dyn Links>,
    mut notice: PendingNotice,
    own: mpsc::WeakSender<Command>,
    heard: watch::Sender<Heard>,
) {
    let (id, peer) = (notice.relationship.id, notice.relationship.peer);
    let mut rest = NOTICE_REST;
    let mut lost = NOTICE_LOST_REST;
    let mut is_news = true;
    loop {
        let link = match links.link(peer, NOTICE_LINK_WAIT).await {
            Ok(link) => link,
            Err(_) => {
                tokio::time::sleep(NOTICE_REST).await;
                continue;
            }
        };
        match send_notice(&*link, &mut notice, &own, &heard).await {
            Ok(()) => {
                lost = NOTICE_LOST_REST;
                if let Some(overtaken) = &mut notice.overtaken {
                    overtaken.again = true;
                }
                if is_news {
                    tracing::info!(relationship = %id, %peer, "the source has been notified");
                }
                is_news = false;
            }
            Err(error) if error.is_lost_session() => {
                // Where both sites dial, the first session of a meeting is often replaced by the second at once. Hosts at the source
                // write on until it has heard.
                tokio::time::sleep(lost).await;
                lost = (2 * lost).min(NOTICE_REST);
                continue;
            }
            Err(error) => {
                // It may be starting, or have a pool to open yet. Until it has learnt, its hosts write on beside these, or
                // one of its volumes is fenced for nothing: so not only once in each session.
                if rest == NOTICE_REST {
                    tracing::warn!(
                        relationship = %id, %peer,
                        "the notice to the source of what became of its replica failed. Retrying every 5 to 60 s: {error}"
                    );
                }
                is_news = true;
                heard.send_replace(Heard::NotYet(Some(error.to_string())));
                tokio::select! {
                    () = tokio::time::sleep(rest) => rest = (2 * rest).min(NOTICE_LINK_WAIT),
                    // Whoever comes back may be another process by now.
                    () = link.closed() => rest = NOTICE_REST,
                }
                continue;
            }
        }
        match &notice.overtaken {
            // A source that was restarted has forgotten who follows with this one.
            Some(said) if said.withdrawn && !said.follows.is_empty() => {
                rest = NOTICE_REST;
                link.closed().await;
                continue;
            }
            Some(said) if !said.withdrawn => {}
            _ => return,
        }
        rest = NOTICE_REST;
        tokio::select! {
            () = tokio::time::sleep(NOTICE_AGAIN) => {}
            () = link.closed() => is_news = true,
        }
    }
}

async fn send_notice(
    link: &dyn PeerLink,
    notice: &mut PendingNotice,
    own: &mpsc::WeakSender<Command>,
    heard: &watch::Sender<Heard>,
) -> Result<(), MirrorError> {
    if let Some(swap) = &notice.swap {
        let role_change = swap.role_change;
        let answered = match call(link, Body::Swap(swap.clone()), None).await {
            Ok(answer) => newest_in(&answer, |noted: Swapped| noted.newest),
            Err(error) => Err(error.into()),
        };
        // Refused by a person's break there: that hosts went on here is all the more to be reported.
        if let (
            Err(MirrorError::Transfer(TransferError::Session(SessionError::Refused(_)))),
            Some(overtaken),
        ) = (&answered, &notice.overtaken)
        {
            send_overtaken(link, overtaken, &*notice.clock, own, heard).await?;
        }
        check_seen(answered?, role_change, own).await?;
        acknowledge(role_change, own).await?;
        let is_done = convert::swap_phase(swap.phase).is_ok_and(|phase| phase == SwapPhase::Done);
        notice.swap = None;
        if let Some(overtaken) = &mut notice.overtaken {
            overtaken.again |= is_done;
        }
    }
    if let Some(overtaken) = &notice.overtaken {
        send_overtaken(link, overtaken, &*notice.clock, own, heard).await?;
    }
    Ok(())
}

/// The driver forgets the role change. Its row must say so, or the next session, which may be days away, says it first:
/// what a full database did not take is sent again. If the driver has ended, nobody needs to know.
async fn acknowledge(role_change: u64, own: &mpsc::WeakSender<Command>) -> Result<(), MirrorError> {
    let Some(own) = own.upgrade() else { return Ok(()) };
    let (done, acknowledged) = oneshot::channel();
    let acknowledgement = RoleChangeCommand::Acknowledged { role_change, done };
    if own.send(Command::RoleChange(acknowledgement)).await.is_err() {
        return Ok(());
    }
    // It may wait for this to end: a sender that is held would keep it alive.
    drop(own);
    acknowledged.await.unwrap_or(Ok(()))
}

async fn send_overtaken(
    link: &dyn PeerLink,
    overtaken: &Overtaken,
    clock: &dyn Clock,
    own: &mpsc::WeakSender<Command>,
    heard: &watch::Sender<Heard>,
) -> Result<(), MirrorError> {
    let answer = call(link, Body::Overtaken(overtaken.clone()), None).await?;
    let newest = newest_in(&answer, |noted: Noted| noted.newest)?;
    check_seen(newest, overtaken.role_change, own).await?;
    let noted = Noted::decode(answer).map_err(|e| MirrorError::protocol(format!("malformed answer: {e}")))?;
    let standing = convert::standing(noted.standing)?;
    heard.send_replace(Heard::Yes(standing, clock.now()));
    Ok(())
}

/// What was said as `role_change` had no effect if the source has seen a newer one: with the database this side has lost its
/// count. The driver counts on from there, and sends another divergence notice.
async fn check_seen(
    newest: u64,
    role_change: u64,
    own: &mpsc::WeakSender<Command>,
) -> Result<(), MirrorError> {
    if newest <= role_change {
        return Ok(());
    }
    if let Some(own) = own.upgrade() {
        let (done, _) = oneshot::channel();
        let _ = own.send(Command::RoleChange(RoleChangeCommand::Raise { newest, done })).await;
    }
    Err(MirrorError::State(format!(
        "the source ignored role change {role_change}, because it has seen a newer one (number {newest}); this site \
         continues from there"
    )))
}
