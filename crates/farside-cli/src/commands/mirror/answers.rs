//! What a command says of a mirror that it has changed: that, and no more. `mirror status` has the rest.

use farside_api::split::group_of;
use farside_api::{Mirror, MirrorLink, MirrorState, Role, SetMirror, TakenOver, Throttle};

use crate::commands::site::throttle;
use crate::output::or_dash;
use crate::quantities::{duration, size};

/// What `mirror set` was asked for, as it holds now.
pub(super) fn set(mirror: &Mirror, request: &SetMirror) -> String {
    let mut said = Vec::new();
    if request.every_seconds.is_some() || request.schedule.is_some() {
        let updated = |schedule: String| format!("updated {schedule}");
        said.push(mirror.schedule.clone().map_or_else(|| "updated only when you ask".into(), updated));
    }
    if request.rpo_seconds.is_some() {
        let within = |rpo| format!("objective {}", duration(rpo));
        said.push(mirror.objective_seconds.map_or_else(|| "no objective".into(), within));
    }
    if request.retention.is_some() {
        let keeps = |keep: String| format!("keeps {keep}");
        let newest = || {
            format!(
                "keeps only its newest point from now on; what it kept until now stays until somebody deletes it (farside snapshot list {})",
                mirror.name
            )
        };
        said.push(mirror.retention.clone().map_or_else(newest, keeps));
    }
    if request.group.is_some() {
        let group = |group: String| format!("in group {group}");
        said.push(mirror.group.clone().map_or_else(|| "in no group".into(), group));
    }
    if let (Some(asked), Some(link)) = (&request.link, &mirror.link) {
        if asked.throttle.is_some() {
            said.push(format!("throttle {}", own_throttle(link, mirror.throttle)));
        }
        if asked.window_bytes.is_some() {
            said.push(format!("window {}", link.window_bytes.map_or_else(|| "auto".into(), size)));
        }
        if asked.low_priority.is_some() {
            said.push(format!("priority {}", if link.low_priority { "low" } else { "normal" }));
        }
        if asked.paths.is_some() {
            let paths = link.paths.join(" ");
            said.push(if paths.is_empty() { "all paths".into() } else { format!("paths {paths}") });
        }
    }
    let is_scheduled =
        request.every_seconds.is_some() || request.schedule.is_some() || request.rpo_seconds.is_some();
    let until = until(mirror)
        .filter(|_| is_scheduled && mirror.schedule.is_some())
        .map(|until| format!("; that is kept, but {until}"));
    format!("{}: {}{}\n", mirror.name, said.join("; "), until.unwrap_or_default()) + &chained_group(mirror)
}

/// What a group takes whose volumes are replicas at their source: it can take no moment there, only the one that they show.
pub(super) fn chained_group(mirror: &Mirror) -> String {
    let (Some(follows), Some(group)) = (&mirror.source_follows, &mirror.group) else { return String::new() };
    let (site, volume) = mirror.source.split_once(':').unwrap_or(("its site", &mirror.source));
    format!(
        "{} is a replica itself, of {follows}: group {group} is updated only to a moment that its source volumes all show, so they \
         have to be in one group there, too (at {site}, farside mirror set {volume} --group {group}), or all be originals. Updates \
         are refused until then\n",
        mirror.source
    )
}

/// What has to happen before a mirror is updated at all, where something has.
fn until(mirror: &Mirror) -> Option<String> {
    let name = &mirror.name;
    match mirror.state {
        MirrorState::BrokenOff if mirror.current_snapshot.is_none() => Some(format!(
            "it was broken off before its first copy was whole: farside mirror delete {name}, then farside mirror create {} {name} \
             begins again",
            mirror.source
        )),
        MirrorState::BrokenOff => {
            Some(format!("it is broken off: nothing is updated until farside mirror resync {name}"))
        }
        MirrorState::Quiesced => {
            Some(format!("it is quiesced: nothing is updated until farside mirror resume {name}"))
        }
        MirrorState::Uninitialized => {
            Some(format!("it was never copied: nothing is updated until farside mirror initialize {name}"))
        }
        _ => None,
    }
}

