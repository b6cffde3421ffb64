//! The pools that a site knows when it starts: opened at once, and served. One that takes long holds up nobody, and is served once it
//! is open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_api::ErrorBody;
use farside_store::Pool;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::error::DaemonError;
use crate::mirrors::Mirrors;
use crate::pools::Pools;
use crate::pools::opening::Opening;
use crate::pools::place::is_rbd;
use crate::pools::seen::{self, VolumeSeen};
use crate::site::Site;
use crate::state::{PoolRow, State};
use crate::whereabouts::{PoolAt, Whereabouts};

/// How long the start waits for pools to open. Those that take longer follow by themselves, and hold up nobody.
const POOLS_OPEN_WITHIN: Duration = Duration::from_secs(10);

/// Starts the mirrors of a pool that is open. Without them its volumes are served all the same.
pub(crate) async fn start_mirrors(mirrors: &Mirrors, name: &str, volumes: &[VolumeSeen]) {
    if let Err(error) = mirrors.pool_opened(name, volumes).await {
        tracing::error!(
            pool = name,
            "the mirrors of pool {name} did not start: {}. Its volumes are served; its replicas stay as they are but get no \
             updates and cannot be broken off. Fix the cause and restart farsided. In an emergency stop farsided, move \
             farside.db and farside.db-wal out of the data directory, start farsided, and run farside pool import",
            error.message
        );
    }
}

/// The pools that are known, each where it is now: those that lay in a data directory that was moved or copied came with it. One that is
/// another site's keeps its place, with the reason why it is not opened.
async fn known(
    pools: &Pools,
    state: &State,
    directory: &Path,
    is_isolated: bool,
) -> Result<Vec<PoolRow>, DaemonError> {
    let now = Whereabouts::now(directory);
    let last = state.whereabouts().await?.and_then(|text| serde_json::from_str(&text).ok());
    let mut known = Vec::new();
    for row in state.pools().await?.into_iter().filter(|row| !is_rbd(&row.path)) {
        match now.pool_at(&row.path, last.as_ref(), is_isolated, Path::exists) {
            PoolAt::Here => known.push(row),
            PoolAt::Moved(path) => {
                tracing::warn!(
                    pool = row.name,
                    before = row.path,
                    path,
                    "the data directory was moved or copied, and the pool with it"
                );
                state.move_pool(&row.name, &path).await?;
                known.push(PoolRow { path, ..row });
            }
            PoolAt::Original(why) => {
                tracing::error!(pool = row.name, path = row.path, "pool not opened: {why}");
                pools.note_others(&row.name, &row.path, why);
            }
        }
    }
    if !is_isolated && let Ok(text) = serde_json::to_string(&now) {
        state.set_whereabouts(&text).await?;
    }
    Ok(known)
}

/// Opens every pool that is known, all at once. One that cannot be opened is listed with its reason, and stops nobody; one that takes
/// longer than [`POOLS_OPEN_WITHIN`] is among those that are answered.
pub(crate) async fn open(
    pools: &Arc<Pools>,
    state: &State,
    directory: &Path,
    is_isolated: bool,
) -> Result<Vec<Opening>, DaemonError> {
    let until = Instant::now() + POOLS_OPEN_WITHIN;
    let rows = known(pools, state, directory, is_isolated).await?;
    let known = rows.iter().map(|row| (row.name.clone(), row.path.clone())).collect();
    let mut late = Vec::new();
    for (opening, row) in pools.begin_opening(known).into_iter().zip(rows) {
        let mut opening = match opening {
            Ok(opening) => opening,
            Err(error) => {
                tell_opened(&row.name, &row.path, &Err(error));
                continue;
            }
        };
        match timeout_at(until, opening.opened()).await {
            // Nobody is served yet: its mirrors start before that, and look first.
            Ok(outcome) => {
                tell_opened(&row.name, &row.path, &pools.finish_opening(&opening, outcome, |_| {}))
            }
            Err(_) => {
                tracing::warn!(
                    pool = row.name,
                    path = row.path,
                    "the pool is not open after {} s: its device does not answer, or there is much to replay. The start goes on \
                     without it. Its volumes are not served and its mirrors wait until it is open; all other pools go on. farside \
                     pool status {} shows it; the kernel's log may say more",
                    POOLS_OPEN_WITHIN.as_secs(),
                    row.name
                );
                late.push(opening);
            }
        }
    }
    Ok(late)
}

fn tell_opened(name: &str, path: &str, outcome: &Result<Arc<Pool>, ErrorBody>) {
    match outcome {
        // Lines of the store know the pool by its id alone.
        Ok(pool) => tracing::info!(pool = name, id = %pool.status().id, path, "pool opened"),
        Err(error) => tracing::error!(
            pool = name,
            path,
            "pool not opened: {}. Its volumes are not served and its mirrors wait; all other pools go on. Nothing in it was \
             changed. To see what is wrong: farside pool check {path}. To open it again: farside pool reopen {name}",
            error.message,
        ),
    }
}

/// Waits for a pool that was not open when the start went on, and has it be served.
pub(crate) async fn open_late(site: Arc<Site>, mut opening: Opening) {
    let outcome = opening.opened().await;
    // One pool is opened or closed at a time.
    let _guard = site.pool_lock.lock().await;
    let (name, path) = (opening.name.clone(), opening.path.clone());
    // Hosts are served already: what must not be written is fenced before the pool is there. A database that does not say it
    // leaves the pool closed.
    let pools = Arc::clone(&site.pools);
    let served = match site.mirrors.look_before(&name).await {
        Ok(look) => site.blocking.run(move || pools.finish_opening(&opening, outcome, look)).await,
        Err(error) => {
            let close = move || {
                let outcome = outcome.and_then(|opened| {
                    opened.close(&opening.name);
                    Err(error)
                });
                pools.finish_opening(&opening, outcome, |_| {})
            };
            site.blocking.run(close).await
        }
    };
    tell_opened(&name, &path, &served);
    if let Ok(pool) = served {
        start_mirrors(&site.mirrors, &name, &seen::of_store(&pool)).await;
        // Its volumes are known by more than their names now.
        site.mirrors.refresh_fences();
        readers_go_on(&site, name, pool).await;
    }
}

/// Goes on with a scrub and with deduplication that the last stop interrupted.
pub(crate) async fn readers_go_on(site: &Site, name: String, pool: Arc<Pool>) {
    let (scrubs, dedups, runtime) = (Arc::clone(&site.scrubs), Arc::clone(&site.dedups), Handle::current());
    let open = move || {
        scrubs.pool_opened(&name, &pool, &runtime);
        dedups.pool_opened(&name, &pool, &runtime);
        Ok::<_, ErrorBody>(())
    };
    if let Err(error) = site.blocking.run(open).await {
        tracing::warn!("scrub and deduplication do not go on: {}", error.message);
    }
}
