//! When there is something to tell the source.

use farside_transfer::protocol::SwapPhase;

use super::announcements::{overtaken_message, swap_message};
use super::divergence_notice::{DivergenceNotice, PendingNotice};
use super::driver::Driver;
use crate::state::Work;
use crate::store::SwapMark;

impl Driver {
    /// Sends a divergence notice if there is something to say, in place of the one that is under way.
    pub(super) fn send_notice(&mut self) {
        self.notice = None;
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
        let overtaken = broken_off.then(|| overtaken_message(&relationship, self.current.as_ref()));
        if swap.is_none() && overtaken.is_none() {
            return;
        }
        let (links, own) = (self.parts.links.clone(), self.own.clone());
        let notice = PendingNotice { relationship, swap, overtaken };
        self.notice = Some(DivergenceNotice::send(links, notice, own));
    }
}
