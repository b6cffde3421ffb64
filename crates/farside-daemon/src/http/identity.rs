//! What exactly a destructive request is about: names can be given to something else while it waits.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::RawPathParams;
use farside_engine::{EngineError, VolumeName};

use crate::peers;
use crate::site::Site;

/// What a request of these names is about.
pub(super) struct Identity {
    names: RawPathParams,
    /// As it was when it was confirmed. Empty: it is about nothing that is there.
    text: String,
}

impl Identity {
    /// As it is now. None: there is no such thing, or its pool is not open.
    pub(super) async fn of(site: &Arc<Site>, route: &str, names: RawPathParams) -> Option<Identity> {
        let text = if route.contains('{') { look(site, &names).await? } else { String::new() };
        Some(Identity { names, text })
    }

    /// Whether it is the same now.
    pub(super) async fn is_still(&self, site: &Arc<Site>) -> bool {
        self.text.is_empty() || look(site, &self.names).await.as_ref() == Some(&self.text)
    }
}

/// The ids that these names have now, with the size of a volume: whoever confirmed a larger one has not confirmed a smaller one.
async fn look(site: &Arc<Site>, names: &RawPathParams) -> Option<String> {
    let name =
        |wanted: &str| names.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    let (pool, volume, snapshot, peer) = (name("pool"), name("volume"), name("snapshot"), name("peer"));
    let mut identity = String::new();
    if let Some(peer) = peer {
        let peer = peers::named(&site.node, &peer).ok()?;
        let _ = write!(identity, "peer {} ", peer.record.id);
    }
    let Some(pool) = pool else { return (!identity.is_empty()).then_some(identity) };
    let listed = site.pools.list().into_iter().find(|listed| listed.name == pool)?;
    let _ = write!(identity, "pool {:?} {} ", listed.uuid, listed.path);
    let Some(volume) = volume else { return Some(identity) };
    if site.pools.is_clustered(&pool) {
        return look_in_cluster(site, identity, VolumeName { pool, volume }, snapshot).await;
    }
    let open = site.pools.get(&pool).ok()?;
    let found = open.volumes().into_iter().find(|found| found.name == volume)?;
    let _ = write!(identity, "volume {} {} ", found.uuid, found.size_bytes);
    let full = format!("{pool}/{volume}");
    let mirrors = site.mirrors.statuses().into_iter();
    for mirror in mirrors.filter(|mirror| mirror.relationship.destination.to_string() == full) {
        let _ = write!(identity, "mirror {} ", mirror.relationship.id);
    }
    let Some(snapshot) = snapshot else { return Some(identity) };
    let snapshots = site.blocking.run(move || open.snapshots(&volume)).await.ok()?;
    let found = snapshots.into_iter().find(|found| found.name == snapshot)?;
    let _ = write!(identity, "snapshot {}", found.uuid);
    Some(identity)
}

async fn look_in_cluster(
    site: &Arc<Site>,
    mut identity: String,
    name: VolumeName,
    snapshot: Option<String>,
) -> Option<String> {
    let (engine, of) = (site.pools.engine(), name.clone());
    let look = move || Ok::<_, EngineError>((engine.volume(&of)?, engine.snapshots(&of)?));
    let (found, snapshots) = site.far.run(look).await.ok()?;
    let _ = write!(identity, "volume {} {} ", found.uuid, found.size_bytes);
    let mirrors = site.mirrors.statuses().into_iter();
    for mirror in mirrors.filter(|mirror| mirror.relationship.destination == name) {
        let _ = write!(identity, "mirror {} ", mirror.relationship.id);
    }
    let Some(snapshot) = snapshot else { return Some(identity) };
    let found = snapshots.into_iter().find(|found| found.name == snapshot)?;
    let _ = write!(identity, "snapshot {}", found.uuid);
    Some(identity)
}
