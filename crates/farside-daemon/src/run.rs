//! Start to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_api::Site as SiteDocument;
use farside_link::{Congestion, HostTcp, Rules, TcpTransport};
use farside_mirror::{ReplicaLimits, SourceService};
use farside_peer::{Identity, Node, NodeConfig, NodeParts};
use farside_platform::{Clock, OsRandomness, Randomness, SystemClock, SystemCores};
use farside_transfer::precedence::{self, Precedence};
use farside_transfer::source::{EncoderSettings, Similarity};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accelerator::{self, Accelerator, AcceleratorParts};
use crate::access::Access;
use crate::alarms::{Alarms, watch};
use crate::api_certificate::{self, ApiCertificate};
use crate::blocking::Blocking;
use crate::daemons::again::begin_again;
use crate::daemons::announce;
use crate::daemons::fence::Fence;
use crate::daemons::keeper::Keeper;
use crate::daemons::stand::{Leads, Stood, stand};
use crate::data_dir::{
    API_ADDRESS_FILE, CONTROL_SOCKET, DataDir, HTTP_ADDRESS_FILE, NBD_ADDRESS_FILE, NBD_SOCKET,
    PEER_ADDRESS_FILE, STATE_FILE,
};
use crate::dedups::Dedups;
use crate::delays::Delays;
use crate::drills::Drills;
use crate::error::DaemonError;
use crate::events::Events;
use crate::exports::Exports;
use crate::hosts::{Door, Hosts, Trust};
use crate::listen::{Guests, Manners, TlsListener, Visit};
use crate::logging::Log;
use crate::metrics::Metrics;
use crate::mirrors::{MirrorParts, Mirrors};
use crate::operations::Operations;
use crate::options::{Config, Listen, NbdConfig, NbdTls, Options, reread_accelerator};
use crate::peers::Rights;
use crate::pool_marks::PoolMarks;
use crate::pools::Pools;
use crate::pools::opening::Opening;
use crate::pools::seen;
use crate::scrubs::Scrubs;
use crate::signals::Signals;
use crate::similarity::SimilarityFiles;
use crate::site::Site;
use crate::sites::door::{PeerDoor, peer_door};
use crate::sites::seen::SitesSeen;
use crate::sites::shares::Shares;
use crate::snapshot_schedules::SnapshotSchedules;
use crate::state::{DatabaseAddress, State};
use crate::throttles::Throttles;
use crate::{convert, http, known_clusters, known_pools, listen, logging, service};

/// How long requests under way may take to end once the stop has begun. systemd's own patience is 90 s.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(20);

/// Runs a daemon until SIGTERM or SIGINT. Prints one line to stdout when everything serves.
///
/// # Errors
/// Whatever keeps it from starting; once it serves, it ends only by a signal.
pub fn run(options: Options) -> Result<(), DaemonError> {
    let config = Config::resolve(options)?;
    let log = logging::start(&config)?;
    if let Err(error) = farside_platform::raise_open_files() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(DaemonError::Start)?;
    // Threads of their own: on the others a host would wait behind whatever else is encrypted, parsed or written there.
    let hosts = tokio::runtime::Builder::new_multi_thread().thread_name("hosts").enable_all().build();
    let hosts = hosts.map_err(DaemonError::Start)?;
    let served = runtime.block_on(serve(config, log.clone(), hosts.handle()));
    drop(hosts);
    drop(runtime);
    log.finish();
    match served? {
        Served::Ended => Ok(()),
        Served::StandsAgain => begin_again(),
    }
}

/// Why the daemon has stopped.
enum Served {
    /// The process is to end.
    Ended,
    /// Another daemon of the site leads, or will.
    StandsAgain,
}

