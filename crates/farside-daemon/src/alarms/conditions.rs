//! What is worth an alarm: from what is seen of mirrors, pools and peers to what holds of it. Pure.
//!
//! A condition with a limit has two: past the one it holds, short of the other it is over, in between it stays as it is. What
//! cannot be told (a pool that is not open, a peer that was not met since the start) stays as it is, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use farside_api::{Delayed, PoolRoom, Split};
use farside_mirror::{Schedule, State};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::Phase;
use uuid::Uuid;

use super::book::{Finding, Verdict};
use super::kind::Kind;
use crate::convert::roughly;

/// A replica may be so many intervals of its schedule behind. `farside mirror check` has the same limits.
const BROKEN_INTERVALS: f64 = 3.0;
/// At so many it will be, unless the update that is due comes.
const AT_RISK_INTERVALS: f64 = 2.0;
/// A replica with a short interval may be this late: a few updates that fail and come again are no reason to wake anybody.
const BROKEN_LEAST: f64 = 300.0;
/// At this it will be.
const AT_RISK_LEAST: f64 = 200.0;
/// Of an objective that a person has set: so much of it is used up when it is at risk, unless a forecast says more.
const AT_RISK_PART: f64 = 0.8;
/// A lag is short of a limit again below this part of it.
const OVER_PART: f64 = 0.9;
/// The data of an update that a tick began may seem this much older than the tick: the clocks of two sites are never equal.
const TICK_SLACK: Duration = Duration::from_secs(30);
/// A clock that is as far off as this, and no more than a round trip besides, is right again. What is too far is `farside-peer`'s
/// to say: two seconds.
const CLOCK_RIGHT: f64 = 1.0;

/// From when on something is an alarm, where that can be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) peer_gone_after: Duration,
    pub(crate) daemon_gone_after: Duration,
    pub(crate) no_progress_after: Duration,
    /// Transfers that have failed in a row.
    pub(crate) failing_transfers: u32,
}

/// What one look has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) mirrors: Vec<MirrorSeen>,
    pub(crate) pools: Vec<PoolSeen>,
    pub(crate) peers: Vec<PeerSeen>,
    /// Destructive requests that wait.
    pub(crate) delayed: Vec<Delayed>,
    /// Volumes here that live on as sources while a replica of theirs was broken off.
    pub(crate) overtaken: Vec<OvertakenSeen>,
    /// Timetables of snapshots of which the last went wrong: the volume, and why.
    pub(crate) failing_snapshots: Vec<(String, String)>,
    /// Tokens and certificates.
    pub(crate) ending: Vec<ending::EndingSeen>,
    /// The other daemons of this site.
    pub(crate) daemons: DaemonsSeen,
    /// Groups of which a part is used here, and the other at another site.
    pub(crate) splits: Vec<Split>,
    /// Groups of which nobody can tell now, and of which it is raised that they are split.
    pub(crate) unsure_splits: Vec<String>,
    /// The site meets nobody on purpose: what depends on peers stays as it is.
    pub(crate) is_isolated: bool,
}

/// The other daemons of a site, as the one that leads sees them.
#[derive(Clone, Debug, Default)]
pub(crate) enum DaemonsSeen {
    /// There are none.
    #[default]
    None,
    /// Nobody knows yet: this one has just begun to lead. Of these it is raised that they are gone.
    Unknown { raised: Vec<String> },
    /// Those that were not seen lately are called so.
    Known { gone: Vec<String> },
}

/// A mirror whose replica is here.
#[derive(Clone, Debug)]
pub(crate) struct MirrorSeen {
    /// `POOL/VOL`.
    pub(crate) name: String,
    /// How it stands; none while its pool is not open.
    pub(crate) driven: Option<DrivenSeen>,
}

