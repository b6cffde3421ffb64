//! Whether the peer at the other end of a session is there: it is asked now, and the answer is waited for.

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use super::entry::CONTROL;
use super::state::Session;
use crate::control::{self, Body};
use crate::instances::{Sign, unanswered};
use crate::limits::ANSWER_LOOKED_AT_EVERY;

impl Session {
    /// Asks, and waits as long as [`unanswered`] says. Who asks while another does takes the question over; the node lets one ask.
    pub(crate) async fn ask(&self) -> Sign {
        let nonce = self.context.random.next_u64();
        let (answer, mut answered) = oneshot::channel();
        *self.question.lock() = Some((nonce, answer));
        let asked = Instant::now();
        let mut moved = (self.wire.received(), asked);
        let mut is_said = false;
        loop {
            // A full queue has its own cause; there may be room the next time.
            is_said = is_said || self.urgent.try_send(control::encode(Body::Ping(nonce))).is_ok();
            // The ping may wait on a path that has gone silent, until that is noticed; others answer.
            if let Some(control) = self.lanes.bundle(&CONTROL) {
                control.bundle.ask_lanes();
            }
            tokio::select! {
                biased;
                () = self.lost.cancelled() => return Sign::Ended,
                answer = &mut answered => return answer.map_or(Sign::Unclear, |()| Sign::Answered),
                () = sleep(ANSWER_LOOKED_AT_EVERY) => {}
            }
            let received = self.wire.received();
            if received != moved.0 {
                moved = (received, Instant::now());
            }
            if let Some(sign) = unanswered(asked.elapsed(), moved.1.elapsed()) {
                return sign;
            }
        }
    }
}

/// A pong has come.
pub(super) fn answered(session: &Session, nonce: u64) {
    let mut question = session.question.lock();
    if let Some((_, answer)) = question.take_if(|(expected, _)| *expected == nonce) {
        // Whoever asked may have given up.
        let _ = answer.send(());
    }
}
