//! Places of known hosts: a few that are each host's own, the rest for whoever comes, and no host takes them all.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits::Limits;

/// Who is connected how often.
pub(crate) struct HostPlaces {
    common_max: usize,
    per_host_max: usize,
    kept: usize,
    taken: Mutex<HashMap<String, usize>>,
}

/// One connection's place; given back when dropped.
pub(crate) struct HostPlace {
    places: Arc<HostPlaces>,
    host: String,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoPlace {
    #[error("it has {0} connections already, the most of one host")]
    OfHost(usize),
    #[error("{0} connections of hosts beyond those that are kept for each are open, the most")]
    Common(usize),
}

impl HostPlaces {
    pub(crate) fn new(limits: &Limits) -> Arc<HostPlaces> {
        Arc::new(HostPlaces {
            common_max: limits.network_connections_max,
            per_host_max: limits.host_connections_max,
            kept: limits.host_connections_kept,
            taken: Mutex::default(),
        })
    }

    pub(crate) fn enter(self: &Arc<HostPlaces>, host: &str) -> Result<HostPlace, NoPlace> {
        let mut taken = self.taken.lock();
        let here = taken.get(host).copied().unwrap_or(0);
        if here >= self.per_host_max {
            return Err(NoPlace::OfHost(self.per_host_max));
        }
        let common: usize = taken.values().map(|count| count.saturating_sub(self.kept)).sum();
        if here >= self.kept && common >= self.common_max {
            return Err(NoPlace::Common(self.common_max));
        }
        *taken.entry(host.to_owned()).or_default() += 1;
        Ok(HostPlace { places: Arc::clone(self), host: host.to_owned() })
    }
}

impl Drop for HostPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_always_finds_its_own_places() {
        let limits = Limits {
            network_connections_max: 3,
            host_connections_max: 4,
            host_connections_kept: 1,
            ..Limits::default()
        };
        let places = HostPlaces::new(&limits);
        let greedy: Vec<_> = (0..4).map(|_| places.enter("greedy").ok().unwrap()).collect();
        assert_eq!(places.enter("greedy").err(), Some(NoPlace::OfHost(4)));
        let modest = places.enter("modest").ok().unwrap();
        assert_eq!(places.enter("modest").err(), Some(NoPlace::Common(3)));
        drop(greedy);
        drop(places.enter("modest").ok().unwrap());
        drop(modest);
        assert!(places.taken.lock().is_empty());
    }
}