/// A mirror whose pool is open.
#[derive(Clone, Debug)]
pub(crate) struct DrivenSeen {
    pub(crate) state: State,
    /// The peer that it follows, and its volume there, `POOL/VOL`.
    pub(crate) peer: String,
    pub(crate) source: String,
    /// The group that it is in.
    pub(crate) group: Option<String>,
    /// What this site is called.
    pub(crate) site: String,
    /// There is no session with that peer.
    pub(crate) is_peer_away: bool,
    /// It was removed here: there will be none by itself.
    pub(crate) is_peer_removed: bool,
    /// It was broken off, and its source has not heard that.
    pub(crate) is_source_unaware: bool,
    /// What stands in its way.
    pub(crate) why: Option<String>,
    pub(crate) lag_seconds: Option<f64>,
    /// Why what is to be brought does not fit into its pool.
    pub(crate) no_room: Option<String>,
    /// Where that is none: an update has ended well since this process began. What stood still before may do so still.
    pub(crate) is_room_known: bool,
    /// How late it may be, if a person has said so.
    pub(crate) objective_seconds: Option<f64>,
    /// How late it will be, if somebody has worked that out.
    pub(crate) forecast_seconds: Option<f64>,
    /// How late it may be by its schedule.
    pub(crate) due: Option<Due>,
    pub(crate) transfer: Option<TransferSeen>,
    pub(crate) failures: Failures,
    /// What its updates look like.
    pub(crate) signature: Signature,
    /// Whether its source went back.
    pub(crate) went_back: WentBackSeen,
}

/// A source of which a replica was broken off.
#[derive(Clone, Debug)]
pub(crate) struct OvertakenSeen {
    /// `POOL/VOL`.
    pub(crate) name: String,
    pub(crate) peer: String,
    /// The replica there, `POOL/VOL`.
    pub(crate) replica: String,
    /// One beyond that replica went on, and not it: `PEER:POOL/VOL`.
    pub(crate) beyond: Option<String>,
    /// The mirror was deleted there since.
    pub(crate) ended: bool,
    /// The group that the replica is in there.
    pub(crate) group: Option<String>,
    /// Hosts may not write to the source for it.
    pub(crate) is_fenced: bool,
    /// What this site is called.
    pub(crate) site: String,
}

/// How late a mirror may be by its schedule.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Due {
    pub(crate) at_risk_seconds: f64,
    pub(crate) broken_seconds: f64,
}

/// A transfer that runs: while nothing of this changes, nothing comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransferSeen {
    pub(crate) id: Uuid,
    pub(crate) phase: Phase,
    pub(crate) changed_bytes: Option<u64>,
    pub(crate) done_bytes: u64,
    pub(crate) wire_bytes: u64,
}

/// Transfers that have failed since the last that did not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) in_a_row: u32,
    /// Why the last of them did.
    pub(crate) last: Option<String>,
}

/// Whether the updates of a mirror look as if its source was encrypted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Signature {
    #[default]
    Normal,
    /// They did, before this process began, and no person has said otherwise.
    StillSuspected,
    /// They do.
    Suspected { message: String },
}

/// Whether an update found the source in an earlier state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum WentBackSeen {
    #[default]
    No,
    /// It did before this process began, and no person has seen to it.
    StillRaised,
    /// It did; in words.
    Yes(String),
    /// A person has seen to it.
    Settled,
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolSeen {
    pub(crate) name: String,
    /// None while it is being opened.
    pub(crate) known: Option<PoolKnown>,
}

/// A pool that is open, or failed.
#[derive(Clone, Debug)]
pub(crate) struct PoolKnown {
    /// None of one that failed.
    pub(crate) room: Option<PoolRoom>,
    /// What its level means.
    pub(crate) warning: Option<String>,
    /// What makes room in it.
    pub(crate) to_make_room: String,
    /// What is wrong with it.
    pub(crate) error: Option<String>,
    /// What to do about that.
    pub(crate) advice: Option<String>,
    /// It is an older copy of itself: until when it had more, and nobody has acknowledged that.
    pub(crate) set_back: Option<farside_api::Timestamp>,
}

/// A peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerSeen {
    pub(crate) id: PeerId,
    pub(crate) name: String,
    /// There is a session, and the peer answers.
    pub(crate) answers: bool,
    /// It has said that it does not know this site any more.
    pub(crate) is_removed_there: bool,
    /// Why not.
    pub(crate) why: Option<String>,
    /// By how much its clock is ahead, as last measured in a session that lives.
    pub(crate) clock_ahead_seconds: Option<f64>,
    /// The same, if it is too much.
    pub(crate) clocks_apart: Option<f64>,
    pub(crate) rtt_seconds: Option<f64>,
}