async fn serve(mut config: Config, log: Log, for_hosts: &Handle) -> Result<Served, DaemonError> {
    // Before anything else: a signal during the start must not leave half a daemon behind.
    let mut signals = Signals::listen().map_err(DaemonError::Start)?;
    let data_dir = DataDir::acquire(&config.data_dir)?;
    let database = config.database_address(&data_dir.join(STATE_FILE))?;
    let (database, keeper, stop) = match database {
        DatabaseAddress::File(path) => (DatabaseAddress::File(path), None, CancellationToken::new()),
        DatabaseAddress::Server(server) => {
            let leads = match stand(&config, &data_dir, &server, &mut signals).await? {
                Stood::Leads(leads) => *leads,
                Stood::Ended => return Ok(Served::Ended),
            };
            let Leads { leading, member, desk, card } = leads;
            let (lead, stop) = (leading.lead, CancellationToken::new());
            if leading.others > 0 && leading.site_name != config.name {
                tracing::warn!(
                    name = config.name,
                    site = leading.site_name,
                    "this daemon is set up with another name of the site than its others; it goes by theirs"
                );
                config.name.clone_from(&leading.site_name);
            }
            let keeper = Keeper::new(leading, data_dir.path().to_path_buf(), member, desk, card);
            keeper.watch(stop.clone())?;
            let (kept, stops) = (Arc::clone(&keeper), stop.clone());
            tokio::spawn(async move { kept.keep(&stops).await });
            (DatabaseAddress::Server(Box::new(server.with_lead(lead))), Some(keeper), stop)
        }
    };
    let http_listener = match &config.http {
        Listen::Off => None,
        Listen::At(address) => Some(listen::tcp("http", "--http", address).await?),
    };
    let nbd_listener = listen_for_hosts(&config.nbd).await?;
    let api_listener = match &config.api.listen {
        Listen::Off => None,
        Listen::At(address) => Some(listen::tcp("api", "--api-listen", address).await?),
    };
    let listeners =
        Listeners { http: http_listener.as_ref(), nbd: nbd_listener.as_ref(), api: api_listener.as_ref() };
    let opens = Opens { database, keeper: keeper.clone(), stop: stop.clone() };
    let (site, late, mut door) = start(config, log, &data_dir, listeners, opens).await?;
    if let Some(keeper) = &keeper {
        let document = site.document.clone();
        let fingerprint = site.api_certificate.as_ref().map(|certificate| certificate.fingerprint());
        keeper
            .introduce(|card| {
                card.api_address = document.api_address;
                card.api_fingerprint = fingerprint;
                card.peer_address = document.peer_address;
            })
            .await;
    }

    let requests = TaskTracker::new();
    let hosts = serve_hosts(&site, &data_dir, nbd_listener, stop.clone(), for_hosts)?;
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
    let pools = Arc::clone(&site.pools);
    requests.spawn(stop.clone().run_until_cancelled_owned(pools.keep_looking_at_paths()));
    let pools = Arc::clone(&site.pools);
    requests.spawn(stop.clone().run_until_cancelled_owned(pools.keep_looking_at_room()));
    let marked = Arc::clone(&site);
    let marking = async move {
        marked.pool_marks.keep_looking(&marked.pools, || convert::time(marked.clock.now())).await
    };
    requests.spawn(stop.clone().run_until_cancelled_owned(marking));
    requests.spawn(stop.clone().run_until_cancelled_owned(http::end_drills(Arc::clone(&site))));
    let timetables = Arc::clone(&site.snapshot_schedules);
    requests.spawn(stop.clone().run_until_cancelled_owned(timetables.run()));
    for pool in late {
        requests
            .spawn(stop.clone().run_until_cancelled_owned(known_pools::open_late(Arc::clone(&site), pool)));
    }
    known_clusters::begin_connecting(&site, &requests, &stop).await;
    site.looked.cancel();
    let watched = Arc::clone(&site);
    requests
        .spawn(stop.clone().run_until_cancelled_owned(async move { watch::keep_looking(&watched).await }));
    let told = Arc::clone(&site);
    requests
        .spawn(stop.clone().run_until_cancelled_owned(async move { told.alarms.keep_delivering().await }));
    let accelerator = Arc::clone(&site.accelerator);
    requests.spawn(stop.clone().run_until_cancelled_owned(async move { accelerator.follow_peers().await }));
    // Before the page that says that all is well: whoever waits for that uses the socket next.
    let control = farside_nbd::bind_unix(&data_dir.join(CONTROL_SOCKET), listen::SOCKET_MODE)?;
    if let Some(listener) = http_listener {
        let guests = Guests::new(listener, Manners::PUBLIC, stop.clone());
        let service = http::public(Arc::clone(&site)).into_make_service_with_connect_info::<Visit>();
        let server = axum::serve(guests, service).with_graceful_shutdown(stop.clone().cancelled_owned());
        // The stop does not wait for it: nothing there needs to end.
        tokio::spawn(server.into_future());
    }
    requests.spawn(stop.clone().run_until_cancelled_owned(http::keep_looking(Arc::clone(&site))));
    requests.spawn(stop.clone().run_until_cancelled_owned(http::keep_audit_within(Arc::clone(&site))));
    if let Some((listener, certificate)) = api_listener.zip(site.api_certificate.clone()) {
        serve_network(&site, listener, certificate, &stop, &requests)?;
    }
    if let Some(told) = door.told() {
        requests
            .spawn(stop.clone().run_until_cancelled_owned(announce::keep_listening(Arc::clone(&site), told)));
    }
    requests.spawn(stop.clone().run_until_cancelled_owned(announce::keep_telling(Arc::clone(&site))));
    requests.spawn(stop.clone().run_until_cancelled_owned(announce::keep_introducing(Arc::clone(&site))));
    let guests = Guests::new(door, Manners::PEERS, stop.clone());
    let service =
        http::control(Arc::clone(&site), requests.clone()).into_make_service_with_connect_info::<Visit>();
    let server = axum::serve(guests, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    // The sessions end with the node; the stop does not wait for whoever follows events there.
    tokio::spawn(server.into_future());
    let guests = Guests::new(control, Manners::CONTROL, stop.clone());
    let service =
        http::control(Arc::clone(&site), requests.clone()).into_make_service_with_connect_info::<Visit>();
    let server = axum::serve(guests, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    requests.spawn(server.into_future());
    announce(&site, &data_dir)?;

    tokio::select! {
        signal = signals.wait(site.api_certificate.as_deref()) => {
            tracing::info!(signal, "stopping: transfers are cut and continue after the next start; pools are closed");
            service::stopping();
        }
        // Why was said.
        () = stop.cancelled() => {}
    }
    stop.cancel();
    end(&site, &data_dir, requests, hosts).await;
    let Some(keeper) = keeper else {
        tracing::info!("stopped");
        return Ok(Served::Ended);
    };
    keeper.release().await;
    tracing::info!("stopped");
    Ok(if keeper.stands_again() { Served::StandsAgain } else { Served::Ended })
}

/// What the rooms are opened with, beside the configuration.
pub(crate) struct Opens {
    pub(crate) database: DatabaseAddress,
    /// The lease under which they are; none where the state is a file.
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// The daemon ends.
    pub(crate) stop: CancellationToken,
}

/// What is listened on over TCP, peers aside.
#[derive(Clone, Copy, Default)]
pub(crate) struct Listeners<'a> {
    http: Option<&'a TcpListener>,
    nbd: Option<&'a TcpListener>,
    api: Option<&'a TcpListener>,
}

impl Listeners<'_> {
    fn address(listener: Option<&TcpListener>) -> Result<Option<String>, DaemonError> {
        let address = listener.map(TcpListener::local_addr).transpose().map_err(DaemonError::Start)?;
        Ok(address.map(|address| address.to_string()))
    }
}

