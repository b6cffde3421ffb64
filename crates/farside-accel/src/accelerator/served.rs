//! The trunks that peers have opened, and where their probes went.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use farside_peer::PeerId;
use parking_lot::Mutex;

use crate::protocol::{Frame, Kind, ProbeDatagram};
use crate::trunk::Trunk;

/// How long a peer may connect to where its probe went.
const PROBED_FOR: Duration = Duration::from_secs(1200);
/// Probes of peers that are looked at in a second; a box sends no more than 512. Anybody on the way can send one again.
const PROBES_PER_SECOND: u32 = 500;
/// Addresses probed that are remembered.
const PROBED_MAX: usize = 16_384;

/// The trunks that peers have opened, and where their probes went.
#[derive(Default)]
pub(super) struct Served {
    pub(super) trunks: Mutex<Vec<Arc<Trunk>>>,
    probed: Mutex<HashMap<(PeerId, IpAddr), Duration>>,
    /// A second, and how many probes were looked at in it.
    rate: Mutex<(u64, u32)>,
}

impl Served {
    /// Tells the peer whose probe this is, if there is a trunk to it and the server is at this box's LAN. Whether it was for this box:
    /// otherwise it goes on, to one that has the server.
    pub(super) fn saw_probe(
        &self,
        probe: &ProbeDatagram,
        server: IpAddr,
        is_at_lan: impl FnOnce() -> bool,
        now: Duration,
    ) -> bool {
        let trunk = self.trunks.lock().iter().find(|trunk| probe.is_of(trunk.peer)).map(Arc::clone);
        let Some(trunk) = trunk else { return false };
        if !self.may_look(now) {
            return true;
        }
        if !is_at_lan() {
            return false;
        }
        let mut probed = self.probed.lock();
        if probed.len() >= PROBED_MAX {
            probed.retain(|_, until| now < *until);
            if probed.len() >= PROBED_MAX {
                probed.clear();
            }
        }
        probed.insert((trunk.peer, server.to_canonical()), now + PROBED_FOR);
        drop(probed);
        let body = bytes::Bytes::copy_from_slice(&probe.nonce);
        trunk.send_hint(Frame { kind: Kind::Probed, flow: 0, body });
        true
    }

    fn may_look(&self, now: Duration) -> bool {
        let mut rate = self.rate.lock();
        if rate.0 != now.as_secs() {
            *rate = (now.as_secs(), 0);
        }
        rate.1 += 1;
        rate.1 <= PROBES_PER_SECOND
    }

    /// A connection to where the peer's probe went has come about: it may go on.
    pub(super) fn connected(&self, peer: PeerId, server: IpAddr, now: Duration) {
        if let Some(until) = self.probed.lock().get_mut(&(peer, server.to_canonical())) {
            *until = now + PROBED_FOR;
        }
    }

    pub(super) fn is_probed(&self, peer: PeerId, server: IpAddr, now: Duration) -> bool {
        self.probed.lock().get(&(peer, server.to_canonical())).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_looked_at_so_many_times_a_second() {
        let served = Served::default();
        let looks = |from_ms: u64, count: u64| {
            (0..count).filter(|i| served.may_look(Duration::from_millis(from_ms + i / 100))).count()
        };
        assert_eq!(looks(5_000, 2_000), PROBES_PER_SECOND as usize);
        assert_eq!(looks(6_000, 100), 100);
        assert_eq!(looks(6_500, 1_000), PROBES_PER_SECOND as usize - 100);
    }
}