/// What looks have to remember.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// When each peer answered last, or was first seen.
    answered: BTreeMap<PeerId, Duration>,
    /// Since when each daemon of this site is gone.
    gone: BTreeMap<String, Duration>,
    /// When each mirror's transfer got on last.
    moved: BTreeMap<String, (TransferSeen, Duration)>,
    /// The mirrors that there were, and whether one was missing at the last look already.
    mirrors: BTreeMap<String, bool>,
    /// The same of pools.
    pools: BTreeMap<String, bool>,
}

impl Conditions {
    /// What holds at `now`, by monotonic time.
    pub(crate) fn look(&mut self, now: Duration, seen: &Seen, limits: &Limits) -> Vec<Finding> {
        let mut found = Found::default();
        self.moved.retain(|name, _| seen.mirrors.iter().any(|mirror| mirror.name == *name));
        deleted(&mut self.mirrors, seen.mirrors.iter().map(|mirror| &mirror.name), OF_UPDATES, &mut found);
        deleted(&mut self.pools, seen.pools.iter().map(|pool| &pool.name), OF_POOLS, &mut found);
        for overtaken in &seen.overtaken {
            of_overtaken(overtaken, &mut found);
        }
        for mirror in &seen.mirrors {
            match &mirror.driven {
                None => found.unsure(OF_MIRRORS, &mirror.name),
                Some(driven) => {
                    of_room(&mirror.name, driven, &seen.pools, &mut found);
                    self.mirror(now, &mirror.name, driven, limits, seen.is_isolated, &mut found);
                }
            }
        }
        for pool in &seen.pools {
            match &pool.known {
                None => found.unsure(OF_POOLS, &pool.name),
                Some(known) => of_pool(&pool.name, known, &mut found),
            }
        }
        self.answered.retain(|id, _| seen.peers.iter().any(|peer| peer.id == *id));
        for peer in &seen.peers {
            if seen.is_isolated {
                found.unsure(OF_PEERS, &peer.name);
            } else {
                self.peer(now, peer, limits, has_replicas_of(&seen.mirrors, &peer.name), &mut found);
            }
        }
        self.daemons(now, &seen.daemons, limits, &mut found);
        // One alarm is about one thing, and the list has what runs next first.
        let mut things = BTreeSet::new();
        for delayed in seen.delayed.iter().filter(|delayed| things.insert(&delayed.thing)) {
            of_delayed(delayed, &mut found);
        }
        for split in &seen.splits {
            of_split(split, &mut found);
        }
        for group in &seen.unsure_splits {
            found.unsure(&[Kind::GroupSplit], group);
        }
        for (volume, why) in &seen.failing_snapshots {
            of_failing_snapshots(volume, why, &mut found);
        }
        for ending::Told { subject, message, hint } in seen.ending.iter().filter_map(ending::told) {
            found.holds(Kind::EndsSoon, &subject, message, hint);
        }
        found.0
    }

    fn mirror(
        &mut self,
        now: Duration,
        name: &str,
        mirror: &DrivenSeen,
        limits: &Limits,
        is_isolated: bool,
        found: &mut Found,
    ) {
        if mirror.state == State::BrokenOff {
            self.moved.remove(name);
            found.over(OF_UPDATES, name);
            of_break(name, mirror, is_isolated, found);
            return of_signature(name, mirror, found);
        }
        of_objective(name, mirror, is_isolated, found);
        self.progress(now, name, mirror, limits, found);
        if mirror.failures.in_a_row >= limits.failing_transfers {
            let last = mirror.failures.last.as_deref().unwrap_or("no reason is known");
            found.holds(
                Kind::TransfersFailing,
                name,
                format!(
                    "{} transfers of {name} have failed in a row; the last: {last}",
                    mirror.failures.in_a_row
                ),
                format!("what it needs is in the reason; farside mirror history {name} has them all"),
            );
        }
        of_signature(name, mirror, found);
        of_went_back(name, mirror, found);
    }

