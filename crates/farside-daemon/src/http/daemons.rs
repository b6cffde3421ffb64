//! `/site/daemons`: the daemons of this site; and how one joins.

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{
    DaemonInvited, DaemonStatus, ErrorBody, ErrorCode, InviteDaemon, JoinSite, OpenInvitation, SiteJoined,
};
use farside_peer::Identity;
use farside_platform::{OsRandomness, Randomness, Timestamp, private_file};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::Body;
use super::handler::{Answer, Routes, Shared};
use crate::convert;
use crate::daemons::invitation::Code;
use crate::daemons::keeper::Keeper;
use crate::daemons::member::Member;
use crate::daemons::roster;
use crate::data_dir::STATE_FILE;
use crate::failure::Failure;
use crate::options::Listen;
use crate::site::Site;
use crate::state::{Card, DatabaseAddress, DatabaseChoice, Desk, Password, StateError};

/// How long an invitation is good, if nothing is said, and at most.
const TTL_SECONDS: u64 = 3600;
const TTL_SECONDS_MAX: u64 = 86_400;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(remove))
        .routes(routes!(drain))
        .routes(routes!(undrain))
        .routes(routes!(invitations, invite))
        .routes(routes!(cancel_invitation))
        .routes(routes!(join))
}

/// The daemons of this site; one that stands by answers that itself.
#[utoipa::path(get, path = "/site/daemons", responses((status = 200, body = Vec<DaemonStatus>)))]
async fn list(State(site): Shared) -> Answer<Vec<DaemonStatus>> {
    Ok(Json(all(&site).await?))
}

/// Takes a daemon off the list that is gone, or drained and does not lead.
#[utoipa::path(delete, path = "/site/daemons/{daemon}", responses((status = 200, body = Vec<DaemonStatus>)))]
async fn remove(State(site): Shared, Path(name): Path<String>) -> Answer<Vec<DaemonStatus>> {
    roster::remove(&mut *keeper(&site)?.desk().await, &name).await?;
    Ok(Json(all(&site).await?))
}

/// Has a daemon hand its work over: for an upgrade of its machine, say. It answers on.
#[utoipa::path(post, path = "/site/daemons/{daemon}/drain", responses((status = 200, body = Vec<DaemonStatus>)))]
async fn drain(State(site): Shared, Path(name): Path<String>) -> Answer<Vec<DaemonStatus>> {
    roster::set_draining(&mut *keeper(&site)?.desk().await, &name, true).await?;
    Ok(Json(all(&site).await?))
}

/// Has it be one that may lead again.
#[utoipa::path(post, path = "/site/daemons/{daemon}/undrain", responses((status = 200, body = Vec<DaemonStatus>)))]
async fn undrain(State(site): Shared, Path(name): Path<String>) -> Answer<Vec<DaemonStatus>> {
    roster::set_draining(&mut *keeper(&site)?.desk().await, &name, false).await?;
    Ok(Json(all(&site).await?))
}

/// Invites a further daemon. The code opens the site's key, for whoever has the database as well.
#[utoipa::path(
    post,
    path = "/site/invitations",
    request_body = InviteDaemon,
    responses((status = 200, body = DaemonInvited))
)]
async fn invite(State(site): Shared, Body(request): Body<InviteDaemon>) -> Answer<DaemonInvited> {
    let keeper = keeper(&site)?;
    check_can_be_several(&site).await?;
    let ttl_seconds = request.ttl_seconds.unwrap_or(TTL_SECONDS);
    if !(1..=TTL_SECONDS_MAX).contains(&ttl_seconds) {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, "an invitation is good for 1 s to 1 day").into());
    }
    let identity = Identity::read_pem(&site.configuration.data_dir)?;
    let mut secret = [0; 32];
    OsRandomness.fill(&mut secret);
    let code = Code::new(secret);
    let sealed = code.seal(&identity).map_err(|why| ErrorBody::new(ErrorCode::Failed, why))?;
    let holds = std::time::Duration::from_secs(ttl_seconds);
    keeper.desk().await.invite(&code.id(), &sealed, holds).await?;
    tracing::info!(ttl_seconds, "a further daemon is invited to this site");
    let database = site.configuration.database.to_string();
    Ok(Json(DaemonInvited { code: code.text().to_string(), id: code.name(), ttl_seconds, database }))
}