/// What came of a break. `rest`: what is to be said of the others of its group, a line, or nothing.
pub(super) fn broken_off(mirror: &Mirror, rest: &str) -> String {
    let Mirror { name, source, .. } = mirror;
    if let Some(what) = &mirror.given_up {
        return format!("{name} is writable, as before: the {what} that waited is given up\n");
    }
    let refused = mirror.hosts_refused.as_ref();
    let is = match refused {
        None => "writable",
        Some(_) => "broken off, and no replica any more",
    };
    let refused = refused.map(|why| format!("but hosts' writes to {name} fail for now: {why}\n"));
    let refused = refused.unwrap_or_default();
    if mirror.shows_own_state {
        return format!(
            "{name} is {is}, as hosts here left it: the resync that was pending is given up, and nothing of {source} was brought\n{refused}"
        );
    }
    if mirror.current_snapshot.is_none() {
        return format!(
            "{name} is {is}, and EMPTY: no copy of {source} had arrived whole. To begin again: farside mirror delete {name}, then \
             farside mirror create, with --every and --keep once more: they end with the mirror; once hosts have written to {name}, instead of \
             the latter: farside mirror resync {name} --from {source} --whole\n{refused}"
        );
    }
    let kept = mirror.kept_as.as_ref().map(|kept| format!("what is newer stays as {kept}\n"));
    format!(
        "{name} is {is}, as of {} (data {} old)\n{refused}{}{}",
        or_dash(mirror.current_snapshot.clone(), |s| s),
        or_dash(mirror.lag_seconds, duration),
        kept.unwrap_or_default(),
        rest
    ) + &follows_here(mirror)
        + &format!(
            "to take this back: farside mirror resync {name}; what hosts write here until then stays as a side branch\n"
        )
}

/// That of a volume which its former source follows only the way back has ended.
pub(super) fn way_back_forgotten(mirror: &Mirror) -> String {
    let Mirror { name, source, .. } = mirror;
    let (site, volume) = source.split_once(':').unwrap_or(("the other site", source));
    format!(
        "only the way back that was kept here is forgotten: {source} goes on following {name}. To end that, at {site}: farside mirror delete \
         {volume}\n"
    )
}

/// What has the other site follow, once it is back.
fn follows_here(mirror: &Mirror) -> String {
    let Mirror { name, source, .. } = mirror;
    let Some((site, volume)) = source.split_once(':') else { return String::new() };
    format!(
        "to go on here: as soon as {site} is there, farside mirror status {volume} at {site} has the line that makes it follow {name}\n"
    )
}

/// That hosts of the source's site could not go back to it after a failover, as the rights are.
/// `here`: this site's name.
pub(super) fn no_way_back(mirror: &Mirror, here: &str, is_reverse_unwanted: bool) -> String {
    let Mirror { name, source, .. } = mirror;
    let Some((peer, volume)) = source.split_once(':') else { return String::new() };
    if mirror.way_back != Some(false) || is_reverse_unwanted {
        return String::new();
    }
    format!("no way back yet. For failback:\n{}", allow_both(here, peer, volume, name))
}

/// What gives both sites the way back, a line for each.
fn allow_both(here: &str, peer: &str, source: &str, replica: &str) -> String {
    format!(
        "  at {peer}, where this site may be called otherwise (farside peer list):\n    farside peer allow {here} {source} --reverse\n  \
         here:\n    farside peer allow {peer} {replica} --reverse\n"
    )
}

/// What comes after a mirror was made.
pub(super) fn next(mirror: &Mirror) -> String {
    let Mirror { name, .. } = mirror;
    match (&mirror.current_snapshot, &mirror.schedule) {
        (None, _) if let Some(group) = &mirror.group => {
            format!("next, once all of group {group} are made: farside mirror initialize --group {group}\n")
        }
        (None, _) => format!("next: farside mirror initialize {name}\n"),
        (Some(_), Some(_)) => format!(
            "it holds a copy, and only what is new comes; farside mirror update {name} brings that now\n"
        ),
        (Some(_), None) => format!(
            "it holds a copy, and only what is new comes. next: farside mirror set {name} --every TIME, or farside mirror update \
             {name} each time\n"
        ),
    }
}

/// One that was found in its pool: what was asked for is set, whatever it was before.
pub(super) fn taken_over(mirror: &Mirror, here: &str, taken: TakenOver, is_reverse_unwanted: bool) -> String {
    let Mirror { name, source, .. } = mirror;
    let (peer, volume) = source.split_once(':').unwrap_or_default();
    let updated = match &mirror.schedule {
        Some(schedule) => format!("updated {schedule}"),
        None => "updated only when you ask".to_owned(),
    };
    let back = match taken.reverse {
        true => "; its source's site may mirror it back".to_owned(),
        false if is_reverse_unwanted => String::new(),
        false => format!(
            "\nits source's site may not mirror it back, and has not allowed that itself. For the way back:\n{}",
            allow_both(here, peer, volume, name).trim_end()
        ),
    };
    format!(
        "{name} was found in its pool, and what a lost state database had of it is set anew: it mirrors {source} again, \
         {updated}{back}\n{}",
        next(mirror)
    )
}