    fn progress(
        &mut self,
        now: Duration,
        name: &str,
        mirror: &DrivenSeen,
        limits: &Limits,
        found: &mut Found,
    ) {
        let Some(transfer) = mirror.transfer else {
            self.moved.remove(name);
            return;
        };
        let (before, since) = self.moved.entry(name.to_owned()).or_insert((transfer, now));
        if *before != transfer {
            (*before, *since) = (transfer, now);
        }
        let stands = now.saturating_sub(*since);
        if stands >= limits.no_progress_after {
            let why = mirror.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            found.holds(
                Kind::NoProgress,
                name,
                format!(
                    "the transfer of {name} has not got on for {} (phase {}){why}",
                    roughly(stands.as_secs_f64()),
                    transfer.phase
                ),
                format!(
                    "farside peer status {} shows whether the link works; farside mirror abort {name} ends the transfer, and the \
                     next one goes on with what it has brought",
                    mirror.peer
                ),
            );
        }
    }

    fn daemons(&mut self, now: Duration, daemons: &DaemonsSeen, limits: &Limits, found: &mut Found) {
        let gone = match daemons {
            DaemonsSeen::Known { gone } => gone.as_slice(),
            DaemonsSeen::None => &[],
            DaemonsSeen::Unknown { raised } => {
                return raised.iter().for_each(|name| found.unsure(&[Kind::DaemonGone], name));
            }
        };
        self.gone.retain(|name, _| gone.contains(name));
        for name in gone {
            let silent = now.saturating_sub(*self.gone.entry(name.clone()).or_insert(now));
            if silent < limits.daemon_gone_after {
                // Raised by the daemon that led before, perhaps.
                found.unsure(&[Kind::DaemonGone], name);
                continue;
            }
            found.holds(
                Kind::DaemonGone,
                name,
                format!(
                    "the daemon {name} of this site has not been seen for {}, and could not take over",
                    roughly(silent.as_secs_f64())
                ),
                format!(
                    "start it; its log and that of its machine say why it ended. If it will not come back: farside site remove {name}"
                ),
            );
        }
    }

    fn peer(
        &mut self,
        now: Duration,
        peer: &PeerSeen,
        limits: &Limits,
        has_replicas: bool,
        found: &mut Found,
    ) {
        let answered = self.answered.entry(peer.id).or_insert(now);
        if peer.answers {
            *answered = now;
        } else {
            let silent = now.saturating_sub(*answered);
            let name = &peer.name;
            if silent >= limits.peer_gone_after {
                let why = peer.why.as_deref().unwrap_or("no session came about");
                found.holds(
                    Kind::PeerGone,
                    name,
                    format!("peer {name} has not answered for {}: {why}", roughly(silent.as_secs_f64())),
                    gone_hint(peer, has_replicas),
                );
            } else {
                found.unsure(&[Kind::PeerGone], name);
            }
        }
        let of_clock = |ahead: f64| {
            let word = if ahead > 0.0 { "ahead of" } else { "behind" };
            format!("the clock of {} is {} {word} this site's", peer.name, roughly(ahead.abs()))
        };
        match (peer.clocks_apart, peer.clock_ahead_seconds) {
            (Some(ahead), _) if peer.answers => found.holds(
                Kind::ClockWrong,
                &peer.name,
                of_clock(ahead),
                String::from(
                    "synchronise the clocks of both sites (NTP). Lag is counted with the difference; times that schedules and \
                     persons name mean other moments there",
                ),
            ),
            (None, Some(ahead))
                if peer.answers && ahead.abs() <= CLOCK_RIGHT + peer.rtt_seconds.unwrap_or_default() => {}
            _ => found.unsure(&[Kind::ClockWrong], &peer.name),
        }
    }
}

/// Whether a replica here follows a peer. One whose pool is not open may.
fn has_replicas_of(mirrors: &[MirrorSeen], peer: &str) -> bool {
    mirrors.iter().any(|mirror| match &mirror.driven {
        None => true,
        Some(driven) => driven.peer == peer && driven.state != State::BrokenOff,
    })
}

