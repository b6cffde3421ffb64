//! Looks at mirrors, pools and peers, for the conditions to judge.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farside_api::{Pool, PoolEngine, PoolRoom, PoolState, Split};
use farside_engine::TO_MAKE_ROOM_BELOW;
use farside_mirror::{MirrorStatus, SourceHeard, SourceRelationship, State, Stopped, WentBack};
use farside_peer::PeerStatus;
use farside_platform::Timestamp;
use farside_transfer::{Phase, Progress};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use super::conditions::ending::{Ending, EndingSeen};
use super::conditions::{
    DaemonsSeen, DrivenSeen, MirrorSeen, OvertakenSeen, PeerSeen, PoolKnown, PoolSeen, Seen, TransferSeen,
    WentBackSeen, due,
};
use super::history::{Histories, History, REPORTS_MAX};
use super::kind::Kind;
use super::last_good;
use crate::convert;
use crate::peers;
use crate::pool_marks::SetBack;
use crate::pools::below;
use crate::pools::cluster_room::TO_MAKE_ROOM;
use crate::site::Site;
use crate::state::EndedTransfer;

/// Suspicious updates that are older when the daemon starts, and of which nothing is raised, are no news.
const OLD: Duration = Duration::from_secs(86_400);

/// All that is there.
pub(super) async fn look(
    site: &Site,
    histories: &mut Histories,
    ended: &mut broadcast::Receiver<EndedTransfer>,
) -> Seen {
    // Before the mirrors are looked at: a transfer belongs to one of them.
    let ended = drain(ended);
    let statuses = site.mirrors.statuses();
    let now = site.clock.now();
    histories.0.retain(|id, _| statuses.iter().any(|status| status.relationship.id == *id));
    for status in &statuses {
        follow(site, histories, status, &ended).await;
    }
    let mut mirrors: Vec<MirrorSeen> =
        statuses.iter().map(|status| mirror(site, histories, status, now)).collect();
    let pools = site.pools.list();
    if pools.iter().any(|pool| pool.state != PoolState::Open) {
        mirrors.extend(
            site.mirrors.undriven_names().await.into_iter().map(|name| MirrorSeen { name, driven: None }),
        );
    }
    let are_all_open = pools.iter().all(|pool| pool.state == PoolState::Open);
    let set_back = set_back(site).await;
    let splits = splits(site, &statuses).await;
    let unsure_splits = match splits.is_some() && are_all_open {
        true => Vec::new(),
        false => site.alarms.subjects(Kind::GroupSplit),
    };
    Seen {
        mirrors,
        pools: pools
            .into_iter()
            .map(|of| {
                let grow = site.pools.grow_command(&of.name, None);
                let set_back = set_back.get(&of.name).map(|set_back| set_back.had_more_at);
                pool(of, grow, set_back)
            })
            .collect(),
        peers: site.node.peers().iter().map(peer).collect(),
        delayed: site.delays.list(),
        overtaken: overtaken(site, &statuses),
        failing_snapshots: site.snapshot_schedules.failing(),
        ending: ending(site, now),
        daemons: daemons(site),
        splits: splits.unwrap_or_default(),
        unsure_splits,
        is_isolated: site.configuration.isolated,
    }
}

/// The pools that are older copies of themselves. Of what a person has acknowledged nothing more is said.
async fn set_back(site: &Site) -> BTreeMap<String, SetBack> {
    let mut set_back = site.pool_marks.set_back(&site.pools);
    let known = |(name, of): (&String, &SetBack)| {
        let at = convert::time(site.alarms.acknowledged_at(Kind::PoolSetBack, name)?);
        Some((name.clone(), of.found_at <= at))
    };
    let acknowledged: Vec<(String, bool)> = set_back.iter().filter_map(known).collect();
    for (name, is_of_this) in acknowledged {
        // What was acknowledged before this was found is another: with this look its alarm is over, and the next one raises this.
        set_back.remove(&name);
        if is_of_this && let Ok(pool) = site.pools.get(&name) {
            site.pool_marks.settle(pool.id()).await;
        }
    }
    set_back
}

/// The groups that are split; none if that cannot be told now. All mirrors are listed for that only where some member is broken off and another is not.
async fn splits(site: &Site, statuses: &[MirrorStatus]) -> Option<Vec<Split>> {
    let of_groups = |is_broken_off: bool| {
        let of = statuses.iter().filter(move |status| (status.state == State::BrokenOff) == is_broken_off);
        of.filter_map(|status| status.relationship.group.as_deref()).collect::<BTreeSet<_>>()
    };
    if of_groups(true).is_disjoint(&of_groups(false)) {
        return Some(Vec::new());
    }
    site.mirrors.list().await.ok().map(|mirrors| farside_api::splits(&mirrors))
}

