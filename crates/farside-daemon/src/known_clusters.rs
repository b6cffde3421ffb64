//! The pools of Ceph that a site knows: connected at the start, each by itself, again and again until its cluster answers.

use std::sync::Arc;
use std::time::Duration;

use farside_api::ErrorBody;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::known_pools::start_mirrors;
use crate::pools::Pools;
use crate::pools::clustered::Unsettled;
use crate::pools::place::is_rbd;
use crate::site::Site;
use crate::state::{State, StateError};

/// From one try to connect a cluster, or to bring a volume in order, to the next.
const TRIED_EVERY: Duration = Duration::from_secs(10);
/// How long the start waits for clusters. Those that take longer follow by themselves, and hold up nobody.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// The same of a daemon that follows another: the site answers nobody meanwhile.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);

/// Notes which there are, before anybody asks. Nothing is connected yet; those of an isolated site never are: a cluster is the same one
/// wherever the copy runs, and its images are the original's.
pub(crate) async fn note(pools: &Pools, state: &State, is_isolated: bool) -> Result<(), StateError> {
    for row in state.pools().await?.into_iter().filter(|row| is_rbd(&row.path)) {
        if is_isolated {
            let why = format!(
                "this site runs isolated, and the images of {} are its original's own: what is practised there would happen to them. It is \
                 not connected",
                row.path
            );
            tracing::error!(pool = row.name, path = row.path, "pool not opened: {why}");
            pools.note_others(&row.name, &row.path, why);
            continue;
        }
        if let Err(error) = pools.note_clustered(&row.name, &row.path) {
            tracing::error!(pool = row.name, path = row.path, "the pool is not known: {}", error.message);
        }
    }
    Ok(())
}

/// Begins to connect all that are known. The start waits for those whose clusters answer soon.
pub(crate) async fn begin_connecting(site: &Arc<Site>, tasks: &TaskTracker, stop: &CancellationToken) {
    let mut first = Vec::new();
    for (name, path) in site.pools.waiting_for_clusters() {
        let (tried, is_tried) = oneshot::channel();
        first.push(is_tried);
        let connect = connect_late(Arc::clone(site), name, path, tried);
        tasks.spawn(stop.clone().run_until_cancelled_owned(connect));
    }
    let all = async {
        for is_tried in first {
            // Nobody says more than that it was tried.
            _ = is_tried.await;
        }
    };
    let follows = site.keeper.as_ref().is_some_and(|keeper| keeper.others() > 0);
    let within = if follows { FOLLOWED_WITHIN } else { CONNECTED_WITHIN };
    if timeout(within, all).await.is_err() {
        tracing::warn!(
            "a pool of Ceph is not connected after {} s. The start goes on without it; farside pool list shows it",
            within.as_secs()
        );
    }
}

/// Connects a pool, whenever its cluster answers, and starts its mirrors. Ends when it is connected, or forgotten. Drops `tried` after
/// the first try.
async fn connect_late(site: Arc<Site>, name: String, path: String, tried: oneshot::Sender<()>) {
    let mut said = None;
    let mut tried = Some(tried);
    while site.pools.waits_for_cluster(&name) {
        let connected = connect(&site, &name, &path).await;
        drop(tried.take());
        match connected {
            Ok(()) => return,
            Err(error) if said.as_ref() != Some(&error.message) => {
                tracing::error!(
                    pool = name,
                    path,
                    "the pool's cluster is not connected: {}. Its mirrors wait; all other pools go on. It is tried every {} s",
                    error.message,
                    TRIED_EVERY.as_secs()
                );
                said = Some(error.message);
            }
            Err(_) => {}
        }
        tokio::time::sleep(TRIED_EVERY).await;
    }
}

/// Goes on trying to connect a pool that somebody could not connect just now.
pub(crate) fn try_on(site: &Arc<Site>, name: &str, path: &str) {
    let (tried, _) = oneshot::channel();
    let connect = connect_late(Arc::clone(site), name.to_owned(), path.to_owned(), tried);
    tokio::spawn(site.stop.clone().run_until_cancelled_owned(connect));
}

/// Connects a pool, and starts its mirrors. Nobody who opens or closes another pool waits for its cluster.
async fn connect(site: &Arc<Site>, name: &str, path: &str) -> Result<(), ErrorBody> {
    let unsettled = join(site, name, path).await?;
    let _guard = site.pool_lock.lock().await;
    begin(site, name, unsettled).await
}

/// The same by somebody whose turn it is to open and close pools.
pub(crate) async fn connect_in_turn(site: &Arc<Site>, name: &str, path: &str) -> Result<(), ErrorBody> {
    let unsettled = join(site, name, path).await?;
    begin(site, name, unsettled).await
}

async fn join(site: &Site, name: &str, path: &str) -> Result<Unsettled, ErrorBody> {
    let (pools, of, at) = (Arc::clone(&site.pools), name.to_owned(), path.to_owned());
    let unsettled = site.far.run(move || pools.connect(&of, &at)).await?;
    tracing::info!(pool = name, path, "the pool's cluster is connected");
    Ok(unsettled)
}

/// Starts the mirrors. Volumes that are not in order are tried again for as long as it takes.
async fn begin(site: &Arc<Site>, name: &str, unsettled: Unsettled) -> Result<(), ErrorBody> {
    if !site.pools.is_clustered(name) {
        return Ok(());
    }
    for (volume, error) in &unsettled {
        tracing::warn!(%volume, "the volume is not in order; it is tried again every {} s: {error}", TRIED_EVERY.as_secs());
    }
    if !unsettled.is_empty() {
        tokio::spawn(
            site.stop.clone().run_until_cancelled_owned(settle_late(Arc::clone(site), name.to_owned())),
        );
    }
    let volumes = match site.mirrors.seen_in_cluster(name).await {
        Ok(volumes) => volumes,
        Err(error) => {
            // Not half: it is tried again as a whole.
            site.pools.disconnect(name)?;
            return Err(error);
        }
    };
    start_mirrors(&site.mirrors, name, &volumes).await;
    site.mirrors.refresh_fences();
    Ok(())
}

async fn settle_late(site: Arc<Site>, name: String) {
    loop {
        tokio::time::sleep(TRIED_EVERY).await;
        if !site.pools.is_clustered(&name) {
            return;
        }
        let (pools, of) = (Arc::clone(&site.pools), name.clone());
        let again = site.far.run(move || pools.settle_again(&of)).await;
        if again.is_ok_and(|unsettled| unsettled.is_empty()) {
            tracing::info!(pool = name, "all volumes of the pool are in order");
            return;
        }
    }
}