/// Serves the API over HTTPS until `stop`.
fn serve_network(
    site: &Arc<Site>,
    listener: TcpListener,
    certificate: Arc<ApiCertificate>,
    stop: &CancellationToken,
    requests: &TaskTracker,
) -> Result<(), DaemonError> {
    let configuration = certificate.configuration().map_err(DaemonError::Config)?;
    requests.spawn(stop.clone().run_until_cancelled_owned(certificate.follow()));
    let guests = Guests::new(TlsListener::new(listener, configuration), Manners::NETWORK, stop.clone());
    let service =
        http::control(Arc::clone(site), requests.clone()).into_make_service_with_connect_info::<Visit>();
    let server = axum::serve(guests, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    requests.spawn(server.into_future());
    Ok(())
}

/// Binds the address for hosts. Without TLS it must be one that only this machine can reach.
async fn listen_for_hosts(config: &NbdConfig) -> Result<Option<TcpListener>, DaemonError> {
    let Listen::At(address) = &config.listen else { return Ok(None) };
    if config.tls == NbdTls::Off {
        let found = tokio::net::lookup_host(address).await;
        check_loopback(address, found.map(Iterator::collect).unwrap_or_default())?;
    }
    Ok(Some(listen::tcp("nbd", "--nbd-listen", address).await?))
}

/// What the name or address of `[nbd]` stands for, where hosts come without TLS.
pub(crate) fn check_loopback(address: &str, found: Vec<SocketAddr>) -> Result<(), DaemonError> {
    if !found.is_empty() && found.iter().all(|address| address.ip().is_loopback()) {
        return Ok(());
    }
    Err(DaemonError::Config(format!(
        "[nbd]: tls = \"off\" lets whoever reaches {address} write every volume, so it is for loopback addresses only. \
         Remove tls = \"off\", and let hosts in by certificate (farside host add); or listen on 127.0.0.1"
    )))
}

/// Opens the rooms, lowest first. Answers with the pools that are still being opened, too.
pub(crate) async fn start(
    config: Config,
    log: Log,
    data_dir: &DataDir,
    listeners: Listeners<'_>,
    opens: Opens,
) -> Result<(Arc<Site>, Vec<Opening>, PeerDoor), DaemonError> {
    let Opens { database, keeper, stop } = opens;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let randomness: Arc<dyn Randomness> = Arc::new(OsRandomness);
    let metrics = Metrics::install();
    let (blocking, far) = (Blocking::default(), Blocking::default());
    let had_identity = data_dir.join(farside_peer::IDENTITY_FILE).exists();
    let identity = Identity::load_or_create(data_dir.path())?;
    let state = State::open_at(&database).await?;
    // A restart, at night by itself, must not make a loss unseen that nobody has done anything about.
    if had_identity && state.was_new() {
        state.note_made_anew(true).await?;
    }
    let is_made_anew = state.is_made_anew().await?;
    let is_lost = state.was_new() || (had_identity && is_made_anew);
    let half_new = half_new(had_identity, !is_lost);
    if let Some(what) = half_new {
        tracing::error!("{what}");
    }
    let throttles = Throttles::load(&state).await?;

    // Pools before peers: whoever is met finds them open.
    // A copy is no daemon of its original's site: in a cluster it takes nothing over from it.
    let of_site =
        if config.isolated { format!("{} isolated", identity.id()) } else { identity.id().to_string() };
    let pools = Arc::new(Pools::new(Arc::clone(&clock), Arc::clone(&randomness), &of_site));
    if let Some(keeper) = &keeper {
        let (state, runtime) = (state.clone(), Handle::current());
        _ = pools.fence.set(Fence { state, number: keeper.leading.lead.number, runtime });
    }
    let late = known_pools::open(&pools, &state, data_dir.path(), config.isolated).await?;
    known_clusters::note(&pools, &state, config.isolated).await?;
    if is_made_anew && !pools.list().is_empty() {
        state.note_made_anew(false).await?;
    }
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
    let looked = CancellationToken::new();
    let (service, door) = peer_door(Arc::clone(&source) as _, looked.clone());
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
        service: Arc::new(service),
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
    let hosts_first = Arc::new(precedence::Hosts::default());
    precedence::Threads::start(Arc::clone(&hosts_first)).map_err(DaemonError::Start)?;
    let scrubs = Scrubs::load(state.clone(), Arc::clone(&clock), Arc::clone(&hosts_first)).await?;
    let dedups = Dedups::load(state.clone(), Arc::clone(&clock), Arc::clone(&hosts_first)).await?;
    let snapshot_schedules = SnapshotSchedules::load(
        config.hooks.clone(),
        Arc::clone(&pools),
        state.clone(),
        (blocking.clone(), far.clone()),
        Arc::clone(&clock),
    );
    let snapshot_schedules = Arc::new(snapshot_schedules.await?);
    let drills = Drills::load(state.clone(), Arc::clone(&clock)).await?;
    let exports =
        Arc::new(Exports::new(Arc::clone(&pools), Arc::clone(&hosts_first), config.host_page_cache));
    hosts_first.set_precedence(stored_precedence(&state).await?);
    let trust = match &config.nbd.own {
        Some(files) => Trust::Own(files.clone()),
        None => Trust::Site { directory: data_dir.path().to_owned() },
    };
    let hosts = Arc::new(Hosts::load(trust, &state, Arc::clone(&exports), Arc::clone(&clock)).await?);
    let mirrors = Mirrors::new(MirrorParts {
        exports: Arc::clone(&exports),
        pools: Arc::clone(&pools),
        engine,
        node: node.clone(),
        source,
        rights: Arc::clone(&rights),
        state: state.clone(),
        blocking: blocking.clone(),
        far: far.clone(),
        daemon: keeper.as_ref().map(|keeper| keeper.name()),
        limits: ReplicaLimits { takes_up: true, ..config.replicas },
        clock: Arc::clone(&clock),
        randomness,
    });
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
        known_pools::start_mirrors(&mirrors, &name, &seen::of_store(&pool)).await;
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
    let alarms =
        Alarms::load(config.alarms.clone(), &config.name, config.isolated, state.clone(), Arc::clone(&clock))
            .await?;
    let access = Access::load(data_dir.path(), state.clone(), Arc::clone(&clock)).await?;
    let api_certificate = match &config.api.listen {
        Listen::Off => None,
        Listen::At(_) => Some(
            ApiCertificate::load(api_certificate::Source::of(&config.api, data_dir.path()))
                .map_err(DaemonError::Config)?,
        ),
    };
    let document = SiteDocument {
        name: config.name.clone(),
        id: node.id().to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        data_dir: data_dir.path().display().to_string(),
        peer_address: node.listen_address().map(str::to_owned),
        http_address: Listeners::address(listeners.http)?,
        api_address: Listeners::address(listeners.api)?,
        // Asked for anew each time: it may change.
        api_fingerprint: None,
        nbd_address: Listeners::address(listeners.nbd)?,
        nbd_socket: data_dir.join(NBD_SOCKET).display().to_string(),
    };
    let pool_marks = PoolMarks::load(&state).await?;
    let site = Site {
        document,
        state,
        keeper,
        blocking,
        far,
        streams: Blocking::default(),
        metrics,
        figures: Arc::default(),
        scrubs: Arc::new(scrubs),
        dedups: Arc::new(dedups),
        snapshot_schedules,
        drills,
        exports,
        hosts,
        hosts_first,
        pool_lock: tokio::sync::Mutex::default(),
        pools,
        pool_marks,
        node,
        rights,
        throttles,
        mirrors,
        accelerator: Arc::new(accelerator),
        access,
        delays: Delays::default(),
        asking: Shares::default(),
        sites_seen: SitesSeen::default(),
        events: Events::new(),
        stop,
        looked,
        api_certificate,
        host_name: farside_platform::host_name(),
        alarms,
        operations: Operations::new(Arc::clone(&clock)),
        log,
        started_at: clock.now(),
        half_new,
        configuration: config,
        clock,
    };
    let site = Arc::new(site);
    for (name, pool) in site.pools.open_pools() {
        known_pools::readers_go_on(&site, name, pool).await;
    }
    Ok((site, late, door))
}

/// How far hosts go before transfers. What cannot be read must not keep the daemon from its start.
async fn stored_precedence(state: &State) -> Result<Precedence, DaemonError> {
    let Some(text) = state.host_precedence().await? else { return Ok(Precedence::default()) };
    Ok(Precedence::named(&text).unwrap_or_else(|| {
        let taken = Precedence::default();
        tracing::error!(
            text,
            "the stored precedence of hosts is invalid; it is {} now. Set it again: farside site set --host-precedence",
            taken.name()
        );
        taken
    }))
}

/// What a data directory says that has lost one of the two that belong together; none if both were there, or neither.
fn half_new(had_identity: bool, had_state: bool) -> Option<&'static str> {
    match (had_identity, had_state) {
        (true, false) => Some(
            "the state database was not there, or empty, and was made anew, though this site has had its key before: its pools, \
             peers and mirrors are not known. Nothing of them is lost. farside pool import opens a pool; the page Repairing a site \
             of the manual (guides/repair) says the rest",
        ),
        (false, true) => Some(
            "this site's key (identity.pem) was not there and was made anew, though its state database was: peers refuse it. Put \
             the file back from a backup, or follow the page A site with another key of the manual (guides/keys)",
        ),
        (true, true) | (false, false) => None,
    }
}