/// What to do about a peer that does not answer. Nobody is told to break replicas off that there are none of.
fn gone_hint(peer: &PeerSeen, has_replicas: bool) -> String {
    let name = &peer.name;
    let first = match peer.is_removed_there {
        true => format!(
            "the pairing was ended there. To go on: pair again (farside peer invite there, farside peer join here). If that is meant: \
             farside peer remove {name}"
        ),
        false => format!(
            "is its farsided running, and does the link work (farside peer status {name})? Mirrors go on by themselves when it is back"
        ),
    };
    match has_replicas {
        true => {
            format!("{first}. If the site is lost: farside mirror break makes its replicas here writable")
        }
        false => first,
    }
}

/// What can be found of a mirror.
const OF_MIRRORS: &[Kind] = &[
    Kind::ObjectiveBroken,
    Kind::ObjectiveAtRisk,
    Kind::NoProgress,
    Kind::NoRoom,
    Kind::TransfersFailing,
    Kind::Ransomware,
    Kind::TwoOriginals,
    Kind::SourceWentBack,
];
/// Of these, what is about updates that come.
const OF_UPDATES: &[Kind] = &[
    Kind::ObjectiveBroken,
    Kind::ObjectiveAtRisk,
    Kind::NoProgress,
    Kind::NoRoom,
    Kind::TransfersFailing,
    Kind::SourceWentBack,
];
/// Of a pool.
const OF_POOLS: &[Kind] = &[Kind::PoolNearlyFull, Kind::PoolFull, Kind::PoolFailed, Kind::PoolSetBack];
/// Of a peer.
const OF_PEERS: &[Kind] = &[Kind::PeerGone, Kind::ClockWrong];

/// What was raised of a mirror or a pool that is no more is over. Not by the first look that misses it: a pool may just be opened or
/// closed. `known` is of those that were seen, and whether the last look missed them.
fn deleted<'a>(
    known: &mut BTreeMap<String, bool>,
    there: impl Iterator<Item = &'a String>,
    kinds: &[Kind],
    found: &mut Found,
) {
    let there: BTreeSet<&String> = there.collect();
    known.retain(|name, was_missing| {
        let is_missing = !there.contains(name);
        let is_deleted = is_missing && *was_missing;
        if is_deleted {
            found.over(kinds, name);
        }
        *was_missing = is_missing;
        !is_deleted
    });
    known.extend(there.into_iter().map(|name| (name.clone(), false)));
}

#[derive(Default)]
struct Found(Vec<Finding>);

impl Found {
    fn holds(&mut self, kind: Kind, subject: &str, message: String, hint: String) {
        self.0.push(Finding { kind, subject: subject.to_owned(), verdict: Verdict::Holds { message, hint } });
    }

    fn unsure(&mut self, kinds: &[Kind], subject: &str) {
        let unsure =
            |kind: &Kind| Finding { kind: *kind, subject: subject.to_owned(), verdict: Verdict::Unsure };
        self.0.extend(kinds.iter().map(unsure));
    }

    fn over(&mut self, kinds: &[Kind], subject: &str) {
        let over = |kind: &Kind| Finding { kind: *kind, subject: subject.to_owned(), verdict: Verdict::Over };
        self.0.extend(kinds.iter().map(over));
    }
}

/// How late a mirror may be by `schedule`, if its data was so `lag_seconds` before `now`. None: nobody said.
///
/// Of a timetable: the second tick after the data's has passed when it is at risk, the third when it is too late: more than one was
/// missed.
pub(crate) fn due(schedule: &Schedule, now: Timestamp, lag_seconds: f64) -> Option<Due> {
    match schedule {
        // An objective says itself how late it may be.
        Schedule::OnRequest | Schedule::Objective(_) => None,
        Schedule::Every(every) => Some(Due {
            at_risk_seconds: (AT_RISK_INTERVALS * every.as_secs_f64()).max(AT_RISK_LEAST),
            broken_seconds: (BROKEN_INTERVALS * every.as_secs_f64()).max(BROKEN_LEAST),
        }),
        Schedule::Cron(timetable) => {
            let lag = Duration::try_from_secs_f64(lag_seconds).ok()?;
            let data = Timestamp(now.0.saturating_sub(u64::try_from(lag.as_nanos()).ok()?));
            let first = timetable.next_after(data.plus(TICK_SLACK))?;
            let second = timetable.next_after(first)?;
            let third = timetable.next_after(second)?;
            Some(Due {
                at_risk_seconds: second.seconds_since(data).max(AT_RISK_LEAST),
                broken_seconds: third.seconds_since(data).max(BROKEN_LEAST),
            })
        }
    }
}

