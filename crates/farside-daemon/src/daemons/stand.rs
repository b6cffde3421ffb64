//! Until it is this daemon's turn to lead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_peer::Identity;
use tokio::sync::watch;
use tokio::time::sleep;

use super::lease::{LOOKED_EVERY, SILENT_FOR};
use super::member::Member;
use super::pass_on::Follows;
use super::standby::Standby;
use crate::data_dir::DataDir;
use crate::error::DaemonError;
use crate::options::{Config, Listen};
use crate::signals::Signals;
use crate::state::{Card, Common, Desk, Leading, ServerAddress, StateError, Turn};

/// How it came out.
pub(crate) enum Stood {
    /// It leads from now on.
    Leads(Box<Leads>),
    /// The process was told to end before.
    Ended,
}

/// A daemon that leads, before its rooms are open.
pub(crate) struct Leads {
    pub(crate) leading: Leading,
    pub(crate) member: Member,
    pub(crate) desk: Desk,
    pub(crate) card: Card,
}

/// A lease that is watched.
struct Watched {
    ends_at: i64,
    since: Instant,
}

impl Watched {
    /// When the lease ends that was not renewed for long enough.
    fn silent(&self) -> Option<i64> {
        (self.since.elapsed() >= SILENT_FOR).then_some(self.ends_at)
    }
}

/// Waits for the turn of this daemon. Whoever asks it something meanwhile is answered.
pub(crate) async fn stand(
    config: &Config,
    data_dir: &DataDir,
    server: &ServerAddress,
    signals: &mut Signals,
) -> Result<Stood, DaemonError> {
    let identity = Identity::load_or_create(data_dir.path())?;
    let (member, was_member) = Member::load(data_dir.path())?;
    let common = Common { site_id: identity.id().to_string(), site_name: config.name.clone() };
    let card = card(config, &member);
    let mut desk = Desk::new(server);
    let (leader, follows) = watch::channel(Follows::Nobody);
    let mut standby: Option<Standby> = None;
    let mut watched: Option<Watched> = None;
    let mut is_prepared = false;
    loop {
        let turn = if is_prepared {
            let silent = watched.as_ref().and_then(Watched::silent);
            desk.turn(&card, &common, (was_member, was_member && member.several), silent).await
        } else {
            match desk.prepare(was_member && member.several).await {
                Ok(()) => {
                    is_prepared = true;
                    continue;
                }
                Err(error) => Err(error),
            }
        };
        match turn {
            Ok(Turn::Leads(leading)) => {
                if let Some(standby) = standby.take() {
                    standby.end().await;
                }
                let member = Member { several: leading.others > 0, ..member };
                member.keep(data_dir.path()).map_err(DaemonError::Start)?;
                tracing::info!(
                    number = leading.lead.number,
                    daemon = card.name,
                    "this daemon leads the site"
                );
                return Ok(Stood::Leads(Box::new(Leads { leading, member, desk, card })));
            }
            Ok(Turn::Stranger { leader }) => {
                let leader = leader.map_or_else(|| String::from("nobody"), |leader| leader.name);
                return Err(StateError::NotOfSite { address: server.to_string(), leader }.into());
            }
            Ok(Turn::Waits { leader: of, is_own, ends_at, others }) => {
                let is_member = was_member && (others > 0 || !is_own);
                let renewed = watched.as_ref().is_some_and(|watched| watched.ends_at != ends_at);
                // Another that lives: a site of one daemon has one, and a data directory.
                if let (true, Some(leader)) = (renewed && (is_own || !is_member), &of) {
                    let of = format!(" (the daemon {})", leader.name);
                    return Err(StateError::InUse { address: server.to_string(), of }.into());
                }
                if renewed || watched.is_none() {
                    watched = Some(Watched { ends_at, since: Instant::now() });
                }
                if is_member && !is_own {
                    let _ = leader.send(of.map_or(Follows::Nobody, Follows::Leader));
                    if standby.is_none() {
                        standby = Some(begin(config, data_dir, server, &card, &common, &follows).await?);
                    }
                }
            }
            Err(error) if !(was_member && member.several) => return Err(at_start(error).into()),
            Err(error) => {
                // Its tables may be gone: who made it anew did so for a reason, which a person knows.
                is_prepared = false;
                if leader.send_if_modified(|follows| {
                    !matches!(std::mem::replace(follows, Follows::Nobody), Follows::Nobody)
                }) || standby.is_none()
                {
                    tracing::error!("this daemon cannot see who leads; it tries again until it can: {error}");
                }
                if standby.is_none() {
                    standby = Some(begin(config, data_dir, server, &card, &common, &follows).await?);
                }
            }
        }
        tokio::select! {
            () = sleep(LOOKED_EVERY) => {}
            signal = signals.wait(None) => {
                tracing::info!(signal, "stopping: this daemon stood by");
                if let Some(standby) = standby.take() {
                    standby.end().await;
                }
                let _ = tokio::time::timeout(Duration::from_secs(2), desk.stop(member.id)).await;
                desk.close().await;
                return Ok(Stood::Ended);
            }
        }
    }
}

async fn begin(
    config: &Config,
    data_dir: &DataDir,
    server: &ServerAddress,
    card: &Card,
    common: &Common,
    follows: &watch::Receiver<Follows>,
) -> Result<Standby, DaemonError> {
    let desk = Arc::new(tokio::sync::Mutex::new(Desk::new(server)));
    Standby::begin(config, data_dir, desk, card.name.clone(), &common.site_name, follows.clone()).await
}

/// What this daemon says of itself before it leads.
fn card(config: &Config, member: &Member) -> Card {
    let at = |listen: &Listen| match listen {
        Listen::Off => None,
        Listen::At(address) => Some(address.clone()),
    };
    Card {
        id: member.id,
        name: config.daemon_name.clone(),
        api_address: at(&config.api.listen),
        api_fingerprint: None,
        peer_address: at(&config.peer_listen),
    }
}

/// A server that is away when the daemon starts is said in other words than later.
fn at_start(error: StateError) -> StateError {
    match error {
        StateError::Away { address, reason } => StateError::OpenServer { address, reason },
        other => other,
    }
}
