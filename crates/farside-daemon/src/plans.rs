//! What destructive requests would do, in words and figures. Pure: whoever asks has looked the facts up.
//!
//! Each plan tells first what happens, then what would be lost for good, then what stays and where. Figures of data are in
//! fields; the client puts them into the units its reader likes.

use std::time::Duration;

use farside_api::{Account, ErrorBody, HostStatus, Plan, StagedContent, Timestamp, Token, VolumeHost};
use farside_engine::{BLOCK_BYTES, RoomBelow, StagingRoom, VolumeName};
use farside_mirror::rescues;

use crate::convert::roughly;
use crate::exports::Clients;
use crate::peers::Unseen;

/// A plan that loses and keeps nothing yet.
pub(crate) fn plan(action: String) -> Plan {
    Plan { action, lost_blocks: Some(0), lost_bytes: Some(0), lost_seconds: Some(0.0), ..Plan::default() }
}

/// What goes for good; None where it is unknown.
fn lose(plan: &mut Plan, what: String, bytes: Option<u64>, seconds: Option<f64>) {
    plan.lost.push(what);
    plan.lost_bytes = bytes;
    plan.lost_blocks = bytes.map(blocks);
    plan.lost_seconds = seconds;
}

/// What becomes a side branch; None where it is unknown.
fn keep(plan: &mut Plan, what: String, bytes: Option<u64>, seconds: Option<f64>) {
    plan.kept_as = Some(what);
    plan.kept_bytes = bytes;
    plan.kept_blocks = bytes.map(blocks);
    plan.kept_seconds = seconds;
}

/// How many blocks hold so many bytes.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// Why hosts have to go first, if they have to.
pub(crate) fn busy(volume: &VolumeName, writers: &Clients) -> Option<String> {
    let (connections, count) = writers.count();
    (connections > 0).then(|| {
        format!(
            "there {} {count} that may write to {volume}{}, and its content would change under them; disconnect the hosts \
             first (unmount, stop the virtual machines)",
            if connections == 1 { "is" } else { "are" },
            writers.named()
        )
    })
}

/// That somebody has asked for a resync which has not begun.
pub(crate) fn resync_waits(volume: &VolumeName, peer: &str) -> String {
    format!(
        "a resync that was asked for waits for {peer}: when that answers, {volume} becomes a replica and shows what is there. Until then nothing is changed, and farside mirror abort {volume} gives it up"
    )
}

/// How a side branch is used.
fn opens(name: &str) -> String {
    format!(
        "{name}; it opens read-only over NBD under that name, and farside snapshot rollback goes back to it"
    )
}

/// The name of a rescue snapshot before it is given.
fn rescue(volume: &VolumeName) -> String {
    opens(&format!("a side branch {volume}@rescue-TIME (its name is printed when it is done)"))
}

/// `snapshot rollback`.
pub(crate) struct RollbackFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    pub(crate) snapshot: &'a str,
    pub(crate) created_at: Timestamp,
    pub(crate) on_main_line: bool,
    /// Size of the volume, and of the snapshot, bytes.
    pub(crate) size_bytes: u64,
    pub(crate) snapshot_size_bytes: u64,
    /// In which the volume differs from the snapshot; None: unknown.
    pub(crate) changed_bytes: Option<u64>,
    /// A person's snapshot that holds all of what the volume shows, and does not go by itself.
    pub(crate) held_by: Option<&'a str>,
    pub(crate) age_seconds: f64,
    /// `PEER:POOL/VOL` that follow it.
    pub(crate) followed_by: &'a [String],
    /// `PEER:POOL/VOL` that were broken off from it: hosts went on there.
    pub(crate) broken_off: &'a [String],
    /// Why hosts may not write to it, if it is fenced.
    pub(crate) fence: Option<&'a str>,
    /// The group that its mirror is in with others.
    pub(crate) group: Option<&'a str>,
    /// Old side branches of the volume that go for the new one.
    pub(crate) lets_go: &'a [String],
}

pub(crate) fn rollback(facts: &RollbackFacts<'_>) -> Plan {
    let RollbackFacts { volume, snapshot, .. } = facts;
    let mut plan = plan(format!("roll {volume} back to {snapshot}"));
    plan.would
        .push(format!("hosts find {volume} as it was at {:.0}, when {snapshot} was taken", facts.created_at));
    if facts.size_bytes != facts.snapshot_size_bytes {
        plan.would.push(format!(
            "its size becomes {} bytes instead of {}",
            facts.snapshot_size_bytes, facts.size_bytes
        ));
    }
    if !facts.on_main_line {
        plan.would.push(format!("{snapshot} lies on a side branch, which becomes the main line"));
    }
    if let Some(why) = facts.fence {
        plan.would.push(format!("hosts may read it, and not write, as before: {why}"));
    }
    plan.would.extend(
        facts
            .followed_by
            .iter()
            .map(|by| format!("{by} follows at its next update, as with any other change")),
    );
    plan.would.extend(
        facts
            .broken_off
            .iter()
            .map(|by| format!("{by} stays as it is: it was broken off from {volume}, and follows nothing")),
    );
    // Whoever goes back with all of them finds the command's name in it.
    plan.would.extend(facts.group.map(|group| {
        format!(
            "the other volumes of group {group} stay where they are: unless they show that moment too, the group shows no moment in common \
             then; farside snapshot rollback --group {group} --at {snapshot} takes all of them to it, if all have it"
        )
    }));
    match (facts.changed_bytes, facts.held_by) {
        (Some(0), _) => {}
        (changed, Some(held_by)) => {
            keep(&mut plan, opens(&format!("{volume}@{held_by}")), changed, Some(facts.age_seconds));
        }
        (changed, None) => keep(&mut plan, rescue(volume), changed, Some(facts.age_seconds)),
    }
    for old in facts.lets_go {
        lose(&mut plan, old_side_branch(volume, old), None, None);
    }
    plan
}

/// One that goes for a new one.
fn old_side_branch(volume: &VolumeName, old: &str) -> String {
    format!(
        "the old side branch {volume}@{old}: a volume keeps its newest, and the first of each of as many days (replicas.rescues). \
         To keep it: farside snapshot hold {volume}@{old}"
    )
}

