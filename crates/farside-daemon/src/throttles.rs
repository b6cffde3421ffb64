//! The throttles of site and peers as people set them: kept in the database, followed by the clock, obeyed by the node.
//! A mirror's is in its record (`MirrorOptions`); here it only follows the clock with the others.

use std::collections::BTreeMap;

use farside_api::{ErrorBody, ErrorCode, Throttle};
use farside_link::throttle::clock;
use farside_link::{Direction, RateError, Rules};
use farside_peer::{Node, PeerId};
use farside_platform::Timestamp;
use parking_lot::Mutex;

use crate::failure::Failure;
use crate::schedules;
use crate::state::{State, StateError};

/// What is limited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Limited {
    Site,
    Peer(PeerId),
}

/// The throttles of site and peers. What is not there is unlimited.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    set: Mutex<BTreeMap<(Limited, Direction), Rules>>,
    /// One change at a time, so that database, memory and node agree.
    lock: tokio::sync::Mutex<()>,
}

impl Throttles {
    /// As the database has them.
    pub(crate) async fn load(state: &State) -> Result<Throttles, StateError> {
        let mut set = BTreeMap::new();
        for direction in [Direction::In, Direction::Out] {
            if let Some(text) = state.site_throttle(direction).await? {
                set.insert((Limited::Site, direction), stored(&text, "the site"));
            }
        }
        for (peer, direction, text) in state.peer_throttles().await? {
            set.insert((Limited::Peer(peer), direction), stored(&text, "a peer"));
        }
        Ok(Throttles { set: Mutex::new(set), lock: tokio::sync::Mutex::default() })
    }

    /// Sets one: it holds when this returns, and after a restart.
    pub(crate) async fn set(
        &self,
        state: &State,
        node: &Node,
        now: Timestamp,
        of: Limited,
        direction: Direction,
        rules: Rules,
    ) -> Result<(), ErrorBody> {
        let _guard = self.lock.lock().await;
        let text = rules.to_string();
        match of {
            Limited::Site => state.set_site_throttle(direction, &text).await,
            Limited::Peer(peer) => state.set_peer_throttle(peer, direction, &text).await,
        }
        .map_err(Failure::into_error_body)?;
        self.set.lock().insert((of, direction), rules);
        self.follow(node, now);
        Ok(())
    }

    /// Has the node do what holds at `now`.
    pub(crate) fn follow(&self, node: &Node, now: Timestamp) {
        for ((of, direction), rules) in &*self.set.lock() {
            let rate = rules.rate_at(now);
            match of {
                Limited::Site => node.throttles().set_site(clock(), *direction, rate),
                Limited::Peer(peer) => node.throttles().set_peer(clock(), *peer, *direction, rate),
            }
        }
    }

    /// Takes up what the database has for a peer: another's limits have become its own.
    pub(crate) async fn reload(
        &self,
        state: &State,
        node: &Node,
        now: Timestamp,
        peer: PeerId,
    ) -> Result<(), StateError> {
        let _guard = self.lock.lock().await;
        for (of, direction, text) in state.peer_throttles().await? {
            if of == peer {
                self.set.lock().insert((Limited::Peer(peer), direction), stored(&text, "a peer"));
            }
        }
        self.follow(node, now);
        Ok(())
    }

    /// Forgets those of a peer that was removed.
    pub(crate) fn forget(&self, peer: PeerId) {
        self.set.lock().retain(|(of, _), _| *of != Limited::Peer(peer));
    }

    /// One, for status: as it is set, and what the node heeds, in which a peer's committed rate is.
    pub(crate) fn document(&self, node: &Node, of: Limited, direction: Direction) -> Throttle {
        let rules = self.set.lock().get(&(of, direction)).cloned().unwrap_or_default();
        let holds = match of {
            Limited::Site => node.throttles().site(direction),
            Limited::Peer(peer) => node.throttles().peer(&peer, direction),
        };
        Throttle { bytes_per_second: holds.bytes_per_second(), rules: rules.to_string() }
    }
}

/// What was stored must not keep the daemon from its start: what cannot be read is logged, and does not limit.
fn stored(text: &str, of: &str) -> Rules {
    text.parse().unwrap_or_else(|error| {
        tracing::error!(
            throttle = text, %error,
            "the stored throttle of {of} is invalid and does not limit anything. Set it again: farside site set or \
             farside peer set"
        );
        Rules::default()
    })
}

/// The throttle of a request. Times without a zone are in the zone of this system, which is stored with them.
pub(crate) fn asked(text: &str) -> Result<Rules, ErrorBody> {
    let mut of_system = None;
    let rules = Rules::parse(text, || {
        schedules::zone_of_system().map_err(|error| {
            let rate_error = RateError::new(&error.message);
            of_system = Some(error);
            rate_error
        })
    });
    rules.map_err(|error| {
        of_system.unwrap_or_else(|| ErrorBody::new(ErrorCode::WrongUsage, error.to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttles_of_requests() {
        assert_eq!(asked("4MB/s").unwrap().to_string(), "4MB/s");
        let with_zone = asked("4MB/s,08:00-18:00=1MB/s,zone=Europe/Berlin").unwrap();
        assert_eq!(with_zone.to_string(), "4MB/s,08:00-18:00=1MB/s,zone=Europe/Berlin");
        for text in ["", "fast", "4MB/s,noon=1MB/s", "4MB/s,mon=1MB/s,zone=Nowhere"] {
            assert_eq!(asked(text).unwrap_err().code, ErrorCode::WrongUsage, "{text}");
        }
    }
}
