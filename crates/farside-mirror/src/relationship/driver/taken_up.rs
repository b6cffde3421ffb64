//! What a person asked for and a stop of the daemon cut short: it goes on by itself. Where there is a schedule, that asks
//! anyway.

use std::time::Duration;

use farside_transfer::TransferError;

use super::Driver;
use crate::log::{LogEvent, RequestedBy};
use crate::schedule::Schedule;
use crate::state::{Action, Event, Work};

/// What is said of a transfer that the end of the daemon, or of its pool, has cut.
pub(super) const STOPPED: &str = "the daemon was stopped, or the pool closed; what has arrived is kept, and it goes on when the pool is \
                                  open again";
/// What is said of a transfer that the end of its mirror has cut.
pub(super) const DELETED: &str = "the mirror was deleted; the volume shows what it showed before";
/// How long it waits for a session then: the other site may be down for as long as its own upgrade takes.
const LINK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Lines of the log that are looked at; a drill or a rescue has one, too.
const LINES: usize = 32;

impl Driver {
    /// Takes it up, once, when the pool has said what this replica is.
    pub(super) async fn take_up(&mut self) {
        if self.was_taken_up || !self.is_probed || !self.parts.limits.takes_up {
            return;
        }
        self.was_taken_up = true;
        let is_at_rest = self.state.work == Work::Idle && self.relationship.schedule == Schedule::OnRequest;
        if !is_at_rest || self.check_ready().is_err() || !self.has_staged().await || !self.was_cut().await {
            return;
        }
        let event = if self.state.initialized { Event::AskUpdate } else { Event::AskInitialize };
        let Ok((next, action)) = self.state.step(event) else { return };
        self.state = next;
        if let Action::Enqueue(kind) = action {
            self.link_wait = LINK_WAIT;
            self.is_for_person = true;
            self.log(LogEvent::Request { by: RequestedBy::Retry }, Some(kind), None).await;
        }
        if let Err(error) = self.carry_out(action).await {
            self.why = Some(error.to_string());
        }
    }

    /// Whether the last transfer ended with the daemon: by its stop, or with no word at all. Not if a person ended it, or if whoever
    /// asked was told that it failed.
    async fn was_cut(&self) -> bool {
        let Ok(lines) = self.parts.store.log(&self.relationship.destination, LINES).await else {
            return false;
        };
        let of_this = lines.into_iter().filter(|line| line.relationship == self.relationship.id);
        let last = of_this.map(|line| line.event).find(|event| {
            matches!(
                event,
                LogEvent::Request { .. } | LogEvent::Start | LogEvent::Abort { .. } | LogEvent::End { .. }
            )
        });
        match last {
            Some(LogEvent::Request { .. } | LogEvent::Start) => true,
            Some(LogEvent::Abort { reason }) => reason == STOPPED,
            _ => false,
        }
    }

    /// The reason of a transfer that was cancelled, if no person did it.
    pub(super) fn why_cut(&self, reason: Option<String>) -> Option<String> {
        let is_cut = reason.as_ref().is_some_and(|reason| *reason == TransferError::Aborted.to_string());
        match is_cut && !self.is_aborted {
            true if self.is_deleted => Some(DELETED.to_owned()),
            true => Some(STOPPED.to_owned()),
            false => reason,
        }
    }
}
