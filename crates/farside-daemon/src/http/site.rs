//! `/site`.

use axum::Extension;
use axum::Json;
use axum::extract::State;
use farside_api::{ErrorBody, ErrorCode, HeldBack, MoveState, MovedTable, SetSite, SiteStatus, StateMoved};
use farside_link::Direction;
use farside_mirror::limits::TRANSFERS_MAX;
use farside_transfer::precedence::Precedence;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::audit::EntryNumber;
use super::daemons;
use super::error::Body;
use super::handler::{Answer, Routes, Shared};
use super::health;
use crate::convert;
use crate::data_dir::STATE_FILE;
use crate::failure::Failure;
use crate::site::Site;
use crate::state::{DatabaseChoice, Password};
use crate::throttles::{self, Limited};

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(document))
        .routes(routes!(status))
        .routes(routes!(set))
        .routes(routes!(move_state))
}

/// What this site is, and where it listens.
#[utoipa::path(get, path = "/site", responses((status = 200, body = farside_api::Site)))]
async fn document(State(site): Shared) -> Answer<farside_api::Site> {
    let api_fingerprint = site.api_certificate.as_ref().map(|certificate| certificate.fingerprint());
    Ok(Json(farside_api::Site { api_fingerprint, ..site.document.clone() }))
}

/// Limits, queue and warnings of this site.
#[utoipa::path(get, path = "/site/status", responses((status = 200, body = SiteStatus)))]
async fn status(State(site): Shared) -> Answer<SiteStatus> {
    Ok(Json(status_of(&site).await))
}

/// Changes limits of this site.
#[utoipa::path(
    post,
    path = "/site/set",
    request_body = SetSite,
    responses((status = 200, body = SiteStatus))
)]
async fn set(State(site): Shared, Body(request): Body<SetSite>) -> Answer<SiteStatus> {
    // All is read before anything is set.
    let inward = request.throttle_in.as_deref().map(throttles::asked).transpose()?;
    let outward = request.throttle_out.as_deref().map(throttles::asked).transpose()?;
    let size = request.transfer_size.map(transfer_size).transpose()?;
    let precedence = request.host_precedence.as_deref().map(precedence).transpose()?;
    if let Some(precedence) = precedence {
        let name = precedence.name();
        tracing::info!(precedence = name, "how far hosts go before transfers is set");
        site.state.set_host_precedence(name).await.map_err(Failure::into_error_body)?;
        site.hosts_first.set_precedence(precedence);
    }
    if let Some(size) = size {
        tracing::info!(size, "the site's transfer size is set");
        site.mirrors.set_transfer_size(size).await?;
    }
    for (direction, rules) in [(Direction::In, inward), (Direction::Out, outward)] {
        let Some(rules) = rules else { continue };
        tracing::info!(?direction, throttle = %rules, "the site's throttle is set");
        let now = site.clock.now();
        site.throttles.set(&site.state, &site.node, now, Limited::Site, direction, rules).await?;
    }
    Ok(Json(status_of(&site).await))
}

/// Carries the state into another database, in one transaction while writes wait. The daemon then keeps nothing in the old one any
/// more: it is to be restarted with the new address.
#[utoipa::path(
    post,
    path = "/site/move-state",
    request_body = MoveState,
    responses((status = 200, body = StateMoved))
)]
async fn move_state(
    State(site): Shared,
    entry: Option<Extension<EntryNumber>>,
    Body(request): Body<MoveState>,
) -> Answer<StateMoved> {
    let wrong = |why| ErrorBody::new(ErrorCode::WrongUsage, why);
    let choice: DatabaseChoice = request.to.parse().map_err(wrong)?;
    if choice == DatabaseChoice::File {
        daemons::check_one_daemon(&site).await?;
    }
    let password = request.password.map(Password::new);
    let file = site.configuration.data_dir.join(STATE_FILE);
    let to = choice.address(&file, password.as_ref()).map_err(wrong)?;
    tracing::info!(%to, "the state is to be moved");
    let entry = entry.map(|Extension(EntryNumber(number))| number);
    let tables = site.access.move_state(&to, entry).await.map_err(Failure::into_error_body)?;
    tracing::warn!(
        %to,
        "the state was moved: nothing is kept in the old database any more. Set database = \"{}\" in farside.toml, and restart \
         this daemon",
        request.to
    );
    let tables = tables.into_iter().map(|table| MovedTable { name: table.name.into(), rows: table.rows });
    Ok(Json(StateMoved { to: request.to, tables: tables.collect() }))
}

fn transfer_size(asked: u64) -> Result<usize, ErrorBody> {
    usize::try_from(asked).ok().filter(|size| (1..=TRANSFERS_MAX).contains(size)).ok_or_else(|| {
        ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("a transfer size is 1 to {TRANSFERS_MAX}; to run no transfers, quiesce the mirrors"),
        )
    })
}

fn precedence(asked: &str) -> Result<Precedence, ErrorBody> {
    Precedence::named(asked).ok_or_else(|| {
        ErrorBody::new(ErrorCode::WrongUsage, "hosts go before transfers: high (the default), fair or off")
    })
}

pub(super) async fn status_of(site: &Site) -> SiteStatus {
    let throttle = |direction| site.throttles.document(&site.node, Limited::Site, direction);
    let peers = site.node.peers();
    let queue = site.mirrors.queue();
    SiteStatus {
        name: site.document.name.clone(),
        reasons: health::reasons(site).await,
        warnings: health::warnings(site),
        throttle_in: throttle(Direction::In),
        throttle_out: throttle(Direction::Out),
        transfer_size: queue.size as u64,
        transfers_under_way: queue.under_way as u64,
        transfers_waiting: queue.waiting as u64,
        host_precedence: site.hosts_first.precedence().name().into(),
        held_back: site.hosts_first.held_back().map(|held| HeldBack {
            share_percent: (held.share * 100.0).round() as u64,
            without_microseconds: held.without.as_micros() as u64,
            with_microseconds: held.with.as_micros() as u64,
        }),
        started_at: Some(convert::time(site.started_at)),
        sent_bytes: peers.iter().map(|peer| peer.sent_bytes).sum(),
        received_bytes: peers.iter().map(|peer| peer.received_bytes).sum(),
        // A database that is away is among the reasons.
        daemons: daemons::all(site).await.unwrap_or_default(),
    }
}
