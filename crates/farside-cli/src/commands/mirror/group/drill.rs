//! `farside mirror drill --group`: a clone of each replica of a group, all as of one moment; with `--run` one command tries them all.

use std::time::Instant;

use farside_api::split::Split;
use farside_api::{Drill, ErrorBody, ErrorCode, Mirror, StartDrill};
use serde::Serialize;

use super::halves;
use super::members::{Group, Member, members, volumes_of};
use super::moments::{Line, instant_of};
use super::named::Verb;
use crate::arguments::mirror::DrillArguments;
use crate::arguments::names::At;
use crate::commands::context::{Context, Failed};
use crate::commands::mirror::drill::{
    End, Endings, Held, RENEWALS, carry_out, failure, how_it_failed, note, report,
};
use crate::quantities::{duration, time};

/// The group may be updated between the choice of its moment and the last clone: so often it is chosen anew.
const ATTEMPTS: u32 = 5;

pub(crate) async fn run(context: &Context, arguments: DrillArguments) -> Result<(), Failed> {
    let group = arguments.group.clone().unwrap_or_default();
    let Some(command) = arguments.run.clone() else {
        let (drills, of_group) = clones(context, &group, &arguments).await?;
        of_group.note_aside(context, &group);
        let own = of_own_state(&of_group, &drills);
        context.aside(&own);
        let split = of_split(&group, &of_group.members);
        context.show(&tried(&drills, &split), |_| made(&drills) + &own + &of_group.note(&group) + &split);
        return Ok(());
    };
    // From here on a signal must not end this process before the clones are deleted.
    let mut endings = Endings::listen()?;
    let asked = Instant::now();
    let (mut drills, of_group) = clones(context, &group, &arguments).await?;
    of_group.note_aside(context, &group);
    let own = of_own_state(&of_group, &drills);
    context.aside(&own);
    let began = Instant::now();
    let held: Vec<Held> = drills.iter().map(Held::of).collect::<Result<_, _>>()?;
    let renewals: Vec<_> = held
        .iter()
        .map(|held| tokio::spawn(held.clone().renew(context.clone(), arguments.lease / RENEWALS)))
        .collect();
    let exports: Vec<String> = drills.iter().map(|d| format!("{}={}", d.replica, d.uri)).collect();
    let volumes: Vec<&str> = drills.iter().map(|d| d.name.as_str()).collect();
    let point = drills.first().map(|d| d.point.to_string()).unwrap_or_default();
    let variables = [
        ("FARSIDE_DRILL_EXPORTS", exports.join("\n")),
        ("FARSIDE_DRILL_VOLUMES", volumes.join("\n")),
        ("FARSIDE_DRILL_POINT", point),
    ];
    let (result, status) =
        carry_out(&command, &variables, context.json, arguments.timeout, &mut endings).await;
    renewals.iter().for_each(|renewal| renewal.abort());
    let took = (began.elapsed(), asked.elapsed());
    let mut failures = Vec::new();
    let why = how_it_failed(result, status, arguments.timeout);
    for (drill, held) in drills.iter_mut().zip(&held) {
        let end = held.delete(context).await;
        drill.run = Some(report(command.clone(), (result, status), took, &end));
        note(context, drill).await;
        if !matches!(end, End::Deleted) {
            failures.extend(failure(None, &end, &drill.name));
        }
    }
    let split = of_split(&group, &of_group.members);
    context.show(&tried(&drills, &split), |_| {
        let outcome = if why.is_none() { "the command succeeded" } else { "the command did not succeed" };
        let first = &drills[0];
        format!(
            "{outcome} after {}; recovery point {} ({} old), recovery time {}\nclones of {} of group {group}, {} deleted\n",
            duration(took.0.as_secs_f64()),
            time(first.point),
            duration(first.age_seconds),
            duration(took.1.as_secs_f64()),
            volumes_of(drills.len()),
            drills.iter().filter(|d| d.run.as_ref().is_some_and(|run| run.deleted)).count(),
        ) + &own
            + &of_group.note(&group)
            + &split
    });
    let of_command = why.map(|why| ErrorBody::new(ErrorCode::Failed, why));
    match of_command.into_iter().chain(failures).reduce(|all, more| {
        let both = ErrorBody::new(all.code, format!("{}; {}", all.message, more.message));
        match all.hint.or(more.hint) {
            Some(hint) => both.hint(hint),
            None => both,
        }
    }) {
        None => Ok(()),
        Some(error) => Err(Failed { error, is_printed: context.json, exit_code: None }),
    }
}

