//! What a daemon that stands by serves: its control socket, the API over HTTPS, and health.
//!
//! By the control socket it answers itself what concerns the list of daemons, which needs the database alone: also when nobody leads.
//! Everything else is passed on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use axum::{Json, Router, middleware};
use farside_api::{API_PREFIX, DaemonStatus, ErrorBody};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::pass_on::{Follows, pass_on};
use super::roster;
use crate::access::Principal;
use crate::api_certificate::{ApiCertificate, Source};
use crate::data_dir::{
    API_ADDRESS_FILE, CONTROL_SOCKET, DataDir, HTTP_ADDRESS_FILE, NBD_ADDRESS_FILE, PEER_ADDRESS_FILE,
};
use crate::error::DaemonError;
use crate::http::{ApiError, outcome_of, wrong_host};
use crate::listen::{self, Guests, Manners, Origin, TlsListener, Visit, attend, is_called};
use crate::options::{Config, Listen};
use crate::service;
use crate::state::{AuditRow, Desk};

/// How long requests may take to end once it is this daemon's turn.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// What serves meanwhile.
pub(crate) struct Standby {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// What all requests share.
struct Shared {
    name: String,
    desk: Arc<Mutex<Desk>>,
    follows: watch::Receiver<Follows>,
    /// By which names clients may call it, beside its addresses.
    host_name: String,
    names: Vec<String>,
}

impl Standby {
    /// Begins to serve.
    pub(crate) async fn begin(
        config: &Config,
        data_dir: &DataDir,
        desk: Arc<Mutex<Desk>>,
        name: String,
        site_name: &str,
        follows: watch::Receiver<Follows>,
    ) -> Result<Standby, DaemonError> {
        let stop = CancellationToken::new();
        let (host_name, names) = (farside_platform::host_name(), config.api.names.clone());
        let shared = Arc::new(Shared { name: name.clone(), desk, follows, host_name, names });
        let mut standby = Standby { stop: stop.clone(), tasks: Vec::new() };
        let (mut api, mut http) = (None, None);
        if let Listen::At(address) = &config.api.listen {
            let listener = listen::tcp("api", "--api-listen", address).await?;
            api = Some(listener.local_addr().map_err(DaemonError::Start)?.to_string());
            let certificate = ApiCertificate::load(Source::of(&config.api, data_dir.path()))
                .map_err(DaemonError::Config)?;
            let configuration = certificate.configuration().map_err(DaemonError::Config)?;
            standby.run(certificate.follow());
            let guests =
                Guests::new(TlsListener::new(listener, configuration), Manners::NETWORK, stop.clone());
            let routes = passing_on(Arc::clone(&shared)).into_make_service_with_connect_info::<Visit>();
            standby.serve(axum::serve(guests, routes).with_graceful_shutdown(stop.clone().cancelled_owned()));
        }
        if let Listen::At(address) = &config.http {
            let listener = listen::tcp("http", "--http", address).await?;
            http = Some(listener.local_addr().map_err(DaemonError::Start)?.to_string());
            let guests = Guests::new(listener, Manners::PUBLIC, stop.clone());
            let routes = health(Arc::clone(&shared)).into_make_service_with_connect_info::<Visit>();
            standby.serve(axum::serve(guests, routes).with_graceful_shutdown(stop.clone().cancelled_owned()));
        }
        let control = farside_nbd::bind_unix(&data_dir.join(CONTROL_SOCKET), listen::SOCKET_MODE)?;
        let guests = Guests::new(control, Manners::CONTROL, stop.clone());
        let routes = at_the_socket(shared).into_make_service_with_connect_info::<Visit>();
        standby.serve(axum::serve(guests, routes).with_graceful_shutdown(stop.clone().cancelled_owned()));
        for (file, address) in [(API_ADDRESS_FILE, &api), (HTTP_ADDRESS_FILE, &http)] {
            match address {
                Some(address) => data_dir.publish(file, &format!("{address}\n")),
                None => data_dir.withdraw(file),
            }
        }
        // It meets no peers and no hosts.
        data_dir.withdraw(PEER_ADDRESS_FILE);
        data_dir.withdraw(NBD_ADDRESS_FILE);
        let line = format!(
            "farsided {site_name} ready: daemon {name} stands by, control {}, api {}",
            data_dir.join(CONTROL_SOCKET).display(),
            api.unwrap_or_else(|| "off".into()),
        );
        standby.run(service::feed_watchdog());
        tracing::info!(daemon = name, "this daemon stands by: another one leads the site, or will");
        service::say_ready(line);
        Ok(standby)
    }

    /// Does something until this one ends.
    fn run(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let until_the_end = self.stop.clone().run_until_cancelled_owned(work);
        self.tasks.push(tokio::spawn(async move {
            let _ = until_the_end.await;
        }));
    }

