//! When there is something to tell the source.

use farside_transfer::protocol::SwapPhase;

use super::announcements::{overtaken_message, swap_message};
use super::divergence_notice::{DivergenceNotice, PendingNotice};
use super::driver::Driver;
use crate::state::Work;
use crate::store::SwapMark;

impl Driver {
    /// Sends a divergence notice if there is something to say, in place of the one that is under way. `is_taken_over`: broken off by a
    /// role change, not by a person.
    pub(super) fn send_notice(&mut self, is_taken_over: bool) {
        self.notice = None;
        if self.is_outcome_unknown {
            return;
        }
        let broken_off = self.state.work == Work::BrokenOff;
        let relationship = self.relationship.clone();
        let swap = match relationship.swap {
            Some(SwapMark::Swapping { reverse }) if !self.is_swapping => {
                let phase = if broken_off && is_taken_over { SwapPhase::Done } else { SwapPhase::Cancel };
                Some(swap_message(&relationship, reverse, phase))
            }
            _ => None,
        };
        let overtaken = broken_off.then(|| overtaken_message(&relationship, self.current.as_ref()));
        if swap.is_none() && overtaken.is_none() {
            return;
        }
        let (links, own) = (self.parts.links.clone(), self.own.clone());
        let notice = PendingNotice { relationship, swap, overtaken };
        self.notice = Some(DivergenceNotice::send(links, notice, own));
    }
}
