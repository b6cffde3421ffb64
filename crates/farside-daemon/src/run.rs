//! Start to stop.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use farside_api::Site as SiteDocument;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::blocking::Blocking;
use crate::data_dir::DataDir;
use crate::error::DaemonError;
use crate::metrics::Metrics;
use crate::options::{Config, Listen, Options};
use crate::site::Site;
use crate::state::State;
use crate::{http, listen, logging, service};

/// How long requests under way may take to end once the stop has begun. systemd's own patience is 90 s.
const REQUESTS_END_WITHIN: Duration = Duration::from_secs(20);

/// The control socket.
const CONTROL_SOCKET: &str = "farside.sock";
/// The NBD socket.
const NBD_SOCKET: &str = "nbd.sock";
/// Holds the address that is really listened on, whatever port was asked for.
const HTTP_ADDRESS_FILE: &str = "http.addr";

/// Runs a daemon until SIGTERM or SIGINT. Prints one line to stdout when everything serves.
///
/// # Errors
/// Whatever keeps it from starting; once it serves, it ends only by a signal.
pub fn run(options: Options) -> Result<(), DaemonError> {
    let config = Config::resolve(options)?;
    logging::start(&config)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(DaemonError::Start)?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), DaemonError> {
    // Before anything else: a signal during the start must not leave half a daemon behind.
    let mut terminate = signal(SignalKind::terminate()).map_err(DaemonError::Start)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DaemonError::Start)?;

    let data_dir = DataDir::acquire(&config.data_dir)?;
    let state = State::open(&data_dir.join("farside.db")).await?;
    let http_listener = listen_tcp("http", "--http", &config.http).await?;
    let http_address = address_of(http_listener.as_ref())?;

    let site = Arc::new(Site {
        document: SiteDocument {
            name: config.name.clone(),
            id: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data_dir: data_dir.path().display().to_string(),
            peer_address: None,
            http_address: http_address.clone(),
            nbd_socket: data_dir.join(NBD_SOCKET).display().to_string(),
        },
        state,
        blocking: Blocking::default(),
        metrics: Metrics::install(),
    });

    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(service::feed_watchdog(stop.clone()));
    if let (Some(listener), Some(address)) = (http_listener, &http_address) {
        data_dir.publish(HTTP_ADDRESS_FILE, &format!("{address}\n"))?;
        let server = axum::serve(listener, http::public(Arc::clone(&site)));
        tasks.spawn(server.with_graceful_shutdown(stop.clone().cancelled_owned()).into_future());
    }
    let control = listen::unix("control socket", &data_dir.join(CONTROL_SOCKET))?;
    let server = axum::serve(control, http::control(Arc::clone(&site)));
    tasks.spawn(server.with_graceful_shutdown(stop.clone().cancelled_owned()).into_future());
    announce(&site);

    let signal = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal, "stopping");
    service::stopping();
    stop.cancel();
    tasks.close();
    if tokio::time::timeout(REQUESTS_END_WITHIN, tasks.wait()).await.is_err() {
        tracing::warn!(
            "requests were still under way after {} s; they are cut off",
            REQUESTS_END_WITHIN.as_secs()
        );
    }
    site.state.close().await;
    data_dir.withdraw(CONTROL_SOCKET);
    data_dir.withdraw(HTTP_ADDRESS_FILE);
    tracing::info!("stopped");
    Ok(())
}

/// One line, for people and for whoever waits for it.
fn announce(site: &Site) {
    let document = &site.document;
    let off = || String::from("off");
    let line = format!(
        "farsided {} ready: control {}, peers {}, http {}",
        document.name,
        std::path::Path::new(&document.data_dir).join(CONTROL_SOCKET).display(),
        document.peer_address.clone().unwrap_or_else(off),
        document.http_address.clone().unwrap_or_else(off),
    );
    // A closed stdout is no reason to end.
    let _ = writeln!(std::io::stdout(), "{line}");
    service::ready(&line);
}

async fn listen_tcp(
    what: &'static str,
    option: &'static str,
    listen: &Listen,
) -> Result<Option<TcpListener>, DaemonError> {
    match listen {
        Listen::Off => Ok(None),
        Listen::At(address) => listen::tcp(what, option, address).await.map(Some),
    }
}

fn address_of(listener: Option<&TcpListener>) -> Result<Option<String>, DaemonError> {
    listener.map(|l| l.local_addr().map(|a| a.to_string())).transpose().map_err(DaemonError::Start)
}