/// `snapshot delete`. `frees_bytes` is what comes back in the pool, at most.
pub(crate) fn delete_snapshot(
    volume: &VolumeName,
    snapshot: &str,
    created_at: Timestamp,
    on_main_line: bool,
    only_here_bytes: Option<u64>,
    frees_bytes: Option<u64>,
    clones: &[String],
) -> Plan {
    let mut plan = plan(format!("delete snapshot {volume}@{snapshot}"));
    plan.would
        .push(format!("{volume}@{snapshot} is deleted; the volume and its other snapshots stay as they are"));
    leave_clones(&mut plan, clones);
    if let Some(bytes) = frees_bytes.filter(|_| clones.is_empty()) {
        plan.would.push(format!(
            "at most {bytes} bytes come back in the pool; what a newer version, or deduplication, still uses stays in use"
        ));
    }
    let what = if on_main_line {
        format!(
            "the state of {volume} at {created_at:.0}; at most the data that no other version of it holds:"
        )
    } else {
        format!(
            "the overtaken state of {volume} at {created_at:.0}, a side branch; at most the data that no other version \
             of it holds:"
        )
    };
    lose(&mut plan, what, only_here_bytes, None);
    plan
}

/// `volume delete`.
pub(crate) fn delete_volume(
    volume: &VolumeName,
    snapshots: u64,
    bytes: Option<u64>,
    clones: &[String],
    rights_of: &[String],
    hosts: &[VolumeHost],
) -> Plan {
    let mut plan = plan(format!("delete volume {volume}"));
    plan.would.push(match snapshots {
        1 => format!("{volume} and its snapshot are deleted"),
        many => format!("{volume} and its {many} snapshots are deleted"),
    });
    leave_clones(&mut plan, clones);
    end_rights(&mut plan, rights_of);
    if !hosts.is_empty() {
        let names: Vec<_> = hosts.iter().map(|right| right.host.as_str()).collect();
        plan.would.push(format!("hosts lose their right to open it: {}", names.join(", ")));
    }
    lose(&mut plan, format!("everything in {volume} and in its snapshots"), bytes, None);
    plan
}

/// Clones of what goes: they have all of it that is theirs.
fn leave_clones(plan: &mut Plan, clones: &[String]) {
    if !clones.is_empty() {
        plan.would.push(format!(
            "clones of it stay as they are, and what they have in common with it stays in use: {}",
            clones.join(", ")
        ));
    }
}

/// Peers that may mirror what goes.
fn end_rights(plan: &mut Plan, rights_of: &[String]) {
    if !rights_of.is_empty() {
        plan.would.push(format!("peers lose their right to mirror it: {}", rights_of.join(", ")));
    }
}

/// `volume resize`; `beyond_bytes` is what lies past the new end and in no snapshot.
pub(crate) fn resize(volume: &VolumeName, from: u64, to: u64, beyond_bytes: Option<u64>) -> Plan {
    let mut plan = plan(format!("resize volume {volume}"));
    plan.would.push(format!("{volume} has {to} bytes instead of {from}"));
    if to < from {
        plan.would.push(String::from(
            "snapshots that people made keep what they hold past the new end; those of mirrors go with their next update, here and at \
             the replica, and those of a timetable when it is their turn",
        ));
        if beyond_bytes != Some(0) {
            lose(
                &mut plan,
                format!("what lies past byte {to} of {volume}, and is not in the newest snapshot that stays"),
                beyond_bytes,
                None,
            );
        }
    }
    plan
}

/// `pool create`, where `found` is what lies on the device.
pub(crate) fn create_pool(pool: &str, path: &str, found: &[String], overwrite: bool) -> Plan {
    let mut plan = plan(format!("create pool {pool} in {path}"));
    plan.would.push(format!("{path} becomes an empty pool"));
    if !found.is_empty() {
        lose(&mut plan, format!("what {path} holds: {}", found.join(", ")), None, None);
        if !overwrite {
            plan.refused = Some(String::from("it is not blank; --overwrite destroys what is there"));
        }
    }
    plan
}

/// `pool create` of a pool of Ceph.
pub(crate) fn add_clustered(pool: &str, path: &str) -> Plan {
    let mut plan = plan(format!("create pool {pool} of {path}"));
    plan.would.push(format!(
        "this daemon connects to the cluster, and the pool's images are volumes of pool {pool}. They stay as they are: nothing is \
         written to one until it is mirrored"
    ));
    plan
}

/// `pool import`.
pub(crate) fn import_pool(pool: &str, path: &str, as_copy: bool) -> Plan {
    let mut plan = plan(format!("import pool {pool} from {path}"));
    if !as_copy {
        plan.would.push(format!(
            "the pool in {path} is opened under the name {pool}, with its volumes and its mirrors"
        ));
        return plan;
    }
    plan.would.push(format!(
        "the pool in {path} becomes a pool of its own: it and its volumes get new identities, for good"
    ));
    plan.would.push(String::from(
        "its mirrors end, without a word to any peer: its volumes become ordinary ones that hosts may write to, and nobody has a \
         right to them; of what a mirror kept, the newest version of each volume stays as a snapshot base-TIME",
    ));
    plan.would.push(String::from(
        "the pool that it was copied from, and that pool's mirrors, go on as before. Be sure that this is the copy",
    ));
    plan
}

/// `pool delete`, of a pool that is open.
pub(crate) fn delete_pool(
    pool: &str,
    path: &str,
    volumes: u64,
    used_bytes: u64,
    rights_of: &[String],
) -> Plan {
    let mut plan = plan(format!("delete pool {pool}"));
    plan.would.push(format!(
        "pool {pool} is closed, and {path} removed (a raw device: overwritten at its head and end)"
    ));
    end_rights(&mut plan, rights_of);
    lose(
        &mut plan,
        match volumes {
            1 => String::from("the volume of the pool with its snapshots; metadata is counted too"),
            many => format!("all {many} volumes of the pool with their snapshots; metadata is counted too"),
        },
        Some(used_bytes),
        None,
    );
    plan
}

/// `pool delete`, of a pool that is not open.
pub(crate) fn forget_pool(pool: &str, path: &str, is_gone: bool, replicas: &[String]) -> Plan {
    let mut plan = plan(format!("forget pool {pool}"));
    plan.would.push(match is_gone {
        true => format!(
            "pool {pool} is forgotten. Nothing is at {path} now: nothing is deleted there, and nothing of the pool stays there. If it was \
             moved, do not forget it: farside pool import {pool} --path NEW-PATH"
        ),
        false => format!(
            "pool {pool}, which is not open, is forgotten; {path} stays as it is, and farside pool import takes it over again. If it was \
             moved, that alone is enough: farside pool import {pool} --path NEW-PATH"
        ),
    });
    if !replicas.is_empty() {
        plan.lost
            .push(format!("schedules, retention and limits of the mirrors into {}", replicas.join(", ")));
    }
    plan
}

