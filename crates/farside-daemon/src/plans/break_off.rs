//! `mirror break`. Pure.

use farside_api::split::Split;
use farside_api::{Plan, Timestamp};
use farside_engine::VolumeName;
use farside_mirror::rescues;

use super::parts::{dropped_transfer, keep, lose, old_side_branch, opens, plan, rescue};
use crate::convert::roughly;

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
    /// That group, if hosts went on with another of it at this site while this one followed again.
    pub(crate) two_histories: Option<&'a Split>,
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
            "{site} was heard a moment ago: if both sites run and the roles are only to change, farside mirror swap {volume} loses nothing"
        ));
    }
    if let Some(group) = facts.group {
        let fits = facts.two_histories.map(|split| split.fits(&volume.to_string()));
        let at = at.as_ref().map(|at| at.snapshot);
        plan.would.push(match facts.others_follow {
            _ if fits.flatten().is_some_and(|fits| at == Some(fits)) => {
                format!("it fits to what hosts have written here to the rest of group {group}")
            }
            _ if let Some(split) = facts.two_histories => split.said(),
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
    plan.would.extend(facts.arrived_bytes.map(dropped_transfer));
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
