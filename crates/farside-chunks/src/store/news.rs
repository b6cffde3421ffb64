//! What one site tells the other of its store.

use std::sync::Arc;

use super::listeners::Changes;
use super::shared::Shared;
use crate::known::{HOLDINGS_MAX, Holdings};
use crate::name::{ContainerName, RealmId};

/// What of a realm has come and gone since somebody last asked.
pub struct News {
    shared: Arc<Shared>,
    realm: RealmId,
    changes: Arc<Changes>,
}

impl News {
    pub(super) fn of(shared: Arc<Shared>, realm: RealmId) -> News {
        let changes = shared.state.lock().listen(realm);
        News { shared, realm, changes }
    }

    /// What has come and gone since the last call, [`HOLDINGS_MAX`] containers at most; empty if nothing has.
    pub fn take(&self) -> Holdings {
        // Taken out first: what changes from here on is said the next time.
        let names: Vec<ContainerName> = {
            let mut changes = self.changes.lock();
            let names: Vec<ContainerName> = changes.iter().take(HOLDINGS_MAX).copied().collect();
            for name in &names {
                changes.remove(name);
            }
            names
        };
        let state = self.shared.state.lock();
        Holdings(names.into_iter().map(|name| (name, state.held(self.realm, name))).collect())
    }
}
