//! Start to stop.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_api::{ErrorBody, Site as SiteDocument};
use farside_link::{Congestion, HostTcp, Rules, TcpTransport};
use farside_mirror::SourceService;
use farside_peer::{Identity, Node, NodeConfig, NodeParts};
use farside_platform::{Clock, OsRandomness, Randomness, SystemClock, SystemCores};
use farside_store::Pool;
use farside_transfer::source::{EncoderSettings, Similarity};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accelerator::{self, Accelerator, AcceleratorParts};
use crate::blocking::Blocking;
use crate::data_dir::DataDir;
use crate::error::DaemonError;
use crate::exports::Exports;
use crate::listen::{Guests, Manners, Visit};
use crate::logging::Log;
use crate::metrics::Metrics;
use crate::mirrors::{MirrorParts, Mirrors};
use crate::operations::Operations;
use crate::options::{Config, Listen, Options, reread_accelerator};
use crate::peers::Rights;
use crate::pools::Pools;
use crate::pools::opening::Opening;
use crate::similarity::SimilarityFiles;
use crate::site::Site;
use crate::state::State;
use crate::throttles::Throttles;
use crate::{http, listen, logging, service};

/// How long requests under way may take to end once the stop has begun. systemd's own patience is 90 s.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(20);

/// How long the start waits for pools to open. Those that take longer follow by themselves, and hold up nobody.
const POOLS_OPEN_WITHIN: Duration = Duration::from_secs(10);

/// The control socket.
const CONTROL_SOCKET: &str = "farside.sock";
/// The NBD socket.
const NBD_SOCKET: &str = "nbd.sock";
/// Holds the address that is really listened on, whatever port was asked for.
const PEER_ADDRESS_FILE: &str = "peer.addr";
/// The same for `/metrics`.
const HTTP_ADDRESS_FILE: &str = "http.addr";

/// Runs a daemon until SIGTERM or SIGINT. Prints one line to stdout when everything serves.
///
/// # Errors
/// Whatever keeps it from starting; once it serves, it ends only by a signal.
pub fn run(options: Options) -> Result<(), DaemonError> {
    let config = Config::resolve(options)?;
    let log = logging::start(&config)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(DaemonError::Start)?;
    let served = runtime.block_on(serve(config, log.clone()));
    drop(runtime);
    log.finish();
    served
}

