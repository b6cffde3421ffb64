//! First copies, planned changes of roles, and the end of mirrors. Pure.

use farside_api::Plan;
use farside_engine::{RoomBelow, StagingRoom, VolumeName};

use super::break_off::FenceAfter;
use super::parts::{dropped_transfer, plan};

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

/// Why `volume` alone of a group changes no role: hosts would go on here with it, and at the other site with what is left behind.
pub(crate) fn swap_of_a_part(volume: &VolumeName, source: &str, group: &str, left: &[VolumeName]) -> String {
    let site = source.split_once(':').map_or("the other site", |(site, _)| site);
    let names = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (was, does) = if left.len() == 1 { ("was", "does") } else { ("were", "do") };
    format!(
        "{names} of group {group} {was} taken over by {site}, and {does} not follow there yet: with {volume} alone as an original here, the \
         group would be of two histories. No role changed. To have all of it follow {site} first: farside mirror resync --group {group}. To \
         change the role of {volume} all the same: farside mirror set {volume} --group none, then this again"
    )
}

/// That nobody could look whether the source would refuse.
pub(crate) fn unasked_swap(peer: &str, source: &str) -> String {
    format!(
        "whether {source} can change its role is asked once {peer} answers: hosts that have it open, or another site that has taken it \
         over, are a reason to refuse, and then nothing is changed"
    )
}

/// That a swap is of one volume of a group. Whoever swaps all of them finds the command's name in it.
pub(crate) fn beside_swap(group: &str) -> String {
    format!(
        "the other volumes of group {group} do not change roles with it, and the group is split between two sites until they have: \
         farside mirror swap --group {group} changes the roles of all"
    )
}

/// What a swap leaves behind: retention is said at the site of each replica. None if there is none.
pub(crate) fn left_by_swap(source: &str, retention: Option<&str>) -> Option<String> {
    let (site, volume) = source.split_once(':').unwrap_or(("the other site", source));
    // What the other side remembers is not known here: the line must not make less of it.
    Some(format!(
        "retention does not go along: afterwards, at {site}: farside mirror status {volume} says what it has there from before; if nothing: \
         farside mirror set {volume} --keep {}",
        retention?
    ))
}

/// `mirror delete`.
pub(crate) struct DeleteFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    /// `PEER:POOL/VOL`.
    pub(crate) source: &'a str,
    /// A version has arrived here.
    pub(crate) has_copy: bool,
    /// Bytes of a transfer under way that have arrived.
    pub(crate) arrived_bytes: Option<u64>,
    /// A change of roles is under way, and ends by it.
    pub(crate) is_swapping: bool,
    /// The sites are paired.
    pub(crate) is_paired: bool,
    /// The source keeps nothing for it, and knows of the break.
    pub(crate) has_ended_there: bool,
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
        FenceAfter::None if broken_off && facts.is_followed && facts.is_paired => {
            format!("only the way back that is kept here is forgotten; hosts may write to {volume}, as before")
        }
        FenceAfter::None if broken_off => {
            format!("{volume} stays as it is, and hosts may write to it; what was kept here of its mirror from {source} is over")
        }
        FenceAfter::None => format!("{volume} stays, as a volume that hosts may write to"),
    });
    if facts.is_swapping {
        plan.would
            .push(format!("the swap of {volume} that is under way is ended, and no role is changed by it"));
    }
    plan.would.extend(facts.arrived_bytes.map(dropped_transfer));
    if facts.is_followed {
        plan.would.push(match facts.is_paired {
            true => format!(
                "{source} goes on following {volume}: to end that, at its site: farside mirror delete {of}",
                of = source.split_once(':').map_or(*source, |(_, of)| of)
            ),
            false => format!(
                "{source} followed {volume} while the sites were paired, and gets nothing now: nothing is kept any more for the mirror that \
                 is deleted"
            ),
        });
        return plan;
    }
    if broken_off && facts.has_ended_there {
        plan.would.push(format!("{source} keeps nothing for this mirror, and is told nothing: only the way back that was kept here ends"));
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
             decides, unless that has been done and is not known here yet (there, where SITE is what this site is called: farside mirror release {of} SITE, or farside mirror resync {of} --from \
             SITE:{volume}, for which farside peer allow here has to name {volume} once more); if it has not heard of the break yet, it is \
             told at the next session",
            of = source.split_once(':').map_or(*source, |(_, of)| of)
        ));
    } else if facts.is_paired {
        plan.would.push(format!("{source} is told to release the base it keeps, now or at the next session"));
    } else {
        plan.would.push(format!(
            "{source} cannot be told, as the sites are not paired any more, and keeps its base: at that site, farside mirror destinations \
             shows it, and farside mirror release {of} KEY frees it",
            of = source.split_once(':').map_or(*source, |(_, of)| of)
        ));
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
            "no data of {volume} is lost, but the common base is: the next update at {peer} fails, unless a \
             snapshot is left that both sides hold"
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