fn of_delayed(delayed: &Delayed, found: &mut Found) {
    let Delayed { id, who, from, method, path, thing, runs_at, .. } = delayed;
    found.holds(
        Kind::DestructiveDelayed,
        thing,
        format!("{who} at {from} has asked for what takes data of {thing} away ({method} {path}); it runs at {runs_at}"),
        format!("if nobody meant that: farside delayed stop {id}, and then farside token revoke, or a new password"),
    );
}

/// The last snapshot of a timetable was not taken, or not as it should be.
fn of_failing_snapshots(volume: &str, why: &str, found: &mut Found) {
    found.holds(
        Kind::SnapshotsFailing,
        volume,
        format!("snapshots of {volume} by timetable go wrong: {why}"),
        format!(
            "see to the hook, or to what is in its way; the next snapshot tries it again. farside snapshot schedule {volume} shows the \
             timetable"
        ),
    );
}

/// A source whose replica was broken off lives on, or is kept from its hosts until a person decides.
fn of_overtaken(overtaken: &OvertakenSeen, found: &mut Found) {
    let OvertakenSeen { name, peer, replica, beyond, ended, group, is_fenced, site } = overtaken;
    // Without a mirror nothing there says what it would follow.
    let from_here = if *ended { format!(" --from {site}:{name}") } else { String::new() };
    let went_on = match (beyond, ended) {
        (Some(beyond), _) => {
            format!("{beyond}, beyond the replica {replica} at {peer}, was broken off")
        }
        (None, true) => {
            format!("the replica {replica} at {peer} was broken off, and its mirror deleted there since")
        }
        (None, false) => format!("the replica {replica} at {peer} was broken off"),
    };
    found.holds(
        Kind::TwoOriginals,
        name,
        match is_fenced {
            false => format!("{went_on}: hosts may be writing there and to {name} here"),
            true => format!(
                "{went_on}: hosts may be writing there, and may not write to {name} here until it is decided which of the two goes on"
            ),
        },
        match beyond {
            Some(beyond) => format!(
                "decide which of the two goes on, and stop the hosts of the other. To have {name} go on: farside mirror resync at the \
                 site of {beyond}. To keep both: farside mirror release at {peer}"
            ),
            None if let Some(group) = group.as_ref().filter(|_| !ended) => format!(
                "decide which of the two goes on, for all of group {group}, and stop the hosts of the other; farside mirror status {name} \
                 says how far they differ. To have the group here follow: farside mirror resync --group {group}. To have that at {peer} \
                 follow: the same at {peer}. To keep both of {name}: farside mirror release {name} {peer}"
            ),
            None => format!(
                "decide which of the two goes on, and stop the hosts of the other; farside mirror status {name} says how far they \
                 differ. To have {name} follow: farside mirror resync {name} --from {peer}:{replica}. To have the other follow: \
                 farside mirror resync {replica}{from_here} at {peer}. To keep both: farside mirror release {name} {peer}"
            ),
        },
    );
}

/// A replica was broken off, and its source may not know.
fn of_break(name: &str, mirror: &DrivenSeen, is_isolated: bool, found: &mut Found) {
    let DrivenSeen { peer, source, site, group, .. } = mirror;
    let way_back = match group {
        Some(group) => format!("--group {group}"),
        None => format!("{source} --from {site}:{name}"),
    };
    if is_isolated {
        found.unsure(&[Kind::TwoOriginals], name);
    } else if mirror.is_source_unaware {
        found.holds(
            Kind::TwoOriginals,
            name,
            format!(
                "{name} was broken off, and {peer} has not heard of it: hosts may be writing here and to {peer}:{source}"
            ),
            match mirror.is_peer_removed {
                false => format!(
                    "see to it that no host writes to {source} at {peer}; it is told as soon as there is a session (farside peer status \
                     {peer}). Then, to mirror the other way, at {peer}: farside mirror resync {way_back}. If that site is lost for good: farside mirror \
                     delete {name} ends the mirror, and the volume stays"
                ),
                true => format!(
                    "see to it that no host writes to {source} there; that site is not paired any more, so it is told only once both \
                     are paired again. If it is lost for good: farside mirror delete {name} ends the mirror, and the volume stays"
                ),
            },
        );
    }
}