async fn serve(config: Config, log: Log) -> Result<(), DaemonError> {
    // Before anything else: a signal during the start must not leave half a daemon behind.
    let mut signals = Signals::listen().map_err(DaemonError::Start)?;
    let data_dir = DataDir::acquire(&config.data_dir)?;
    let http_listener = match &config.http {
        Listen::Off => None,
        Listen::At(address) => Some(listen::tcp("http", "--http", address).await?),
    };
    let (site, late) = start(config, log, &data_dir, http_listener.as_ref()).await?;

    let stop = CancellationToken::new();
    let requests = TaskTracker::new();
    let hosts = serve_hosts(&site, &data_dir, stop.clone())?;
    tokio::spawn(service::feed_watchdog());
    let mirrors = Arc::clone(&site.mirrors);
    requests.spawn(stop.clone().run_until_cancelled_owned(async move { mirrors.keep_fences().await }));
    let mirrors = Arc::clone(&site.mirrors);
    requests
        .spawn(stop.clone().run_until_cancelled_owned(async move { mirrors.watch_recorded_rights().await }));
    let mirrors = Arc::clone(&site.mirrors);
    requests
        .spawn(stop.clone().run_until_cancelled_owned(async move { mirrors.keep_within_budgets().await }));
    requests.spawn(stop.clone().run_until_cancelled_owned(follow_throttles(Arc::clone(&site))));
    for pool in late {
        requests.spawn(stop.clone().run_until_cancelled_owned(open_late(Arc::clone(&site), pool)));
    }
    let accelerator = Arc::clone(&site.accelerator);
    requests.spawn(stop.clone().run_until_cancelled_owned(async move { accelerator.follow_peers().await }));
    if let Some(listener) = http_listener {
        let guests = Guests::new(listener, Manners::PUBLIC, stop.clone());
        let service = http::public(Arc::clone(&site)).into_make_service_with_connect_info::<Visit>();
        let server = axum::serve(guests, service).with_graceful_shutdown(stop.clone().cancelled_owned());
        // The stop does not wait for it: nothing there needs to end.
        tokio::spawn(server.into_future());
    }
    let control = farside_nbd::bind_unix(&data_dir.join(CONTROL_SOCKET), listen::SOCKET_MODE)?;
    let guests = Guests::new(control, Manners::CONTROL, stop.clone());
    let service =
        http::control(Arc::clone(&site), requests.clone()).into_make_service_with_connect_info::<Visit>();
    let server = axum::serve(guests, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    requests.spawn(server.into_future());
    announce(&site, &data_dir)?;

    let signal = signals.wait().await;
    tracing::info!(signal, "stopping: transfers are cut and continue after the next start; pools are closed");
    service::stopping();
    stop.cancel();
    end(&site, &data_dir, requests, hosts).await;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the rooms, lowest first. Answers with the pools that are still being opened, too.
pub(crate) async fn start(
    config: Config,
    log: Log,
    data_dir: &DataDir,
    http_listener: Option<&TcpListener>,
) -> Result<(Arc<Site>, Vec<Opening>), DaemonError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let randomness: Arc<dyn Randomness> = Arc::new(OsRandomness);
    let metrics = Metrics::install();
    let blocking = Blocking::default();
    let identity = Identity::load_or_create(data_dir.path())?;
    let state = State::open(&data_dir.join("farside.db")).await?;
    let throttles = Throttles::load(&state).await?;

    // Pools before peers: whoever is met finds them open.
    let pools = Arc::new(Pools::new(Arc::clone(&clock), Arc::clone(&randomness)));
    let late = open_pools(&pools, &state).await?;
    pools.set_host_reserve(config.replicas.reserve_percent);
    let rights = Arc::new(Rights::load(&state, Arc::clone(&pools) as _).await?);
    let engine = pools.engine();
    let source = SourceService::open(
        Arc::clone(&engine),
        Arc::clone(&rights) as _,
        Arc::new(state.clone()),
        Arc::clone(&clock),
        Similarity {
            store: Arc::new(SimilarityFiles::new(data_dir.path())),
            bytes_per_tib: config.similarity_bytes_per_tib,
        },
        EncoderSettings {
            effort: config.effort,
            memory_bytes: config.encoder_memory_bytes,
            cores: Arc::new(SystemCores::new(Arc::clone(&clock))),
        },
    );
    let source = Arc::new(source.await?);
    source.set_budgets(config.budgets);
    let node_config = NodeConfig {
        listen: match &config.peer_listen {
            Listen::Off => None,
            Listen::At(address) => Some(address.clone()),
        },
        isolated: config.isolated,
        ..NodeConfig::new(config.name.clone())
    };
    let parts = NodeParts {
        identity,
        transport: Arc::new(TcpTransport),
        registry: Arc::new(state.clone()),
        service: Arc::clone(&source) as _,
        clock: Arc::clone(&clock),
        random: Arc::clone(&randomness),
    };
    if config.isolated {
        tracing::warn!(
            "this site runs isolated: it meets no peer, so mirrors stand still in both directions. Volumes are served to hosts \
             of this machine. To go on with the mirrors, start farsided without --isolated"
        );
    }
    for advice in HostTcp::read().advice(&Congestion::default()) {
        tracing::info!("{advice}");
    }
    let node = Node::start(node_config, parts).await?;
    throttles.follow(&node, clock.now());
    let exports = Arc::new(Exports::new(Arc::clone(&pools)));
    let mirrors = Arc::new(Mirrors::new(MirrorParts {
        exports: Arc::clone(&exports),
        pools: Arc::clone(&pools),
        engine,
        node: node.clone(),
        source,
        rights: Arc::clone(&rights),
        state: state.clone(),
        blocking: blocking.clone(),
        limits: config.replicas,
        clock: Arc::clone(&clock),
        randomness,
    }));
    mirrors.load_transfer_size().await?;
    // Before hosts are served: a fence must survive a restart without a gap. Pools that come late find theirs: of a volume that
    // nobody can look at its name counts.
    mirrors.refresh_fences();
    if let Err(error) = mirrors.tell_endings().await {
        tracing::error!(
            "the sources of deleted mirrors are not told that these have ended: {}",
            error.message
        );
    }
    for (name, pool) in pools.open_pools() {
        start_mirrors(&mirrors, &name, &pool).await;
    }
    let (named, directory) = (config.file.clone(), data_dir.path().to_path_buf());
    let accelerator = Accelerator::load(AcceleratorParts {
        config: &config.accelerator,
        isolated: config.isolated,
        reread: Box::new(move || {
            reread_accelerator(named.as_deref(), &directory).map_err(|error| error.to_string())
        }),
        site_name: &config.name,
        log: &config.log,
        log_format: config.log_format,
        data_dir: data_dir.path(),
        clock: Arc::clone(&clock),
        state: &state,
        program: accelerator::program(),
    });
    let accelerator = accelerator.await?;
    let http_address = http_listener.map(TcpListener::local_addr).transpose().map_err(DaemonError::Start)?;
    let document = SiteDocument {
        name: config.name.clone(),
        id: node.id().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: data_dir.path().display().to_string(),
        peer_address: node.listen_address().map(str::to_owned),
        http_address: http_address.map(|address| address.to_string()),
        nbd_socket: data_dir.join(NBD_SOCKET).display().to_string(),
    };
    let site = Site {
        document,
        state,
        blocking,
        streams: Blocking::default(),
        metrics,
        exports,
        pool_lock: tokio::sync::Mutex::default(),
        pools,
        node,
        rights,
        throttles,
        mirrors,
        accelerator: Arc::new(accelerator),
        operations: Operations::new(Arc::clone(&clock)),
        log,
        started_at: clock.now(),
        configuration: config,
        clock,
    };
    Ok((Arc::new(site), late))
}

async fn start_mirrors(mirrors: &Mirrors, name: &str, pool: &Pool) {
    if let Err(error) = mirrors.pool_opened(name, pool).await {
        tracing::error!(
            pool = name,
            "the mirrors of pool {name} did not start: {}. Its volumes are served; its replicas stay as they are but get no \
             updates and cannot be broken off. Fix the cause and restart farsided. In an emergency stop farsided, move \
             farside.db and farside.db-wal out of the data directory, start farsided, and run farside pool import",
            error.message
        );
    }
}

/// Opens every pool that is known, all at once. One that cannot be opened is listed with its reason, and stops nobody; one that takes
/// longer than [`POOLS_OPEN_WITHIN`] is among those that are answered.
async fn open_pools(pools: &Arc<Pools>, state: &State) -> Result<Vec<Opening>, DaemonError> {
    let until = Instant::now() + POOLS_OPEN_WITHIN;
    let rows = state.pools().await?;
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
            Ok(outcome) => tell_opened(&row.name, &row.path, &pools.finish_opening(&opening, outcome)),
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
async fn open_late(site: Arc<Site>, mut opening: Opening) {
    let outcome = opening.opened().await;
    // One pool is opened or closed at a time.
    let _guard = site.pool_lock.lock().await;
    let opened = site.pools.finish_opening(&opening, outcome);
    tell_opened(&opening.name, &opening.path, &opened);
    if let Ok(pool) = opened {
        start_mirrors(&site.mirrors, &opening.name, &pool).await;
        // Its volumes are known by more than their names now.
        site.mirrors.refresh_fences();
    }
}

/// Serves NBD until `stop`.
fn serve_hosts(
    site: &Site,
    data_dir: &DataDir,
    stop: CancellationToken,
) -> Result<tokio::task::JoinHandle<()>, DaemonError> {
    let listener = farside_nbd::bind_unix(&data_dir.join(NBD_SOCKET), listen::SOCKET_MODE)?;
    let server = farside_nbd::Server::new(Arc::clone(&site.exports) as _, farside_nbd::Limits::default())
        .map_err(DaemonError::Start)?;
    Ok(tokio::spawn(async move { server.serve_unix(listener, stop).await }))
}

/// Ends the rooms, highest first. Hosts are waited for without limit: their commands under way are the store's, which
/// ends by itself.
async fn end(
    site: &Arc<Site>,
    data_dir: &DataDir,
    requests: TaskTracker,
    hosts: tokio::task::JoinHandle<()>,
) {
    data_dir.withdraw(CONTROL_SOCKET);
    tokio::join!(site.mirrors.shut_down(), site.accelerator.shut_down());
    site.operations.finish().await;
    site.node.shutdown().await;
    requests.close();
    if tokio::time::timeout(REQUESTS_END_WITHIN, requests.wait()).await.is_err() {
        tracing::warn!(
            "requests were still running after {} s; they are cut off",
            REQUESTS_END_WITHIN.as_secs()
        );
    }
    if let Err(error) = hosts.await {
        tracing::error!(%error, "the NBD server failed");
    }
    let pools = Arc::clone(&site.pools);
    let closed = site.blocking.run(move || {
        pools.close_all();
        Ok::<_, farside_api::ErrorBody>(())
    });
    if let Err(error) = closed.await {
        tracing::error!(%error, "the pools were not closed; nothing flushed is lost, opening them replays the journal");
    }
    site.state.close().await;
    data_dir.withdraw(PEER_ADDRESS_FILE);
    data_dir.withdraw(HTTP_ADDRESS_FILE);
}

/// One line, for people and for whoever waits for it.
fn announce(site: &Site, data_dir: &DataDir) -> Result<(), DaemonError> {
    let document = &site.document;
    for (file, address) in
        [(PEER_ADDRESS_FILE, &document.peer_address), (HTTP_ADDRESS_FILE, &document.http_address)]
    {
        match address {
            Some(address) => data_dir.publish(file, &format!("{address}\n"))?,
            None => data_dir.withdraw(file),
        }
    }
    let off = || String::from("off");
    let line = format!(
        "farsided {} ready: control {}, peers {}, http {}",
        document.name,
        Path::new(&document.data_dir).join(CONTROL_SOCKET).display(),
        document.peer_address.clone().unwrap_or_else(off),
        document.http_address.clone().unwrap_or_else(off),
    );
    service::ready(&line);
    // A closed stdout is no reason to end, and one that nobody reads no reason to wait.
    std::thread::spawn(move || {
        let _ = writeln!(std::io::stdout(), "{line}");
    });
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the one that ends the daemon. SIGHUP is not: whoever sends it wants a configuration or a log file taken up
    /// anew, or has left a terminal, and hosts have their volumes from here.
    async fn wait(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hangup.recv() => tracing::info!(
                    "SIGHUP: nothing to reload, everything goes on. A changed farside.toml is taken up by a restart"
                ),
            }
        }
    }
}

/// Has every limit follow the clock, as long as the daemon runs.
async fn follow_throttles(site: Arc<Site>) {
    loop {
        let now = site.clock.now();
        site.throttles.follow(&site.node, now);
        site.mirrors.follow_throttles();
        // Looked at anew each minute: a wall clock that is set is noticed then.
        tokio::time::sleep(Rules::good_for(now)).await;
    }
}