/// What the first copy brings, and whether there is room for it.
pub(super) fn first_copy(mirror: &Mirror) -> String {
    let Some(brings) = mirror.first_copy_bytes else { return String::new() };
    let pool = mirror.name.split('/').next().unwrap_or_default();
    let room = match mirror.room_bytes {
        None => String::new(),
        Some(room) if room >= brings => format!("; pool {pool} has room for {}", size(room)),
        Some(room) => format!(
            "; pool {pool} has room for {} only, and what does not fit is refused. What is short, and what makes room: farside mirror \
             initialize {} --plan",
            size(room),
            mirror.name
        ),
    };
    format!("the first copy brings up to {}{room}\n", size(brings))
}

/// That a volume which was there gets another size.
pub(super) fn resized(mirror: &Mirror) -> String {
    let Some(resized) = mirror.resized else { return String::new() };
    format!(
        "{} was there with {}; with the first copy it gets the size of its source, {}\n",
        mirror.name,
        size(resized.from_bytes),
        size(resized.to_bytes)
    )
}

pub(super) fn quiesced(mirror: &Mirror) -> String {
    let name = &mirror.name;
    let first = match mirror.state {
        MirrorState::Transferring | MirrorState::Initializing => {
            format!("{name}: the transfer that runs finishes, and no other begins")
        }
        _ => format!("{name} is quiesced: no transfer begins"),
    };
    format!("{first} until farside mirror resume {name}\n")
}

pub(super) fn resumed(mirror: &Mirror) -> String {
    let name = &mirror.name;
    if let Some(until) = until(mirror) {
        return format!("{name} is not quiesced any more, but {until}\n");
    }
    match &mirror.schedule {
        Some(schedule) => format!("{name} is updated again, {schedule}\n"),
        None => format!("{name} may be updated again; it has no schedule: farside mirror update {name}\n"),
    }
}

/// What the other members of a group show after one of them was updated, and all with it: a line each.
pub(super) fn others_of_group(mirrors: &[Mirror], updated: &str) -> String {
    let replicas = || mirrors.iter().filter(|m| m.role == Role::Destination);
    // Another site may have given its group the same name.
    let group = replicas().find(|m| m.name == updated).and_then(group_of);
    let is_other = |m: &&Mirror| group.is_some() && group_of(m) == group && m.name != updated;
    let line = |m: &Mirror| match (&m.current_snapshot, m.state) {
        (_, MirrorState::BrokenOff) => format!("{} is broken off, and is not updated\n", m.name),
        (Some(shown), _) => format!("{} holds {shown}{}\n", m.name, in_its_way(m)),
        (None, _) => format!("{} holds no whole copy yet{}\n", m.name, in_its_way(m)),
    };
    replicas().filter(is_other).map(line).collect()
}

/// Whether a mirror of the group of one is being updated.
pub(super) fn is_under_way(mirrors: &[Mirror], of: &str) -> bool {
    let replicas = || mirrors.iter().filter(|m| m.role == Role::Destination);
    let group = replicas().find(|m| m.name == of).and_then(group_of);
    replicas().any(|m| group.is_some() && group_of(m) == group && m.state == MirrorState::Transferring)
}

fn in_its_way(mirror: &Mirror) -> String {
    mirror.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default()
}

pub(super) fn aborted(mirror: &Mirror) -> String {
    let shows = or_dash(mirror.current_snapshot.clone(), |snapshot| snapshot);
    let name = &mirror.name;
    if let Some(what) = &mirror.given_up {
        return format!("{name}: the {what} that waited is given up; nothing was changed\n");
    }
    if mirror.shows_own_state {
        let again = match &mirror.schedule {
            Some(schedule) => format!("begins again by its schedule ({schedule})"),
            None => format!("farside mirror update {name} begins it again"),
        };
        return format!(
            "{name}: the transfer is stopped. The resync is still pending, and {again}; {name} shows its own state, read-only. To give the \
             resync up, and have {name} writable as hosts left it: farside mirror break {name}\n"
        );
    }
    match mirror.current_snapshot {
        Some(_) if mirror.state == MirrorState::Transferring => {
            format!("{name}: the transfer is being stopped; it shows {shows} until then\n")
        }
        Some(_) => format!("{name}: no transfer runs any more, and it shows {shows}\n"),
        None => format!("{name}: the transfer is stopped; it shows nothing of its source yet\n"),
    }
}

/// A mirror's own limit, as it is set and as it holds now.
pub(super) fn own_throttle(link: &MirrorLink, now: Option<u64>) -> String {
    throttle(&Throttle { rules: link.throttle.clone(), bytes_per_second: now })
}