/// A clone, and what is to be known of the group that it is one of.
#[derive(Serialize)]
struct Tried<'a> {
    #[serde(flatten)]
    drill: &'a Drill,
    #[serde(skip_serializing_if = "str::is_empty")]
    note: &'a str,
}

fn tried<'a>(drills: &'a [Drill], note: &'a str) -> Vec<Tried<'a>> {
    drills.iter().map(|drill| Tried { drill, note: note.trim_end() }).collect()
}

/// That some of the group were broken off and others follow: a line; nothing if all are alike. Their clones are of one moment all the
/// same, and so a failover of the group as it is now is not what was tried.
fn of_split(group: &str, members: &[Member]) -> String {
    let of = |is_broken_off| -> Vec<&str> {
        let alike = members.iter().filter(|m| m.is_broken_off() == is_broken_off);
        alike.map(|m| m.mirror.name.as_str()).collect()
    };
    let (broken_off, follow) = (of(true), of(false));
    if broken_off.is_empty() || follow.is_empty() {
        return String::new();
    }
    format!(
        "group {group} is split: {} broken off, and {} still. The clones are of one moment all the same, and not of what hosts have written \
         to {} since. farside mirror break --group {group} takes over the rest, or says how if hosts have written to it since; farside mirror resync --group {group} takes the break back\n",
        are(&broken_off, "is", "are"),
        are(&follow, "follows", "follow"),
        if broken_off.len() == 1 { "it" } else { "them" },
    )
}

/// `q/a is`, `q/a and q/b are`.
fn are(names: &[&str], one: &str, more: &str) -> String {
    format!("{} {}", names.join(" and "), if names.len() == 1 { one } else { more })
}

/// A clone of each member, all of one moment; all of them, or none.
async fn clones(
    context: &Context,
    group: &str,
    arguments: &DrillArguments,
) -> Result<(Vec<Drill>, Group), ErrorBody> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let of_group = members(context, group, Verb::Drill).await?.replicas(group)?;
        if let Some(split) = &of_group.split {
            return Err(refused(split));
        }
        let members = &of_group.members;
        let mirrors: Vec<Mirror> = members.iter().map(|m| m.mirror.clone()).collect();
        // Also where only the other site knows of it, once: it is not asked again for each choice.
        if attempts == 1
            && let Some((site, split)) = halves::there(context, &mirrors).await
        {
            return Err(refused_there(&site, &split));
        }
        if arguments.at.is_none() && members.iter().all(Member::is_broken_off) {
            return Err(in_use(group, members));
        }
        let instant = instant_of(group, members, arguments.at.as_ref().map(At::name), None, Line::Main)?;
        let mut drills = Vec::new();
        let mut failed = None;
        for (member, name) in members.iter().zip(instant.names) {
            match clone(context, member, name, arguments).await {
                Ok(drill) => drills.push(drill),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let Some(error) = failed else { return Ok((drills, of_group)) };
        for drill in &drills {
            delete(context, drill, arguments.run.is_some()).await;
        }
        // What was chosen may have made way for a newer one.
        if error.code != ErrorCode::NotFound || attempts == ATTEMPTS {
            return Err(error);
        }
    }
}

/// Hosts write to all of it: the point that they went on from is not what the group shows.
fn in_use(group: &str, members: &[Member]) -> ErrorBody {
    let names = |after: &str| -> Vec<String> {
        members.iter().map(|m| format!("{}{after}", m.mirror.name)).collect()
    };
    let message = format!(
        "group {group}: {} broken off: hosts may write to them, so no snapshot is what they show",
        are(&names("").iter().map(String::as_str).collect::<Vec<_>>(), "is", "are")
    );
    ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "farside snapshot create {} makes one of now, then this with --at NOW; --at SNAP takes any that all have",
        names("@NOW").join(" ")
    ))
}

