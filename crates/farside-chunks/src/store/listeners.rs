//! Who is told what comes and goes in a realm.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::name::{ContainerName, RealmId};

/// Names that wait to be told to a peer at most. One that is not told costs a question.
const CHANGES_MAX: usize = 1 << 17;

/// Containers of a realm of which something has changed, for somebody who tells it to a peer.
pub(super) type Changes = Mutex<BTreeSet<ContainerName>>;

#[derive(Default)]
pub(super) struct Listeners(HashMap<RealmId, Vec<Weak<Changes>>>);

impl Listeners {
    /// One more, who is told these first.
    pub(super) fn add(&mut self, realm: RealmId, first: impl Iterator<Item = ContainerName>) -> Arc<Changes> {
        let changes: Arc<Changes> = Arc::new(Mutex::new(first.collect()));
        self.0.entry(realm).or_default().push(Arc::downgrade(&changes));
        changes
    }

    pub(super) fn changed(&mut self, realm: RealmId, name: ContainerName) {
        let Some(listeners) = self.0.get_mut(&realm) else { return };
        listeners.retain(|listener| {
            let Some(changes) = listener.upgrade() else { return false };
            let mut changes = changes.lock();
            if changes.len() < CHANGES_MAX {
                changes.insert(name);
            }
            true
        });
        if listeners.is_empty() {
            self.0.remove(&realm);
        }
    }
}