    fn serve<F>(&mut self, server: F)
    where
        F: IntoFuture<Output = std::io::Result<()>>,
        F::IntoFuture: Send + 'static,
    {
        let server = server.into_future();
        self.tasks.push(tokio::spawn(async move {
            let _ = server.await;
        }));
    }

    /// Ends: the addresses are free for the daemon that leads now.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        let aborts: Vec<_> = self.tasks.iter().map(JoinHandle::abort_handle).collect();
        let all = async {
            for task in self.tasks {
                let _ = task.await;
            }
        };
        if tokio::time::timeout(ENDS_WITHIN, all).await.is_err() {
            aborts.iter().for_each(|task| task.abort());
        }
    }
}

fn passing_on(shared: Arc<Shared>) -> Router {
    Router::new().fallback(any(passed)).with_state(shared).layer(middleware::from_fn(attend))
}

fn at_the_socket(shared: Arc<Shared>) -> Router {
    let own = Router::new()
        .route("/site/daemons", get(list))
        .route("/site/daemons/{daemon}", delete(remove))
        .route("/site/daemons/{daemon}/drain", post(drain))
        .route("/site/daemons/{daemon}/undrain", post(undrain));
    let routes = Router::new().nest(API_PREFIX, own).fallback(any(passed));
    routes.with_state(shared).layer(middleware::from_fn(attend))
}

fn health(shared: Arc<Shared>) -> Router {
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(healthz))
        .route("/metrics", get(metrics));
    routes.with_state(shared).layer(middleware::from_fn(attend))
}

async fn passed(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    // The one that leads cannot: it does not know the names of this one.
    let called =
        request.headers().get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !matches!(origin, Origin::Socket { .. }) && !is_called(called, &shared.host_name, &shared.names) {
        return ApiError::from(wrong_host(called)).into_response();
    }
    let follows = shared.follows.borrow().clone();
    pass_on(&follows, request, origin).await.unwrap_or_else(|error| ApiError::from(error).into_response())
}

async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Vec<DaemonStatus>>, ApiError> {
    Ok(Json(roster::list(&mut *shared.desk.lock().await, None).await?))
}

/// Changes the list, and writes that down where the daemon that leads writes what it does: nobody may lead just now.
async fn changed(
    shared: &Shared,
    request: Request,
    change: impl AsyncFnOnce(&mut Desk) -> Result<(), ErrorBody>,
) -> Result<Json<Vec<DaemonStatus>>, ApiError> {
    let mut desk = shared.desk.lock().await;
    let done = change(&mut desk).await;
    let row = audited(&shared.name, &request, done.as_ref().err());
    if let Err(error) = desk.note_audit(&row).await {
        tracing::error!(%error, who = row.who, method = row.method, path = row.path, "a change is not in the audit log");
    }
    done?;
    Ok(Json(roster::list(&mut desk, None).await?))
}

fn audited(daemon: &str, request: &Request, failed: Option<&ErrorBody>) -> AuditRow {
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    let who = match origin {
        Origin::Socket { uid } => Principal::local(uid),
        // The list is changed by the control socket alone.
        Origin::Network(_) | Origin::Peer(_) | Origin::Unknown => Principal::local(None),
    };
    let (outcome, message) = outcome_of(failed);
    AuditRow {
        who: who.who.to_string(),
        role: Some(who.role.name().to_owned()),
        origin: format!("{origin} of {daemon}"),
        method: request.method().to_string(),
        // What is nested sees its path without the prefix.
        path: format!("{API_PREFIX}{}", request.uri().path()),
        outcome: Some(outcome),
        message,
        ..AuditRow::default()
    }
}

async fn drain(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Vec<DaemonStatus>>, ApiError> {
    changed(&shared, request, async |desk| roster::set_draining(desk, &name, true).await).await
}

async fn undrain(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Vec<DaemonStatus>>, ApiError> {
    changed(&shared, request, async |desk| roster::set_draining(desk, &name, false).await).await
}

async fn remove(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Json<Vec<DaemonStatus>>, ApiError> {
    changed(&shared, request, async |desk| roster::remove(desk, &name).await).await
}

/// It serves what it is there for as long as it sees who leads.
async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    let follows = shared.follows.borrow().clone();
    let (status, reasons) = match follows {
        Follows::Leader(_) => (StatusCode::OK, Vec::new()),
        Follows::Nobody => (
            StatusCode::SERVICE_UNAVAILABLE,
            vec![format!("{} stands by and sees no daemon that leads, or its database is away", shared.name)],
        ),
    };
    let word = if reasons.is_empty() { "ok" } else { "ill" };
    (status, Json(serde_json::json!({ "status": word, "reasons": reasons, "warnings": [] }))).into_response()
}

async fn metrics() -> &'static str {
    "# HELP farside_daemon_leads 1 if this daemon does the site's work, 0 if it stands by.\n\
     # TYPE farside_daemon_leads gauge\nfarside_daemon_leads 0\n"
}