/// The other daemons, as the lease's keeper saw them with its last renewal.
fn daemons(site: &Site) -> DaemonsSeen {
    let Some(keeper) = &site.keeper else { return DaemonsSeen::None };
    match keeper.gone() {
        Some(gone) => DaemonsSeen::Known { gone },
        None => DaemonsSeen::Unknown { raised: site.alarms.subjects(Kind::DaemonGone) },
    }
}

/// Tokens and certificates, and how long they are good.
fn ending(site: &Site, now: Timestamp) -> Vec<EndingSeen> {
    let now = convert::time(now);
    let between =
        |from: farside_api::Timestamp, to: farside_api::Timestamp| to.duration_since(from).as_secs_f64();
    let tokens = site.access.tokens().into_iter().map(|token| EndingSeen {
        left_seconds: between(now, token.expires_at),
        what: Ending::Token { life_seconds: between(token.created_at, token.expires_at), name: token.name },
    });
    let api = site.api_certificate.as_ref().and_then(|certificate| certificate.ends_at());
    let of = |what: Ending, at: Option<Timestamp>| {
        at.map(|at| EndingSeen { what, left_seconds: between(now, convert::time(at)) })
    };
    let certificates =
        [of(Ending::ApiCertificate, api), of(Ending::NbdCertificate, site.hosts.server_ends_at())];
    tokens.chain(certificates.into_iter().flatten()).collect()
}

fn drain(ended: &mut broadcast::Receiver<EndedTransfer>) -> Vec<EndedTransfer> {
    let mut all = Vec::new();
    loop {
        match ended.try_recv() {
            Ok(one) => all.push(one),
            // Some are missed: the next ones say how it stands.
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return all,
        }
    }
}

/// Brings the history of a mirror up to date.
async fn follow(site: &Site, histories: &mut Histories, status: &MirrorStatus, ended: &[EndedTransfer]) {
    let id = status.relationship.id;
    let volume_bytes = status.current.as_ref().map_or(0, |current| current.size_bytes);
    let subject = status.relationship.destination.to_string();
    let is_acknowledged = site.alarms.is_acknowledged(Kind::Ransomware, &subject);
    if let Entry::Vacant(vacant) = histories.0.entry(id) {
        let known = site.state.transfers_of(id, REPORTS_MAX).await.unwrap_or_else(|error| {
            tracing::warn!(volume = %status.relationship.destination, "alarms begin without the history of this mirror: {error}");
            Vec::new()
        });
        let usual_until = usual_until(site, &subject, is_acknowledged.is_some()).await;
        let (mut history, suspicion) = History::read(&known, volume_bytes, usual_until);
        match (is_acknowledged, suspicion) {
            // It ended before anybody looked: while the daemon ended, or in the first seconds of a mirror.
            (None, Some(suspicion)) => {
                history.suspected = Some(last_good::hold(site, status, &suspicion).await)
            }
            (Some(false), _) => history.watch.suspect(),
            _ => {}
        }
        vacant.insert(history);
    }
    let Some(history) = histories.0.get_mut(&id) else { return };
    if is_acknowledged == Some(true) {
        history.settle();
    }
    for one in ended.iter().filter(|one| one.relationship == id) {
        if let Some(suspicion) = history.note(&one.report, volume_bytes) {
            history.suspected = Some(last_good::hold(site, status, &suspicion).await);
        }
    }
}

/// Until when updates of a mirror are usual: until a person has said so last; and where nothing is raised, what is older than a day.
async fn usual_until(site: &Site, subject: &str, is_raised: bool) -> Timestamp {
    let acknowledged = site.state.acknowledged_until(Kind::Ransomware.name(), subject).await;
    let acknowledged = acknowledged.unwrap_or_default().unwrap_or_default();
    let old = u64::try_from(OLD.as_nanos()).unwrap_or(u64::MAX);
    let day_ago = Timestamp(site.clock.now().0.saturating_sub(old));
    if is_raised { acknowledged } else { acknowledged.max(day_ago) }
}

/// Sources here of which a replica was broken off: those that follow themselves by now, or are not here any more, are no second
/// original. One that is fenced is none either, but its hosts wait for a person.
fn overtaken(site: &Site, statuses: &[MirrorStatus]) -> Vec<OvertakenSeen> {
    let mut overtaken = site.mirrors.overtaken();
    overtaken.retain(|(source, _)| {
        let follows = |status: &MirrorStatus| {
            status.relationship.destination == source.source && status.state != State::BrokenOff
        };
        // Nobody writes to what is in no pool that is known here.
        site.pools.knows(&source.source.pool) && !statuses.iter().any(follows)
    });
    let seen = |(source, is_fenced): (SourceRelationship, bool)| {
        let overtaken = source.overtaken?;
        Some(OvertakenSeen {
            name: source.source.to_string(),
            peer: peers::name_of(&site.node, source.peer),
            replica: source.destination.to_string(),
            beyond: overtaken.beyond,
            ended: overtaken.ended,
            group: overtaken.group.map(|(group, _)| group),
            is_fenced,
            site: site.document.name.clone(),
        })
    };
    overtaken.into_iter().filter_map(seen).collect()
}