/// What ends a transfer that is in the way of `pool drop-staged`.
pub(crate) const STOP_TRANSFER: &str = "wait for it, or end it: farside mirror quiesce, then farside mirror abort, and farside mirror resume afterwards";

/// `pool drop-staged`.
pub(crate) fn drop_staged(pool: &str, staged: &[StagedContent], bytes: Option<u64>) -> Plan {
    let mut plan = plan(format!("drop what is staged in pool {pool}"));
    if staged.is_empty() {
        plan.would.push(String::from("nothing: no interrupted transfer has left anything there"));
        return plan;
    }
    let names: Vec<String> = staged.iter().map(|staged| format!("{pool}/{}", staged.volume)).collect();
    plan.would.push(format!(
        "what transfers to {} brought and did not publish is discarded; the next transfer starts from the beginning; what the \
         volumes show stays as it is",
        names.join(", ")
    ));
    lose(&mut plan, String::from("to be sent again:"), bytes, Some(0.0));
    let running = staged.iter().find(|staged| staged.transferring);
    plan.refused = running.map(|staged| format!("a transfer to {pool}/{} runs now", staged.volume));
    plan
}

/// `mirror break`.
pub(crate) struct BreakFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    /// `PEER:POOL/VOL`.
    pub(crate) source: &'a str,
    /// The newest replicated snapshot, and the age of its data.
    pub(crate) current: Option<(&'a str, f64)>,
    /// Retention lets that one go one day, so it keeps nothing for good.
    pub(crate) current_rotates: bool,
    /// Instead of that it shows its own state: a resync is pending.
    pub(crate) shows_own_state: bool,
    pub(crate) at: Option<BreakAt<'a>>,
    /// What becomes of a fence of the volume.
    pub(crate) fence: FenceAfter,
    /// Bytes of a transfer under way that have arrived.
    pub(crate) arrived_bytes: Option<u64>,
    /// The source's site, if there is a session and it answers.
    pub(crate) answering: Option<&'a str>,
    /// A change of roles is under way, and ends by it.
    pub(crate) is_swapping: bool,
    /// When the source's site was last heard, if it is away.
    pub(crate) heard: Option<Heard<'a>>,
    pub(crate) readers: usize,
    /// The group that it is in.
    pub(crate) group: Option<&'a str>,
    /// Others of it are replicas still.
    pub(crate) others_follow: bool,
    /// Why the pool accepts no writes of hosts now.
    pub(crate) hosts_refused: Option<&'a str>,
    /// Old side branches of the volume that go for what is set aside.
    pub(crate) lets_go: &'a [String],
}

/// A site that is away was last heard.
pub(crate) struct Heard<'a> {
    pub(crate) peer: &'a str,
    pub(crate) at: Timestamp,
    /// So much later than what the replica shows was taken.
    pub(crate) after_seconds: f64,
}

/// What becomes of a volume's fence when its mirror is broken off or deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FenceAfter {
    /// There is none.
    None,
    /// It stays, for this reason: the volume was itself overtaken.
    Stays(String),
    /// It goes: it was there because the volume's pool was set back.
    Lifted,
}

/// The earlier point of a break.
pub(crate) struct BreakAt<'a> {
    pub(crate) snapshot: &'a str,
    pub(crate) age_seconds: f64,
    /// In which the newest point differs from it; None: unknown.
    pub(crate) newer_bytes: Option<u64>,
}

pub(crate) fn break_off(facts: &BreakFacts<'_>) -> Plan {
    let BreakFacts { volume, source, current, at, .. } = facts;
    let mut plan = plan(match at {
        Some(at) => format!("break mirror {volume} at {}", at.snapshot),
        None => format!("break mirror {volume}"),
    });
    let holds = match (at, current) {
        // What was set aside here no source has.
        (Some(at), _) if rescues::is_reserved(at.snapshot) => {
            format!("what was set aside here as {}", at.snapshot)
        }
        (Some(at), _) => format!("{} of {source}", at.snapshot),
        (None, _) if facts.shows_own_state => {
            format!(
                "its own state, as hosts here left it: the resync that is pending is given up, and nothing of {source} was brought"
            )
        }
        (None, Some((current, _))) => format!("{current} of {source}"),
        (None, None) if facts.fence == FenceAfter::Lifted => {
            format!(
                "what its pool shows, an older copy than this site's database knows of, and less than {source}"
            )
        }
        (None, None) => format!("nothing of {source} yet"),
    };
    plan.would.push(match &facts.fence {
        FenceAfter::Stays(why) => {
            format!("{volume} follows {source} no more, and holds {holds}; hosts may read it, and not write: {why}")
        }
        FenceAfter::None | FenceAfter::Lifted => format!("hosts may write to {volume}, which holds {holds}"),
    });
    if let Some(why) = facts.hosts_refused {
        plan.would.push(format!("the break goes through, but hosts' writes to {volume} fail for now: {why}"));
    }
    let shows_own_state = facts.shows_own_state;
    let is_given_up =
        at.is_none() && current.is_none() && !shows_own_state && facts.fence != FenceAfter::Lifted;
    plan.would.push(String::from(match is_given_up {
        true => "the first copy is given up: nothing is taken over, and the hosts at the source go on",
        false => {
            "no more updates come; the source is not asked, and is told at once if there is a session with it, else as soon as there is \
             one: its hosts are stopped then if it was allowed with --fence, and else write on"
        }
    }));
    if facts.is_swapping {
        plan.would
            .push(format!("the swap of {volume} that is under way is ended, and no role is changed by it"));
    }
    if let Some(site) = facts.answering.filter(|_| !is_given_up && !shows_own_state) {
        plan.would.push(format!(
            "{site} answers: if both sites run and the roles are only to change, farside mirror swap {volume} loses nothing"
        ));
    }
    if let Some(group) = facts.group {
        plan.would.push(match facts.others_follow {
            true => format!(
                "the other volumes of group {group} stay replicas, and none of them is updated from then on; farside mirror break --group \
                 {group} takes all of them over at one moment"
            ),
            false => format!(
                "no other volume of group {group} is a replica: what hosts have written to those since they were broken off may not fit to \
                 what {volume} shows; farside mirror break --group {group} looks, and refuses then"
            ),
        });
    }
    if facts.readers > 0 {
        plan.would.push(format!(
            "NBD connections that read the replica are dropped; {} connections are open",
            facts.readers
        ));
    }
    if let Some(bytes) = facts.arrived_bytes {
        plan.would.push(format!(
            "the running transfer ends; the {bytes} bytes of it that have arrived are dropped"
        ));
    }
    match current {
        Some((current, age)) => lose(
            &mut plan,
            format!(
                "what was written at {source} after {current} and has not arrived; that site still has it, if it is alive"
            ),
            None,
            Some(*age),
        ),
        None if shows_own_state => lose(
            &mut plan,
            format!(
                "for the hosts here: what was written at {source} since both had the same; that site still has it, if it is alive"
            ),
            None,
            None,
        ),
        None if facts.fence == FenceAfter::Lifted => lose(
            &mut plan,
            format!(
                "for the hosts here: what was written at {source} and is not in this copy; that site still has it, if it is alive"
            ),
            None,
            None,
        ),
        None => lose(&mut plan, format!("everything at {source}: nothing of it has arrived"), None, None),
    }
    if let (Some(_), Some(Heard { peer, at, after_seconds })) = (current, &facts.heard) {
        plan.lost.push(format!(
            "{peer} was last heard at {at:.0}, {} after that point, and may have gone on for some seconds until its next word was due: what \
             was written there since that point is not known here; the time that is given counts until now",
            roughly(*after_seconds)
        ));
    }
    // First: the figures are those of what comes after.
    plan.lost.splice(0..0, facts.lets_go.iter().map(|old| old_side_branch(volume, old)));
    if let (Some(at), true) = (at, shows_own_state)
        && at.newer_bytes != Some(0)
    {
        keep(&mut plan, rescue(volume), at.newer_bytes, Some(at.age_seconds.max(0.0)));
    }
    if let (Some(at), Some((current, age))) = (at, current)
        && at.newer_bytes != Some(0)
    {
        // What the mirror took is given a name that says what it is, and what rotates stays by such a name as well.
        let is_taken = current.starts_with("mirror-") || current.starts_with("kept-");
        let newer = match is_taken || facts.current_rotates {
            true => rescue(volume),
            false => opens(&format!("{volume}@{current} (and what lies between), a side branch")),
        };
        keep(&mut plan, newer, at.newer_bytes, Some((at.age_seconds - age).max(0.0)));
    }
    plan
}

