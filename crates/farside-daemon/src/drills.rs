//! Drills whose client runs a command: their volumes go also when that client is killed.
//!
//! The client renews what it holds while the command runs. What nobody renews is deleted once nobody has it open: the command may outlive
//! its client. A daemon that starts again gives each the time to be renewed once more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farside_platform::Clock;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::state::{State, StateError};

/// So long a drill stays without being renewed, at least and at most, and after the daemon has started.
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(3600);
const LEASE_AT_START: Duration = Duration::from_secs(60);

/// The drills of this site that are renewed.
pub(crate) struct Drills {
    leases: Mutex<BTreeMap<Uuid, Lease>>,
    state: State,
    clock: Arc<dyn Clock>,
}

#[derive(Clone)]
struct Lease {
    pool: String,
    /// On monotonic time.
    until: Duration,
    lease: Duration,
}

impl std::fmt::Debug for Drills {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drills")
    }
}

impl Drills {
    pub(crate) async fn load(state: State, clock: Arc<dyn Clock>) -> Result<Drills, StateError> {
        let (until, lease) = (clock.monotonic() + LEASE_AT_START, LEASE_AT_START);
        let known = state.drills().await?;
        let leases = known.into_iter().map(|(pool, volume)| (volume, Lease { pool, until, lease })).collect();
        Ok(Drills { leases: Mutex::new(leases), state, clock })
    }

    /// The volume of a drill goes, unless it is renewed from now on.
    pub(crate) async fn begin(&self, pool: &str, volume: Uuid, lease: Duration) -> Result<(), StateError> {
        self.state.keep_drill(pool, volume).await?;
        let lease = lease.clamp(LEASE_MIN, LEASE_MAX);
        let until = self.clock.monotonic() + lease;
        self.leases.lock().insert(volume, Lease { pool: pool.to_owned(), until, lease });
        Ok(())
    }

    /// Answers whether it is one that can be renewed.
    pub(crate) fn renew(&self, volume: Uuid) -> bool {
        let now = self.clock.monotonic();
        self.leases.lock().get_mut(&volume).map(|of| of.until = now + of.lease).is_some()
    }

    /// Whether it is one that is renewed.
    pub(crate) fn holds(&self, volume: Uuid) -> bool {
        self.leases.lock().contains_key(&volume)
    }

    /// Its volume is deleted, or a person's from now on.
    pub(crate) async fn end(&self, volume: Uuid) {
        if self.leases.lock().remove(&volume).is_some()
            && let Err(error) = self.state.forget_drill(volume).await
        {
            tracing::debug!(%volume, "an ended drill stays in the state database: {error}");
        }
    }

    /// What nobody has renewed in time: volume and pool.
    pub(crate) fn expired(&self) -> Vec<(Uuid, String)> {
        let now = self.clock.monotonic();
        let leases = self.leases.lock();
        leases
            .iter()
            .filter(|(_, lease)| lease.until <= now)
            .map(|(id, lease)| (*id, lease.pool.clone()))
            .collect()
    }
}
