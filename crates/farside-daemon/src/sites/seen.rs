//! What the sites that this one is paired with have said of themselves last. Lives in memory: whoever starts anew asks anew.

use std::collections::HashMap;

use farside_api::SiteSeen;
use farside_peer::PeerId;
use parking_lot::Mutex;

/// What was said last, by peer.
#[derive(Debug, Default)]
pub(crate) struct SitesSeen(Mutex<HashMap<PeerId, SiteSeen>>);

impl SitesSeen {
    /// What this one said last.
    pub(super) fn of(&self, peer: PeerId) -> Option<SiteSeen> {
        self.0.lock().get(&peer).cloned()
    }

    /// It has said something.
    pub(super) fn note(&self, peer: PeerId, seen: SiteSeen) {
        self.0.lock().insert(peer, seen);
    }

    /// Forgets those that are no peers any more.
    pub(super) fn retain(&self, is_peer: impl Fn(PeerId) -> bool) {
        self.0.lock().retain(|peer, _| is_peer(*peer));
    }
}
