//! Asks the clusters of pools of Ceph for their room, and shows what they told.

use std::sync::Arc;

use farside_api::Pool as Document;

use super::Pools;
use super::cluster_room::warning;

impl Pools {
    /// Has the room of each connected pool of Ceph be looked at.
    pub(super) fn look_at_clusters(self: &Arc<Self>) {
        for name in self.clustered() {
            if !self.cluster_rooms.begin(&name) {
                continue;
            }
            let (pools, of) = (Arc::clone(self), name.clone());
            let look = move || {
                pools.look_at_cluster(&of);
                pools.cluster_rooms.end(&of);
            };
            if std::thread::Builder::new().name("pool-room".to_owned()).spawn(look).is_err() {
                self.cluster_rooms.end(&name);
            }
        }
    }

    /// Asks the cluster of a pool for its room.
    pub(super) fn look_at_cluster(&self, name: &str) {
        match self.rbd.ask_room(name) {
            Ok(room) => self.cluster_rooms.note(name, room),
            // Taken away meanwhile, or away: who has to know that is told by others.
            Err(error) if self.cluster_rooms.note_silent(name) => {
                tracing::info!(pool = name, "how much room the pool has is not known: {error}");
            }
            Err(_) => {}
        }
    }

    /// Adds the room of a pool of Ceph to what is listed of it, as it was told last.
    pub(super) fn with_cluster_room(&self, pool: Document) -> Document {
        let Some(room) = self.rbd.room(&pool.name) else { return pool };
        let level = self.cluster_rooms.level(&pool.name, room);
        Document {
            size_bytes: Some(room.size_bytes()),
            used_bytes: Some(room.used_bytes),
            free_bytes: Some(room.free_bytes),
            room: Some(level),
            room_bytes: Some(room.free_bytes),
            warning: warning(level, room),
            ..pool
        }
    }
}