/// `mirror break` of what is broken off, while a resync of it waits to begin.
pub(crate) fn give_up_resync(volume: &VolumeName) -> Plan {
    let mut plan = plan(format!("break mirror {volume}"));
    plan.would.push(format!("the resync that waits is given up; hosts may write to {volume}, as before"));
    plan
}

/// That what is planned begins only with a session, which there is none of now.
pub(crate) fn waits_for_session(peer: &str, patience: Duration) -> String {
    format!(
        "there is no session with {peer} now: this would wait up to {} for one, and then begin; if none comes, nothing is changed",
        roughly(patience.as_secs_f64())
    )
}

/// `mirror resync`.
pub(crate) struct ResyncFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    /// `PEER:POOL/VOL`.
    pub(crate) from: &'a str,
    /// The newest snapshot here that the peer holds too; None: not known.
    pub(crate) base: Option<&'a str>,
    /// What the peer has written since; None: not known.
    pub(crate) incoming_bytes: Option<u64>,
    /// Of it, what was data and is empty there by now.
    pub(crate) emptied_bytes: u64,
    /// In which the volume differs from the base, and over which time; None: not known.
    pub(crate) diverged_bytes: Option<u64>,
    pub(crate) diverged_seconds: Option<f64>,
    /// A person's snapshot that holds all of what the volume shows now.
    pub(crate) held_by: Option<&'a str>,
    /// `PEER:POOL/VOL` of a mirror of this volume that ends by it.
    pub(crate) ends: Option<&'a str>,
    /// `PEER:POOL/VOL` that the volume follows, or followed, instead until now.
    pub(crate) replaces: Option<&'a str>,
    /// `PEER:POOL/VOL` that have taken the volume over, and that it is not to follow.
    pub(crate) taken_over_by: &'a [String],
    /// Nothing is in common, and everything is compared; `base` is what is here.
    pub(crate) compares: bool,
    /// What that volume follows itself, if it is no original.
    pub(crate) follows: Option<&'a str>,
    /// Old side branches of the volume that go for the new one.
    pub(crate) lets_go: &'a [String],
    /// Points, with their moments, that retention lets go as soon as the volume follows again, oldest first.
    pub(crate) retention_lets_go: &'a [(String, Timestamp)],
}