/// Invitations for further daemons that can still be used.
///
/// Without their codes: only whoever made one was told its code.
#[utoipa::path(get, path = "/site/invitations", responses((status = 200, body = Vec<OpenInvitation>)))]
async fn invitations(State(site): Shared) -> Answer<Vec<OpenInvitation>> {
    let open = keeper(&site)?.desk().await.invitations().await.map_err(Failure::into_error_body)?;
    Ok(Json(open.into_iter().map(open_invitation).collect()))
}

/// Takes an invitation for a further daemon back.
#[utoipa::path(delete, path = "/site/invitations/{id}", responses((status = 200, body = OpenInvitation)))]
async fn cancel_invitation(State(site): Shared, Path(id): Path<String>) -> Answer<OpenInvitation> {
    let ended = keeper(&site)?.desk().await.cancel_invitation(&id).await.map_err(Failure::into_error_body)?;
    let ended = ended.ok_or_else(|| {
        ErrorBody::new(
            ErrorCode::NotFound,
            format!("no invitation for a daemon is called {id}: it was used, is over, or never was"),
        )
        .hint("farside site invite --list shows those that can still be used")
    })?;
    tracing::info!(id, "the invitation of a further daemon is taken back");
    Ok(Json(open_invitation((id, ended))))
}

fn open_invitation((id, ends_at): (String, i64)) -> OpenInvitation {
    OpenInvitation { id, expires_at: convert::time(Timestamp(u64::try_from(ends_at).unwrap_or(0))) }
}

/// What several daemons of one site need.
async fn check_can_be_several(site: &Site) -> Result<(), ErrorBody> {
    let refused = |why: String, hint: &str| Err(ErrorBody::new(ErrorCode::Refused, why).hint(hint));
    if site.configuration.api.listen == Listen::Off {
        return refused(
            "the daemons of a site reach one another by the API over HTTPS, and this one does not serve it"
                .into(),
            "start it with --api-listen ADDR:7443 (or listen in [api] of farside.toml), and invite again",
        );
    }
    let rows = site.state.pools().await.map_err(Failure::into_error_body)?;
    let embedded = rows.iter().find(|row| !crate::pools::place::is_rbd(&row.path));
    if let Some(row) = embedded {
        return refused(
            format!(
                "pool {} lies at {} of this machine, where no other daemon of the site could go on with it. Nothing was changed",
                row.name, row.path
            ),
            "a site of several daemons has its volumes in clusters alone. Mirror those of this pool to one (farside mirror create), or keep \
             the pool at a site of its own",
        );
    }
    Ok(())
}