fn mirror(site: &Site, histories: &Histories, status: &MirrorStatus, now: Timestamp) -> MirrorSeen {
    let history = histories.0.get(&status.relationship.id);
    let lag_seconds = site.mirrors.lag_seconds(status, now);
    let of = &status.relationship;
    let peer = site.node.peer(of.peer);
    let driven = DrivenSeen {
        state: status.state,
        is_peer_removed: peer.is_none(),
        is_peer_away: !peer.is_some_and(|peer| peer.state.connected),
        peer: peers::name_of(&site.node, of.peer),
        source: of.source.to_string(),
        group: of.group.clone(),
        site: site.document.name.clone(),
        // What was heard before a restart is in its row.
        is_source_unaware: status.source_heard == Some(SourceHeard::NotYet) && !of.told,
        why: status.why.clone(),
        no_room: match &status.stopped {
            Some(Stopped::NoRoom(why)) => Some(why.clone()),
            _ => None,
        },
        is_room_known: history.is_some_and(|history| history.has_succeeded),
        lag_seconds,
        objective_seconds: status.objective().map(|objective| objective.as_secs_f64()),
        forecast_seconds: forecast(status),
        due: lag_seconds.and_then(|lag| due(&status.relationship.schedule, now, lag)),
        transfer: status.progress.as_ref().and_then(transfer),
        failures: history.map(|history| history.failures.clone()).unwrap_or_default(),
        went_back: went_back(site, status),
        signature: history.map(History::signature).unwrap_or_default(),
    };
    MirrorSeen { name: status.relationship.destination.to_string(), driven: Some(driven) }
}

/// Whether its source went back: what was raised of it outlives this process.
fn went_back(site: &Site, status: &MirrorStatus) -> WentBackSeen {
    let is_raised = |name: &str| site.alarms.is_acknowledged(Kind::SourceWentBack, name).is_some();
    match &status.went_back {
        WentBack::Yes(why) => WentBackSeen::Yes(why.clone()),
        WentBack::Settled => WentBackSeen::Settled,
        WentBack::Unknown if is_raised(&status.relationship.destination.to_string()) => {
            WentBackSeen::StillRaised
        }
        WentBack::Unknown => WentBackSeen::No,
    }
}

/// How late it will be; of one that falls behind more and more twice its objective, which it will be soon.
fn forecast(status: &MirrorStatus) -> Option<f64> {
    let (forecast, objective) = (status.forecast?, status.objective()?);
    Some(forecast.lag.map_or(2.0 * objective.as_secs_f64(), |lag| lag.as_secs_f64()))
}

/// One that runs; what waits for its turn or a session is no matter of its own.
fn transfer(progress: &Progress) -> Option<TransferSeen> {
    if progress.phase == Phase::Waiting {
        return None;
    }
    Some(TransferSeen {
        id: progress.transfer?,
        phase: progress.phase,
        changed_bytes: progress.changed_bytes,
        done_bytes: progress.done_bytes,
        wire_bytes: progress.wire_bytes,
    })
}

fn pool(pool: Pool, grow: String, set_back: Option<farside_api::Timestamp>) -> PoolSeen {
    // Where the file system below is the shorter one, a larger pool helps nobody.
    let (used_bytes, is_full) = (pool.used_bytes.unwrap_or_default(), pool.room == Some(PoolRoom::Full));
    let of_below = pool.file_system.map(|short| below::level(short, used_bytes, is_full));
    let is_short_below = of_below.is_some() && of_below >= pool.room;
    let known = (pool.state != PoolState::Opening).then_some(PoolKnown {
        room: pool.room,
        warning: pool.warning,
        to_make_room: match (pool.engine, is_short_below) {
            (PoolEngine::Rbd, _) => String::from(TO_MAKE_ROOM),
            (PoolEngine::Embedded, true) => String::from(TO_MAKE_ROOM_BELOW),
            (PoolEngine::Embedded, false) => format!(
                "{grow}; or delete snapshots that nobody needs (farside snapshot delete --plan says what comes back at most), or trim in \
                 the hosts"
            ),
        },
        error: pool.error,
        advice: pool.advice,
        set_back,
    });
    PoolSeen { name: pool.name, known }
}

fn peer(peer: &PeerStatus) -> PeerSeen {
    let is_connected = peer.state.connected;
    PeerSeen {
        id: peer.record.id,
        name: peer.record.name.clone(),
        answers: is_connected && peer.trouble.is_none(),
        is_removed_there: peers::is_removed_there(peer),
        why: if is_connected { peer.trouble.clone() } else { peer.state.last_error.clone() },
        clock_ahead_seconds: peer.state.clock_ahead_seconds.filter(|_| is_connected),
        clocks_apart: peer.state.clocks_apart().filter(|_| is_connected),
        rtt_seconds: peer.state.rtt_seconds,
    }
}