pub(crate) fn resync(facts: &ResyncFacts<'_>) -> Plan {
    let ResyncFacts { volume, from, .. } = facts;
    let mut plan = plan(format!("resync {volume} from {from}"));
    if !facts.taken_over_by.is_empty() {
        let by = facts.taken_over_by.join(" and ");
        plan.would.push(format!("{volume} was taken over by {by}, and this follows {from} instead"));
        lose(
            &mut plan,
            format!(
                "for the hosts here: what {by} holds that {from} does not. {by} still has it; to follow that: farside mirror resync {volume} \
                 --from {}",
                facts.taken_over_by[0]
            ),
            None,
            None,
        );
    }
    plan.would
        .push(format!("{volume} becomes the replica of {from}: hosts may not write to it from then on"));
    plan.would.push(match facts.base {
        Some(_) if facts.compares => format!(
            "the two have no point in common: all of {volume} is compared with {from} (8 bytes travel for each block of 4 KiB \
             that is here), and what differs travels; until all of it is here, {volume} shows what it shows now, \
             which stays as {volume}@{}",
            facts.held_by.unwrap_or("rescue-source-TIME (its name is printed when it is done)")
        ),
        Some(base) => {
            let amount = match facts.incoming_bytes {
                Some(bytes) => format!(" ({} blocks of 4 KiB)", blocks(bytes)),
                None => String::new(),
            };
            format!(
                "what {from} wrote since {base}{amount} travels; until all of it is here, {volume} shows what it shows now"
            )
        }
        None => format!(
            "{from} is asked for the newest point that both hold; only what differs from it travels, and until all of \
             it is here, {volume} shows what it shows now"
        ),
    });
    if facts.compares {
        plan.would.push(format!(
            "where {from} is empty, {volume} is empty too from then on: all of it, if {from} was made anew or holds nothing any more"
        ));
    } else if facts.emptied_bytes > 0 {
        plan.would.push(format!(
            "of that, {} blocks of 4 KiB held data at {base} and are empty at {from} by now: {volume} shows nothing there from then on",
            blocks(facts.emptied_bytes),
            base = facts.base.unwrap_or("the common point"),
        ));
    }
    if let Some(follows) = facts.follows {
        plan.would.push(format!(
            "{from} is itself a replica, of {follows}; hosts write there only after farside mirror break at its site"
        ));
    }
    if let Some(ends) = facts.ends {
        plan.would.push(format!(
            "the mirror of {volume} at {ends} is over, or stays broken off, until that side is resynced again"
        ));
    }
    if let Some(replaces) = facts.replaces {
        plan.would.push(format!(
            "the mirror of {volume} with {replaces} is over: its last base stays here as {volume}@base-TIME, unless a named \
             snapshot holds the same, and {replaces} is told"
        ));
    }
    // Where everything is compared nobody has counted yet what differs.
    let diverged_bytes = if facts.compares { None } else { facts.diverged_bytes };
    if diverged_bytes != Some(0) {
        let newer = match facts.held_by {
            Some(held_by) => opens(&format!("{volume}@{held_by}, a snapshot that is here already")),
            None if facts.compares => opens(&format!(
                "a side branch {volume}@rescue-source-TIME (its name is printed when it is done)"
            )),
            None => rescue(volume),
        };
        let seconds = facts.diverged_seconds.filter(|_| !facts.compares);
        keep(&mut plan, newer, diverged_bytes, seconds);
    }
    for old in facts.lets_go {
        lose(&mut plan, old_side_branch(volume, old), None, None);
    }
    if !facts.retention_lets_go.is_empty() {
        let points = points_that_go(facts.retention_lets_go);
        lose(
            &mut plan,
            format!(
                "retention goes on once {volume} follows again, and lets go what it keeps no more: {points}; more if several points come \
                 at once. farside snapshot hold keeps one"
            ),
            None,
            None,
        );
    }
    plan
}

/// Points by name that are told one by one; of more only how many.
const POINTS_NAMED: usize = 10;

/// Names of points, oldest first, and how many more.
fn points_that_go(points: &[(String, Timestamp)]) -> String {
    let names: Vec<String> =
        points.iter().take(POINTS_NAMED).map(|(name, at)| format!("{name} of {at:.0}")).collect();
    match points.len().saturating_sub(POINTS_NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} newer ones", names.join(", ")),
    }
}

/// `mirror set --keep` and `snapshot schedule --keep`. `gone` are the points that go, oldest first, of so many.
pub(crate) fn rotate_otherwise(
    volume: &VolumeName,
    retention: Option<&str>,
    gone: &[(String, Timestamp)],
    of: usize,
) -> Plan {
    let mut plan = plan(match retention {
        Some(retention) => format!("keep {retention} of the points of {volume}"),
        None => format!("change {volume}"),
    });
    if of > 0 {
        plan.would.push(format!("{} of {of} points stay", of.saturating_sub(gone.len())));
    }
    if let [(oldest, at), ..] = gone {
        let newest = match gone {
            [_, .., (newest, at)] => format!(", the newest is {newest} of {at:.0}"),
            _ => String::new(),
        };
        let points = if gone.len() == 1 { "point goes" } else { "points go" };
        let what = format!(
            "{} {points} for good; the oldest is {oldest} of {at:.0}{newest}. farside snapshot hold keeps one",
            gone.len()
        );
        lose(&mut plan, what, None, None);
    }
    plan
}

/// The same where it is set so already.
pub(crate) fn rotates_so_already(volume: &VolumeName, retention: &str) -> Plan {
    let mut plan = plan(format!("keep {retention} of the points of {volume}"));
    plan.would.push("it is set so already: what it lets go goes by itself".into());
    plan
}

/// `mirror set --keep` of a mirror that is broken off: nothing goes now, and all at once when its volume follows again.
pub(crate) fn rotate_otherwise_then(
    volume: &VolumeName,
    retention: &str,
    gone: &[(String, Timestamp)],
    of: usize,
) -> Plan {
    let mut plan = plan(format!("keep {retention} of the points of {volume}"));
    plan.would.push(format!("{volume} is broken off: all {of} points stay until it follows again"));
    if !gone.is_empty() {
        let points = points_that_go(gone);
        let what = format!(
            "once {volume} follows again (farside mirror resync), {} of {of} go for good: {points}. farside snapshot hold keeps one",
            gone.len()
        );
        lose(&mut plan, what, None, None);
    }
    plan
}

/// `mirror initialize`. `source` as `SITE:POOL/VOL`; what comes and the room for it are in fields. `for_more`: what makes more room.
pub(crate) fn initialize(
    volume: &VolumeName,
    source: &str,
    brings_bytes: Option<u64>,
    room: Option<&StagingRoom>,
    for_more: &str,
) -> Plan {
    let room_bytes = room.map(|room| room.room_bytes);
    let mut plan = plan(format!("make the first copy of {source} into {volume}"));
    plan.would.push(format!("a snapshot is taken of {source}, and all it holds comes here; its hosts go on"));
    plan.would.push(format!(
        "{volume} shows nothing until the copy is whole; one that is cut goes on where it was"
    ));
    if let Some(RoomBelow { path, left_bytes }) = room.and_then(|room| room.below.as_ref()) {
        plan.would.push(format!(
            "the file system of {path} has {:.1} MiB left: that is less than the pool itself has room for, and counts. Transfers leave some \
             of it to others",
            *left_bytes as f64 / f64::from(1 << 20)
        ));
    }
    let lacks = brings_bytes.zip(room_bytes).is_some_and(|(brings, room)| brings > room);
    if lacks {
        plan.would.push(format!(
            "it does not fit: it is refused, or stops where the room ends, and what has come by then stays for the next try. For more room: \
             {for_more}"
        ));
    }
    Plan { brings_bytes, room_bytes, ..plan }
}