/// Makes this daemon, which has no peers and pools yet, one of a site, from its next start on.
#[utoipa::path(post, path = "/site/join", request_body = JoinSite, responses((status = 200, body = SiteJoined)))]
async fn join(State(site): Shared, Body(request): Body<JoinSite>) -> Answer<SiteJoined> {
    let wrong = |why: String| ErrorBody::new(ErrorCode::WrongUsage, why);
    let code = Code::parse(&request.code).map_err(|why| wrong(why.into()))?;
    let choice: DatabaseChoice = request.database.parse().map_err(wrong)?;
    let password = request.password.map(Password::new);
    let file = site.configuration.data_dir.join(STATE_FILE);
    let address = choice.address(&file, password.as_ref()).map_err(wrong)?;
    let DatabaseAddress::Server(server) = address else {
        return Err(wrong(
            "a site of several daemons has its state in PostgreSQL: postgres://USER@HOST[:PORT]/DB".into(),
        )
        .into());
    };
    let refused = |why: &str, hint: &str| ErrorBody::new(ErrorCode::Refused, why).hint(hint);
    let pools = site.state.pools().await.map_err(Failure::into_error_body)?;
    if !pools.is_empty() || !site.node.peers().is_empty() {
        return Err(refused(
            "this daemon is a site of its own: it has pools or peers, which would not come along. Nothing was changed",
            "have a daemon join that has an empty data directory",
        )
        .into());
    }
    if site.configuration.api.listen == Listen::Off {
        return Err(refused(
            "the daemons of a site reach one another by the API over HTTPS, and this one does not serve it",
            "start it with --api-listen ADDR:7443, and join again: the code is still good",
        )
        .into());
    }
    let directory = &site.configuration.data_dir;
    let member = Member { several: true, ..Member::load(directory).map_err(failed)?.0 };
    let card = Card {
        id: member.id,
        name: site.configuration.daemon_name.clone(),
        api_address: None,
        api_fingerprint: None,
        peer_address: None,
    };
    let mut desk = Desk::new(&server);
    let sealed = desk.join(&code.id(), &card).await;
    desk.close().await;
    let url = request.database.clone();
    let sealed = sealed.map_err(|error| {
        let why = match &error {
            StateError::Away { reason, .. } | StateError::Server { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let body = Failure::into_error_body(error);
        match body.message.contains("duplicate key") {
            true => ErrorBody::new(
                ErrorCode::Exists,
                format!("another daemon of the site is called {}. The code is still good", card.name),
            )
            .hint("start this one with --daemon-name NAME, and join again"),
            false => ErrorBody::new(
                body.code,
                format!("{url} cannot be used: {why}. Nothing was changed; the code is still good"),
            )
            .hint("mend the address, the user or the password (--database-password-file), and join again"),
        }
    })?;
    let sealed = sealed.ok_or_else(|| {
        refused(
            "nobody is invited with this code: it was used, or is over",
            "farside site invite at the site prints another",
        )
    })?;
    let identity = code.open(&sealed).map_err(|why| ErrorBody::new(ErrorCode::Corrupt, why))?;
    let site_id = Identity::from_pem(identity.as_bytes())?.id().to_string();
    let keep = || {
        member.keep(directory)?;
        private_file::store(&directory.join(farside_peer::IDENTITY_FILE), identity.as_bytes())
    };
    keep().map_err(|error| {
        ErrorBody::new(ErrorCode::Failed, format!("the site's key cannot be kept: {error}")).hint(format!(
            "the code is used up: take {} off the list (farside site remove {}), and invite again",
            card.name, card.name
        ))
    })?;
    tracing::warn!(site = site_id, "this daemon is one of another site from its next start on");
    Ok(Json(SiteJoined { daemon: card.name, site_id, database: request.database }))
}

/// Refuses what lies on one machine, and a state in one file, at a site of several daemons. The list is asked: one may have joined just
/// now.
pub(super) async fn check_one_daemon(site: &Site) -> Result<(), ErrorBody> {
    let Some(keeper) = &site.keeper else { return Ok(()) };
    let all = keeper.desk().await.daemons().await.map_err(Failure::into_error_body)?.len();
    if all <= 1 {
        return Ok(());
    }
    Err(ErrorBody::new(
        ErrorCode::Refused,
        format!("this site has {all} daemons, and this would lie on the machine of one of them alone. Nothing was changed"),
    )
    .hint("volumes of such a site are in clusters (farside pool create --engine rbd), and its state is in PostgreSQL. For a site of one daemon: \
         farside site remove the others"))
}

fn failed(error: impl std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::Failed, error.to_string())
}

fn keeper(site: &Site) -> Result<&Keeper, ErrorBody> {
    site.keeper.as_deref().ok_or_else(|| {
        ErrorBody::new(
            ErrorCode::Refused,
            "this site's state is in a file of its one daemon. Several daemons need it in PostgreSQL",
        )
        .hint("farside site move-state postgres://USER@HOST/DB, then database in farside.toml, and a restart")
    })
}

/// All of them, with what this one does.
pub(super) async fn all(site: &Site) -> Result<Vec<DaemonStatus>, ErrorBody> {
    let Some(keeper) = &site.keeper else { return Ok(Vec::new()) };
    let work = (site.mirrors.count() as u64, site.mirrors.queue().under_way as u64);
    roster::list(&mut *keeper.desk().await, Some(work)).await
}