/// A group whose volumes are of no use together. While its roles change that is so for a moment.
fn of_split(split: &Split, found: &mut Found) {
    let group = &split.group;
    if split.is_changing() {
        return found.unsure(&[Kind::GroupSplit], group);
    }
    found.holds(
        Kind::GroupSplit,
        group,
        format!("group {group} is split: {}", split.places()),
        format!("{}. Start no host on it before all of it is on one side", split.ways_out()),
    );
}

fn of_signature(name: &str, mirror: &DrivenSeen, found: &mut Found) {
    match &mirror.signature {
        Signature::Normal => {}
        Signature::StillSuspected => found.unsure(&[Kind::Ransomware], name),
        Signature::Suspected { message } => found.holds(
            Kind::Ransomware,
            name,
            message.clone(),
            format!(
                "stop the updates: farside mirror quiesce {name}. Then look at the hosts of the source. If they are encrypted, \
                 go on from the last good point: farside mirror break {name} --at SNAPSHOT. If it was something else: farside \
                 alarm ack, and farside mirror resume {name}"
            ),
        ),
    }
}

fn of_went_back(name: &str, mirror: &DrivenSeen, found: &mut Found) {
    match &mirror.went_back {
        WentBackSeen::No => {}
        WentBackSeen::StillRaised => found.unsure(&[Kind::SourceWentBack], name),
        WentBackSeen::Settled => found.over(&[Kind::SourceWentBack], name),
        WentBackSeen::Yes(why) => {
            // Of one volume alone the group would be of two moments.
            let go_on = match &mirror.group {
                None => format!("farside mirror break {name} --at that name"),
                Some(group) => {
                    format!(
                        "farside mirror break --group {group} --at that name takes over all of its group; if it says that not all have that moment, --at the \
                     newest point from before that all have, by farside snapshot list"
                    )
                }
            };
            let update = match &mirror.group {
                None => format!("farside mirror update {name}"),
                Some(group) => format!("farside mirror update --group {group}"),
            };
            found.holds(
                Kind::SourceWentBack,
                name,
                why.clone(),
                format!(
                    "if nobody at {0} meant it, stop its hosts first: they write to what is older. What {name} showed is in the side \
                     branch named above: look into it (farside clone), or go on from it ({go_on}). If it was meant: {update}",
                    mirror.peer
                ),
            )
        }
    }
}

fn of_objective(name: &str, mirror: &DrivenSeen, is_isolated: bool, found: &mut Found) {
    const KINDS: &[Kind] = &[Kind::ObjectiveBroken, Kind::ObjectiveAtRisk];
    match mirror.state {
        // A person wanted it so, or there is nothing yet that could be late.
        State::Quiesced => return found.over(KINDS, name),
        State::BrokenOff | State::Uninitialized => return,
        State::Initializing if mirror.lag_seconds.is_none() => return,
        _ if is_isolated => return found.unsure(KINDS, name),
        _ => {}
    }
    let (at_risk, broken, whose) = match (mirror.objective_seconds, mirror.due) {
        (Some(objective), _) => (objective * AT_RISK_PART, objective, "its objective is"),
        (None, Some(due)) => (due.at_risk_seconds, due.broken_seconds, "by its schedule it may be"),
        (None, None) => return,
    };
    let Some(lag) = mirror.lag_seconds else { return found.unsure(KINDS, name) };
    let why = mirror.why.as_ref().map(|why| format!(". {why}")).unwrap_or_default();
    let hint = || {
        let status = format!(
            "farside mirror status {name} says what stops it, farside peer status {} whether the link is full or gone",
            mirror.peer
        );
        match mirror.is_peer_away {
            true => status,
            false => format!("{status}. farside mirror update {name} starts an update at once"),
        }
    };
    if lag > broken {
        let text = format!("{name} is {} behind, {whose} {}{why}", roughly(lag), roughly(broken));
        found.holds(Kind::ObjectiveBroken, name, text, hint());
    } else if lag > broken * OVER_PART {
        found.unsure(&[Kind::ObjectiveBroken], name);
    }
    // That it does not fit is an alarm of its own from the first attempt on, and says more than how late it may get.
    if mirror.no_room.is_some() {
        return;
    }
    // A forecast says more than a part of the time that has passed.
    let (expected, limit) = match mirror.forecast_seconds {
        Some(forecast) if !mirror.is_peer_away => (forecast.max(lag), broken),
        _ => (lag, at_risk),
    };
    if expected > limit {
        // Without a session it has no end.
        let may_get = match mirror.is_peer_away {
            true => {
                format!("is {} behind, and more until there is a session with {}", roughly(lag), mirror.peer)
            }
            false => format!("may get {} behind", roughly(expected)),
        };
        let text = format!("{name} {may_get}, {whose} {}{why}", roughly(broken));
        found.holds(Kind::ObjectiveAtRisk, name, text, hint());
    } else if expected > limit * OVER_PART {
        found.unsure(&[Kind::ObjectiveAtRisk], name);
    }
}