/// What a resync that failed after the volume had become a replica leaves behind.
pub(crate) fn after_role_change(error: ErrorBody, volume: &impl std::fmt::Display) -> ErrorBody {
    let left = format!(
        "{volume} is a read-only replica again, and no host writes to it; farside mirror break {volume} undoes that, farside mirror \
         update {volume} tries again"
    );
    let hint = match &error.hint {
        Some(hint) => format!("{left}. {hint}"),
        None => left,
    };
    error.hint(hint)
}

/// `mirror swap`.
pub(crate) fn swap(volume: &VolumeName, source: &str, lag_seconds: Option<f64>) -> Plan {
    let mut plan = plan(format!("swap {volume} and {source}"));
    plan.would.push(match lag_seconds {
        Some(lag) => format!(
            "an update brings {volume}, which is {lag:.0} s old, up to date while hosts go on at {source}"
        ),
        None => format!("an update brings {volume} up to date while hosts go on at {source}"),
    });
    plan.would.push(format!(
        "{source} refuses host writes, and its last state comes here; disconnect its hosts first"
    ));
    plan.would.push(format!("hosts may write to {volume}, and {source} becomes its replica"));
    plan.would.push(format!(
        "if anything fails before the roles change, {source} takes writes again, and {volume} stays its replica"
    ));
    plan
}

/// That a swap is of one volume of a group. Whoever swaps all of them finds the command's name in it.
pub(crate) fn beside_swap(group: &str) -> String {
    format!(
        "the other volumes of group {group} do not change roles with it, and the group is split between two sites until they have: \
         farside mirror swap --group {group} changes the roles of all"
    )
}

/// What a swap leaves behind: retention and group are said at the site of each replica. None if there is neither.
pub(crate) fn left_by_swap(source: &str, retention: Option<&str>, group: Option<&str>) -> Option<String> {
    let (site, volume) = source.split_once(':').unwrap_or(("the other site", source));
    let keep = retention.map(|keep| format!(" --keep {keep}")).unwrap_or_default();
    let of_group = group.map(|group| format!(" --group {group}")).unwrap_or_default();
    let what = match (retention, group) {
        (None, None) => return None,
        (Some(_), None) => "retention does",
        (None, Some(_)) => "the group does",
        (Some(_), Some(_)) => "retention and group do",
    };
    // What the other side remembers is not known here: the line must not make less of it.
    Some(format!(
        "{what} not go along: afterwards, at {site}: farside mirror status {volume} says what it has there from before; if nothing: farside \
         mirror set {volume}{keep}{of_group}"
    ))
}

/// `mirror delete`.
pub(crate) struct DeleteFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    /// `PEER:POOL/VOL`.
    pub(crate) source: &'a str,
    /// A version has arrived here.
    pub(crate) has_copy: bool,
    /// A person has broken it off, or the roles have changed.
    pub(crate) is_broken_off: bool,
    /// The source follows the volume since.
    pub(crate) is_followed: bool,
    /// It followed the volume, and was broken off in its turn: the volume is the one that was overtaken.
    pub(crate) is_overtaken_back: bool,
    pub(crate) fence: &'a FenceAfter,
}

pub(crate) fn delete_mirror(facts: &DeleteFacts<'_>) -> Plan {
    let DeleteFacts { volume, source, fence, .. } = facts;
    // One that never held anything has overtaken nobody.
    let broken_off = facts.is_broken_off && facts.has_copy;
    let mut plan = plan(format!("delete mirror {volume}"));
    plan.would.push(match fence {
        FenceAfter::Stays(why) => {
            format!("{volume} stays, part of this mirror no more; hosts may read it, and not write: {why}")
        }
        FenceAfter::Lifted => format!(
            "{volume} stays, as a volume that hosts may write to, although {source} is the original and hosts may be writing \
             there: from then on there are two, and nobody is told; farside mirror break {volume} tells that site"
        ),
        FenceAfter::None if broken_off => {
            format!("{volume} stays as it is; hosts may write to it, and it is part of no mirror any more")
        }
        FenceAfter::None => format!("{volume} stays, as a volume that hosts may write to"),
    });
    if facts.is_followed {
        plan.would.push(format!(
            "{source} goes on following {volume}: nothing is kept any more for the mirror that is deleted"
        ));
        return plan;
    }
    if facts.is_overtaken_back {
        plan.would.push(format!(
            "{volume} stays overtaken by {source}, where hosts went on: only the way back that was kept here ends; farside mirror \
             status {volume} says what can be done about that"
        ));
    } else if broken_off {
        plan.would.push(format!(
            "{source} stays overtaken by this volume, and fenced if that was asked for, until its own administrator \
             decides (there: farside mirror release {of} PEER, or farside mirror resync {of}); if it has not heard of the \
             break yet, it is told at the next session",
            of = source.split_once(':').map_or(*source, |(_, of)| of)
        ));
    } else {
        plan.would.push(format!("{source} is told to release the base it keeps, now or at the next session"));
    }
    if !facts.has_copy {
        plan.would.push(format!("no copy of {source} had arrived whole: nothing of it stays here"));
        return plan;
    }
    plan.would.push(format!(
        "the last base stays here as {volume}@base-TIME, unless a named snapshot holds the same, and so does what other \
         replicas of {source} hold too: whatever site holds such a point, {volume} can follow with a difference; delete \
         them when that is not wanted"
    ));
    plan.would.push(format!(
        "once {source} has released it, {volume} can follow {source} with a difference only by a named snapshot that both \
         hold, or by farside mirror resync --whole"
    ));
    plan
}

/// `mirror release`: of `volume` from `peer`, which holds these replicas; by those of `overtaken` the volume is overtaken.
pub(crate) fn release(volume: &VolumeName, peer: &str, replicas: &[String], overtaken: &[String]) -> Plan {
    let mut plan = plan(format!("release {volume} from {peer}"));
    plan.would.push(if replicas.is_empty() {
        format!("the base kept in {volume} for a mirror that this site does not know is released, and its space comes back")
    } else {
        format!("the base kept here for {} is released, and its space comes back", replicas.join(", "))
    });
    // Those that were broken off ask for no update.
    let is_asked_again = replicas.is_empty() || replicas.iter().any(|replica| !overtaken.contains(replica));
    plan.would.push(match is_asked_again {
        true => format!(
            "no data of {volume} is lost, but the common base is: the next update at {peer} fails, unless a person made a \
             snapshot that both sides hold"
        ),
        false => format!(
            "no data of {volume} is lost, but the common base is: should one follow the other again, it needs a snapshot that both \
             sides hold, or farside mirror resync --whole, which compares everything"
        ),
    });
    if !overtaken.is_empty() {
        plan.would.push(format!(
            "{volume} is no longer overtaken by {}: its hosts may write, unless another mirror overtook it too, and what hosts \
             write there stays there",
            overtaken.join(", ")
        ));
    }
    plan
}