/// Clones of a part of the group would pass for the whole.
fn refused(split: &Split) -> ErrorBody {
    let group = &split.group;
    let message = format!(
        "group {group} is split: {}. Clones of the replicas here would be a part of it only. Nothing was made",
        split.places()
    );
    ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "{}; then this at the site of the replicas. farside mirror drill POOL/VOL tries one replica by itself",
        split.ways_out()
    ))
}

/// The same of one that is whole as far as is known here.
fn refused_there(site: &str, split: &Split) -> ErrorBody {
    let message = format!(
        "{}. Clones of the replicas here would be a part of it only. Nothing was made",
        halves::said_there(site, split)
    );
    ErrorBody::new(ErrorCode::Refused, message).hint(
        "once all are on one side, this at the site of the replicas. farside mirror drill POOL/VOL tries one replica by itself",
    )
}

async fn clone(
    context: &Context,
    member: &Member,
    snapshot: String,
    arguments: &DrillArguments,
) -> Result<Drill, ErrorBody> {
    let request = StartDrill {
        name: None,
        at: Some(snapshot),
        even_if_damaged: arguments.even_if_damaged,
        lease_seconds: arguments.run.as_ref().map(|_| arguments.lease.as_secs_f64()),
    };
    context.client.post(&member.path("drill")?, &request).await
}

/// Takes back a clone whose siblings could not be made.
async fn delete(context: &Context, drill: &Drill, is_held: bool) {
    let deleted = async {
        if is_held {
            return Ok(matches!(Held::of(drill)?.delete(context).await, End::Deleted | End::Gone));
        }
        let (pool, volume) = drill.name.split_once('/').unwrap_or_default();
        let path = ["volumes", pool, volume];
        let gone: Result<farside_api::Volume, ErrorBody> =
            context.client.confirmed(reqwest::Method::DELETE, &path, None::<&()>).await;
        gone.map(|_| true)
    };
    if !matches!(deleted.await, Ok(true)) {
        eprintln!("farside: the clone {0} stays: farside volume delete {0}", drill.name);
    }
}

/// That the clones are of what hosts here left, as far as a resync is pending: a line; nothing if none is.
fn of_own_state(of_group: &Group, drills: &[Drill]) -> String {
    let own: Vec<&Member> = of_group.members.iter().filter(|m| m.shows_own_state()).collect();
    let Some(first) = own.first() else { return String::new() };
    let names: Vec<&str> = own.iter().map(|m| m.mirror.name.as_str()).collect();
    let point = drills.iter().find(|drill| drill.replica == first.mirror.name);
    let point = point.map_or_else(String::new, |drill| format!(", {}", drill.snapshot));
    let (site, _) = first.mirror.source.split_once(':').unwrap_or(("the source", ""));
    format!(
        "a resync is pending of {0}: what is tried of {1} is a point of the line that hosts here went on with{point}, and not what {site} \
         has now. farside mirror break --group would give {1} back as hosts here left {1}, which may be newer\n",
        names.join(", "),
        if names.len() == 1 { "it" } else { "them" },
    )
}

fn made(drills: &[Drill]) -> String {
    let Some(first) = drills.first() else { return String::new() };
    let mut text =
        format!("writable clones, all as of {} ({} old):\n", time(first.point), duration(first.age_seconds));
    for drill in drills {
        text += &format!(
            "  {} of {}@{}\n    open it:  {}\n",
            drill.name, drill.replica, drill.snapshot, drill.uri
        );
    }
    text + "delete each with farside volume delete when the drill is over\n"
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::member;
    use super::*;

    #[test]
    fn a_group_of_which_one_was_broken_off_by_itself_is_said_to_be_split() {
        let (follows, off) = (member("q/a", "mirrored", None, &[]), member("q/b", "broken-off", None, &[]));
        assert_eq!(
            of_split("shop", std::slice::from_ref(&follows)) + &of_split("shop", std::slice::from_ref(&off)),
            ""
        );
        let said = of_split("shop", &[follows, off]);
        assert!(said.starts_with("group shop is split: q/b is broken off, and q/a follows still."), "{said}");
        assert!(said.contains("farside mirror resync --group shop"), "{said}");
    }
}