/// Serves NBD until `stop`: on the Unix socket, and over TCP if that is wanted.
fn serve_hosts(
    site: &Site,
    data_dir: &DataDir,
    network: Option<TcpListener>,
    stop: CancellationToken,
    threads: &Handle,
) -> Result<tokio::task::JoinHandle<()>, DaemonError> {
    let _here = threads.enter();
    let network = network.map(|listener| listener.into_std().and_then(TcpListener::from_std));
    let network = network.transpose().map_err(DaemonError::Start)?;
    let door = match &network {
        Some(_) if site.configuration.nbd.tls == NbdTls::Required => {
            let door = Door::new(Arc::clone(&site.hosts), &site.configuration.nbd.names);
            Some(Arc::new(door.map_err(DaemonError::Config)?))
        }
        _ => None,
    };
    let listener = farside_nbd::bind_unix(&data_dir.join(NBD_SOCKET), listen::SOCKET_MODE)?;
    let mut limits = farside_nbd::Limits::default();
    // The other half is for pools, peers and whoever asks for something.
    let places = farside_platform::open_files_max().map_or(usize::MAX, |files| files as usize / 2);
    limits.connections_max = limits.connections_max.min(places);
    let server =
        farside_nbd::Server::new(Arc::clone(&site.exports) as _, limits).map_err(DaemonError::Start)?;
    if network.is_some() && door.is_none() {
        tracing::warn!(
            "NBD over TCP without TLS (tls = \"off\"): every user of this machine who may connect there can write every volume"
        );
    }
    Ok(threads.spawn(async move {
        let over_network = async {
            match (network, door) {
                (Some(network), Some(door)) => server.serve_hosts(network, door as _, stop.clone()).await,
                (Some(network), None) => server.serve_plain(network, stop.clone()).await,
                (None, _) => {}
            }
        };
        tokio::join!(server.serve_unix(listener, stop.clone()), over_network);
    }))
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
    // What is frozen is thawed at once.
    tokio::join!(site.snapshot_schedules.finish(), site.mirrors.shut_down(), site.accelerator.shut_down());
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
    site.pool_marks.look(&site.pools, convert::time(site.clock.now())).await;
    let (pools, scrubs, dedups) =
        (Arc::clone(&site.pools), Arc::clone(&site.scrubs), Arc::clone(&site.dedups));
    let closed = site.blocking.run(move || {
        scrubs.shut_down();
        dedups.shut_down();
        pools.close_all();
        Ok::<_, farside_api::ErrorBody>(())
    });
    if let Err(error) = closed.await {
        tracing::error!(%error, "the pools were not closed; nothing flushed is lost, opening them replays the journal");
    }
    site.state.close().await;
    data_dir.withdraw(PEER_ADDRESS_FILE);
    data_dir.withdraw(HTTP_ADDRESS_FILE);
    data_dir.withdraw(NBD_ADDRESS_FILE);
    data_dir.withdraw(API_ADDRESS_FILE);
}

/// One line, for people and for whoever waits for it.
fn announce(site: &Site, data_dir: &DataDir) -> Result<(), DaemonError> {
    let document = &site.document;
    for (file, address) in [
        (PEER_ADDRESS_FILE, &document.peer_address),
        (HTTP_ADDRESS_FILE, &document.http_address),
        (NBD_ADDRESS_FILE, &document.nbd_address),
        (API_ADDRESS_FILE, &document.api_address),
    ] {
        match address {
            Some(address) => data_dir.publish(file, &format!("{address}\n")),
            None => data_dir.withdraw(file),
        }
    }
    let off = || String::from("off");
    let line = format!(
        "farsided {} ready: control {}, peers {}, http {}, nbd {}, api {}",
        document.name,
        Path::new(&document.data_dir).join(CONTROL_SOCKET).display(),
        document.peer_address.clone().unwrap_or_else(off),
        document.http_address.clone().unwrap_or_else(off),
        document.nbd_address.clone().unwrap_or_else(off),
        document.api_address.clone().unwrap_or_else(off),
    );
    service::say_ready(line);
    Ok(())
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