/// `peer remove`.
pub(crate) struct RemoveFacts<'a> {
    pub(crate) peer: &'a str,
    /// The beginning of its key, as lists show peers that are not pinned.
    pub(crate) key: &'a str,
    /// Replicas here that follow its volumes.
    pub(crate) replicas: &'a [String],
    /// (volume here, replica there that follows it).
    pub(crate) followers: &'a [(String, String)],
    /// (volume here, replica there) of which bases are kept.
    pub(crate) held: &'a [(String, String)],
    /// Volumes here that are fenced because it has overtaken them.
    pub(crate) fenced: &'a [String],
}

pub(crate) fn remove_peer(facts: &RemoveFacts<'_>) -> Plan {
    let RemoveFacts { peer, key, .. } = facts;
    let mut plan = plan(format!("remove peer {peer}"));
    plan.would.push(format!("the session with {peer} is cut, and the site is unknown here from then on"));
    plan.would.push(String::from("its rights here end; to undo this, both sites must pair again"));
    plan.would.extend(
        facts.replicas.iter().map(|r| format!("{r} gets no more updates; it can still be broken off")),
    );
    plan.would.extend(facts.followers.iter().map(|(volume, destination)| {
        format!("{peer}:{destination} gets no more updates of {volume}, which goes on here as it is")
    }));
    plan.would.extend(facts.fenced.iter().map(|volume| {
        format!(
            "{volume} stays fenced, because {peer} has overtaken it; to let hosts write there again: farside mirror \
             release {volume} {key}"
        )
    }));
    plan.would.extend(facts.held.iter().map(|(volume, destination)| {
        format!(
            "the base kept here of {volume} for {peer}:{destination} stays and holds space; to free that: farside \
             mirror release {volume} {key}"
        )
    }));
    plan
}

/// `token revoke`.
pub(crate) fn revoke_token(name: &str, token: Option<&Token>) -> Plan {
    let mut plan = plan(format!("revoke token {name}"));
    match token {
        Some(token) => plan.would.push(format!(
            "whoever uses it ({}) is refused from then on; for another: farside token create",
            token.role.name()
        )),
        None => plan.refused = Some(format!("there is no token {name}")),
    }
    plan
}

/// `account remove`.
pub(crate) fn remove_account(name: &str, account: Option<&Account>) -> Plan {
    let mut plan = plan(format!("remove account {name}"));
    match account {
        Some(account) => {
            plan.would.push(format!("{name} ({}) cannot log in any more", account.role.name()));
            if account.sessions > 0 {
                plan.would.push(format!("its {} sessions end", account.sessions));
            }
        }
        None => plan.refused = Some(format!("there is no account {name}")),
    }
    plan
}

/// `host remove`.
pub(crate) fn remove_host(host: &HostStatus) -> Plan {
    let name = &host.host.name;
    let mut plan = plan(format!("remove host {name}"));
    plan.would.push(format!("{name} is refused from then on, whatever certificate it still has; to let it in again: farside host add"));
    if host.host.connections > 0 {
        plan.would.push(format!("its {} connections are cut", host.host.connections));
    }
    let rights: Vec<_> = host.host.rights.iter().map(|right| right.volume.as_str()).collect();
    if !rights.is_empty() {
        plan.would.push(format!("its rights end: {}", rights.join(", ")));
    }
    plan
}

/// `peer rekey`.
pub(crate) struct ReplaceFacts<'a> {
    /// What the site is called, and with the new key until now.
    pub(crate) old: &'a str,
    pub(crate) new: &'a str,
    /// The beginnings of both keys.
    pub(crate) old_key: &'a str,
    pub(crate) new_key: &'a str,
    /// There is a session under the old key.
    pub(crate) old_is_connected: bool,
    /// Replicas here of its volumes.
    pub(crate) replicas: &'a [String],
    /// (volume here, replica there) that it mirrors.
    pub(crate) sources: &'a [(String, String)],
    /// Volumes that the old key may mirror.
    pub(crate) rights: &'a [String],
}

pub(crate) fn replace_peer(facts: &ReplaceFacts<'_>) -> Plan {
    let ReplaceFacts { old, new, old_key, new_key, .. } = facts;
    let mut plan = plan(format!("take {new} for the site that was {old}"));
    plan.would.push(format!(
        "the site is called {old}; key {new_key} speaks for it, and key {old_key} for nobody any more"
    ));
    if facts.old_is_connected {
        plan.would.push(format!(
            "a site with the old key is connected now: its session is cut. If both are running, be sure which one is {old}"
        ));
    }
    plan.would.extend(facts.replicas.iter().map(|r| {
        format!("{r} is updated from there, from the snapshot that both sides hold; nothing is copied again")
    }));
    plan.would.extend(
        facts
            .sources
            .iter()
            .map(|(volume, as_what)| format!("{old}:{as_what} goes on as a mirror of {volume}")),
    );
    if !facts.rights.is_empty() {
        plan.would.push(format!("it may mirror what {old} might: {}", facts.rights.join(", ")));
    }
    plan
}

/// What keeps a source from updates once its replica was broken off.
pub(crate) struct OvertakenFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    /// The peer, and its volume.
    pub(crate) peer: &'a str,
    pub(crate) destination: &'a VolumeName,
    /// When it was broken off; None: it does not know any more.
    pub(crate) since: Option<Timestamp>,
    /// The snapshot here that hosts there went on from.
    pub(crate) snapshot: Option<&'a str>,
    pub(crate) diverged_bytes: Option<u64>,
    pub(crate) fenced: bool,
    /// The mirror was deleted there since.
    pub(crate) ended: bool,
    /// Who went on, if not the destination itself but one beyond it: `PEER:POOL/VOL`.
    pub(crate) beyond: Option<&'a str>,
    /// What the volume here follows, if it is itself a replica: `PEER:POOL/VOL`.
    pub(crate) follows: Option<&'a str>,
    /// What the destination follows since, of which the mirror is over: `PEER:POOL/VOL`.
    pub(crate) follows_since: Option<&'a str>,
}

