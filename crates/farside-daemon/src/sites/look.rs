//! Looks at the sites that this one is paired with.

use std::sync::Arc;
use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, SiteSeen, SiteSeenState, SiteStatus, WhoAmI};
use farside_peer::{PeerLink, PeerStatus};
use tokio::task::JoinSet;

use super::ask;
use crate::access::Principal;
use crate::convert;
use crate::site::Site;

/// How long a site may take to say how it is.
const SAID_WITHIN: Duration = Duration::from_secs(5);

/// This site and every one that it is paired with, as they are now or were last seen.
pub(crate) async fn sites(site: &Arc<Site>, own: SiteStatus, as_who: &Principal) -> Vec<SiteSeen> {
    let now = convert::time(site.clock.now());
    let this = SiteSeen {
        name: site.document.name.clone(),
        id: site.document.id.clone(),
        state: SiteSeenState::Here,
        why: None,
        seen_at: Some(now),
        version: Some(site.document.version.clone()),
        role: Some(as_who.role),
        status: Some(own),
    };
    let peers = site.node.peers();
    site.sites_seen.retain(|id| peers.iter().any(|peer| peer.record.id == id));
    let mut asked = JoinSet::new();
    for peer in peers {
        let (site, as_who) = (Arc::clone(site), as_who.clone());
        asked.spawn(async move { look(&site, &peer, &as_who).await });
    }
    let mut others = asked.join_all().await;
    others.sort_by(|a, b| a.name.cmp(&b.name));
    std::iter::once(this).chain(others).collect()
}

async fn look(site: &Site, peer: &PeerStatus, as_who: &Principal) -> SiteSeen {
    let (id, name) = (peer.record.id, &peer.record.name);
    let before = site.sites_seen.of(id);
    let before = SiteSeen {
        name: name.clone(),
        id: id.to_string(),
        ..before.unwrap_or_else(|| SiteSeen::unseen(name.clone(), id.to_string()))
    };
    let Some(link) = site.node.link(id) else {
        let why = crate::peers::why(peer).unwrap_or_else(|| String::from("there is no session"));
        return SiteSeen { state: SiteSeenState::Away, why: Some(why), ..before };
    };
    let said = tokio::time::timeout(SAID_WITHIN, said(site, &link, name, as_who)).await;
    let (document, status, who) = match said {
        Ok(Ok(said)) => said,
        Ok(Err(error)) => {
            let state = match error.code {
                ErrorCode::Forbidden => SiteSeenState::Closed,
                _ => SiteSeenState::Away,
            };
            return SiteSeen { state, why: Some(error.message), ..before };
        }
        Err(_) => {
            let why = format!("it has not answered within {} s", SAID_WITHIN.as_secs());
            return SiteSeen { state: SiteSeenState::Away, why: Some(why), ..before };
        }
    };
    let seen = SiteSeen {
        state: SiteSeenState::Seen,
        why: None,
        seen_at: Some(convert::time(site.clock.now())),
        version: Some(document.version),
        role: Some(who.role),
        status: Some(status),
        ..before
    };
    site.sites_seen.note(id, seen.clone());
    seen
}

async fn said(
    site: &Site,
    link: &Arc<dyn PeerLink>,
    name: &str,
    as_who: &Principal,
) -> Result<(farside_api::Site, SiteStatus, WhoAmI), ErrorBody> {
    let who = ask::document(&site.asking, link, name, as_who, "/api/v1/session").await?;
    let document = ask::document(&site.asking, link, name, as_who, "/api/v1/site").await?;
    let status = ask::document(&site.asking, link, name, as_who, "/api/v1/site/status").await?;
    Ok((document, status, who))
}
