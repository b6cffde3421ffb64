//! A limit of what comes here that is lowered in the middle of a stream. What was granted before could still come at once: up to the
//! whole window. So the other side is told what is left of it, and holds to that until the credit of before is used up.

use bytes::Bytes;

use super::entry::BundleEntry;
use super::state::Session;
use crate::control::{self, Beside, Body, Hold};

/// What the other side was told of one stream.
#[derive(Default)]
pub(super) struct Told(Option<u64>);

impl Told {
    /// Tells what is to be told; as often as ten times a second.
    pub(super) fn follow(&mut self, session: &Session, entry: &BundleEntry) {
        let (rate, until) = match (entry.bundle.excess_credit(), self.0) {
            (Some((rate, _)), Some(told)) if rate == told => return,
            (Some(excess), _) => excess,
            (None, None) => return,
            // Used up, or the limit is higher again.
            (None, Some(told)) if entry.bundle.limit_in() == Some(told) => {
                self.0 = None;
                return;
            }
            (None, Some(_)) => (0, 0),
        };
        let hold = Hold { bundle: Bytes::copy_from_slice(&entry.id), rate, until };
        let beside = Beside { holds: vec![hold], ..Beside::default() };
        // Its answer is that of a ping which nobody measures.
        let ping = Body::Ping(session.context.random.next_u64());
        // With a full queue it is said the next time.
        if session.urgent.try_send(control::encode_with(ping, beside)).is_ok() {
            self.0 = (rate > 0).then_some(rate);
        }
    }
}