/// Why it is so, and what can be done.
pub(crate) fn overtaken(facts: &OvertakenFacts<'_>) -> String {
    let OvertakenFacts { volume, peer, destination, .. } = facts;
    let mut why = match facts.beyond {
        Some(beyond) => format!("overtaken beyond {peer}:{destination}: {beyond} was broken off"),
        None => format!("overtaken: {peer} broke off {destination}"),
    };
    if let Some(since) = facts.since {
        why += &format!(" at {since:.0}");
    }
    why += &match (facts.beyond, facts.snapshot, facts.diverged_bytes) {
        // The points that it and this side hold are the destination's to know.
        (Some(_), ..) => String::new(),
        (None, Some(snapshot), Some(0)) => format!(" from {snapshot}; nothing was written here since then"),
        (None, Some(snapshot), Some(bytes)) => {
            format!(
                " from {snapshot}; here {} blocks of 4 KiB ({bytes} bytes) differ since then",
                blocks(bytes)
            )
        }
        (None, Some(snapshot), None) => {
            format!(" from {snapshot}; how much was written here since then is not known")
        }
        (None, None, _) => format!(
            "; the point that hosts there continued from is no longer here: farside mirror resync {volume} --from \
             {peer}:{destination} --plan looks for an earlier one, and counts"
        ),
    };
    match facts.follows_since {
        Some(since) => {
            why += &format!("; {peer}:{destination} follows {since} since, so hosts may be writing there")
        }
        None if facts.ended => why += "; its site has deleted that mirror since",
        None => {}
    }
    if facts.fenced {
        why += "; hosts may not write here until this is decided";
    }
    if facts.beyond.is_none() && facts.follows == Some(format!("{peer}:{destination}").as_str()) {
        return format!(
            "{why}. {volume} is being made to follow {peer}:{destination}, and this is over when that is done: there is nothing to do"
        );
    }
    if let (Some(since), None, None) = (facts.follows_since, facts.beyond, facts.follows) {
        return format!(
            "{why}; if hosts shall go on there: farside mirror resync {volume} --from {since}; if hosts shall go on here: it \
             ends when {since} and {peer}:{destination} follow {volume}, or by farside mirror release {volume} {peer}"
        );
    }
    why + &match (facts.beyond, facts.follows) {
        (Some(beyond), _) => format!(
            "; if hosts shall go on there: once {peer}:{destination} follows {beyond}, farside mirror resync {volume} \
             --from {peer}:{destination}; if hosts shall go on here: it ends when it is decided at {peer}, or by farside \
             mirror release {volume} {peer}, which ends that mirror"
        ),
        (None, Some(follows)) => format!(
            "; {volume} is itself the replica of {follows}, which is told. If hosts shall go on there: farside mirror \
             break {volume}, then farside mirror resync {volume} --from {peer}:{destination}, and at the site of \
             {follows} farside mirror resync from here. If {follows} counts: farside mirror release {volume} {peer}, or \
             farside mirror resync {destination} at {peer}"
        ),
        (None, None) => {
            // Without a mirror nothing there says what it would follow.
            let back = match facts.ended {
                true => String::new(),
                false => format!(
                    "; farside mirror resync {destination} at {peer} has that one follow again, if the break was the mistake"
                ),
            };
            format!(
                "; farside mirror resync {volume} --from {peer}:{destination} takes over their state and keeps this one as a \
                 side branch{back}; farside mirror release {volume} {peer} keeps both"
            )
        }
    }
}

/// What is said when a fence ends by a right that is given without one.
pub(crate) fn fence_lifted(volume: &VolumeName, peer: &str) -> String {
    format!(
        "the fence of {volume} is lifted: hosts may write to it again, although {peer} has overtaken it; farside mirror status \
         {volume} says what can be done"
    )
}

/// What is said when a right goes that a fence came with.
pub(crate) fn stays_fenced(volume: &VolumeName, peer: &str, destination: &VolumeName) -> String {
    format!(
        "{volume} stays fenced: {peer} has overtaken it with {destination}. To let hosts write to it again: farside mirror \
         release {volume} {peer}; to make it follow: farside mirror resync {volume} --from {peer}:{destination}"
    )
}

/// What is said of a right that was given while nobody could look which volume it is on.
pub(crate) fn right_unseen(right: &Unseen) -> String {
    let Unseen { volume, is_bound } = right;
    let pool = &volume.pool;
    if *is_bound {
        format!(
            "pool {pool} is not open: the right stays one on the volume that was called {volume} when it was given first, \
             whatever has that name when the pool is open again"
        )
    } else {
        format!(
            "pool {pool} is not open: the right will be one on the volume that is called {volume} when it is opened"
        )
    }
}

/// A right was not taken back.
pub(crate) fn not_denied(peer: &str, volumes: &[String], error: ErrorBody) -> ErrorBody {
    let message = format!(
        "{peer} may do with {} what it might before: the right could not be taken back, and nothing has changed. {}",
        volumes.join(", "),
        error.message
    );
    ErrorBody { message, ..error }
}

/// A peer's key was replaced, and not all of memory could follow.
pub(crate) fn not_followed(old: &str, new: &str, error: ErrorBody) -> ErrorBody {
    let message = format!(
        "the key of {old} is replaced by that of {new}, for good, and the old one counts for nothing any more. But what the new \
         one may do, or what it is called, is not in force yet: {}",
        error.message
    );
    ErrorBody { message, ..error }
        .hint("restart farsided once the cause is gone; mirrors with that peer wait until then")
}

/// Why hosts may not write to a volume that a peer has overtaken.
pub(crate) fn fence(
    volume: &VolumeName,
    peer: &str,
    destination: &VolumeName,
    beyond: Option<&str>,
) -> String {
    if let Some(beyond) = beyond {
        return format!(
            "it is fenced: {beyond}, beyond {peer}:{destination}, was broken off and has overtaken it; farside mirror status \
             {volume} says what can be done; farside peer allow {peer} {volume} without --fence lets hosts write here \
             again; keep --reverse if it was given"
        );
    }
    format!(
        "it is fenced: {peer} has overtaken it with {destination}; farside mirror resync {volume} --from \
         {peer}:{destination} makes it follow that one; farside mirror release {volume} {peer} keeps both; farside \
         peer allow {peer} {volume} without --fence lets hosts write here again; keep --reverse if it was given"
    )
}

#[cfg(test)]
mod tests;
