//! What is said of a volume that another site has taken over from. Pure.

use farside_api::Timestamp;
use farside_engine::VolumeName;

use super::parts::blocks;

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
    /// The volume here followed it when its pool was newer.
    pub(crate) set_back: bool,
    /// The group that the destination is in there.
    pub(crate) group: Option<&'a str>,
    /// So many volumes of it were not taken over from here.
    pub(crate) group_rest: usize,
}

/// Why it is so, and what can be done.
pub(crate) fn overtaken(facts: &OvertakenFacts<'_>) -> String {
    let OvertakenFacts { volume, peer, destination, .. } = facts;
    if facts.set_back {
        // Nobody broke anything off by mistake: the other site has the newer state.
        return format!(
            "overtaken: hosts write to {peer}:{destination}, which {volume} followed when the pool of {volume} was newer; that pool is an \
             older copy. farside mirror resync {volume} --from {peer}:{destination} has it follow again, and keeps what it shows as a side \
             branch"
        );
    }
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
        (None, Some(snapshot), Some(0)) => {
            format!("; hosts there went on from {snapshot}, and nothing was written here since that")
        }
        (None, Some(snapshot), Some(bytes)) => {
            format!(
                "; hosts there went on from {snapshot}, from which {} blocks of 4 KiB ({bytes} bytes) here differ",
                blocks(bytes)
            )
        }
        (None, Some(snapshot), None) => {
            format!(
                "; hosts there went on from {snapshot}; how much was written here since that is not known"
            )
        }
        (None, None, _) => format!(
            "; the point that hosts there went on from is not here: farside mirror resync {volume} --from {peer}:{destination} --plan looks for \
             one that both hold, and refuses if there is none (then --whole compares everything)"
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
                false => {
                    let what = match facts.group {
                        Some(group) if facts.group_rest == 0 => format!("--group {group}"),
                        _ => destination.to_string(),
                    };
                    format!(
                        "; farside mirror resync {what} at {peer} has that follow again, if the break was the mistake"
                    )
                }
            };
            let take_over = match facts.group.filter(|_| !facts.ended) {
                Some(group) if facts.group_rest > 0 => format!(
                    "it is of group {group} there, of which {peer} did not take over {} from here: volumes that hosts write to at two sites do \
                     not fit together. Decide for all of it, at {peer}: farside mirror status there says what takes over the rest, and farside \
                     mirror resync {destination} gives this one back. By itself, farside mirror resync {volume} --from {peer}:{destination} takes \
                     over their state and keeps this one as a side branch",
                    if facts.group_rest == 1 {
                        "one volume".to_owned()
                    } else {
                        format!("{} volumes", facts.group_rest)
                    }
                ),
                Some(group) => format!(
                    "it is of group {group} there: farside mirror resync --group {group} takes over their state of all of it and keeps what is here \
                     as side branches (of this one alone: farside mirror resync {volume} --from {peer}:{destination})"
                ),
                None => format!(
                    "farside mirror resync {volume} --from {peer}:{destination} takes over their state and keeps this one as a side branch"
                ),
            };
            format!("; {take_over}{back}; farside mirror release {volume} {peer} keeps both")
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
