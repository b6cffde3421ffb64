//! Peers that go, or come back as another; and rights. Pure.

use farside_api::{ErrorBody, Plan};

use super::parts::plan;
use crate::peers::Unseen;

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
    plan.would.push(format!(
        "its rights here end; what {peer} allows this site stays until {peer} removes this site or denies it; to undo this, both sites must \
         pair again, and this one must give {peer} its rights again"
    ));
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
