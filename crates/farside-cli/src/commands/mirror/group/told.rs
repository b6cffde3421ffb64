//! What a former source is told of a group. Before the sites have met again it knows of nothing that was taken over: whoever types
//! `mirror resync --group` there at once, as the other site has said, is not to hear that there is no such group.

use std::time::{Duration, Instant};

use farside_api::{ErrorBody, ErrorCode, Mirror, Peer, PeerState, Role, SiteStatus, Timestamp};

use super::former_source;
use super::members::{Group, Member};
use crate::commands::context::Context;
use crate::quantities::time;

/// How often it is looked again.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// So long after a session has come up everything was told.
const TOLD_WITHIN: Duration = Duration::from_secs(4);
/// A daemon that started less than this ago may not have been told.
const STARTED_WITHIN_SECONDS: f64 = 10.0;

/// The mirrors of the group, and volumes that were taken over by the site that they are of. What is not known, or may be old, is waited for
/// while a site with replicas of this one is away: for at most `patience`.
///
/// # Errors
/// If there are neither.
pub(super) async fn members_and_taken_over(
    context: &Context,
    group: &str,
    patience: Duration,
) -> Result<Group, ErrorBody> {
    let until = Instant::now() + patience;
    let mut told_until = has_just_started(context).await.then(|| Instant::now() + TOLD_WITHIN);
    let mut is_said = false;
    loop {
        let found = former_source::members_and_taken_over(context, group).await;
        let may_be_old = match &found {
            Err(error) => error.code == ErrorCode::NotFound,
            Ok(found) => found.members.iter().all(Member::is_valid_original),
        };
        if !may_be_old {
            return found;
        }
        match away(context, found.as_ref().ok()).await? {
            Some(peer) if Instant::now() >= until => return Err(not_told(group, found.ok().as_ref(), &peer)),
            Some(peer) => {
                told_until = Some(Instant::now() + TOLD_WITHIN);
                if !is_said {
                    eprintln!(
                        "farside: no session with {}; waiting for one, for up to {} s: what it has taken over is not known before",
                        peer.name,
                        patience.as_secs()
                    );
                    is_said = true;
                }
            }
            None if told_until.is_some_and(|told| Instant::now() < told.min(until)) => {}
            None => return found,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn has_just_started(context: &Context) -> bool {
    let site: Option<SiteStatus> = context.client.get(&["site", "status"]).await.ok();
    let started_at = site.and_then(|site| site.started_at);
    started_at.is_some_and(|at| Timestamp::now().duration_since(at).as_secs_f64() < STARTED_WITHIN_SECONDS)
}

/// A site that has replicas of volumes here, and that there is no session with. Of a group that is `known` its own site alone counts.
async fn away(context: &Context, known: Option<&Group>) -> Result<Option<Peer>, ErrorBody> {
    let peers: Vec<Peer> = context.client.get(&["peers"]).await?;
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let sites: Vec<&str> = match known {
        Some(known) => known.members.iter().map(|member| &*member.mirror.source).collect(),
        None => mirrors.iter().filter(|m| m.role == Role::Source).map(|m| &*m.destination).collect(),
    };
    let sites: Vec<&str> = sites.into_iter().filter_map(|of| Some(of.split_once(':')?.0)).collect();
    let is_away = |peer: &Peer| peer.state != PeerState::Connected && sites.contains(&&*peer.name);
    Ok(peers.into_iter().find(is_away))
}

/// That what is known here of the group may be old: the site that follows it is away, and may have taken over since.
fn not_told(group: &str, known: Option<&Group>, peer: &Peer) -> ErrorBody {
    let site = &peer.name;
    let since = peer.last_heard_at.map_or_else(String::new, |at| format!(" since {}", time(at)));
    let known = known.map_or_else(
        || format!("which volumes of group {group} it has taken over is not known here before there is one"),
        |known| {
            let names: Vec<&str> = known.members.iter().map(|m| m.mirror.name.as_str()).collect();
            format!(
                "when the two sites last met, {site} followed {}; whether it has taken over since is not known here",
                names.join(", ")
            )
        },
    );
    let message = format!("there is no session with {site}{since}: {known}. Nothing was changed");
    ErrorBody::new(ErrorCode::PeerUnreachable, message).hint(format!(
        "farside peer status {site} says why; once there is one, the same command again. If hosts may have gone over to {site}, let none \
         write here until then"
    ))
}