/// An update that does not fit is tried again now and then, and brings nothing until somebody makes room.
fn of_room(name: &str, mirror: &DrivenSeen, pools: &[PoolSeen], found: &mut Found) {
    if mirror.state == State::BrokenOff {
        return;
    }
    let Some(why) = &mirror.no_room else {
        if !mirror.is_room_known {
            found.unsure(&[Kind::NoRoom], name);
        }
        return;
    };
    let pool = name.split('/').next().unwrap_or(name);
    let known = pools.iter().find(|seen| seen.name == pool).and_then(|seen| seen.known.as_ref());
    let to_make_room = match known {
        Some(known) => known.to_make_room.clone(),
        None => format!("farside pool grow {pool} --size SIZE, or delete snapshots that nobody needs"),
    };
    found.holds(
        Kind::NoRoom,
        name,
        format!(
            "{name} stands still, and will not get on until there is room for what is to be brought: {why}"
        ),
        match mirror.state {
            State::Uninitialized | State::Initializing => {
                format!("{to_make_room}; then farside mirror initialize {name}")
            }
            _ => format!("{to_make_room}; then farside mirror update {name}"),
        },
    );
}

fn of_pool(name: &str, pool: &PoolKnown, found: &mut Found) {
    match pool.room {
        None => found.unsure(&[Kind::PoolNearlyFull, Kind::PoolFull], name),
        Some(room) => {
            let warning = pool.warning.as_deref().unwrap_or("little is left of it");
            // What to do is the alarm's hint.
            let what = warning.split_once(". What to do: ").map_or(warning, |(what, _)| what);
            let message = || format!("pool {name}: {what}");
            let hint = || pool.to_make_room.clone();
            if room >= PoolRoom::NearlyFull {
                found.holds(Kind::PoolNearlyFull, name, message(), hint());
            }
            if room >= PoolRoom::Full {
                found.holds(Kind::PoolFull, name, message(), hint());
            }
        }
    }
    if let Some(had_more_at) = pool.set_back {
        found.holds(
            Kind::PoolSetBack,
            name,
            format!(
                "pool {name} is an older copy of itself, or has lost its newest changes: at {had_more_at:.0} it had more than it shows \
                 now. What hosts wrote in between is not in it; its replicas at other sites may have it"
            ),
            String::from(
                "if nobody meant it, stop the hosts of its volumes. What a replica shows is kept when its next update finds this: \
                 farside mirror quiesce at the other sites keeps it in place until you have looked. Then either hosts go on there \
                 (farside mirror break), or stop farsided here, put the newer pool back in its place, and start it. If it was meant, \
                 or is mended: farside alarm ack"
            ),
        );
    }
    if let Some(error) = &pool.error {
        let advice = pool.advice.clone();
        found.holds(
            Kind::PoolFailed,
            name,
            format!("pool {name}: {error}"),
            advice.unwrap_or_else(|| String::from("the page Repairing a site of the manual says what to do")),
        );
    }
}

pub(super) mod ending;

#[cfg(test)]
mod tests;
