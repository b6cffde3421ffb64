//! `/site`.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{SetSite, SiteStatus};
use farside_session::Direction;

use super::error::Body;
use super::{Answer, Shared};
use crate::site::Site;
use crate::throttles::{self, Limited};

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/site", get(document))
        .route("/site/status", get(status))
        .route("/site/set", post(set))
}

async fn document(State(site): Shared) -> Answer<farside_api::Site> {
    Ok(Json(site.document.clone()))
}

async fn status(State(site): Shared) -> Answer<SiteStatus> {
    Ok(Json(status_of(&site)))
}

async fn set(State(site): Shared, Body(request): Body<SetSite>) -> Answer<SiteStatus> {
    // Both are read before either is set.
    let inward = request.throttle_in.as_deref().map(throttles::asked).transpose()?;
    let outward = request.throttle_out.as_deref().map(throttles::asked).transpose()?;
    for (direction, rules) in [(Direction::In, inward), (Direction::Out, outward)] {
        let Some(rules) = rules else { continue };
        tracing::info!(?direction, throttle = %rules, "the site's throttle is set");
        let now = site.clock.now();
        site.throttles.set(&site.state, &site.node, now, Limited::Site, direction, rules).await?;
    }
    Ok(Json(status_of(&site)))
}

fn status_of(site: &Site) -> SiteStatus {
    let throttle = |direction| site.throttles.document(&site.node, Limited::Site, direction);
    let peers = site.node.peers();
    SiteStatus {
        name: site.document.name.clone(),
        throttle_in: throttle(Direction::In),
        throttle_out: throttle(Direction::Out),
        sent_bytes: peers.iter().map(|peer| peer.sent_bytes).sum(),
        received_bytes: peers.iter().map(|peer| peer.received_bytes).sum(),
    }
}
